package weida

import (
	"context"
	"slices"
	"sync"

	"github.com/weir-agent/weir/weida/wire"
)

// Publisher sends a copy of each message to every peer that has subscribed to its path with a filter that selects the message's topic. It never waits for any
// of them: each has a queue of its own, bounded by Options.EndpointQueue and Limits.SubscriberBufferBytes, and a copy that does not fit is dropped and counted.
// Its methods may be called by several goroutines at once.
type Publisher struct {
	l     *Listener
	e     *endpoint
	drops dropTable

	mu   sync.Mutex // holds messages in the order of their numbers until every copy is queued
	last map[string]uint64
}

// Publisher claims a path to publish at. Whoever subscribed to it before is a subscriber from now on. It fails as Acceptor does.
func (l *Listener) Publisher(path string) (*Publisher, error) {
	e, err := l.ns.register(path, routePublisher, 0)
	if err != nil {
		return nil, err
	}
	return &Publisher{l: l, e: e, drops: dropTable{topics: l.rt.opts.Limits.MaxSequenceScopes}}, nil
}

// Path is the path that was claimed.
func (p *Publisher) Path() string { return p.e.path }

// Close gives the path back. Copies that are queued go out. It is idempotent and always returns nil.
func (p *Publisher) Close() error {
	p.e.close()
	return nil
}

// Flush waits until the copies of whole messages that are queued were written to their links or dropped, until ctx ends.
func (p *Publisher) Flush(ctx context.Context) error {
	s := &p.l.ns.subs
	s.mu.RLock()
	members := slices.Clone(s.byPath[p.e.path])
	s.mu.RUnlock()
	for _, m := range members {
		if err := m.flushed(ctx); err != nil {
			return opError("flush", p.e.path, err)
		}
	}
	return nil
}

// Subscribers is how many peers have subscribed to the path.
func (p *Publisher) Subscribers() int {
	s := &p.l.ns.subs
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.byPath[p.e.path])
}

// Dropped is how many copies were dropped.
func (p *Publisher) Dropped() Drops { return p.drops.total() }

// DroppedOn is how many copies were dropped of messages on a topic. It is kept for at most Limits.MaxSequenceScopes topics, those that were the first to lose one.
func (p *Publisher) DroppedOn(topic string) Drops { return p.drops.on(topic) }

// check fails if nothing can be published, or no copy could be made of a message.
func (p *Publisher) check(meta *Meta) error {
	select {
	case <-p.e.closed:
		return ErrClosed
	default:
	}
	switch {
	case p.l.rt.draining.Load():
		return ErrClosed
	case len(meta.Report.Levels) > 0:
		return ErrUnsupported // there would be as many reports as copies, and nobody to read them
	}
	_, err := pack(p.e.path, meta, nil)
	return err
}

// number returns the number of the next message on a topic, which all copies bear on links that negotiated ordering, so that one that is dropped leaves
// a gap. p.mu is held.
func (p *Publisher) number(topic string) wire.Opt[uint64] {
	opts := &p.l.rt.opts
	if opts.Offered.Ordering == wire.OrderNone {
		return wire.Opt[uint64]{}
	}
	last, known := p.last[topic]
	if !known && len(p.last) >= opts.Limits.MaxSequenceScopes {
		return wire.Opt[uint64]{}
	}
	if p.last == nil {
		p.last = make(map[string]uint64)
	}
	p.last[topic] = last + 1
	return wire.Some(last + 1)
}

// joinedBytes is the longest payload that is copied behind the header of each copy, to be written at once; a longer one is shared by all.
const joinedBytes = 1024

// pack returns the parcel of a message to a path on a link. body must not change any more.
func pack(path string, meta *Meta, body []byte) (parcel, error) {
	header := meta.header(path, 0)
	const headerGuess = 128
	p := parcel{bytes: len(body), topic: meta.Topic}
	var err error
	if p.head, err = wire.AppendData(make([]byte, 0, headerGuess+len(path)+len(meta.Topic)+min(len(body), joinedBytes)), &header, wire.DefaultMaxHeaderBytes); err != nil {
		return parcel{}, err
	}
	if len(body) <= joinedBytes {
		p.head = append(p.head, body...)
	} else {
		p.rest = body
	}
	return p, nil
}

// headBytes is how long the header is.
func (p *parcel) headBytes() uint64 { return uint64(len(p.head) + len(p.rest) - p.bytes) }

// edition is a message's copies, which are made when they are first needed: with a number and without.
type edition struct {
	path     string
	meta     Meta
	body     []byte
	own      bool // body is a copy
	sequence wire.Opt[uint64]

	plain, numbered parcel
}

// parcel returns a copy for a link. The header is longer than the link allows if that fails.
func (e *edition) parcel(c *conn) (parcel, error) {
	into := &e.plain
	e.meta.sequence = wire.Opt[uint64]{}
	if e.sequence.Set && c.agreed.Guarantees.Ordering != wire.OrderNone {
		into, e.meta.sequence = &e.numbered, e.sequence
	}
	if into.head == nil {
		if !e.own && len(e.body) > joinedBytes {
			e.body, e.own = slices.Clone(e.body), true
		}
		var err error
		if *into, err = pack(e.path, &e.meta, e.body); err != nil {
			return parcel{}, err
		}
	}
	if into.headBytes() > c.agreed.SendMaxHeaderBytes {
		return parcel{}, wire.ErrHeaderTooLarge
	}
	return *into, nil
}

// Publish sends a message to the subscribers to meta.Topic and returns for how many it was queued. It does not wait, and body is the caller's again. A copy for which
// there is no room is dropped for that subscriber alone. A body larger than Limits.SubscriberBufferBytes fails with ErrLimitExceeded for all; a Meta that orders a report fails
// with ErrUnsupported.
func (p *Publisher) Publish(meta Meta, body []byte) (int, error) {
	if len(body) > p.l.rt.opts.Limits.SubscriberBufferBytes {
		return 0, opError("publish", p.e.path, ErrLimitExceeded)
	}
	if err := p.check(&meta); err != nil {
		return 0, opError("publish", p.e.path, err)
	}
	ed := edition{path: p.e.path, meta: meta, body: body}
	p.mu.Lock()
	defer p.mu.Unlock()
	ed.sequence = p.number(meta.Topic)
	n := 0
	s := &p.l.ns.subs
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, m := range s.byPath[p.e.path] {
		if !m.wants(meta.Topic) {
			continue
		}
		cause := unsent
		if copied, err := ed.parcel(m.conn); err == nil {
			copied.drops = &p.drops
			cause = m.put(copied)
		}
		if cause == notDropped {
			n++
		} else {
			p.drops.add(meta.Topic, cause)
		}
	}
	return n, nil
}

// Open begins a message that is streamed to those who are subscribers to meta.Topic now. ctx is its life. It fails as Publish does.
func (p *Publisher) Open(ctx context.Context, meta Meta) (*Publication, error) {
	if err := p.check(&meta); err != nil {
		return nil, opError("publish", p.e.path, err)
	}
	meta.Extensions = slices.Clone(meta.Extensions)
	w := &Publication{p: p, topic: meta.Topic}
	w.ctx, w.cancel = context.WithCancel(ctx)
	w.left.Store(1)
	p.mu.Lock()
	defer p.mu.Unlock()
	sequence := p.number(meta.Topic)
	s := &p.l.ns.subs
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, m := range s.byPath[p.e.path] {
		if m.wants(meta.Topic) {
			w.copies = append(w.copies, newStreamedCopy(w, m, meta, sequence))
		}
	}
	return w, nil
}
