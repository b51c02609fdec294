package weida

import "context"

// Acceptor takes whatever arrives at a path, one-way transfers and exchanges. Over a Unix socket streams have no kind: there all of it arrives as requests, and what
// is answered to a one-way transfer reaches nobody. Its methods may be called by several goroutines at once.
type Acceptor struct{ e *endpoint }

// Puller takes the one-way transfers that arrive at a path. Its methods may be called by several goroutines at once.
type Puller struct{ e *endpoint }

// Replier takes the exchanges that arrive at a path. Its methods may be called by several goroutines at once.
type Replier struct{ e *endpoint }

// Acceptor claims a path for transfers of both kinds. It fails with ErrAlreadyRegistered or ErrInvalidEndpointPath.
func (l *Listener) Acceptor(path string) (*Acceptor, error) {
	e, err := l.ns.register(path, routeAcceptor, l.rt.opts.EndpointQueue)
	if err != nil {
		return nil, err
	}
	return &Acceptor{e}, nil
}

// QueueAcceptor claims a path for transfers of both kinds, and is told of subscriptions and grants at the path, too: what a queue is built on. News of
// subscriptions that there are already comes first. It fails as Acceptor does.
func (l *Listener) QueueAcceptor(path string) (*Acceptor, error) {
	e, err := l.ns.claim(&endpoint{path: path, kind: routeAcceptor, queue: make(chan Incoming, l.rt.opts.EndpointQueue), told: true})
	if err != nil {
		return nil, err
	}
	l.rt.spawn(func() { l.ns.tellAll(e) })
	return &Acceptor{e}, nil
}

// Puller claims a path for one-way transfers. It fails as Acceptor does.
func (l *Listener) Puller(path string) (*Puller, error) {
	e, err := l.ns.register(path, routePuller, l.rt.opts.EndpointQueue)
	if err != nil {
		return nil, err
	}
	return &Puller{e}, nil
}

// Replier claims a path for exchanges. It fails as Acceptor does.
func (l *Listener) Replier(path string) (*Replier, error) {
	e, err := l.ns.register(path, routeReplier, l.rt.opts.EndpointQueue)
	if err != nil {
		return nil, err
	}
	return &Replier{e}, nil
}

// Path is the path that was claimed.
func (a *Acceptor) Path() string { return a.e.path }

// Path is the path that was claimed.
func (p *Puller) Path() string { return p.e.path }

// Path is the path that was claimed.
func (r *Replier) Path() string { return r.e.path }

// Accept returns the next transfer or request. It fails with ErrClosed after Close, or with ctx's error.
func (a *Acceptor) Accept(ctx context.Context) (Incoming, error) { return a.e.take(ctx) }

// Recv returns the next transfer once it has begun; its payload may be long in coming. It fails as Accept does.
func (p *Puller) Recv(ctx context.Context) (*IncomingTransfer, error) {
	in, err := p.e.take(ctx)
	return in.Transfer, err
}

// Accept returns the next request once it has begun; its body may be long in coming. It fails with ErrClosed after Close, or with ctx's error.
func (r *Replier) Accept(ctx context.Context) (*IncomingRequest, error) {
	in, err := r.e.take(ctx)
	return in.Request, err
}

// Close gives the path back and refuses what waits there, with UNKNOWN_ENDPOINT. What was taken lives on. It is idempotent and always returns nil.
func (a *Acceptor) Close() error {
	a.e.close()
	return nil
}

// Close is as Acceptor's.
func (p *Puller) Close() error {
	p.e.close()
	return nil
}

// Close is as Acceptor's.
func (r *Replier) Close() error {
	r.e.close()
	return nil
}
