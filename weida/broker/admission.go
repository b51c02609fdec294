package broker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/weir-agent/weir/weida"
)

// firstReadBytes is how much room for a body is made before anything of it has come; from there it doubles.
const firstReadBytes = 512

// errRecordID: the record id has a wrong length.
var errRecordID = fmt.Errorf("the record id (extension %d) must be of %d bytes", RecordIDExtension, len(ID{}))

// errStore: the store did not take the message. What it said is in the log: it is nothing for a peer.
var errStore = errors.New("the queue could not store the message")

// errBusy: the queue takes in as many messages as it may at a time.
var errBusy = errors.New("too many messages at a time")

// incoming takes in what a producer sends, in a goroutine of its own: a body may be long in coming.
func (s *served) incoming(ctx context.Context, in weida.Incoming) {
	select {
	case s.admitting <- struct{}{}:
	default:
		s.countRefusal()
		refuse(in, errBusy)
		return
	}
	s.work.Go(func() {
		defer func() { <-s.admitting }()
		body := in.Transfer
		if in.Request != nil {
			body = in.Request.Body()
			defer func() { _ = in.Request.Close() }() // it always returns nil
		}
		owed, err := s.admit(ctx, body)
		defer s.answered(owed)
		switch {
		case err == nil && in.Request != nil:
			// The message is in the queue, whether the producer hears of it or not.
			if err := in.Request.Respond(ctx, weida.Meta{Achieved: weida.Some(s.level)}, nil); err != nil {
				s.log.Debug("a confirm could not be sent", "error", err)
			}
		case err == nil, ctx.Err() != nil:
		case isPeerFault(err):
			_ = body.Close() // it always returns nil; nobody is there to be answered
		default:
			refuse(in, err)
		}
	})
}

// peerFault is the failure of a producer in the middle of a body.
type peerFault struct{ error }

func isPeerFault(err error) bool { return errors.As(err, new(peerFault)) }

// refuse tells a producer that its message is not in the queue. err is one of this package's, whose texts are for peers.
func refuse(in weida.Incoming, err error) {
	if in.Request == nil {
		_ = in.Transfer.Close() // it always returns nil
		return
	}
	// Whoever cannot be told learns from the end of its link that the outcome is unknown.
	_ = in.Request.Refuse(weida.CodeRejected, err.Error())
}

func (s *served) countRefusal() {
	s.mu.Lock()
	s.totals.Refused++
	s.mu.Unlock()
}

// admission is a message whose outcome the store decides.
type admission struct {
	outcome  chan error // holds one
	reporter *weida.Reporter
	bytes    uint64
	repeat   bool
}

func newAdmission(m *Message, r *weida.Reporter) *admission {
	return &admission{outcome: make(chan error, 1), reporter: r, bytes: uint64(len(m.Body))}
}

// wait returns nil when the store has the message.
func (a *admission) wait(ctx context.Context) error {
	select {
	case err := <-a.outcome:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// admit reads a message and returns nil when the store has it, as this message or as one before it of the same id. owed is what it has added to the answers that are owed.
func (s *served) admit(ctx context.Context, t *weida.IncomingTransfer) (owed int, err error) {
	stop := context.AfterFunc(ctx, func() { _ = t.Close() }) // it always returns nil
	defer stop()
	m, reserved, err := s.read(t)
	if err != nil {
		s.release(reserved)
		if !isPeerFault(err) {
			s.countRefusal()
		}
		return 0, err
	}
	a := newAdmission(m, t.Reporter())
	s.update(func(q *Queue) {
		s.reading -= reserved
		s.owed++
		var seq Seq
		seq, a.repeat, err = q.Admit(m)
		s.expect(a, seq, err)
	})
	return 1, a.wait(ctx)
}

// expect has the store decide on an admission, unless that is decided: by an error, or with seq 0 as the repeat of a message that is stored. The lock is held.
func (s *served) expect(a *admission, seq Seq, err error) {
	if err != nil || seq == 0 {
		s.decide(a, 0, err)
		return
	}
	s.waiting[seq] = append(s.waiting[seq], a)
}

// answered notes that answers are not owed any more.
func (s *served) answered(owed int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owed -= owed
	s.settleRetirement()
}

// decide tells a producer what became of its message: it makes the reports that it has ordered, and lets admit return. A report on Processed waits for what the
// consumer reports (§9). A refusal reports nothing. The lock is held.
func (s *served) decide(a *admission, seq Seq, err error) {
	if err == nil {
		if a.repeat {
			s.totals.Repeats++
		} else {
			s.totals.Admitted++
			s.totals.AdmittedBytes += a.bytes
		}
		s.certify(a, seq)
	} else {
		s.totals.Refused++
	}
	a.outcome <- err
}

func (s *served) certify(a *admission, seq Seq) {
	if a.reporter == nil {
		return
	}
	for _, level := range []weida.Level{weida.LevelAccepted, weida.LevelStored} {
		if level <= s.level {
			a.reporter.Report(level, a.bytes)
		}
	}
	if seq != 0 && !a.repeat && slices.Contains(a.reporter.Levels(), weida.LevelProcessed) {
		s.relays[seq] = a.reporter
		return
	}
	a.reporter.Finish()
}

// relay passes the consumer's report on to the producer, one hop, or ends the producer's report if nothing was processed. The lock is held.
func (s *served) relay(seq Seq, processed bool, offset uint64) {
	r := s.relays[seq]
	if r == nil {
		return
	}
	if processed {
		r.Report(weida.LevelProcessed, offset)
	}
	r.Finish()
	delete(s.relays, seq)
}

// message returns what the header of a transfer says, without its body.
func message(meta *weida.IncomingMeta) (*Message, error) {
	m := &Message{
		Topic: meta.Topic.Value, ContentType: meta.ContentType,
		TraceParent: meta.Trace.Traceparent(), TraceState: meta.Trace.State,
	}
	id, there := meta.Extension(RecordIDExtension)
	if there && len(id) != len(m.ID) {
		return nil, errRecordID
	}
	copy(m.ID[:], id)
	return m, nil
}

// read reads a message. All that it holds meanwhile is charged to the queue before it is held; reserved is to be released, also after an error. A queue without
// room refuses before anything of the body is read, and what there is no room for is not read (§11.2).
func (s *served) read(t *weida.IncomingTransfer) (m *Message, reserved int, err error) {
	if m, err = message(t.Meta()); err != nil {
		return nil, 0, err
	}
	if reserved = m.charge(); s.reserve(reserved, reserved) == 0 {
		return nil, 0, s.noRoom()
	}
	var body []byte
	for {
		if len(body) == cap(body) {
			more := s.reserve(1, max(firstReadBytes, len(body)))
			reserved += more
			if more == 0 {
				if n, err := t.Read(make([]byte, 1)); n > 0 || !errors.Is(err, io.EOF) {
					return nil, reserved, s.noRoom()
				}
				break
			}
			body = append(make([]byte, 0, len(body)+more), body...)
		}
		n, err := t.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, reserved, peerFault{err}
		}
	}
	m.Body = append(make([]byte, 0, len(body)), body...) // so that a message holds what it is charged for
	return m, reserved, nil
}

// reserve charges at most n bytes to the queue for what is being read, and returns how many: none if there is no room for least of them.
func (s *served) reserve(least, n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n = min(n, s.q.Free()-s.reading)
	if n < least {
		return 0
	}
	s.reading += n
	return n
}

func (s *served) release(n int) {
	s.mu.Lock()
	s.reading -= n
	s.mu.Unlock()
}

// noRoom returns why there is no room.
func (s *served) noRoom() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.q.closing {
		return ErrRetired
	}
	return ErrFull
}
