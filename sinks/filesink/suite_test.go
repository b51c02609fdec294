package filesink

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/weir-agent/weir/sinks/sinktest"
)

func TestSuite(t *testing.T) {
	for _, format := range []string{FormatJSONL, FormatLines} {
		t.Run(format, func(t *testing.T) {
			sinktest.Run(t, func(t *testing.T) sinktest.Fixture {
				d := newDirFS(t, t.TempDir())
				s, err := New(Options{FS: d, Path: "out", Format: format})
				if err != nil {
					t.Fatal(err)
				}
				return sinktest.Fixture{Sink: s, Got: func() [][]byte { return payloadsIn(t, d, format) }, Stall: d.stall}
			})
		})
	}
}

func payloadsIn(t *testing.T, d *dirFS, format string) [][]byte {
	t.Helper()
	var all [][]byte
	for _, line := range content(t, d, "out") {
		if format == FormatLines {
			all = append(all, []byte(strings.TrimSuffix(line, "\n")))
			continue
		}
		var doc struct{ Payload string }
		if err := json.Unmarshal([]byte(line), &doc); err != nil {
			t.Fatal(err)
		}
		all = append(all, []byte(doc.Payload))
	}
	return all
}

// stall holds every sync of the file.
func (d *dirFS) stall() (<-chan struct{}, func()) {
	reached, released := make(chan struct{}), make(chan struct{})
	var first, last sync.Once
	d.setFail(func(op string) error {
		if op == "sync out" {
			first.Do(func() { close(reached) })
			<-released
		}
		return nil
	})
	return reached, func() { last.Do(func() { close(released) }) }
}
