package ingest

import (
	"github.com/weir-agent/weir/ingest/frame"
	"github.com/weir-agent/weir/wab"
	"github.com/weir-agent/weir/wab/record"
)

type ticket = wab.Ticket

// reply is the replier: it waits for lots in order and writes their replies,
// until the window is over and empty.
func (c *conn) reply() {
	s := settler{c: c}
	var lots []lot
	for {
		clear(lots)
		lots = c.win.take(lots)
		if len(lots) == 0 {
			return
		}
		s.settle(lots)
		for i := range lots {
			c.srv.mem.give(lots[i].charge)
		}
		c.win.done(lots)
	}
}

// settler waits for lots and answers them. It is for one goroutine.
type settler struct {
	c      *conn
	out    []byte
	hasher record.IDHasher
}

// writeBytes is how many bytes of replies are gathered before they are written,
// at least.
const writeBytes = 32 << 10

// settle waits for every lot in order and writes the replies: together for lots
// that were appended together, but a reply of one tier does not wait
// for a lot of the other.
func (s *settler) settle(lots []lot) {
	from := 0 // the first lot whose replies are not written
	for i := range lots {
		l := &lots[i]
		if i > 0 && (l.tier != lots[i-1].tier || len(s.out) >= writeBytes) {
			s.flush(lots[from:i])
			from = i
		}
		s.answer(l)
	}
	s.flush(lots[from:])
	if cap(s.out) > 2*writeBytes {
		s.out = nil
	}
}

// flush writes the replies of the lots.
func (s *settler) flush(lots []lot) {
	now := s.c.srv.clock()
	for i := range lots {
		if !lots[i].refused { // the answer to these says how fast a cap refuses, not how fast the disk is
			s.c.srv.count.answered(now-lots[i].begun, lots[i].records)
		}
	}
	s.c.write(s.out)
	s.out = s.out[:0]
}

// answer waits for a lot and appends its replies.
func (s *settler) answer(l *lot) {
	count := &s.c.srv.count
	switch {
	case l.kind == frame.HealthCheck && !l.refused:
		for range l.frames {
			s.out = frame.AppendHealthCheckResponse(s.out)
		}
		return
	case l.kind == frame.Nack:
		s.nack(l.reason)
		return
	case l.refused:
		count.failed.Add(uint64(l.records))
		for range l.frames {
			s.nack(frame.InternalError)
		}
		return
	}
	err := l.ticket.Wait()
	failed := 0
	if err != nil {
		for i := range l.records {
			if l.ticket.Err(i) != nil {
				failed++
			}
		}
	}
	count.acked.Add(uint64(l.records - failed))
	count.failed.Add(uint64(failed))
	if l.kind == frame.PushBatch {
		s.out = frame.AppendAckBatch(s.out, l.records, func(i int) bool { return err == nil || l.ticket.Err(i) == nil })
		return
	}
	for i := range l.records {
		switch {
		case err != nil && l.ticket.Err(i) != nil:
			s.nack(frame.InternalError)
		case l.kind == frame.PushTracked:
			segment, index := l.ticket.Coordinate(i)
			s.out = frame.AppendAckTracked(s.out, record.Coordinate{
				Segment: segment, Index: index, ID: s.hasher.ID(segment, index, l.payloads[i]),
			})
		default:
			s.out = frame.AppendAck(s.out)
		}
	}
}

func (s *settler) nack(r frame.Reason) {
	s.c.srv.count.nacks[r].Add(1)
	s.out = frame.AppendNack(s.out, r)
}
