package weida

import (
	"context"
	"sync"

	"github.com/weir-agent/weir/weida/transport"
	"github.com/weir-agent/weir/weida/wire"
)

// DialledPair is the dialling half of a pair: it sends to one peer, through an outbox while the peer is away, and receives what that sends. Its methods may be called by
// several goroutines at once.
type DialledPair struct {
	push  *Pusher
	queue chan Incoming

	mu         sync.Mutex
	connecting bool
}

// Pair returns the dialling half of a pair, which is not connected to anybody. Close frees it.
func (rt *Runtime) Pair(terms ClientTLS) *DialledPair {
	p := &DialledPair{push: rt.Pusher(terms), queue: make(chan Incoming, rt.opts.EndpointQueue)}
	p.push.set.attach = p.attach
	return p
}

// attach makes ready for what the peer sends, and subscribes to it: so the bound half learns of this one before it has sent anything.
func (p *DialledPair) attach(ctx context.Context, c *conn, path string) error {
	if err := c.checkParked(); err != nil {
		return err
	}
	ns := p.push.set.ns
	if ns.find(path) == nil {
		if _, err := ns.claim(&endpoint{path: path, kind: routePuller, queue: p.queue}); err != nil {
			return err
		}
	}
	frame, err := wire.AppendSubscribe(nil, wire.Subscription{Endpoint: path}, c.agreed.SendMaxHeaderBytes)
	if err == nil {
		_, err = c.sendControl(ctx, frame)
	}
	return err
}

// Connect is as Pusher's. A pair has one peer: a second Connect fails with ErrLimitExceeded, unless the first peer was disconnected or given up.
func (p *DialledPair) Connect(ctx context.Context, url string) error {
	p.mu.Lock()
	taken := p.connecting || p.push.set.occupied()
	p.connecting = p.connecting || !taken
	p.mu.Unlock()
	if taken {
		return opError("connect", url, ErrLimitExceeded)
	}
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.connecting = false
	}()
	return p.push.Connect(ctx, url)
}

// occupied reports whether there is a slot that was not given up.
func (s *peerSet) occupied() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sl := range s.slots {
		if !sl.gone {
			return true
		}
	}
	return false
}

// Disconnect is as Peer's.
func (p *DialledPair) Disconnect(url string) error { return p.push.Disconnect(url) }

// PeerCount is how many links are up, 0 or 1.
func (p *DialledPair) PeerCount() int { return p.push.PeerCount() }

// Events returns a reader of what happens to the link from now on.
func (p *DialledPair) Events() *Events { return p.push.Events() }

// Open is as Pusher's.
func (p *DialledPair) Open(ctx context.Context, meta Meta) (*OutgoingTransfer, error) {
	return p.push.Open(ctx, meta)
}

// Send is as Pusher's. Another peer that was there before keeps the bound half for itself; what is sent meanwhile is refused.
func (p *DialledPair) Send(ctx context.Context, meta Meta, body []byte) error {
	return p.push.Send(ctx, meta, body)
}

// Dropped and Queued are as Pusher's.
func (p *DialledPair) Dropped() uint64 { return p.push.Dropped() }

// Queued is as Pusher's.
func (p *DialledPair) Queued() int { return p.push.Queued() }

// Recv returns the next transfer once it has begun; its payload may be long in coming. It fails with ErrClosed after Close, or with ctx's error.
func (p *DialledPair) Recv(ctx context.Context) (*IncomingTransfer, error) {
	in, err := takeFrom(ctx, p.queue, p.push.set.ns.done, "pair")
	return in.Transfer, err
}

// Close closes the link and discards the outbox. It is idempotent and always returns nil.
func (p *DialledPair) Close() error { return p.push.Close() }

// BoundPair is the bound half of a pair. The first peer that comes to its path has it for as long as its link lives; what another one sends meanwhile is refused with
// LIMIT_EXCEEDED. Its methods may be called by several goroutines at once.
type BoundPair struct {
	l *Listener
	e *endpoint

	mu      sync.Mutex
	peer    *conn
	changed chan struct{} // closed and replaced when there is another peer
}

// Pair claims a path for the bound half of a pair. It fails as Acceptor does.
func (l *Listener) Pair(path string) (*BoundPair, error) {
	p := &BoundPair{l: l, changed: make(chan struct{})}
	e, err := l.ns.claim(&endpoint{
		path: path, kind: routePuller, queue: make(chan Incoming, l.rt.opts.EndpointQueue), admit: p.admit, joined: func(c *conn) { p.admit(c) },
	})
	if err != nil {
		return nil, err
	}
	p.e = e
	return p, nil
}

// admit reports whether a link is the peer's. Where there is no live peer, it is from now on.
func (p *BoundPair) admit(c *conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.peer != c && (p.peer == nil || p.peer.link.Err() != nil) && c.link.Err() == nil {
		p.peer = c
		close(p.changed)
		p.changed = make(chan struct{})
	}
	return p.peer == c
}

// current returns the live peer, or what to wait for. Who has come while another was there takes its place.
func (p *BoundPair) current() (*conn, <-chan struct{}) {
	p.mu.Lock()
	peer, changed := p.peer, p.changed
	p.mu.Unlock()
	if peer != nil && peer.link.Err() == nil {
		return peer, nil
	}
	s := &p.l.ns.subs
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, m := range s.byPath[p.e.path] {
		if p.admit(m.conn) {
			return m.conn, nil
		}
	}
	return nil, changed
}

// Path is the path that was claimed.
func (p *BoundPair) Path() string { return p.e.path }

// Open opens a transfer to the peer, waiting for one if there is none. ctx is its life. It fails with ErrClosed or with ctx's error.
func (p *BoundPair) Open(ctx context.Context, meta Meta) (*OutgoingTransfer, error) {
	for {
		c, changed := p.current()
		switch {
		case p.l.rt.draining.Load():
			return nil, opError("open", p.e.path, ErrClosed)
		case c == nil:
			select {
			case <-changed:
			case <-p.e.closed:
				return nil, opError("open", p.e.path, ErrClosed)
			case <-ctx.Done():
				return nil, opError("open", p.e.path, context.Cause(ctx))
			}
			continue
		}
		w, err := c.link.OpenUni(ctx)
		if err == nil {
			t, err := c.newNumbered(ctx, w, p.e.path, &meta)
			return t, opened(err)
		}
		if c.link.Err() == nil {
			return nil, opened(ended(ctx, err))
		}
	}
}

// Send sends a whole message, waiting for a peer if there is none. That it returns nil says that the message was written to the link.
func (p *BoundPair) Send(ctx context.Context, meta Meta, body []byte) error {
	t, err := p.Open(ctx, meta)
	if err != nil {
		return err
	}
	return t.sendAll(body)
}

// Recv is as DialledPair's.
func (p *BoundPair) Recv(ctx context.Context) (*IncomingTransfer, error) {
	in, err := p.e.take(ctx)
	return in.Transfer, err
}

// Close gives the path back and ends the link of the peer. It is idempotent and always returns nil.
func (p *BoundPair) Close() error {
	p.e.close()
	p.mu.Lock()
	peer := p.peer
	p.mu.Unlock()
	if peer != nil {
		peer.link.Close(transport.CodeNoError, "")
	}
	return nil
}
