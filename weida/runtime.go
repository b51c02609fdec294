package weida

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-agent/weir/weida/transport"
	"github.com/weir-agent/weir/weida/transport/localtransport"
	"github.com/weir-agent/weir/weida/transport/quictransport"
)

// Runtime holds what endpoints share: options, the socket that is dialled from, and the links, so that all of it can be drained and shut down together. Its
// methods may be called by several goroutines at once.
type Runtime struct {
	opts     Options
	draining atomic.Bool
	tasks    sync.WaitGroup
	book     peerBook
	repeats  atomic.Uint64 // transfers that were dropped because they had come before

	mu        sync.Mutex
	closed    bool
	conns     map[*conn]struct{}
	listeners map[*Listener]struct{}
	peers     map[*peerSet]struct{}
	dialler   *quictransport.Dialler
}

// NewRuntime returns a runtime. It opens no socket and starts no goroutine before it must.
func NewRuntime(opts Options) (*Runtime, error) {
	filled, err := opts.filled()
	if err != nil {
		return nil, err
	}
	return &Runtime{
		opts: filled, conns: make(map[*conn]struct{}), listeners: make(map[*Listener]struct{}), peers: make(map[*peerSet]struct{}),
		book: peerBook{live: make(map[bookKey]*bookEntry)},
	}, nil
}

// SuppressedDuplicates is how many transfers were read and dropped because they had come before, where deduplication was negotiated.
func (rt *Runtime) SuppressedDuplicates() uint64 { return rt.repeats.Load() }

// addConn registers a link and holds the runtime's tasks open for the caller.
func (rt *Runtime) addConn(c *conn) error {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if rt.closed || rt.draining.Load() {
		return ErrClosed
	}
	rt.conns[c] = struct{}{}
	rt.tasks.Add(1)
	return nil
}

func (rt *Runtime) removeConn(c *conn) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	delete(rt.conns, c)
}

// spawn starts a goroutine that the runtime waits for, unless it is closed.
func (rt *Runtime) spawn(f func()) bool {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if rt.closed {
		return false
	}
	rt.tasks.Go(f)
	return true
}

// getDialler returns the dialler, which is made when it is first asked for.
func (rt *Runtime) getDialler() (*quictransport.Dialler, error) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if rt.closed {
		return nil, ErrClosed
	}
	if rt.dialler == nil {
		d, err := quictransport.NewDialler(rt.opts.DialFrom, rt.opts.quic())
		if err != nil {
			return nil, err
		}
		rt.dialler = d
	}
	return rt.dialler, nil
}

// snapshot returns the links there are.
func (rt *Runtime) snapshot() []*conn {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	return slices.Collect(maps.Keys(rt.conns))
}

// Drained is what a drain counted, for the links that were live, from their beginning on: nothing about the peers' applications, and no claim that the peers would make.
type Drained struct {
	// Delivered is how many discarded receipts were received.
	Delivered uint64
	// Outstanding is how many were not: not acknowledged in time, refused, or given up for want of room.
	Outstanding uint64
}

// Drain stops admitting work, waits at most d for the receipts of transfers that were finished and discarded and of reports that were finished, and shuts down. New links, new
// streams of peers (both with SHUTDOWN, so that peers learn it at once) and new opens of this side are refused from its beginning; what had begun may go on until its end. That not
// everything was acknowledged in time is a count and no error.
func (rt *Runtime) Drain(d time.Duration) (Drained, error) {
	ctx, cancel := context.WithTimeout(context.Background(), max(0, d))
	defer cancel()
	rt.mu.Lock() // no link slips in behind this
	rt.draining.Store(true)
	rt.mu.Unlock()
	var mu sync.Mutex
	var sum Drained
	var wg sync.WaitGroup
	for _, c := range rt.snapshot() {
		wg.Go(func() {
			c.finishing.wait(ctx)
			delivered, outstanding := c.parking.Drain(ctx)
			if l, ok := c.link.(transport.Lingering); ok {
				l.Linger(ctx)
			}
			mu.Lock()
			defer mu.Unlock()
			sum.Delivered += delivered
			sum.Outstanding += outstanding
		})
	}
	wg.Wait()
	return sum, rt.Shutdown()
}

// Shutdown closes every link with SHUTDOWN, whatever is under way on it, and every endpoint, and waits for the runtime's goroutines; and for its sockets to become
// idle at most Options.ShutdownTimeout. It is idempotent; every call waits for the first.
func (rt *Runtime) Shutdown() error {
	rt.mu.Lock()
	rt.closed = true
	rt.draining.Store(true)
	peers := slices.Collect(maps.Keys(rt.peers))
	listeners := slices.Collect(maps.Keys(rt.listeners))
	dialler := rt.dialler
	rt.mu.Unlock()
	for _, p := range peers {
		p.close(transport.CodeShutdown, "shutting down")
	}
	for _, c := range rt.snapshot() {
		c.link.Close(transport.CodeShutdown, "shutting down")
	}
	ctx, cancel := context.WithTimeout(context.Background(), rt.opts.ShutdownTimeout)
	defer cancel()
	var first error
	for _, l := range listeners {
		if err := l.shut(ctx); err != nil && first == nil {
			first = err
		}
	}
	if dialler != nil {
		_ = dialler.Close() // it always returns nil
		if err := waitIdle(ctx, dialler.Wait); err != nil && first == nil {
			first = err
		}
	}
	rt.tasks.Wait()
	return first
}

// waitIdle waits for a socket. That the time has run out is what a shutdown allows.
func waitIdle(ctx context.Context, wait func(context.Context) error) error {
	if err := wait(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

// Listener returns a new namespace of endpoints, to be reached through its bindings.
func (rt *Runtime) Listener() *Listener {
	l := &Listener{rt: rt, ns: newNamespace(), bindings: make(map[*Binding]struct{})}
	rt.mu.Lock()
	defer rt.mu.Unlock()
	rt.listeners[l] = struct{}{}
	if rt.closed {
		l.ns.close()
	}
	return l
}

// Listener is a namespace of endpoints with the bindings through which peers reach it. Its methods may be called by several goroutines at once.
type Listener struct {
	rt *Runtime
	ns *namespace

	mu       sync.Mutex
	bindings map[*Binding]struct{}
	closed   bool
}

// Binding is an address on which a listener is reached.
type Binding struct {
	listener *Listener
	socket   transport.Listener
	// maxConns and maxPerPeer are how many links there may be, in all and of one peer that the kernel has proved, where the socket does not bound them itself; 0 where it does.
	maxConns, maxPerPeer int

	mu     sync.Mutex
	conns  map[*conn]struct{}
	peers  map[transport.Identity]int // that the kernel has proved
	closed bool
}

// BindQUIC makes the listener reachable at a UDP address, such as "127.0.0.1:7443" or ":7443". Port 0 takes a free one.
func (l *Listener) BindQUIC(addr string, terms ServerTLS) (*Binding, error) {
	udp, err := net.ResolveUDPAddr("udp", addr)
	if err != nil {
		return nil, opError("bind", addr, err)
	}
	conn, err := net.ListenUDP("udp", udp)
	if err != nil {
		return nil, opError("bind", addr, err)
	}
	return l.BindPacketConn(conn, terms)
}

// BindPacketConn makes the listener reachable on a socket, which is the binding's from then on, also if this fails.
func (l *Listener) BindPacketConn(socket net.PacketConn, terms ServerTLS) (*Binding, error) {
	addr := socket.LocalAddr().String()
	conf, err := terms.config()
	if err != nil {
		_ = socket.Close()
		return nil, opError("bind", addr, err)
	}
	o := &l.rt.opts
	config := quictransport.ListenConfig{Config: o.quic(), MaxConnections: o.MaxConnections, MaxConnectionsPerPeer: o.MaxConnectionsPerPeer}
	id, err := terms.Identity.Current()
	if err == nil {
		config.ResetKey, err = id.resetKey()
	}
	if err != nil {
		_ = socket.Close()
		return nil, opError("bind", addr, err)
	}
	quic, err := quictransport.Listen(socket, conf, config)
	if err != nil {
		return nil, opError("bind", addr, err)
	}
	return l.bind(addr, &Binding{listener: l, socket: quic, conns: make(map[*conn]struct{})})
}

// BindInproc makes the listener reachable within the process, on a bus of Options.Buses: 1 to 256 bytes without a control character, a slash or an at sign.
// Peers dial weida+inproc://bus/path. They have no identity, as there is nobody else to prove.
func (l *Listener) BindInproc(bus string) (*Binding, error) {
	if err := checkBus(bus); err != nil {
		return nil, opError("bind", bus, fmt.Errorf("%w: %w", ErrInvalidAddress, err))
	}
	o := &l.rt.opts
	socket, err := o.Buses.Listen(bus, o.local())
	if err != nil {
		return nil, opError("bind", bus, err)
	}
	return l.bind(bus, &Binding{listener: l, socket: socket, maxConns: o.MaxConnections, conns: make(map[*conn]struct{})})
}

// BindUnix makes the listener reachable on a Unix socket at a path, which is made with mode 0600, so that this user alone can reach it. The folder must be there; who can write
// to it is the caller's care. Peers dial weida+unix://<percent-encoded path>/path, and the kernel says who they are.
func (l *Listener) BindUnix(path string) (*Binding, error) {
	o := &l.rt.opts
	socket, err := localtransport.ListenUnix(path, o.local())
	if errors.Is(err, localtransport.ErrNoSockets) {
		err = fmt.Errorf("%w: %s on %s", ErrUnsupported, SchemeUnix, runtime.GOOS)
	}
	if err != nil {
		return nil, opError("bind", path, err)
	}
	return l.bind(path, &Binding{
		listener: l, socket: socket, maxConns: o.MaxConnections, maxPerPeer: o.MaxConnectionsPerPeer,
		conns: make(map[*conn]struct{}), peers: make(map[transport.Identity]int),
	})
}

// bind starts a binding, or closes its socket where the listener is closed.
func (l *Listener) bind(addr string, b *Binding) (*Binding, error) {
	l.mu.Lock()
	refused := l.closed || !l.rt.spawn(b.run)
	if !refused {
		l.bindings[b] = struct{}{}
	}
	l.mu.Unlock()
	if refused {
		ctx, cancel := context.WithTimeout(context.Background(), l.rt.opts.ShutdownTimeout)
		defer cancel()
		_ = b.socket.Close()
		_ = b.socket.Wait(ctx)
		return nil, opError("bind", addr, ErrClosed)
	}
	return b, nil
}

// run takes links until the binding is closed.
func (b *Binding) run() {
	rt := b.listener.rt
	for {
		link, err := b.socket.Accept(context.Background())
		if err != nil {
			return
		}
		if b.full(link.Info().Peer) {
			link.Close(transport.CodeLimitExceeded, "too many connections")
			continue
		}
		var c *conn
		ready := make(chan struct{})
		c, err = rt.startConn(link, b.listener.ns, func() {
			<-ready
			b.forget(c)
		})
		if err == nil {
			b.remember(c)
		}
		close(ready)
	}
}

// full reports whether there is no room for another link of a peer.
func (b *Binding) full(peer transport.Identity) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.maxConns > 0 && len(b.conns) >= b.maxConns || b.maxPerPeer > 0 && b.peers[peer] >= b.maxPerPeer
}

// remember keeps a link for Close, or closes it where Close was called.
func (b *Binding) remember(c *conn) {
	b.mu.Lock()
	closed := b.closed
	b.conns[c] = struct{}{}
	if b.maxPerPeer > 0 {
		b.peers[c.link.Info().Peer]++
	}
	b.mu.Unlock()
	if closed {
		c.link.Close(transport.CodeShutdown, "shutting down")
	}
}

func (b *Binding) forget(c *conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, known := b.conns[c]; !known {
		return
	}
	delete(b.conns, c)
	if b.maxPerPeer == 0 {
		return
	}
	peer := c.link.Info().Peer
	if b.peers[peer]--; b.peers[peer] == 0 {
		delete(b.peers, peer)
	}
}

// Addr is the address that peers dial.
func (b *Binding) Addr() net.Addr { return b.socket.Addr() }

// Connections is how many links the binding has.
func (b *Binding) Connections() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.conns)
}

// Close closes the binding's links with SHUTDOWN and frees its address. It waits for them at most Options.ShutdownTimeout. The endpoints live on for
// the listener's other bindings. It is idempotent.
func (b *Binding) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), b.listener.rt.opts.ShutdownTimeout)
	defer cancel()
	b.listener.mu.Lock()
	delete(b.listener.bindings, b)
	b.listener.mu.Unlock()
	return b.shut(ctx)
}

func (b *Binding) shut(ctx context.Context) error {
	b.mu.Lock()
	b.closed = true
	conns := slices.Collect(maps.Keys(b.conns))
	b.mu.Unlock()
	err := b.socket.Close()
	for _, c := range conns {
		c.link.Close(transport.CodeShutdown, "shutting down")
	}
	if werr := waitIdle(ctx, b.socket.Wait); err == nil {
		err = werr
	}
	return err
}

func (l *Listener) allBindings() []*Binding {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.bindings))
}

// shut closes bindings and endpoints, waiting for sockets until ctx ends.
func (l *Listener) shut(ctx context.Context) error {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	var first error
	for _, b := range l.allBindings() {
		if err := b.shut(ctx); err != nil && first == nil {
			first = err
		}
	}
	l.ns.close()
	return first
}

// Close closes all bindings and all endpoints of the listener. It is idempotent.
func (l *Listener) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), l.rt.opts.ShutdownTimeout)
	defer cancel()
	err := l.shut(ctx)
	l.rt.mu.Lock()
	delete(l.rt.listeners, l)
	l.rt.mu.Unlock()
	return err
}
