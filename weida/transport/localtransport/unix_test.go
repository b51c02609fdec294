//go:build linux || darwin

package localtransport

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-agent/weir/internal/unixsocket"
	"github.com/weir-agent/weir/weida/transport"
	"github.com/weir-agent/weir/weida/transport/transporttest"
)

// kinds gives streams a kind by a byte in front, as the suite wants it and a header does it in its place.
type kinds struct {
	transport.Link
	uni chan transport.ReceiveStream
	bi  chan exchangeOfKind
}

type exchangeOfKind struct {
	w transport.SendStream
	r transport.ReceiveStream
}

// marked writes the byte before anything else.
type marked struct {
	transport.SendStream
	once *sync.Once
	kind byte
}

func (m marked) mark() {
	m.once.Do(func() { _, _ = m.SendStream.Write([]byte{m.kind}) }) // what follows fails with it
}

func (m marked) Write(p []byte) (int, error) {
	m.mark()
	return m.SendStream.Write(p)
}

func (m marked) CloseWrite() error {
	m.mark()
	return m.SendStream.CloseWrite()
}

func withKinds(l transport.Link) *kinds {
	k := &kinds{l, make(chan transport.ReceiveStream, 600), make(chan exchangeOfKind, 600)}
	go func() {
		for {
			w, r, err := l.AcceptBi(context.Background())
			if err != nil {
				return
			}
			go func() {
				var kind [1]byte
				_, err := r.Read(kind[:])
				switch {
				case err != nil || kind[0] == 'u':
					w.(transport.Kindless).OneWay()
					if err == nil {
						k.uni <- r
					}
				default:
					k.bi <- exchangeOfKind{w, r}
				}
			}()
		}
	}()
	return k
}

func (k *kinds) OpenUni(ctx context.Context) (transport.SendStream, error) {
	w, err := k.Link.OpenUni(ctx)
	if err != nil {
		return nil, err
	}
	return marked{w, new(sync.Once), 'u'}, nil
}

func (k *kinds) OpenBi(ctx context.Context) (transport.SendStream, transport.ReceiveStream, error) {
	w, r, err := k.Link.OpenBi(ctx)
	if err != nil {
		return nil, nil, err
	}
	return marked{w, new(sync.Once), 'b'}, r, nil
}

func (k *kinds) AcceptUni(ctx context.Context) (transport.ReceiveStream, error) {
	select {
	case r := <-k.uni:
		return r, nil
	case <-k.Done():
		return nil, k.Err()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (k *kinds) AcceptBi(ctx context.Context) (transport.SendStream, transport.ReceiveStream, error) {
	select {
	case e := <-k.bi:
		return e.w, e.r, nil
	case <-k.Done():
		return nil, nil, k.Err()
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
}

func listenUnix(t *testing.T, conf Config) (*socketListener, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := ListenUnix(path, conf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l.(*socketListener), path
}

func pairUnix(t *testing.T, l *socketListener, path string, conf Config) (dialled, accepted *socketLink) {
	t.Helper()
	d, err := DialUnix(t.Context(), path, conf)
	if err != nil {
		t.Fatal(err)
	}
	a, err := l.Accept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close(0, "") })
	return d.(*socketLink), a.(*socketLink)
}

func TestSuiteOverUnix(t *testing.T) {
	l, path := listenUnix(t, Config{})
	transporttest.Run(t, transporttest.Harness{
		Pair: func(t *testing.T) (dialled, accepted transport.Link) {
			d, a := pairUnix(t, l, path, Config{})
			return withKinds(d), withKinds(a)
		},
		Window: 64 << 10, Local: true, Socket: true,
	})
}

func TestKernelSaysWhoItIs(t *testing.T) {
	l, path := listenUnix(t, Config{})
	dialled, accepted := pairUnix(t, l, path, Config{})
	want := transport.Identity{Kind: transport.IdentityLocal, UID: uint32(os.Geteuid()), GID: uint32(os.Getegid()), PID: int32(os.Getpid())}
	for _, link := range []transport.Link{dialled, accepted} {
		if got := link.Info().Peer; got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	info, err := os.Lstat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got %v, %v, want mode 0600", info.Mode(), err)
	}
}

// A connection that no live link has let in is closed, and is dispatched nowhere.
func TestUnboundConnectionsAreClosed(t *testing.T) {
	l, path := listenUnix(t, Config{})
	past, _ := pairUnix(t, l, path, Config{})
	past.Close(0, "")
	if err := l.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	dialled, accepted := pairUnix(t, l, path, Config{})
	_, foreign := pairUnix(t, l, path, Config{})
	l.mu.Lock()
	foreign.info.Peer.PID++ // as if another process had made the link
	l.mu.Unlock()
	stranger := append([]byte{openTransfer}, make([]byte, tokenBytes)...)
	for name, head := range map[string][]byte{
		"an unknown token":                   stranger,
		"the token of a link that has ended": append([]byte{openTransfer}, past.token[:]...),
		"the token of another process":       append([]byte{openTransfer}, foreign.token[:]...),
		"an unknown kind":                    append([]byte{9}, dialled.token[:]...),
	} {
		nc, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := nc.Write(head); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if n, err := nc.Read(make([]byte, 1)); n != 0 || err == nil {
			t.Errorf("%s: it was not closed: %d, %v", name, n, err)
		}
		_ = nc.Close()
	}
	if len(accepted.streams) != 0 || len(foreign.streams) != 0 {
		t.Error("one was dispatched")
	}
}

// A writer that waits for a reader who does not read is woken by whoever ends the stream.
func TestEndWakesTheWriterOverUnix(t *testing.T) {
	const code = 0x52
	for name, tt := range map[string]struct {
		end  func(w transport.SendStream, r transport.ReceiveStream)
		want error
	}{
		"reset": {func(w transport.SendStream, _ transport.ReceiveStream) { w.Reset(code) }, transport.ErrAbandoned},
		"stop":  {func(_ transport.SendStream, r transport.ReceiveStream) { r.Stop(code) }, &transport.StopError{Code: transport.CodeCanceled}},
	} {
		t.Run(name, func(t *testing.T) {
			l, path := listenUnix(t, Config{})
			dialled, accepted := pairUnix(t, l, path, Config{})
			w, _, err := dialled.OpenBi(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			written := make(chan error, 1)
			go func() {
				_, err := w.Write(make([]byte, 16<<20)) // more than the kernel takes
				written <- err
			}()
			_, r, err := accepted.AcceptBi(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(r, make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
			tt.end(w, r)
			if err := <-written; err == nil || err.Error() != tt.want.Error() {
				t.Errorf("got %v, want %v", err, tt.want)
			}
		})
	}
}

// A link whose listener is gone can open nothing more from the side that dials, and so has ended.
func TestDialInVainEndsTheLink(t *testing.T) {
	l, path := listenUnix(t, Config{MaxParked: -1})
	dialled, _ := pairUnix(t, l, path, Config{MaxParked: -1})
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	_, _, err := dialled.OpenBi(t.Context())
	closed, ok := errors.AsType[*transport.CloseError](err)
	if !ok || closed.Cause != transport.CauseTransport {
		t.Errorf("got %v", err)
	}
	select {
	case <-dialled.Done():
	default:
		t.Error("the link has not ended")
	}
}

// A peer that has read the end and closed, before the one who wrote the end has noted that, refuses nothing.
func TestQuickReaderIsNoRefusal(t *testing.T) {
	l, path := listenUnix(t, Config{})
	dialled, accepted := pairUnix(t, l, path, Config{})
	w, err := dialled.OpenUni(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	receipt, err := w.Receipt()
	if err != nil {
		t.Fatal(err)
	}
	// This is CloseWrite, with all that the peer does in its middle.
	s := w.(socketSend)
	s.writing.Lock()
	if _, err := writeNow(s.nc, []byte{chunkEnd}); err != nil {
		t.Fatal(err)
	}
	pw, r, err := accepted.AcceptBi(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	pw.(transport.Kindless).OneWay()
	if got, err := io.ReadAll(r); len(got) > 0 || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	for range 10000 {
		runtime.Gosched() // the one who watches for the end of the connection sees it
	}
	s.finish()
	s.writing.Unlock()
	if err := receipt.Wait(t.Context()); err != nil {
		t.Error(err)
	}
}

// The token alone is not enough: the kernel must say the same of a connection as of its link.
func TestCredentialsMustMatch(t *testing.T) {
	link := transport.Identity{Kind: transport.IdentityLocal, UID: 7, GID: 8, PID: 9}
	for _, tt := range []struct {
		name string
		cred unixsocket.Credentials
		want bool
	}{
		{"the same", unixsocket.Credentials{UID: 7, GID: 8, PID: 9}, true},
		{"another user", unixsocket.Credentials{UID: 0, GID: 8, PID: 9}, false},
		{"another process", unixsocket.Credentials{UID: 7, GID: 8, PID: 10}, false},
	} {
		if got := samePeer(link, tt.cred); got != tt.want {
			t.Errorf("%s: got %v, want %v", tt.name, got, tt.want)
		}
	}
}

// Another connection is parked for each that is used, and without one an open waits.
func TestParkedConnectionsAreReplaced(t *testing.T) {
	conf := Config{MaxParked: 2}
	l, path := listenUnix(t, conf)
	dialled, accepted := pairUnix(t, l, path, conf)
	for i := range 20 {
		w, err := accepted.OpenUni(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte{byte(i)}); err != nil {
			t.Fatal(err)
		}
		if err := w.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		pw, r, err := dialled.AcceptBi(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		pw.(transport.Kindless).OneWay()
		if got, err := io.ReadAll(r); err != nil || len(got) != 1 || got[0] != byte(i) {
			t.Fatalf("got %v, %v", got, err)
		}
	}
	_, none := pairUnix(t, l, path, Config{MaxParked: -1})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := none.OpenUni(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("without a parked connection: %v", err)
	}
}

// A peer that breaks off within a stream, or that writes what is no chunk, never makes an end of it.
func TestBrokenChunks(t *testing.T) {
	tests := []struct {
		name, chunks string
		want         string // of the read
		ends         bool   // the link
	}{
		{"whole", "\x00\x02\x00\x00\x00hi\x01", "", false},
		{"without an end", "\x00\x02\x00\x00\x00hi", "CANCELED", false},
		{"within a payload", "\x00\x03\x00\x00\x00hi", "CANCELED", false},
		{"within a head", "\x00\x02\x00\x00\x00hi\x00\x01", "CANCELED", false},
		{"with a code", "\x00\x02\x00\x00\x00hi\x02\x07\x00\x00\x00\x00\x00\x00\x00", "REJECTED", false},
		{"an unknown kind", "\x00\x02\x00\x00\x00hi\x03", "PROTOCOL_VIOLATION", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l, path := listenUnix(t, Config{})
			dialled, accepted := pairUnix(t, l, path, Config{})
			nc, err := dialled.dial(t.Context(), openTransfer)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := nc.Write([]byte(tt.chunks)); err != nil {
				t.Fatal(err)
			}
			if err := nc.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			defer nc.Close()
			_, r, err := accepted.AcceptBi(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(r)
			if string(got) != "hi" {
				t.Errorf("got %q", got)
			}
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
			if ended := accepted.Err() != nil; ended != tt.ends {
				t.Errorf("the link ended: %v, want %v", ended, tt.ends)
			}
		})
	}
}

func TestSocketPaths(t *testing.T) {
	for _, path := range []string{"", "@abstract", "a\x00b", strings.Repeat("x", 108)} {
		if _, err := ListenUnix(path, Config{}); !errors.Is(err, ErrSocketPath) {
			t.Errorf("ListenUnix %q: %v", path, err)
		}
		if _, err := DialUnix(t.Context(), path, Config{}); !errors.Is(err, ErrSocketPath) {
			t.Errorf("DialUnix %q: %v", path, err)
		}
	}
}

// A parked connection that dies unused is replaced, and a side without one fails once patience is over.
func TestDeadParkedConnectionsAreReplaced(t *testing.T) {
	conf := Config{MaxParked: 2}
	l, path := listenUnix(t, conf)
	_, accepted := pairUnix(t, l, path, conf)
	for range 4 {
		_ = (<-accepted.parked).Close() // the channel fills again only if another is parked
	}
	w, err := accepted.OpenParked(t.Context(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.CloseWrite(); err != nil {
		t.Error(err)
	}
	_, none := pairUnix(t, l, path, Config{MaxParked: -1})
	if _, err := none.OpenParked(t.Context(), time.Nanosecond); !errors.Is(err, transport.ErrNoParked) {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := none.OpenParked(ctx, time.Minute); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	none.Close(0, "")
	if _, err := none.OpenParked(t.Context(), time.Minute); !errors.Is(err, none.Err()) {
		t.Errorf("got %v", err)
	}
}

// An open at the bound waits until both ends are done with a stream, and a peer that does not keep to it has its connections closed.
func TestOpenWaitsForTheBudgetOverUnix(t *testing.T) {
	conf := Config{MaxStreams: 2, MaxParked: -1}
	l, path := listenUnix(t, conf)
	dialled, accepted := pairUnix(t, l, path, conf)
	var open []transport.SendStream
	for range 2 {
		w, err := dialled.OpenUni(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := w.CloseWrite(); err != nil { // which alone makes no room
			t.Fatal(err)
		}
		open = append(open, w)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := dialled.OpenUni(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("beyond the bound: %v", err)
	}
	retired := open[0].(transport.Retiring).Retired()
	w, r, err := accepted.AcceptBi(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w.(transport.Kindless).OneWay()
	if _, err := io.ReadAll(r); err != nil {
		t.Fatal(err)
	}
	third, err := dialled.OpenUni(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	third.Reset(transport.CodeCanceled)
	w, r, err = accepted.AcceptBi(t.Context()) // so one of the first two is retired, and the other is now
	if err != nil {
		t.Fatal(err)
	}
	w.(transport.Kindless).OneWay()
	if _, err := io.ReadAll(r); err != nil {
		t.Fatal(err)
	}
	<-retired
	<-open[1].(transport.Retiring).Retired()

	// Connections that nobody counts at the other side.
	closed := false
	for range 2*conf.MaxStreams + 1 {
		nc, err := dialled.dial(t.Context(), openTransfer)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		if err := nc.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		_, err = nc.Read(make([]byte, 1))
		closed = closed || errors.Is(err, io.EOF)
	}
	if !closed {
		t.Error("all of them were taken")
	}
}
