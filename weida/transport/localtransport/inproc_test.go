package localtransport

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/weir-agent/weir/weida/transport"
	"github.com/weir-agent/weir/weida/transport/transporttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func listen(t *testing.T, b *Buses, conf Config) *Listener {
	t.Helper()
	l, err := b.Listen("bus", conf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func pair(t *testing.T, b *Buses, l *Listener) (dialled, accepted transport.Link) {
	t.Helper()
	dialled, err := b.Dial(t.Context(), "bus")
	if err != nil {
		t.Fatal(err)
	}
	if accepted, err = l.Accept(t.Context()); err != nil {
		t.Fatal(err)
	}
	return dialled, accepted
}

func TestSuite(t *testing.T) {
	var b Buses
	l := listen(t, &b, Config{Window: 256 << 10})
	transporttest.Run(t, transporttest.Harness{
		Pair:   func(t *testing.T) (dialled, accepted transport.Link) { return pair(t, &b, l) },
		Window: 64 << 10, Local: true,
	})
}

// TestWriterWaitsForTheWindow: a reader that does not read holds the writer at the window, and nobody else.
func TestWriterWaitsForTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b Buses
		l := listen(t, &b, Config{Window: 1000})
		dialled, accepted := pair(t, &b, l)
		w, err := dialled.OpenUni(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() {
			_, err := w.Write(make([]byte, 1500))
			done <- err
		}()
		synctest.Wait()
		select {
		case err := <-done:
			t.Fatalf("1500 bytes went into a window of 1000: %v", err)
		default:
		}
		r, err := accepted.AcceptUni(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if n, err := r.Read(make([]byte, 600)); n != 600 || err != nil {
			t.Fatalf("read %d, %v", n, err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		dialled.Close(0, "")
	})
}

// TestOpenWaitsForTheBudget: one more stream than the budget waits until both ends are done with another.
func TestOpenWaitsForTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b Buses
		l := listen(t, &b, Config{MaxStreams: 1})
		dialled, accepted := pair(t, &b, l)
		w, _, err := dialled.OpenBi(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		opened := make(chan error, 1)
		go func() {
			_, err := dialled.OpenUni(t.Context())
			opened <- err
		}()
		if err := w.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		pw, pr, err := accepted.AcceptBi(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := pr.Read(make([]byte, 1)); err == nil {
			t.Error("a byte of an empty stream")
		}
		synctest.Wait()
		select {
		case err := <-opened:
			t.Fatalf("opened beside a stream whose reply is owed: %v", err)
		default:
		}
		pw.Reset(7)
		if err := <-opened; err != nil {
			t.Error(err)
		}
		dialled.Close(0, "")
	})
}

func TestNames(t *testing.T) {
	var b Buses
	l := listen(t, &b, Config{})
	if _, err := b.Listen("bus", Config{}); !errors.Is(err, ErrBusTaken) {
		t.Errorf("a second listener: %v", err)
	}
	for _, name := range []string{"", strings.Repeat("x", MaxBusBytes+1), "a\nb", "a\x7f"} {
		if _, err := b.Listen(name, Config{}); !errors.Is(err, ErrBusName) {
			t.Errorf("Listen %q: %v", name, err)
		}
	}
	if _, err := b.Dial(t.Context(), "elsewhere"); !errors.Is(err, ErrNoBus) {
		t.Errorf("Dial: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Dial(t.Context(), "bus"); !errors.Is(err, ErrNoBus) {
		t.Errorf("Dial of one that closed: %v", err)
	}
	if _, err := l.Accept(t.Context()); !errors.Is(err, transport.ErrListenerClosed) {
		t.Errorf("Accept: %v", err)
	}
	again, err := b.Listen("bus", Config{})
	if err != nil {
		t.Errorf("the name is not free again: %v", err)
	}
	_ = again.Close()
}

// TestWaitEndsWhatIsLeft: Wait returns when the links have ended, and ends them with its context.
func TestWaitEndsWhatIsLeft(t *testing.T) {
	var b Buses
	l := listen(t, &b, Config{})
	dialled, _ := pair(t, &b, l)
	dialled.Close(0, "")
	if err := l.Wait(t.Context()); err != nil {
		t.Error(err)
	}
	dialled, accepted := pair(t, &b, l)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.Wait(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("Wait: %v", err)
	}
	<-dialled.Done()
	<-accepted.Done()
}
