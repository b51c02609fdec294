package weida

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weir-agent/weir/weida/transport"
)

// courier brings copies to one peer, one after the other, so that a slow one delays nobody else. What waits is bounded in number by Options.EndpointQueue and in
// bytes of payload by Limits.SubscriberBufferBytes; what does not fit is dropped.
type courier struct {
	conn *conn

	mu      sync.Mutex
	queue   []parcel
	bytes   int // of the queue, and of streamed copies
	walking bool
	room    chan struct{} // closed when bytes or queue shrink; nil while nobody waits
	idle    chan struct{} // closed when nothing is queued or being written; nil while nobody waits
}

// parcel is a whole copy. All copies of a message share its payload.
type parcel struct {
	head  []byte // header, and payload where it is short
	rest  []byte // payload
	bytes int    // of payload
	topic string
	drops *dropTable
}

// dropCause is why a copy did not go out.
type dropCause uint8

const (
	notDropped dropCause = iota
	overBytes
	overMessages
	unparked
	unsent
)

// parkedPatience is how long a copy waits, in its subscriber's own queue, for a connection that the subscriber is to park where its link needs one. Replacing one that was
// used takes a fraction of it; without any of it a burst of more copies than connections would lose all the others.
const parkedPatience = 100 * time.Millisecond

// dropOf is why a copy that could not be written is lost.
func dropOf(err error) dropCause {
	if errors.Is(err, transport.ErrNoParked) {
		return unparked
	}
	return unsent
}

// openCopy opens a stream for a copy.
func (c *conn) openCopy(ctx context.Context) (transport.SendStream, error) {
	if l, ok := c.link.(transport.Parked); ok {
		return l.OpenParked(ctx, parkedPatience)
	}
	return c.link.OpenUni(ctx)
}

// checkParked refuses a link over which the other side could send nothing, though that is what it is for.
func (c *conn) checkParked() error {
	if l, ok := c.link.(transport.Parked); ok && l.MaxParked() == 0 {
		return fmt.Errorf("%w: Limits.MaxParkedReverse keeps no connection for what the peer sends", ErrUnsupported)
	}
	return nil
}

// put queues a copy, if there is room.
func (c *courier) put(p parcel) dropCause {
	opts := &c.conn.rt.opts
	c.mu.Lock()
	switch {
	case p.bytes > opts.Limits.SubscriberBufferBytes-c.bytes:
		c.mu.Unlock()
		return overBytes
	case len(c.queue) >= opts.EndpointQueue:
		c.mu.Unlock()
		return overMessages
	}
	c.queue = append(c.queue, p)
	c.bytes += p.bytes
	walk := !c.walking
	c.walking = true
	c.mu.Unlock()
	if walk && !c.conn.rt.spawn(c.walk) {
		c.abandon() // the runtime has ended, and the link with it
	}
	return notDropped
}

// take takes the first copy out of the queue, which frees its room.
func (c *courier) take() (parcel, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.queue) == 0 {
		c.queue, c.walking = nil, false
		if c.idle != nil {
			close(c.idle)
			c.idle = nil
		}
		return parcel{}, false
	}
	p := c.queue[0]
	c.queue[0] = parcel{}
	c.queue = c.queue[1:]
	c.free(p.bytes)
	return p, true
}

// flushed waits until nothing is queued or being written.
func (c *courier) flushed(ctx context.Context) error {
	c.mu.Lock()
	if !c.walking {
		c.mu.Unlock()
		return nil
	}
	if c.idle == nil {
		c.idle = make(chan struct{})
	}
	idle := c.idle
	c.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// free gives room back. c.mu is held.
func (c *courier) free(bytes int) {
	c.bytes -= bytes
	if c.room != nil {
		close(c.room)
		c.room = nil
	}
}

// walk writes what is in the queue until it is empty or the link has ended.
func (c *courier) walk() {
	for {
		p, ok := c.take()
		if !ok {
			return
		}
		if err := c.conn.sendWhole(p.head, p.rest); err != nil {
			p.drops.add(p.topic, dropOf(err))
			if c.conn.link.Err() != nil {
				c.abandon()
				return
			}
		}
	}
}

// abandon drops what is left.
func (c *courier) abandon() {
	for {
		p, ok := c.take()
		if !ok {
			return
		}
		p.drops.add(p.topic, unsent)
	}
}

// sendWhole sends a header and a payload as one transfer, and leaves its receipt to a drain.
func (c *conn) sendWhole(head, rest []byte) error {
	s, err := c.openCopy(context.Background())
	if err != nil {
		return err
	}
	receipt, err := s.Receipt()
	if err != nil {
		receipt = nil // the link keeps none
	}
	_, err = s.Write(head)
	if err == nil && len(rest) > 0 {
		_, err = s.Write(rest)
	}
	if err == nil {
		err = s.CloseWrite()
	}
	if err != nil {
		s.Reset(transport.CodeCanceled)
		if receipt != nil {
			receipt.Forget()
		}
		return err
	}
	if receipt != nil {
		c.parking.Park(receipt)
	}
	return nil
}

// Drops counts copies that were not delivered, by cause.
type Drops struct {
	// OverBytes did not fit into Limits.SubscriberBufferBytes, and OverMessages not into Options.EndpointQueue. A streamed copy counts once.
	OverBytes, OverMessages uint64
	// NoParkedConnection found no connection that the subscriber had parked, over a link that needs one for each stream toward who has dialled.
	NoParkedConnection uint64
	// Failed could not be written: the link was lost, or the peer refused or could not be reached.
	Failed uint64
}

// Total is how many there are of all causes.
func (d Drops) Total() uint64 { return d.OverBytes + d.OverMessages + d.NoParkedConnection + d.Failed }

// dropTable counts drops by topic, for at most so many topics.
type dropTable struct {
	mu      sync.Mutex
	all     Drops
	topics  int
	byTopic map[string]*Drops
}

func (d *Drops) count(cause dropCause) {
	switch cause {
	case overBytes:
		d.OverBytes++
	case overMessages:
		d.OverMessages++
	case unparked:
		d.NoParkedConnection++
	case unsent:
		d.Failed++
	case notDropped:
	}
}

func (t *dropTable) add(topic string, cause dropCause) {
	if cause == notDropped {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all.count(cause)
	d := t.byTopic[topic]
	if d == nil {
		if len(t.byTopic) >= t.topics {
			return
		}
		if t.byTopic == nil {
			t.byTopic = make(map[string]*Drops)
		}
		d = &Drops{}
		t.byTopic[topic] = d
	}
	d.count(cause)
}

func (t *dropTable) total() Drops {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.all
}

func (t *dropTable) on(topic string) Drops {
	t.mu.Lock()
	defer t.mu.Unlock()
	if d := t.byTopic[topic]; d != nil {
		return *d
	}
	return Drops{}
}
