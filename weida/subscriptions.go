package weida

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/weir-agent/weir/weida/transport"
	"github.com/weir-agent/weir/weida/wire"
)

// subscriptions is who has subscribed to which path of a namespace, whether there is a publisher or not (weida-protocol §6.4). What one link may add to
// it is bounded by Limits.MaxSubscriptions.
type subscriptions struct {
	mu     sync.RWMutex
	byPath map[string][]*member // those with at least one filter
}

// member is a link that has subscribed to a path.
type member struct {
	courier
	path     string
	filters  []string // guarded by the lock of the subscriptions
	consumer Consumer
	known    *endpoint // the acceptor that was told of it; guarded by the link's control token
}

// wants reports whether one of the filters selects a topic. The lock of the subscriptions is held.
func (m *member) wants(topic string) bool {
	for _, f := range m.filters {
		if wire.Match(f, topic) {
			return true
		}
	}
	return false
}

// SubscriptionKind is what has happened to a subscription.
type SubscriptionKind uint8

// The kinds of a SubscriptionEvent.
const (
	// Subscribed: the consumer wants what Filter selects. It comes once for each filter until Unsubscribed.
	Subscribed SubscriptionKind = iota + 1
	// Granted: the consumer takes Limit deliveries on Filter in all, counted from the beginning of the subscription. It may come before Subscribed, and out
	// of order: the highest limit holds.
	Granted
	// Unsubscribed: the consumer wants what Filter selects no more.
	Unsubscribed
	// ConsumerGone: the consumer's link has ended, and all of its subscriptions with it. It is the last event of a consumer.
	ConsumerGone
)

// SubscriptionEvent is news of a subscription (weida-supplement §11.1).
type SubscriptionEvent struct {
	Kind     SubscriptionKind
	Consumer *Consumer
	Filter   string
	Limit    uint64
}

// Consumer is a link from which subscriptions to a path have come. The pointer is the same in all events of the link and the path. Its methods may be called by
// several goroutines at once.
type Consumer struct {
	conn *conn
	path string
}

// Peer is who is at the other end of the link.
func (c *Consumer) Peer() PeerIdentity { return c.conn.link.Info().Peer }

// Guarantees is what the link agreed on.
func (c *Consumer) Guarantees() Guarantees { return c.conn.agreed.Guarantees }

// Done is closed when the link has ended.
func (c *Consumer) Done() <-chan struct{} { return c.conn.link.Done() }

// Open opens a one-way transfer to the consumer's subscriber. It waits while the consumer's stream budget is used up; ctx is its life. It is not numbered.
func (c *Consumer) Open(ctx context.Context, meta Meta) (*OutgoingTransfer, error) {
	if c.conn.rt.draining.Load() {
		return nil, opened(ErrClosed)
	}
	w, err := c.conn.link.OpenUni(ctx)
	if err != nil {
		return nil, opened(ended(ctx, err))
	}
	t, err := newOutgoing(ctx, c.conn, w, c.path, &meta, true)
	return t, opened(err)
}

// takeControl serves a SUBSCRIBE, UNSUBSCRIBE or CREDIT. The error is why its framing was wrong.
func (c *conn) takeControl(kind wire.Kind, header []byte) error {
	var credit wire.Credit
	var err error
	if kind == wire.KindCredit {
		credit, err = wire.ParseCredit(header)
	} else {
		credit.Subscription, err = wire.ParseSubscription(header)
	}
	if err != nil {
		return err
	}
	select {
	case c.control <- struct{}{}:
	case <-c.link.Done():
		return nil
	}
	defer func() { <-c.control }()
	switch kind {
	case wire.KindSubscribe:
		c.subscribe(credit.Endpoint, credit.Filter)
	case wire.KindUnsubscribe:
		c.unsubscribe(credit.Endpoint, credit.Filter)
	default:
		c.credit(credit)
	}
	return nil
}

// member returns what is known of the peer as a subscriber to a path, or makes it. The lock of the subscriptions is held.
func (c *conn) member(path string) *member {
	m := c.members[path]
	if m == nil {
		m = &member{path: path, consumer: Consumer{c, path}}
		m.courier.conn = c
		if c.members == nil {
			c.members = make(map[string]*member)
		}
		c.members[path] = m
	}
	return m
}

// subscribe records a filter. One beyond the bound ends the link.
func (c *conn) subscribe(path, filter string) {
	s := &c.ns.subs
	s.mu.Lock()
	if m := c.members[path]; m != nil && slices.Contains(m.filters, filter) {
		s.mu.Unlock()
		return
	}
	if c.filters >= c.rt.opts.Limits.MaxSubscriptions {
		s.mu.Unlock()
		c.fail(transport.CodeLimitExceeded, fmt.Errorf("%w: too many subscriptions", ErrLimitExceeded))
		return
	}
	m := c.member(path)
	if len(m.filters) == 0 {
		s.byPath[path] = append(s.byPath[path], m)
	}
	m.filters = append(m.filters, filter)
	c.filters++
	s.mu.Unlock()
	if e := c.ns.find(path); e != nil {
		if e.joined != nil {
			e.joined(c)
		}
		if m.known == e {
			c.tell(e, m, SubscriptionEvent{Kind: Subscribed, Filter: filter})
		} else {
			c.introduce(e, m)
		}
	}
}

// introduce tells an acceptor of all of a member's subscriptions. The control token is held.
func (c *conn) introduce(e *endpoint, m *member) {
	c.ns.subs.mu.RLock()
	filters := slices.Clone(m.filters)
	c.ns.subs.mu.RUnlock()
	for _, f := range filters {
		c.tell(e, m, SubscriptionEvent{Kind: Subscribed, Filter: f})
	}
}

// tell puts an event into the queue of an acceptor that wants it. The control token is held, or the link's handlers have ended.
func (c *conn) tell(e *endpoint, m *member, event SubscriptionEvent) {
	if !e.told {
		return
	}
	event.Consumer = &m.consumer
	if e.put(Incoming{Subscription: &event}, c.link.Done()) {
		m.known = e
	}
}

// unsubscribe removes a filter. One that is not there is ignored.
func (c *conn) unsubscribe(path, filter string) {
	s := &c.ns.subs
	s.mu.Lock()
	m := c.members[path]
	i := -1
	if m != nil {
		i = slices.Index(m.filters, filter)
	}
	if i < 0 {
		s.mu.Unlock()
		return
	}
	m.filters = slices.Delete(m.filters, i, i+1)
	c.filters--
	if len(m.filters) == 0 {
		s.remove(m)
		if m.known == nil {
			delete(c.members, path)
		}
	}
	s.mu.Unlock()
	if e := c.ns.find(path); e != nil && e == m.known {
		c.tell(e, m, SubscriptionEvent{Kind: Unsubscribed, Filter: filter})
	}
}

// remove takes a member off the list of its path. s.mu is held.
func (s *subscriptions) remove(m *member) {
	left := slices.DeleteFunc(s.byPath[m.path], func(o *member) bool { return o == m })
	if len(left) == 0 {
		delete(s.byPath, m.path)
	} else {
		s.byPath[m.path] = left
	}
}

// credit tells an acceptor of a grant. Without one it is ignored (§4).
func (c *conn) credit(credit wire.Credit) {
	e := c.ns.find(credit.Endpoint)
	if e == nil || !e.told {
		return
	}
	c.ns.subs.mu.Lock()
	m := c.member(credit.Endpoint)
	c.ns.subs.mu.Unlock()
	c.tell(e, m, SubscriptionEvent{Kind: Granted, Filter: credit.Filter, Limit: credit.Limit})
}

// unsubscribeAll drops the subscriptions of a link that has ended, and tells the acceptors that know of it. It waits until they have room: those who wait
// here are no more than what the acceptors have been told of.
func (c *conn) unsubscribeAll() {
	s := &c.ns.subs
	s.mu.Lock()
	members := c.members
	c.members, c.filters = nil, 0
	for _, m := range members {
		if len(m.filters) > 0 {
			s.remove(m)
			m.filters = nil
		}
	}
	s.mu.Unlock()
	c.control <- struct{}{} // tellAll may be at work; it ends with the link
	defer func() { <-c.control }()
	for _, m := range members {
		if m.known != nil {
			m.known.put(Incoming{Subscription: &SubscriptionEvent{Kind: ConsumerGone, Consumer: &m.consumer}}, nil)
		}
	}
}

// tellAll tells a new acceptor of the subscriptions that are there.
func (n *namespace) tellAll(e *endpoint) {
	n.subs.mu.RLock()
	members := slices.Clone(n.subs.byPath[e.path])
	n.subs.mu.RUnlock()
	for _, m := range members {
		m.conn.tellNew(e, m)
	}
}

// tellNew introduces a member to an acceptor, unless its own subscriptions have done so.
func (c *conn) tellNew(e *endpoint, m *member) {
	select {
	case c.control <- struct{}{}:
	case <-c.link.Done():
		return
	}
	defer func() { <-c.control }()
	if m.known != e {
		c.introduce(e, m)
	}
}
