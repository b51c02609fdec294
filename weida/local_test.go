package weida

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-agent/weir/weida/transport/localtransport"
	"github.com/weir-agent/weir/weida/wire"
)

// inprocRig is a rig whose servers are reached within the process.
func inprocRig(t *testing.T) *rig {
	r := newRig(t)
	r.over = OverInproc
	return r
}

func TestBindInprocRefuses(t *testing.T) {
	rig := inprocRig(t)
	l := rig.runtime(Options{}).Listener()
	must1(l.BindInproc("taken"))(t)
	for _, bus := range []string{"", "a/b", "a@b", "a\x00b", strings.Repeat("b", 257)} {
		_, err := l.BindInproc(bus)
		wantErr(t, err, ErrInvalidAddress)
	}
	_, err := l.BindInproc("taken")
	wantErr(t, err, localtransport.ErrBusTaken)
	check(t, l.Close())
	_, err = l.BindInproc("other")
	wantErr(t, err, ErrClosed)
	free := rig.runtime(Options{}).Listener()
	for _, bus := range []string{"taken", "other"} { // both are free again
		must1(free.BindInproc(bus))(t)
	}
}

func TestDialLocalFailures(t *testing.T) {
	p := inprocRig(t).runtime(Options{}).Peer(ClientTLS{})
	err := p.Connect(t.Context(), "weida+inproc://nobody/x")
	lost, ok := errors.AsType[*ConnectionLostError](err)
	if !ok || lost.Cause != CausePeerClosed || !errors.Is(err, localtransport.ErrNoBus) {
		t.Errorf("got %v, want the peer to be gone", err)
	}
	err = p.Connect(t.Context(), "weida+pipe://name/x")
	wantErr(t, err, ErrUnsupported)
	if err == nil || !strings.Contains(err.Error(), "weida+pipe on "+runtime.GOOS) {
		t.Errorf("got %v, want it to name what is not supported", err)
	}
}

// Over a socket the kernel says who the peer is, a refusal reaches the next write, and the socket is gone with the binding.
func TestUnix(t *testing.T) {
	rig := newRig(t)
	rig.over = OverUnix
	s := rig.server(Options{})
	pull := must1(s.Puller("/p"))(t)
	push := rig.runtime(Options{}).Pusher(ClientTLS{})
	connect(t, push, s.url("/p"), s.url("/nobody"))
	check(t, push.Disconnect(s.url("/nobody")))
	check(t, push.Send(t.Context(), Meta{}, []byte("hello")))
	in := must1(pull.Recv(t.Context()))(t)
	if peer := in.Meta().Peer; peer.UID != uint32(os.Geteuid()) || peer.PID != int32(os.Getpid()) {
		t.Errorf("got peer %+v", peer)
	}
	collect(t, in)
	out := must1(push.Open(t.Context(), Meta{}))(t)
	defer out.Cancel()
	check(t, must1(pull.Recv(t.Context()))(t).Close())
	chunk := make([]byte, 1<<20)
	var err error
	for err == nil {
		_, err = out.Write(chunk)
	}
	wantErr(t, err, ErrCanceled)
	path := s.binding.Addr().String()
	check(t, s.binding.Close())
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}
	wantErr(t, rig.runtime(Options{}).Peer(ClientTLS{}).Connect(t.Context(), s.url("/p")), ErrConnectionLost)
}

// What does not agree is refused over a socket, too, and the code reaches the dialler.
func TestUnixNegotiates(t *testing.T) {
	rig := newRig(t)
	rig.over = OverUnix
	s := rig.server(Options{})
	stored := Guarantees{Acknowledgement: AckStored, Durability: Flushed}
	err := rig.runtime(Options{Offered: stored, Required: stored}).Peer(ClientTLS{}).Connect(t.Context(), s.url("/p"))
	wantErr(t, err, ErrNegotiation)
}

// One runtime is a bus of its own where it was given none to share.
func TestBusesAreNotSharedByThemselves(t *testing.T) {
	one, other := must1(NewRuntime(Options{}))(t), must1(NewRuntime(Options{}))(t)
	t.Cleanup(func() {
		check(t, one.Shutdown())
		check(t, other.Shutdown())
	})
	must1(one.Listener().BindInproc("bus"))(t)
	check(t, one.Peer(ClientTLS{}).Connect(t.Context(), "weida+inproc://bus/x"))
	wantErr(t, other.Peer(ClientTLS{}).Connect(t.Context(), "weida+inproc://bus/x"), ErrConnectionLost)
}

func TestInprocRefusesOneLinkTooMany(t *testing.T) {
	rig := inprocRig(t)
	s := rig.server(Options{MaxConnections: 1})
	connect(t, rig.runtime(Options{}).Peer(ClientTLS{}), s.url("/x"))
	wantErr(t, rig.runtime(Options{}).Peer(ClientTLS{}).Connect(t.Context(), s.url("/x")), ErrLimitExceeded)
}

// A binding that closes is a peer that closed the link; the link comes back when somebody binds again.
func TestInprocIsDialledAgain(t *testing.T) {
	rig := inprocRig(t)
	s := rig.server(Options{})
	pull := must1(s.Puller("/p"))(t)
	push := rig.runtime(Options{Reconnect: ReconnectPolicy{Initial: 1}}).Pusher(ClientTLS{})
	connect(t, push, s.url("/p"))
	events := push.Events()
	bus := s.binding.Addr().String()
	check(t, s.binding.Close())
	if e, ok := must1(events.Next(deadline(t)))(t).(Lost); !ok || e.Err.Cause != CausePeerClosed {
		t.Errorf("got %+v, want the link lost by the peer", e)
	}
	must1(s.BindInproc(bus))(t)
	check(t, push.Send(t.Context(), Meta{}, []byte("again")))
	if got := collect(t, must1(pull.Recv(deadline(t)))(t)); got != "again" {
		t.Errorf("got %q", got)
	}
}

// A subscriber that has parked nothing loses copies, which are counted as that, and nobody waits for it; its subscription survives.
func TestNoParkedConnection(t *testing.T) {
	rig := newRig(t)
	rig.over = OverUnix
	s := rig.server(Options{})
	p := must1(s.Publisher("/p"))(t)
	bare := must1(localtransport.DialUnix(t.Context(), s.binding.Addr().String(), localtransport.Config{MaxParked: -1}))(t)
	t.Cleanup(func() { bare.Close(0, "") })
	greet(t, bare, plainHello())
	sendUni(t, bare, must1(wire.AppendSubscribe(nil, wire.Subscription{Endpoint: "/p"}, 1024))(t), true)
	sub := rig.subscriber(Options{}, s.url("/p"), "")
	s.subscribers(t, "/p", 2, 2)
	for i := range 2 {
		if n := must1(p.Publish(Meta{Topic: "t"}, []byte("x")))(t); n != 2 {
			t.Errorf("queued for %d, want 2", n)
		}
		received(t, sub)
		check(t, p.Flush(deadline(t)))
		if d := p.DroppedOn("t"); d != (Drops{NoParkedConnection: uint64(i + 1)}) || d.Total() != uint64(i+1) {
			t.Errorf("dropped %+v, want %d for want of a connection", d, i+1)
		}
	}
	w := must1(p.Open(t.Context(), Meta{Topic: "film"}))(t)
	must1(w.WriteNow([]byte("x")))(t)
	must1(w.Finish())(t)
	received(t, sub)
	<-w.ctx.Done()
	if d := p.DroppedOn("film"); d != (Drops{NoParkedConnection: 1}) {
		t.Errorf("dropped %+v, want one copy for want of a connection", d)
	}
	s.subscribers(t, "/p", 2, 2)
}

// Many more copies than connections go out in one burst, as each that is used is replaced.
func TestBurstOverParkedConnections(t *testing.T) {
	rig := newRig(t)
	rig.over = OverUnix
	s := rig.server(Options{})
	p := must1(s.Publisher("/p"))(t)
	sub := rig.subscriber(Options{Limits: Limits{MaxParkedReverse: 2}}, s.url("/p"), "")
	s.subscribers(t, "/p", 1, 1)
	const burst = 200
	for range burst {
		must1(p.Publish(Meta{}, []byte("x")))(t)
	}
	for range burst {
		received(t, sub)
	}
	if d := p.Dropped(); d.Total() != 0 {
		t.Errorf("dropped %+v", d)
	}
}

// Who parks nothing could not be sent anything, and is told so when it connects.
func TestParkingNothingIsRefused(t *testing.T) {
	rig := newRig(t)
	rig.over = OverUnix
	s := rig.server(Options{})
	must1(s.Pair("/pair"))(t)
	none := rig.runtime(Options{Limits: Limits{MaxParkedReverse: -1}})
	sub := none.Subscriber(ClientTLS{})
	wantErr(t, sub.Connect(t.Context(), s.url("/p")), ErrUnsupported)
	wantErr(t, none.Pair(ClientTLS{}).Connect(t.Context(), s.url("/pair")), ErrUnsupported)
	if n := sub.PeerCount(); n != 0 {
		t.Errorf("got %d peers", n)
	}
	// Over what needs none it is allowed.
	rig.over = OverInproc
	near := rig.server(Options{})
	check(t, sub.Connect(t.Context(), near.url("/p")))
}

// Filters that come and go at once end as they were left, though within the machine nothing orders their frames.
func TestFiltersThatComeAndGo(t *testing.T) {
	overEach(t, func(t *testing.T, rig *rig) {
		s := rig.server(Options{})
		sub := rig.subscriber(Options{}, s.url("/p"))
		for i := range 50 {
			check(t, sub.Subscribe("kept"))
			check(t, sub.Subscribe("gone"))
			sub.Unsubscribe("gone")
			if i < 49 {
				sub.Unsubscribe("kept")
			}
		}
		check(t, sub.Subscribe("last"))
		// What is done to one filter is in order; different ones may overtake each other.
		want := []string{"kept", "last"}
		var got []string
		for ctx := deadline(t); !slices.Equal(got, want); breathe() {
			if ctx.Err() != nil {
				t.Fatalf("got %q, want %q", got, want)
			}
			s.ns.subs.mu.RLock()
			got = nil
			for _, m := range s.ns.subs.byPath["/p"] {
				got = append(got, m.filters...)
			}
			s.ns.subs.mu.RUnlock()
			slices.Sort(got)
		}
	})
}

// Shutdown waits for the goroutines of a link over sockets, whatever is under way on it.
func TestShutdownWaitsForSockets(t *testing.T) {
	for range 20 {
		rig := newRig(t)
		rig.over = OverUnix
		s := rig.server(Options{})
		must1(s.Puller("/p"))(t)
		p := must1(s.Publisher("/pub"))(t)
		c := rig.runtime(Options{})
		push, sub := c.Pusher(ClientTLS{}), c.Subscriber(ClientTLS{})
		check(t, sub.Subscribe(""))
		connect(t, push, s.url("/p"))
		connect(t, sub, s.url("/pub"))
		s.subscribers(t, "/pub", 1, 1)
		must1(p.Publish(Meta{}, make([]byte, windowful)))(t) // nobody reads it
		for range 10 {
			out := must1(push.Open(t.Context(), Meta{}))(t)
			defer out.Cancel()
			must1(out.Write([]byte("begun")))(t)
			check(t, push.Send(t.Context(), Meta{}, make([]byte, 100<<10)))
		}
		check(t, c.Shutdown())
		check(t, s.rt.Shutdown())
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		for line := range strings.Lines(string(stacks)) {
			if strings.Contains(line, "localtransport.") {
				t.Fatalf("a goroutine is left: %s", line)
			}
		}
	}
}

// One process may have so many links to a socket, as the kernel tells who it is; a link that ends makes room.
func TestTooManyConnectionsOfAProcess(t *testing.T) {
	rig := newRig(t)
	rig.over = OverUnix
	s := rig.server(Options{MaxConnectionsPerPeer: 2})
	one, two := rig.runtime(Options{}).Peer(ClientTLS{}), rig.runtime(Options{}).Peer(ClientTLS{})
	connect(t, one, s.url("/x"))
	connect(t, two, s.url("/x"))
	err := rig.runtime(Options{}).Peer(ClientTLS{}).Connect(t.Context(), s.url("/x"))
	wantErr(t, err, ErrLimitExceeded)
	check(t, one.Close())
	for ctx := deadline(t); s.binding.Connections() > 1 && ctx.Err() == nil; {
		breathe()
	}
	connect(t, rig.runtime(Options{}).Peer(ClientTLS{}), s.url("/x"))
}

// A peer that orders reports and takes none of them makes this side hold no more than the bound.
func TestReportsThatNobodyTakes(t *testing.T) {
	rig := newRig(t)
	rig.over = OverUnix
	const most = 4
	s := rig.server(Options{Limits: Limits{MaxConcurrentUniStreams: most}})
	pull := must1(s.Puller("/p"))(t)
	bare := must1(localtransport.DialUnix(t.Context(), s.binding.Addr().String(), localtransport.Config{MaxParked: -1}))(t)
	t.Cleanup(func() { bare.Close(0, "") })
	greet(t, bare, plainHello())
	for i := range uint64(10 * most) {
		d := wire.Data{Endpoint: some("/p"), Report: wire.Some(wire.Report{ID: i + 1, Levels: []Level{LevelProcessed}})}
		sendUni(t, bare, must1(wire.AppendData(nil, &d, wire.DefaultMaxHeaderBytes))(t), true)
		in := must1(pull.Recv(deadline(t)))(t)
		collect(t, in)
		in.Reporter().Report(LevelProcessed, 0)
		in.Reporter().Finish()
		if n, waiting := s.rt.snapshot()[0].writing.count(); n != min(int(i)+1, most) || n+waiting != int(i)+1 {
			t.Fatalf("%d reports are being written and %d wait behind %d transfers", n, waiting, i+1)
		}
	}
	c := s.rt.snapshot()[0]
	bare.Close(0, "")
	left := func() int {
		n, waiting := c.writing.count()
		return n + waiting
	}
	for ctx := deadline(t); left() > 0 && ctx.Err() == nil; {
		breathe()
	}
	if n := left(); n != 0 {
		t.Errorf("%d are left of a link that has ended", n)
	}
}

// Within a process a link is dialled again as soon as somebody listens, however long the delay would be.
func TestInprocWaitsForTheBus(t *testing.T) {
	rig := inprocRig(t)
	s := rig.server(Options{})
	pull := must1(s.Puller("/p"))(t)
	push := rig.runtime(Options{Reconnect: ReconnectPolicy{Initial: 24 * time.Hour, Max: 24 * time.Hour}}).Pusher(ClientTLS{})
	connect(t, push, s.url("/p"))
	events := push.Events()
	bus := s.binding.Addr().String()
	check(t, s.binding.Close())
	for _, want := range []PeerEvent{Lost{}, Retrying{}} {
		if got := must1(events.Next(deadline(t)))(t); fmt.Sprintf("%T", got) != fmt.Sprintf("%T", want) {
			t.Errorf("got %T, want %T", got, want)
		}
	}
	must1(s.BindInproc(bus))(t)
	check(t, push.Send(t.Context(), Meta{}, []byte("again")))
	if got := collect(t, must1(pull.Recv(deadline(t)))(t)); got != "again" {
		t.Errorf("got %q", got)
	}
}
