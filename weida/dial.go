package weida

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"

	"github.com/weir-agent/weir/weida/transport"
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
	c, err := rt.startConn(link, ns, func() { rt.book.release(key) })
	if err != nil {
		rt.book.release(key)
		return nil, err
	}
	if err := c.negotiated(ctx); err != nil {
		link.Close(transport.CodeCanceled, "gave up waiting")
		return nil, err
	}
	return c, nil
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
