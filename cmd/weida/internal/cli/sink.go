package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/weir-agent/weir/cmd/weida/internal/framing"
	"github.com/weir-agent/weir/weida"
)

// stopPatience is how long a message that was taken may take to its end once a signal has come.
const stopPatience = 5 * time.Second

// receiver is what messages are taken from.
type receiver interface {
	Recv(ctx context.Context) (*weida.IncomingTransfer, error)
}

// sink writes messages to standard output, one behind the other.
type sink struct {
	out     *output
	frames  *frames
	count   int           // of messages to write, 0 for no end
	timeout time.Duration // for the rest of a message that has begun; 0 for ever
	queue   bool          // what is not taken is somebody else's, and so must not be left out
	note    io.Writer

	written, broken int
	missed          uint64
	unflushed       []*weida.Reporter // of messages that are written and may not be out
}

const (
	// maxUnflushed is how many messages may be written before they are out.
	maxUnflushed = 256
	// maxNotes is how many messages that broke off are told of one by one.
	maxNotes = 3
)

// flush puts out what was written, and tells the senders.
func (s *sink) flush() error {
	if err := s.out.flush(); err != nil {
		return err
	}
	for _, r := range s.unflushed {
		r.Finish()
	}
	s.unflushed = s.unflushed[:0]
	return nil
}

// wrote counts a message, of so many bytes.
func (s *sink) wrote(in *weida.IncomingTransfer, n int64) error {
	s.written++
	if r := in.Reporter(); r != nil {
		r.Report(weida.LevelProcessed, uint64(n))
		s.unflushed = append(s.unflushed, r)
	}
	if len(s.unflushed) >= maxUnflushed {
		return s.flush()
	}
	return nil
}

// run writes what comes until ctx ends, and then what is waiting already.
func (s *sink) run(ctx context.Context, from receiver) error {
	err := s.write(ctx, from)
	return errors.Join(err, s.flush())
}

func (s *sink) write(ctx context.Context, from receiver) error {
	now, cancel := context.WithCancel(context.Background())
	cancel() // so that a Recv waits for nothing
	var until time.Time
	for s.count == 0 || s.written < s.count {
		if ctx.Err() != nil {
			orNow(&until)
			if time.Now().After(until) { // others go on sending
				return nil
			}
		}
		in, err := from.Recv(now)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			if err := s.flush(); err != nil {
				return err
			}
			if in, err = from.Recv(ctx); err != nil {
				if ctx.Err() != nil {
					continue // once more for what is waiting
				}
				return err
			}
		}
		if err := s.take(ctx, in); err != nil {
			return err
		}
	}
	return nil
}

// orNow sets when to stop taking what is waiting, if that is not set.
func orNow(until *time.Time) {
	if until.IsZero() {
		*until = time.Now().Add(stopPatience)
	}
}

// take writes one message. A message that broke off is left out and told, unless a part of it is in the output and no other could mend that.
func (s *sink) take(ctx context.Context, in *weida.IncomingTransfer) error {
	s.missed += in.Meta().Gap.Missed()
	defer s.watch(ctx, in)()
	if s.frames.framing == framing.Raw && !s.out.asJSON {
		return s.stream(in)
	}
	body, err := in.Collect(s.frames.maxBytes)
	if s.queue && errors.Is(err, weida.ErrLimitExceeded) {
		if r := in.Reporter(); r != nil {
			r.Finish()
		}
		return fmt.Errorf("a message is longer than --max-bytes %d and stays in the queue", s.frames.maxBytes)
	}
	if err != nil {
		s.broke("left out a message of %s: %v", in.Meta().Peer, err)
		return nil
	}
	if err := s.out.write(in.Meta(), body); err != nil {
		return err
	}
	return s.wrote(in, int64(len(body)))
}

// broke counts a message that broke off.
func (s *sink) broke(format string, args ...any) {
	if s.broken++; s.broken <= maxNotes {
		fmt.Fprintf(s.note, format+"\n", args...)
	}
}

// watch ends a message that takes too long.
func (s *sink) watch(ctx context.Context, in *weida.IncomingTransfer) (unwatch func()) {
	end := func() { _ = in.Close() } // it always returns nil, and does nothing behind the end
	limit := time.NewTimer(0)
	limit.Stop()
	if s.timeout > 0 && s.frames.framing != framing.Raw {
		limit = time.AfterFunc(s.timeout, end)
	}
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(stopPatience, end) })
	return func() {
		stop()
		limit.Stop()
	}
}

// stream writes one message as it comes.
func (s *sink) stream(in *weida.IncomingTransfer) error {
	tracked := &readErr{r: in}
	n, err := s.out.w.Copy(tracked)
	switch {
	case tracked.err != nil:
		s.broke("a message of %s broke off, and what had come of it was written: %v", in.Meta().Peer, tracked.err)
		if s.count > 0 {
			return tracked.err
		}
		return nil
	case err != nil:
		_ = in.Close() // it always returns nil
		return fmt.Errorf("standard output: %w", err)
	}
	return s.wrote(in, n)
}

// readErr keeps the error of a read apart from that of a write.
type readErr struct {
	r   io.Reader
	err error
}

func (r *readErr) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		r.err = err
	}
	return n, err
}

// sum says what there was.
func (s *sink) sum() {
	s.out.torn(s.note)
	fmt.Fprintf(s.note, "%d messages written", s.written)
	if s.broken > 0 {
		fmt.Fprintf(s.note, ", %d broke off", s.broken)
	}
	if s.missed > 0 {
		fmt.Fprintf(s.note, ", %d missed", s.missed)
	}
	fmt.Fprintln(s.note)
}
