package quictransport

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	quic "github.com/quic-go/quic-go"

	"github.com/weir-agent/weir/weida/transport"
	"github.com/weir-agent/weir/weida/transport/simnet"
	"github.com/weir-agent/weir/weida/transport/transporttest"
)

// dial makes a link as the dialling side sees it.
func (r *rig) dial(t *testing.T, cert ...tls.Certificate) transport.Link {
	t.Helper()
	l, err := r.dialler.Dial(t.Context(), r.listener.Addr(), clientTLS(cert...))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func wantPeerClosed(t *testing.T, l transport.Link, code uint64) {
	t.Helper()
	<-l.Done()
	if e, ok := errors.AsType[*transport.CloseError](l.Err()); !ok || e.Cause != transport.CausePeerClosed || e.Code != code {
		t.Errorf("got %v, want closed by the peer with %s", l.Err(), transport.CodeName(code))
	}
}

func TestMaxConnections(t *testing.T) {
	n := simnet.New(1, simnet.Conditions{})
	r := newRig(t, n.Listen(), n.Listen(), ListenConfig{MaxConnections: 2}, Config{})
	first, firstAccepted := r.pair(t)
	second, _ := r.pair(t)
	wantPeerClosed(t, r.dial(t), transport.CodeLimitExceeded)
	if first.Err() != nil || second.Err() != nil {
		t.Errorf("the links within the limit ended: %v, %v", first.Err(), second.Err())
	}
	first.Close(transport.CodeNoError, "")
	<-firstAccepted.Done()
	third, _ := r.pair(t)
	if third.Err() != nil {
		t.Errorf("the place of a link that ended is not free: %v", third.Err())
	}
}

func TestMaxConnectionsPerPeer(t *testing.T) {
	n := simnet.New(1, simnet.Conditions{})
	r := newRig(t, n.Listen(), n.Listen(), ListenConfig{MaxConnectionsPerPeer: 1}, Config{})
	a, b := transporttest.Certificate(t), transporttest.Certificate(t)
	first, firstAccepted := r.pair(t, a)
	if k, ok := firstAccepted.Info().Peer.Fingerprint(); !ok || k != transport.CertificateFingerprint(a.Leaf) {
		t.Errorf("the client is known as %v", firstAccepted.Info().Peer)
	}
	wantPeerClosed(t, r.dial(t, a), transport.CodeLimitExceeded)
	r.pair(t, b)
	for range 3 { // two that proved nothing are not one peer
		if _, accepted := r.pair(t); accepted.Info().Peer != (transport.Identity{}) {
			t.Errorf("an anonymous client is known as %v", accepted.Info().Peer)
		}
	}
	first.Close(transport.CodeNoError, "")
	<-firstAccepted.Done()
	r.pair(t, a)
}

func TestStreamBudget(t *testing.T) {
	n := simnet.New(1, simnet.Conditions{})
	listen := ListenConfig{Config: Config{MaxUniStreams: 2, MaxBidiStreams: -1}}
	r := newRig(t, n.Listen(), n.Listen(), listen, Config{})
	dialled, accepted := r.pair(t)
	for range 2 {
		w, err := dialled.OpenUni(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := w.CloseWrite(); err != nil {
			t.Fatal(err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := dialled.OpenUni(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("beyond the budget: got %v, want to wait for the context", err)
	}
	if _, _, err := dialled.OpenBi(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("without a budget: got %v, want to wait for the context", err)
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		if _, err := dialled.OpenUni(t.Context()); err != nil {
			t.Errorf("once a place is free: %v", err)
		}
	})
	s, err := accepted.AcceptUni(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, s); err != nil {
		t.Fatal(err)
	}
}

// TestWindowsAreFixed has a reader that follows closely for long, which makes windows grow that can, and then one that stops.
func TestWindowsAreFixed(t *testing.T) {
	simulated(t, simnet.Conditions{Delay: 10 * time.Millisecond}, ListenConfig{Config: testConfig}, testConfig, func(t *testing.T, _ *simnet.Network, r *rig) {
		dialled, accepted := r.pair(t)
		w, err := dialled.OpenUni(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := w.Write(make([]byte, 100*testWindow)); err != nil {
				t.Error(err)
			}
		})
		s, err := accepted.AcceptUni(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(s, make([]byte, 100*testWindow)); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		wg.Go(func() {
			ahead, _ := w.Write(make([]byte, 100*testWindow)) // it ends with the reset
			if ahead < testWindow/2 || ahead > testWindow {
				t.Errorf("%d bytes went ahead of the reader, the window is %d", ahead, testWindow)
			}
		})
		time.Sleep(time.Minute) // of the bubble's clock: all that can be sent is sent
		w.Reset(transport.CodeCanceled)
		wg.Wait()
	})
}

func TestALPN(t *testing.T) {
	tests := []struct {
		name   string
		protos []string
		ok     bool
	}{
		{"ours", []string{"weida/0"}, true},
		{"ours among others", []string{"h3", "weida/0"}, true},
		{"none", nil, false},
		{"another version", []string{"weida/1"}, false},
		{"a prefix", []string{"weida"}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := simnet.New(1, simnet.Conditions{})
			r := newRig(t, n.Listen(), n.Listen(), ListenConfig{}, Config{})
			conf := clientTLS()
			conf.NextProtos, conf.MinVersion = tt.protos, tls.VersionTLS13
			conn, err := r.dialler.endpoint.tr.Dial(t.Context(), r.listener.Addr(), conf, &quic.Config{})
			if tt.ok {
				if err != nil {
					t.Fatal(err)
				}
				if err := conn.CloseWithError(0, ""); err != nil {
					t.Fatal(err)
				}
				return
			}
			wantCause(t, "the handshake", closeError(err), transport.CauseTLS)
		})
	}
}

func TestVerifierRefuses(t *testing.T) {
	refusal := errors.New("not this one")
	n := simnet.New(1, simnet.Conditions{})
	r := newRig(t, n.Listen(), n.Listen(), ListenConfig{}, Config{})
	conf := clientTLS()
	conf.VerifyConnection = func(tls.ConnectionState) error { return refusal }
	_, err := r.dialler.Dial(t.Context(), r.listener.Addr(), conf)
	wantCause(t, "the dial", err, transport.CauseTLS)
	if !errors.Is(err, refusal) {
		t.Errorf("the verifier's error is not in %v", err)
	}
}

func TestNoReceipts(t *testing.T) {
	n := simnet.New(1, simnet.Conditions{})
	r := newRig(t, n.Listen(), n.Listen(), ListenConfig{}, Config{NoReceipts: true})
	dialled, accepted := r.pair(t)
	w, err := dialled.OpenUni(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Receipt(); !errors.Is(err, transport.ErrNoReceipt) {
		t.Errorf("got %v, want ErrNoReceipt", err)
	}
	if w, err = accepted.OpenUni(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Receipt(); err != nil {
		t.Errorf("the other side's own configuration counts there: %v", err)
	}
}

func TestListenerClose(t *testing.T) {
	simulated(t, simnet.Conditions{}, ListenConfig{}, Config{}, func(t *testing.T, _ *simnet.Network, r *rig) {
		taken, _ := r.pair(t)
		untaken := r.dial(t)
		synctest.Wait() // its handshake is complete at the listener, too
		if err := errors.Join(r.listener.Close(), r.listener.Close()); err != nil {
			t.Fatal(err)
		}
		if _, err := r.listener.Accept(t.Context()); !errors.Is(err, transport.ErrListenerClosed) {
			t.Errorf("Accept: got %v, want ErrListenerClosed", err)
		}
		wantPeerClosed(t, untaken, transport.CodeShutdown)
		if _, err := r.dialler.Dial(t.Context(), r.listener.Addr(), clientTLS()); err == nil {
			t.Error("a closed listener accepted a link")
		}
		if taken.Err() != nil {
			t.Errorf("the link that was taken ended: %v", taken.Err())
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := r.listener.Wait(ended); !errors.Is(err, context.Canceled) {
			t.Errorf("Wait with a live link: got %v, want the context's error", err)
		}
	})
}

func TestWaitForLinks(t *testing.T) {
	n := simnet.New(1, simnet.Conditions{})
	r := newRig(t, n.Listen(), n.Listen(), ListenConfig{}, Config{})
	dialled, _ := r.pair(t)
	for _, err := range []error{r.listener.Close(), r.dialler.Close()} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.dialler.Dial(t.Context(), r.listener.Addr(), clientTLS()); !errors.Is(err, ErrDiallerClosed) {
		t.Errorf("dial after Close: got %v, want ErrDiallerClosed", err)
	}
	dialled.Close(transport.CodeShutdown, "")
	if err := errors.Join(r.dialler.Wait(t.Context()), r.listener.Wait(t.Context())); err != nil {
		t.Errorf("Wait after the last link: %v", err)
	}
	if _, err := n.ListenAt(r.listener.Addr()); err != nil {
		t.Errorf("the address is not free: %v", err)
	}
}

// TestHandshakeFlood begins more handshakes than may be under way and ends none.
func TestHandshakeFlood(t *testing.T) {
	n := simnet.New(1, simnet.Conditions{})
	r := newRig(t, n.Listen(), n.Listen(), ListenConfig{}, Config{})
	for i := range maxHandshakes {
		ctx, err := r.listener.begin(t.Context(), nil)
		if err != nil || ctx.Value(handshakeKey{}) == nil {
			t.Fatalf("handshake %d was refused: %v", i, err)
		}
		if got, want := r.listener.endpoint.tr.VerifySourceAddress(nil), i+1 >= checkedHandshakes; got != want {
			t.Fatalf("with %d under way: source address verified %v, want %v", i+1, got, want)
		}
	}
	if _, err := r.dialler.Dial(t.Context(), r.listener.Addr(), clientTLS()); err == nil {
		t.Error("one more handshake was accepted")
	}
	if got := r.listener.handshakes.Load(); got != maxHandshakes {
		t.Errorf("%d are counted after a refusal, want %d", got, maxHandshakes)
	}
}

// TestHandshakesAreCountedOnce has handshakes that succeed and that fail.
func TestHandshakesAreCountedOnce(t *testing.T) {
	n := simnet.New(1, simnet.Conditions{})
	r := newRig(t, n.Listen(), n.Listen(), ListenConfig{}, Config{})
	dialled, accepted := r.pair(t)
	if got := r.listener.handshakes.Load(); got != 0 {
		t.Errorf("%d handshakes under way beside a link", got)
	}
	dialled.Close(transport.CodeNoError, "")
	<-accepted.Done()
	ctx, cancel := context.WithCancel(t.Context())
	failing, err := r.listener.begin(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan struct{})
	context.AfterFunc(failing, func() { close(failed) })
	cancel()
	<-failed
	h, ok := failing.Value(handshakeKey{}).(*handshake)
	if !ok {
		t.Fatal("a handshake is not in its context")
	}
	h.end()
	if got := r.listener.handshakes.Load(); got != 0 {
		t.Errorf("%d handshakes under way when all have ended", got)
	}
}
