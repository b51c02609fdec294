package transport

import (
	"context"
	"sync"
)

// Parking keeps the receipts of one link that their owners dropped, so that a drain can count and await them
// (weida-supplement §6). It holds at most its capacity of receipts that are not settled: for one more, the oldest is evicted and
// counted outstanding. Its methods may be called by several goroutines at once.
type Parking struct {
	mu             sync.Mutex
	capacity       int
	oldest, newest *Receipt // a list through prev and next
	count          int
	empty          chan struct{} // closed when the last one leaves; nil while nobody waits
	delivered      uint64
	outstanding    uint64
}

// NewParking returns a parking for at most capacity receipts, and at least one.
func NewParking(capacity int) *Parking { return &Parking{capacity: max(1, capacity)} }

// Park takes a receipt that nobody awaits. A receipt may be parked once.
func (p *Parking) Park(r *Receipt) {
	p.mu.Lock()
	p.push(r)
	var evicted *Receipt
	if p.count > p.capacity {
		evicted = p.oldest
	}
	p.mu.Unlock()
	// It is in the list before it can settle into it.
	if settled, err := r.park(p); settled {
		p.settled(r, err)
	}
	if evicted != nil {
		evicted.Forget()
	}
}

// push appends r to the list. p.mu is held.
func (p *Parking) push(r *Receipt) {
	r.prev = p.newest
	if p.newest != nil {
		p.newest.next = r
	} else {
		p.oldest = r
	}
	p.newest = r
	p.count++
}

// settled takes r out of the list and counts it.
func (p *Parking) settled(r *Receipt, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.prev != nil {
		r.prev.next = r.next
	} else {
		p.oldest = r.next
	}
	if r.next != nil {
		r.next.prev = r.prev
	} else {
		p.newest = r.prev
	}
	r.prev, r.next = nil, nil
	p.count--
	if err == nil {
		p.delivered++
	} else {
		p.outstanding++
	}
	if p.count == 0 && p.empty != nil {
		close(p.empty)
		p.empty = nil
	}
}

// Len returns how many receipts are parked and not settled.
func (p *Parking) Len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count
}

// Drain waits for every parked receipt until ctx ends; what is then left is evicted. It returns how many transfers the peer's transport
// has and how many it may not have, since the parking was made.
func (p *Parking) Drain(ctx context.Context) (delivered, outstanding uint64) {
	p.mu.Lock()
	var empty chan struct{}
	if p.count > 0 {
		if p.empty == nil {
			p.empty = make(chan struct{})
		}
		empty = p.empty
	}
	p.mu.Unlock()
	if empty != nil {
		select {
		case <-empty:
		case <-ctx.Done():
			p.evictAll()
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.delivered, p.outstanding
}

// evictAll evicts what is parked now.
func (p *Parking) evictAll() {
	p.mu.Lock()
	left := make([]*Receipt, 0, p.count)
	for r := p.oldest; r != nil; r = r.next {
		left = append(left, r)
	}
	p.mu.Unlock()
	for _, r := range left {
		r.Forget()
	}
}
