package weida_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-agent/weir/weida"
	"github.com/weir-agent/weir/weida/transport"
	"github.com/weir-agent/weir/weida/transport/simnet"
)

// server is a host that can be ended in different ways and started again at the same address.
type server struct {
	t    *testing.T
	end  *simnet.Conn
	host *host
}

func startServer(t *testing.T, n *simnet.Network, id *weida.Identity) *server {
	t.Helper()
	end := n.Listen()
	return &server{t, end, startHost(t, n, end, id, weida.Options{})}
}

// kill ends it as a process is killed: its socket is gone and nothing is said.
func (s *server) kill() {
	s.t.Helper()
	if err := s.end.Close(); err != nil {
		s.t.Fatal(err)
	}
	s.host.cancel()
	_ = s.host.runtime.Shutdown() // its socket is gone
	s.host.serving.Wait()
}

// shutdown ends it in order.
func (s *server) shutdown() {
	s.t.Helper()
	s.host.stop(s.t)
}

// restart starts it at the same address.
func (s *server) restart(id *weida.Identity) {
	s.t.Helper()
	end, err := s.host.network.ListenAt(s.end.LocalAddr())
	if err != nil {
		s.t.Fatal(err)
	}
	s.end = end
	s.host = startHost(s.t, s.host.network, end, id, weida.Options{})
}

// next returns the next event in the form in which the tests compare them.
func next(t *testing.T, events *weida.Events) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	e, err := events.Next(ctx)
	if err != nil {
		t.Fatalf("no event: %v", err)
	}
	switch e := e.(type) {
	case weida.Connected:
		return "connected"
	case weida.Lost:
		return fmt.Sprintf("lost: %v", e.Err.Cause)
	case weida.Retrying:
		return fmt.Sprintf("retrying %d", e.Attempt)
	case weida.GaveUp:
		presented := "nobody"
		if e.Presented != nil {
			presented = e.Presented.String()
		}
		return fmt.Sprintf("gave up %d, %s", e.Reason, presented)
	}
	return reflect.TypeOf(e).String()
}

// until reads events as far as one, and returns the number of attempts that came before it.
func until(t *testing.T, events *weida.Events, want string) int {
	t.Helper()
	for attempts := 0; ; attempts++ {
		got := next(t, events)
		if got == want {
			return attempts
		}
		if got != fmt.Sprintf("retrying %d", attempts+1) {
			t.Fatalf("got the event %q after %d attempts, want another attempt or %q", got, attempts, want)
		}
	}
}

func wantEvent(t *testing.T, events *weida.Events, want string) {
	t.Helper()
	if got := next(t, events); got != want {
		t.Fatalf("got the event %q, want %q", got, want)
	}
}

// request asks a host to echo a body, and wants it back.
func wantEcho(t *testing.T, r *weida.Requester, body []byte) {
	t.Helper()
	in, err := r.Request(t.Context(), weida.Meta{}, body)
	if err != nil {
		t.Fatal(err)
	}
	got, err := in.Collect(len(body))
	if err != nil || !bytes.Equal(got, body) {
		t.Fatalf("got %d bytes back, %v, want the %d that were sent", len(got), err, len(body))
	}
}

// redialCase is how a server goes and comes back.
type redialCase struct {
	name  string
	stop  func(s *server)
	cause weida.Cause
}

func redialCases() []redialCase {
	return []redialCase{
		{"shut down", (*server).shutdown, weida.CausePeerClosed},
		{"killed, the address stays empty for a minute", func(s *server) {
			s.kill()
			time.Sleep(time.Minute) // of the bubble's clock
		}, weida.CauseIdleTimeout},
		{"killed, and restarted at once", (*server).kill, weida.CauseReset},
	}
}

// TestRedialToTheSameKey restarts a server with the key that it had.
func TestRedialToTheSameKey(t *testing.T) {
	for _, tt := range redialCases() {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := simnet.New(7, simnet.Conditions{Delay: time.Millisecond})
				id := identity(t)
				s := startServer(t, n, id)
				defer func() { s.shutdown() }()
				client := clientOn(t, n, weida.Options{})
				r := client.Requester(weida.ClientTLS{})
				events := r.Events()
				url := s.host.url(echoPath)
				if err := r.Connect(t.Context(), url); err != nil {
					t.Fatal(err)
				}
				wantEvent(t, events, "connected")
				wantEcho(t, r, []byte("before"))
				tt.stop(s)
				s.restart(id)
				if tt.cause == weida.CauseReset {
					// What is said to the new process is answered with a reset at once. A keep-alive is too short for that.
					if _, err := r.Request(t.Context(), weida.Meta{}, make([]byte, 100)); !errors.Is(err, weida.ErrIndeterminate) {
						t.Errorf("a request to a process that is gone: got %v, want ErrIndeterminate", err)
					}
				}
				wantEvent(t, events, fmt.Sprintf("lost: %v", tt.cause))
				if n := until(t, events, "connected"); n == 0 {
					t.Error("it was connected again without an attempt")
				}
				wantEcho(t, r, []byte("after"))
				if got := r.PeerCount(); got != 1 {
					t.Errorf("%d peers are live, want 1", got)
				}
			})
		})
	}
}

// TestRedialToAnotherKey restarts a server with another key, which is another peer.
func TestRedialToAnotherKey(t *testing.T) {
	for _, pinned := range []bool{true, false} {
		for _, tt := range redialCases() {
			t.Run(fmt.Sprintf("%s, address pinned %v", tt.name, pinned), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					n := simnet.New(7, simnet.Conditions{Delay: time.Millisecond})
					first, second := identity(t), identity(t)
					s := startServer(t, n, first)
					defer func() { s.shutdown() }()
					client := clientOn(t, n, weida.Options{})
					// Both keys are trusted, and still the second is not the peer that was connected to.
					terms := weida.ClientTLS{Trust: weida.TrustPins(first.Fingerprint(), second.Fingerprint())}
					url := "weida://" + s.host.binding.Addr().String() + echoPath
					if pinned {
						url = s.host.url(echoPath)
					}
					r := client.Requester(terms)
					events := r.Events()
					if err := r.Connect(t.Context(), url); err != nil {
						t.Fatal(err)
					}
					wantEvent(t, events, "connected")
					tt.stop(s)
					s.restart(second)
					cause := tt.cause
					if cause == weida.CauseReset {
						cause = weida.CauseIdleTimeout // another key is another secret for resets
					}
					wantEvent(t, events, fmt.Sprintf("lost: %v", cause))
					until(t, events, fmt.Sprintf("gave up %d, %v", weida.GaveUpPeerChanged, second.Fingerprint()))
					_, err := r.Request(t.Context(), weida.Meta{}, nil)
					if lost, ok := errors.AsType[*weida.ConnectionLostError](err); !ok || lost.Cause != cause {
						t.Errorf("after it was given up: got %v, want the cause of the loss", err)
					}
					// Nothing of the second was spoken to, and a new connection may be made to it.
					if err := r.Disconnect(url); err != nil {
						t.Fatal(err)
					}
					if err := r.Connect(t.Context(), "weida://"+s.host.binding.Addr().String()+echoPath); err != nil {
						t.Fatal(err)
					}
					wantEcho(t, r, []byte("hello, somebody else"))
				})
			})
		}
	}
}

// TestNoRedial has everything that must not be dialled again.
func TestNoRedial(t *testing.T) {
	tests := []struct {
		name  string
		opts  weida.Options
		stop  func(s *server)
		end   string
		cause weida.Cause
	}{
		{"never", weida.Options{Reconnect: weida.ReconnectPolicy{Never: true}}, (*server).shutdown, fmt.Sprintf("gave up %d, nobody", weida.GaveUpPolicy), weida.CausePeerClosed},
		{
			"stop on a close by the peer",
			weida.Options{Reconnect: weida.ReconnectPolicy{StopOnPeerClosed: true}},
			(*server).shutdown, fmt.Sprintf("gave up %d, nobody", weida.GaveUpPolicy), weida.CausePeerClosed,
		},
		{
			"three attempts",
			weida.Options{Reconnect: weida.ReconnectPolicy{MaxAttempts: 3}},
			(*server).kill, fmt.Sprintf("gave up %d, nobody", weida.GaveUpPolicy), weida.CauseIdleTimeout,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := simnet.New(7, simnet.Conditions{Delay: time.Millisecond})
				s := startServer(t, n, identity(t))
				client := clientOn(t, n, tt.opts)
				p := client.Pusher(weida.ClientTLS{})
				events := p.Events()
				if err := p.Connect(t.Context(), s.host.url(pullPath)); err != nil {
					t.Fatal(err)
				}
				wantEvent(t, events, "connected")
				tt.stop(s)
				wantEvent(t, events, fmt.Sprintf("lost: %v", tt.cause))
				if got := until(t, events, tt.end); got != tt.opts.Reconnect.MaxAttempts {
					t.Errorf("it tried %d times, want %d", got, tt.opts.Reconnect.MaxAttempts)
				}
				err := p.Send(t.Context(), weida.Meta{}, []byte("x"))
				if lost, ok := errors.AsType[*weida.ConnectionLostError](err); !ok || lost.Cause != tt.cause {
					t.Errorf("after it was given up: got %v, want the cause of the loss", err)
				}
			})
		})
	}
}

// TestOutboxAcrossAnOutage sends while the server is away, and wants every message once and in order.
func TestOutboxAcrossAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := simnet.New(7, simnet.Conditions{Delay: time.Millisecond})
		id := identity(t)
		s := startServer(t, n, id)
		client := clientOn(t, n, weida.Options{})
		p := client.Pusher(weida.ClientTLS{})
		events := p.Events()
		if err := p.Connect(t.Context(), s.host.url(pullPath)); err != nil {
			t.Fatal(err)
		}
		wantEvent(t, events, "connected")
		s.shutdown()
		wantEvent(t, events, "lost: "+weida.CausePeerClosed.String())
		const messages = 500
		for i := range messages {
			if err := p.Send(t.Context(), weida.Meta{}, fmt.Append(nil, i)); err != nil {
				t.Fatal(err)
			}
		}
		if got := p.Queued(); got != messages {
			t.Errorf("%d messages are queued, want %d", got, messages)
		}
		s.restart(id)
		defer func() { s.shutdown() }()
		until(t, events, "connected")
		for range 100 {
			if p.Queued() == 0 {
				break
			}
			time.Sleep(time.Second) // of the bubble's clock
		}
		time.Sleep(time.Second)
		s.host.mu.Lock()
		defer s.host.mu.Unlock()
		if len(s.host.pulled) != messages || p.Dropped() != 0 {
			t.Errorf("%d of %d messages came, %d were dropped", len(s.host.pulled), messages, p.Dropped())
		}
		for _, err := range s.host.pulled {
			if err != nil {
				t.Errorf("a message came to %v", err)
			}
		}
	})
}

// clientOn makes a runtime that dials over a network, which ends with the test.
func clientOn(t *testing.T, n *simnet.Network, opts weida.Options) *weida.Runtime {
	t.Helper()
	opts.DialFrom = n.Listen()
	rt, err := weida.NewRuntime(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := rt.Shutdown(); err != nil {
			t.Error(err)
		}
	})
	return rt
}

// TestBadNetwork runs requests and messages of many sizes over networks that lose, repeat and reorder packets.
func TestBadNetwork(t *testing.T) {
	tests := []struct {
		name string
		c    simnet.Conditions
	}{
		{"loss", simnet.Conditions{Delay: 10 * time.Millisecond, Loss: 0.1}},
		{"reordering", simnet.Conditions{Delay: 10 * time.Millisecond, Reorder: 0.3, HoldBack: 50 * time.Millisecond}},
		{"duplicates", simnet.Conditions{Delay: 10 * time.Millisecond, Duplicate: 0.3}},
		{"all of them", simnet.Conditions{Delay: 30 * time.Millisecond, Loss: 0.05, Reorder: 0.2, HoldBack: 100 * time.Millisecond, Duplicate: 0.1}},
	}
	sizes := []int{0, 1, 63, 64, 1200, 1 << 14, 1 << 17}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHost(t, tt.c)
				client := clientOn(t, h.network, weida.Options{})
				r, p := client.Requester(weida.ClientTLS{}), client.Peer(weida.ClientTLS{})
				for c, path := range map[connector]string{r: echoPath, p: pullPath} {
					if err := c.Connect(t.Context(), h.url(path)); err != nil {
						t.Fatal(err)
					}
				}
				rng := rand.New(rand.NewPCG(1, 2))
				var wg sync.WaitGroup
				for range 8 {
					for _, size := range sizes {
						body := make([]byte, size)
						for i := range body {
							body[i] = byte(rng.Uint32())
						}
						wg.Go(func() { echoBack(t, r, body) })
						wg.Go(func() { pushThrough(t, p, body) })
					}
				}
				wg.Wait()
				if s := h.network.Stats(); s.Lost+s.Duplicated+s.Reordered < 100 {
					t.Errorf("the network was too kind: %+v", s)
				}
				synctest.Wait()
				h.mu.Lock()
				defer h.mu.Unlock()
				if len(h.pulled) != 8*len(sizes) {
					t.Errorf("%d receipts were given for %d transfers", 8*len(sizes), len(h.pulled))
				}
			})
		})
	}
}

func echoBack(t *testing.T, r *weida.Requester, body []byte) {
	in, err := r.Request(t.Context(), weida.Meta{}, body)
	if err != nil {
		t.Error(err)
		return
	}
	defer in.Close()
	got, err := io.ReadAll(in)
	if err != nil || !bytes.Equal(got, body) {
		t.Errorf("got %d bytes back, %v, want the %d that were sent", len(got), err, len(body))
	}
}

func pushThrough(t *testing.T, p *weida.Peer, body []byte) {
	w, err := p.Open(t.Context(), weida.Meta{})
	if err != nil {
		t.Error(err)
		return
	}
	defer w.Cancel()
	if _, err := w.Write(body); err != nil {
		t.Error(err)
		return
	}
	d, err := w.Finish()
	if err != nil {
		t.Error(err)
		return
	}
	if err := d.Wait(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestOneBadPeerDoesNotStallAnother has one client that reads nothing of what it is sent, and one that asks.
func TestOneBadPeerDoesNotStallAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, simnet.Conditions{Delay: time.Millisecond})
		bad := &raw{t, h.rawDial(t)}
		bad.uni(hello0, true)
		for range 100 {
			// Fewer bytes than the windows of the request take, whose echo nobody reads.
			bad.bi(append(data(t, echoPath), make([]byte, 100_000)...), true)
		}
		client := clientOn(t, h.network, weida.Options{})
		r := client.Requester(weida.ClientTLS{})
		if err := r.Connect(t.Context(), h.url(echoPath)); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		wantEcho(t, r, make([]byte, 100_000))
		if took := time.Since(begin); took > time.Second {
			t.Errorf("it took %v beside a peer that reads nothing", took)
		}
		if bad.link.Err() != nil {
			t.Errorf("a slow reader was closed: %v", bad.link.Err())
		}
		bad.link.Close(transport.CodeNoError, "")
	})
}
