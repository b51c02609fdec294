package weida

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-agent/weir/weida/transport"
	"github.com/weir-agent/weir/weida/transport/localtransport"
	"github.com/weir-agent/weir/weida/transport/quictransport"
	"github.com/weir-agent/weir/weida/wire"
)

// raw makes a link to a server on which nothing was said yet.
func (r *rig) raw(s *server) transport.Link {
	r.t.Helper()
	link := r.rawLink(s)
	r.t.Cleanup(func() { link.Close(0, "") })
	return link
}

func (r *rig) rawLink(s *server) transport.Link {
	r.t.Helper()
	switch r.over {
	case OverUnix:
		return must1(localtransport.DialUnix(r.t.Context(), s.binding.Addr().String(), localtransport.Config{}))(r.t)
	case OverInproc:
		return must1(r.buses.Dial(r.t.Context(), s.binding.Addr().String()))(r.t)
	}
	d := must1(quictransport.NewDialler(r.net.Listen(), quictransport.Config{}))(r.t)
	r.t.Cleanup(func() {
		check(r.t, d.Close())
		_ = d.Wait(deadline(r.t))
	})
	addr := must1(ParseAddress(s.url("/x")))(r.t)
	conf := must1(ClientTLS{}.config(addr))(r.t)
	return must1(d.Dial(r.t.Context(), s.binding.Addr(), conf))(r.t)
}

// greet says HELLO on a raw link.
func greet(t testing.TB, l transport.Link, h wire.Hello) {
	t.Helper()
	control, ok := l.(transport.Controlled)
	if !ok {
		sendUni(t, l, helloFrame(t, h), true)
		return
	}
	w, r := control.Control()
	go func() { _, _ = io.Copy(io.Discard, r) }() // it ends with the link
	must1(w.Write(helloFrame(t, h)))(t)
	check(t, w.Close())
}

// nextUni returns the next stream that a peer has begun on a raw link, on which it begins none but one-way ones.
func nextUni(t testing.TB, l transport.Link) transport.ReceiveStream {
	t.Helper()
	if _, ok := l.(transport.Controlled); !ok {
		return must1(l.AcceptUni(deadline(t)))(t)
	}
	w, r, err := l.AcceptBi(deadline(t))
	check(t, err)
	w.(transport.Kindless).OneWay()
	return r
}

func helloFrame(t testing.TB, h wire.Hello) []byte {
	t.Helper()
	return must1(wire.AppendHello(nil, &h))(t)
}

func plainHello() wire.Hello {
	return wire.Hello{Versions: []uint64{0}, MaxHeaderBytes: 16384, MaxTransfers: 1024}
}

// sendUni sends bytes as a whole stream, or as one that goes on.
func sendUni(t testing.TB, l transport.Link, b []byte, fin bool) transport.SendStream {
	t.Helper()
	w := must1(l.OpenUni(t.Context()))(t)
	if len(b) > 0 {
		must1(w.Write(b))(t)
	}
	if fin {
		// A peer that has read a header behind which nothing follows may stop before the end is here.
		err := w.CloseWrite()
		_, socket := l.(transport.Parked) // on which a stop has no code
		if e, ok := errors.AsType[*transport.StopError](err); !ok || e.Code != transport.CodeNoError && !socket {
			check(t, err)
		}
	}
	return w
}

func dataFrame(t testing.TB, path string) []byte {
	t.Helper()
	return must1(wire.AppendData(nil, &wire.Data{Endpoint: some(path)}, wire.DefaultMaxHeaderBytes))(t)
}

// wantClose waits for the peer to close a link with a code.
func wantClose(t testing.TB, l transport.Link, code uint64) {
	t.Helper()
	<-l.Done()
	e, ok := errors.AsType[*transport.CloseError](l.Err())
	if !ok || e.Cause != transport.CausePeerClosed || e.Code != code {
		t.Errorf("got %v, want the peer to close with %s", l.Err(), transport.CodeName(code))
	}
}

func TestGuaranteesAreNegotiated(t *testing.T) {
	stored := Guarantees{Acknowledgement: wire.AckStored, Durability: wire.Flushed}
	rig := newRig(t)
	broker := rig.server(Options{Offered: stored})
	plain := rig.server(Options{})
	must1(broker.Puller("/q"))(t)
	// A client of core connects to a broker that could do more, and one that must have more connects to it alone.
	core := rig.runtime(Options{}).Pusher(ClientTLS{})
	connect(t, core, broker.url("/q"))
	demanding := rig.runtime(Options{Offered: stored, Required: stored}).Pusher(ClientTLS{})
	events := demanding.Events()
	connect(t, demanding, broker.url("/q"))
	if e, ok := must1(events.Next(deadline(t)))(t).(Connected); !ok || e.Guarantees != stored {
		t.Errorf("got %+v, want a link with %v", e, stored)
	}
	err := demanding.Connect(t.Context(), plain.url("/q"))
	if !errors.Is(err, ErrNegotiation) && !errors.Is(err, ErrConnectionLost) {
		t.Errorf("got %v, want it refused", err)
	}
	if got := demanding.PeerCount(); got != 1 {
		t.Errorf("got %d peers, want 1", got)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for name, o := range map[string]Options{
		"ordering by key is not built":  {Offered: Guarantees{Ordering: wire.OrderPerKey}},
		"required above offered":        {Required: Guarantees{Acknowledgement: wire.AckStored}},
		"durability without its level":  {Offered: Guarantees{Durability: wire.Flushed}},
		"negative queue":                {EndpointQueue: -1},
		"negative window":               {Limits: Limits{StreamReceiveWindow: -1}},
		"deduplication is not built":    {Offered: Guarantees{Deduplication: wire.DedupDurable}},
		"other backpressure is refused": {Offered: Guarantees{Backpressure: wire.DropOverflow}, Required: Guarantees{Backpressure: wire.DropOverflow}},
	} {
		if _, err := NewRuntime(o); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// A stream that overtakes the HELLO waits for it, unread beyond its preamble, and then goes its way.
func TestEarlyStreamsAreParked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := newRig(t)
		s := rig.server(Options{})
		pull := must1(s.Puller("/p"))(t)
		rep := must1(s.Replier("/r"))(t)
		link := rig.raw(s)
		sendUni(t, link, append(dataFrame(t, "/p"), "early"...), true)
		w, r, err := link.OpenBi(t.Context())
		check(t, err)
		must1(w.Write(append(dataFrame(t, "/r"), "request"...)))(t)
		check(t, w.CloseWrite())
		unknown := sendUni(t, link, dataFrame(t, "/nowhere"), false)
		time.Sleep(time.Second)
		if n := len(pull.e.queue) + len(rep.e.queue); n != 0 || unknown.Err() != nil || link.Err() != nil {
			t.Errorf("before HELLO %d streams were dispatched, one was answered with %v, the link with %v", n, unknown.Err(), link.Err())
		}
		sendUni(t, link, helloFrame(t, plainHello()), true)
		if got := collect(t, must1(pull.Recv(deadline(t)))(t)); got != "early" {
			t.Errorf("got %q", got)
		}
		in := must1(rep.Accept(deadline(t)))(t)
		check(t, in.Respond(t.Context(), Meta{}, must1(in.Body().Collect(100))(t)))
		if got := must1(io.ReadAll(r))(t); !strings.HasSuffix(string(got), "request") {
			t.Errorf("got the reply %q", got)
		}
		<-unknown.Done()
	})
}

func TestSilentPeerIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := newRig(t)
		s := rig.server(Options{})
		must1(s.Puller("/p"))(t)
		link := rig.raw(s)
		begin := time.Now()
		sendUni(t, link, dataFrame(t, "/p"), true) // no HELLO, though it speaks
		wantClose(t, link, transport.CodeNegotiationFailed)
		if got := time.Since(begin).Round(time.Second); got != 10*time.Second {
			t.Errorf("closed after %v, want 10s", got)
		}
	})
}

// Who waits for a HELLO learns at once that the link is gone.
func TestWaitingForHelloWatchesTheLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := newRig(t)
		id := generate(t)
		conf := must1(ServerTLS{Identity: id}.config())(t)
		l := must1(quictransport.Listen(rig.net.Listen(), conf, quictransport.ListenConfig{}))(t)
		defer func() {
			check(t, l.Close())
			_ = l.Wait(t.Context())
		}()
		rt := rig.runtime(Options{})
		p := rt.Peer(ClientTLS{})
		failed := make(chan error, 1)
		begin := time.Now()
		go func() {
			failed <- p.Connect(t.Context(), "weida://"+id.Fingerprint().String()+"@"+l.Addr().String()+"/x")
		}()
		link := must1(l.Accept(t.Context()))(t)
		link.Close(transport.CodeShutdown, "going")
		wantErr(t, <-failed, ErrConnectionLost)
		if got := time.Since(begin); got > time.Second {
			t.Errorf("it took %v", got)
		}
		if got := p.PeerCount(); got != 0 {
			t.Errorf("got %d peers", got)
		}
	})
}

// Refusals say what they say and leave the link alone.
func TestRefusals(t *testing.T) {
	rig := newRig(t)
	s := rig.server(Options{})
	pull := must1(s.Puller("/pull"))(t)
	rep := must1(s.Replier("/reply"))(t)
	link := rig.raw(s)
	sendUni(t, link, helloFrame(t, plainHello()), true)
	uni := []struct {
		path string
		code uint64
	}{{"/nowhere", transport.CodeUnknownEndpoint}, {"/reply", transport.CodeUnsupported}}
	for _, tt := range uni {
		w := sendUni(t, link, dataFrame(t, tt.path), false)
		<-w.Done()
		if e, ok := errors.AsType[*transport.StopError](w.Err()); !ok || e.Code != tt.code {
			t.Errorf("one way to %s: got %v, want %s", tt.path, w.Err(), transport.CodeName(tt.code))
		}
	}
	bi := []struct {
		path  string
		code  uint64
		reply wire.ErrorCode
	}{
		{"/nowhere", transport.CodeUnknownEndpoint, wire.CodeUnknownEndpoint},
		{"/pull", transport.CodeUnsupported, wire.CodeUnsupported},
	}
	for _, tt := range bi {
		w, r, err := link.OpenBi(t.Context())
		check(t, err)
		must1(w.Write(dataFrame(t, tt.path)))(t)
		want := must1(wire.AppendError(nil, wire.Error{Code: tt.reply}, 1024))(t)
		if got := must1(io.ReadAll(r))(t); string(got) != string(want) {
			t.Errorf("exchange with %s: got %x, want %x", tt.path, got, want)
		}
		<-w.Done()
		if e, ok := errors.AsType[*transport.StopError](w.Err()); !ok || e.Code != tt.code {
			t.Errorf("exchange with %s: got %v, want %s", tt.path, w.Err(), transport.CodeName(tt.code))
		}
	}
	// Frames that a side without publishers and queues ignores.
	sendUni(t, link, must1(wire.AppendSubscribe(nil, wire.Subscription{Endpoint: "/pull", Filter: "a"}, 1024))(t), true)
	sendUni(t, link, must1(wire.AppendUnsubscribe(nil, wire.Subscription{Endpoint: "/no", Filter: ""}, 1024))(t), true)
	sendUni(t, link, must1(wire.AppendCredit(nil, wire.Credit{Subscription: wire.Subscription{Endpoint: "/no"}, Limit: 1}, 1024))(t), true)
	// A report that nobody has ordered.
	w := sendUni(t, link, must1(wire.AppendCursor(nil, 5, 1024))(t), false)
	<-w.Done()
	if e, ok := errors.AsType[*transport.StopError](w.Err()); !ok || e.Code != transport.CodeCanceled {
		t.Errorf("unknown report: got %v, want CANCELED", w.Err())
	}
	// A stream that is reset anywhere is nobody's fault.
	for _, n := range []int{1, 2, 4, 7, 9} {
		sendUni(t, link, append(dataFrame(t, "/pull"), "body"...)[:n], false).Reset(transport.CodeCanceled)
	}
	// The link is alive.
	sendUni(t, link, append(dataFrame(t, "/pull"), "alive"...), true)
	for {
		in := must1(pull.Recv(deadline(t)))(t)
		if b, err := in.Collect(100); err == nil {
			if string(b) != "alive" {
				t.Errorf("got %q", b)
			}
			break
		}
	}
	check(t, rep.Close())
	if err := link.Err(); err != nil {
		t.Errorf("the link has ended: %v", err)
	}
}

// What waits in the queue of an endpoint that is closed is refused, as what comes later is.
func TestClosedEndpointRefusesItsQueue(t *testing.T) {
	rig := newRig(t)
	s := rig.server(Options{EndpointQueue: 1})
	rep := must1(s.Replier("/r"))(t)
	r := rig.runtime(Options{}).Requester(ClientTLS{})
	connect(t, r, s.url("/r"))
	errs := make(chan error)
	for range 3 { // one in the queue, two before it
		go func() {
			_, err := r.Request(context.Background(), Meta{}, nil)
			errs <- err
		}()
	}
	in := must1(rep.Accept(t.Context()))(t) // so at least one has arrived
	check(t, rep.Close())
	check(t, in.Refuse(CodeRejected, "closing"))
	unknown := 0
	for range 3 {
		if err := <-errs; errors.Is(err, ErrUnknownEndpoint) {
			unknown++
		} else if !errors.Is(err, ErrRejected) || !strings.Contains(err.Error(), "closing") {
			t.Errorf("got %v", err)
		}
	}
	if unknown != 2 {
		t.Errorf("got %d unknown endpoints, want 2", unknown)
	}
}

// What comes to an endpoint that is closed never stays in its queue.
func TestClosedEndpointKeepsNothing(t *testing.T) {
	p := newPair(t, Options{})
	conns := p.s.rt.snapshot()
	check(t, p.pull.Close())
	for range 100 { // the queue has room, so either branch of put may be taken
		p.pull.e.put(Incoming{}, conns[0].link.Done())
	}
	if n := len(p.pull.e.queue); n != 0 {
		t.Errorf("%d are left in the queue", n)
	}
}

// Addresses of a host are tried in order, all but the last for a moment only, and no more than there is a bound for.
func TestAddressesAreTriedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := newRig(t)
		dead := netip.MustParseAddr("10.9.9.9")
		var asked string
		o := Options{MaxResolvedAddresses: 3, Resolver: func(_ context.Context, host string) ([]netip.Addr, error) {
			asked = host
			return []netip.Addr{dead, dead, dead, dead, dead}, nil
		}}
		begin := time.Now()
		err := rig.runtime(o).Peer(ClientTLS{Trust: TrustPins(Fingerprint{})}).Connect(t.Context(), "weida://some.host:7/x")
		wantErr(t, err, ErrConnectionLost)
		if took, want := time.Since(begin).Round(100*time.Millisecond), 5500*time.Millisecond; took != want || asked != "some.host" {
			t.Errorf("asked for %q, it took %v, want %v", asked, took, want)
		}
		s := rig.server(Options{})
		port := s.binding.Addr().(*net.UDPAddr).AddrPort()
		o.Resolver = func(context.Context, string) ([]netip.Addr, error) { return []netip.Addr{dead, port.Addr()}, nil }
		begin = time.Now()
		url := fmt.Sprintf("weida://%v@some.host:%d/x", s.id.Fingerprint(), port.Port())
		check(t, rig.runtime(o).Peer(ClientTLS{}).Connect(t.Context(), url))
		if took := time.Since(begin); took < 250*time.Millisecond || took > time.Second {
			t.Errorf("it took %v", took)
		}
		o.Resolver = func(context.Context, string) ([]netip.Addr, error) { return nil, nil }
		wantErr(t, rig.runtime(o).Peer(ClientTLS{}).Connect(t.Context(), url), ErrTransport)
	})
}

// While a link to a host lives, nobody else is taken for it, though both are trusted.
func TestTwoServersUnderOneName(t *testing.T) {
	rt := must1(NewRuntime(Options{}))(t)
	t.Cleanup(func() { check(t, rt.Shutdown()) })
	ids := []*Identity{generate(t), generate(t)}
	first := must1(rt.Listener().BindQUIC("127.0.0.1:0", ServerTLS{Identity: ids[0]}))(t)
	port := first.Addr().(*net.UDPAddr).Port
	if _, err := rt.Listener().BindQUIC(fmt.Sprintf("127.0.0.2:%d", port), ServerTLS{Identity: ids[1]}); err != nil {
		t.Skipf("no second loopback address: %v", err)
	}
	next := byte(0)
	c := must1(NewRuntime(Options{Resolver: func(context.Context, string) ([]netip.Addr, error) {
		next++
		return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, next})}, nil
	}}))(t)
	t.Cleanup(func() { check(t, c.Shutdown()) })
	terms := ClientTLS{Trust: TrustPins(ids[0].Fingerprint(), ids[1].Fingerprint())}
	url := fmt.Sprintf("weida://both:%d/x", port)
	one := c.Peer(terms)
	connect(t, one, url)
	err := c.Peer(terms).Connect(t.Context(), url)
	if e, ok := errors.AsType[*UntrustedError](err); !ok || e.Fingerprint != ids[1].Fingerprint() {
		t.Errorf("got %v, want that %v is untrusted", err, ids[1].Fingerprint())
	}
	next = 1
	other := ClientTLS{Trust: TrustPins(ids[1].Fingerprint())}
	connect(t, c.Peer(other), url) // on other terms it is another peer
}
