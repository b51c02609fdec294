package quictransport

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"sync"

	quic "github.com/quic-go/quic-go"
)

// endpoint is a socket with the links on it, of a dialler or of a listener.
type endpoint struct {
	tr *quic.Transport

	mu     sync.Mutex
	links  int
	closed bool
	idle   chan struct{} // closed when the endpoint is closed and has no links

	free    sync.Once
	freeErr error
}

// newEndpoint takes over conn. resetKey may be nil, which makes a random one.
func newEndpoint(conn net.PacketConn, resetKey *[32]byte) *endpoint {
	key := new(quic.StatelessResetKey)
	if resetKey != nil {
		*key = *resetKey
	} else {
		_, _ = rand.Read(key[:]) // it never fails
	}
	return &endpoint{tr: &quic.Transport{Conn: conn, StatelessResetKey: key}, idle: make(chan struct{})}
}

// add counts a link, unless the endpoint is closed.
func (e *endpoint) add() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false
	}
	e.links++
	return true
}

// remove uncounts a link that has ended.
func (e *endpoint) remove() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.links--
	if e.closed && e.links == 0 {
		close(e.idle)
	}
}

// shut lets no more links in and reports whether this call was the first.
func (e *endpoint) shut() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false
	}
	e.closed = true
	if e.links == 0 {
		close(e.idle)
	}
	return true
}

// wait waits for the last link of a closed endpoint, or for ctx, and frees the socket.
func (e *endpoint) wait(ctx context.Context) error {
	var err error
	select {
	case <-e.idle:
	case <-ctx.Done():
		err = ctx.Err()
	}
	e.free.Do(func() {
		e.freeErr = errors.Join(e.tr.Close(), e.tr.Conn.Close())
	})
	return errors.Join(err, e.freeErr)
}

// listenUDP opens a UDP socket for any address family, or for IPv4 alone where there is no IPv6.
func listenUDP() (*net.UDPConn, error) {
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv6zero})
	if err == nil {
		return conn, nil
	}
	conn, err4 := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4zero})
	if err4 != nil {
		return nil, fmt.Errorf("quictransport: open a socket: %w", errors.Join(err, err4))
	}
	return conn, nil
}
