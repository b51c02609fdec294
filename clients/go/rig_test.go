package weir

import (
	"context"
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weir-agent/weir/ingest"
	"github.com/weir-agent/weir/wab"
	"github.com/weir-agent/weir/wab/vfs/vfstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// watchdog ends a test that hangs; no test waits for it.
const watchdog = 10 * time.Second

// daemon is the real server over a real log on an in-memory disk.
type daemon struct {
	path string
	disk *vfstest.Injector
	log  *wab.Log
	stop func()
}

func startDaemon(t testing.TB, cfg ingest.Config) *daemon {
	t.Helper()
	d := &daemon{disk: vfstest.NewInjector(vfstest.NewDisk())}
	l, err := wab.Open("", wab.Options{FS: d.disk, SegmentBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	d.log = l
	t.Cleanup(func() { l.Close() })
	if cfg.Path == "" {
		cfg.Path = filepath.Join(t.TempDir(), "s")
	}
	d.path = cfg.Path
	d.serve(t, cfg)
	return d
}

// serve starts a server on the log; stop ends it.
func (d *daemon) serve(t testing.TB, cfg ingest.Config) {
	t.Helper()
	srv, err := ingest.New(cfg, []ingest.Appender{d.log.Writable()[0]})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(context.Background()) }()
	stopped := false
	d.stop = func() {
		if stopped {
			return
		}
		stopped = true
		if err := srv.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(d.stop)
}

// records returns how often each payload is in the log.
func (d *daemon) records(t testing.TB) map[string]int {
	t.Helper()
	out := map[string]int{}
	s := d.log.Shards()[0]
	from, _ := s.Cursor()
	r := s.NewReader(from)
	defer r.Close()
	for {
		got, err := r.Next(nil, 1000, 1<<20, wab.Position{})
		if err != nil {
			t.Fatal(err)
		}
		if len(got) == 0 {
			return out
		}
		for _, rec := range got {
			out[string(rec.Payload)]++
		}
	}
}

// script is a server that answers each connection with what a function does.
func script(t testing.TB, serve func(n int, nc net.Conn)) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := 0; ; n++ {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			serve(n, nc)
			nc.Close()
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-done
	})
	return path
}

// answer reads one frame of n bytes and writes b.
func answer(nc net.Conn, n int, b []byte) error {
	if _, err := io.ReadFull(nc, make([]byte, n)); err != nil {
		return err
	}
	_, err := nc.Write(b)
	return err
}
