package weida_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/weir-agent/weir/weida"
	"github.com/weir-agent/weir/weida/transport"
	"github.com/weir-agent/weir/weida/transport/quictransport"
	"github.com/weir-agent/weir/weida/transport/simnet"
)

// The paths of a host.
const (
	echoPath = "/echo"
	pullPath = "/pull"
)

// identity makes a fresh one.
func identity(t testing.TB) *weida.Identity {
	t.Helper()
	id, err := weida.GenerateIdentity()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// host is a runtime of the library that serves, on a simulated network: requests to echoPath are echoed while they come, transfers to
// pullPath are read to their end, and what they came to is put into pulled.
type host struct {
	network *simnet.Network
	id      *weida.Identity
	runtime *weida.Runtime
	binding *weida.Binding
	paths   *weida.Listener
	serving sync.WaitGroup
	cancel  context.CancelFunc

	mu     sync.Mutex
	pulled []error
}

// newHost starts a host on a network of its own, which ends with the test.
func newHost(t *testing.T, c simnet.Conditions) *host {
	t.Helper()
	n := simnet.New(7, c)
	h := startHost(t, n, n.Listen(), identity(t), weida.Options{})
	t.Cleanup(func() { h.stop(t) })
	return h
}

// startHost starts a host on an end of a network, which the caller stops.
func startHost(t *testing.T, n *simnet.Network, end *simnet.Conn, id *weida.Identity, opts weida.Options) *host {
	t.Helper()
	rt, err := weida.NewRuntime(opts)
	if err != nil {
		t.Fatal(err)
	}
	l := rt.Listener()
	replier, err := l.Replier(echoPath)
	if err != nil {
		t.Fatal(err)
	}
	puller, err := l.Puller(pullPath)
	if err != nil {
		t.Fatal(err)
	}
	binding, err := l.BindPacketConn(end, weida.ServerTLS{Identity: id})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	h := &host{network: n, id: id, runtime: rt, binding: binding, paths: l, cancel: cancel}
	h.serving.Go(func() { h.reply(ctx, replier) })
	h.serving.Go(func() { h.pull(ctx, puller) })
	return h
}

func (h *host) reply(ctx context.Context, replier *weida.Replier) {
	for {
		req, err := replier.Accept(ctx)
		if err != nil {
			return
		}
		h.serving.Go(func() {
			body := req.TakeBody()
			defer body.Close()
			w, err := req.Reply(ctx, weida.Meta{})
			if err != nil {
				return
			}
			defer w.Cancel()
			if _, err := io.Copy(w, body); err != nil {
				return
			}
			if d, err := w.Finish(); err == nil {
				d.Discard()
			}
		})
	}
}

func (h *host) pull(ctx context.Context, puller interface {
	Recv(ctx context.Context) (*weida.IncomingTransfer, error)
},
) {
	for {
		in, err := puller.Recv(ctx)
		if err != nil {
			return
		}
		h.serving.Go(func() {
			defer in.Close()
			_, err := io.Copy(io.Discard, in)
			h.mu.Lock()
			defer h.mu.Unlock()
			h.pulled = append(h.pulled, err)
		})
	}
}

func (h *host) stop(t *testing.T) {
	t.Helper()
	h.cancel()
	if err := h.runtime.Shutdown(); err != nil {
		t.Errorf("shutdown: %v", err)
	}
	h.serving.Wait()
}

// patience is how long a test waits inside a bubble, longer than every timeout of the library, before it gives up.
const patience = 10 * time.Minute

// within waits for done, and fails the test where it does not come.
func within(t *testing.T, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatalf("nothing happened for %v", patience)
	}
}

// url returns the address of a path of the host, with its fingerprint.
func (h *host) url(path string) string {
	return "weida://" + h.id.Fingerprint().String() + "@" + h.binding.Addr().String() + path
}

// rawDial makes a link to the host below the library, which ends with the test.
func (h *host) rawDial(t *testing.T) transport.Link {
	t.Helper()
	d, err := quictransport.NewDialler(h.network.Listen(), quictransport.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		if err := d.Wait(ended); err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	link, err := d.Dial(t.Context(), h.binding.Addr(), &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	return link
}

// wantServing has another peer ask the host.
func (h *host) wantServing(t *testing.T) {
	t.Helper()
	r := &raw{t, h.rawDial(t)}
	r.uni(hello0, true)
	if got, err := r.echo("still there?"); got != "still there?" || err != nil {
		t.Errorf("another peer's request came to %q, %v", got, err)
	}
}
