package quictransport

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-agent/weir/weida/transport"
	"github.com/weir-agent/weir/weida/transport/simnet"
)

// simulated runs f in a bubble with a rig over a simulated network, and frees the rig inside of it.
func simulated(t *testing.T, c simnet.Conditions, listen ListenConfig, dial Config, f func(t *testing.T, n *simnet.Network, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := simnet.New(7, c)
		f(t, n, newRig(t, n.Listen(), n.Listen(), listen, dial))
	})
}

// TestReceiptsUnderLoss holds receipts against what the reader has: none may settle before all of its stream has come.
func TestReceiptsUnderLoss(t *testing.T) {
	const streams, size = 150, 20_000
	conditions := simnet.Conditions{
		Loss: 0.05, Duplicate: 0.05, Reorder: 0.2, Delay: 10 * time.Millisecond, HoldBack: 30 * time.Millisecond,
	}
	simulated(t, conditions, ListenConfig{}, Config{}, func(t *testing.T, n *simnet.Network, r *rig) {
		dialled, accepted := r.pair(t)
		var wg sync.WaitGroup
		defer wg.Wait()
		for range streams {
			wg.Go(func() {
				w, err := dialled.OpenUni(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				receipt, err := w.Receipt()
				if err != nil {
					t.Error(err)
					return
				}
				_, err = w.Write(make([]byte, size))
				if err = errors.Join(err, w.CloseWrite(), receipt.Wait(t.Context())); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n.Stats().Lost == 0 || n.Stats().Reordered == 0 || n.Stats().Duplicated == 0 {
			t.Fatalf("the network was too kind: %+v", n.Stats())
		}
		// From here on nothing arrives any more, so whatever the reader gets it had when its receipt settled.
		n.Set(simnet.Conditions{Cut: true})
		for range streams {
			s, err := accepted.AcceptUni(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if got, err := io.Copy(io.Discard, s); got != size || err != nil {
				t.Fatalf("a receipt was given for a stream of which %d bytes came, %v", got, err)
			}
		}
	})
}

// TestLinkDies cuts the network and looks at every outcome on both sides.
func TestLinkDies(t *testing.T) {
	listen := ListenConfig{Config: Config{IdleTimeout: 5 * time.Second}}
	simulated(t, simnet.Conditions{Delay: time.Millisecond}, listen, Config{}, func(t *testing.T, n *simnet.Network, r *rig) {
		dialled, accepted := r.pair(t)
		open, err := dialled.OpenUni(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := open.Write([]byte("half")); err != nil {
			t.Fatal(err)
		}
		reader, err := accepted.AcceptUni(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(reader, make([]byte, 4)); err != nil {
			t.Fatal(err)
		}
		n.Set(simnet.Conditions{Cut: true})
		finished, err := dialled.OpenUni(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		receipt, err := finished.Receipt()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := finished.Write([]byte("all")); err != nil {
			t.Fatal(err)
		}
		if err := finished.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		if err := receipt.Wait(t.Context()); !errors.Is(err, transport.ErrIndeterminate) {
			t.Errorf("finished and lost: got %v, want ErrIndeterminate", err)
		}
		// The smaller of the two idle timeouts counts on both sides, from the last packet that was sent or came.
		if waited := time.Since(begin); waited > 10*time.Second {
			t.Errorf("it took %v to notice", waited)
		}
		_, err = io.Copy(io.Discard, reader)
		wantCause(t, "the reader", err, transport.CauseIdleTimeout)
		_, err = open.Write([]byte("more"))
		wantCause(t, "the writer", err, transport.CauseIdleTimeout)
		wantCause(t, "the finished stream's link", dialled.Err(), transport.CauseIdleTimeout)
		if err := finished.Err(); err != nil {
			t.Errorf("a stream that was finished before has the error %v", err)
		}
	})
}

func wantCause(t *testing.T, what string, err error, cause transport.Cause) {
	t.Helper()
	if e, ok := errors.AsType[*transport.CloseError](err); !ok || e.Cause != cause {
		t.Errorf("%s: got %v, want %v", what, err, cause)
	}
}

func TestKeepAlive(t *testing.T) {
	tests := []struct {
		name         string
		listen, dial Config
		alive        bool
	}{
		{"the dialling side keeps the link", Config{}, Config{}, true},
		{"it was told not to", Config{KeepAlive: time.Second}, Config{KeepAlive: -1}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			simulated(t, simnet.Conditions{Delay: time.Millisecond}, ListenConfig{Config: tt.listen}, tt.dial, func(t *testing.T, _ *simnet.Network, r *rig) {
				dialled, accepted := r.pair(t)
				time.Sleep(10 * time.Minute) // of the bubble's clock
				if alive := dialled.Err() == nil && accepted.Err() == nil; alive != tt.alive {
					t.Errorf("after ten idle minutes: got %v and %v, want alive %v", dialled.Err(), accepted.Err(), tt.alive)
				}
			})
		})
	}
}

func TestDialNobody(t *testing.T) {
	simulated(t, simnet.Conditions{Cut: true}, ListenConfig{}, Config{HandshakeTimeout: 4 * time.Second}, func(t *testing.T, _ *simnet.Network, r *rig) {
		begin := time.Now()
		_, err := r.dialler.Dial(t.Context(), r.listener.Addr(), clientTLS())
		wantCause(t, "a dial into the void", err, transport.CauseIdleTimeout)
		if took := time.Since(begin); took > 4*time.Second {
			t.Errorf("it took %v, want at most the handshake timeout of 4s", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin = time.Now()
		_, err = r.dialler.Dial(ctx, r.listener.Addr(), clientTLS())
		if took := time.Since(begin); !errors.Is(err, context.DeadlineExceeded) || took != time.Second {
			t.Errorf("with a context of a second: got %v after %v", err, took)
		}
	})
}

// TestServerIsKilled starts a second server at the address of one that died without a word.
func TestServerIsKilled(t *testing.T) {
	key := &[32]byte{1}
	tests := []struct {
		name        string
		first, next *[32]byte
		cause       transport.Cause
	}{
		{"the next one has the same reset key", key, key, transport.CauseReset},
		{"the next one has another", key, nil, transport.CauseIdleTimeout},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			listen := ListenConfig{ResetKey: tt.first}
			simulated(t, simnet.Conditions{Delay: time.Millisecond}, listen, Config{}, func(t *testing.T, n *simnet.Network, r *rig) {
				dialled, _ := r.pair(t)
				ended, cancel := context.WithCancel(t.Context())
				cancel()
				// The process is gone: its socket is closed and nothing more is said.
				if err := r.listener.endpoint.tr.Conn.Close(); err != nil {
					t.Fatal(err)
				}
				conn, err := n.ListenAt(r.listener.Addr())
				if err != nil {
					t.Fatal(err)
				}
				next, err := Listen(conn, serverTLS(t), ListenConfig{ResetKey: tt.next})
				if err != nil {
					t.Fatal(err)
				}
				defer func() {
					_ = next.Close()
					_ = next.Wait(ended)
				}()
				w, err := dialled.OpenUni(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if _, err := w.Write(make([]byte, 100)); err != nil {
					t.Fatal(err)
				}
				<-dialled.Done()
				wantCause(t, "the link", dialled.Err(), tt.cause)
			})
		})
	}
}
