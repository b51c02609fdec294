package broker

import (
	"context"
	"errors"
	"slices"

	"github.com/weir-agent/weir/weida"
)

// consumer is a link with subscriptions to a queue. One goroutine writes to it, so that a slow one delays nobody else; what waits for it is bounded by
// Config.MaxUnsettled for each of its subscriptions.
type consumer struct {
	id   ConsumerID
	link *weida.Consumer
	wake chan struct{} // holds one token while queue may hold something
	end  context.CancelFunc

	// Guarded by the lock of the served queue.
	queue   []Delivery
	watched map[*weida.Cursors]string // the reports that are waited for, and the filters of their deliveries
}

// subscription takes news of a subscription.
func (s *served) subscription(ctx context.Context, e *weida.SubscriptionEvent) {
	s.update(func(q *Queue) {
		c := s.consumer(ctx, e.Consumer)
		key := Key{Consumer: c.id, Filter: e.Filter}
		switch e.Kind {
		case weida.Subscribed:
			if err := q.Subscribe(key); err != nil {
				s.log.Warn("a subscription is not served", "peer", e.Consumer.Peer().String(), "filter", e.Filter, "error", err)
			}
		case weida.Granted:
			q.Grant(key, e.Limit)
		case weida.Unsubscribed:
			s.takeBack(c, func(k Key) bool { return k == key })
			q.Unsubscribe(key)
			c.unwatch(e.Filter)
		case weida.ConsumerGone:
			s.takeBack(c, func(Key) bool { return true })
			q.Close(c.id)
			c.end()
			delete(s.consumers, e.Consumer)
			delete(s.byID, c.id)
		}
	})
}

// consumer returns what is known of a link, or makes it and its writer. The lock is held.
func (s *served) consumer(ctx context.Context, link *weida.Consumer) *consumer {
	c := s.consumers[link]
	if c != nil {
		return c
	}
	s.lastID++
	c = &consumer{id: s.lastID, link: link, wake: make(chan struct{}, 1), watched: map[*weida.Cursors]string{}}
	ctx, c.end = context.WithCancel(ctx)
	s.consumers[link], s.byID[c.id] = c, c
	s.work.Go(func() { s.write(ctx, c) })
	return c
}

// unwatch turns away the reports on the deliveries of a subscription that has ended: they are the queue's again, and a consumer that subscribes again and again must not
// pile them up. A report that has begun is heard to its end. The lock is held.
func (c *consumer) unwatch(filter string) {
	for cursors, f := range c.watched {
		if f == filter {
			_ = cursors.Close() // it always returns nil
		}
	}
}

// takeBack gives deliveries that were not begun back to the queue as never made. The lock is held.
func (s *served) takeBack(c *consumer, match func(Key) bool) {
	var back []Delivery
	c.queue = slices.DeleteFunc(c.queue, func(d Delivery) bool {
		if match(d.Key) {
			back = append(back, d)
			return true
		}
		return false
	})
	for _, d := range back {
		s.q.Failed(d.Seq, d.Attempt)
	}
}

// enqueue hands a delivery to the writer of its consumer. The lock is held.
func (s *served) enqueue(d Delivery) {
	c := s.byID[d.Key.Consumer]
	if c == nil { // its subscriptions are gone, and the message is back in its place
		return
	}
	c.queue = append(c.queue, d)
	poke(c.wake)
}

// write writes what is handed to a consumer, until ctx ends.
func (s *served) write(ctx context.Context, c *consumer) {
	for {
		s.mu.Lock()
		var d Delivery
		some := len(c.queue) > 0
		if some {
			d = c.queue[0]
			c.queue[0] = Delivery{}
			c.queue = c.queue[1:]
		}
		s.mu.Unlock()
		if some {
			s.deliver(ctx, c, d)
			continue
		}
		select {
		case <-c.wake:
		case <-ctx.Done():
			return
		}
	}
}

// deliver writes one delivery and has its report watched.
func (s *served) deliver(ctx context.Context, c *consumer, d Delivery) {
	cursors, err := send(ctx, c.link, d)
	if err != nil {
		s.log.Debug("a delivery could not be written", "peer", c.link.Peer().String(), "error", err)
		s.update(func(q *Queue) { s.notWritten(q, d, err) })
		return
	}
	s.mu.Lock()
	s.totals.Delivered++
	c.watched[cursors] = d.Key.Filter
	if _, subscribed := s.q.Delivered(d.Key); !subscribed && s.byID[c.id] != nil {
		c.unwatch(d.Key.Filter) // the subscription has ended meanwhile
	}
	s.mu.Unlock()
	s.work.Go(func() {
		s.watch(ctx, d.Seq, d.Attempt, cursors)
		s.mu.Lock()
		delete(c.watched, cursors)
		s.mu.Unlock()
	})
}

// notWritten gives a delivery back that could not be written. One that the consumer refused in the middle was an attempt: it counts, so that a message that nobody
// takes dies, and it goes out again at once, since nothing else need ever happen in the queue. The lock is held.
func (s *served) notWritten(q *Queue, d Delivery, err error) {
	if !errors.Is(err, weida.ErrRejected) {
		q.Failed(d.Seq, d.Attempt)
	} else if q.Requeue(d.Seq, d.Attempt) {
		s.totals.Requeued++
	}
}

// send writes a message to a consumer and returns the report that was ordered on it.
func send(ctx context.Context, link *weida.Consumer, d Delivery) (*weida.Cursors, error) {
	m := d.Message
	meta := weida.Meta{
		ContentType: m.ContentType, ContentLen: uint64(len(m.Body)), Topic: m.Topic,
		Report: weida.ReportOrder{Levels: []weida.Level{weida.LevelProcessed}}, DeliveryAttempt: d.Attempt,
	}
	if trace, err := weida.ParseTraceparent(m.TraceParent); err == nil {
		trace.State = m.TraceState
		meta.Trace = trace
	}
	if m.ID != (ID{}) {
		meta.Extensions = []weida.Extension{{Key: RecordIDExtension, Value: string(m.ID[:])}}
	}
	t, err := link.Open(ctx, meta)
	if err != nil {
		return nil, err
	}
	defer t.Cancel()
	_, err = t.Write(m.Body)
	if err == nil {
		var receipt *weida.Delivery
		if receipt, err = t.Finish(); err == nil {
			receipt.Discard()
			return t.Cursors(), nil
		}
	}
	_ = t.Cursors().Close() // it always returns nil
	return nil, err
}

// watch settles a delivery when its consumer reports it Processed, at whatever offset, and gives it back when the report, or the link, ends without that.
func (s *served) watch(ctx context.Context, seq Seq, attempt uint64, cursors *weida.Cursors) {
	defer func() { _ = cursors.Close() }() // it always returns nil
	for {
		if offset, ok := cursors.Offset(weida.LevelProcessed); ok {
			s.update(func(q *Queue) {
				if q.Settle(seq) {
					s.totals.Settled++
					s.relay(seq, true, offset)
				}
			})
			return
		}
		if cursors.Changed(ctx) != nil {
			s.update(func(q *Queue) {
				if q.Requeue(seq, attempt) {
					s.totals.Requeued++
				}
			})
			return
		}
	}
}
