package weidasink

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-agent/weir/sinks"
	"github.com/weir-agent/weir/wab/record"
	"github.com/weir-agent/weir/weida"
)

var (
	// errNoAnswer: a dial was given up.
	errNoAnswer = errors.New("the broker does not answer")
	// errNoConfirm: an attempt was given up.
	errNoConfirm = errors.New("the broker confirms nothing and takes nothing")
)

// judge returns what a confirm is worth.
func (s *Sink) judge(m *weida.IncomingMeta) sinks.Outcome {
	switch level := m.Achieved.Value; {
	case !m.Achieved.Set:
		return hold("what answers at %q confirms nothing: it is no queue; correct sink.weida.url", s.set.addr.Path)
	case level < s.set.level:
		return hold("the broker confirms %q, and sink.weida.required_ack is %q: give its queue a store on disk, or ask for less", level.String(), s.set.RequiredAck)
	}
	s.confirmed.Store(time.Now().UnixNano())
	return sinks.Outcome{Verdict: sinks.Delivered}
}

// wasThere reports whether the queue was there a moment ago.
func (s *Sink) wasThere() bool {
	return time.Since(time.Unix(0, s.confirmed.Load())) < vanished
}

// failed returns what it means that a record, or the link, failed with err. What is the broker's fault, or the address's, holds; what may pass is tried again,
// whether it is certain that nothing was done or not, since the broker knows a repeat by its id.
func (s *Sink) failed(err error) sinks.Outcome {
	if op, ok := errors.AsType[*weida.OpError](err); ok {
		err = op.Err // where it goes is known, and long
	}
	if untrusted, ok := errors.AsType[*weida.UntrustedError](err); ok {
		return hold("%s proved another key than the one in sink.weida.url, nothing was sent to it: %s. Correct the address if that is the broker",
			s.set.addr.Authority(), untrusted.Fingerprint)
	}
	switch {
	case errors.Is(err, weida.ErrUnknownEndpoint) && s.wasThere():
		return sinks.Outcome{Verdict: sinks.Retry, Reason: fmt.Sprintf("the broker has its queue no more: it is about to end, or has just begun (%.200q)", s.set.addr.Path)}
	case errors.Is(err, weida.ErrUnknownEndpoint):
		return hold("the broker has no queue at %q: make it there, or correct sink.weida.url", s.set.addr.Path)
	case errors.Is(err, weida.ErrUnsupported):
		return hold("what is at %q of the broker is no queue: correct sink.weida.url", s.set.addr.Path)
	case errors.Is(err, weida.ErrTLS):
		return hold("the handshake failed; if the broker admits only keys that it knows, add this one there: %s (%v)", s.key, err)
	case errors.Is(err, weida.ErrNegotiation):
		return hold("the broker does not promise what sink.weida.required_ack = %q asks for: that every one of its queues is on disk and flushed. Change its queues, or ask for less (%v)",
			s.set.RequiredAck, err)
	case errors.Is(err, weida.ErrLimitExceeded):
		return sinks.Outcome{Verdict: sinks.Retry, Reason: sinks.CleanReason("the broker is at a limit: " + err.Error())}
	case errors.Is(err, weida.ErrRejected):
		return sinks.Outcome{Verdict: sinks.Retry, Reason: sinks.CleanReason("the broker declines: " + err.Error())}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return sinks.Outcome{Verdict: sinks.Retry, Reason: "the attempt was ended before the broker confirmed it"}
	}
	return sinks.Outcome{Verdict: sinks.Retry, Reason: sinks.CleanReason(err.Error())}
}

// worse returns which of the errors of a request and its reply says more. That the reply is missing is told best by what ended the request.
func worse(request, reply error) error {
	if request != nil && errors.Is(reply, weida.ErrIndeterminate) {
		return request
	}
	return reply
}

// stops tells whether what became of one record means that the others need not be tried now.
func stops(o sinks.Outcome) bool { return o.Verdict == sinks.Hold || o.Verdict == sinks.Retry }

// hold is the outcome where the broker or the configuration is at fault.
func hold(format string, args ...any) sinks.Outcome {
	return sinks.Outcome{Verdict: sinks.Hold, Reason: sinks.CleanReason(fmt.Sprintf(format, args...))}
}

// tooLarge reports whether a record is never sent.
func (s *Sink) tooLarge(r *record.Record) bool {
	return s.set.MaxRecordBytes > 0 && int64(len(r.Payload)) > s.set.MaxRecordBytes
}

// refused is the outcome of a record that is too large.
func (s *Sink) refused(r *record.Record) sinks.Outcome {
	reason := fmt.Sprintf("%d bytes, more than sink.weida.max_record_bytes, %d", len(r.Payload), s.set.MaxRecordBytes)
	return sinks.Outcome{Verdict: sinks.Reject, Isolated: true, Reason: reason}
}
