package ingest

import (
	"sync/atomic"
	"time"

	"github.com/weir-agent/weir/ingest/frame"
)

// Stats is what a server has counted since New. Open and MemoryBytes are the
// present values.
type Stats struct {
	// Open is the number of open connections.
	Open int64
	// Accepted is the number of connections that were let in.
	Accepted uint64
	// RefusedPeer is the number of connections whose user id was not allowed or
	// could not be told, RefusedLimit of those above MaxConnections.
	RefusedPeer  uint64
	RefusedLimit uint64
	// AcceptErrors is the number of failed accepts.
	AcceptErrors uint64
	// FrameTimeouts is the number of connections cut off in the middle of a
	// frame, WriteTimeouts of those that left their replies unread.
	FrameTimeouts uint64
	WriteTimeouts uint64
	// Frames counts whole requests by type, Nacks the Nacks by reason.
	Frames map[frame.Type]uint64
	Nacks  map[frame.Reason]uint64
	// AckedRecords is the number of records that were acked, of any type.
	AckedRecords uint64
	// FailedRecords is the number of records of accepted frames that were not:
	// in a Nack(InternalError) or with a clear bit.
	FailedRecords uint64
	// MemoryBytes is what is charged to the budget.
	MemoryBytes int64
	// AnswerTimes counts the records of answered frames, but those that were refused at once, by the time from when the frame had been read to when its
	// reply is written; AnswerTotal is the sum of these times.
	AnswerTimes []AnswerBucket
	AnswerTotal time.Duration
}

// AnswerBucket counts the records that were answered within Upto (0: later than all bounds).
type AnswerBucket struct {
	Upto  time.Duration
	Count uint64
}

// answerBounds are the upper bounds of the buckets of answer times.
var answerBounds = [...]time.Duration{
	10 * time.Microsecond, 20 * time.Microsecond, 50 * time.Microsecond, 100 * time.Microsecond, 200 * time.Microsecond, 500 * time.Microsecond,
	time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond, time.Second, 5 * time.Second,
}

// AnswerQuantile returns an upper bound of the answer times' quantile q: the bound of its bucket, or the
// last bound where it is above all. It is 0 where nothing was counted.
func (st *Stats) AnswerQuantile(q float64) time.Duration {
	total := uint64(0)
	for _, b := range st.AnswerTimes {
		total += b.Count
	}
	if total == 0 {
		return 0
	}
	seen := uint64(0)
	for _, b := range st.AnswerTimes {
		seen += b.Count
		if b.Upto > 0 && float64(seen) >= q*float64(total) {
			return b.Upto
		}
	}
	return answerBounds[len(answerBounds)-1]
}

const (
	typeSlots   = int(frame.AckBatch) + 1
	reasonSlots = int(frame.BadBatchFraming) + 1
)

// counters are added to by connections; nothing here is ever set back.
type counters struct {
	accepted, refusedPeer, refusedLimit, acceptErrors atomic.Uint64
	frameTimeouts, writeTimeouts                      atomic.Uint64
	acked, failed                                     atomic.Uint64
	frames                                            [typeSlots]atomic.Uint64
	nacks                                             [reasonSlots]atomic.Uint64
	answers                                           [len(answerBounds) + 1]atomic.Uint64
	answerNanos                                       atomic.Int64
}

// answered books that so many records had their replies after d.
func (c *counters) answered(d time.Duration, records int) {
	if records == 0 {
		return
	}
	i := 0
	for i < len(answerBounds) && d > answerBounds[i] {
		i++
	}
	c.answers[i].Add(uint64(records))
	c.answerNanos.Add(int64(d) * int64(records))
}

// clock is the time since New, for differences.
func (s *Server) clock() time.Duration { return time.Since(s.begun) }

// Stats returns a snapshot; its parts may be a moment apart.
func (s *Server) Stats() Stats {
	c := &s.count
	out := Stats{
		Accepted:      c.accepted.Load(),
		RefusedPeer:   c.refusedPeer.Load(),
		RefusedLimit:  c.refusedLimit.Load(),
		AcceptErrors:  c.acceptErrors.Load(),
		FrameTimeouts: c.frameTimeouts.Load(),
		WriteTimeouts: c.writeTimeouts.Load(),
		AckedRecords:  c.acked.Load(),
		FailedRecords: c.failed.Load(),
		MemoryBytes:   s.mem.used.Load(),
		Frames:        map[frame.Type]uint64{},
		Nacks:         map[frame.Reason]uint64{},
	}
	s.mu.Lock()
	out.Open = int64(len(s.conns))
	s.mu.Unlock()
	for t := range c.frames {
		if frame.Type(t).Request() {
			out.Frames[frame.Type(t)] = c.frames[t].Load()
		}
	}
	for i := range c.answers {
		b := AnswerBucket{Count: c.answers[i].Load()}
		if i < len(answerBounds) {
			b.Upto = answerBounds[i]
		}
		out.AnswerTimes = append(out.AnswerTimes, b)
	}
	out.AnswerTotal = time.Duration(c.answerNanos.Load())
	for r := range c.nacks {
		if frame.Reason(r).Known() {
			out.Nacks[frame.Reason(r)] = c.nacks[r].Load()
		}
	}
	return out
}
