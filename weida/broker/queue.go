package broker

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

const (
	// MessageCharge is the fixed charge of a message in bytes, so that empty messages are not free.
	MessageCharge = 256
	// HeldGrants is how many credits a queue holds that came before their subscription.
	HeldGrants = 64
	// MaxSubscriptions bounds the subscriptions of a queue.
	MaxSubscriptions = 4096

	defaultBytes        = 8 << 20
	defaultMaxUnsettled = 256
	defaultWindow       = 65536
)

var (
	// ErrFull: the message does not fit into the byte bound of the queue.
	ErrFull = errors.New("broker: the queue is full")
	// ErrRetired: the queue admits no more messages.
	ErrRetired = errors.New("broker: the queue is retired")
	// ErrConfig: a value of a Config or of a State is out of its bounds.
	ErrConfig = errors.New("broker: configuration")
	// ErrSubscriptions: the queue has MaxSubscriptions already.
	ErrSubscriptions = errors.New("broker: too many subscriptions")
)

// Config configures a queue. The zero value is usable.
type Config struct {
	// Bytes bounds the charge of all messages, unsettled ones too; default 8 MiB. Messages that a store gave back count, but are never refused.
	Bytes int
	// MaxUnsettled bounds the deliveries of one subscription that are not settled; default 256; negative: nothing is ever delivered.
	MaxUnsettled int
	// MaxAttempts is after how many attempts a message that comes back becomes a dead letter; 0: never.
	MaxAttempts uint64
	// Window is how many ids are known for the suppression of repeats; default 65536, negative: none.
	Window int
}

func (c Config) filled() (Config, error) {
	if c.Bytes < 0 {
		return c, fmt.Errorf("%w: Bytes must not be negative", ErrConfig)
	}
	if c.Bytes == 0 {
		c.Bytes = defaultBytes
	}
	if c.MaxUnsettled == 0 {
		c.MaxUnsettled = defaultMaxUnsettled
	}
	if c.Window == 0 {
		c.Window = defaultWindow
	}
	return c, nil
}

// state is where a message is. A message goes pending → ready → leaving → out, from there back to ready, to dead, or it is settled.
type state uint8

const (
	pending state = iota // the store has not taken it yet
	ready                // to be handed out
	leaving              // an attempt is being stored
	out                  // handed out, not settled
	dead                 // a dead letter that is not taken yet
	gone                 // settled or refused; it stays in the list until that is tidied
)

type entry struct {
	seq      Seq
	message  *Message
	attempts uint64
	state    state         // changed by turn alone
	sub      *subscription // of leaving and out; nil if it is gone
}

// Queue is the state of one queue. It is for one goroutine.
type Queue struct {
	config  Config
	next    Seq
	all     []*entry // in the order of seq
	bySeq   map[Seq]*entry
	count   [gone + 1]int // of all, how many are in each state
	bytes   int           // charged
	ids     window
	subs    []*subscription // in the order of their keys
	last    Key             // that got a delivery last
	held    []grant         // oldest first
	ops     []Op            // for the next step
	again   []Op            // settlements that the store did not take; they go with the next step that there is
	flight  []Op            // of the step that is being stored
	effects Effects         // for the next Done
	retired Retirement
	closing bool // Retire was called
	paused  bool // nothing is handed out any more
}

// NewQueue returns a queue with what a store gave back. Messages that were handed out MaxAttempts times are dead letters at once.
func NewQueue(c Config, st State) (*Queue, error) {
	c, err := c.filled()
	if err != nil {
		return nil, err
	}
	q := &Queue{config: c, next: max(st.Next, 1), bySeq: map[Seq]*entry{}, ids: newWindow(c.Window)}
	for _, id := range st.IDs {
		q.ids.add(id, 0)
	}
	last := Seq(0)
	for _, m := range st.Messages {
		if m.Seq <= last || m.Seq >= q.next || m.Message == nil {
			return nil, fmt.Errorf("%w: message %d after %d, next %d", ErrConfig, m.Seq, last, q.next)
		}
		last = m.Seq
		e := &entry{seq: m.Seq, message: m.Message, attempts: m.Attempts}
		q.insert(e)
		q.back(e)
	}
	return q, nil
}

// turn changes the state of a message.
func (q *Queue) turn(e *entry, to state) {
	q.count[e.state]--
	q.count[to]++
	e.state = to
}

func (q *Queue) insert(e *entry) {
	q.all = append(q.all, e)
	q.count[e.state]++
	q.bySeq[e.seq] = e
	q.bytes += e.message.charge()
	q.ids.add(e.message.ID, e.seq)
}

// remove takes a message out of the books. Its id stays known.
func (q *Queue) remove(e *entry) {
	q.turn(e, gone)
	q.bytes -= e.message.charge()
	delete(q.bySeq, e.seq)
	e.message = nil
	if q.count[gone]*2 > len(q.all) {
		q.all = slices.DeleteFunc(q.all, func(e *entry) bool { return e.state == gone })
		q.count[gone] = 0
	}
}

// Free returns how many bytes may be charged now, or -1 if nothing is admitted any more. It may be negative for a queue that was loaded with more than its bound.
func (q *Queue) Free() int {
	if q.closing {
		return -1
	}
	return q.config.Bytes - q.bytes
}

// Room returns how many bytes of body may be admitted with these labels now (§11.2). A negative number means that the message
// is refused unread.
func (q *Queue) Room(m *Message) int {
	return q.Free() - (m.charge() - len(m.Body))
}

// Admit takes a message in. Its outcome comes in the Effects of a later Done under the seq that it returns. Where the id is known, repeat is true and the
// message is not taken in: seq is that of the first one if the store has yet to take that, and its outcome is the repeat's as well; seq is 0
// if the repeat may be confirmed at once. Admit fails with ErrFull or ErrRetired.
func (q *Queue) Admit(m *Message) (seq Seq, repeat bool, err error) {
	if q.closing {
		return 0, false, ErrRetired
	}
	if first, known := q.ids.find(m.ID); known {
		return q.pendingUnder(first), true, nil
	}
	return q.admit(m)
}

// AdmitDead is Admit for a dead letter of another queue: it is a repeat only of a message that is still in this queue and goes on living there. One that was settled here
// does not stand for a message that has died again since, nor does one that has died here: where queues are each other's for dead letters, it is about to be settled
// since the other queue has taken it.
func (q *Queue) AdmitDead(m *Message) (seq Seq, repeat bool, err error) {
	if q.closing {
		return 0, false, ErrRetired
	}
	if first, known := q.ids.find(m.ID); known {
		if e := q.bySeq[first]; e != nil && e.state != dead {
			return q.pendingUnder(first), true, nil
		}
	}
	return q.admit(m)
}

// pendingUnder returns seq if its message waits for the store, else 0.
func (q *Queue) pendingUnder(seq Seq) Seq {
	if e := q.bySeq[seq]; e != nil && e.state == pending {
		return seq
	}
	return 0
}

func (q *Queue) admit(m *Message) (seq Seq, repeat bool, err error) {
	if q.Room(m) < len(m.Body) {
		return 0, false, ErrFull
	}
	e := &entry{seq: q.next, message: m, state: pending}
	q.next++
	q.insert(e)
	q.ops = append(q.ops, Op{Kind: OpAdmit, Seq: e.seq, Message: m})
	return e.seq, false, nil
}

// Settle says that a consumer has processed a message, or that somebody took a dead letter. A message that was handed out and has come back counts, too: the end of a
// link may be faster than the report that came before it. Settle reports whether the message was still there, and had been handed out.
func (q *Queue) Settle(seq Seq) bool {
	e := q.bySeq[seq]
	if e == nil || e.state == pending || e.attempts == 0 {
		return false
	}
	if e.state == out {
		q.retired.Settled++
	}
	e.free()
	q.remove(e)
	q.ops = append(q.ops, Op{Kind: OpSettle, Seq: seq})
	q.scan()
	return true
}

// Requeue says that the report on a delivery, the attempt-th one of its message, ended without Processed. The message goes back to its old place.
// One that is not out under that attempt any more is left alone. Requeue reports whether it was.
func (q *Queue) Requeue(seq Seq, attempt uint64) bool {
	e := q.bySeq[seq]
	if e == nil || e.state != out || e.attempts != attempt {
		return false
	}
	q.requeue(e)
	q.scan()
	return true
}

func (q *Queue) requeue(e *entry) {
	e.free()
	if q.closing {
		q.retired.Requeued++
	}
	q.back(e)
}

// Failed says that a delivery could not be written. It does not count as an attempt or against the credit, and the subscription gets nothing
// until something else happens in the queue. A message that is not out under that attempt any more is left alone.
func (q *Queue) Failed(seq Seq, attempt uint64) {
	e := q.bySeq[seq]
	if e == nil || e.state != out || e.attempts != attempt {
		return
	}
	e.attempts--
	if sub := e.sub; sub != nil {
		sub.delivered--
		sub.failed = true
	}
	e.free()
	q.back(e)
	q.deliver()
}

// back makes a message ready, or a dead letter.
func (q *Queue) back(e *entry) {
	if q.config.MaxAttempts > 0 && e.attempts >= q.config.MaxAttempts {
		q.turn(e, dead)
		q.effects.Dead = append(q.effects.Dead, Delivery{Seq: e.seq, Attempt: e.attempts, Message: e.message})
		return
	}
	q.turn(e, ready)
	for _, s := range q.subs {
		s.passed = min(s.passed, e.seq-1)
	}
}

// free ends the hold of a delivery on the slot of its subscription.
func (e *entry) free() {
	if e.sub != nil {
		e.sub.unsettled--
		e.sub = nil
	}
}

// Peeked is a message as Peek finds it.
type Peeked struct {
	Seq      Seq
	Attempts uint64
	Out      bool // handed out, not settled
	Dead     bool
	Message  *Message
}

// Peek returns at most limit messages behind the seq after that the store has taken, oldest first, and leaves them where they are.
func (q *Queue) Peek(after Seq, limit int) []Peeked {
	i, _ := slices.BinarySearchFunc(q.all, after+1, func(e *entry, seq Seq) int { return cmp.Compare(e.seq, seq) })
	var found []Peeked
	for _, e := range q.all[i:] {
		if len(found) >= limit {
			break
		}
		if e.state != gone && e.state != pending {
			found = append(found, Peeked{Seq: e.seq, Attempts: e.attempts, Out: e.state == leaving || e.state == out, Dead: e.state == dead, Message: e.message})
		}
	}
	return found
}

// Newest returns the seq behind which Peek finds the newest n messages.
func (q *Queue) Newest(n int) Seq {
	for i := len(q.all) - 1; i >= 0; i-- {
		if e := q.all[i]; e.state != gone && e.state != pending {
			if n--; n < 0 {
				return e.seq
			}
		}
	}
	return 0
}

// Stats is a queue at one instant.
type Stats struct {
	Messages  int // all that are not settled
	Unsettled int // of these, handed out
	Dead      int // of these, dead letters that nobody took yet
	Bytes     int // charged
	Consumers int // subscriptions
}

// Stats returns the state of the queue.
func (q *Queue) Stats() Stats {
	return Stats{
		Messages: len(q.bySeq), Unsettled: q.count[leaving] + q.count[out], Dead: q.count[dead],
		Bytes: q.bytes, Consumers: len(q.subs),
	}
}

// Retirement counts what became of the deliveries since Retire.
type Retirement struct {
	Settled   int // settled since Retire
	Unsettled int // handed out when the deadline passed, and put back
	Requeued  int // came back by themselves
}

// Retire lets the queue refuse admissions; it goes on to deliver under the credit there is (§11.6).
func (q *Queue) Retire() {
	if !q.closing {
		q.closing = true
		q.retired = Retirement{}
	}
}

// EndRetire is for the deadline of a retirement: nothing is handed out any more, and what is out goes back to its place.
func (q *Queue) EndRetire() Retirement {
	q.Retire()
	q.paused = true
	for _, e := range q.all {
		switch e.state {
		case out:
			q.retired.Unsettled++
		case leaving:
			e.attempts-- // never written
		default:
			continue
		}
		e.free()
		q.back(e)
	}
	return q.retired
}
