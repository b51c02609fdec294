package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// regolden writes testdata/golden/<version> anew. A folder of a version that was released is never written again.
var regolden = flag.String("regolden", "", "version of the format whose golden folder is made anew")

const goldenDir = "testdata/golden"

// goldenRecord is a line of records.jsonl: what a golden folder must give.
type goldenRecord struct {
	ID      string `json:"id"`
	Payload string `json:"payload"`
	Dead    bool   `json:"dead,omitempty"` // it is a dead letter
}

// TestGoldenFolders: the folder of every format version that there was starts, delivers what it holds under the ids that were
// acked, and keeps its dead letters.
func TestGoldenFolders(t *testing.T) {
	if *regolden != "" {
		makeGolden(t, filepath.Join(goldenDir, *regolden))
	}
	folders, err := os.ReadDir(goldenDir)
	if err != nil || len(folders) == 0 {
		t.Fatalf("%d folders, %v", len(folders), err)
	}
	for _, folder := range folders {
		t.Run(folder.Name(), func(t *testing.T) {
			from, dir := filepath.Join(goldenDir, folder.Name()), filepath.Join(t.TempDir(), "data")
			copyPrivate(t, filepath.Join(from, "data"), dir)
			want := readGolden(t, from)
			if out, err := weirOn(t, dir, "segment", "verify"); err != nil {
				t.Fatalf("verify: %v\n%s", err, out)
			}
			p := startWeir(t, dir)
			await(t, dir, func(s shownStatus) bool { return s.Backlog == 0 })
			letters, dead := map[string]bool{}, 0
			out, err := weirOn(t, dir, "deadletter", "export")
			if err != nil {
				t.Fatalf("export: %v\n%s", err, out)
			}
			got := deliveredIDs(t, dir)
			for _, r := range want {
				if r.Dead {
					dead++
					letters[r.ID] = strings.Contains(out, r.ID)
					continue
				}
				if got[r.ID] != r.Payload {
					t.Errorf("%s was delivered as %q, want %q", r.ID, got[r.ID], r.Payload)
				}
			}
			if dead == 0 || len(got) != len(want)-dead {
				t.Errorf("%d delivered and %d dead of %d", len(got), dead, len(want))
			}
			for id, there := range letters {
				if !there {
					t.Errorf("the dead letter %s is gone", id)
				}
			}
			if out, err := weirOn(t, dir, "deadletter", "requeue", "--all"); err != nil {
				t.Errorf("requeue: %v\n%s", err, out)
			}
			await(t, dir, func(s shownStatus) bool { return s.Dead.Records == 0 })
			pushText(t, dir, "written by this version")
			await(t, dir, func(s shownStatus) bool { return s.Backlog == 0 })
			if got := deliveredIDs(t, dir); len(got) != len(want)+1 {
				t.Errorf("%d records in the end, want %d", len(got), len(want)+1)
			}
			if code := p.stop(t); code != 0 {
				t.Errorf("exit status %d\n%s", code, p.log)
			}
		})
	}
}

func readGolden(t *testing.T, folder string) (want []goldenRecord) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(folder, "records.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(content) {
		var r goldenRecord
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatal(err)
		}
		want = append(want, r)
	}
	return want
}

func deliveredIDs(t *testing.T, dir string) map[string]string {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, "delivered.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got := map[string]string{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var r goldenRecord
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		got[r.ID] = r.Payload
	}
	return got
}

// copyPrivate copies a folder with the modes that a data folder has.
func copyPrivate(t *testing.T, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		target := filepath.Join(to, strings.TrimPrefix(path, from))
		if e.IsDir() {
			return os.MkdirAll(target, 0o700)
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(target, content, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// makeGolden fills a folder: some records delivered, one refused, then a sealed segment and an active one with records that wait,
// and a daemon that was killed.
func makeGolden(t *testing.T, folder string) {
	end := newCounted(t)
	dir := filepath.Join(t.TempDir(), "data")
	t.Setenv("WEIR_WAB_SEGMENT_BYTES", "64KiB")
	p := startWeir(t, dir, "--sink", "http", "--sink-url", end.URL)
	push := func(lines string) (out []goldenRecord) {
		cmd := exec.Command(binary, "push", "--tracked", "--json", "--socket", filepath.Join(dir, "weir.sock"))
		cmd.Stdin = strings.NewReader(lines)
		answer, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		payloads := strings.Split(strings.TrimSpace(lines), "\n")
		for line := range bytes.Lines(answer) {
			r := goldenRecord{Payload: payloads[len(out)]}
			if err := json.Unmarshal(line, &r); err != nil {
				t.Fatal(err)
			}
			out = append(out, r)
		}
		return out
	}
	push("delivered before\n")
	await(t, dir, func(s shownStatus) bool { return s.Backlog == 0 })
	end.status.Store(http.StatusBadRequest)
	want := push("refused\n")
	want[0].Dead = true
	await(t, dir, func(s shownStatus) bool { return s.Dead.Records == 1 && s.Backlog == 0 })
	if out, err := weirOn(t, dir, "drain", "pause"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for round := range 2 {
		var lines strings.Builder
		for i := range 10 {
			fmt.Fprintf(&lines, "round %d, record %d %s\n", round, i, strings.Repeat("x", i*37))
		}
		want = append(want, push(lines.String())...)
		if round == 0 {
			if out, err := weirOn(t, dir, "segment", "seal"); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			await(t, dir, func(s shownStatus) bool { return s.Shards[0].Segments[0].State == "sealed" })
		}
	}
	p.kill(t)
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	sockets, err := filepath.Glob(filepath.Join(dir, "*.sock*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range sockets {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	copyPrivate(t, dir, filepath.Join(folder, "data"))
	var lines bytes.Buffer
	enc := json.NewEncoder(&lines)
	for _, r := range want {
		if err := enc.Encode(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(folder, "records.jsonl"), lines.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}
