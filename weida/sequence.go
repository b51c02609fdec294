package weida

import (
	"context"
	"io"
	"math"
	"sync"
	"time"

	"github.com/weir-agent/weir/weida/transport"
	"github.com/weir-agent/weir/weida/wire"
)

// Gap says that transfers between two numbers are missing before the one that it came with: lost, dropped, or late. The zero value is none.
type Gap struct {
	// Expected is the number that should have come, and Seen the one that came.
	Expected, Seen uint64
}

// Missed is how many transfers are missing.
func (g Gap) Missed() uint64 { return g.Seen - g.Expected }

// firstSequence is the number of the first transfer in a scope.
const firstSequence = 1

// numbering counts the one-way transfers that this side sends on a link, by path (weida-supplement §8). A link carries few paths, those that this side has dialled.
type numbering struct {
	mu   sync.Mutex
	last map[string]uint64
}

// number returns the number of the next transfer to a path, where ordering was negotiated.
func (c *conn) number(path string) wire.Opt[uint64] {
	if c.agreed.Guarantees.Ordering == wire.OrderNone {
		return wire.Opt[uint64]{}
	}
	c.numbers.mu.Lock()
	defer c.numbers.mu.Unlock()
	if c.numbers.last == nil {
		c.numbers.last = make(map[string]uint64)
	}
	c.numbers.last[path]++
	return wire.Some(c.numbers.last[path])
}

// newNumbered begins a one-way transfer with the next number of its path.
func (c *conn) newNumbered(ctx context.Context, w transport.SendStream, path string, meta *Meta) (*OutgoingTransfer, error) {
	m := *meta
	m.sequence = c.number(path)
	return newOutgoing(ctx, c, w, path, &m, true)
}

// scope is what numbers count in: a path, or a topic at a subscriber's path.
type scope struct{ path, topic string }

// identity is what makes a transfer the same as another on a link.
type identity struct {
	producer [wire.ProducerBytes]byte // the zero value is the peer
	scope    scope
	sequence uint64
}

// arrival is a one-way transfer of which nothing but the header was read.
type arrival struct {
	stream   transport.ReceiveStream
	data     *wire.Data
	gap      Gap
	identity *identity
	midway   bool // its scope may be joined after its first transfer
}

// sequencing judges the numbers of the one-way transfers of a link, as was negotiated: repeats, gaps, order. On a link of core it holds nothing.
type sequencing struct {
	reassemble bool
	maxScopes  int
	maxHeld    int
	window     time.Duration // 0 remembers nothing
	maxSeen    int

	mu     sync.Mutex
	scopes map[scope]*track
	held   int // over all scopes
	seen   map[identity]time.Time
	recent []sighting // what is in seen, oldest first, with some that was forgotten
}

// sighting is when a transfer came. It holds as long as seen says the same time.
type sighting struct {
	identity identity
	at       time.Time
}

// track is where a scope stands.
type track struct {
	next uint64 // the number that is due
	// held are transfers that wait for their predecessors, by number. Each is an unread stream and no copy.
	held map[uint64]arrival
	// ready are transfers that go to their endpoint now, in this order. One goroutine at a time brings them there.
	ready      []arrival
	delivering bool
}

// beginSequencing makes ready for what was negotiated.
func (c *conn) beginSequencing() {
	g, l, q := c.agreed.Guarantees, &c.rt.opts.Limits, &c.order
	if g.Ordering == wire.OrderNone {
		return
	}
	q.scopes = make(map[scope]*track)
	q.reassemble = g.Ordering >= wire.OrderReassemble
	q.maxScopes = l.MaxSequenceScopes
	// What is held uses up the budget of streams, through which the missing one must come.
	q.maxHeld = min(l.MaxReorderHold, max(0, l.MaxConcurrentUniStreams/2))
	if g.Deduplication == wire.DedupBounded {
		q.seen, q.maxSeen = make(map[identity]time.Time), l.MaxDedupEntries
		const longest = time.Duration(1<<63 - 1)
		q.window = longest
		if g.DedupWindowMillis < uint64(longest/time.Millisecond) {
			q.window = time.Duration(g.DedupWindowMillis) * time.Millisecond
		}
	}
}

// sequence brings a transfer to its endpoint, when its number allows it: repeats are read and dropped, then gaps are found, or what is ahead is held back
// (weida-supplement §4.5).
func (c *conn) sequence(a arrival) {
	q := &c.order
	number, numbered := a.data.Sequence.Get()
	if q.scopes == nil || !numbered {
		c.deliver(a)
		return
	}
	in := scope{path: a.data.Endpoint.Value}
	if e := c.ns.find(in.path); e != nil && e.topics {
		in.topic, a.midway = a.data.Topic.Value, true
	}
	if q.window > 0 {
		a.identity = &identity{a.data.Producer.Value, in, number}
		if q.repeated(*a.identity, time.Now()) {
			c.rt.repeats.Add(1)
			_, _ = io.Copy(io.Discard, a.stream) // the sender is to see nothing of it
			return
		}
	}
	due, late := q.arrive(in, number, a)
	if late != nil {
		c.deliver(*late)
	}
	for _, t := range due {
		c.deliverReady(t)
	}
}

// deliverReady brings the transfers of a scope that are ready to their endpoint, unless another goroutine is at it.
func (c *conn) deliverReady(t *track) {
	q := &c.order
	for first := true; ; first = false {
		q.mu.Lock()
		if first && t.delivering {
			q.mu.Unlock()
			return
		}
		t.delivering = len(t.ready) > 0
		if !t.delivering {
			q.mu.Unlock()
			return
		}
		a := t.ready[0]
		t.ready[0] = arrival{}
		t.ready = t.ready[1:]
		q.mu.Unlock()
		c.deliver(a)
	}
}

// repeated reports whether a transfer has come before, within the window, and remembers it.
func (q *sequencing) repeated(id identity, now time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.recent) > 0 {
		oldest := q.recent[0]
		at, known := q.seen[oldest.identity]
		known = known && at.Equal(oldest.at)
		if known && len(q.recent) < q.maxSeen && now.Sub(oldest.at) <= q.window {
			break
		}
		if known {
			delete(q.seen, oldest.identity)
		}
		q.recent = q.recent[1:]
	}
	if _, known := q.seen[id]; known {
		return true
	}
	q.seen[id] = now
	q.recent = append(q.recent, sighting{id, now})
	return false
}

// forget takes back that a transfer has come.
func (q *sequencing) forget(id identity) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.seen, id)
}

// arrive places a transfer in its scope. It returns the scopes that have become ready, or the transfer itself if it has no place: it is late, a repeat, or of a
// scope that is not tracked.
func (q *sequencing) arrive(in scope, number uint64, a arrival) (due []*track, late *arrival) {
	q.mu.Lock()
	defer q.mu.Unlock()
	t := q.scopes[in]
	if t == nil {
		if len(q.scopes) >= q.maxScopes {
			return nil, &a
		}
		t = &track{next: firstSequence}
		if a.midway {
			t.next = number // a subscriber comes in the middle of a topic
		}
		q.scopes[in] = t
	}
	_, repeat := t.held[number]
	switch {
	case number < t.next, repeat:
		return nil, &a
	case number > t.next && !q.reassemble:
		a.gap = Gap{Expected: t.next, Seen: number}
		t.next = number
	case number > t.next:
		if t.held == nil {
			t.held = make(map[uint64]arrival)
		}
		t.held[number] = a
		if q.held++; q.held <= q.maxHeld {
			return nil, nil
		}
		return []*track{q.release()}, nil
	}
	t.next++
	if !q.reassemble {
		return nil, &a
	}
	t.ready = append(t.ready, a)
	q.follow(t)
	return []*track{t}, nil
}

// follow makes ready what follows in order. q.mu is held.
func (q *sequencing) follow(t *track) {
	for {
		a, ok := t.held[t.next]
		if !ok {
			return
		}
		delete(t.held, t.next)
		q.held--
		t.next++
		t.ready = append(t.ready, a)
	}
}

// release gives up waiting for the predecessors of the oldest transfer in the scope that holds most. q.mu is held, and something is.
func (q *sequencing) release() *track {
	var fullest *track
	for _, t := range q.scopes {
		if fullest == nil || len(t.held) > len(fullest.held) {
			fullest = t
		}
	}
	oldest := uint64(math.MaxUint64)
	for n := range fullest.held {
		oldest = min(oldest, n)
	}
	a := fullest.held[oldest]
	a.gap = Gap{Expected: fullest.next, Seen: oldest}
	fullest.held[oldest] = a
	fullest.next = oldest
	q.follow(fullest)
	return fullest
}
