package weida

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/weir-agent/weir/weida/transport"
)

// Pusher sends one-way messages to the peers that it is connected to, in turn. While no peer is live it holds messages in a bounded outbox, in their
// order. Its methods may be called by several goroutines at once.
type Pusher struct {
	set    *peerSet
	outbox outbox
}

// Pusher returns a pusher that is not connected to anybody. Close frees it.
func (rt *Runtime) Pusher(terms ClientTLS) *Pusher {
	p := &Pusher{set: rt.newPeerSet(terms)}
	p.outbox.room = make(chan struct{}, 1)
	p.outbox.ctx, p.outbox.cancel = context.WithCancel(context.Background())
	return p
}

// Connect is as Peer's. What is in the outbox goes out to the new peer.
func (p *Pusher) Connect(ctx context.Context, url string) error {
	err := p.set.connect(ctx, url)
	if err == nil {
		p.kick()
	}
	return err
}

// Disconnect is as Peer's.
func (p *Pusher) Disconnect(url string) error { return p.set.disconnect(url) }

// PeerCount is how many links are up.
func (p *Pusher) PeerCount() int { return p.set.live() }

// Events returns a reader of what happens to the links from now on.
func (p *Pusher) Events() *Events { return p.set.events.reader() }

// Open opens a transfer as Peer.Open does. It does not use the outbox, and its receipt tells what became of it.
func (p *Pusher) Open(ctx context.Context, meta Meta) (*OutgoingTransfer, error) {
	t, err := p.set.open(ctx, &meta)
	return t, opened(err)
}

// Send sends a whole message. That it returns nil says that the message was written to a link, or is in the outbox; what becomes of it then nobody
// tells, and it is never sent twice. Whoever must know uses Open and the receipt, or a Requester.
//
// While no peer is live the message is copied into the outbox; when that is full, Options.OutboxFull decides. It fails with ErrNotConnected if Connect never
// succeeded, with the cause of the last loss if every peer was given up, with ErrLimitExceeded for a message larger than the outbox when it
// would have to go there, and with ErrConnectionLost if the link ended while the message was being written.
func (p *Pusher) Send(ctx context.Context, meta Meta, body []byte) error {
	if p.Queued() == 0 { // otherwise it would overtake what waits
		t, err := p.tryOpen(ctx, &meta)
		if t != nil {
			return t.sendAll(body)
		}
		if err != nil {
			return opened(err)
		}
	}
	if err := p.hopeless(); err != nil {
		return opened(err)
	}
	if err := p.outbox.put(ctx, &p.set.rt.opts, meta, body); err != nil {
		return opError("send", "outbox", err)
	}
	p.kick()
	return nil
}

// tryOpen opens a transfer if a peer is live. It returns nothing if none is.
func (p *Pusher) tryOpen(ctx context.Context, meta *Meta) (*OutgoingTransfer, error) {
	for {
		c, path, _, err := p.set.turn()
		if c == nil {
			if errors.Is(err, ErrConnectionLost) {
				err = nil
			}
			return nil, err
		}
		w, err := c.link.OpenUni(ctx)
		if err == nil {
			return c.newNumbered(ctx, w, path, meta)
		}
		if c.link.Err() == nil {
			return nil, ended(ctx, err)
		}
	}
}

// hopeless is why nothing that is put into the outbox would leave it.
func (p *Pusher) hopeless() error {
	_, _, _, err := p.set.turn()
	return err
}

// kick starts a goroutine that empties the outbox, if there is something in it and none does.
func (p *Pusher) kick() {
	if p.outbox.claim() && !p.set.rt.spawn(p.empty) {
		p.outbox.unclaim()
	}
}

// empty sends what is in the outbox, in order, until it is empty or there is nobody to send it to any more.
func (p *Pusher) empty() {
	for {
		m, ok := p.outbox.front()
		if !ok {
			return
		}
		t, err := p.set.open(p.outbox.ctx, &m.meta)
		switch {
		case err == nil:
			p.outbox.pop(t.sendAll(m.body) != nil)
		case p.outbox.ctx.Err() != nil, errors.Is(err, ErrClosed), p.hopeless() != nil:
			p.outbox.unclaim() // what is left waits for another Connect
			if p.hopeless() == nil {
				p.kick() // which has come meanwhile
			}
			return
		case errors.Is(err, ErrConnectionLost):
			// Nothing of it was written, or too little to be read: it stays in front.
		default:
			p.outbox.pop(true) // it cannot be written to anybody, such as one whose header is too long
		}
	}
}

// Dropped is how many messages were discarded: at the bound of the outbox, or because the link was lost or the peer refused while the outbox was emptied.
func (p *Pusher) Dropped() uint64 {
	p.outbox.mu.Lock()
	defer p.outbox.mu.Unlock()
	return p.outbox.dropped
}

// Queued is how many messages are in the outbox.
func (p *Pusher) Queued() int {
	p.outbox.mu.Lock()
	defer p.outbox.mu.Unlock()
	return len(p.outbox.queue)
}

// Close closes the links and discards the outbox. It is idempotent and always returns nil.
func (p *Pusher) Close() error {
	p.outbox.cancel()
	p.set.close(transport.CodeNoError, "")
	return nil
}

// outbox is a queue of whole messages, bounded in number and bytes.
type outbox struct {
	ctx    context.Context // ends with the pusher
	cancel context.CancelFunc
	room   chan struct{} // holds a token when there may be room

	mu       sync.Mutex
	queue    []message
	bytes    int
	emptying bool // a goroutine empties it
	dropped  uint64
}

// message is a message that the outbox owns.
type message struct {
	meta Meta
	body []byte
}

// put copies a message to the end, as far as the bounds allow.
func (o *outbox) put(ctx context.Context, opts *Options, meta Meta, body []byte) error {
	if len(body) > opts.OutboxBytes {
		return ErrLimitExceeded
	}
	meta.Extensions = slices.Clone(meta.Extensions)
	meta.Report.Levels = slices.Clone(meta.Report.Levels)
	m := message{meta, slices.Clone(body)}
	for {
		if o.tryPut(opts, m) {
			return nil
		}
		switch opts.OutboxFull {
		case OutboxDrop:
			o.mu.Lock()
			o.dropped++
			o.mu.Unlock()
			return nil
		case OutboxReject:
			return ErrLimitExceeded
		case OutboxBlock:
		}
		select {
		case <-o.room:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-o.ctx.Done():
			return ErrClosed
		}
	}
}

func (o *outbox) tryPut(opts *Options, m message) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.queue) >= opts.OutboxMessages || o.bytes+len(m.body) > opts.OutboxBytes {
		return false
	}
	o.queue = append(o.queue, m)
	o.bytes += len(m.body)
	if len(o.queue) < opts.OutboxMessages {
		o.signal() // there may be room for another who waits
	}
	return true
}

// signal leaves a token for somebody who waits for room.
func (o *outbox) signal() {
	select {
	case o.room <- struct{}{}:
	default:
	}
}

// claim reports whether the caller is to empty the outbox.
func (o *outbox) claim() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.emptying || len(o.queue) == 0 {
		return false
	}
	o.emptying = true
	return true
}

func (o *outbox) unclaim() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.emptying = false
}

// front returns the first message, which stays there, or ends the caller's claim.
func (o *outbox) front() (message, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.queue) == 0 {
		o.emptying = false
		return message{}, false
	}
	return o.queue[0], true
}

// pop takes the first message out, and counts it if it was lost.
func (o *outbox) pop(lost bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.bytes -= len(o.queue[0].body)
	o.queue[0] = message{}
	o.queue = o.queue[1:]
	if lost {
		o.dropped++
	}
	o.signal()
}
