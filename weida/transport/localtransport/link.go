package localtransport

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/weir-agent/weir/weida/transport"
)

// link is one end of an in-process link.
type link struct {
	info   transport.Info
	window int
	peer   *link
	shared *shared
	slots  chan struct{} // a token for each live stream that this side opened
	uni    chan *pipe    // opened by the peer
	bi     chan exchange
	gone   chan struct{}

	mu    sync.Mutex
	err   *transport.CloseError
	pipes map[*pipe]struct{} // of both directions, written by this side
}

var (
	_ transport.Link      = (*link)(nil)
	_ transport.Lingering = (*link)(nil)
)

// shared is what the two ends of a link have together.
type shared struct {
	once sync.Once
	over func() // called once, when the link has ended
}

// exchange is an exchange as the side sees it that did not open it.
type exchange struct{ reply, request *pipe }

// slot is a stream's place in the budget of the side that opened it. It is free when all of the stream's halves are over.
type slot struct {
	mu    sync.Mutex
	left  int
	slots chan struct{}
	over  chan struct{} // closed when left is 0; nil while nobody waits
}

// retired returns a channel that is closed when all halves are over.
func (s *slot) retired() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over == nil {
		s.over = make(chan struct{})
		if s.left == 0 {
			close(s.over)
		}
	}
	return s.over
}

func (s *slot) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left--; s.left > 0 {
		return
	}
	<-s.slots
	if s.over != nil {
		close(s.over)
	}
}

// newLinks returns the two ends of a link. over is called once when it has ended.
func newLinks(window, streams int, over func()) (dialled, accepted *link) {
	sh := &shared{over: over}
	end := func(dialled bool) *link {
		return &link{
			info: transport.Info{Dialled: dialled}, window: window, shared: sh, slots: make(chan struct{}, streams),
			uni: make(chan *pipe, streams), bi: make(chan exchange, streams), gone: make(chan struct{}), pipes: map[*pipe]struct{}{},
		}
	}
	dialled, accepted = end(true), end(false)
	dialled.peer, accepted.peer = accepted, dialled
	return dialled, accepted
}

func (l *link) Info() transport.Info  { return l.info }
func (l *link) Done() <-chan struct{} { return l.gone }

func (l *link) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		return nil
	}
	return l.err
}

func (l *link) Close(code uint64, text string) {
	l.shared.once.Do(func() {
		text = transport.CloseText(text)
		mine := &transport.CloseError{Cause: transport.CauseLocallyClosed, Code: code, Text: text}
		theirs := &transport.CloseError{Cause: transport.CausePeerClosed, Code: code, Text: text, Remote: true}
		mineWas, theirsWas := l.end(mine), l.peer.end(theirs)
		for p := range mineWas {
			p.lost(mine, theirs)
		}
		for p := range theirsWas {
			p.lost(theirs, mine)
		}
		close(l.gone)
		close(l.peer.gone)
		l.shared.over()
	})
	<-l.gone
}

// end notes why the link has ended, and returns the streams that this side writes.
func (l *link) end(why *transport.CloseError) map[*pipe]struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = why
	pipes := l.pipes
	l.pipes = nil
	return pipes
}

// pipe makes a half that this side writes.
func (l *link) pipe(s *slot, announce func(*pipe)) (*pipe, error) {
	p := newPipe(l, s, nil)
	if announce != nil {
		p.announce = func() { announce(p) }
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return nil, l.err
	}
	l.pipes[p] = struct{}{}
	return p, nil
}

// Linger waits until the peer has read to its end whatever this side has finished.
func (l *link) Linger(ctx context.Context) {
	l.mu.Lock()
	pipes := slices.Collect(maps.Keys(l.pipes))
	l.mu.Unlock()
	for _, p := range pipes {
		if !p.isFinished() {
			continue
		}
		select {
		case <-p.read:
		case <-ctx.Done():
			return
		}
	}
}

// forget drops a half that is over from the streams that the end of the link ends.
func (l *link) forget(p *pipe) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.pipes, p)
}

// take waits for a place among slots, which hold a token for each live stream that this side of l opened.
func take(ctx context.Context, l transport.Link, slots chan<- struct{}) error {
	select {
	case <-l.Done():
		return l.Err()
	default:
	}
	select {
	case slots <- struct{}{}:
		return nil
	case <-l.Done():
		return l.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *link) OpenUni(ctx context.Context) (transport.SendStream, error) {
	if err := take(ctx, l, l.slots); err != nil {
		return nil, err
	}
	p, err := l.pipe(&slot{left: 1, slots: l.slots}, func(p *pipe) { l.peer.uni <- p }) // there is room: each holds a slot
	if err != nil {
		<-l.slots
		return nil, err
	}
	return sendStream{p}, nil
}

func (l *link) OpenBi(ctx context.Context) (transport.SendStream, transport.ReceiveStream, error) {
	if err := take(ctx, l, l.slots); err != nil {
		return nil, nil, err
	}
	s := &slot{left: 2, slots: l.slots}
	reply, err := l.peer.pipe(s, nil)
	if err == nil {
		var request *pipe
		if request, err = l.pipe(s, func(p *pipe) { l.peer.bi <- exchange{reply, p} }); err == nil {
			return sendStream{request}, receiveStream{reply}, nil
		}
	}
	<-l.slots
	return nil, nil, err
}

func (l *link) AcceptUni(ctx context.Context) (transport.ReceiveStream, error) {
	p, err := transport.Next(ctx, l.uni, l.gone, l.Err)
	if err != nil {
		return nil, err
	}
	return receiveStream{p}, nil
}

func (l *link) AcceptBi(ctx context.Context) (transport.SendStream, transport.ReceiveStream, error) {
	e, err := transport.Next(ctx, l.bi, l.gone, l.Err)
	if err != nil {
		return nil, nil, err
	}
	return sendStream{e.reply}, receiveStream{e.request}, nil
}
