package broker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weir-agent/weir/weida"
	"github.com/weir-agent/weir/weida/broker"
	"github.com/weir-agent/weir/weida/transport/simnet"
	"github.com/weir-agent/weir/weida/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a broker on a simulated network.
type world struct {
	t      *testing.T
	net    *simnet.Network
	b      *broker.Broker
	rt     *weida.Runtime
	url    string // without a path
	end    context.CancelFunc
	served chan error
}

func newWorld(t *testing.T, o broker.Options) *world {
	t.Helper()
	w := &world{t: t, net: simnet.New(1, simnet.Conditions{}), served: make(chan error, 1)}
	w.rt = w.runtime(weida.Options{})
	id, err := weida.GenerateIdentity()
	must(t, err)
	l := w.rt.Listener()
	binding, err := l.BindPacketConn(w.net.Listen(), weida.ServerTLS{Identity: id})
	must(t, err)
	w.url = fmt.Sprintf("weida://%v@%v", id.Fingerprint(), binding.Addr())
	w.b, err = broker.New(l, o)
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	w.end = cancel
	go func() { w.served <- w.b.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		must(t, <-w.served)
	})
	return w
}

func (w *world) runtime(o weida.Options) *weida.Runtime {
	w.t.Helper()
	o.DialFrom = w.net.Listen()
	rt, err := weida.NewRuntime(o)
	must(w.t, err)
	w.t.Cleanup(func() {
		must(w.t, rt.Shutdown())
		_ = o.DialFrom.Close() // it may never have been used
	})
	return rt
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func deadline(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func (w *world) producer(path string) *weida.Peer {
	w.t.Helper()
	p := w.runtime(weida.Options{}).Peer(weida.ClientTLS{})
	must(w.t, p.Connect(deadline(w.t), w.url+path))
	return p
}

// ask sends a message as an exchange and returns the level of its confirm.
func ask(t *testing.T, p *weida.Peer, meta weida.Meta, body string) (weida.Level, error) {
	t.Helper()
	out, reply, err := p.OpenBi(deadline(t), meta)
	must(t, err)
	defer out.Cancel()
	if _, err := io.WriteString(out, body); err == nil {
		if receipt, err := out.Finish(); err == nil {
			receipt.Discard()
		}
	}
	in, err := reply.Recv()
	if err != nil {
		return 0, err
	}
	rest, err := in.Collect(1)
	must(t, err)
	if len(rest) != 0 {
		t.Errorf("a confirm with a payload: %q", rest)
	}
	return in.Meta().Achieved.Value, nil
}

func (w *world) confirmed(p *weida.Peer, bodies ...string) {
	w.t.Helper()
	for _, body := range bodies {
		if _, err := ask(w.t, p, weida.Meta{}, body); err != nil {
			w.t.Fatalf("%q: %v", body, err)
		}
	}
}

// consumer is a subscriber with credit.
func (w *world) consumer(o weida.Options, path, filter string, limit uint64) *weida.Subscriber {
	w.t.Helper()
	s := w.runtime(o).Subscriber(weida.ClientTLS{})
	must(w.t, s.Subscribe(filter))
	must(w.t, s.Connect(deadline(w.t), w.url+path))
	must(w.t, s.Grant(filter, limit))
	return s
}

// next takes a delivery and returns it as "body/attempt"; it is to be settled or given back by the report.
func next(t *testing.T, s *weida.Subscriber) (string, *weida.IncomingTransfer) {
	t.Helper()
	in, err := s.Recv(deadline(t))
	must(t, err)
	body, err := in.Collect(1 << 20)
	must(t, err)
	if got := in.Reporter().Levels(); !slices.Equal(got, []weida.Level{weida.LevelProcessed}) {
		t.Errorf("ordered %v", got)
	}
	return fmt.Sprintf("%s/%d", body, in.Meta().DeliveryAttempt), in
}

func settle(in *weida.IncomingTransfer, offset uint64) {
	in.Reporter().Report(weida.LevelProcessed, offset)
	in.Reporter().Finish()
}

func (w *world) want(s *weida.Subscriber, deliveries ...string) {
	w.t.Helper()
	for _, want := range deliveries {
		got, in := next(w.t, s)
		if got != want {
			w.t.Fatalf("got %s, want %s", got, want)
		}
		settle(in, 1)
	}
}

// until waits for a state of a queue.
func (w *world) until(path string, ok func(broker.QueueStats) bool) {
	w.t.Helper()
	ctx := deadline(w.t)
	for {
		st, there := w.b.Stats(path)
		if !there || ctx.Err() != nil {
			w.t.Fatalf("%s: %+v", path, st)
		}
		if ok(st) {
			return
		}
	}
}

func (w *world) untilEmpty(path string) {
	w.t.Helper()
	w.until(path, func(st broker.QueueStats) bool { return st.Messages == 0 })
}

// store is a Memory that says what level it is told to, fails when it is told to, and waits at its gate.
type store struct {
	broker.Memory
	level wire.Level
	gate  chan struct{} // if not nil: one token for each Append, until it is closed

	mu      sync.Mutex
	fail    error
	appends [][]broker.Op
}

func (s *store) Level() wire.Level { return s.level }

func (s *store) Append(ops []broker.Op) []error {
	if s.gate != nil {
		<-s.gate
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.appends = append(s.appends, slices.Clone(ops))
	if s.fail != nil {
		return slices.Repeat([]error{s.fail}, len(ops))
	}
	return nil
}

func (s *store) failWith(err error) {
	s.mu.Lock()
	s.fail = err
	s.mu.Unlock()
}

func queue(path string, c broker.Config) broker.Options {
	return broker.Options{Queues: []broker.QueueOptions{{Path: path, Config: c}}}
}

func TestConfirmSaysWhatTheStoreReached(t *testing.T) {
	w := newWorld(t, broker.Options{Queues: []broker.QueueOptions{
		{Path: "/memory"}, {Path: "/stored", Store: &store{level: weida.LevelStored}},
	}})
	for path, want := range map[string]weida.Level{"/memory": weida.LevelAccepted, "/stored": weida.LevelStored} {
		if got, err := ask(t, w.producer(path), weida.Meta{}, "x"); got != want || err != nil {
			t.Errorf("%s: achieved %v, %v; want %v", path, got, err, want)
		}
	}
	_, err := ask(t, w.producer("/nothing"), weida.Meta{}, "x")
	if !errors.Is(err, weida.ErrUnknownEndpoint) {
		t.Errorf("unknown queue: %v", err)
	}
}

// A one-way producer hears by its report: what the store reached, and what the consumer processed, relayed.
func TestReportsOfOneWayProducers(t *testing.T) {
	w := newWorld(t, broker.Options{Queues: []broker.QueueOptions{{Path: "/q", Store: &store{level: weida.LevelStored}}}})
	p := w.producer("/q")
	order := weida.ReportOrder{Levels: []weida.Level{weida.LevelAccepted, weida.LevelStored, weida.LevelReplicated, weida.LevelProcessed}}
	out, err := p.Open(t.Context(), weida.Meta{Report: order})
	must(t, err)
	_, err = io.WriteString(out, "hello")
	must(t, err)
	receipt, err := out.Finish()
	must(t, err)
	receipt.Discard()
	must(t, out.Cursors().Wait(deadline(t), weida.LevelStored, 5))
	if got := out.Cursors().Snapshot(); got[weida.LevelAccepted] != 5 || len(got) != 2 {
		t.Errorf("reported %v", got)
	}
	s := w.consumer(weida.Options{}, "/q", "", 1)
	got, in := next(t, s)
	if got != "hello/1" {
		t.Errorf("got %s", got)
	}
	settle(in, 4)
	must(t, out.Cursors().Wait(deadline(t), weida.LevelProcessed, 4))
	if err := out.Cursors().Wait(deadline(t), weida.LevelReplicated, 0); !errors.Is(err, weida.ErrReportEnded) {
		t.Errorf("the end of the report: %v", err)
	}
	// Without a level that waits for the consumer the report ends at once; a refusal reports nothing.
	short := weida.ReportOrder{Levels: []weida.Level{weida.LevelAccepted}}
	for _, c := range []struct {
		meta weida.Meta
		want int
	}{{weida.Meta{Report: short}, 1}, {weida.Meta{Report: short, Extensions: []weida.Extension{{Key: broker.RecordIDExtension, Value: "short"}}}, 0}} {
		out, err := p.Open(t.Context(), c.meta)
		must(t, err)
		if receipt, err := out.Finish(); err == nil {
			receipt.Discard()
		}
		if c.want == 0 {
			w.until("/q", func(st broker.QueueStats) bool { return st.Refused == 1 })
			if got := out.Cursors().Snapshot(); len(got) != 0 {
				t.Errorf("a refusal reported %v", got)
			}
			continue
		}
		if err := out.Cursors().Wait(deadline(t), weida.LevelProcessed, 0); !errors.Is(err, weida.ErrReportEnded) || len(out.Cursors().Snapshot()) != c.want {
			t.Errorf("reported %v, %v", out.Cursors().Snapshot(), err)
		}
	}
}

func TestLabelsGoThroughAQueue(t *testing.T) {
	w := newWorld(t, queue("/q", broker.Config{}))
	trace := weida.NewTrace()
	trace.State = "a=b"
	id := strings.Repeat("i", 32)
	meta := weida.Meta{ContentType: "text/plain", Topic: "a.b", Trace: trace, Extensions: []weida.Extension{{Key: broker.RecordIDExtension, Value: id}}}
	_, err := ask(t, w.producer("/q"), meta, "x")
	must(t, err)
	_, in := next(t, w.consumer(weida.Options{}, "/q", "a.*", 1))
	m := in.Meta()
	got, _ := m.Extension(broker.RecordIDExtension)
	if m.ContentType != "text/plain" || m.Topic.Value != "a.b" || m.Trace != trace || got != id || m.ContentLen.Value != 1 || m.Endpoint != "/q" || m.Sequence.Set {
		t.Errorf("got %+v", m)
	}
}

func TestCreditAndSettlement(t *testing.T) {
	w := newWorld(t, queue("/q", broker.Config{MaxUnsettled: 2}))
	w.confirmed(w.producer("/q"), "a", "b", "c", "d")
	s := w.consumer(weida.Options{}, "/q", "", 0)
	w.until("/q", func(st broker.QueueStats) bool { return st.Consumers == 1 })
	if st, _ := w.b.Stats("/q"); st.Delivered != 0 {
		t.Errorf("delivered without credit: %+v", st)
	}
	must(t, s.Grant("", 3))
	first, in := next(t, s)
	second, in2 := next(t, s)
	if got := []string{first, second}; !slices.Contains(got, "a/1") || !slices.Contains(got, "b/1") {
		t.Fatalf("got %s", got) // each is a stream of its own: they may overtake each other
	}
	if st, _ := w.b.Stats("/q"); st.Unsettled != 2 || st.Messages != 4 {
		t.Errorf("with two out: %+v", st)
	}
	settle(in2, 0) // an offset of nothing is a settlement, too
	w.want(s, "c/1")
	settle(in, 1)
	w.until("/q", func(st broker.QueueStats) bool { return st.Settled == 3 && st.Messages == 1 && st.Unsettled == 0 })
	must(t, s.Grant("", 4))
	w.want(s, "d/1")
	w.untilEmpty("/q")
}

// What a consumer did not process goes to the next one, in the old order, and says so.
func TestDeliveriesComeBack(t *testing.T) {
	for name, end := range map[string]func(*world, *weida.Subscriber, []*weida.IncomingTransfer){
		"the report ends without it": func(_ *world, _ *weida.Subscriber, in []*weida.IncomingTransfer) {
			for _, t := range in {
				t.Reporter().Finish()
			}
		},
		"unsubscribed": func(_ *world, s *weida.Subscriber, _ []*weida.IncomingTransfer) { s.Unsubscribe("") },
		"link closed":  func(w *world, s *weida.Subscriber, _ []*weida.IncomingTransfer) { must(w.t, s.Close()) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, queue("/q", broker.Config{}))
			w.confirmed(w.producer("/q"), "a", "b", "c")
			s := w.consumer(weida.Options{}, "/q", "", 3)
			var all []*weida.IncomingTransfer
			for range 3 {
				_, in := next(t, s)
				all = append(all, in)
			}
			end(w, s, all)
			w.until("/q", func(st broker.QueueStats) bool { return st.Unsettled == 0 })
			again := w.consumer(weida.Options{}, "/q", "", 1)
			for i, want := range []string{"a/2", "b/2", "c/2"} {
				w.want(again, want)
				must(t, again.Grant("", uint64(i+2)))
			}
			w.untilEmpty("/q")
		})
	}
}

// A consumer that subscribes again and again and reports nothing leaves nothing behind in the broker.
func TestSubscribingAgainPilesNothingUp(t *testing.T) {
	w := newWorld(t, queue("/q", broker.Config{}))
	w.confirmed(w.producer("/q"), "a")
	s := w.consumer(weida.Options{}, "/q", "", 1)
	const rounds = 100
	before := runtime.NumGoroutine()
	for range rounds {
		next(t, s)
		s.Unsubscribe("")
		w.until("/q", func(st broker.QueueStats) bool { return st.Consumers == 0 })
		must(t, s.Subscribe(""))
		must(t, s.Grant("", 1))
	}
	ctx := deadline(t)
	for runtime.NumGoroutine() > before+rounds/2 {
		if ctx.Err() != nil {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
	}
}

func TestByteBound(t *testing.T) {
	const room = 10_000
	w := newWorld(t, queue("/q", broker.Config{Bytes: room + broker.MessageCharge}))
	p := w.producer("/q")
	refused := func(name string, err error) {
		t.Helper()
		if !errors.Is(err, weida.ErrRejected) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := ask(t, p, weida.Meta{}, strings.Repeat("x", room+1))
	refused("one byte too much", err)
	_, err = ask(t, p, weida.Meta{Topic: "t"}, strings.Repeat("x", room))
	refused("labels count", err)
	if st, _ := w.b.Stats("/q"); st.Bytes != 0 || st.Messages != 0 || st.Refused != 2 {
		t.Errorf("after refusals: %+v", st)
	}
	// A body without an end is refused once the room is used up, and what was read of it is free again.
	out, reply, err := p.OpenBi(deadline(t), weida.Meta{})
	must(t, err)
	for err == nil {
		_, err = out.Write(make([]byte, 1000))
	}
	_, err = reply.Recv()
	refused("endless", err)
	// What fits exactly is taken; then there is room for nothing.
	w.confirmed(p, strings.Repeat("x", room))
	_, err = ask(t, p, weida.Meta{}, "")
	refused("full", err)
	one, err := p.Open(t.Context(), weida.Meta{})
	must(t, err)
	if receipt, err := one.Finish(); err == nil {
		receipt.Discard()
	}
	w.until("/q", func(st broker.QueueStats) bool { return st.Refused == 5 })
	got, in := next(t, w.consumer(weida.Options{}, "/q", "", 1))
	if len(got) != room+len("/1") {
		t.Errorf("got %d bytes", len(got))
	}
	settle(in, room)
	w.untilEmpty("/q")
	w.confirmed(p, "")
}

// Bodies that are being read count against the bound before they are whole.
func TestUnfinishedBodiesCount(t *testing.T) {
	w := newWorld(t, queue("/q", broker.Config{Bytes: 40_000}))
	p := w.producer("/q")
	slow, reply, err := p.OpenBi(t.Context(), weida.Meta{})
	must(t, err)
	_, err = slow.Write(make([]byte, 30_000))
	must(t, err)
	w.until("/q", func(st broker.QueueStats) bool { return st.Bytes > 30_000 })
	if _, err := ask(t, p, weida.Meta{}, strings.Repeat("x", 15_000)); !errors.Is(err, weida.ErrRejected) {
		t.Errorf("beside an unfinished body: %v", err)
	}
	slow.Cancel()
	if _, err := reply.Recv(); err == nil {
		t.Error("a body that was canceled was confirmed")
	}
	w.until("/q", func(st broker.QueueStats) bool { return st.Bytes == 0 })
	w.confirmed(p, strings.Repeat("x", 30_000))
}

func recordID(n byte) weida.Meta {
	return weida.Meta{Extensions: []weida.Extension{{Key: broker.RecordIDExtension, Value: string(append([]byte{n}, make([]byte, 31)...))}}}
}

// A repeat is confirmed when, and only when, the message that it repeats is stored.
func TestRepeatsWaitForTheFirst(t *testing.T) {
	st := &store{level: weida.LevelStored, gate: make(chan struct{})}
	w := newWorld(t, broker.Options{Queues: []broker.QueueOptions{{Path: "/q", Store: st}}})
	p := w.producer("/q")
	results := make(chan error, 4)
	for range 4 {
		go func() {
			_, err := ask(t, p, recordID(1), "x")
			results <- err
		}()
	}
	select {
	case err := <-results:
		t.Fatalf("answered before the store was: %v", err)
	case st.gate <- struct{}{}:
	}
	close(st.gate)
	for range 4 {
		must(t, <-results)
	}
	if stats, _ := w.b.Stats("/q"); stats.Admitted != 1 || stats.Repeats != 3 || stats.Messages != 1 {
		t.Errorf("got %+v", stats)
	}
	s := w.consumer(weida.Options{}, "/q", "", 9)
	w.want(s, "x/1")
	w.untilEmpty("/q")
	_, err := ask(t, p, recordID(1), "x")
	must(t, err)
	_, err = ask(t, p, recordID(2), "y")
	must(t, err)
	w.want(s, "y/1")
}

func TestStoreThatFails(t *testing.T) {
	st := &store{level: weida.LevelStored, fail: errors.New("/secret/path: no space")}
	w := newWorld(t, broker.Options{Queues: []broker.QueueOptions{{Path: "/q", Store: st}}})
	p := w.producer("/q")
	_, err := ask(t, p, recordID(1), "x")
	if !errors.Is(err, weida.ErrRejected) || strings.Contains(err.Error(), "secret") {
		t.Fatalf("got %v", err)
	}
	if stats, _ := w.b.Stats("/q"); stats.Messages != 0 || stats.Refused != 1 || stats.StoreError == nil {
		t.Errorf("got %+v", stats)
	}
	st.failWith(nil)
	if _, err := ask(t, p, recordID(1), "x"); err != nil {
		t.Fatalf("when it is well again: %v", err)
	}
	if stats, _ := w.b.Stats("/q"); stats.Messages != 1 || stats.StoreError != nil {
		t.Errorf("got %+v", stats)
	}
	// A settlement that was not stored goes with a later step.
	s := w.consumer(weida.Options{}, "/q", "", 9)
	_, in := next(t, s)
	st.failWith(errors.New("no space"))
	settle(in, 1)
	w.untilEmpty("/q")
	w.until("/q", func(stats broker.QueueStats) bool { return stats.StoreError != nil })
	st.mu.Lock()
	st.fail, st.appends = nil, nil
	st.mu.Unlock()
	w.confirmed(p, "z")
	st.mu.Lock()
	defer st.mu.Unlock()
	if op := st.appends[0][0]; op.Kind != broker.OpSettle || op.Seq != 2 {
		t.Errorf("the next step begins with %+v", op)
	}
}

// What is told of a store that fails does not grow with the group that failed.
func TestStoreErrorIsOne(t *testing.T) {
	st := &store{level: weida.LevelStored, gate: make(chan struct{}), fail: errors.New("no space")}
	w := newWorld(t, broker.Options{Queues: []broker.QueueOptions{{Path: "/q", Store: st}}})
	p := w.producer("/q")
	const producers = 5
	results := make(chan error, producers)
	for range producers {
		go func() {
			_, err := ask(t, p, weida.Meta{}, "x")
			results <- err
		}()
	}
	w.until("/q", func(st broker.QueueStats) bool { return st.Messages == producers })
	close(st.gate)
	for range producers {
		if err := <-results; !errors.Is(err, weida.ErrRejected) {
			t.Error(err)
		}
	}
	if stats, _ := w.b.Stats("/q"); stats.StoreError == nil || stats.StoreError.Error() != "no space" {
		t.Errorf("got %v", stats.StoreError)
	}
}

// While one group is being stored the next one gathers.
func TestGroupCommit(t *testing.T) {
	st := &store{level: weida.LevelStored, gate: make(chan struct{})}
	w := newWorld(t, broker.Options{Queues: []broker.QueueOptions{{Path: "/q", Store: st}}})
	const producers = 20
	results := make(chan error, producers)
	p := w.producer("/q")
	for range producers {
		go func() {
			_, err := ask(t, p, weida.Meta{}, "x")
			results <- err
		}()
	}
	w.until("/q", func(s broker.QueueStats) bool { return s.Messages == producers })
	close(st.gate)
	for range producers {
		must(t, <-results)
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if len(st.appends) > 2 {
		t.Errorf("%d appends for %d messages", len(st.appends), producers)
	}
}

// A consumer that does not read delays nobody else.
func TestWriterPerConsumer(t *testing.T) {
	w := newWorld(t, queue("/q", broker.Config{MaxUnsettled: 1}))
	p := w.producer("/q")
	slow := w.consumer(weida.Options{Limits: weida.Limits{StreamReceiveWindow: 16 << 10, ConnectionReceiveWindow: 16 << 10}}, "/q", "slow", 9)
	fast := w.consumer(weida.Options{}, "/q", "fast", 9)
	big := strings.Repeat("x", 1<<20)
	_, err := ask(t, p, weida.Meta{Topic: "slow"}, big)
	must(t, err)
	in, err := slow.Recv(deadline(t))
	must(t, err)
	for range 3 {
		_, err := ask(t, p, weida.Meta{Topic: "fast"}, "f")
		must(t, err)
	}
	w.want(fast, "f/1", "f/1", "f/1")
	body, err := in.Collect(2 << 20)
	if err != nil || !bytes.Equal(body, []byte(big)) {
		t.Errorf("got %d bytes, %v", len(body), err)
	}
	settle(in, 1)
	w.untilEmpty("/q")
}

func TestDeadLetterQueue(t *testing.T) {
	w := newWorld(t, broker.Options{Queues: []broker.QueueOptions{
		{Path: "/q", Config: broker.Config{MaxAttempts: 2}, DeadLetter: "/dead"},
		{Path: "/dead", Config: broker.Config{Bytes: 2 * (broker.MessageCharge + 10)}},
	}})
	dead := w.producer("/dead")
	w.confirmed(dead, "1234567890", "1234567890") // it is full
	p := w.producer("/q")
	_, err := ask(t, p, weida.Meta{Topic: "poison", Extensions: recordID(7).Extensions}, "poison")
	must(t, err)
	w.confirmed(p, "good")
	s := w.consumer(weida.Options{}, "/q", "", 9)
	seen := map[string]int{}
	for range 3 {
		got, in := next(t, s)
		seen[got]++
		if got == "good/1" {
			settle(in, 1)
		} else {
			in.Reporter().Finish()
		}
	}
	if seen["good/1"] != 1 || seen["poison/1"] != 1 || seen["poison/2"] != 1 {
		t.Fatalf("delivered %v", seen)
	}
	w.until("/q", func(st broker.QueueStats) bool { return st.Messages == 1 && st.Dead == 1 })
	w.want(w.consumer(weida.Options{}, "/dead", "", 2), "1234567890/1", "1234567890/1")
	w.untilEmpty("/q")
	c := w.consumer(weida.Options{}, "/dead", "poison", 1)
	_, in := next(t, c)
	if id, _ := in.Meta().Extension(broker.RecordIDExtension); id[0] != 7 {
		t.Errorf("id %x", id)
	}
	settle(in, 1)
	w.untilEmpty("/dead")
	if st, _ := w.b.Stats("/q"); st.DeadLettered != 1 || st.Settled != 1 {
		t.Errorf("got %+v", st)
	}
}

// A dead letter that is too large for the queue for them keeps no other from it.
func TestDeadLetterThatNeverFits(t *testing.T) {
	w := newWorld(t, broker.Options{Queues: []broker.QueueOptions{
		{Path: "/q", Config: broker.Config{MaxAttempts: 1}, DeadLetter: "/dead"},
		{Path: "/dead", Config: broker.Config{Bytes: broker.MessageCharge + 10}},
	}})
	w.confirmed(w.producer("/q"), "much too large", "small")
	s := w.consumer(weida.Options{}, "/q", "", 1)
	_, in := next(t, s)
	in.Reporter().Finish()
	w.until("/q", func(st broker.QueueStats) bool { return st.Dead == 1 })
	must(t, s.Grant("", 2))
	_, in = next(t, s)
	in.Reporter().Finish()
	w.until("/dead", func(st broker.QueueStats) bool { return st.Messages == 1 })
	w.until("/q", func(st broker.QueueStats) bool { return st.Dead == 1 && st.Messages == 1 && st.DeadLettered == 1 })
	if got, _ := w.b.Peek("/q", 0, 9); len(got) != 1 || string(got[0].Message.Body) != "much too large" {
		t.Errorf("left %+v", got)
	}
	w.want(w.consumer(weida.Options{}, "/dead", "", 1), "small/1")
}

// A message that its consumer refuses before all of it was written comes back as one that it did not process: nothing else need happen in the queue.
func TestRefusedDeliveriesAreAttempts(t *testing.T) {
	w := newWorld(t, broker.Options{Queues: []broker.QueueOptions{
		{Path: "/q", Config: broker.Config{MaxAttempts: 2}, DeadLetter: "/dead"}, {Path: "/dead"},
	}})
	_, err := ask(t, w.producer("/q"), weida.Meta{}, strings.Repeat("x", 1<<20))
	must(t, err)
	small := weida.Options{Limits: weida.Limits{StreamReceiveWindow: 16 << 10, ConnectionReceiveWindow: 16 << 10}}
	s := w.consumer(small, "/q", "", 9)
	for _, want := range []uint64{1, 2} {
		in, err := s.Recv(deadline(t))
		must(t, err)
		if got := max(1, in.Meta().DeliveryAttempt); got != want {
			t.Errorf("attempt %d, want %d", got, want)
		}
		must(t, in.Close())
	}
	w.until("/dead", func(st broker.QueueStats) bool { return st.Messages == 1 })
}

func TestBrokerRetires(t *testing.T) {
	w := newWorld(t, queue("/q", broker.Config{}))
	p := w.producer("/q")
	w.confirmed(p, "a", "b", "c")
	s := w.consumer(weida.Options{}, "/q", "", 2)
	_, in := next(t, s)
	next(t, s)
	done := make(chan map[string]broker.Retirement, 1)
	go func() { done <- w.b.Retire(time.Minute) }()
	ctx := deadline(t)
	for {
		_, err := ask(t, p, weida.Meta{}, "")
		if errors.Is(err, weida.ErrRejected) {
			break
		}
		must(t, err)
		must(t, ctx.Err())
	}
	settle(in, 1)
	w.until("/q", func(st broker.QueueStats) bool { return st.Settled == 1 })
	must(t, s.Close())
	if got, want := (<-done)["/q"], (broker.Retirement{Settled: 1, Requeued: 1}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	// A deadline that has passed puts back what is out.
	late := newWorld(t, queue("/q", broker.Config{}))
	late.confirmed(late.producer("/q"), "a")
	next(t, late.consumer(weida.Options{}, "/q", "", 1))
	if got, want := late.b.Retire(time.Nanosecond)["/q"], (broker.Retirement{Unsettled: 1}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// What was read whole before the retirement is stored and confirmed before it ends.
func TestRetireAnswersWhatIsBeingStored(t *testing.T) {
	st := &store{level: weida.LevelStored, gate: make(chan struct{})}
	// It has room for that one message, so that none after it waits for the store.
	w := newWorld(t, broker.Options{Queues: []broker.QueueOptions{{Path: "/q", Store: st, Config: broker.Config{Bytes: broker.MessageCharge + 1}}}})
	p := w.producer("/q")
	confirm := make(chan error, 1)
	go func() {
		_, err := ask(t, p, weida.Meta{}, "x")
		confirm <- err
	}()
	w.until("/q", func(st broker.QueueStats) bool { return st.Messages == 1 })
	admitted := make(chan uint64, 1)
	go func() {
		w.b.Retire(time.Minute)
		st, _ := w.b.Stats("/q")
		admitted <- st.Admitted
		w.end()
	}()
	for retired := 0; retired < 3; { // round trips, in which a retirement that does not wait would end
		_, err := ask(t, p, weida.Meta{}, "late")
		if !errors.Is(err, weida.ErrRejected) {
			t.Errorf("late: %v", err)
			break // the store still has to be let go
		}
		if strings.Contains(err.Error(), "retired") {
			retired++
		}
	}
	close(st.gate)
	if n := <-admitted; n != 1 {
		t.Errorf("%d admitted when the retirement had ended", n)
	}
	must(t, <-confirm)
}

func TestTooManyAtATime(t *testing.T) {
	o := queue("/q", broker.Config{})
	o.MaxAdmitting = 1
	w := newWorld(t, o)
	p := w.producer("/q")
	slow, reply, err := p.OpenBi(t.Context(), weida.Meta{})
	must(t, err)
	_, err = slow.Write([]byte("x"))
	must(t, err)
	w.until("/q", func(st broker.QueueStats) bool { return st.Admitting == 1 })
	if _, err := ask(t, p, weida.Meta{}, "y"); !errors.Is(err, weida.ErrRejected) {
		t.Errorf("one too many: %v", err)
	}
	receipt, err := slow.Finish()
	must(t, err)
	receipt.Discard()
	if _, err := reply.Recv(); err != nil {
		t.Errorf("the first one: %v", err)
	}
}

func TestPeekAndArrived(t *testing.T) {
	w := newWorld(t, queue("/q", broker.Config{}))
	arrived := make(chan bool, 1)
	go func() { arrived <- w.b.Arrived(t.Context(), "/q", 1) }()
	w.confirmed(w.producer("/q"), "a", "b")
	if !<-arrived {
		t.Error("it did not arrive")
	}
	if got, ok := w.b.Peek("/q", 0, 1); !ok || len(got) != 1 || string(got[0].Message.Body) != "a" {
		t.Errorf("peeked %+v", got)
	}
	if got, ok := w.b.Newest("/q", 1); !ok || len(got) != 1 || string(got[0].Message.Body) != "b" {
		t.Errorf("newest %+v", got)
	}
	_, ok := w.b.Peek("/none", 0, 1)
	_, ok2 := w.b.Newest("/none", 1)
	if ok || ok2 || w.b.Arrived(t.Context(), "/none", 0) {
		t.Error("a queue that is not there")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if w.b.Arrived(ended, "/q", 2) {
		t.Error("arrived after the end")
	}
}

func TestBrokerOptions(t *testing.T) {
	rt, err := weida.NewRuntime(weida.Options{})
	must(t, err)
	t.Cleanup(func() { must(t, rt.Shutdown()) })
	taken := rt.Listener()
	_, err = taken.Puller("/q")
	must(t, err)
	q := func(path, dead string, attempts uint64) broker.QueueOptions {
		return broker.QueueOptions{Path: path, DeadLetter: dead, Config: broker.Config{MaxAttempts: attempts}}
	}
	for name, c := range map[string]struct {
		l    *weida.Listener
		o    broker.Options
		want error
	}{
		"too many":                {rt.Listener(), broker.Options{MaxQueues: 1, Queues: []broker.QueueOptions{q("/a", "", 0), q("/b", "", 0)}}, weida.ErrLimitExceeded},
		"bad path":                {rt.Listener(), broker.Options{Queues: []broker.QueueOptions{q("a", "", 0)}}, weida.ErrInvalidEndpointPath},
		"twice":                   {rt.Listener(), broker.Options{Queues: []broker.QueueOptions{q("/a", "", 0), q("/a", "", 0)}}, broker.ErrConfig},
		"taken":                   {taken, broker.Options{Queues: []broker.QueueOptions{q("/q", "", 0)}}, weida.ErrAlreadyRegistered},
		"attempts without a way":  {rt.Listener(), broker.Options{Queues: []broker.QueueOptions{q("/a", "", 3)}}, broker.ErrConfig},
		"a way without attempts":  {rt.Listener(), broker.Options{Queues: []broker.QueueOptions{q("/a", "/b", 0), q("/b", "", 0)}}, broker.ErrConfig},
		"its own dead letters":    {rt.Listener(), broker.Options{Queues: []broker.QueueOptions{q("/a", "/a", 3)}}, broker.ErrConfig},
		"dead letters to nowhere": {rt.Listener(), broker.Options{Queues: []broker.QueueOptions{q("/a", "/b", 3)}}, broker.ErrConfig},
		"negative bound":          {rt.Listener(), queue("/a", broker.Config{Bytes: -1}), broker.ErrConfig},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := broker.New(c.l, c.o); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
}

func TestQueuesThatFailAreNamed(t *testing.T) {
	rt, err := weida.NewRuntime(weida.Options{})
	must(t, err)
	l := rt.Listener()
	b, err := broker.New(l, broker.Options{Queues: []broker.QueueOptions{{Path: "/a"}, {Path: "/b"}}})
	must(t, err)
	must(t, rt.Shutdown()) // it closes every endpoint
	err = b.Serve(t.Context())
	if !errors.Is(err, weida.ErrClosed) || !strings.Contains(err.Error(), "/a") || !strings.Contains(err.Error(), "/b") {
		t.Errorf("got %v", err)
	}
}
