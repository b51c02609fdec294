package ingest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-agent/weir/internal/unixsocket"
	"github.com/weir-agent/weir/wab"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestASecondServerIsRefused(t *testing.T) {
	r := start(t, Config{}, wab.Options{})
	if _, err := New(Config{Path: r.cfg.Path}, []Appender{r.log.Writable()[0]}); !errors.Is(err, unixsocket.ErrInUse) {
		t.Errorf("err = %v, want ErrInUse", err)
	}
	r.dial().wantOpen()
}

func TestConfigIsCheckedBeforeAnythingIsTouched(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "s")
	long := filepath.Join(dir, strings.Repeat("x", unixsocket.MaxPathBytes))
	app := []Appender{new(wab.Shard)}
	tests := []struct {
		name string
		cfg  Config
		want string
	}{
		{"no path", Config{}, "no path"},
		{"path too long", Config{Path: long}, "the operating system takes 107"},
		{"negative connections", Config{Path: path, MaxConnections: -1}, "max_connections"},
		{"negative frame timeout", Config{Path: path, FrameTimeout: -1}, "frame_timeout"},
		{"negative write timeout", Config{Path: path, WriteTimeout: -1}, "write timeout"},
		{"payload above the hard cap", Config{Path: path, MaxPayloadBytes: 16<<20 + 1}, "max_payload_bytes"},
		{"batch above the hard cap", Config{Path: path, MaxBatchRecords: 2049}, "max_batch_records"},
		{"pipeline records", Config{Path: path, PipelineRecords: -1}, "pipeline_records"},
		{"pipeline bytes", Config{Path: path, PipelineBytes: -1}, "pipeline_bytes"},
		{"budget below a frame", Config{Path: path, MemoryBytes: 1 << 20}, "memory budget"},
		{"all at once", Config{MaxConnections: -1, MaxBatchRecords: -1}, "max_batch_records"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := New(tt.cfg, app); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("err = %v, want %q", err, tt.want)
			}
		})
	}
	if _, err := New(Config{Path: path}, nil); err == nil {
		t.Error("no shard is accepted")
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 0 {
		t.Errorf("folder holds %v, %v", entries, err)
	}
}

func TestPeerUIDs(t *testing.T) {
	tests := []struct {
		name string
		uid  uint32
		uids []uint32
		own  uint32
		want bool
	}{
		{"own", 1000, nil, 1000, true},
		{"root", 0, nil, 1000, true},
		{"another", 1001, nil, 1000, false},
		{"another of root", 1001, nil, 0, false},
		{"listed", 1001, []uint32{1001, 1002}, 1000, true},
		{"not listed", 1003, []uint32{1001, 1002}, 1000, false},
		{"own but not listed", 1000, []uint32{1001}, 1000, false},
		{"root but not listed", 0, []uint32{1001}, 1000, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := uidAllowed(tt.uid, tt.uids, tt.own); got != tt.want {
				t.Errorf("allowed = %v, want %v", got, tt.want)
			}
		})
	}
}

// A peer that may not connect is closed without a byte.
func TestForeignPeerIsRefused(t *testing.T) {
	r := start(t, Config{PeerUIDs: []uint32{uint32(os.Geteuid()) + 1}}, wab.Options{})
	r.dial().wantEnd()
	if st := r.srv.Stats(); st.RefusedPeer != 1 || st.Accepted != 0 {
		t.Errorf("stats %+v", st)
	}
}

// What cannot be told is refused: a socket that is closed has no credentials.
func TestUnknownPeerIsRefused(t *testing.T) {
	r := start(t, Config{}, wab.Options{})
	p := r.dial()
	must(t, p.nc.Close())
	if err := allowed(p.nc, nil); err == nil {
		t.Error("a closed socket is allowed")
	}
}

func TestShutdownRemovesTheSocket(t *testing.T) {
	r := start(t, Config{}, wab.Options{})
	r.shutdown()
	if _, err := os.Lstat(r.cfg.Path); !os.IsNotExist(err) {
		t.Errorf("socket: %v", err)
	}
	if err := r.srv.Shutdown(context.Background()); err != nil {
		t.Errorf("a second shutdown: %v", err)
	}
}
