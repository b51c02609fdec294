package weida

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-agent/weir/weida/transport"
	"github.com/weir-agent/weir/weida/wire"
)

// subscribers waits until so many peers have subscribed to a path, with so many filters in all.
func (s *server) subscribers(t testing.TB, path string, peers, filters int) {
	t.Helper()
	ctx := deadline(t)
	for ctx.Err() == nil {
		s.ns.subs.mu.RLock()
		members, n := len(s.ns.subs.byPath[path]), 0
		for _, m := range s.ns.subs.byPath[path] {
			n += len(m.filters)
		}
		s.ns.subs.mu.RUnlock()
		if members == peers && n == filters {
			return
		}
		breathe()
	}
	t.Fatalf("never had %d peers with %d filters at %s", peers, filters, path)
}

func (r *rig) subscriber(o Options, url string, filters ...string) *Subscriber {
	r.t.Helper()
	s := r.runtime(o).Subscriber(ClientTLS{})
	for _, f := range filters {
		check(r.t, s.Subscribe(f))
	}
	connect(r.t, s, url)
	return s
}

// received returns the topic and the payload of the next message.
func received(t testing.TB, s interface {
	Recv(ctx context.Context) (*IncomingTransfer, error)
},
) string {
	t.Helper()
	in := must1(s.Recv(deadline(t)))(t)
	return in.Meta().Topic.Value + "=" + collect(t, in)
}

func TestPublishToWhoeverWants(t *testing.T) { overEach(t, testPublishToWhoeverWants) }

func testPublishToWhoeverWants(t *testing.T, rig *rig) {
	s := rig.server(Options{})
	// Subscriptions come before the publisher.
	all := rig.subscriber(Options{}, s.url("/px"), "")
	some := rig.subscriber(Options{}, s.url("/px"), "eur.*", "usd.#")
	none := rig.subscriber(Options{}, s.url("/other"), "")
	s.subscribers(t, "/px", 2, 3)
	s.subscribers(t, "/other", 1, 1)
	p := must1(s.Publisher("/px"))(t)
	trace := NewTrace()
	for _, m := range []struct {
		topic string
		want  int
	}{{"eur.spot", 2}, {"eur", 1}, {"usd", 2}, {"usd.a.b", 2}, {"", 1}} {
		got, err := p.Publish(Meta{Topic: m.topic, Trace: trace, ContentType: "x"}, []byte(m.topic))
		if err != nil || got != m.want {
			t.Errorf("%q was queued for %d, %v, want %d", m.topic, got, err, m.want)
		}
	}
	var got []string
	for range 5 {
		got = append(got, received(t, all))
	}
	slices.Sort(got) // streams are not ordered
	if want := []string{"=", "eur.spot=eur.spot", "eur=eur", "usd.a.b=usd.a.b", "usd=usd"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	got = nil
	for range 3 {
		in := must1(some.Recv(deadline(t)))(t)
		if m := in.Meta(); m.Trace != trace || m.ContentType != "x" || m.Endpoint != "/px" || m.Sequence.Set {
			t.Errorf("got %+v", m)
		}
		got = append(got, collect(t, in))
	}
	slices.Sort(got)
	if want := []string{"eur.spot", "usd", "usd.a.b"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	some.Unsubscribe("usd.#")
	some.Unsubscribe("never")
	s.subscribers(t, "/px", 2, 2)
	check(t, some.Subscribe("usd.#")) // again
	s.subscribers(t, "/px", 2, 3)
	if n := must1(p.Publish(Meta{Topic: "usd"}, nil))(t); n != 2 {
		t.Errorf("queued for %d, want 2", n)
	}
	received(t, all)
	received(t, some)
	check(t, all.Close())
	check(t, none.Close())
	s.subscribers(t, "/px", 1, 2)
	s.subscribers(t, "/other", 0, 0)
	if d := p.Dropped(); d.Total() != 0 {
		t.Errorf("dropped %+v", d)
	}
}

func TestPublishRefuses(t *testing.T) { overEach(t, testPublishRefuses) }

func testPublishRefuses(t *testing.T, rig *rig) {
	s := rig.server(Options{Limits: Limits{SubscriberBufferBytes: 10}})
	p := must1(s.Publisher("/p"))(t)
	_, err := p.Publish(Meta{}, make([]byte, 11))
	wantErr(t, err, ErrLimitExceeded)
	_, err = p.Publish(Meta{Topic: strings.Repeat("x", wire.MaxTopicBytes+1)}, nil)
	wantErr(t, err, wire.ErrTooLong)
	report := Meta{Report: ReportOrder{Levels: []Level{LevelProcessed}}}
	_, err = p.Publish(report, nil)
	wantErr(t, err, ErrUnsupported)
	_, err = p.Open(t.Context(), report)
	wantErr(t, err, ErrUnsupported)
	check(t, p.Close())
	_, err = p.Publish(Meta{}, nil)
	wantErr(t, err, ErrClosed)
	// A publisher takes nothing.
	again := must1(s.Publisher("/p"))(t)
	if again.Path() != "/p" {
		t.Errorf("got %q", again.Path())
	}
	r := rig.runtime(Options{}).Requester(ClientTLS{})
	connect(t, r, s.url("/p"))
	_, err = r.Request(t.Context(), Meta{}, nil)
	wantErr(t, err, ErrUnsupported)

	sub := rig.runtime(Options{Limits: Limits{MaxSubscriptions: 2}}).Subscriber(ClientTLS{})
	for filter, want := range map[string]error{"a*b": ErrInvalidFilter, "#.a": ErrInvalidFilter, strings.Repeat("x", wire.MaxFilterBytes+1): ErrInvalidFilter} {
		wantErr(t, sub.Subscribe(filter), want)
		wantErr(t, sub.Grant(filter, 1), want)
	}
	wantErr(t, sub.Grant("a", 1), ErrNotSubscribed)
	check(t, sub.Subscribe("a"))
	wantErr(t, sub.Grant("a", 1), ErrNotConnected)
	check(t, sub.Subscribe("a"))
	check(t, sub.Subscribe("b"))
	wantErr(t, sub.Subscribe("c"), ErrLimitExceeded)
	check(t, sub.Close())
	_, err = sub.Recv(t.Context())
	wantErr(t, err, ErrClosed)
}

// A peer may hold so many filters over all paths; one more ends its link, and its subscriptions with it.
func TestTooManySubscriptions(t *testing.T) { overEach(t, testTooManySubscriptions) }

func testTooManySubscriptions(t *testing.T, rig *rig) {
	s := rig.server(Options{Limits: Limits{MaxSubscriptions: 3}})
	link := rig.raw(s)
	greet(t, link, plainHello())
	frame := func(path, filter string) {
		t.Helper()
		sendUni(t, link, must1(wire.AppendSubscribe(nil, wire.Subscription{Endpoint: path, Filter: filter}, 1024))(t), true)
	}
	frame("/a", "x")
	frame("/a", "y")
	frame("/b", "x")
	s.subscribers(t, "/a", 1, 2)
	s.subscribers(t, "/b", 1, 1)
	frame("/a", "x") // is held already
	// To go and come makes no room for more, and leaves nothing behind.
	sendUni(t, link, must1(wire.AppendUnsubscribe(nil, wire.Subscription{Endpoint: "/b", Filter: "x"}, 1024))(t), true)
	s.subscribers(t, "/b", 0, 0)
	frame("/c", "x")
	s.subscribers(t, "/c", 1, 1)
	s.ns.subs.mu.RLock()
	for _, c := range s.rt.snapshot() {
		if len(c.members) != 2 {
			t.Errorf("the link is known at %d paths, want 2", len(c.members))
		}
	}
	s.ns.subs.mu.RUnlock()
	// The link may end before the stream of this one does.
	last := must1(link.OpenUni(t.Context()))(t)
	_, _ = last.Write(must1(wire.AppendSubscribe(nil, wire.Subscription{Endpoint: "/d", Filter: "x"}, 1024))(t))
	wantClose(t, link, transport.CodeLimitExceeded)
	s.subscribers(t, "/a", 0, 0)
	s.subscribers(t, "/c", 0, 0)
}

// stalled is a publisher with a subscriber that takes nothing and one that takes all.
type stalled struct {
	s     *server
	p     *Publisher
	slow  transport.Link
	quick *Subscriber
}

// newStalled makes the slow subscriber's window so small that nothing larger than it goes out.
func newStalled(rig *rig, o Options) *stalled {
	t := rig.t
	t.Helper()
	f := &stalled{s: rig.server(o)}
	f.p = must1(f.s.Publisher("/p"))(t)
	f.slow = rig.raw(f.s)
	greet(t, f.slow, plainHello())
	sendUni(t, f.slow, must1(wire.AppendSubscribe(nil, wire.Subscription{Endpoint: "/p"}, 1024))(t), true)
	f.quick = rig.subscriber(Options{}, f.s.url("/p"), "")
	f.s.subscribers(t, "/p", 2, 2)
	return f
}

const windowful = 2 << 20 // more than a stream's window

func TestSlowSubscriberLosesByBytes(t *testing.T) { overEach(t, testSlowSubscriberLosesByBytes) }

func testSlowSubscriberLosesByBytes(t *testing.T, rig *rig) {
	f := newStalled(rig, Options{Limits: Limits{SubscriberBufferBytes: 2 * windowful}})
	body := bytes.Repeat([]byte{'x'}, windowful)
	// The quick one gets them all. To the slow one the first is being written, and two wait.
	for i := range 6 {
		ours := bytes.Clone(body)
		n := must1(f.p.Publish(Meta{Topic: fmt.Sprint(i % 2)}, ours))(t)
		clear(ours) // it is ours again
		if i < 3 && n != 2 || i > 3 && n != 1 {
			t.Errorf("message %d was queued for %d", i, n)
		}
		if got := received(t, f.quick); got != fmt.Sprint(i%2)+"="+string(body) {
			t.Fatalf("got %d bytes", len(got))
		}
		if i == 0 {
			f.s.idle(t, "/p")
		}
	}
	if d := f.p.Dropped(); d != (Drops{OverBytes: 3}) {
		t.Errorf("dropped %+v, want 3 for bytes", d)
	}
	if even, odd := f.p.DroppedOn("0"), f.p.DroppedOn("1"); even.OverBytes != 1 || odd.OverBytes != 2 {
		t.Errorf("dropped %+v and %+v by topic", even, odd)
	}
	// What waited is lost with the link, and counted.
	f.slow.Close(0, "")
	f.s.subscribers(t, "/p", 1, 1)
	for ctx := deadline(t); f.p.Dropped().Failed != 3 && ctx.Err() == nil; {
		breathe()
	}
	if d := f.p.Dropped(); d.Failed != 3 {
		t.Errorf("dropped %+v, want 3 with the link", d)
	}
}

// idle waits until nothing is in the queues of the subscribers to a path.
func (s *server) idle(t testing.TB, path string) {
	t.Helper()
	for ctx := deadline(t); ; breathe() {
		waiting := 0
		s.ns.subs.mu.RLock()
		for _, m := range s.ns.subs.byPath[path] {
			m.mu.Lock()
			waiting += len(m.queue)
			m.mu.Unlock()
		}
		s.ns.subs.mu.RUnlock()
		if waiting == 0 {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("%d copies still wait", waiting)
		}
	}
}

// Empty messages are not free: their number is bounded, too.
func TestSlowSubscriberLosesByNumber(t *testing.T) { overEach(t, testSlowSubscriberLosesByNumber) }

func testSlowSubscriberLosesByNumber(t *testing.T, rig *rig) {
	f := newStalled(rig, Options{EndpointQueue: 4})
	must1(f.p.Publish(Meta{}, make([]byte, windowful)))(t)
	received(t, f.quick)
	f.s.idle(t, "/p")
	for range 10 {
		must1(f.p.Publish(Meta{}, nil))(t)
		received(t, f.quick)
	}
	if d := f.p.Dropped(); d != (Drops{OverMessages: 6}) {
		t.Errorf("dropped %+v, want 6 for their number", d)
	}
}

func TestDropsAreKeptForSoManyTopics(t *testing.T) {
	table := dropTable{topics: 2}
	for _, topic := range []string{"a", "b", "c", "a"} {
		table.add(topic, overBytes)
	}
	if a, c, all := table.on("a"), table.on("c"), table.total(); a.OverBytes != 2 || c.Total() != 0 || all.OverBytes != 4 {
		t.Errorf("got %+v, %+v of %+v", a, c, all)
	}
}

func TestStreamedPublish(t *testing.T) { overEach(t, testStreamedPublish) }

func testStreamedPublish(t *testing.T, rig *rig) {
	f := newStalled(rig, Options{Limits: Limits{SubscriberBufferBytes: 3 << 20}})
	w := must1(f.p.Open(t.Context(), Meta{Topic: "film"}))(t)
	chunk := bytes.Repeat([]byte{'x'}, 1<<20)
	in := must1(f.quick.Recv(deadline(t)))(t)
	if in.Meta().Topic.Value != "film" || in.Meta().ContentLen.Set {
		t.Errorf("got %+v", in.Meta())
	}
	got := make([]byte, len(chunk))
	left := 2
	for range 8 {
		left = must1(w.WriteWithin(chunk, time.Minute/60))(t)
		if _, err := io.ReadFull(in, got); err != nil || !bytes.Equal(got, chunk) {
			t.Fatalf("got another chunk, or %v", err)
		}
	}
	if left != 1 {
		t.Errorf("%d subscribers are left, want the slow one dropped", left)
	}
	if d := f.p.DroppedOn("film"); d != (Drops{OverBytes: 1}) {
		t.Errorf("dropped %+v, want one copy", d)
	}
	if n := must1(w.Finish())(t); n != 1 {
		t.Errorf("finished for %d, want 1", n)
	}
	if n, err := in.Read(got); n != 0 || err != io.EOF {
		t.Errorf("got %d, %v, want io.EOF", n, err)
	}
	<-w.ctx.Done() // nothing is kept of it, and no room
	f.s.ns.subs.mu.RLock()
	for _, m := range f.s.ns.subs.byPath["/p"] {
		m.mu.Lock()
		if m.bytes != 0 {
			t.Errorf("%d bytes are still charged", m.bytes)
		}
		m.mu.Unlock()
	}
	f.s.ns.subs.mu.RUnlock()
	_, err := w.WriteNow(chunk)
	wantErr(t, err, ErrClosed)
	_, err = w.Finish()
	wantErr(t, err, ErrClosed)
	// The slow one gets no end of it. Behind the HELLO, where that is a stream, there is no other one.
	streams := 2
	if rig.over == OverUnix {
		streams = 1
	}
	var reset error
	for range streams {
		r := nextUni(t, f.slow)
		if _, err := io.Copy(io.Discard, r); err != nil {
			reset = err
		}
	}
	if e, ok := errors.AsType[*transport.ResetError](reset); !ok || e.Code != transport.CodeCanceled {
		t.Errorf("the copy that was dropped ended with %v", reset)
	}
}

func TestCanceledPublication(t *testing.T) { overEach(t, testCanceledPublication) }

func testCanceledPublication(t *testing.T, rig *rig) {
	s := rig.server(Options{Limits: Limits{SubscriberBufferBytes: 100}, EndpointQueue: 8})
	p := must1(s.Publisher("/p"))(t)
	sub := rig.subscriber(Options{}, s.url("/p"), "")
	s.subscribers(t, "/p", 1, 1)
	for name, end := range map[string]func(*Publication, context.CancelFunc){
		"canceled":               func(w *Publication, _ context.CancelFunc) { w.Cancel() },
		"the end of its context": func(_ *Publication, cancel context.CancelFunc) { cancel() },
	} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		w := must1(p.Open(ctx, Meta{}))(t)
		if _, err := w.WriteNow(make([]byte, 101)); !errors.Is(err, ErrLimitExceeded) {
			t.Errorf("%s: got %v", name, err)
		}
		if n, err := w.WriteNow([]byte("part")); n != 1 || err != nil {
			t.Errorf("%s: got %d, %v", name, n, err)
		}
		in := must1(sub.Recv(deadline(t)))(t)
		must1(io.ReadFull(in, make([]byte, 4)))(t)
		end(w, cancel)
		_, err := in.Collect(100)
		wantErr(t, err, ErrCanceled)
		_, err = w.WriteNow([]byte("more"))
		wantErr(t, err, ErrClosed)
	}
	if d := p.Dropped(); d.Total() != 0 {
		t.Errorf("dropped %+v", d)
	}
	if n := must1(p.Publish(Meta{}, make([]byte, 100)))(t); n != 1 {
		t.Error("what was canceled still takes room")
	}
}

// Filters that came during an outage are sent with the others at the redial.
func TestSubscriptionsOverARestart(t *testing.T) { overEach(t, testSubscriptionsOverARestart) }

func testSubscriptionsOverARestart(t *testing.T, rig *rig) {
	s := rig.server(Options{})
	sub := rig.subscriber(Options{}, s.url("/p"), "a")
	s.subscribers(t, "/p", 1, 1)
	events := sub.Events()
	check(t, s.rt.Shutdown())
	check(t, sub.Subscribe("b"))
	again := rig.again(s)
	for {
		if _, ok := must1(events.Next(deadline(t)))(t).(Connected); ok {
			break
		}
	}
	again.subscribers(t, "/p", 1, 2)
	p := must1(again.Publisher("/p"))(t)
	must1(p.Publish(Meta{Topic: "b"}, []byte("back")))(t)
	if got := received(t, sub); got != "b=back" {
		t.Errorf("got %q", got)
	}
}

func TestQueueAcceptorIsToldOfSubscriptions(t *testing.T) {
	overEach(t, testQueueAcceptorIsToldOfSubscriptions)
}

func testQueueAcceptorIsToldOfSubscriptions(t *testing.T, rig *rig) {
	s := rig.server(Options{})
	sub := rig.subscriber(Options{}, s.url("/q"), "a", "b")
	s.subscribers(t, "/q", 1, 2)
	q := must1(s.QueueAcceptor("/q"))(t)
	var consumer *Consumer
	next := func(kind SubscriptionKind, limit uint64) string {
		t.Helper()
		e := must1(q.Accept(deadline(t)))(t).Subscription
		if e == nil || e.Kind != kind || e.Limit != limit || consumer != nil && e.Consumer != consumer {
			t.Fatalf("got %+v, want kind %d, limit %d, of %p", e, kind, limit, consumer)
		}
		consumer = e.Consumer
		return e.Filter
	}
	got := []string{next(Subscribed, 0), next(Subscribed, 0)}
	slices.Sort(got)
	if !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("got %q", got)
	}
	check(t, sub.Grant("a", 7))
	if f := next(Granted, 7); f != "a" {
		t.Errorf("got %q", f)
	}
	// A delivery, with an attempt and a report.
	out := must1(consumer.Open(t.Context(), Meta{Topic: "a", DeliveryAttempt: 2, Report: ReportOrder{Levels: []Level{LevelProcessed}}}))(t)
	must1(out.Write([]byte("job")))(t)
	must1(out.Finish())(t).Discard()
	in := must1(sub.Recv(deadline(t)))(t)
	if in.Meta().DeliveryAttempt != 2 || in.Meta().Sequence.Set {
		t.Errorf("got %+v", in.Meta())
	}
	collect(t, in)
	in.Reporter().Report(LevelProcessed, 3)
	in.Reporter().Finish()
	check(t, out.Cursors().Wait(deadline(t), LevelProcessed, 3))

	sub.Unsubscribe("b")
	if f := next(Unsubscribed, 0); f != "b" {
		t.Errorf("got %q", f)
	}
	check(t, sub.Close())
	next(ConsumerGone, 0)
	<-consumer.Done()
	_, err := consumer.Open(t.Context(), Meta{})
	wantErr(t, err, ErrConnectionLost)
	// An acceptor that did not ask is told nothing.
	plain := must1(s.Acceptor("/plain"))(t)
	rig.subscriber(Options{}, s.url("/plain"), "")
	s.subscribers(t, "/plain", 1, 1)
	p := rig.runtime(Options{}).Peer(ClientTLS{})
	connect(t, p, s.url("/plain"))
	must1(must1(p.Open(t.Context(), Meta{}))(t).Finish())(t).Discard()
	if got := must1(plain.Accept(deadline(t)))(t); got.Subscription != nil || (got.Transfer == nil) != (rig.over == OverUnix) {
		t.Errorf("got %+v", got)
	}
}

// The end of a consumer is told even when the acceptor's queue was full, and nothing is told of one that the acceptor never heard of.
func TestConsumersGoneFromAFullQueue(t *testing.T) { overEach(t, testConsumersGoneFromAFullQueue) }

func testConsumersGoneFromAFullQueue(t *testing.T, rig *rig) {
	s := rig.server(Options{EndpointQueue: 1})
	q := must1(s.QueueAcceptor("/q"))(t)
	sub := rig.subscriber(Options{}, s.url("/q"), "a", "b")
	s.subscribers(t, "/q", 1, 2)
	check(t, sub.Close())
	s.subscribers(t, "/q", 0, 0)
	seen := map[SubscriptionKind]int{}
	for seen[ConsumerGone] == 0 {
		seen[must1(q.Accept(deadline(t)))(t).Subscription.Kind]++
	}
	if seen[Subscribed] == 0 {
		t.Errorf("got %v", seen)
	}
}

// What was published is flushed when it is written, and not while somebody reads nothing.
func TestFlush(t *testing.T) { overEach(t, testFlush) }

func testFlush(t *testing.T, rig *rig) {
	f := newStalled(rig, Options{})
	check(t, f.p.Flush(t.Context()))
	must1(f.p.Publish(Meta{}, []byte("small")))(t)
	check(t, f.p.Flush(deadline(t)))
	f.s.idle(t, "/p")
	must1(f.p.Publish(Meta{}, make([]byte, windowful)))(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	wantErr(t, f.p.Flush(ctx), context.Canceled)
	if n := f.s.binding.Connections(); n != 2 {
		t.Errorf("got %d connections, want 2", n)
	}
	f.slow.Close(0, "")
	received(t, f.quick)
	received(t, f.quick)
	check(t, f.p.Flush(deadline(t)))
}
