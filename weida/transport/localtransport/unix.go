//go:build linux || darwin

package localtransport

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/weir-agent/weir/internal/unixsocket"
	"github.com/weir-agent/weir/weida/transport"
)

const (
	// handshakeTimeout bounds how long a connection may take to say what it is.
	handshakeTimeout = 10 * time.Second
	// maxUnbound is how many connections of a socket may not have said what they are; more wait in the kernel.
	maxUnbound = 256
)

// socketListener accepts the links of a Unix socket.
type socketListener struct {
	socket *unixsocket.Socket
	conf   Config
	links  chan transport.Link
	slots  chan struct{} // a token for each connection that has not said what it is
	closed chan struct{}
	once   sync.Once
	err    error // of Close
	live   liveLinks
	tasks  sync.WaitGroup

	mu     sync.Mutex
	tokens map[[tokenBytes]byte]*socketLink
}

var _ transport.Listener = (*socketListener)(nil)

// ListenUnix makes the socket, which nobody but this user can reach, until Close. It fails with ErrSocketPath, and as unixsocket.Listen does.
func ListenUnix(path string, conf Config) (transport.Listener, error) {
	if err := CheckSocket(path); err != nil {
		return nil, err
	}
	socket, err := unixsocket.Listen(path)
	if err != nil {
		return nil, err
	}
	l := &socketListener{
		socket: socket, conf: conf.filled(), links: make(chan transport.Link, backlog), slots: make(chan struct{}, maxUnbound),
		closed: make(chan struct{}), tokens: map[[tokenBytes]byte]*socketLink{},
	}
	l.tasks.Go(l.run)
	return l, nil
}

// run takes connections until the socket is closed.
func (l *socketListener) run() {
	for {
		select {
		case l.slots <- struct{}{}:
		case <-l.closed:
			return
		}
		nc, err := l.socket.AcceptUnix()
		if err == nil {
			l.tasks.Go(func() {
				defer func() { <-l.slots }()
				l.bind(nc)
			})
			continue
		}
		<-l.slots
		select {
		case <-l.closed:
			return
		case <-time.After(acceptPause): // for want of descriptors, which passes
		}
	}
}

// acceptPause is how long no connection is taken after one could not be.
const acceptPause = 10 * time.Millisecond

// bind finds out what a connection is, and closes what is nothing.
func (l *socketListener) bind(nc *net.UnixConn) {
	unhook := make(chan struct{})
	defer close(unhook)
	l.tasks.Go(func() {
		select {
		case <-l.closed:
			_ = nc.SetReadDeadline(time.Unix(1, 0)) // it fails only on what is closed
		case <-unhook:
		}
	})
	if err := l.sort(nc); err != nil {
		_ = nc.Close()
	}
}

var errUnbound = errors.New("localtransport: the connection belongs to no link")

func (l *socketListener) sort(nc *net.UnixConn) error {
	peer, err := unixsocket.Peer(nc)
	if err != nil {
		return err
	}
	if err := nc.SetDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return err
	}
	var head [1 + tokenBytes]byte
	if _, err := io.ReadFull(nc, head[:1]); err != nil {
		return err
	}
	if head[0] == openControl {
		return l.control(nc, peer)
	}
	if _, err := io.ReadFull(nc, head[1:]); err != nil {
		return err
	}
	l.mu.Lock()
	link := l.tokens[[tokenBytes]byte(head[1:])]
	l.mu.Unlock()
	if link == nil || !samePeer(link.info.Peer, peer) {
		return errUnbound
	}
	if err := nc.SetDeadline(time.Time{}); err != nil {
		return err
	}
	switch head[0] {
	case openTransfer:
		link.admit(nc)
	case openReverse:
		link.park(nc)
	default:
		return errUnbound
	}
	return nil
}

// samePeer reports whether the kernel says the same of a connection as of the link's.
func samePeer(link transport.Identity, c unixsocket.Credentials) bool {
	return link.UID == c.UID && link.PID == c.PID
}

func identity(c unixsocket.Credentials) transport.Identity {
	return transport.Identity{Kind: transport.IdentityLocal, UID: c.UID, GID: c.GID, PID: c.PID}
}

// control makes a link of a connection.
func (l *socketListener) control(nc *net.UnixConn, peer unixsocket.Credentials) error {
	info := transport.Info{Peer: identity(peer), Local: l.Addr()}
	var link *socketLink
	link = newSocketLink(nc, info, l.conf, func() {
		l.mu.Lock()
		delete(l.tokens, link.token)
		l.mu.Unlock()
		l.live.remove(link)
	})
	_, _ = rand.Read(link.token[:]) // it never fails
	// The peer may dial with the token as soon as it has it.
	l.mu.Lock()
	l.tokens[link.token] = link
	l.mu.Unlock()
	l.live.add(link)
	_, err := nc.Write(link.token[:])
	if err == nil {
		err = nc.SetDeadline(time.Time{})
	}
	if err != nil {
		link.Close(transport.CodeInternal, "")
		return err
	}
	link.start()
	select {
	case l.links <- link:
	case <-link.gone:
	case <-l.closed:
		link.Close(transport.CodeShutdown, "")
	}
	return nil
}

// Accept returns the next link.
func (l *socketListener) Accept(ctx context.Context) (transport.Link, error) {
	return transport.Next(ctx, l.links, l.closed, func() error { return transport.ErrListenerClosed })
}

// Addr returns the path of the socket.
func (l *socketListener) Addr() net.Addr { return l.socket.Addr() }

// Close removes the socket and refuses the links that were not accepted. Links that were live on, but can open no more streams from the dialling side.
func (l *socketListener) Close() error {
	l.once.Do(func() {
		close(l.closed)
		l.err = l.socket.Close()
		l.tasks.Wait()
		for {
			select {
			case waiting := <-l.links:
				waiting.Close(transport.CodeShutdown, "")
				continue
			default:
			}
			return
		}
	})
	return l.err
}

// Wait waits until every link has ended; when ctx ends first, the rest is ended.
func (l *socketListener) Wait(ctx context.Context) error { return l.live.wait(ctx) }

func dialSocket(ctx context.Context, path string) (*net.UnixConn, error) {
	var d net.Dialer
	nc, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	return nc.(*net.UnixConn), nil
}

// DialUnix makes a link to whoever listens on a socket.
func DialUnix(ctx context.Context, path string, conf Config) (transport.Link, error) {
	if err := CheckSocket(path); err != nil {
		return nil, err
	}
	nc, err := dialSocket(ctx, path)
	if err != nil {
		return nil, err
	}
	conf = conf.filled()
	l, err := handshake(ctx, nc, conf)
	if err != nil {
		_ = nc.Close()
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, err
	}
	l.path = path
	l.start()
	for range conf.MaxParked {
		l.spawn(l.keepParked)
	}
	return l, nil
}

// handshake asks for a token.
func handshake(ctx context.Context, nc *net.UnixConn, conf Config) (*socketLink, error) {
	unhook := context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) }) // it fails only on what is closed
	defer unhook()
	peer, err := unixsocket.Peer(nc)
	if err != nil {
		return nil, err
	}
	if err := nc.SetDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return nil, err
	}
	l := newSocketLink(nc, transport.Info{Peer: identity(peer), Remote: nc.RemoteAddr(), Dialled: true}, conf, func() {})
	if _, err := nc.Write([]byte{openControl}); err != nil {
		return nil, err
	}
	if _, err := io.ReadFull(nc, l.token[:]); err != nil {
		return nil, err
	}
	if !unhook() {
		return nil, ctx.Err()
	}
	return l, nc.SetDeadline(time.Time{})
}
