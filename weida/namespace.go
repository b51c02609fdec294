package weida

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/weir-agent/weir/weida/transport"
	"github.com/weir-agent/weir/weida/wire"
)

// namespace is which endpoints there are, by path. All bindings of a listener share one.
type namespace struct {
	mu     sync.RWMutex
	byPath map[string]*endpoint
	closed bool
	done   chan struct{} // closed with the namespace

	subs subscriptions
}

func newNamespace() *namespace {
	return &namespace{byPath: make(map[string]*endpoint), done: make(chan struct{}), subs: subscriptions{byPath: make(map[string][]*member)}}
}

func (n *namespace) find(path string) *endpoint {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.byPath[path]
}

// register claims a path for an endpoint with a queue of the depth given.
func (n *namespace) register(path string, kind routeKind, depth int) (*endpoint, error) {
	return n.claim(&endpoint{path: path, kind: kind, queue: make(chan Incoming, depth)})
}

// claim claims the path of an endpoint for it.
func (n *namespace) claim(e *endpoint) (*endpoint, error) {
	path := e.path
	if err := CheckPath(path); err != nil {
		return nil, opError("register", path, err)
	}
	e.ns, e.closed = n, make(chan struct{})
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.closed:
		return nil, opError("register", path, ErrClosed)
	case n.byPath[path] != nil:
		return nil, opError("register", path, ErrAlreadyRegistered)
	}
	n.byPath[path] = e
	return e, nil
}

// close closes every endpoint and registers no more.
func (n *namespace) close() {
	n.mu.Lock()
	if !n.closed {
		n.closed = true
		close(n.done)
	}
	all := slices.Collect(maps.Values(n.byPath))
	n.mu.Unlock()
	for _, e := range all {
		e.close()
	}
}

// endpoint is a path with the queue of what has arrived there and was not yet taken.
type endpoint struct {
	ns     *namespace
	path   string
	kind   routeKind
	queue  chan Incoming
	closed chan struct{}
	once   sync.Once

	topics bool               // what arrives is numbered by topic, as a publisher does
	told   bool               // subscriptions at the path are told as Incoming
	joined func(c *conn)      // is called when somebody has subscribed; may be nil
	admit  func(c *conn) bool // says whether a link may send here; nil admits all
}

// put queues what has arrived, waiting while the queue is full. This is where back-pressure arises: nobody reads the stream meanwhile. What comes to
// a closed endpoint is refused. It reports whether it was queued, which it is not when gone is closed first.
func (e *endpoint) put(in Incoming, gone <-chan struct{}) bool {
	select {
	case e.queue <- in:
		select {
		case <-e.closed:
			e.refuseQueued() // it may have come behind close's own
		default:
		}
		return true
	case <-e.closed:
		in.refuse(transport.CodeUnknownEndpoint, wire.CodeUnknownEndpoint)
	case <-gone:
	}
	return false
}

// take returns what has arrived first.
func (e *endpoint) take(ctx context.Context) (Incoming, error) {
	return takeFrom(ctx, e.queue, e.closed, e.path)
}

// takeFrom takes from the queue of one endpoint or several until closed is closed or ctx ends.
func takeFrom(ctx context.Context, queue <-chan Incoming, closed <-chan struct{}, name string) (Incoming, error) {
	select {
	case in := <-queue:
		return in, nil
	default:
	}
	select {
	case in := <-queue:
		return in, nil
	case <-closed:
		return Incoming{}, opError("accept", name, ErrClosed)
	case <-ctx.Done():
		return Incoming{}, opError("accept", name, context.Cause(ctx))
	}
}

// close gives the path back and refuses what waits.
func (e *endpoint) close() {
	e.once.Do(func() {
		e.ns.mu.Lock()
		delete(e.ns.byPath, e.path)
		e.ns.mu.Unlock()
		close(e.closed)
		e.refuseQueued()
	})
}

func (e *endpoint) refuseQueued() {
	for {
		select {
		case in := <-e.queue:
			in.refuse(transport.CodeUnknownEndpoint, wire.CodeUnknownEndpoint)
		default:
			return
		}
	}
}

// Incoming is what an Acceptor yields: one of its fields is set, and the others are nil.
type Incoming struct {
	// Transfer is a one-way transfer.
	Transfer *IncomingTransfer
	// Request is an exchange.
	Request *IncomingRequest
	// Subscription is news of a subscription, which comes to a QueueAcceptor alone.
	Subscription *SubscriptionEvent
}

func (in Incoming) refuse(stop uint64, answer wire.ErrorCode) {
	if in.Transfer != nil {
		in.Transfer.stop(stop)
	}
	if in.Request != nil {
		in.Request.body.stop(stop)
		in.Request.refuse(answer, "")
	}
}
