package cli

import (
	"strings"
	"testing"
)

// TestChoose: cases are chosen by their names, and a choice of none says what there is.
func TestChoose(t *testing.T) {
	cases := []measure{{name: "fsync, 1 waiting"}, {name: "fsync, 16 waiting"}, {name: "durable, 1 producer"}}
	for _, tc := range []struct {
		only, want, fault string
	}{
		{"", "fsync, 1 waiting|fsync, 16 waiting|durable, 1 producer", ""},
		{"^fsync, 1 |durable", "fsync, 1 waiting|durable, 1 producer", ""},
		{"buffered", "", "fsync, 16 waiting"},
		{"(", "", "--only"},
	} {
		got, err := choose(cases, tc.only)
		var names []string
		for _, m := range got {
			names = append(names, m.name)
		}
		if strings.Join(names, "|") != tc.want || (err == nil) != (tc.fault == "") || err != nil && !strings.Contains(err.Error(), tc.fault) {
			t.Errorf("%q: got %q, %v", tc.only, names, err)
		}
	}
}
