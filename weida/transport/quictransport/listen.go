package quictransport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"

	quic "github.com/quic-go/quic-go"

	"github.com/weir-agent/weir/weida/transport"
)

const (
	// maxHandshakes is how many handshakes may be under way on a listener, beside the links it has. One more is refused.
	maxHandshakes = 256
	// checkedHandshakes is from how many handshakes under way a new peer must first prove its address, which costs it
	// a round trip and costs this side nothing to remember.
	checkedHandshakes = 32
)

var errTooManyHandshakes = errors.New("too many handshakes under way")

// ListenConfig is what an accepting side sets beside Config. The zero value gives the defaults.
type ListenConfig struct {
	Config
	// MaxConnections is how many links the listener may have at once. One more is closed with LIMIT_EXCEEDED after
	// its handshake, so that the peer can tell overload from refusal. 0 means DefaultMaxConnections.
	MaxConnections int
	// MaxConnectionsPerPeer is the same for peers that proved one and the same key; peers that proved none are not counted
	// together. 0 means DefaultMaxConnectionsPerPeer.
	MaxConnectionsPerPeer int
	// ResetKey, if not nil, is a secret by which peers of an earlier process with the same key learn that their links are gone as
	// soon as they send more than a keep-alive. nil means a random one: they learn it from their idle timeout.
	ResetKey *[32]byte
}

// Listener accepts links on one socket.
type Listener struct {
	endpoint   *endpoint
	listener   *quic.Listener
	config     ListenConfig
	handshakes atomic.Int64
	accepted   chan transport.Link // holds what was not yet taken; has room for MaxConnections
	closed     chan struct{}
	loop       sync.WaitGroup

	mu      sync.Mutex
	links   int
	perPeer map[transport.Fingerprint]int
}

var _ transport.Listener = (*Listener)(nil)

// Listen accepts links on conn, which is the listener's from then on, also if Listen fails. conf must have a certificate, and what it says of
// clients counts; its ALPN token, versions and session tickets are replaced as a link needs it. conf is not changed.
func Listen(conn net.PacketConn, conf *tls.Config, config ListenConfig) (*Listener, error) {
	config.Config = config.Config.withDefaults()
	config.MaxConnections = orDefault(config.MaxConnections, DefaultMaxConnections)
	config.MaxConnectionsPerPeer = orDefault(config.MaxConnectionsPerPeer, DefaultMaxConnectionsPerPeer)
	l := &Listener{
		endpoint: newEndpoint(conn, config.ResetKey),
		config:   config,
		accepted: make(chan transport.Link, config.MaxConnections),
		closed:   make(chan struct{}),
		perPeer:  make(map[transport.Fingerprint]int),
	}
	l.endpoint.tr.ConnContext = l.begin
	l.endpoint.tr.VerifySourceAddress = func(net.Addr) bool { return l.handshakes.Load() >= checkedHandshakes }
	listener, err := l.endpoint.tr.Listen(linkTLS(conf), config.quicConfig(false))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("quictransport: listen: %w", err), l.endpoint.tr.Close(), conn.Close())
	}
	l.listener = listener
	l.loop.Go(l.run)
	return l, nil
}

// begin admits a handshake, or refuses it.
func (l *Listener) begin(ctx context.Context, _ *quic.ClientInfo) (context.Context, error) {
	if l.handshakes.Add(1) > maxHandshakes {
		l.handshakes.Add(-1)
		return nil, errTooManyHandshakes
	}
	h := &handshake{}
	h.end = sync.OnceFunc(func() { l.handshakes.Add(-1) })
	context.AfterFunc(ctx, h.end)
	return context.WithValue(ctx, handshakeKey{}, h), nil
}

// handshake is one that is under way; end is called when it has succeeded or failed, whichever is seen first.
type handshake struct{ end func() }

type handshakeKey struct{}

// run takes connections whose handshakes are complete until the listener is closed.
func (l *Listener) run() {
	for {
		conn, err := l.listener.Accept(context.Background())
		if err != nil {
			return
		}
		if h, ok := conn.Context().Value(handshakeKey{}).(*handshake); ok {
			h.end()
		}
		l.admit(conn)
	}
}

// admit makes a link of conn, or closes it at a limit.
func (l *Listener) admit(conn *quic.Conn) {
	if !l.endpoint.add() {
		_ = conn.CloseWithError(quic.ApplicationErrorCode(transport.CodeShutdown), "shutting down") // it always returns nil
		return
	}
	peer := provedIdentity(conn)
	if reason := l.count(peer); reason != "" {
		_ = conn.CloseWithError(quic.ApplicationErrorCode(transport.CodeLimitExceeded), reason)
		l.endpoint.remove()
		return
	}
	link := newLink(conn, false, func() {
		l.uncount(peer)
		l.endpoint.remove()
	})
	select {
	case l.accepted <- link:
	default:
		// More links have ended untaken than there is room for.
		link.Close(transport.CodeLimitExceeded, "too many connections")
	}
}

// count takes a place for a link of peer, or says which limit has none left.
func (l *Listener) count(peer transport.Identity) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.links >= l.config.MaxConnections {
		return "too many connections"
	}
	if key, ok := peer.Fingerprint(); ok {
		if l.perPeer[key] >= l.config.MaxConnectionsPerPeer {
			return "too many connections of this peer"
		}
		l.perPeer[key]++
	}
	l.links++
	return ""
}

// uncount gives the place of a link back.
func (l *Listener) uncount(peer transport.Identity) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.links--
	if key, ok := peer.Fingerprint(); ok {
		if l.perPeer[key]--; l.perPeer[key] == 0 {
			delete(l.perPeer, key)
		}
	}
}

// Accept returns the next link whose handshake has succeeded and that has a place.
func (l *Listener) Accept(ctx context.Context) (transport.Link, error) {
	return transport.Next(ctx, l.accepted, l.closed, func() error { return transport.ErrListenerClosed })
}

// Addr is the address of the socket.
func (l *Listener) Addr() net.Addr { return l.endpoint.tr.Conn.LocalAddr() }

// Close accepts no more, refuses handshakes that are under way, and closes links that nobody has taken with SHUTDOWN. Links that
// were taken live on. It is idempotent.
func (l *Listener) Close() error {
	if !l.endpoint.shut() {
		return nil
	}
	close(l.closed)
	err := l.listener.Close()
	l.loop.Wait()
	for {
		select {
		case link := <-l.accepted:
			link.Close(transport.CodeShutdown, "shutting down")
		default:
			return err
		}
	}
}

// Wait waits until every accepted link has ended, and frees the socket.
func (l *Listener) Wait(ctx context.Context) error { return l.endpoint.wait(ctx) }
