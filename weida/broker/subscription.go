package broker

import (
	"cmp"
	"slices"

	"github.com/weir-agent/weir/weida/wire"
)

// ConsumerID names the connection of a consumer.
type ConsumerID uint64

// Key names a subscription.
type Key struct {
	Consumer ConsumerID
	Filter   string
}

func compareKeys(a, b Key) int {
	return cmp.Or(cmp.Compare(a.Consumer, b.Consumer), cmp.Compare(a.Filter, b.Filter))
}

type subscription struct {
	key       Key
	limit     uint64 // deliveries that it will ever take
	delivered uint64
	unsettled int
	failed    bool // a write failed in this round
	passed    Seq  // no ready message up to here matches the filter
}

type grant struct {
	key   Key
	limit uint64
}

func (q *Queue) find(key Key) (int, bool) {
	return slices.BinarySearchFunc(q.subs, key, func(s *subscription, k Key) int { return compareKeys(s.key, k) })
}

// Subscribe makes a subscription without credit, or leaves it as it is if it is there. A credit that came before it takes effect. It fails with
// wire.ErrFilter or ErrSubscriptions.
func (q *Queue) Subscribe(key Key) error {
	if err := wire.CheckFilter(key.Filter); err != nil {
		return err
	}
	i, there := q.find(key)
	if there {
		return nil
	}
	if len(q.subs) >= MaxSubscriptions {
		return ErrSubscriptions
	}
	s := &subscription{key: key}
	q.subs = slices.Insert(q.subs, i, s)
	if h := q.findHeld(key); h >= 0 {
		s.limit = q.held[h].limit
		q.held = slices.Delete(q.held, h, h+1)
		q.scan()
	}
	return nil
}

func (q *Queue) findHeld(key Key) int {
	return slices.IndexFunc(q.held, func(g grant) bool { return g.key == key })
}

// Grant raises the credit of a subscription to limit deliveries in all; a lower limit changes nothing. Where the subscription is not there yet the
// grant is held; of more than HeldGrants the oldest is dropped (§11.3).
func (q *Queue) Grant(key Key, limit uint64) {
	if i, there := q.find(key); there {
		if limit > q.subs[i].limit {
			q.subs[i].limit = limit
			q.scan()
		}
		return
	}
	if h := q.findHeld(key); h >= 0 {
		q.held[h].limit = max(q.held[h].limit, limit)
		return
	}
	if len(q.held) == HeldGrants {
		q.held = slices.Delete(q.held, 0, 1)
	}
	q.held = append(q.held, grant{key, limit})
}

// Unsubscribe ends a subscription; what it had not settled goes back to its place.
func (q *Queue) Unsubscribe(key Key) { q.drop(func(k Key) bool { return k == key }) }

// Close ends all subscriptions of a consumer, as Unsubscribe does.
func (q *Queue) Close(c ConsumerID) { q.drop(func(k Key) bool { return k.Consumer == c }) }

func (q *Queue) drop(match func(Key) bool) {
	q.held = slices.DeleteFunc(q.held, func(g grant) bool { return match(g.key) })
	ended := 0
	q.subs = slices.DeleteFunc(q.subs, func(s *subscription) bool {
		if match(s.key) {
			ended++
			return true
		}
		return false
	})
	if ended == 0 {
		return
	}
	for _, e := range q.all {
		if e.sub == nil || !match(e.sub.key) {
			continue
		}
		if e.state == leaving {
			e.free() // Done puts it back
		} else {
			q.requeue(e)
		}
	}
	q.scan()
}

// Delivered returns how many deliveries a subscription has had, and whether it is there.
func (q *Queue) Delivered(key Key) (uint64, bool) {
	i, there := q.find(key)
	if !there {
		return 0, false
	}
	return q.subs[i].delivered, true
}

func (q *Queue) eligible(s *subscription) bool {
	return !s.failed && s.delivered < s.limit && s.unsettled < q.config.MaxUnsettled
}

// scan begins a round: what failed before may be tried again.
func (q *Queue) scan() {
	for _, s := range q.subs {
		s.failed = false
	}
	q.deliver()
}

// deliver picks messages for all subscriptions that may take one, in one walk: to hand out a message never makes a subscription eligible
// for an earlier one. The walk begins behind what every eligible subscription has passed, so that a backlog that nobody wants is not
// walked again for each event.
func (q *Queue) deliver() {
	if q.paused {
		return
	}
	from, some := Seq(0), false
	for _, s := range q.subs {
		if q.eligible(s) && (!some || s.passed < from) {
			from, some = s.passed, true
		}
	}
	if !some {
		return
	}
	i, _ := slices.BinarySearchFunc(q.all, from+1, func(e *entry, seq Seq) int { return cmp.Compare(e.seq, seq) })
	for _, e := range q.all[i:] {
		if e.state == pending { // and so is all behind it, or will be scanned for when it is not
			return
		}
		s, more := q.pick(e)
		if !more {
			return
		}
		if s != nil {
			q.leave(e, s)
		}
	}
}

// pick returns the subscription that gets a message: of the eligible ones that match it the first behind the one that got something last.
// more is false when nobody is eligible.
func (q *Queue) pick(e *entry) (chosen *subscription, more bool) {
	start, found := q.find(q.last)
	if found {
		start++
	}
	for n := range q.subs {
		s := q.subs[(start+n)%len(q.subs)]
		if !q.eligible(s) {
			continue
		}
		more = true
		if e.seq <= s.passed {
			continue
		}
		if e.state == ready && chosen == nil && wire.Match(s.key.Filter, e.message.Topic) {
			chosen = s
		}
		// Either it does not match, or it is taken; if it comes back, back takes the mark back.
		s.passed = e.seq
	}
	return chosen, more
}

func (q *Queue) leave(e *entry, s *subscription) {
	q.turn(e, leaving)
	e.sub = s
	e.attempts++
	s.delivered++
	s.unsettled++
	q.last = s.key
	q.ops = append(q.ops, Op{Kind: OpAttempt, Seq: e.seq, Attempt: e.attempts})
}
