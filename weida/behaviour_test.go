package weida

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestBehaviourTable: every test that BEHAVIOUR.md names is there, so that a behaviour does not lose its test with a name.
func TestBehaviourTable(t *testing.T) {
	table := string(must1(os.ReadFile("BEHAVIOUR.md"))(t))
	var source strings.Builder
	for _, pattern := range []string{"*_test.go", "wire/*_test.go", "transport/localtransport/*_test.go"} {
		for _, file := range must1(filepath.Glob(pattern))(t) {
			source.Write(must1(os.ReadFile(file))(t))
		}
	}
	names := regexp.MustCompile("`(Test[A-Za-z]+)`").FindAllStringSubmatch(table, -1)
	if len(names) < 100 {
		t.Errorf("only %d tests are named", len(names))
	}
	for _, m := range names {
		if !strings.Contains(source.String(), "func "+m[1]+"(t *testing.T)") {
			t.Errorf("there is no %s", m[1])
		}
	}
	for row := range strings.Lines(table) {
		if strings.HasPrefix(row, "| ") && !strings.HasPrefix(row, "| behaviour") && !strings.Contains(row, "`Test") {
			t.Errorf("no test in: %s", row)
		}
	}
}
