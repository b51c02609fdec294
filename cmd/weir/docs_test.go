package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestReferencesAreOfTheCode: docs/configuration.md and docs/commands.md are what docgen writes, and every command has a manual page.
func TestReferencesAreOfTheCode(t *testing.T) {
	out := t.TempDir()
	man := filepath.Join(out, "man")
	cmd := exec.CommandContext(t.Context(), "go", "run", "./internal/docgen", "-docs", out, "-man", man)
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	for _, name := range []string{"configuration.md", "commands.md"} {
		want, err := os.ReadFile(filepath.Join(out, name))
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join("../../docs", name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("docs/%s is not what the code says: run make docs", name)
		}
	}
	commands, err := os.ReadFile(filepath.Join(out, "commands.md"))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for section := range strings.SplitSeq(string(commands), "\n## ") {
		name, text, ok := strings.Cut(section, "\n")
		if !ok || !strings.HasPrefix(name, "weir ") {
			continue
		}
		n++
		if !strings.Contains(text, "\n  "+name) && !strings.Contains(text, "| "+name) {
			t.Errorf("%s has no example", name)
		}
		page := filepath.Join(man, strings.ReplaceAll(name, " ", "-")+".1")
		if content, err := os.ReadFile(page); err != nil || !bytes.Contains(content, []byte(".SH EXAMPLE")) {
			t.Errorf("%s: %v, or without an example", page, err)
		}
	}
	if n < 20 {
		t.Errorf("%d commands only", n)
	}
}

// TestCompletion: each shell gets a script that knows the commands.
func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		out, err := weirOn(t, t.TempDir(), "completion", shell)
		if err != nil || len(out) < 1000 {
			t.Errorf("%s: %v, %d bytes", shell, err, len(out))
		}
	}
	out, err := weirOn(t, t.TempDir(), "__complete", "deadletter", "")
	if err != nil || !strings.Contains(out, "requeue") || !strings.Contains(out, "drop") {
		t.Errorf("completion of deadletter: %v\n%s", err, out)
	}
}
