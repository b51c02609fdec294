package weida

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"sync"

	"github.com/weir-agent/weir/weida/transport"
	"github.com/weir-agent/weir/weida/transport/localtransport"
)

// bookKey names a peer by where it was dialled and on what terms.
type bookKey struct {
	authority string
	trust     [sha256.Size]byte
	identity  Fingerprint
	pinned    bool
	pin       Fingerprint
}

// bookEntry is who answered there, while links to it live.
type bookEntry struct {
	peer Fingerprint
	live int
}

// peerBook holds the links of a peer to one identity (weida-supplement §10): whoever answers at an authority under the same terms as a live link must prove the
// key of that link. It remembers nothing of links that have ended.
type peerBook struct {
	mu   sync.Mutex
	live map[bookKey]*bookEntry
}

// admit counts a link, or refuses it because another peer answered.
func (b *peerBook) admit(key bookKey, peer Fingerprint) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.live[key]
	if e == nil {
		e = &bookEntry{peer: peer}
		b.live[key] = e
	}
	if e.peer != peer {
		return &UntrustedError{Fingerprint: peer, Err: fmt.Errorf("a live connection to the same address is to %v", e.peer)}
	}
	e.live++
	return nil
}

func (b *peerBook) release(key bookKey) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.live[key]; e != nil {
		if e.live--; e.live == 0 {
			delete(b.live, key)
		}
	}
}

// dial makes a link to an address, on which negotiation has succeeded. ctx bounds all of it.
func (rt *Runtime) dial(ctx context.Context, a Address, terms ClientTLS, ns *namespace) (*conn, error) {
	if a.Carrier != OverQUIC {
		link, err := rt.dialLocal(ctx, a)
		if err != nil {
			return nil, err
		}
		return rt.negotiate(ctx, link, ns, nil)
	}
	link, err := rt.dialLink(ctx, a, terms)
	if err != nil {
		return nil, err
	}
	key := bookKey{authority: a.Authority(), trust: terms.Trust.digest(), pinned: a.Pinned, pin: a.Pin}
	if terms.Identity != nil {
		if id, err := terms.Identity.Current(); err == nil {
			key.identity = id.Fingerprint()
		}
	}
	peer, _ := link.Info().Peer.Fingerprint() // over QUIC a server proves one
	if err := rt.book.admit(key, peer); err != nil {
		link.Close(transport.CodeCanceled, "another peer answered")
		return nil, err
	}
	return rt.negotiate(ctx, link, ns, func() { rt.book.release(key) })
}

// negotiate takes over a link that was dialled, and waits until both sides have agreed. ended is called once, when the link has ended; it may be nil.
func (rt *Runtime) negotiate(ctx context.Context, link transport.Link, ns *namespace, ended func()) (*conn, error) {
	c, err := rt.startConn(link, ns, ended)
	if err != nil {
		if ended != nil {
			ended()
		}
		return nil, err
	}
	if err := c.negotiated(ctx); err != nil {
		link.Close(transport.CodeCanceled, "gave up waiting")
		return nil, err
	}
	return c, nil
}

// dialLocal makes a link within the machine. That nobody is there is a peer that is gone (weida-supplement §7).
func (rt *Runtime) dialLocal(ctx context.Context, a Address) (transport.Link, error) {
	var link transport.Link
	var err error
	switch a.Carrier {
	case OverUnix:
		link, err = localtransport.DialUnix(ctx, a.Local, rt.opts.local())
	case OverInproc:
		link, err = rt.opts.Buses.Dial(ctx, a.Local)
	case OverQUIC, OverPipe:
		return nil, fmt.Errorf("%w: %s on %s", ErrUnsupported, a.Carrier.scheme(), runtime.GOOS)
	}
	if errors.Is(err, localtransport.ErrNoSockets) {
		return nil, fmt.Errorf("%w: %s on %s", ErrUnsupported, a.Carrier.scheme(), runtime.GOOS)
	}
	if err != nil && ctx.Err() == nil {
		err = &ConnectionLostError{Cause: CausePeerClosed, Err: err}
	}
	return link, err
}

// dialLink tries the addresses of a host in order.
func (rt *Runtime) dialLink(ctx context.Context, a Address, terms ClientTLS) (transport.Link, error) {
	conf, err := terms.config(a)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrTLS, err)
	}
	dialler, err := rt.getDialler()
	if err != nil {
		return nil, err
	}
	addrs, err := rt.resolve(ctx, a.Host)
	if err != nil {
		return nil, err
	}
	for i, ip := range addrs {
		attempt, cancel := ctx, context.CancelFunc(func() {})
		if i < len(addrs)-1 {
			attempt, cancel = context.WithTimeout(ctx, rt.opts.ConnectAttemptTimeout)
		}
		var link transport.Link
		link, err = dialler.Dial(attempt, net.UDPAddrFromAddrPort(netip.AddrPortFrom(ip, a.Port)), conf)
		cancel()
		if err == nil {
			return link, nil
		}
		if _, untrusted := errors.AsType[*UntrustedError](err); untrusted || ctx.Err() != nil {
			break
		}
	}
	return nil, outcomeOf(err)
}

// resolve returns the addresses to try for a host, at least one.
func (rt *Runtime) resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	if ip, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{ip}, nil
	}
	addrs, err := rt.opts.Resolver(ctx, host)
	if err != nil {
		return nil, fmt.Errorf("resolve %s: %w", host, err)
	}
	if len(addrs) == 0 {
		return nil, fmt.Errorf("resolve %s: %w: no address", host, ErrTransport)
	}
	return addrs[:min(len(addrs), rt.opts.MaxResolvedAddresses)], nil
}
