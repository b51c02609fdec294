package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/weir-agent/weir/wab/record"
)

// pushed runs weir push and returns its streams and exit status.
func pushed(t *testing.T, socket, stdin string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := exec.Command(binary, append([]string{"push", "--socket", socket}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errOut.String(), cmd.ProcessState.ExitCode()
}

func TestPush(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	startWeir(t, dir)
	socket := filepath.Join(dir, "weir.sock")
	file := filepath.Join(t.TempDir(), "lines")
	if err := os.WriteFile(file, []byte("from a file\nlast line without an end"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, stdin string
		args        []string
		want        []string
	}{
		{"lines", "a\n\nb\r\n", nil, []string{"a", "b\r"}},
		{"one at a time", "c\nd\n", []string{"--batch", "1", "--durability", "buffered"}, []string{"c", "d"}},
		{"nul", "e\nf\x00g\x00", []string{"--null"}, []string{"e\nf", "g"}},
		{"file", "", []string{"--file", file}, []string{"from a file", "last line without an end"}},
		{"tracked", "h\n", []string{"--tracked"}, []string{"h"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, stderr, code := pushed(t, socket, tc.stdin, tc.args...)
			if code != 0 {
				t.Fatalf("exit status %d: %s", code, stderr)
			}
			awaitEmpty(t, dir)
			seen := delivered(t, dir)
			for _, w := range tc.want {
				if seen[w] != 1 {
					t.Errorf("%q was delivered %d times", w, seen[w])
				}
			}
		})
	}
}

// TestPushTracked: what is printed is the key that the record is delivered under.
func TestPushTracked(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	startWeir(t, dir)
	socket := filepath.Join(dir, "weir.sock")
	stdout, stderr, code := pushed(t, socket, "x\ny\n", "--tracked", "--json")
	if code != 0 {
		t.Fatalf("exit status %d: %s", code, stderr)
	}
	awaitEmpty(t, dir)
	text, err := os.ReadFile(filepath.Join(dir, "delivered.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(strings.TrimSpace(stdout), "\n") {
		var at struct {
			Segment string    `json:"segment"`
			Index   uint64    `json:"index"`
			ID      record.ID `json:"id"`
		}
		if err := json.Unmarshal([]byte(line), &at); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if want := record.ComputeID(at.Segment, at.Index, []byte{"xy"[i]}); at.ID != want {
			t.Errorf("record %d has id %v, want %v", i, at.ID, want)
		}
		if !strings.Contains(string(text), at.ID.String()) {
			t.Errorf("nothing was delivered under %v:\n%s", at.ID, text)
		}
	}
}

// TestPushTrackedThenKilled: the id in the ack is the key that the record is delivered under, though weir was killed in between.
func TestPushTrackedThenKilled(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	p := startWeir(t, dir, "--sink", "http", "--sink-url", "http://127.0.0.1:1/")
	stdout, stderr, code := pushed(t, filepath.Join(dir, "weir.sock"), "x\ny\nz\n", "--tracked", "--json")
	if code != 0 {
		t.Fatalf("exit status %d: %s", code, stderr)
	}
	p.kill(t)
	startWeir(t, dir)
	awaitEmpty(t, dir)
	text, err := os.ReadFile(filepath.Join(dir, "delivered.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	if len(lines) != 3 {
		t.Fatalf("%d coordinates: %s", len(lines), stdout)
	}
	for _, line := range lines {
		var at struct{ ID, Segment string }
		if err := json.Unmarshal([]byte(line), &at); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), `"id":"`+at.ID+`","segment":"`+at.Segment+`"`) {
			t.Errorf("nothing was delivered as %s of %s:\n%s", at.ID, at.Segment, text)
		}
	}
}

// TestPushTellsWhatWasNotAcked: with the byte cap reached the exit status and the counts are honest, and what was acked is there.
func TestPushTellsWhatWasNotAcked(t *testing.T) {
	base := t.TempDir()
	dir := filepath.Join(base, "data")
	config := filepath.Join(base, "weir.toml")
	if err := os.WriteFile(config, []byte("[wab]\nmax_bytes = \"1MiB\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	startWeir(t, dir, "--config", config, "--sink", "http", "--sink-url", "http://127.0.0.1:1/")
	const records = 3000
	line := strings.Repeat("z", 1000)
	_, stderr, code := pushed(t, filepath.Join(dir, "weir.sock"), strings.Repeat(line+"\n", records), "--batch", "100")
	first, _, _ := strings.Cut(stderr, " of ")
	acked, err := strconv.Atoi(first)
	if err != nil || code != 1 || acked == 0 || acked >= records {
		t.Fatalf("exit status %d: %s", code, stderr)
	}
	if !strings.Contains(stderr, strconv.Itoa(records-acked)+" records were not acked and may or may not be stored") {
		t.Errorf("stderr: %s", stderr)
	}
	out, err := exec.Command(binary, "segment", "verify", "--data-dir", dir).CombinedOutput()
	if err != nil || !strings.Contains(string(out), strconv.Itoa(acked)+" records verified") {
		t.Errorf("%d acked; %v: %s", acked, err, out)
	}
}

func TestPushWithoutADaemon(t *testing.T) {
	_, stderr, code := pushed(t, filepath.Join(t.TempDir(), "none.sock"), "x\n")
	if code != 1 || !strings.Contains(stderr, "is the daemon running") {
		t.Errorf("exit status %d: %s", code, stderr)
	}
	_, stderr, code = pushed(t, "unused", "x\n", "--durability", "eternal")
	if code != 2 || !strings.Contains(stderr, "durable or buffered") {
		t.Errorf("exit status %d: %s", code, stderr)
	}
}
