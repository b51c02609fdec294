package weida

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weir-agent/weir/weida/transport/simnet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a network with runtimes on it, all of which are shut down when the test ends.
type rig struct {
	t       testing.TB
	net     *simnet.Network
	buses   Buses
	over    Carrier // of the servers
	servers int
}

func newRig(t testing.TB) *rig { return &rig{t: t, net: simnet.New(1, simnet.Conditions{})} }

// overEach runs a test over each carrier.
func overEach(t *testing.T, run func(t *testing.T, r *rig)) {
	for _, over := range []Carrier{OverQUIC, OverInproc, OverUnix} {
		t.Run(over.scheme(), func(t *testing.T) {
			r := newRig(t)
			r.over = over
			run(t, r)
		})
	}
}

// runtime makes a runtime with a socket of its own on the network.
func (r *rig) runtime(o Options) *Runtime {
	r.t.Helper()
	if o.DialFrom == nil {
		o.DialFrom = r.net.Listen()
	}
	o.Buses = &r.buses
	rt, err := NewRuntime(o)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if err := rt.Shutdown(); err != nil {
			r.t.Error(err)
		}
		_ = o.DialFrom.Close() // it may never have been used
	})
	return rt
}

// server is a runtime with a listener and one binding.
type server struct {
	*Listener
	rt      *Runtime
	binding *Binding
	id      *Identity
}

// server makes a server with an identity of its own, or of another server's.
func (r *rig) server(o Options) *server {
	r.t.Helper()
	if r.over == OverQUIC {
		return r.serverAt(o, r.net.Listen(), generate(r.t))
	}
	rt := r.runtime(o)
	s := &server{Listener: rt.Listener(), rt: rt}
	s.binding = r.bind(s)
	return s
}

// bind makes a server reachable at one more address of the rig's carrier.
func (r *rig) bind(s *server) *Binding {
	r.t.Helper()
	r.servers++
	switch r.over {
	case OverUnix:
		return must1(s.BindUnix(filepath.Join(r.t.TempDir(), "s")))(r.t)
	case OverInproc:
		return must1(s.BindInproc(fmt.Sprintf("bus %d", r.servers)))(r.t)
	}
	return must1(s.BindPacketConn(r.net.Listen(), ServerTLS{Identity: s.id}))(r.t)
}

// again makes a server where another one was that has been shut down, under the same key.
func (r *rig) again(was *server) *server {
	r.t.Helper()
	if r.over == OverQUIC {
		return r.serverAt(Options{}, must1(r.net.ListenAt(was.binding.Addr()))(r.t), was.id)
	}
	rt := r.runtime(Options{})
	s := &server{Listener: rt.Listener(), rt: rt}
	if r.over == OverUnix {
		s.binding = must1(s.BindUnix(was.binding.Addr().String()))(r.t)
	} else {
		s.binding = must1(s.BindInproc(was.binding.Addr().String()))(r.t)
	}
	return s
}

func (r *rig) serverAt(o Options, socket net.PacketConn, id *Identity) *server {
	r.t.Helper()
	rt := r.runtime(o)
	l := rt.Listener()
	b, err := l.BindPacketConn(socket, ServerTLS{Identity: id})
	if err != nil {
		r.t.Fatal(err)
	}
	return &server{l, rt, b, id}
}

// url is the address of a path.
func (s *server) url(path string) string {
	if s.id == nil {
		a := Address{Carrier: OverInproc, Local: s.binding.Addr().String(), Path: path}
		if s.binding.Addr().Network() == "unix" {
			a.Carrier = OverUnix
		}
		return a.String()
	}
	return fmt.Sprintf("weida://%v@%v%s", s.id.Fingerprint(), s.binding.Addr(), path)
}

func must1[T any](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantErr(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("got %v, want %v", err, want)
	}
}

// collect reads all of a transfer.
func collect(t testing.TB, in *IncomingTransfer) string {
	t.Helper()
	b, err := in.Collect(64 << 20)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// connected is whatever is connected to addresses.
type dialling interface {
	Connect(ctx context.Context, url string) error
	PeerCount() int
	Events() *Events
}

func connect(t testing.TB, d dialling, urls ...string) {
	t.Helper()
	for _, url := range urls {
		check(t, d.Connect(t.Context(), url))
	}
}

// echo answers every request of a replier with its body, until the replier is closed.
func echo(t testing.TB, r *Replier) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			req, err := r.Accept(context.Background())
			if err != nil {
				return
			}
			body := req.TakeBody()
			reply, err := req.Reply(context.Background(), Meta{ContentType: body.Meta().ContentType})
			if err != nil {
				continue
			}
			if _, err := io.Copy(reply, body); err != nil {
				reply.Cancel()
				continue
			}
			if d, err := reply.Finish(); err == nil {
				d.Discard()
			}
		}
	}()
	t.Cleanup(func() {
		_ = r.Close()
		<-done
	})
}

// deadline is a context that ends long after everything should have.
func deadline(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// breathe lets others run, in a loop that waits for a state of which nothing tells.
func breathe() { runtime.Gosched() }
