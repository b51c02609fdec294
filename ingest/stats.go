package ingest

import (
	"sync/atomic"

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
}

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
	for r := range c.nacks {
		if frame.Reason(r).Known() {
			out.Nacks[frame.Reason(r)] = c.nacks[r].Load()
		}
	}
	return out
}
