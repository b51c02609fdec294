package wab

import (
	"github.com/weir-agent/weir/wab/record"
	"github.com/weir-agent/weir/wab/segment"
)

// group is one group commit from its first record to its outcome. All fields are
// guarded by Shard.mu, but enc while the group is being written.
type group struct {
	enc  *segment.Group // nil once written
	file *segmentFile
	// first is the index of its first record; start and end are its place in the file, from the moment
	// it stops gathering. prevEnd and prevIndex are where the records before it end.
	first      uint64
	count      int
	appends    int  // calls of Append that put records into it
	waited     bool // it has gathered on once
	start, end int64
	prevEnd    int64
	prevIndex  uint64
	charged    int64 // bytes counted against the cap
	time       int64

	durable bool // holds a Durable record
	full    bool // takes no more records
	written bool
	synced  bool
	err     error // final for every record of the group that has no outcome yet

	// What sleepers wait for; made when the first one sleeps.
	writtenCh chan struct{}
	syncedCh  chan struct{}
	lead      [2]chan struct{} // by Durable, Buffered: a turn that one tier can use may be none for the other
	sleepers  [2]int
}

func tierSlot(d record.Durability) int {
	if d == record.Durable {
		return 0
	}
	return 1
}

// outcome reports whether the fate of the group's records of one tier is known.
func (g *group) outcome(d record.Durability) (error, bool) {
	switch {
	case g.synced, g.written && d != record.Durable:
		return nil, true
	case g.err != nil:
		return g.err, true
	}
	return nil, false
}

func (g *group) setWritten() {
	g.written = true
	wake(g.writtenCh)
}

func (g *group) setSynced() {
	g.synced = true
	wake(g.syncedCh)
}

// fail is the outcome of all records that have none yet.
func (g *group) fail(err error) {
	if g.err != nil || g.synced {
		return
	}
	g.err = err
	if !g.written {
		wake(g.writtenCh)
	}
	wake(g.syncedCh)
}

func wake(ch chan struct{}) {
	if ch != nil {
		close(ch)
	}
}

// token lets one sleeper of the group, of the tier with this slot, look whether it can lead.
func (g *group) token(slot int) {
	select {
	case g.lead[slot] <- struct{}{}:
	default:
	}
}

// Ticket stands for the records of one Append. It is for one goroutine, and it
// must be waited for: it is the waiters that do the writing. The zero Ticket has no records.
type Ticket struct {
	shard *Shard
	tier  record.Durability
	head  span
	more  []span // an Append that a group could not hold whole goes on here
}

// span is a run of a ticket's records in one group, or with one refusal.
type span struct {
	g   *group
	at  int // ordinal of the first one in the group
	n   int
	err error
}

func (t *Ticket) add(p span) {
	if t.head.n == 0 {
		t.head = p
		return
	}
	t.more = append(t.more, p)
}

// Wait returns when the outcome of every record is known: nil if all are as safe as asked.
// After an error the fate of some records is unknown; Err tells which.
func (t *Ticket) Wait() error {
	if t.head.n == 0 {
		return nil
	}
	first := t.shard.waitSpan(&t.head, t.tier)
	for i := range t.more {
		if err := t.shard.waitSpan(&t.more[i], t.tier); first == nil {
			first = err
		}
	}
	return first
}

// Len returns the number of records.
func (t *Ticket) Len() int {
	n := t.head.n
	for i := range t.more {
		n += t.more[i].n
	}
	return n
}

// Err returns, after Wait, nil if record i (0-based) is as safe as it was asked to be.
func (t *Ticket) Err(i int) error {
	p, _ := t.span(i)
	return p.err
}

// Coordinate returns, after Wait, the segment address and the 1-based index of record i, whose
// Err must be nil. record.ComputeID gives the id.
func (t *Ticket) Coordinate(i int) (segment string, index uint64) {
	p, k := t.span(i)
	return p.g.file.addr, p.g.first + uint64(p.at+k)
}

// span returns the span of record i and its place in it.
func (t *Ticket) span(i int) (*span, int) {
	if i < t.head.n {
		return &t.head, i
	}
	i -= t.head.n
	for k := range t.more {
		if i < t.more[k].n {
			return &t.more[k], i
		}
		i -= t.more[k].n
	}
	panic("wab: record ordinal outside of the ticket") // a caller's error, like a slice bound
}
