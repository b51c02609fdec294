package ingest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weir-agent/weir/ingest/frame"
	"github.com/weir-agent/weir/wab"
	"github.com/weir-agent/weir/wab/record"
	"github.com/weir-agent/weir/wab/vfs/vfstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// watchdog ends a test that hangs; no test waits for it.
const watchdog = 30 * time.Second

// rig is a server over a real log on an in-memory disk.
type rig struct {
	t     testing.TB
	cfg   Config
	srv   *Server
	log   *wab.Log
	disk  *vfstest.Injector
	inner *vfstest.Disk

	stopOnce sync.Once
	served   chan error
}

func start(t testing.TB, cfg Config, opts wab.Options) *rig {
	t.Helper()
	inner := vfstest.NewDisk()
	r := &rig{t: t, disk: vfstest.NewInjector(inner), inner: inner, served: make(chan error, 1)}
	opts.FS = r.disk
	if opts.SegmentBytes == 0 {
		opts.SegmentBytes = 1 << 20
	}
	l, err := wab.Open("", opts)
	if err != nil {
		t.Fatal(err)
	}
	r.log = l
	if cfg.Path == "" {
		cfg.Path = filepath.Join(t.TempDir(), "s")
	}
	r.cfg = cfg
	appenders := make([]Appender, 0, len(l.Writable()))
	for _, s := range l.Writable() {
		appenders = append(appenders, s)
	}
	if r.srv, err = New(cfg, appenders); err != nil {
		t.Fatal(err)
	}
	go func() { r.served <- r.srv.Serve(context.Background()) }()
	t.Cleanup(func() {
		r.shutdown()
		r.log.Close() // some tests leave a failed disk
	})
	return r
}

// shutdown stops the server and checks that nothing is left charged.
func (r *rig) shutdown() {
	r.stopOnce.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), watchdog)
		defer cancel()
		if err := r.srv.Shutdown(ctx); err != nil {
			r.t.Errorf("Shutdown: %v", err)
		}
		if err := <-r.served; err != nil {
			r.t.Errorf("Serve: %v", err)
		}
		if st := r.srv.Stats(); st.MemoryBytes != 0 || st.Open != 0 {
			r.t.Errorf("after the shutdown %d bytes are charged and %d connections open", st.MemoryBytes, st.Open)
		}
	})
}

// records returns the payloads that are committed, in order.
func (r *rig) records() []string {
	r.t.Helper()
	var out []string
	for _, s := range r.log.Shards() {
		from, _ := s.Cursor()
		reader := s.NewReader(from)
		for {
			got, err := reader.Next(nil, 1000, 1<<20, wab.Position{})
			if err != nil {
				r.t.Fatal(err)
			}
			if len(got) == 0 {
				break
			}
			for _, rec := range got {
				out = append(out, string(rec.Payload))
			}
		}
		if err := reader.Close(); err != nil {
			r.t.Fatal(err)
		}
	}
	return out
}

// peer is a client that works with bytes.
type peer struct {
	t  testing.TB
	nc *net.UnixConn
}

func (r *rig) dial() *peer {
	r.t.Helper()
	nc, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: r.cfg.Path, Net: "unix"})
	if err != nil {
		r.t.Fatal(err)
	}
	if err := nc.SetDeadline(time.Now().Add(watchdog)); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { nc.Close() })
	return &peer{r.t, nc}
}

func (p *peer) send(parts ...[]byte) {
	p.t.Helper()
	if _, err := p.nc.Write(bytes.Join(parts, nil)); err != nil {
		p.t.Fatalf("send: %v", err)
	}
}

// read returns the next reply.
func (p *peer) read() (frame.Header, []byte) {
	p.t.Helper()
	b := make([]byte, frame.HeaderLen)
	if _, err := io.ReadFull(p.nc, b); err != nil {
		p.t.Fatalf("read the header of a reply: %v", err)
	}
	h, err := frame.ParseHeader(b, 1024)
	if err != nil {
		p.t.Fatal(err)
	}
	b = append(b, make([]byte, h.FrameLen()-frame.HeaderLen)...)
	if _, err := io.ReadFull(p.nc, b[frame.HeaderLen:]); err != nil {
		p.t.Fatalf("read a reply: %v", err)
	}
	payload, err := frame.ParsePayload(b, h)
	if err != nil {
		p.t.Fatal(err)
	}
	return h, payload
}

// name describes a reply in a word.
func name(h frame.Header, payload []byte) string {
	switch h.Type {
	case frame.Nack:
		n, err := frame.ParseNack(payload)
		if err != nil {
			return err.Error()
		}
		return "Nack " + n.Reason.String()
	case frame.AckBatch:
		return fmt.Sprintf("AckBatch %x", payload[3:])
	}
	return h.Type.String()
}

func (p *peer) want(names ...string) {
	p.t.Helper()
	for i, want := range names {
		if got := name(p.read()); got != want {
			p.t.Fatalf("reply %d is %s, want %s", i, got, want)
		}
	}
}

// wantEnd reads to the end of the stream, which must come without another byte
// and without a reset.
func (p *peer) wantEnd() {
	p.t.Helper()
	rest, err := io.ReadAll(p.nc)
	if err != nil || len(rest) != 0 {
		p.t.Errorf("at the end of the connection: %d bytes, %v", len(rest), err)
	}
}

// wantOpen checks that the connection still answers.
func (p *peer) wantOpen() {
	p.t.Helper()
	p.send(frame.AppendHealthCheck(nil))
	p.want("HealthCheckResponse")
}

func push(s string) []byte { return frame.Append(nil, frame.Push, record.Durable, []byte(s)) }

func pushBuffered(s string) []byte {
	return frame.Append(nil, frame.Push, record.Buffered, []byte(s))
}

func tracked(s string) []byte {
	return frame.Append(nil, frame.PushTracked, record.Durable, []byte(s))
}

func batchOf(records ...string) []byte {
	bs := make([][]byte, len(records))
	for i, r := range records {
		bs[i] = []byte(r)
	}
	return frame.AppendPushBatch(nil, record.Durable, bs...)
}

func repeat(s string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = s
	}
	return out
}

var errDisk = errors.New("the disk says no")
