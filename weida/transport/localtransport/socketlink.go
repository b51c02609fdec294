//go:build linux || darwin

package localtransport

import (
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/weir-agent/weir/weida/transport"
)

// tokenBytes is the length of the token that binds connections to a link.
const tokenBytes = 16

// The first byte of a connection.
const (
	openControl  = 0x01
	openTransfer = 0x02
	openReverse  = 0x03
)

// socketLink is one end of a link over sockets: the control connection, and those that its token binds to it. Its streams have no kind: AcceptUni
// returns none of them.
type socketLink struct {
	info    transport.Info
	path    string // that streams are dialled at, of the dialling side
	token   [tokenBytes]byte
	control *net.UnixConn
	hello   *io.PipeReader     // what the peer has sent on it
	said    *io.PipeWriter     // its other end
	over    func()             // called once, when the link has ended
	slots   chan struct{}      // a token for each live stream that this side opened
	admits  chan struct{}      // a token for each stream of the peer
	streams chan *socket       // of the peer
	parked  chan *net.UnixConn // of the accepting side
	most    int                // that the dialling side keeps parked
	gone    chan struct{}
	ctx     context.Context // ends with the link
	cancel  context.CancelFunc

	writing sync.Mutex // of the control connection

	tasks sync.WaitGroup // its goroutines; none is added once err is set

	mu      sync.Mutex
	err     *transport.CloseError
	sockets map[*socket]struct{}
}

var (
	_ transport.Link       = (*socketLink)(nil)
	_ transport.Controlled = (*socketLink)(nil)
	_ transport.Lingering  = (*socketLink)(nil)
	_ transport.Parked     = (*socketLink)(nil)
	_ transport.Busy       = (*socketLink)(nil)
)

func newSocketLink(control *net.UnixConn, info transport.Info, conf Config, over func()) *socketLink {
	l := &socketLink{
		info: info, control: control, over: over, gone: make(chan struct{}), sockets: map[*socket]struct{}{},
		slots: make(chan struct{}, conf.MaxStreams),
		// The peer frees its place in its own budget a little before this side does where it has lost interest.
		admits: make(chan struct{}, 2*conf.MaxStreams), streams: make(chan *socket, 2*conf.MaxStreams),
		parked: make(chan *net.UnixConn, max(0, conf.MaxParked)), most: max(0, conf.MaxParked),
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.hello, l.said = io.Pipe()
	return l
}

// start begins to read the control connection.
func (l *socketLink) start() { l.spawn(l.readControl) }

// spawn starts a goroutine that ends with the link, unless that has ended.
func (l *socketLink) spawn(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return false
	}
	l.tasks.Go(f)
	return true
}

// WaitTasks waits until the link has ended and its goroutines with it.
func (l *socketLink) WaitTasks() {
	<-l.gone
	l.tasks.Wait()
}

// readControl passes on the peer's stream of the control connection and waits for the end of the link.
func (l *socketLink) readControl() {
	w := l.said
	for {
		kind, n, err := readChunk(l.control)
		switch {
		case errors.Is(err, errChunk):
			l.Close(transport.CodeProtocolViolation, errChunk.Error())
		case err != nil:
			l.end(&transport.CloseError{Cause: transport.CausePeerClosed, Remote: true, Err: err})
		case kind == chunkReset:
			l.end(&transport.CloseError{Cause: transport.CausePeerClosed, Code: n, Remote: true})
		case kind == chunkEnd:
			_ = w.Close() // it always returns nil
			continue
		default:
			// What nobody wants is read all the same: only what follows tells the end of the link.
			payload := io.LimitReader(l.control, int64(n))
			_, _ = io.Copy(w, payload)
			_, _ = io.Copy(io.Discard, payload) // where the connection fails, the next chunk does, too
			continue
		}
		_ = w.CloseWithError(l.Err())
		return
	}
}

// ending reports whether the peer has ended the link, also where this side has not read that yet. The peer ends the control connection first.
func (l *socketLink) ending() bool {
	raw, err := l.control.SyscallConn()
	if err != nil {
		return true
	}
	var next [1]byte
	n, peekErr := 0, error(nil)
	if err := raw.Control(func(fd uintptr) {
		n, _, peekErr = syscall.Recvfrom(int(fd), next[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	}); err != nil {
		return true
	}
	if errors.Is(peekErr, syscall.EAGAIN) || errors.Is(peekErr, syscall.EINTR) {
		return false
	}
	return peekErr != nil || n == 0 || next[0] == chunkReset
}

func (l *socketLink) Info() transport.Info  { return l.info }
func (l *socketLink) Done() <-chan struct{} { return l.gone }

func (l *socketLink) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		return nil
	}
	return l.err
}

// Close tells the peer the code; there is no place for the text.
func (l *socketLink) Close(code uint64, text string) {
	l.end(&transport.CloseError{Cause: transport.CauseLocallyClosed, Code: code, Text: transport.CloseText(text)})
}

// end ends the link, the control connection first.
func (l *socketLink) end(why *transport.CloseError) {
	l.mu.Lock()
	if l.err != nil {
		l.mu.Unlock()
		<-l.gone
		return
	}
	l.err = why
	sockets := l.sockets
	l.sockets = nil
	l.mu.Unlock()
	if !why.Remote && l.writing.TryLock() {
		_, _ = writeNow(l.control, resetChunk(why.Code)) // if it does not go, the end of the connection says enough
		l.writing.Unlock()
	}
	_ = l.control.Close()
	l.cancel()
	_ = l.said.CloseWithError(why) // it always returns nil; a HELLO that nobody takes holds nobody
	close(l.gone)
	for s := range sockets {
		s.lost(why)
	}
	for {
		select {
		case nc := <-l.parked:
			_ = nc.Close()
			continue
		default:
		}
		break
	}
	l.over()
}

// Linger waits until the peer has closed the connections of the one-way streams that this side has finished, which it does when it has read their end.
func (l *socketLink) Linger(ctx context.Context) {
	l.mu.Lock()
	sockets := slices.Collect(maps.Keys(l.sockets))
	l.mu.Unlock()
	for _, s := range sockets {
		if !s.isFinished() {
			continue
		}
		select {
		case <-s.Retired():
		case <-ctx.Done():
			return
		}
	}
}

func (l *socketLink) forget(s *socket) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.sockets, s)
}

// adopt makes a stream of a connection, or closes it where the link has ended. free is called once, when it is over.
func (l *socketLink) adopt(nc *net.UnixConn, free func()) (*socket, error) {
	s := newSocket(l, nc, free)
	l.mu.Lock()
	err := l.err
	if err == nil {
		l.sockets[s] = struct{}{}
	}
	l.mu.Unlock()
	if err != nil {
		_ = nc.Close()
		free()
		return nil, err
	}
	return s, nil
}

// open opens a stream: on a connection of its own, or on one that the peer has parked.
func (l *socketLink) open(ctx context.Context) (*socket, error) {
	if err := take(ctx, l, l.slots); err != nil {
		return nil, err
	}
	free := func() { <-l.slots }
	if l.info.Dialled {
		nc, err := l.dial(ctx, openTransfer)
		if err == nil {
			return l.adopt(nc, free)
		}
		free()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		// Nobody listens there any more, or no more is possible: this link is of no use.
		l.end(&transport.CloseError{Cause: transport.CauseTransport, Err: err})
		return nil, l.Err()
	}
	select {
	case nc := <-l.parked:
		return l.adopt(nc, free)
	case <-l.gone:
		free()
		return nil, l.Err()
	case <-ctx.Done():
		free()
		return nil, ctx.Err()
	}
}

// dial makes a connection that the token binds to the link.
func (l *socketLink) dial(ctx context.Context, kind byte) (*net.UnixConn, error) {
	nc, err := dialSocket(ctx, l.path)
	if err != nil {
		return nil, err
	}
	if _, err := nc.Write(append([]byte{kind}, l.token[:]...)); err != nil {
		_ = nc.Close()
		return nil, err
	}
	return nc, nil
}

func (l *socketLink) OpenUni(ctx context.Context) (transport.SendStream, error) {
	s, err := l.open(ctx)
	if err != nil {
		return nil, err
	}
	l.spawn(s.watch) // where the link has ended, so has the stream
	return socketSend{s}, nil
}

// MaxParked is of this side, which is the dialling one or takes no more than so many.
func (l *socketLink) MaxParked() int { return l.most }

// OpenParked opens a one-way stream on a connection that is parked or will be within patience.
func (l *socketLink) OpenParked(ctx context.Context, patience time.Duration) (transport.SendStream, error) {
	limit, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	w, err := l.OpenUni(limit)
	if err != nil && limit.Err() != nil && ctx.Err() == nil && l.Err() == nil {
		err = transport.ErrNoParked
	}
	return w, err
}

func (l *socketLink) OpenBi(ctx context.Context) (transport.SendStream, transport.ReceiveStream, error) {
	s, err := l.open(ctx)
	if err != nil {
		return nil, nil, err
	}
	return socketSend{s}, socketReceive{s}, nil
}

// AcceptUni waits for the end of the link or of ctx: streams have no kind, and arrive at AcceptBi.
func (l *socketLink) AcceptUni(ctx context.Context) (transport.ReceiveStream, error) {
	select {
	case <-l.gone:
		return nil, l.Err()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *socketLink) AcceptBi(ctx context.Context) (transport.SendStream, transport.ReceiveStream, error) {
	s, err := transport.Next(ctx, l.streams, l.gone, l.Err)
	if err != nil {
		return nil, nil, err
	}
	return socketSend{s}, socketReceive{s}, nil
}

// admit takes a connection of the peer as a stream. One that is beyond the bound is closed.
func (l *socketLink) admit(nc *net.UnixConn) {
	select {
	case l.admits <- struct{}{}:
	default:
		_ = nc.Close()
		return
	}
	if s, err := l.adopt(nc, func() { <-l.admits }); err == nil {
		l.streams <- s // there is room: each holds a place
	}
}

// park keeps a reverse connection for a stream of this side. One that is beyond the bound is closed.
func (l *socketLink) park(nc *net.UnixConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		select {
		case l.parked <- nc:
			return
		default:
		}
	}
	_ = nc.Close()
}

// The pauses before another connection is parked in place of one that died unused: the peer may have no room for it.
const (
	firstParkPause = 10 * time.Millisecond
	maxParkPause   = time.Second
)

// keepParked keeps one connection parked, and parks another when the peer begins a stream on it, or when it died unused. It ends with the link, or when nobody listens at the
// path any more.
func (l *socketLink) keepParked() {
	pause := firstParkPause
	for {
		used, more := l.parkOne()
		if used {
			pause = firstParkPause
		}
		switch {
		case !more:
			return
		case used:
			continue
		}
		timer := time.NewTimer(pause)
		pause = min(2*pause, maxParkPause)
		select {
		case <-timer.C:
		case <-l.gone:
			timer.Stop()
			return
		}
	}
}

// parkOne parks a connection until the peer uses it or it dies, and reports whether another is to be parked.
func (l *socketLink) parkOne() (used, more bool) {
	select {
	case l.admits <- struct{}{}:
	case <-l.gone:
		return false, false
	}
	nc, err := l.dial(l.ctx, openReverse)
	if err != nil {
		<-l.admits
		return false, false
	}
	s, err := l.adopt(nc, func() { <-l.admits })
	if err != nil {
		return false, false
	}
	kind, n, err := readChunk(nc)
	if err != nil {
		s.lost(transport.ErrAbandoned)
		return false, true
	}
	s.begin(kind, n)
	l.streams <- s // there is room: each holds a place
	return true, true
}

// Control returns the two halves of the control connection's stream.
func (l *socketLink) Control() (io.WriteCloser, io.ReadCloser) { return controlSend{l}, l.hello }

// controlSend writes this side's stream of the control connection.
type controlSend struct{ link *socketLink }

func (c controlSend) Write(p []byte) (n int, err error) {
	c.link.writing.Lock()
	defer c.link.writing.Unlock()
	for n < len(p) {
		m, _, err := writeChunk(c.link.control, p[n:min(len(p), n+maxChunkBytes)])
		n += m
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// Close ends the stream and not the connection.
func (c controlSend) Close() error {
	c.link.writing.Lock()
	defer c.link.writing.Unlock()
	_, err := c.link.control.Write([]byte{chunkEnd})
	return err
}
