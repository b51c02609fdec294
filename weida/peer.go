package weida

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/weir-agent/weir/weida/transport"
)

// Peer opens transfers and exchanges to the peers that it is connected to, in turn. It is the dialling side without a pattern; Requester and Pusher are the
// same with one. Its methods may be called by several goroutines at once.
type Peer struct{ set *peerSet }

// Requester sends requests to the peers that it is connected to, in turn. Its methods may be called by several goroutines at once, and any number of
// requests may be under way.
type Requester struct{ set *peerSet }

// Peer returns a peer that is not connected to anybody. Close frees it.
func (rt *Runtime) Peer(terms ClientTLS) *Peer { return &Peer{rt.newPeerSet(terms)} }

// Requester returns a requester that is not connected to anybody. Close frees it.
func (rt *Runtime) Requester(terms ClientTLS) *Requester { return &Requester{rt.newPeerSet(terms)} }

// Connect dials an address, waits until both sides have agreed, and keeps the link up from then on: when it is lost it is dialled again as Options.Reconnect
// says, to the same key. A first dial that fails returns its error and leaves nothing behind. To connect to an address again does nothing,
// unless it was given up.
func (p *Peer) Connect(ctx context.Context, url string) error { return p.set.connect(ctx, url) }

// Disconnect closes the link to an address and dials it no more.
func (p *Peer) Disconnect(url string) error { return p.set.disconnect(url) }

// PeerCount is how many links are up.
func (p *Peer) PeerCount() int { return p.set.live() }

// Events returns a reader of what happens to the links from now on.
func (p *Peer) Events() *Events { return p.set.events.reader() }

// Open opens a one-way transfer to the next live peer, waiting for one if all are down. ctx is the life of the transfer. It fails with
// ErrNotConnected if Connect never succeeded, and with the cause of the last loss if every peer was given up or Options.SendTimeout has passed.
func (p *Peer) Open(ctx context.Context, meta Meta) (*OutgoingTransfer, error) {
	t, err := p.set.open(ctx, &meta)
	return t, opened(err)
}

// OpenBi opens an exchange with the next live peer, as Open does a transfer: the request to write, and the reply to receive, at the same time if need be.
func (p *Peer) OpenBi(ctx context.Context, meta Meta) (*OutgoingTransfer, *ReplyStream, error) {
	t, r, err := p.set.openBi(ctx, &meta, true)
	return t, r, opened(err)
}

// Close closes the links. What is under way on them fails. It is idempotent and always returns nil.
func (p *Peer) Close() error {
	p.set.close(transport.CodeNoError, "")
	return nil
}

// Connect is as Peer's.
func (r *Requester) Connect(ctx context.Context, url string) error { return r.set.connect(ctx, url) }

// Disconnect is as Peer's.
func (r *Requester) Disconnect(url string) error { return r.set.disconnect(url) }

// PeerCount is how many links are up.
func (r *Requester) PeerCount() int { return r.set.live() }

// Events returns a reader of what happens to the links from now on.
func (r *Requester) Events() *Events { return r.set.events.reader() }

// Open opens an exchange with the next live peer, as Peer.OpenBi does.
func (r *Requester) Open(ctx context.Context, meta Meta) (*OutgoingTransfer, *ReplyStream, error) {
	t, reply, err := r.set.openBi(ctx, &meta, true)
	return t, reply, opened(err)
}

// inlineRequest is the longest body that Request sends before it looks for the reply. A longer one might wait for a replier that waits for its reply to be read.
const inlineRequest = 64 << 10

// Request sends a whole request and returns the reply once it has begun. ctx is the life of both. A body of more than 64 KiB is copied, as it may still
// be on its way then; Open streams without a copy.
//
// It fails as Open does; with what the replier said in place of a reply; with ErrConnectionLost if the link ended before the request was sent, and with
// ErrIndeterminate if it ended later.
func (r *Requester) Request(ctx context.Context, meta Meta, body []byte) (*IncomingTransfer, error) {
	t, reply, err := r.set.openBi(ctx, &meta, false)
	if err != nil {
		return nil, opened(err)
	}
	if len(body) > inlineRequest {
		body = slices.Clone(body)
	}
	return r.set.rt.ask(t, reply, body)
}

// ask sends a whole request and waits for the reply. A body of more than inlineRequest bytes may be read until later.
func (rt *Runtime) ask(t *OutgoingTransfer, reply *ReplyStream, body []byte) (*IncomingTransfer, error) {
	if len(body) <= inlineRequest {
		if err := t.sendRequest(body); err != nil {
			_ = reply.Close() // it always returns nil
			return nil, err
		}
		return reply.Recv()
	}
	sent := make(chan error, 1)
	if !rt.spawn(func() { sent <- t.sendRequest(body) }) {
		t.Cancel()
		_ = reply.Close()
		return nil, opened(ErrClosed)
	}
	in, err := reply.Recv()
	if err == nil {
		return in, nil
	}
	if !errors.Is(err, ErrIndeterminate) {
		t.Cancel() // nobody is interested any more
		return nil, err
	}
	// The link has ended, so the write ends, too, and tells whether that was before the request's end.
	if lost := <-sent; lost != nil {
		return nil, lost
	}
	return nil, err
}

// sendRequest writes a whole request. A receiver that does not want all of it may answer all the same, so its refusal is no error here.
func (t *OutgoingTransfer) sendRequest(body []byte) error {
	defer t.Cancel()
	var err error
	if len(body) > 0 {
		_, err = t.Write(body)
	}
	if err == nil {
		_, err = t.Finish()
	}
	if _, stopped := errors.AsType[*transport.StopError](err); stopped {
		return nil
	}
	return err
}

// Close closes the links. What is under way on them fails. It is idempotent and always returns nil.
func (r *Requester) Close() error {
	r.set.close(transport.CodeNoError, "")
	return nil
}

// opened says of an error that it came of an open.
func opened(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("open: %w", err)
}
