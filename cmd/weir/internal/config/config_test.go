package config

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// TestBadFiles: each file of testdata/bad gives all the faults that stand beside it, each in a line with the file and, where a
// key of the file is at fault by itself, its line.
func TestBadFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/bad/*.toml")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			want, err := os.ReadFile(strings.TrimSuffix(file, ".toml") + ".want")
			if err != nil {
				t.Fatal(err)
			}
			_, err = Load(Source{File: file})
			if err == nil {
				t.Fatal("no error")
			}
			lines := strings.Split(err.Error(), "\n")
			for w := range strings.Lines(string(want)) {
				w = strings.TrimSuffix(w, "\n")
				if w[0] >= '0' && w[0] <= '9' {
					w = file + ":" + w
				}
				found := false
				for _, l := range lines {
					found = found || strings.HasPrefix(l, w)
				}
				if !found {
					t.Errorf("no line begins with %q:\n%v", w, err)
				}
			}
			if n := strings.Count(string(want), "\n"); len(lines) != n {
				t.Errorf("%d lines, want %d:\n%v", len(lines), n, err)
			}
		})
	}
}

func TestFlagsBeatEnvironmentBeatsFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "weir.toml")
	if err := os.WriteFile(file, []byte("[wab]\ndir = \"file\"\nshards = 2\nsegment_bytes = \"1MiB\"\n[log]\nlevel = \"warn\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := Load(Source{
		File:  file,
		Env:   []string{"WEIR_WAB_SHARDS=3", "WEIR_DATA_DIR=env", "WEIR_SOCKET_PEER_UIDS=1, 2", "WEIR_LOG_LEVEL=", "WEIR_SOMETHING=else", "PATH=/bin"},
		Flags: map[string]string{"wab.dir": "flag"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got.WAB.Dir != "flag" || got.WAB.Shards != 3 || got.WAB.SegmentBytes != 1<<20 || got.Log.Level != "warn" {
		t.Errorf("got %+v", got.WAB)
	}
	if !reflect.DeepEqual(got.Socket.PeerUIDs, []uint32{1, 2}) {
		t.Errorf("peer_uids %v", got.Socket.PeerUIDs)
	}
	if got.Socket.Path != filepath.Join("flag", "weir.sock") || got.Sink.File.Path != filepath.Join("flag", "delivered.jsonl") {
		t.Errorf("paths do not follow the data folder: %q, %q", got.Socket.Path, got.Sink.File.Path)
	}
}

func TestBadEnvironmentAndFlags(t *testing.T) {
	_, err := Load(Source{Env: []string{"WEIR_DRAIN_LINGER=soon"}, Flags: map[string]string{"wab.shards": "many"}})
	if err == nil || !strings.Contains(err.Error(), "WEIR_DRAIN_LINGER: ") || !strings.Contains(err.Error(), "flag for wab.shards: ") {
		t.Errorf("got %v", err)
	}
}

func TestDefaultsAreGood(t *testing.T) {
	got, err := Load(Source{})
	if err != nil {
		t.Fatal(err)
	}
	if got.Drain.Linger != 200*time.Millisecond || got.Socket.MaxConnections != 1024 || got.Admin.Listen != "127.0.0.1:9185" {
		t.Errorf("got %+v", got)
	}
}

// TestEveryKeyCanBeSet sets each key by its variable to the default as text, so that no field is of a kind that cannot be configured.
func TestEveryKeyCanBeSet(t *testing.T) {
	for _, key := range Keys() {
		cfg := Default()
		field := keys(reflect.ValueOf(&cfg).Elem(), "")[key]
		text := ""
		switch field.Type() {
		case sizeType:
			text = "1MiB"
		case durationType:
			text = "1s"
		default:
			switch field.Kind() {
			case reflect.String:
				text = "x"
			case reflect.Bool:
				text = "true"
			case reflect.Map:
				continue // only in a file
			default:
				text = "1"
			}
		}
		if err := set(field, text); err != nil {
			t.Errorf("%s = %q: %v", key, text, err)
		}
	}
}

func TestParseSize(t *testing.T) {
	for text, want := range map[string]Size{
		"0": 0, "4096": 4096, "64MiB": 64 << 20, "1.5 GB": 1_500_000_000, "10gib": 10 << 30, " 7 B ": 7, "-1": -1,
	} {
		if got, err := ParseSize(text); err != nil || got != want {
			t.Errorf("ParseSize(%q) = %d, %v, want %d", text, got, err, want)
		}
	}
	for _, bad := range []string{"", "MiB", "1 XB", "1..5", "99999999TiB", "1e9"} {
		if got, err := ParseSize(bad); err == nil {
			t.Errorf("ParseSize(%q) = %d, want an error", bad, got)
		}
	}
	for size, want := range map[Size]string{0: "0B", 1000: "1000B", 64 << 20: "64MiB", 3 << 30: "3GiB"} {
		if size.String() != want {
			t.Errorf("String of %d is %q, want %q", int64(size), size.String(), want)
		}
	}
	for size, want := range map[Size]string{0: "0 B", 1023: "1023 B", 1536: "1.5 KiB", 10 << 30: "10 GiB"} {
		if size.Human() != want {
			t.Errorf("Human of %d is %q, want %q", int64(size), size.Human(), want)
		}
	}
}
