// Package transporttest is the suite that every transport passes: what package transport promises of links, streams, receipts and
// closes. It makes a fresh link for each case and ends both of its sides.
package transporttest

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"math/big"
	"sync"
	"testing"
	"time"

	"github.com/weir-agent/weir/weida/transport"
)

// Harness is the transport under test.
type Harness struct {
	// Pair makes a link and returns its two ends. The suite closes both.
	Pair func(t *testing.T) (dialled, accepted transport.Link)
	// Window is at least how many bytes a writer may be ahead of the reader of a stream before it waits.
	Window int
	// Local: a receipt settles with the end of the stream, since the channel or the kernel's buffer is the peer's transport, so
	// nothing that comes later changes it (weida-supplement §4.4).
	Local bool
	// Socket: each stream is a connection of its own, so that a stop has no code and may reach the next write only, an end that was written
	// cannot be taken back, and a close has no text (weida-supplement §4.4, §7).
	Socket bool
}

// text returns what the peer is told of the text of a close.
func (h Harness) text(s string) string {
	if h.Socket {
		return ""
	}
	return s
}

// stopped returns the code that a stop arrives with.
func (h Harness) stopped(code uint64) uint64 {
	if h.Socket {
		return transport.CodeCanceled
	}
	return code
}

// late returns what a receipt settles with whose stream was finished before err came about.
func (h Harness) late(err error) error {
	if h.Local {
		return nil
	}
	return err
}

// Run holds the transport to the contract.
func Run(t *testing.T, h Harness) {
	tests := []struct {
		name string
		run  func(t *testing.T, h Harness, dialled, accepted transport.Link)
	}{
		{"info", testInfo},
		{"one way from either side", testOneWay},
		{"a stream without bytes", testEmpty},
		{"the reply begins before the request ends", testEarlyReply},
		{"a megabyte and back", testEcho},
		{"many streams at once", testMany},
		{"a reset is never an end", testReset},
		{"a reset of a finished stream", testResetFinished},
		{"a stop reaches a writer that waits", testStop},
		{"a stop reaches a finished stream", testStopFinished},
		{"what this side ended", testOwnEnds},
		{"a receipt for what was not read", testReceipt},
		{"a receipt must be asked for first", testReceiptTooLate},
		{"receipts of streams that fail", testReceiptFailures},
		{"receipts when the link ends", testReceiptLinkEnds},
		{"close codes", testClose},
		{"the first close counts", testCloseTwice},
		{"a close wakes everybody who waits", testCloseWakes},
		{"contexts end what waits", testContexts},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dialled, accepted := h.Pair(t)
			t.Cleanup(func() {
				dialled.Close(0, "")
				accepted.Close(0, "")
				<-accepted.Done()
			})
			tt.run(t, h, dialled, accepted)
		})
	}
}

// Codes that mean nothing here, to tell one end of a stream from another.
const (
	codeA = 3
	codeB = 7
)

func testInfo(t *testing.T, _ Harness, dialled, accepted transport.Link) {
	if !dialled.Info().Dialled || accepted.Info().Dialled {
		t.Errorf("got Dialled %v and %v, want true and false", dialled.Info().Dialled, accepted.Info().Dialled)
	}
	for _, l := range []transport.Link{dialled, accepted} {
		if l.Err() != nil {
			t.Errorf("a live link has the error %v", l.Err())
		}
	}
}

func testOneWay(t *testing.T, _ Harness, dialled, accepted transport.Link) {
	for _, side := range []struct{ from, to transport.Link }{{dialled, accepted}, {accepted, dialled}} {
		w := openUni(t, side.from)
		write(t, w, []byte("hello"))
		finish(t, w)
		r, err := side.to.AcceptUni(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := readAll(t, r); string(got) != "hello" {
			t.Errorf("got %q, want %q", got, "hello")
		}
		<-w.Done()
		if err := w.Err(); err != nil {
			t.Errorf("a finished stream has the error %v", err)
		}
	}
}

func testEmpty(t *testing.T, _ Harness, dialled, accepted transport.Link) {
	w := openUni(t, dialled)
	receipt := askReceipt(t, w)
	finish(t, w)
	r, err := accepted.AcceptUni(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := readAll(t, r); len(got) != 0 {
		t.Errorf("got %d bytes of an empty stream", len(got))
	}
	if err := receipt.Wait(t.Context()); err != nil {
		t.Errorf("receipt: %v", err)
	}
}

func testEarlyReply(t *testing.T, _ Harness, dialled, accepted transport.Link) {
	w, r := openBi(t, dialled)
	write(t, w, []byte("que"))
	pw, pr, err := accepted.AcceptBi(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	readFull(t, pr, "que")
	write(t, pw, []byte("ans"))
	readFull(t, r, "ans")
	write(t, w, []byte("stion"))
	finish(t, w)
	if got := readAll(t, pr); string(got) != "stion" {
		t.Errorf("got %q after the early reply", got)
	}
	write(t, pw, []byte("wer"))
	finish(t, pw)
	if got := readAll(t, r); string(got) != "wer" {
		t.Errorf("got %q", got)
	}
}

func testEcho(t *testing.T, _ Harness, dialled, accepted transport.Link) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		w, r, err := accepted.AcceptBi(t.Context())
		if err != nil {
			t.Error(err)
			return
		}
		if _, err := io.Copy(w, r); err != nil {
			t.Error(err)
		}
		if err := w.CloseWrite(); err != nil {
			t.Error(err)
		}
	})
	body := make([]byte, 1<<20)
	_, _ = rand.Read(body) // it never fails
	w, r := openBi(t, dialled)
	wg.Go(func() {
		if _, err := w.Write(body); err != nil {
			t.Error(err)
		}
		if err := w.CloseWrite(); err != nil {
			t.Error(err)
		}
	})
	if got := readAll(t, r); !bytes.Equal(got, body) {
		t.Errorf("got %d bytes back that differ from the %d sent", len(got), len(body))
	}
}

func testMany(t *testing.T, _ Harness, dialled, accepted transport.Link) {
	const streams = 200
	var wg sync.WaitGroup
	defer wg.Wait()
	for i := range streams {
		wg.Go(func() {
			w, err := dialled.OpenUni(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := w.Write([]byte{byte(i)}); err != nil {
				t.Error(err)
			}
			if err := w.CloseWrite(); err != nil {
				t.Error(err)
			}
		})
	}
	var seen [streams]bool
	for range streams {
		r, err := accepted.AcceptUni(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got := readAll(t, r)
		if len(got) != 1 || seen[got[0]] {
			t.Fatalf("got %v, or it twice", got)
		}
		seen[got[0]] = true
	}
}

func testReset(t *testing.T, _ Harness, dialled, accepted transport.Link) {
	w, r := openUni(t, dialled), transport.ReceiveStream(nil)
	write(t, w, []byte("half"))
	r, err := accepted.AcceptUni(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	readFull(t, r, "half")
	w.Reset(codeA)
	_, err = io.Copy(io.Discard, r)
	wantReset(t, err, codeA)
	_, err = r.Read(make([]byte, 1))
	wantReset(t, err, codeA)
}

func testResetFinished(t *testing.T, h Harness, dialled, accepted transport.Link) {
	if h.Socket {
		t.Skip("an end that was written cannot be taken back")
	}
	w := openUni(t, dialled)
	receipt := askReceipt(t, w)
	overfill(t, h, w)
	finish(t, w)
	w.Reset(codeA)
	r, err := accepted.AcceptUni(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(io.Discard, r)
	wantReset(t, err, codeA)
	if err, want := receipt.Wait(t.Context()), h.late(transport.ErrAbandoned); !errors.Is(err, want) {
		t.Errorf("receipt: got %v, want %v", err, want)
	}
}

func testStop(t *testing.T, h Harness, dialled, accepted transport.Link) {
	w := openUni(t, dialled)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		chunk := make([]byte, 64<<10)
		for {
			if _, err := w.Write(chunk); err != nil {
				wantStop(t, err, h.stopped(codeB))
				return
			}
		}
	})
	r, err := accepted.AcceptUni(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r.Stop(codeB)
	<-w.Done()
	wantStop(t, w.Err(), h.stopped(codeB))
	wg.Wait()
	wantStop(t, w.CloseWrite(), h.stopped(codeB))
}

func testStopFinished(t *testing.T, h Harness, dialled, accepted transport.Link) {
	w := openUni(t, dialled)
	receipt := askReceipt(t, w)
	overfill(t, h, w)
	finish(t, w)
	if err := w.Err(); err != nil {
		t.Errorf("before the stop: %v", err)
	}
	r, err := accepted.AcceptUni(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r.Stop(codeB)
	if err := receipt.Wait(t.Context()); !h.Local {
		wantStop(t, err, codeB)
	} else if err != nil {
		t.Errorf("receipt: %v", err)
	}
	if !h.Socket {
		wantStop(t, w.Err(), codeB)
	}
}

func testOwnEnds(t *testing.T, _ Harness, dialled, accepted transport.Link) {
	w := openUni(t, dialled)
	write(t, w, []byte("x"))
	finish(t, w)
	finish(t, w) // finished stays finished
	if _, err := w.Write([]byte("y")); !errors.Is(err, transport.ErrFinished) {
		t.Errorf("write after CloseWrite: got %v, want ErrFinished", err)
	}
	r, err := accepted.AcceptUni(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := readAll(t, r); string(got) != "x" {
		t.Errorf("got %q", got)
	}
	r.Stop(codeB)                                         // read to its end: nothing to stop
	if _, err := r.Read(make([]byte, 1)); err != io.EOF { //nolint:errorlint // io.EOF itself
		t.Errorf("read behind the end: got %v, want io.EOF", err)
	}

	w = openUni(t, dialled)
	write(t, w, []byte("x"))
	w.Reset(codeA)
	w.Reset(codeB)
	<-w.Done()
	if _, err := w.Write([]byte("y")); !errors.Is(err, transport.ErrAbandoned) {
		t.Errorf("write after Reset: got %v, want ErrAbandoned", err)
	}
	if err := w.CloseWrite(); !errors.Is(err, transport.ErrAbandoned) {
		t.Errorf("CloseWrite after Reset: got %v, want ErrAbandoned", err)
	}
	if err := w.Err(); !errors.Is(err, transport.ErrAbandoned) {
		t.Errorf("Err after Reset: got %v, want ErrAbandoned", err)
	}

	w = openUni(t, accepted)
	write(t, w, []byte("x"))
	r, err = dialled.AcceptUni(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r.Stop(codeA)
	if _, err := r.Read(make([]byte, 1)); !errors.Is(err, transport.ErrAbandoned) {
		t.Errorf("read after Stop: got %v, want ErrAbandoned", err)
	}
}

func testReceipt(t *testing.T, _ Harness, dialled, accepted transport.Link) {
	for _, side := range []struct{ from, to transport.Link }{{dialled, accepted}, {accepted, dialled}} {
		w := openUni(t, side.from)
		receipt := askReceipt(t, w)
		if again := askReceipt(t, w); again != receipt {
			t.Error("asked twice, two receipts")
		}
		write(t, w, make([]byte, 10_000))
		if settled, _ := receipt.Settled(); settled {
			t.Error("settled before the stream was finished")
		}
		finish(t, w)
		if err := receipt.Wait(t.Context()); err != nil {
			t.Errorf("receipt: %v", err)
		}
		r, err := side.to.AcceptUni(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := readAll(t, r); len(got) != 10_000 {
			t.Errorf("the receipt was right, but only %d bytes came", len(got))
		}
	}
}

func testReceiptTooLate(t *testing.T, _ Harness, dialled, _ transport.Link) {
	w := openUni(t, dialled)
	write(t, w, []byte("x"))
	if _, err := w.Receipt(); !errors.Is(err, transport.ErrNoReceipt) {
		t.Errorf("after a write: got %v, want ErrNoReceipt", err)
	}
	w = openUni(t, dialled)
	finish(t, w)
	if _, err := w.Receipt(); !errors.Is(err, transport.ErrNoReceipt) {
		t.Errorf("after the end: got %v, want ErrNoReceipt", err)
	}
}

func testReceiptFailures(t *testing.T, h Harness, dialled, accepted transport.Link) {
	w := openUni(t, dialled)
	receipt := askReceipt(t, w)
	write(t, w, []byte("x"))
	w.Reset(codeA)
	if err := receipt.Wait(t.Context()); !errors.Is(err, transport.ErrAbandoned) {
		t.Errorf("of a stream that was reset: got %v, want ErrAbandoned", err)
	}

	w, _ = openBi(t, dialled)
	receipt = askReceipt(t, w)
	overfill(t, h, w)
	_, r, err := accepted.AcceptBi(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r.Stop(codeB)
	for h.Socket {
		if _, err := w.Write([]byte("x")); err != nil {
			break
		}
	}
	wantStop(t, receipt.Wait(t.Context()), h.stopped(codeB))

	w = openUni(t, dialled)
	receipt = askReceipt(t, w)
	overfill(t, h, w)
	finish(t, w)
	receipt.Forget()
	if _, err := receipt.Settled(); !errors.Is(err, h.late(transport.ErrReceiptEvicted)) {
		t.Errorf("of one that was forgotten: got %v, want %v", err, h.late(transport.ErrReceiptEvicted))
	}
}

func testReceiptLinkEnds(t *testing.T, h Harness, dialled, accepted transport.Link) {
	open, finished := openUni(t, dialled), openUni(t, dialled)
	openReceipt, finishedReceipt := askReceipt(t, open), askReceipt(t, finished)
	overfill(t, h, open)
	overfill(t, h, finished)
	finish(t, finished)
	accepted.Close(codeB, "over")
	wantClose(t, openReceipt.Wait(t.Context()), transport.CausePeerClosed, codeB, h.text("over"))
	if err, want := finishedReceipt.Wait(t.Context()), h.late(transport.ErrIndeterminate); !errors.Is(err, want) {
		t.Errorf("of a finished stream: got %v, want %v", err, want)
	}
	<-dialled.Done()
	if err := open.CloseWrite(); err == nil {
		t.Error("a stream was finished on a link that is gone")
	}
	wantClose(t, open.Err(), transport.CausePeerClosed, codeB, h.text("over"))
}

func testClose(t *testing.T, h Harness, _, _ transport.Link) {
	tests := []struct {
		name, text string
		code       uint64
		byDialler  bool
	}{
		{"in order", "", 0, true},
		{"by the accepting side", "", 0, false},
		{"shutdown", "shutting down", 6, false},
		{"violation", "magic byte", 2, true},
		{"a code of nobody's", "", 1 << 40, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dialled, accepted := h.Pair(t)
			near, far := dialled, accepted
			if !tt.byDialler {
				near, far = accepted, dialled
			}
			near.Close(tt.code, tt.text)
			<-near.Done()
			<-far.Done()
			wantClose(t, near.Err(), transport.CauseLocallyClosed, tt.code, tt.text)
			wantClose(t, far.Err(), transport.CausePeerClosed, tt.code, h.text(tt.text))
			_, err := far.OpenUni(t.Context())
			wantClose(t, err, transport.CausePeerClosed, tt.code, h.text(tt.text))
			_, _, err = far.AcceptBi(t.Context())
			wantClose(t, err, transport.CausePeerClosed, tt.code, h.text(tt.text))
		})
	}
}

func testCloseTwice(t *testing.T, h Harness, dialled, accepted transport.Link) {
	dialled.Close(1, "first")
	dialled.Close(2, "second")
	<-accepted.Done()
	accepted.Close(3, "third")
	wantClose(t, dialled.Err(), transport.CauseLocallyClosed, 1, "first")
	wantClose(t, accepted.Err(), transport.CausePeerClosed, 1, h.text("first"))
}

func testCloseWakes(t *testing.T, _ Harness, dialled, accepted transport.Link) {
	uni := openUni(t, dialled)
	bi, biReader := openBi(t, dialled)
	write(t, bi, []byte("x"))
	waits := map[string]func() error{
		"AcceptUni": func() error { _, err := dialled.AcceptUni(t.Context()); return err },
		"AcceptBi":  func() error { _, _, err := dialled.AcceptBi(t.Context()); return err },
		"Read":      func() error { _, err := biReader.Read(make([]byte, 1)); return err },
		"Write": func() error {
			chunk := make([]byte, 64<<10)
			for {
				if _, err := uni.Write(chunk); err != nil {
					return err
				}
			}
		},
	}
	var wg sync.WaitGroup
	for name, wait := range waits {
		wg.Go(func() {
			err := wait()
			if dialled.Err() == nil {
				t.Errorf("%s: it failed on a link that seems to live", name)
			}
			if e, ok := errors.AsType[*transport.CloseError](err); !ok || e.Cause != transport.CausePeerClosed || e.Code != codeB {
				t.Errorf("%s: got %v, want the close", name, err)
			}
		})
	}
	// The peer has something of both streams, so they are under way.
	if _, err := accepted.AcceptUni(t.Context()); err != nil {
		t.Error(err)
	}
	if _, _, err := accepted.AcceptBi(t.Context()); err != nil {
		t.Error(err)
	}
	accepted.Close(codeB, "")
	wg.Wait()
	<-uni.Done()
	wantClose(t, uni.Err(), transport.CausePeerClosed, codeB, "")
}

func testContexts(t *testing.T, _ Harness, dialled, _ transport.Link) {
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := dialled.AcceptUni(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("AcceptUni: got %v, want context.Canceled", err)
		}
	})
	wg.Go(func() {
		if _, _, err := dialled.AcceptBi(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("AcceptBi: got %v, want context.Canceled", err)
		}
	})
	cancel()
	wg.Wait()
	if dialled.Err() != nil {
		t.Errorf("the link ended with a context: %v", dialled.Err())
	}
}

func openUni(t *testing.T, l transport.Link) transport.SendStream {
	t.Helper()
	w, err := l.OpenUni(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func openBi(t *testing.T, l transport.Link) (transport.SendStream, transport.ReceiveStream) {
	t.Helper()
	w, r, err := l.OpenBi(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return w, r
}

func askReceipt(t *testing.T, w transport.SendStream) *transport.Receipt {
	t.Helper()
	r, err := w.Receipt()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func write(t *testing.T, w io.Writer, p []byte) {
	t.Helper()
	if n, err := w.Write(p); n != len(p) || err != nil {
		t.Fatalf("wrote %d of %d bytes: %v", n, len(p), err)
	}
}

// overfill writes as much as goes into the window and a little more, which is written but cannot be delivered until the peer reads.
func overfill(t *testing.T, h Harness, w io.Writer) {
	t.Helper()
	write(t, w, make([]byte, h.Window))
	write(t, w, make([]byte, 100))
}

func finish(t *testing.T, w transport.SendStream) {
	t.Helper()
	if err := w.CloseWrite(); err != nil {
		t.Fatal(err)
	}
}

func readAll(t *testing.T, r io.Reader) []byte {
	t.Helper()
	got, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func readFull(t *testing.T, r io.Reader, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(r, got); err != nil || string(got) != want {
		t.Fatalf("got %q, %v, want %q", got, err, want)
	}
}

func wantReset(t *testing.T, err error, code uint64) {
	t.Helper()
	if e, ok := errors.AsType[*transport.ResetError](err); !ok || e.Code != code {
		t.Errorf("got %v, want a reset with code %d", err, code)
	}
}

func wantStop(t *testing.T, err error, code uint64) {
	t.Helper()
	if e, ok := errors.AsType[*transport.StopError](err); !ok || e.Code != code {
		t.Errorf("got %v, want a stop with code %d", err, code)
	}
}

func wantClose(t *testing.T, err error, cause transport.Cause, code uint64, text string) {
	t.Helper()
	e, ok := errors.AsType[*transport.CloseError](err)
	if !ok || e.Cause != cause || e.Code != code || e.Text != text || e.Remote != (cause == transport.CausePeerClosed) {
		t.Errorf("got %v, want %v with code %d and text %q", err, cause, code, text)
	}
}

// Certificate returns a self-signed certificate of a fresh key, for any use and valid from 1990 to 2100, so that it is valid inside a
// testing/synctest bubble, too.
func Certificate(t testing.TB) tls.Certificate {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "transporttest"},
		NotBefore:    time.Date(1990, 1, 1, 0, 0, 0, 0, time.UTC),
		NotAfter:     time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC),
		KeyUsage:     x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private, Leaf: leaf}
}
