package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// section is a part of a document, from its heading to the next.
func section(t *testing.T, file, heading string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(content), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("%s has no section %q", file, heading)
	}
	part, _, _ := strings.Cut(rest, "\n## ")
	return part
}

// script is the commands of a document, and the checks behind them that its reader does not see: <!-- then: COMMAND -->.
func script(text string) (commands string, n int) {
	var b strings.Builder
	inside := false
	for line := range strings.Lines(text) {
		check, isCheck := strings.CutPrefix(line, "<!-- then: ")
		switch {
		case strings.HasPrefix(line, "```"):
			inside = line == "```sh\n"
			fmt.Fprintf(&b, "echo '--- block' >&2\n")
		case inside:
			b.WriteString(line)
			n++
		case isCheck:
			b.WriteString(strings.TrimSuffix(check, " -->\n") + "\n")
		}
	}
	return b.String(), n
}

// TestDocumentWorks runs what docs/weida.md says of the shell.
func TestDocumentWorks(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil && os.Getenv("CI") == "true" {
		t.Fatal("missing: bash")
	}
	if err != nil {
		t.Skip("left out, for want of bash: that the commands of the document work")
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(binary, filepath.Join(dir, "bin", "weida")); err != nil {
		t.Fatal(err)
	}
	commands, n := script(section(t, "../../docs/weida.md", "From the shell"))
	if n < 10 {
		t.Errorf("%d commands only", n)
	}
	commands = strings.ReplaceAll(commands, "127.0.0.1:7443", fmt.Sprintf("127.0.0.1:%d", freePort(t)))
	cmd := exec.CommandContext(t.Context(), bash, "-c", "set -xeuo pipefail\ntrap 'kill $(jobs -p) 2>/dev/null || true; wait || true' EXIT\n"+commands)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "WEIDA_IDENTITY="+filepath.Join(dir, "identity"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
