package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDamageIsFoundShownAndSalvaged: one flipped byte is found by verify on a stopped folder and on a running one, costs the
// record it is in and no other, and what it cost is shown and can be salvaged.
func TestDamageIsFoundShownAndSalvaged(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	p := startWeir(t, dir)
	if out, err := weirOn(t, dir, "drain", "pause"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, text := range []string{"before the damage", "HIT by the damage", "after the damage"} {
		pushText(t, dir, text)
	}
	if code := p.stop(t); code != 0 {
		t.Fatalf("exit status %d\n%s", code, p.log)
	}
	if out, err := weirOn(t, dir, "segment", "verify"); err != nil || !strings.Contains(out, "3 records verified, 0 faults") {
		t.Fatalf("verify of a whole folder: %v\n%s", err, out)
	}
	segments, err := filepath.Glob(filepath.Join(dir, "shard_00", "seg_*"))
	if err != nil || len(segments) != 1 {
		t.Fatalf("segments %q, %v", segments, err)
	}
	flip(t, segments[0], "HIT by")
	out, err := weirOn(t, dir, "segment", "verify")
	if err == nil || !strings.Contains(out, "damage at offset") || !strings.Contains(out, "2 records verified, 1 faults") {
		t.Errorf("verify of a damaged folder: %v\n%s", err, out)
	}

	startWeir(t, dir)
	await(t, dir, func(s shownStatus) bool { return s.Backlog == 0 })
	if seen := delivered(t, dir); seen["before the damage"] != 1 || seen["after the damage"] != 1 || len(seen) != 2 {
		t.Errorf("delivered %v", seen)
	}
	if st := statusOf(t, dir); len(st.Warnings) != 1 || !strings.Contains(st.Warnings[0], "weir quarantine list") {
		t.Errorf("warnings %q", st.Warnings)
	}
	out, err = weirOn(t, dir, "quarantine", "list", "--json")
	var report struct {
		Name string `json:"name"`
		Lost int64  `json:"lost"`
	}
	if err != nil || json.Unmarshal([]byte(out), &report) != nil || report.Lost != 1 {
		t.Fatalf("quarantine list: %v\n%s", err, out)
	}
	for _, verb := range []string{"show", "salvage"} {
		if out, err := weirOn(t, dir, "quarantine", verb, report.Name); err != nil || verb == "salvage" && !strings.Contains(out, " by the damage") {
			t.Errorf("quarantine %s: %v\n%s", verb, err, out)
		}
	}
	pushText(t, dir, "and on")
	if out, err := weirOn(t, dir, "segment", "dump"); err == nil && !strings.Contains(out, "and on") {
		t.Errorf("dump beside the daemon: %v\n%s", err, out)
	}
}

// flip changes the first byte of a text in a file.
func flip(t *testing.T, path, text string) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	at := strings.Index(string(content), text)
	if at < 0 {
		t.Fatalf("%q is not in %s", text, path)
	}
	content[at] ^= 1
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}
