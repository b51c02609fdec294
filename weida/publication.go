package weida

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-agent/weir/weida/wire"
)

// Publication is a message that is streamed to several subscribers, chunk by chunk. What a subscriber has not taken yet waits within the same bounds as whole messages
// do; one that has no room is dropped alone, and its transfer is canceled. Until Finish, Cancel abandons all copies. One goroutine
// writes; Cancel may be called beside it.
type Publication struct {
	p      *Publisher
	topic  string
	ctx    context.Context
	cancel context.CancelFunc
	copies []*streamedCopy
	done   atomic.Bool
	left   atomic.Int64 // copies that are being written, and one until Finish
}

// streamedCopy is a subscriber's copy of a publication.
type streamedCopy struct {
	w      *Publication
	to     *courier
	ctx    context.Context // ends with the copy
	cancel context.CancelFunc
	wake   chan struct{} // holds a token when there is something to write
	counts sync.Once     // of the drop

	// What follows is guarded by the courier's lock.
	chunks [][]byte
	whole  bool // no more chunks will come
	over   bool // nothing is written any more
}

// newStreamedCopy begins a copy, which a goroutine of its own writes.
func newStreamedCopy(w *Publication, m *member, meta Meta, sequence wire.Opt[uint64]) *streamedCopy {
	c := &streamedCopy{w: w, to: &m.courier, wake: make(chan struct{}, 1)}
	c.ctx, c.cancel = context.WithCancel(w.ctx)
	if m.conn.agreed.Guarantees.Ordering != wire.OrderNone {
		meta.sequence = sequence
	}
	w.left.Add(1)
	if !m.conn.rt.spawn(func() { c.run(m.path, meta) }) {
		c.drop(unsent)
		w.leave()
	}
	return c
}

// leave frees the context when nothing uses it any more.
func (w *Publication) leave() {
	if w.left.Add(-1) == 0 {
		w.cancel()
	}
}

// run writes a copy until its end.
func (c *streamedCopy) run(path string, meta Meta) {
	defer c.w.leave()
	defer c.cancel()
	err := c.write(path, meta)
	c.end()
	if err != nil && c.w.ctx.Err() == nil {
		c.drop(dropOf(err))
	}
}

func (c *streamedCopy) write(path string, meta Meta) error {
	s, err := c.to.conn.openCopy(c.ctx)
	if err != nil {
		return err
	}
	t, err := newOutgoing(c.ctx, c.to.conn, s, path, &meta, true)
	if err != nil {
		return err
	}
	defer t.Cancel()
	for {
		chunk, whole := c.next()
		switch {
		case chunk != nil:
			if _, err := t.Write(chunk); err != nil {
				return err
			}
		case whole:
			d, err := t.Finish()
			if err != nil {
				return err
			}
			d.Discard()
			return nil
		default:
			select {
			case <-c.wake:
			case <-c.ctx.Done():
				return context.Cause(c.ctx)
			case <-t.send.Done(): // refused, or the link has ended
				return ended(c.ctx, t.send.Err())
			}
		}
	}
}

// next takes the next chunk, which frees its room.
func (c *streamedCopy) next() (chunk []byte, whole bool) {
	c.to.mu.Lock()
	defer c.to.mu.Unlock()
	if len(c.chunks) == 0 {
		return nil, c.whole
	}
	chunk = c.chunks[0]
	c.chunks = c.chunks[1:]
	c.to.free(len(chunk))
	return chunk, false
}

// end frees what was not written.
func (c *streamedCopy) end() {
	c.to.mu.Lock()
	defer c.to.mu.Unlock()
	c.over = true
	left := 0
	for _, chunk := range c.chunks {
		left += len(chunk)
	}
	c.chunks = nil
	c.to.free(left)
}

// drop ends a copy alone, and counts it once: before it is ended, as the one who writes it counts its end, too.
func (c *streamedCopy) drop(cause dropCause) {
	c.counts.Do(func() { c.w.p.drops.add(c.w.topic, cause) })
	c.cancel()
	c.end()
}

// offer queues a chunk. Where there is no room it returns what to wait for.
func (c *streamedCopy) offer(chunk []byte) (cause dropCause, room <-chan struct{}) {
	opts := &c.to.conn.rt.opts
	c.to.mu.Lock()
	defer c.to.mu.Unlock()
	switch {
	case c.over:
		return unsent, nil
	case len(chunk) > opts.Limits.SubscriberBufferBytes-c.to.bytes:
		cause = overBytes
	case len(c.chunks) >= opts.EndpointQueue:
		cause = overMessages
	default:
		c.chunks = append(c.chunks, chunk)
		c.to.bytes += len(chunk)
		c.signal()
		return notDropped, nil
	}
	if c.to.room == nil {
		c.to.room = make(chan struct{})
	}
	return cause, c.to.room
}

func (c *streamedCopy) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// WriteNow is WriteWithin without any patience.
func (w *Publication) WriteNow(chunk []byte) (int, error) { return w.WriteWithin(chunk, 0) }

// WriteWithin queues a chunk for all copies and returns how many there are left. It waits at most limit for those that have no room, and then drops the ones that still have
// none. The chunk is the caller's again. A chunk larger than Limits.SubscriberBufferBytes fails with ErrLimitExceeded and changes nothing.
func (w *Publication) WriteWithin(chunk []byte, limit time.Duration) (int, error) {
	if w.done.Load() || w.ctx.Err() != nil {
		return 0, opError("publish", w.p.e.path, ErrClosed)
	}
	if len(chunk) > w.p.l.rt.opts.Limits.SubscriberBufferBytes {
		return 0, opError("publish", w.p.e.path, ErrLimitExceeded)
	}
	if len(chunk) == 0 {
		return len(w.copies), nil
	}
	own := slices.Clone(chunk)
	var slow []*streamedCopy
	w.copies = slices.DeleteFunc(w.copies, func(c *streamedCopy) bool {
		cause, room := c.offer(own)
		if room != nil {
			slow = append(slow, c)
			return false
		}
		return cause != notDropped
	})
	if len(slow) == 0 {
		return len(w.copies), nil
	}
	ctx, cancel := context.WithTimeout(w.ctx, limit)
	defer cancel()
	for _, c := range slow {
		if !c.offerUntil(ctx, own) {
			w.copies = slices.DeleteFunc(w.copies, func(o *streamedCopy) bool { return o == c })
		}
	}
	return len(w.copies), nil
}

// offerUntil queues a chunk before ctx ends, or drops the copy.
func (c *streamedCopy) offerUntil(ctx context.Context, chunk []byte) bool {
	for {
		cause, room := c.offer(chunk)
		switch {
		case cause == notDropped:
			return true
		case room == nil:
			return false
		}
		select {
		case <-room:
		case <-c.ctx.Done():
		case <-ctx.Done():
			c.drop(cause)
			return false
		}
	}
}

// Finish ends the message, and returns for how many subscribers. What is queued goes out; it does not wait.
func (w *Publication) Finish() (int, error) {
	if w.ctx.Err() != nil || !w.done.CompareAndSwap(false, true) {
		return 0, opError("finish", w.p.e.path, ErrClosed)
	}
	n := 0
	for _, c := range w.copies {
		c.to.mu.Lock()
		if !c.over {
			c.whole = true
			n++
			c.signal()
		}
		c.to.mu.Unlock()
	}
	w.leave()
	return n, nil
}

// Cancel abandons all copies: no subscriber reads io.EOF. After Finish it does nothing.
func (w *Publication) Cancel() {
	if w.done.CompareAndSwap(false, true) {
		w.cancel()
	}
}
