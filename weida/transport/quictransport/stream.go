package quictransport

import (
	"context"
	"errors"
	"io"
	"sync"

	quic "github.com/quic-go/quic-go"

	"github.com/weir-agent/weir/weida/transport"
)

// writeHalf is what quic-go's one-way stream and the writing half of its two-way stream have in common.
type writeHalf interface {
	io.WriteCloser
	StreamID() quic.StreamID
	TryWriteAll(p []byte) error
	CancelWrite(code quic.StreamErrorCode)
	Context() context.Context
}

// sendStream is the writing half of a stream.
type sendStream struct {
	link *link
	half writeHalf

	mu      sync.Mutex
	begun   bool     // a Write or CloseWrite was called
	tracked *tracked // nil unless a receipt was asked for
}

var _ transport.SendStream = (*sendStream)(nil)

// begin notes that bytes may leave from here on, and returns the tracked stream if there is one.
func (s *sendStream) begin() *tracked {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun = true
	return s.tracked
}

func (s *sendStream) Write(p []byte) (int, error) {
	s.begin()
	n, err := s.half.Write(p)
	if err != nil {
		return n, s.link.writeError(err)
	}
	return n, nil
}

func (s *sendStream) CloseWrite() error {
	t := s.begin()
	// quic-go's Close says nothing of a stream that has ended otherwise.
	if err := s.half.TryWriteAll(nil); err != nil && !errors.Is(err, quic.ErrWouldBlock) {
		if err = s.link.writeError(err); errors.Is(err, transport.ErrFinished) {
			return nil
		}
		return err
	}
	if t != nil {
		s.link.tracker.finish(t)
	}
	if err := s.half.Close(); err != nil {
		return s.Err()
	}
	return nil
}

func (s *sendStream) Reset(code uint64) {
	s.half.CancelWrite(quic.StreamErrorCode(code))
	s.mu.Lock()
	t := s.tracked
	s.mu.Unlock()
	if t != nil {
		// After a refusal by the peer this is that refusal; a finished stream has no error of its own.
		err := s.Err()
		if err == nil {
			err = transport.ErrAbandoned
		}
		s.link.tracker.settle(t, err)
	}
}

func (s *sendStream) Done() <-chan struct{} { return s.half.Context().Done() }

func (s *sendStream) Err() error {
	err := s.half.TryWriteAll(nil)
	if errors.Is(err, quic.ErrWouldBlock) {
		// Another goroutine is in Write, so the stream is not finished, and its context tells what ended it.
		err = context.Cause(s.half.Context())
	}
	if err == nil {
		return nil
	}
	if err = s.link.writeError(err); errors.Is(err, transport.ErrFinished) {
		return nil
	}
	return err
}

func (s *sendStream) Receipt() (*transport.Receipt, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tracked != nil {
		return s.tracked.receipt, nil
	}
	if s.begun || s.link.tracker == nil {
		return nil, transport.ErrNoReceipt
	}
	s.tracked = s.link.tracker.track(s.half.StreamID())
	return s.tracked.receipt, nil
}

// readHalf is what quic-go's one-way stream and the reading half of its two-way stream have in common.
type readHalf interface {
	io.Reader
	CancelRead(code quic.StreamErrorCode)
}

// receiveStream is the reading half of a stream.
type receiveStream struct {
	link *link
	half readHalf
}

var _ transport.ReceiveStream = (*receiveStream)(nil)

func (s *receiveStream) Read(p []byte) (int, error) {
	n, err := s.half.Read(p)
	if err != nil {
		return n, s.link.readError(err)
	}
	return n, nil
}

func (s *receiveStream) Stop(code uint64) { s.half.CancelRead(quic.StreamErrorCode(code)) }
