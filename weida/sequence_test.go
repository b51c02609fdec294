package weida

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weir-agent/weir/weida/transport"
	"github.com/weir-agent/weir/weida/wire"
)

func numbered(n ...uint64) []uint64 { return n }

// send sends a numbered transfer over a raw link, with its number as the payload.
func sendNumbered(t testing.TB, l transport.Link, d wire.Data) {
	t.Helper()
	b := must1(wire.AppendData(nil, &d, wire.DefaultMaxHeaderBytes))(t)
	sendUni(t, l, fmt.Appendf(b, "%d", d.Sequence.Value), true)
}

func ordering(o wire.Ordering) Options {
	g := Guarantees{Ordering: o}
	return Options{Offered: g}
}

// speaking makes a raw link that offers the same guarantees as the server.
func (r *rig) speaking(s *server, g Guarantees) transport.Link {
	r.t.Helper()
	l := r.raw(s)
	h := plainHello()
	h.Offered = g
	greet(r.t, l, h)
	return l
}

func TestSendersNumberWhereItWasAgreed(t *testing.T) {
	for name, tt := range map[string]struct {
		server, client wire.Ordering
		want           []uint64
	}{
		"both detect":             {wire.OrderDetect, wire.OrderDetect, numbered(1, 2, 3)},
		"the weaker of two":       {wire.OrderDetect, wire.OrderReassemble, numbered(1, 2, 3)},
		"one side does not":       {wire.OrderNone, wire.OrderDetect, numbered(0, 0, 0)},
		"the other side does not": {wire.OrderDetect, wire.OrderNone, numbered(0, 0, 0)},
	} {
		t.Run(name, func(t *testing.T) {
			rig := newRig(t)
			s := rig.server(ordering(tt.server))
			pull := must1(s.Puller("/p"))(t)
			push := rig.runtime(ordering(tt.client)).Pusher(ClientTLS{})
			connect(t, push, s.url("/p"))
			var got []uint64
			for range tt.want {
				check(t, push.Send(t.Context(), Meta{Topic: "any"}, nil))
				in := must1(pull.Recv(deadline(t)))(t)
				got = append(got, in.Meta().Sequence.Value)
				if in.Meta().Gap != (Gap{}) {
					t.Errorf("got gap %+v", in.Meta().Gap)
				}
				collect(t, in)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got numbers %v, want %v", got, tt.want)
			}
		})
	}
}

// Numbers that nobody has agreed on are ignored.
func TestNumbersOfACoreLink(t *testing.T) { overEach(t, testNumbersOfACoreLink) }

func testNumbersOfACoreLink(t *testing.T, rig *rig) {
	s := rig.server(Options{})
	pull := must1(s.Puller("/p"))(t)
	l := rig.speaking(s, Guarantees{Ordering: wire.OrderDetect})
	for _, n := range numbered(5, 5) {
		sendNumbered(t, l, wire.Data{Endpoint: some("/p"), Sequence: wire.Some(n)})
		in := must1(pull.Recv(deadline(t)))(t)
		if in.Meta().Sequence.Set || in.Meta().Gap != (Gap{}) {
			t.Errorf("got %+v", in.Meta())
		}
		collect(t, in)
	}
}

func TestGapsAreDetected(t *testing.T) { overEach(t, testGapsAreDetected) }

func testGapsAreDetected(t *testing.T, rig *rig) {
	s := rig.server(ordering(wire.OrderDetect))
	pull := must1(s.Puller("/p"))(t)
	l := rig.speaking(s, Guarantees{Ordering: wire.OrderDetect})
	for _, tt := range []struct {
		number uint64
		gap    Gap
	}{{1, Gap{}}, {2, Gap{}}, {5, Gap{3, 5}}, {3, Gap{}}, {5, Gap{}}, {6, Gap{}}, {10, Gap{7, 10}}} {
		sendNumbered(t, l, wire.Data{Endpoint: some("/p"), Sequence: wire.Some(tt.number)})
		in := must1(pull.Recv(deadline(t)))(t)
		if got := in.Meta().Gap; got != tt.gap || in.Meta().Sequence.Value != tt.number {
			t.Errorf("%d came with gap %+v, want %+v", tt.number, got, tt.gap)
		}
		collect(t, in)
	}
	if got := (Gap{7, 10}).Missed(); got != 3 {
		t.Errorf("missed %d, want 3", got)
	}
}

// A copy that was dropped leaves a gap in its topic, and in no other.
func TestDroppedCopyLeavesAGap(t *testing.T) { overEach(t, testDroppedCopyLeavesAGap) }

func testDroppedCopyLeavesAGap(t *testing.T, rig *rig) {
	s := rig.server(Options{Offered: Guarantees{Ordering: wire.OrderDetect}, Limits: Limits{SubscriberBufferBytes: 10}})
	p := must1(s.Publisher("/p"))(t)
	must1(p.Publish(Meta{Topic: "a"}, nil))(t) // before anybody listens
	sub := rig.subscriber(ordering(wire.OrderDetect), s.url("/p"), "")
	s.subscribers(t, "/p", 1, 1)
	for _, tt := range []struct {
		topic string
		lost  bool
		seq   uint64
		gap   Gap
	}{
		{"a", false, 2, Gap{}},
		{"a", true, 3, Gap{}},
		{"b", false, 1, Gap{}},
		{"a", false, 4, Gap{3, 4}},
		{"b", false, 2, Gap{}},
	} {
		if tt.lost { // by filling the room
			s.ns.subs.mu.RLock()
			m := s.ns.subs.byPath["/p"][0]
			s.ns.subs.mu.RUnlock()
			m.mu.Lock()
			m.bytes += 10
			m.mu.Unlock()
			if n := must1(p.Publish(Meta{Topic: tt.topic}, []byte("x")))(t); n != 0 {
				t.Errorf("it was queued")
			}
			m.mu.Lock()
			m.free(10)
			m.mu.Unlock()
			continue
		}
		must1(p.Publish(Meta{Topic: tt.topic}, []byte("x")))(t)
		in := must1(sub.Recv(deadline(t)))(t)
		if m := in.Meta(); m.Sequence.Value != tt.seq || m.Gap != tt.gap {
			t.Errorf("%s: got number %d, gap %+v, want %d, %+v", tt.topic, m.Sequence.Value, m.Gap, tt.seq, tt.gap)
		}
		collect(t, in)
	}
}

func TestReassemble(t *testing.T) {
	g := Guarantees{Ordering: wire.OrderReassemble}
	rig := newRig(t)
	s := rig.server(Options{Offered: g, Limits: Limits{MaxReorderHold: 3}})
	pull := must1(s.Puller("/p"))(t)
	l := rig.speaking(s, g)
	next := func(number uint64, gap Gap) {
		t.Helper()
		in := must1(pull.Recv(deadline(t)))(t)
		if m := in.Meta(); m.Sequence.Value != number || m.Gap != gap {
			t.Errorf("got %d with gap %+v, want %d with %+v", m.Sequence.Value, m.Gap, number, gap)
		}
		if got := collect(t, in); got != fmt.Sprint(number) {
			t.Errorf("got %q of %d", got, number)
		}
	}
	send := func(numbers ...uint64) {
		t.Helper()
		for _, n := range numbers {
			sendNumbered(t, l, wire.Data{Endpoint: some("/p"), Sequence: wire.Some(n)})
		}
	}
	held := func(want int) {
		t.Helper()
		for ctx := deadline(t); ; breathe() {
			if got := s.heldBack(); got == want {
				return
			} else if ctx.Err() != nil {
				t.Fatalf("%d are held back, want %d", got, want)
			}
		}
	}
	send(3, 2)
	held(2)
	send(2) // a repeat of what is held goes straight through
	next(2, Gap{})
	send(1)
	for n := range uint64(3) {
		next(n+1, Gap{})
	}
	held(0)
	send(2) // it is late
	next(2, Gap{})
	// One beyond the bound gives up the oldest that waits, with its gap, and what follows it.
	send(6, 7, 9)
	held(3)
	send(11)
	next(6, Gap{4, 6})
	next(7, Gap{})
	held(2)
	send(8)
	next(8, Gap{})
	next(9, Gap{})
	send(10)
	next(10, Gap{})
	next(11, Gap{})
}

// heldBack is how many transfers are held on all links.
func (s *server) heldBack() int {
	n := 0
	for _, c := range s.rt.snapshot() {
		c.order.mu.Lock()
		n += c.order.held
		c.order.mu.Unlock()
	}
	return n
}

// Whatever the order of arrival, what is tracked comes out ascending, once, and complete.
func TestReassembleAnyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := sequencing{reassemble: true, maxScopes: 2, maxHeld: 1 << 10, scopes: make(map[scope]*track)}
		want := make([]uint64, rapid.IntRange(1, 50).Draw(t, "count"))
		for i := range want {
			want[i] = uint64(i + 1)
		}
		var got []uint64
		for _, n := range rapid.Permutation(want).Draw(t, "order") {
			due, late := q.arrive(scope{path: "/p"}, n, arrival{data: &wire.Data{Sequence: wire.Some(n)}})
			if late != nil {
				t.Fatalf("%d was late", n)
			}
			for _, tr := range due {
				for _, a := range tr.ready {
					got = append(got, a.data.Sequence.Value)
				}
				tr.ready = nil
			}
		}
		if !slices.Equal(got, want) || q.held != 0 {
			t.Fatalf("got %v with %d held, want %v", got, q.held, want)
		}
	})
}

// Scopes beyond the bound are not tracked, and what they bring goes straight through.
func TestScopesAreBounded(t *testing.T) {
	for _, reassemble := range []bool{false, true} {
		q := sequencing{reassemble: reassemble, maxScopes: 2, maxHeld: 5, scopes: make(map[scope]*track)}
		for i := range 100 {
			_, late := q.arrive(scope{path: fmt.Sprint("/", i)}, 7, arrival{})
			if i >= 2 && (late == nil || late.gap != (Gap{})) {
				t.Errorf("scope %d is tracked", i)
			}
		}
		if len(q.scopes) != 2 {
			t.Errorf("%d scopes are tracked, want 2", len(q.scopes))
		}
	}
}

// What is held back counts over all scopes, and the fullest gives way.
func TestHeldBackIsBounded(t *testing.T) {
	q := sequencing{reassemble: true, maxScopes: 100, maxHeld: 10, scopes: make(map[scope]*track)}
	for i := range uint64(1000) {
		due, late := q.arrive(scope{path: fmt.Sprint("/", i%3)}, 2+i*2, arrival{})
		if late != nil {
			t.Fatalf("%d passed through", i)
		}
		if q.held > 10 {
			t.Fatalf("%d are held, want at most 10", q.held)
		}
		for _, tr := range due {
			if len(tr.ready) == 0 || tr.ready[0].gap.Missed() == 0 {
				t.Fatalf("what was released has no gap: %+v", tr.ready)
			}
			tr.ready = nil
		}
	}
}

func bounded(window time.Duration) Guarantees {
	return Guarantees{Ordering: wire.OrderDetect, Deduplication: wire.DedupBounded, DedupWindowMillis: uint64(window / time.Millisecond)}
}

func TestRepeatsAreDropped(t *testing.T) {
	g := bounded(time.Hour)
	rig := newRig(t)
	s := rig.server(Options{Offered: g})
	pull := must1(s.Puller("/p"))(t)
	l := rig.speaking(s, g)
	one := wire.Data{Endpoint: some("/p"), Sequence: wire.Some(uint64(1))}
	other := one
	other.Producer = wire.Some([32]byte{1})
	for _, d := range []wire.Data{one, other} {
		sendNumbered(t, l, d)
		collect(t, must1(pull.Recv(deadline(t)))(t))
	}
	// The sender of a repeat sees a receipt.
	b := must1(wire.AppendData(nil, &one, wire.DefaultMaxHeaderBytes))(t)
	w := must1(l.OpenUni(t.Context()))(t)
	receipt := must1(w.Receipt())(t)
	must1(io.WriteString(w, string(b)+strings.Repeat("x", windowful)))(t)
	check(t, w.CloseWrite())
	check(t, receipt.Wait(deadline(t)))
	for ctx := deadline(t); s.rt.SuppressedDuplicates() != 1 && ctx.Err() == nil; {
		breathe()
	}
	if got := s.rt.SuppressedDuplicates(); got != 1 {
		t.Errorf("%d repeats, want 1", got)
	}
	// One that was not received to its end is not known.
	two := wire.Data{Endpoint: some("/p"), Sequence: wire.Some(uint64(2))}
	w = sendUni(t, l, append(must1(wire.AppendData(nil, &two, wire.DefaultMaxHeaderBytes))(t), "part"...), false)
	in := must1(pull.Recv(deadline(t)))(t)
	must1(io.ReadFull(in, make([]byte, 4)))(t)
	w.Reset(transport.CodeCanceled)
	_, err := in.Collect(100)
	wantErr(t, err, ErrCanceled)
	sendNumbered(t, l, two)
	if got := collect(t, must1(pull.Recv(deadline(t)))(t)); got != "2" {
		t.Errorf("got %q", got)
	}
}

func TestWhatIsRememberedIsBounded(t *testing.T) {
	q := sequencing{window: time.Minute, maxSeen: 3, seen: make(map[identity]time.Time)}
	at := time.Unix(1000, 0)
	id := func(n uint64) identity { return identity{sequence: n} }
	for i, tt := range []struct {
		number uint64
		later  time.Duration
		want   bool
	}{
		{1, 0, false},
		{1, time.Second, true},
		{1, time.Minute, true},
		{1, time.Minute + 1, false}, // its window has passed
		{2, time.Minute + 1, false},
		{3, time.Minute + 1, false},
		{1, time.Minute + 1, false}, // three others came since
	} {
		if i == 6 {
			q.repeated(id(4), at.Add(tt.later))
		}
		if got := q.repeated(id(tt.number), at.Add(tt.later)); got != tt.want {
			t.Errorf("step %d: %d is a repeat: %v, want %v", i, tt.number, got, tt.want)
		}
	}
	for n := range uint64(1000) {
		q.repeated(id(n), at)
		q.forget(id(n))
		q.repeated(id(n), at)
		if len(q.seen) > 3 || len(q.recent) > 3 {
			t.Fatalf("%d and %d are remembered, want at most 3", len(q.seen), len(q.recent))
		}
	}
}

// Who subscribes to messages without a topic in their middle has missed nothing.
func TestSubscriberComesInTheMiddle(t *testing.T) {
	for _, topic := range []string{"", "a"} {
		rig := newRig(t)
		s := rig.server(ordering(wire.OrderDetect))
		p := must1(s.Publisher("/p"))(t)
		for range 3 {
			must1(p.Publish(Meta{Topic: topic}, nil))(t)
		}
		sub := rig.subscriber(ordering(wire.OrderDetect), s.url("/p"), "")
		s.subscribers(t, "/p", 1, 1)
		must1(p.Publish(Meta{Topic: topic}, nil))(t)
		in := must1(sub.Recv(deadline(t)))(t)
		if m := in.Meta(); m.Gap != (Gap{}) || m.Sequence.Value != 4 {
			t.Errorf("topic %q: got number %d with gap %+v", topic, m.Sequence.Value, m.Gap)
		}
		collect(t, in)
	}
}
