package weida_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-agent/weir/weida"
	"github.com/weir-agent/weir/weida/transport"
	"github.com/weir-agent/weir/weida/transport/simnet"
	"github.com/weir-agent/weir/weida/wire"
)

// This file holds the behaviour of publishers, queues, pairs and ordered links towards peers that do not keep to anything.

const queuePath = "/queue"

// The bounds of a patternHost, all of which some peer pushes past.
const (
	mostFilters = 256
	mostHeld    = 64
	mostSeen    = 128
)

// patternHost is a host that also publishes, has a queue and half of a pair, and puts transfers in order.
type patternHost struct {
	*host
	pub *weida.Publisher

	mu     sync.Mutex
	events map[weida.SubscriptionKind]int // of the queue
	limit  uint64                         // the highest grant
}

func newPatternHost(t *testing.T) *patternHost {
	t.Helper()
	n := simnet.New(7, simnet.Conditions{Delay: time.Millisecond})
	h := &patternHost{events: make(map[weida.SubscriptionKind]int)}
	h.host = startHost(t, n, n.Listen(), identity(t), weida.Options{
		Offered: ordered(), Limits: weida.Limits{MaxSubscriptions: mostFilters, MaxReorderHold: mostHeld, MaxDedupEntries: mostSeen},
	})
	t.Cleanup(func() { h.stop(t) })
	var err error
	if h.pub, err = h.paths.Publisher(pubPath); err != nil {
		t.Fatal(err)
	}
	pair, err := h.paths.Pair(pairPath)
	if err != nil {
		t.Fatal(err)
	}
	queue, err := h.paths.QueueAcceptor(queuePath)
	if err != nil {
		t.Fatal(err)
	}
	h.serving.Go(func() { h.pull(context.Background(), pair) })
	h.serving.Go(func() { h.watch(queue) })
	return h
}

func ordered() weida.Guarantees {
	return weida.Guarantees{Ordering: weida.OrderReassemble, Deduplication: weida.DedupBounded, DedupWindowMillis: 3_600_000}
}

// watch counts what a queue is told.
func (h *patternHost) watch(queue *weida.Acceptor) {
	for {
		in, err := queue.Accept(context.Background())
		if err != nil {
			return
		}
		if e := in.Subscription; e != nil {
			h.mu.Lock()
			h.events[e.Kind]++
			h.limit = max(h.limit, e.Limit)
			h.mu.Unlock()
		}
	}
}

func (h *patternHost) told(kind weida.SubscriptionKind) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.events[kind]
}

// read is how many transfers were read, and how many of them to their end.
func (h *patternHost) read() (all, whole int) {
	h.host.mu.Lock()
	defer h.host.mu.Unlock()
	for _, err := range h.pulled {
		if err == nil {
			whole++
		}
	}
	return len(h.pulled), whole
}

func subscription(t *testing.T, kind wire.Kind, path, filter string) []byte {
	t.Helper()
	add := wire.AppendSubscribe
	if kind == wire.KindUnsubscribe {
		add = wire.AppendUnsubscribe
	}
	b, err := add(nil, wire.Subscription{Endpoint: path, Filter: filter}, 16384)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func credit(t *testing.T, path, filter string, limit uint64) []byte {
	t.Helper()
	b, err := wire.AppendCredit(nil, wire.Credit{Subscription: wire.Subscription{Endpoint: path, Filter: filter}, Limit: limit}, 16384)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// sequenced is a transfer with a number, and with its payload behind it.
func sequenced(t *testing.T, path string, n uint64) []byte {
	t.Helper()
	b, err := wire.AppendData(nil, &wire.Data{Endpoint: wire.Some(path), Sequence: wire.Some(n)}, 16384)
	if err != nil {
		t.Fatal(err)
	}
	return append(b, fmt.Sprint(n)...)
}

// patternCase is what a peer does after a HELLO, and the code with which its link is closed for it; 0 is for a link that lives on.
type patternCase struct {
	name string
	code uint64
	do   func(t *testing.T, h *patternHost, r *raw)
}

func subscriptionCases() []patternCase {
	return []patternCase{
		{name: "SUBSCRIBE for one filter too many", code: transport.CodeLimitExceeded, do: func(t *testing.T, _ *patternHost, r *raw) {
			for i := range mostFilters + 1 { // over all paths
				r.uni(subscription(t, wire.KindSubscribe, fmt.Sprint("/path/", i%7), fmt.Sprint("filter.", i)), true)
			}
		}},
		{name: "a flood of SUBSCRIBE for one filter", do: func(t *testing.T, h *patternHost, r *raw) {
			for range 20 * mostFilters {
				r.uni(subscription(t, wire.KindSubscribe, pubPath, "same"), true)
			}
			synctest.Wait()
			if n := h.pub.Subscribers(); n != 1 {
				t.Errorf("it is %d subscribers", n)
			}
		}},
		{name: "SUBSCRIBE and UNSUBSCRIBE for ever", do: func(t *testing.T, h *patternHost, r *raw) {
			for i := range 4 * mostFilters {
				filter := fmt.Sprint("f", i)
				r.uni(subscription(t, wire.KindSubscribe, pubPath, filter), true)
				time.Sleep(time.Second) // of the bubble's clock: streams are not ordered
				r.uni(subscription(t, wire.KindUnsubscribe, pubPath, filter), true)
				time.Sleep(time.Second)
			}
			if n := h.pub.Subscribers(); n != 0 {
				t.Errorf("it is still %d subscribers", n)
			}
		}},
		{name: "UNSUBSCRIBE of what never was", do: func(t *testing.T, _ *patternHost, r *raw) {
			for _, path := range []string{pubPath, queuePath, pairPath, echoPath, "/nobody"} {
				r.uni(subscription(t, wire.KindUnsubscribe, path, "never"), true)
			}
		}},
		{name: "filters at the bound", do: func(t *testing.T, h *patternHost, r *raw) {
			stars := strings.TrimSuffix(strings.Repeat("*.", wire.MaxFilterBytes/2), ".")
			for _, filter := range []string{strings.Repeat("x", wire.MaxFilterBytes), stars, strings.Repeat(".", wire.MaxFilterBytes)} {
				r.uni(subscription(t, wire.KindSubscribe, pubPath, filter), true)
			}
			time.Sleep(time.Second) // of the bubble's clock
			n, err := h.pub.Publish(weida.Meta{Topic: strings.TrimSuffix(strings.Repeat("a.", wire.MaxTopicBytes/2), ".")}, nil)
			if n != 1 || err != nil {
				t.Errorf("queued for %d, %v, want it selected by the stars", n, err)
			}
		}},
		{name: "SUBSCRIBE to a path that is no publisher's", do: func(t *testing.T, _ *patternHost, r *raw) {
			for _, path := range []string{echoPath, pullPath, "/nobody"} {
				r.uni(subscription(t, wire.KindSubscribe, path, ""), true)
			}
		}},
		{name: "a subscriber that reads nothing", do: func(t *testing.T, h *patternHost, r *raw) {
			r.uni(subscription(t, wire.KindSubscribe, pubPath, ""), true)
			time.Sleep(time.Second) // of the bubble's clock
			for range 64 {
				if _, err := h.pub.Publish(weida.Meta{}, make([]byte, 1<<20)); err != nil {
					t.Error(err)
				}
			}
			if d := h.pub.Dropped(); d.OverBytes == 0 {
				t.Errorf("dropped %+v, want some for want of room", d)
			}
		}},
		{name: "transfers to a publisher", do: func(t *testing.T, _ *patternHost, r *raw) {
			w := r.uni(data(t, pubPath), false)
			within(t, w.Done())
			if e, ok := errors.AsType[*transport.StopError](w.Err()); !ok || e.Code != transport.CodeUnsupported {
				t.Errorf("got %v, want a stop with UNSUPPORTED", w.Err())
			}
			_, s := r.bi(data(t, pubPath), false)
			if reply, err := io.ReadAll(s); err != nil || string(reply) != "\x57\x02\x03\xa1\x00\x03" {
				t.Errorf("got %x, %v, want ERROR {UNSUPPORTED}", reply, err)
			}
		}},
	}
}

func creditCases() []patternCase {
	return []patternCase{
		{name: "CREDIT of everything, less, and nothing", do: func(t *testing.T, h *patternHost, r *raw) {
			for _, limit := range []uint64{math.MaxUint64, 1, 0} { // before any SUBSCRIBE
				r.uni(credit(t, queuePath, "f", limit), true)
			}
			r.uni(subscription(t, wire.KindSubscribe, queuePath, "f"), true)
			time.Sleep(time.Second) // of the bubble's clock
			if n := h.told(weida.Granted); n != 3 || h.limit != math.MaxUint64 {
				t.Errorf("the queue was told of %d grants up to %d", n, h.limit)
			}
		}},
		{name: "a flood of CREDIT", do: func(t *testing.T, h *patternHost, r *raw) {
			const flood = 5000 // more than wait in the queue's path
			for i := range uint64(flood) {
				r.uni(credit(t, queuePath, fmt.Sprint("f", i), i), true)
			}
			time.Sleep(time.Second) // of the bubble's clock
			if n := h.told(weida.Granted); n != flood {
				t.Errorf("the queue was told of %d grants, want %d", n, flood)
			}
		}},
		{name: "CREDIT where there is no queue", do: func(t *testing.T, h *patternHost, r *raw) {
			for _, path := range []string{pubPath, pairPath, pullPath, "/nobody"} {
				r.uni(credit(t, path, "", 5), true)
			}
			if n := h.told(weida.Granted); n != 0 {
				t.Errorf("the queue was told of %d grants", n)
			}
		}},
		{name: "CREDIT of less than nothing", code: transport.CodeProtocolViolation, do: func(_ *testing.T, _ *patternHost, r *raw) {
			r.uni(frame(byte(wire.KindCredit), 0xa3, 0, 0x62, '/', 't', 1, 0x60, 2, 0x20), true)
		}},
		{name: "CREDIT in an exchange", code: transport.CodeProtocolViolation, do: func(t *testing.T, _ *patternHost, r *raw) {
			r.bi(credit(t, queuePath, "", 5), true)
		}},
		{name: "UNSUBSCRIBE in an exchange", code: transport.CodeProtocolViolation, do: func(t *testing.T, _ *patternHost, r *raw) {
			r.bi(subscription(t, wire.KindUnsubscribe, queuePath, ""), true)
		}},
		{name: "CURSOR nonsense for ids that nobody gave out", do: func(t *testing.T, _ *patternHost, r *raw) {
			for _, id := range []byte{0, 1, 23} {
				w := r.uni(append(frame(byte(wire.KindCursor), 0xa1, 0, id), 6, 0xff, 0xff), false) // an undefined level, and a record that is cut
				within(t, w.Done())
				if e, ok := errors.AsType[*transport.StopError](w.Err()); !ok || e.Code != transport.CodeCanceled {
					t.Errorf("got %v, want a stop with CANCELED", w.Err())
				}
			}
		}},
		{name: "CURSOR with a text for its id", code: transport.CodeProtocolViolation, do: func(_ *testing.T, _ *patternHost, r *raw) {
			r.uni(frame(byte(wire.KindCursor), 0xa1, 0, 0x61, 'x'), true)
		}},
	}
}

func orderCases() []patternCase {
	return []patternCase{
		{name: "numbers whose predecessors never come", do: func(t *testing.T, h *patternHost, r *raw) {
			const sent = 20 * mostHeld
			for i := range uint64(sent) {
				r.uni(sequenced(t, pullPath, 2+2*i), true)
			}
			time.Sleep(time.Second) // of the bubble's clock
			if all, whole := h.read(); all != whole || all != sent-mostHeld {
				t.Errorf("%d were read, %d to their end; want all but the %d that may be held back", all, whole, mostHeld)
			}
		}},
		{name: "a transfer that is repeated", do: func(t *testing.T, h *patternHost, r *raw) {
			for range 100 {
				r.uni(sequenced(t, pullPath, 1), true)
			}
			time.Sleep(time.Second) // of the bubble's clock
			if all, _ := h.read(); all != 1 || h.runtime.SuppressedDuplicates() != 99 {
				t.Errorf("%d were read and %d dropped, want 1 and 99", all, h.runtime.SuppressedDuplicates())
			}
		}},
		{name: "more transfers than are remembered", do: func(t *testing.T, h *patternHost, r *raw) {
			const last = 10 * mostSeen
			r.uni(sequenced(t, pullPath, 1), true)
			time.Sleep(time.Second) // of the bubble's clock: streams are not ordered
			for n := range uint64(last - 2) {
				r.uni(sequenced(t, pullPath, 2+n), true)
			}
			time.Sleep(time.Second)
			r.uni(sequenced(t, pullPath, last), true)
			time.Sleep(time.Second)
			r.uni(sequenced(t, pullPath, 1), true)    // is forgotten
			r.uni(sequenced(t, pullPath, last), true) // is not
			time.Sleep(time.Second)
			if all, _ := h.read(); all != 10*mostSeen+1 || h.runtime.SuppressedDuplicates() != 1 {
				t.Errorf("%d were read and %d dropped, want %d and 1", all, h.runtime.SuppressedDuplicates(), 10*mostSeen+1)
			}
		}},
		{name: "the last number there is, and those behind it", do: func(t *testing.T, _ *patternHost, r *raw) {
			for _, n := range []uint64{1, math.MaxUint64, math.MaxUint64 - 1, 0, 2, 3} {
				r.uni(sequenced(t, pullPath, n), true)
			}
		}},
		{name: "numbers of more paths than are tracked", do: func(t *testing.T, _ *patternHost, r *raw) {
			for i := range uint64(3000) {
				r.uni(sequenced(t, fmt.Sprint("/nobody/", i), 5), true)
			}
		}},
		{name: "a second peer at a pair", do: func(t *testing.T, h *patternHost, r *raw) {
			first := &raw{t, h.rawDial(t)}
			first.uni(hello0, true)
			first.uni(subscription(t, wire.KindSubscribe, pairPath, ""), true)
			time.Sleep(time.Second) // of the bubble's clock
			w := r.uni(data(t, pairPath), false)
			within(t, w.Done())
			if e, ok := errors.AsType[*transport.StopError](w.Err()); !ok || e.Code != transport.CodeLimitExceeded {
				t.Errorf("got %v, want a stop with LIMIT_EXCEEDED", w.Err())
			}
			if kept := first.uni(append(data(t, pairPath), "mine"...), true); kept.Err() != nil || first.link.Err() != nil {
				t.Errorf("the first peer was not kept: %v, %v", kept.Err(), first.link.Err())
			}
			time.Sleep(time.Second)
			first.link.Close(transport.CodeNoError, "")
			time.Sleep(time.Second)
			now := r.uni(append(data(t, pairPath), "now mine"...), true)
			time.Sleep(time.Second)
			if now.Err() != nil {
				t.Errorf("the second peer was not let in afterwards: %v", now.Err())
			}
			if all, whole := h.read(); all != 2 || whole != 2 {
				t.Errorf("the pair has read %d, %d of them whole, want 2", all, whole)
			}
		}},
	}
}

func TestHostilePeersOfPatterns(t *testing.T) {
	for _, cases := range [][]patternCase{subscriptionCases(), creditCases(), orderCases()} {
		for _, tt := range cases {
			t.Run(tt.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					h := newPatternHost(t)
					r := &raw{t, h.rawDial(t)}
					r.uni(hello(t, func(w *wire.Hello) { w.Offered = ordered() }), true)
					tt.do(t, h, r)
					if tt.code != 0 {
						within(t, r.link.Done())
						if e, ok := errors.AsType[*transport.CloseError](r.link.Err()); !ok || e.Cause != transport.CausePeerClosed || e.Code != tt.code {
							t.Errorf("got %v, want closed by the host with %s", r.link.Err(), transport.CodeName(tt.code))
						}
						time.Sleep(time.Second) // of the bubble's clock
						if n := h.pub.Subscribers(); n != 0 {
							t.Errorf("%d subscribers are left of a link that has ended", n)
						}
					} else if got, err := r.echo("after"); got != "after" || err != nil {
						t.Errorf("after it an echo came to %q, %v", got, err)
					}
					h.wantServing(t)
				})
			})
		}
	}
}

// A subscription that overtakes the HELLO is parked and then recorded.
func TestEarlySubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newPatternHost(t)
		r := &raw{t, h.rawDial(t)}
		r.uni(subscription(t, wire.KindSubscribe, pubPath, ""), true)
		r.uni(credit(t, queuePath, "", 1), true)
		time.Sleep(time.Second) // of the bubble's clock
		if n := h.pub.Subscribers(); n != 0 || r.link.Err() != nil || h.told(weida.Granted) != 0 {
			t.Errorf("%d subscribers before HELLO, %v", n, r.link.Err())
		}
		r.uni(hello0, true)
		time.Sleep(time.Second)
		if n := h.pub.Subscribers(); n != 1 || h.told(weida.Granted) != 1 {
			t.Errorf("%d subscribers behind HELLO, want 1", n)
		}
	})
}

// A respondent that never answers, and one that never ends its answer, hold a survey no longer than its time and nobody else at all.
func TestSilentRespondents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newPatternHost(t)
		client, err := weida.NewRuntime(weida.Options{DialFrom: h.network.Listen()})
		if err != nil {
			t.Fatal(err)
		}
		defer client.Shutdown()
		silent, err := h.paths.Replier("/silent")
		if err != nil {
			t.Fatal(err)
		}
		endless, err := h.paths.Replier("/endless")
		if err != nil {
			t.Fatal(err)
		}
		s := client.Surveyor(weida.ClientTLS{})
		for _, path := range []string{"/silent", "/endless", echoPath} {
			if err := s.Connect(t.Context(), h.url(path)); err != nil {
				t.Fatal(err)
			}
		}
		begun := time.Now()
		run, err := s.Survey(t.Context(), weida.Meta{}, []byte("q"), time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		never, err := silent.Accept(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		slow, err := endless.Accept(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		w, err := slow.Reply(t.Context(), weida.Meta{})
		if err != nil {
			t.Fatal(err)
		}
		got := 0
		for {
			a, err := run.Next(t.Context())
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil || a.Err != nil {
				t.Fatalf("got %v, %v", err, a.Err)
			}
			got++
		}
		if took := time.Since(begun); got != 2 || took != time.Minute { // the reply that has begun is an answer
			t.Errorf("%d answers in %v, want 2 in a minute", got, took)
		}
		if err := run.Close(); err != nil {
			t.Fatal(err)
		}
		within(t, never.Canceled())
		for err == nil {
			_, err = w.Write(make([]byte, 1<<20))
		}
		if !errors.Is(err, weida.ErrCanceled) && !errors.Is(err, weida.ErrRejected) {
			t.Errorf("got %v, want the reply refused", err)
		}
		_ = never.Close() // it always returns nil
	})
}
