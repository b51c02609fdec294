package weida_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-agent/weir/weida"
	"github.com/weir-agent/weir/weida/transport"
	"github.com/weir-agent/weir/weida/transport/quictransport"
	"github.com/weir-agent/weir/weida/transport/simnet"
	"github.com/weir-agent/weir/weida/transport/transporttest"
)

// This file holds each call to the outcome that the failure model says (weida-supplement §1.11, §4).

// beyondWindow is more than a receiver takes in before its application acts, in bytes.
const beyondWindow = 3 << 20

// fixture is a client and a server whose application does what a case wants.
type fixture struct {
	t       *testing.T
	network *simnet.Network
	client  *weida.Runtime
	server  *weida.Runtime
	url     string // without a path
	// requests and transfers are what has come to the server's /rep and /pull and was not taken by it.
	requests  *weida.Replier
	transfers *weida.Puller
}

const (
	repPath = "/rep"
	// sendTimeout is how long the client waits for a live peer.
	sendTimeout = 5 * time.Second
)

func newFixture(t *testing.T) *fixture {
	t.Helper()
	n := simnet.New(7, simnet.Conditions{Delay: time.Millisecond})
	f := &fixture{t: t, network: n}
	f.server = f.runtime(weida.Options{Limits: weida.Limits{IdleTimeout: 20 * time.Second}})
	f.client = f.runtime(weida.Options{SendTimeout: sendTimeout, DialFrom: n.Listen()})
	l := f.server.Listener()
	id := identity(t)
	b, err := l.BindPacketConn(n.Listen(), weida.ServerTLS{Identity: id})
	if err != nil {
		t.Fatal(err)
	}
	f.url = "weida://" + id.Fingerprint().String() + "@" + b.Addr().String()
	if f.requests, err = l.Replier(repPath); err != nil {
		t.Fatal(err)
	}
	if f.transfers, err = l.Puller(pullPath); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fixture) runtime(o weida.Options) *weida.Runtime {
	f.t.Helper()
	rt, err := weida.NewRuntime(o)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() {
		if err := rt.Shutdown(); err != nil {
			f.t.Error(err)
		}
	})
	return rt
}

// connector is what the dialling endpoints have in common.
type connector interface {
	Connect(ctx context.Context, url string) error
}

func (f *fixture) connect(c connector, path string) {
	f.t.Helper()
	if err := c.Connect(f.t.Context(), f.url+path); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) pusher(path string) *weida.Pusher {
	f.t.Helper()
	p := f.client.Pusher(weida.ClientTLS{})
	f.connect(p, path)
	return p
}

func (f *fixture) requester(path string) *weida.Requester {
	f.t.Helper()
	r := f.client.Requester(weida.ClientTLS{})
	f.connect(r, path)
	return r
}

// open opens a one-way transfer to a path.
func (f *fixture) open(path string) *weida.OutgoingTransfer {
	f.t.Helper()
	p := f.client.Peer(weida.ClientTLS{})
	f.connect(p, path)
	t, err := p.Open(f.t.Context(), weida.Meta{})
	if err != nil {
		f.t.Fatal(err)
	}
	return t
}

// cut takes the network away; the idle timeout does the rest.
func (f *fixture) cut() { f.network.Set(simnet.Conditions{Cut: true}) }

// down connects nothing any more and waits until the client has seen it.
func (f *fixture) down(p interface{ PeerCount() int }) {
	f.t.Helper()
	f.cut()
	time.Sleep(time.Minute) // of the bubble's clock: longer than the idle timeout
	if n := p.PeerCount(); n != 0 {
		f.t.Fatalf("%d peers are still live", n)
	}
}

// whenRequested has the server's application do something with the next request.
func (f *fixture) whenRequested(do func(*weida.IncomingRequest)) {
	ctx := f.t.Context()
	go func() {
		if r, err := f.requests.Accept(ctx); err == nil {
			do(r)
		}
	}()
}

// whenPulled has the server's application do something with the next transfer.
func (f *fixture) whenPulled(do func(*weida.IncomingTransfer)) {
	ctx := f.t.Context()
	go func() {
		if in, err := f.transfers.Recv(ctx); err == nil {
			do(in)
		}
	}()
}

// request sends a request and returns what it came to.
func (f *fixture) request(path string, size int) error {
	in, err := f.requester(path).Request(f.t.Context(), weida.Meta{}, make([]byte, size))
	if err == nil {
		err = in.Close()
	}
	return err
}

// delivered finishes a transfer and waits for its receipt.
func delivered(t *testing.T, w *weida.OutgoingTransfer) error {
	t.Helper()
	d, err := w.Finish()
	if err != nil {
		t.Fatalf("it could not be finished: %v", err)
	}
	return d.Wait(t.Context())
}

// failureCase is a call, what happens to it, and what it comes to.
type failureCase struct {
	name  string
	run   func(f *fixture) error
	want  error // nil: the call succeeds
	cause weida.Cause
	// definite is what weida.IsDefinite must say.
	definite bool
}

func neverConnected() []failureCase {
	return []failureCase{
		{name: "Pusher.Send", want: weida.ErrNotConnected, definite: true, run: func(f *fixture) error {
			return f.client.Pusher(weida.ClientTLS{}).Send(f.t.Context(), weida.Meta{}, nil)
		}},
		{name: "Pusher.Open", want: weida.ErrNotConnected, definite: true, run: func(f *fixture) error {
			_, err := f.client.Pusher(weida.ClientTLS{}).Open(f.t.Context(), weida.Meta{})
			return err
		}},
		{name: "Peer.Open", want: weida.ErrNotConnected, definite: true, run: func(f *fixture) error {
			_, err := f.client.Peer(weida.ClientTLS{}).Open(f.t.Context(), weida.Meta{})
			return err
		}},
		{name: "Peer.OpenBi", want: weida.ErrNotConnected, definite: true, run: func(f *fixture) error {
			_, _, err := f.client.Peer(weida.ClientTLS{}).OpenBi(f.t.Context(), weida.Meta{})
			return err
		}},
		{name: "Requester.Request", want: weida.ErrNotConnected, definite: true, run: func(f *fixture) error {
			_, err := f.client.Requester(weida.ClientTLS{}).Request(f.t.Context(), weida.Meta{}, nil)
			return err
		}},
		{name: "Connect to nobody", want: weida.ErrConnectionLost, cause: weida.CauseIdleTimeout, definite: true, run: func(f *fixture) error {
			f.cut()
			return f.client.Peer(weida.ClientTLS{}).Connect(f.t.Context(), f.url+repPath)
		}},
		{name: "Connect trusting nobody", want: weida.ErrTLS, run: func(f *fixture) error {
			_, url, _ := cutPin(f.url)
			return f.client.Peer(weida.ClientTLS{}).Connect(f.t.Context(), url+repPath)
		}},
	}
}

func allPeersDown() []failureCase {
	return []failureCase{
		{name: "Pusher.Send is kept", run: func(f *fixture) error {
			p := f.pusher(pullPath)
			f.down(p)
			err := p.Send(f.t.Context(), weida.Meta{}, []byte("later"))
			if p.Queued() != 1 {
				f.t.Errorf("%d messages are queued, want 1", p.Queued())
			}
			return err
		}},
		{name: "Pusher.Open", want: weida.ErrConnectionLost, cause: weida.CauseIdleTimeout, definite: true, run: func(f *fixture) error {
			p := f.pusher(pullPath)
			f.down(p)
			_, err := p.Open(f.t.Context(), weida.Meta{})
			return err
		}},
		{name: "Requester.Request", want: weida.ErrConnectionLost, cause: weida.CauseIdleTimeout, definite: true, run: func(f *fixture) error {
			r := f.requester(repPath)
			f.down(r)
			begin := time.Now()
			_, err := r.Request(f.t.Context(), weida.Meta{}, nil)
			if waited := time.Since(begin); waited != sendTimeout {
				f.t.Errorf("it waited %v for a live peer, want %v", waited, sendTimeout)
			}
			return err
		}},
	}
}

func lostBeforeTheEnd() []failureCase {
	lost := func(name string, run func(f *fixture) error) failureCase {
		return failureCase{name: name, want: weida.ErrConnectionLost, cause: weida.CauseIdleTimeout, definite: true, run: run}
	}
	return []failureCase{
		lost("Pusher.Send", func(f *fixture) error {
			p := f.pusher(pullPath)
			f.cut()
			return p.Send(f.t.Context(), weida.Meta{}, make([]byte, beyondWindow))
		}),
		lost("Peer.Open, Write", func(f *fixture) error {
			w := f.open(pullPath)
			f.cut()
			_, err := w.Write(make([]byte, beyondWindow))
			return err
		}),
		lost("Requester.Request", func(f *fixture) error {
			r := f.requester(repPath)
			f.cut()
			_, err := r.Request(f.t.Context(), weida.Meta{}, make([]byte, beyondWindow))
			return err
		}),
		lost("Finish on a link that is gone", func(f *fixture) error {
			w := f.open(pullPath)
			f.cut()
			time.Sleep(time.Minute) // of the bubble's clock
			_, err := w.Finish()
			return err
		}),
		lost("the receiver's Read", func(f *fixture) error {
			w := f.open(pullPath)
			if _, err := w.Write([]byte("half")); err != nil {
				f.t.Fatal(err)
			}
			in, err := f.transfers.Recv(f.t.Context())
			if err != nil {
				f.t.Fatal(err)
			}
			f.cut()
			_, err = io.Copy(io.Discard, in)
			return err
		}),
		{name: "closed by this side", want: weida.ErrConnectionLost, cause: weida.CauseLocallyClosed, definite: true, run: func(f *fixture) error {
			p := f.client.Peer(weida.ClientTLS{})
			f.connect(p, pullPath)
			w, err := p.Open(f.t.Context(), weida.Meta{})
			if err != nil {
				f.t.Fatal(err)
			}
			if err := p.Close(); err != nil {
				f.t.Fatal(err)
			}
			_, err = w.Write(make([]byte, beyondWindow))
			return err
		}},
	}
}

func lostAfterTheEnd() []failureCase {
	return []failureCase{
		{name: "Pusher.Send", run: func(f *fixture) error {
			p := f.pusher(pullPath)
			f.cut()
			return p.Send(f.t.Context(), weida.Meta{}, []byte("x"))
		}},
		{name: "Delivery.Wait", want: weida.ErrIndeterminate, run: func(f *fixture) error {
			w := f.open(pullPath)
			f.cut()
			if _, err := w.Write([]byte("all")); err != nil {
				f.t.Fatal(err)
			}
			return delivered(f.t, w)
		}},
		{name: "Requester.Request, not taken", want: weida.ErrIndeterminate, run: func(f *fixture) error {
			r := f.requester(repPath)
			f.cut()
			_, err := r.Request(f.t.Context(), weida.Meta{}, []byte("x"))
			return err
		}},
		{name: "Requester.Request, while it was served", want: weida.ErrIndeterminate, run: func(f *fixture) error {
			f.whenRequested(func(r *weida.IncomingRequest) {
				f.cut()
				<-r.Canceled()
			})
			return f.request(repPath, 10)
		}},
		{name: "Requester.Request, the server shuts down", want: weida.ErrIndeterminate, run: func(f *fixture) error {
			f.whenRequested(func(*weida.IncomingRequest) {
				if err := f.server.Shutdown(); err != nil {
					f.t.Error(err)
				}
			})
			return f.request(repPath, 10)
		}},
	}
}

func peerRefuses() []failureCase {
	reject := func(in *weida.IncomingTransfer) { _ = in.Close() } // it always returns nil
	refusal := func(name string, code weida.ErrorCode, want error, definite bool) failureCase {
		return failureCase{name: "Requester.Request, refused with " + name, want: want, definite: definite, run: func(f *fixture) error {
			f.whenRequested(func(r *weida.IncomingRequest) {
				if err := r.Refuse(code, "no"); err != nil {
					f.t.Error(err)
				}
			})
			return f.request(repPath, beyondWindow) // also while the request is still being written
		}}
	}
	return []failureCase{
		{name: "Pusher.Send", want: weida.ErrRejected, definite: true, run: func(f *fixture) error {
			f.whenPulled(reject)
			return f.pusher(pullPath).Send(f.t.Context(), weida.Meta{}, make([]byte, beyondWindow))
		}},
		{name: "Peer.Open, Write", want: weida.ErrRejected, definite: true, run: func(f *fixture) error {
			f.whenPulled(reject)
			_, err := f.open(pullPath).Write(make([]byte, beyondWindow))
			return err
		}},
		{name: "Delivery.Wait", want: weida.ErrRejected, definite: true, run: func(f *fixture) error {
			w := f.open(pullPath)
			// As much as the window takes and a little more: it is written, but cannot be delivered unless somebody reads.
			if _, err := w.Write(make([]byte, 1<<20)); err != nil {
				f.t.Fatal(err)
			}
			d, err := w.Finish()
			if err != nil {
				f.t.Fatal(err)
			}
			f.whenPulled(reject)
			return d.Wait(f.t.Context())
		}},
		refusal("REJECTED", weida.CodeRejected, weida.ErrRejected, true),
		refusal("UNKNOWN_ENDPOINT", weida.CodeUnknownEndpoint, weida.ErrUnknownEndpoint, true),
		refusal("UNSUPPORTED", weida.CodeUnsupported, weida.ErrUnsupported, true),
		refusal("INTERNAL", weida.CodeInternal, weida.ErrPeerInternal, false),
		refusal("NO_REPLY", weida.CodeNoReply, weida.ErrNoReply, false),
		refusal("a code of nobody's", 4711, weida.ErrTransport, false),
		{name: "Requester.Request, dropped", want: weida.ErrNoReply, run: func(f *fixture) error {
			f.whenRequested(func(r *weida.IncomingRequest) { _ = r.Close() }) // it always returns nil
			return f.request(repPath, beyondWindow)
		}},
		{name: "a reply that is abandoned", want: weida.ErrCanceled, definite: true, run: func(f *fixture) error {
			f.whenRequested(func(r *weida.IncomingRequest) {
				w, err := r.Reply(f.t.Context(), weida.Meta{})
				if err != nil {
					f.t.Error(err)
					return
				}
				_, err = w.Write([]byte("half"))
				if err != nil {
					f.t.Error(err)
				}
				w.Cancel()
			})
			in, err := f.requester(repPath).Request(f.t.Context(), weida.Meta{}, nil)
			if err != nil {
				return err // the reset may be faster than the header
			}
			_, err = io.Copy(io.Discard, in)
			return err
		}},
		{name: "a transfer that is abandoned", want: weida.ErrCanceled, definite: true, run: func(f *fixture) error {
			w := f.open(pullPath)
			if _, err := w.Write([]byte("half")); err != nil {
				f.t.Fatal(err)
			}
			in, err := f.transfers.Recv(f.t.Context())
			if err != nil {
				f.t.Fatal(err)
			}
			w.Cancel()
			_, err = io.Copy(io.Discard, in)
			return err
		}},
		{name: "a reply that nobody wants", want: weida.ErrCanceled, definite: true, run: func(f *fixture) error {
			r := f.requester(repPath)
			w, reply, err := r.Open(f.t.Context(), weida.Meta{})
			if err != nil {
				f.t.Fatal(err)
			}
			defer w.Cancel()
			in, err := f.requests.Accept(f.t.Context())
			if err != nil {
				f.t.Fatal(err)
			}
			if err := reply.Close(); err != nil {
				f.t.Fatal(err)
			}
			within(f.t, in.Canceled())
			out, err := in.Reply(f.t.Context(), weida.Meta{})
			if err != nil {
				return err
			}
			_, err = out.Write([]byte("x"))
			return err
		}},
	}
}

func pathUnknown() []failureCase {
	write := func(path string) func(f *fixture) error {
		return func(f *fixture) error {
			_, err := f.open(path).Write(make([]byte, beyondWindow))
			return err
		}
	}
	return []failureCase{
		{name: "Pusher.Send", want: weida.ErrUnknownEndpoint, definite: true, run: func(f *fixture) error {
			return f.pusher("/nobody").Send(f.t.Context(), weida.Meta{}, make([]byte, beyondWindow))
		}},
		{name: "Peer.Open, Write", want: weida.ErrUnknownEndpoint, definite: true, run: write("/nobody")},
		{name: "Peer.Open, Write, the other kind", want: weida.ErrUnsupported, definite: true, run: write(repPath)},
		{name: "Requester.Request", want: weida.ErrUnknownEndpoint, definite: true, run: func(f *fixture) error { return f.request("/nobody", 1) }},
		{name: "Requester.Request, large", want: weida.ErrUnknownEndpoint, definite: true, run: func(f *fixture) error { return f.request("/nobody", beyondWindow) }},
		{name: "Requester.Request, the other kind", want: weida.ErrUnsupported, definite: true, run: func(f *fixture) error { return f.request(pullPath, 1) }},
	}
}

// wantOutcome compares what a call came to.
func wantOutcome(t *testing.T, err error, tt failureCase) {
	t.Helper()
	if !errors.Is(err, tt.want) || (err == nil) != (tt.want == nil) {
		t.Fatalf("got %v, want %v", err, tt.want)
	}
	if errors.Is(err, io.EOF) {
		t.Errorf("%v passes for an end", err)
	}
	if tt.want == nil {
		return
	}
	if got := weida.IsDefinite(err); got != tt.definite {
		t.Errorf("%v is definite: %v, want %v", err, got, tt.definite)
	}
	lost, ok := errors.AsType[*weida.ConnectionLostError](err)
	if ok != (tt.cause != 0) || ok && lost.Cause != tt.cause {
		t.Errorf("got %v, want the cause %v", err, tt.cause)
	}
}

func TestFailureModel(t *testing.T) {
	columns := []struct {
		name  string
		cases []failureCase
	}{
		{"never connected", slices.Concat(neverConnected(), neverConnectedPatterns())},
		{"all peers down", slices.Concat(allPeersDown(), allPeersDownPatterns())},
		{"lost before the end", slices.Concat(lostBeforeTheEnd(), lostBeforeTheEndPatterns())},
		{"lost after the end", slices.Concat(lostAfterTheEnd(), lostAfterTheEndPatterns())},
		{"the peer refuses", slices.Concat(peerRefuses(), peerRefusesPatterns())},
		{"path unknown", slices.Concat(pathUnknown(), pathUnknownPatterns())},
	}
	for _, column := range columns {
		for _, tt := range column.cases {
			t.Run(column.name+"/"+tt.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { wantOutcome(t, tt.run(newFixture(t)), tt) })
			})
		}
	}
}

// cutPin takes an address apart: the fingerprint, and the address without it.
func cutPin(url string) (pin, rest string, err error) {
	a, err := weida.ParseAddress(url + "/")
	if err != nil {
		return "", "", err
	}
	return a.Pin.String(), "weida://" + a.Authority(), nil
}

// rawHost accepts one link by hand and greets it, for what a server of the library would never do.
func rawHost(t *testing.T) (client *weida.Runtime, url string, accept func() *raw) {
	t.Helper()
	n := simnet.New(7, simnet.Conditions{Delay: time.Millisecond})
	conf := &tls.Config{Certificates: []tls.Certificate{transporttest.Certificate(t)}}
	pin := transport.CertificateFingerprint(conf.Certificates[0].Leaf)
	l, err := quictransport.Listen(n.Listen(), conf, quictransport.ListenConfig{})
	if err != nil {
		t.Fatal(err)
	}
	client, err = weida.NewRuntime(weida.Options{DialFrom: n.Listen(), Reconnect: weida.ReconnectPolicy{Never: true}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Shutdown(); err != nil {
			t.Error(err)
		}
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		_ = l.Wait(ended) // what is left is cut off
	})
	return client, "weida://" + pin.String() + "@" + l.Addr().String() + "/x", func() *raw {
		link, err := l.Accept(t.Context())
		if err != nil {
			t.Error(err)
			return nil
		}
		r := &raw{t, link}
		r.uni(hello0, true)
		return r
	}
}

// TestStopCodes has a peer stop a transfer with each code (weida-supplement §1.11).
func TestStopCodes(t *testing.T) {
	tests := []struct {
		code     uint64
		want     error
		definite bool
	}{
		{transport.CodeNoError, weida.ErrTransport, false},
		{transport.CodeInternal, weida.ErrTransport, false},
		{transport.CodeCanceled, weida.ErrCanceled, true},
		{transport.CodeLimitExceeded, weida.ErrLimitExceeded, true},
		{transport.CodeShutdown, weida.ErrRejected, true},
		{transport.CodeRejected, weida.ErrRejected, true},
		{transport.CodeUnknownEndpoint, weida.ErrUnknownEndpoint, true},
		{transport.CodeUnsupported, weida.ErrUnsupported, true},
		{1 << 50, weida.ErrTransport, false},
	}
	for _, tt := range tests {
		t.Run(transport.CodeName(tt.code), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, url, accept := rawHost(t)
				go func() {
					r := accept()
					for {
						s, err := r.link.AcceptUni(t.Context())
						if err != nil {
							return
						}
						first := make([]byte, 2)
						if _, err := io.ReadFull(s, first); err == nil && first[1] == 1 { // DATA
							s.Stop(tt.code)
							return
						}
					}
				}()
				p := client.Peer(weida.ClientTLS{})
				if err := p.Connect(t.Context(), url); err != nil {
					t.Fatal(err)
				}
				w, err := p.Open(t.Context(), weida.Meta{})
				if err == nil {
					_, err = w.Write(make([]byte, beyondWindow))
				}
				wantOutcome(t, err, failureCase{want: tt.want, definite: tt.definite})
			})
		})
	}
}

// TestCloseCodes has a peer close the link under a transfer with each code (weida-supplement §1.11).
func TestCloseCodes(t *testing.T) {
	tests := []struct {
		code     uint64
		want     error
		cause    weida.Cause
		definite bool
	}{
		{transport.CodeNoError, weida.ErrConnectionLost, weida.CausePeerClosed, true},
		{transport.CodeInternal, weida.ErrConnectionLost, weida.CausePeerClosed, true},
		{transport.CodeProtocolViolation, weida.ErrProtocol, 0, false},
		{transport.CodeNegotiationFailed, weida.ErrNegotiation, 0, false},
		{transport.CodeLimitExceeded, weida.ErrLimitExceeded, 0, true},
		{transport.CodeShutdown, weida.ErrConnectionLost, weida.CausePeerClosed, true},
		{1 << 50, weida.ErrConnectionLost, weida.CausePeerClosed, true},
	}
	for _, tt := range tests {
		t.Run(transport.CodeName(tt.code), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, url, accept := rawHost(t)
				greeted := make(chan *raw, 1)
				go func() { greeted <- accept() }()
				p := client.Peer(weida.ClientTLS{})
				events := p.Events()
				if err := p.Connect(t.Context(), url); err != nil {
					t.Fatal(err)
				}
				w, err := p.Open(t.Context(), weida.Meta{})
				if err != nil {
					t.Fatal(err)
				}
				(<-greeted).link.Close(tt.code, "because")
				_, err = w.Write(make([]byte, beyondWindow))
				wantOutcome(t, err, failureCase{want: tt.want, cause: tt.cause, definite: tt.definite})
				// Whatever it means to the operation, the slot was closed by the peer, and every later operation is told so.
				for range 2 {
					if _, err := events.Next(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				synctest.Wait()
				_, err = p.Open(t.Context(), weida.Meta{})
				wantOutcome(t, err, failureCase{want: weida.ErrConnectionLost, cause: weida.CausePeerClosed, definite: true})
			})
		})
	}
}

// TestReplyViolations has a server answer with what no reply may be; the requester closes the link.
func TestReplyViolations(t *testing.T) {
	tests := []struct {
		name  string
		reply []byte
		want  error
	}{
		{"garbage", []byte("HTTP/1.1 200 OK\r\n\r\n"), weida.ErrProtocol},
		{"HELLO", hello0, weida.ErrProtocol},
		{"SUBSCRIBE", frame(3, 0xa2, 0, 0x62, '/', 't', 1, 0x60), weida.ErrProtocol},
		{"ERROR without a code", frame(2, 0xa0), weida.ErrProtocol},
		{"a message that is too long", frame(2, cat([]byte{0xa2, 0, 1, 1}, text(string(make([]byte, 1025))))...), weida.ErrProtocol},
		{"an undefined level achieved", frame(1, 0xa1, 8, 15), weida.ErrProtocol},
		{"nothing", nil, weida.ErrProtocol},
		{"half a header", []byte{0x57, 1, 5, 0xa1}, weida.ErrProtocol},
		{"ERROR with a code of nobody's", frame(2, 0xa1, 0, 0x19, 1, 0), weida.ErrTransport},
		{"an endpoint, which means nothing here", frame(1, 0xa1, 0, 0x62, '/', 'x'), nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, url, accept := rawHost(t)
				served := make(chan *raw, 1)
				go func() {
					r := accept()
					w, s, err := r.link.AcceptBi(t.Context())
					if err != nil {
						t.Error(err)
						return
					}
					if _, err := io.Copy(io.Discard, s); err != nil {
						t.Error(err)
					}
					r.send(w, tt.reply, true)
					served <- r
				}()
				q := client.Requester(weida.ClientTLS{})
				if err := q.Connect(t.Context(), url); err != nil {
					t.Fatal(err)
				}
				in, err := q.Request(t.Context(), weida.Meta{}, []byte("x"))
				if !errors.Is(err, tt.want) || (err == nil) != (tt.want == nil) {
					t.Fatalf("got %v, want %v", err, tt.want)
				}
				if err == nil {
					if in.Meta().Endpoint != "" {
						t.Errorf("the reply has the endpoint %q", in.Meta().Endpoint)
					}
					if _, err := io.Copy(io.Discard, in); err != nil {
						t.Error(err)
					}
				}
				r := <-served
				if !errors.Is(tt.want, weida.ErrProtocol) {
					if r.link.Err() != nil {
						t.Errorf("the link ended: %v", r.link.Err())
					}
					return
				}
				within(t, r.link.Done())
				if e, ok := errors.AsType[*transport.CloseError](r.link.Err()); !ok || e.Code != transport.CodeProtocolViolation {
					t.Errorf("got %v, want PROTOCOL_VIOLATION", r.link.Err())
				}
			})
		})
	}
}
