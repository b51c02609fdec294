package weida

import (
	"context"
	"slices"
	"sync"

	"github.com/weir-agent/weir/weida/transport"
	"github.com/weir-agent/weir/weida/wire"
)

// Subscriber receives from the publishers, or the queues, that it is connected to what its filters select. Its methods may be called by several goroutines at once.
//
// A filter is split at '.' into segments: "*" stands for one segment, "#" at the end for any number of them, everything else for itself, and the empty filter for every topic.
// Filters go to every peer, again after each redial. Nothing confirms a subscription, and what is published while a link is down is missed.
type Subscriber struct {
	set   *peerSet
	queue chan Incoming

	mu         sync.Mutex
	filters    []string // in the order in which they came
	announcers map[*announcer]struct{}
}

// Subscriber returns a subscriber that is not connected to anybody and has no filter. Close frees it.
func (rt *Runtime) Subscriber(terms ClientTLS) *Subscriber {
	s := &Subscriber{set: rt.newPeerSet(terms), queue: make(chan Incoming, rt.opts.EndpointQueue), announcers: make(map[*announcer]struct{})}
	s.set.attach = s.attach
	return s
}

// Connect is as Peer's. The link is up when the filters were sent. Over a Unix socket it fails with ErrUnsupported where Limits.MaxParkedReverse is less than 0, as nothing could come.
func (s *Subscriber) Connect(ctx context.Context, url string) error { return s.set.connect(ctx, url) }

// Disconnect is as Peer's.
func (s *Subscriber) Disconnect(url string) error { return s.set.disconnect(url) }

// PeerCount is how many links are up.
func (s *Subscriber) PeerCount() int { return s.set.live() }

// Events returns a reader of what happens to the links from now on.
func (s *Subscriber) Events() *Events { return s.set.events.reader() }

// Recv returns the next transfer from any peer once it has begun; its payload may be long in coming. It fails with ErrClosed after Close, or with ctx's error.
func (s *Subscriber) Recv(ctx context.Context) (*IncomingTransfer, error) {
	in, err := takeFrom(ctx, s.queue, s.set.ns.done, "subscriber")
	return in.Transfer, err
}

// Subscribe adds a filter. It does not wait. It fails with ErrInvalidFilter, or with ErrLimitExceeded if there are Limits.MaxSubscriptions already.
func (s *Subscriber) Subscribe(filter string) error {
	if err := checkFilter(filter); err != nil {
		return opError("subscribe", filter, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Contains(s.filters, filter) {
		return nil
	}
	if len(s.filters) >= s.set.rt.opts.Limits.MaxSubscriptions {
		return opError("subscribe", filter, ErrLimitExceeded)
	}
	s.filters = append(s.filters, filter)
	s.wakeAll()
	return nil
}

// Unsubscribe removes a filter; one that is not there is ignored. It does not wait, and what is on its way still comes.
func (s *Subscriber) Unsubscribe(filter string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.filters = slices.DeleteFunc(s.filters, func(f string) bool { return f == filter })
	s.wakeAll()
}

// Grant lets the queues at the live peers deliver on a filter up to limit messages in all, counted from the beginning of each one's subscription. Only a higher limit than before
// changes anything. After a redial a subscription begins anew with no credit: whoever reads Connected from Events grants again.
// It does not wait. It fails with ErrInvalidFilter, ErrNotConnected if no peer is live, or ErrNotSubscribed.
func (s *Subscriber) Grant(filter string, limit uint64) error {
	if err := checkFilter(filter); err != nil {
		return opError("grant", filter, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.filters, filter) {
		return opError("grant", filter, ErrNotSubscribed)
	}
	if len(s.announcers) == 0 {
		return opError("grant", filter, ErrNotConnected)
	}
	for a := range s.announcers {
		a.grants[filter] = max(a.grants[filter], limit)
	}
	s.wakeAll()
	return nil
}

// wakeAll has what was changed announced. s.mu is held.
func (s *Subscriber) wakeAll() {
	for a := range s.announcers {
		select {
		case a.wake <- struct{}{}:
		default:
		}
	}
}

// Close closes the links. It is idempotent and always returns nil.
func (s *Subscriber) Close() error {
	s.set.close(transport.CodeNoError, "")
	return nil
}

func checkFilter(filter string) error {
	if len(filter) > wire.MaxFilterBytes || wire.CheckFilter(filter) != nil {
		return ErrInvalidFilter
	}
	return nil
}

// announcer keeps a peer informed of filters and grants, one frame after the other.
type announcer struct {
	s    *Subscriber
	c    *conn
	path string
	wake chan struct{} // holds a token when something may have changed

	sent   map[string][]heard // what tells that the peer has the SUBSCRIBE and the CREDITs, as far as it may not have them yet, by filter; the goroutine's own
	grants map[string]uint64  // to be sent, by filter; guarded by the subscriber's lock
}

// attach makes a new link a subscriber's: what comes at the path is queued, and the filters are sent.
func (s *Subscriber) attach(ctx context.Context, c *conn, path string) error {
	if err := c.checkParked(); err != nil {
		return err
	}
	if err := s.route(path); err != nil {
		return err
	}
	a := &announcer{s: s, c: c, path: path, wake: make(chan struct{}, 1), sent: make(map[string][]heard), grants: make(map[string]uint64)}
	s.mu.Lock()
	s.announcers[a] = struct{}{}
	s.mu.Unlock()
	err := a.catchUp(ctx)
	if err == nil && !s.set.rt.spawn(a.run) {
		err = ErrClosed
	}
	if err != nil {
		a.leave()
	}
	return err
}

// route claims a path for what publishers send, unless it is claimed for another link already.
func (s *Subscriber) route(path string) error {
	ns := s.set.ns
	s.mu.Lock()
	defer s.mu.Unlock()
	if ns.find(path) != nil {
		return nil
	}
	_, err := ns.claim(&endpoint{path: path, kind: routePuller, queue: s.queue, topics: true})
	return err
}

func (a *announcer) leave() {
	a.s.mu.Lock()
	defer a.s.mu.Unlock()
	delete(a.s.announcers, a)
}

// run announces what changes until the link has ended.
func (a *announcer) run() {
	defer a.leave()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for {
		select {
		case <-a.wake:
		case <-a.c.link.Done():
			return
		}
		if err := a.catchUp(ctx); err != nil {
			return // the link has ended, or cannot be spoken on
		}
	}
}

// catchUp sends what the peer does not know yet.
func (a *announcer) catchUp(ctx context.Context) error {
	a.s.mu.Lock()
	want := slices.Clone(a.s.filters)
	grants := a.grants
	a.grants = make(map[string]uint64)
	a.s.mu.Unlock()
	for filter, was := range a.sent {
		if slices.Contains(want, filter) {
			continue
		}
		// Streams overtake each other, so an UNSUBSCRIBE waits until what it takes back is there. What the peer says of it does not matter.
		for _, f := range was {
			if err := f.wait(ctx); err != nil {
				return err
			}
		}
		unsubscribed, err := a.frame(ctx, wire.KindUnsubscribe, filter, 0)
		if err != nil {
			return err
		}
		delete(a.sent, filter)
		if err := unsubscribed.wait(ctx); err != nil { // and a later SUBSCRIBE until it is there
			return err
		}
	}
	for _, filter := range want {
		if a.sent[filter] != nil {
			continue
		}
		if err := a.note(ctx, wire.KindSubscribe, filter, 0); err != nil {
			return err
		}
	}
	for filter, limit := range grants {
		if a.sent[filter] == nil {
			continue // it was taken back
		}
		if err := a.note(ctx, wire.KindCredit, filter, limit); err != nil {
			return err
		}
	}
	return nil
}

// note sends a frame on a filter and keeps what tells that the peer has it.
func (a *announcer) note(ctx context.Context, kind wire.Kind, filter string, limit uint64) error {
	sent, err := a.frame(ctx, kind, filter, limit)
	if err != nil {
		return err
	}
	a.sent[filter] = append(slices.DeleteFunc(a.sent[filter], heard.settled), sent)
	return nil
}

// frame sends a frame on a filter.
func (a *announcer) frame(ctx context.Context, kind wire.Kind, filter string, limit uint64) (heard, error) {
	sub := wire.Subscription{Endpoint: a.path, Filter: filter}
	most := a.c.agreed.SendMaxHeaderBytes
	var b []byte
	var err error
	switch kind {
	case wire.KindSubscribe:
		b, err = wire.AppendSubscribe(nil, sub, most)
	case wire.KindUnsubscribe:
		b, err = wire.AppendUnsubscribe(nil, sub, most)
	default:
		b, err = wire.AppendCredit(nil, wire.Credit{Subscription: sub, Limit: limit}, most)
	}
	if err != nil {
		return heard{}, err
	}
	return a.c.sendControl(ctx, b)
}
