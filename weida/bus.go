package weida

import (
	"context"
	"slices"
	"sync"

	"github.com/weir-agent/weir/weida/transport"
)

// BusMember is one of several that all hear each other: each is bound at a path of its own and dials the others. What one sends goes to those that it
// has dialled, and no further. Like a Publisher it never waits: each member has a queue, bounded by Options.EndpointQueue and Limits.SubscriberBufferBytes, and a copy that
// does not fit, or whose member is away, is dropped and counted. Its methods may be called by several goroutines at once.
type BusMember struct {
	e     *endpoint
	set   *peerSet
	drops dropTable

	mu sync.Mutex // holds messages in the order of their numbers until every copy is queued
}

// Bus claims a path for a member of a bus, who dials the others on terms. It fails as Acceptor does. Close frees it.
func (l *Listener) Bus(path string, terms ClientTLS) (*BusMember, error) {
	e, err := l.ns.register(path, routePuller, l.rt.opts.EndpointQueue)
	if err != nil {
		return nil, err
	}
	b := &BusMember{e: e, set: l.rt.newPeerSet(terms), drops: dropTable{topics: l.rt.opts.Limits.MaxSequenceScopes}}
	b.set.attach = func(_ context.Context, c *conn, _ string) error {
		c.bus = &courier{conn: c}
		return nil
	}
	return b, nil
}

// Connect is as Peer's.
func (b *BusMember) Connect(ctx context.Context, url string) error { return b.set.connect(ctx, url) }

// Disconnect is as Peer's.
func (b *BusMember) Disconnect(url string) error { return b.set.disconnect(url) }

// PeerCount is how many links are up that this member has dialled.
func (b *BusMember) PeerCount() int { return b.set.live() }

// Events returns a reader of what happens to the links from now on.
func (b *BusMember) Events() *Events { return b.set.events.reader() }

// Path is the path that was claimed.
func (b *BusMember) Path() string { return b.e.path }

// Dropped is how many copies were dropped.
func (b *BusMember) Dropped() Drops { return b.drops.total() }

// Send sends a message to every other member and returns for how many it was queued. It does not wait, and body is the caller's again. That nobody was ever dialled is no error. A body larger
// than Limits.SubscriberBufferBytes fails with ErrLimitExceeded, a Meta that orders a report with ErrUnsupported.
func (b *BusMember) Send(meta Meta, body []byte) (int, error) {
	n, err := b.send(meta, body)
	return n, opError("send", b.e.path, err)
}

func (b *BusMember) send(meta Meta, body []byte) (int, error) {
	switch {
	case len(body) > b.set.rt.opts.Limits.SubscriberBufferBytes:
		return 0, ErrLimitExceeded
	case len(meta.Report.Levels) > 0:
		return 0, ErrUnsupported
	}
	if _, err := pack(b.e.path, &meta, nil); err != nil {
		return 0, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	live, away, err := b.set.targets()
	if err != nil {
		return 0, err
	}
	body = slices.Clone(body)
	n := 0
	for _, p := range live {
		meta.sequence = p.conn.number(p.path)
		cause := unsent
		copied, err := pack(p.path, &meta, body)
		if err == nil && copied.headBytes() <= p.conn.agreed.SendMaxHeaderBytes {
			copied.drops = &b.drops
			cause = p.conn.bus.put(copied)
		}
		if cause == notDropped {
			n++
		}
		b.drops.add(meta.Topic, cause)
	}
	for range away {
		b.drops.add(meta.Topic, unsent)
	}
	return n, nil
}

// Recv returns the next transfer of another member once it has begun; its payload may be long in coming. It fails with ErrClosed after Close, or with ctx's error.
func (b *BusMember) Recv(ctx context.Context) (*IncomingTransfer, error) {
	in, err := b.e.take(ctx)
	return in.Transfer, err
}

// Close gives the path back and closes the links that this member has dialled. It is idempotent and always returns nil.
func (b *BusMember) Close() error {
	b.e.close()
	b.set.close(transport.CodeNoError, "")
	return nil
}
