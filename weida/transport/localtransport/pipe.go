package localtransport

import (
	"io"
	"sync"

	"github.com/weir-agent/weir/weida/transport"
)

// pipe is one half of a stream in memory: what one side writes and the other reads.
type pipe struct {
	from *link // whose side writes
	slot *slot // of the stream; given back when both of its halves are over
	left bool  // this half has given its part of the slot back
	// announce puts the stream before the peer: with the first byte or the end of the stream, or never.
	announce func()

	mu       sync.Mutex
	changed  sync.Cond // of everything below
	buf      []byte    // written and not read, at most the window
	begun    bool
	finished bool
	ended    error // why no more is written: ErrAbandoned, *StopError, *CloseError
	reset    error // what the reader gets: *ResetError, *CloseError, ErrAbandoned after Stop
	drained  bool  // the reader has seen the end
	receipt  *transport.Receipt
	done     chan struct{} // closed when there is no more to write
}

func newPipe(from *link, s *slot, announce func()) *pipe {
	p := &pipe{from: from, slot: s, announce: announce, done: make(chan struct{})}
	p.changed.L = &p.mu
	return p
}

// over closes done and gives the stream's place back, once for each of the two. p.mu is held.
func (p *pipe) over() {
	select {
	case <-p.done:
	default:
		close(p.done)
	}
	if (p.drained || p.reset != nil) && !p.left {
		p.slot.leave()
		p.left = true
		p.from.forget(p)
	}
	p.changed.Broadcast()
}

// begin announces the stream. It must not be called with p.mu held.
func (p *pipe) begin() {
	p.mu.Lock()
	first := !p.begun
	p.begun = true
	p.mu.Unlock()
	if first && p.announce != nil {
		p.announce()
	}
}

// sendStream is the writing side of a pipe.
type sendStream struct{ *pipe }

var (
	_ transport.SendStream = sendStream{}
	_ transport.Retiring   = sendStream{}
)

func (s sendStream) Retired() <-chan struct{} { return s.slot.retired() }

func (s sendStream) Write(b []byte) (n int, err error) {
	s.begin()
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.ended != nil:
			return n, s.ended
		case s.finished:
			return n, transport.ErrFinished
		case n == len(b):
			return n, nil
		}
		if room := s.from.window - len(s.buf); room > 0 {
			m := min(room, len(b)-n)
			s.buf = append(s.buf, b[n:n+m]...)
			n += m
			s.changed.Broadcast()
			continue
		}
		s.changed.Wait()
	}
}

func (s sendStream) CloseWrite() error {
	s.begin()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.finished:
		return nil
	case s.ended != nil:
		return s.ended
	}
	s.finished = true
	if s.receipt != nil {
		s.receipt.Settle(nil) // this memory is the peer's transport
	}
	s.over()
	return nil
}

func (s sendStream) Reset(code uint64) {
	s.begin()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended != nil || s.drained {
		return
	}
	s.end(transport.ErrAbandoned, &transport.ResetError{Code: code})
}

// end ends the stream for both sides before its end. s.mu is held.
func (p *pipe) end(writer, reader error) {
	if p.ended == nil {
		p.ended = writer
	}
	if p.reset == nil && !p.drained {
		p.reset = reader
	}
	p.buf = nil
	if p.receipt != nil {
		p.receipt.Settle(writer)
	}
	p.over()
}

// lost ends the stream because the link has ended. err is what the writer gets, theirs what the reader gets.
func (p *pipe) lost(writer, reader error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.finished { // all of it was written: only the reader misses something
		writer = nil
	}
	p.end(writer, reader)
}

func (s sendStream) Done() <-chan struct{} { return s.done }

func (s sendStream) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

func (s sendStream) Receipt() (*transport.Receipt, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.receipt == nil && s.begun {
		return nil, transport.ErrNoReceipt
	}
	if s.receipt == nil {
		s.receipt = transport.NewReceipt(nil)
	}
	return s.receipt, nil
}

// receiveStream is the reading side of a pipe.
type receiveStream struct{ *pipe }

var _ transport.ReceiveStream = receiveStream{}

func (r receiveStream) Read(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		switch {
		case r.reset != nil:
			return 0, r.reset
		case len(r.buf) > 0:
			n := copy(b, r.buf)
			if r.buf = r.buf[n:]; len(r.buf) == 0 {
				r.buf = nil
			}
			r.changed.Broadcast()
			return n, nil
		case r.finished:
			r.drained = true
			r.over()
			return 0, io.EOF
		case len(b) == 0:
			return 0, nil
		}
		r.changed.Wait()
	}
}

func (r receiveStream) Stop(code uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.drained || r.reset != nil {
		return
	}
	r.end(&transport.StopError{Code: code}, transport.ErrAbandoned)
}
