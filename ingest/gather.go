package ingest

import (
	"encoding/binary"
	"errors"

	"github.com/weir-agent/weir/ingest/frame"
	"github.com/weir-agent/weir/wab/record"
)

// gather takes whole frames out of the buffer, as lots, until the buffer has no
// whole frame or the window no room. If nothing is in flight it takes at least
// one. It reports whether the last lot is a Nack that ends the connection.
func (c *conn) gather() (closing bool) {
	records, bytes, waited := c.win.room()
	if waited {
		c.in.restart()
	}
	c.in.again = false
	for !c.in.skip.on {
		b := c.in.unread()
		if len(b) < frame.HeaderLen {
			return false
		}
		h, err := frame.ParseRequestHeader(b, c.srv.cfg.MaxPayloadBytes)
		if err != nil {
			return c.refuse(err)
		}
		c.in.need = h.FrameLen()
		if len(b) < c.in.need {
			if len(c.lots) > 0 {
				c.in.again = c.in.need > len(c.in.slab.b) // lots alias the buffer: append them before it moves
				return false
			}
			if c.in.compact(); !c.in.grow() {
				c.beginSkip(h)
				break
			}
			return false
		}
		payload, err := frame.ParsePayload(b, h)
		if err != nil {
			return c.refuse(err)
		}
		weight := 1
		if h.Type == frame.PushBatch && len(payload) >= frame.BatchPrefixBytes {
			weight = min(int(binary.LittleEndian.Uint16(payload[1:])), frame.MaxBatchRecords)
		}
		if len(c.lots) > 0 && (weight > records || len(payload) > bytes) {
			c.in.again = true
			return false
		}
		if err := c.admit(h, payload); err != nil {
			return c.refuse(err)
		}
		records -= weight
		bytes -= len(payload)
		c.in.consume(c.in.need)
	}
	return c.skip()
}

// admit adds a frame to the lots.
func (c *conn) admit(h frame.Header, payload []byte) error {
	from := len(c.payloads)
	var err error
	switch h.Type {
	case frame.Push, frame.PushTracked:
		c.payloads = append(c.payloads, payload)
	case frame.PushBatch:
		c.payloads, err = frame.ParseBatch(c.payloads, payload, c.srv.cfg.MaxBatchRecords, c.srv.cfg.MaxPayloadBytes)
	}
	if err != nil {
		return err
	}
	l := c.lot(h.Type, h.Durability, from)
	l.frames++
	l.to = len(c.payloads)
	l.records = l.to - l.from
	l.bytes += len(payload)
	return nil
}

// lot returns the lot that a frame of this type and tier belongs to.
func (c *conn) lot(t frame.Type, d record.Durability, from int) *lot {
	if n := len(c.lots); n > 0 && t != frame.PushBatch {
		if l := &c.lots[n-1]; l.kind == t && l.tier == d && !l.refused {
			return l
		}
	}
	c.lots = append(c.lots, lot{kind: t, tier: d, from: from, to: from})
	return &c.lots[len(c.lots)-1]
}

// refuse ends the connection with the Nack of a verdict.
func (c *conn) refuse(err error) (closing bool) {
	var verdict frame.Verdict
	reason := frame.InternalError
	if errors.As(err, &verdict) {
		if r, ok := verdict.Reason(); ok {
			reason = r
		}
	}
	c.lots = append(c.lots, lot{kind: frame.Nack, reason: reason, frames: 1})
	return true
}

// beginSkip starts to throw away the frame that begins at the unread bytes: it
// has to be read whole, since the connection stays open after its Nack.
func (c *conn) beginSkip(h frame.Header) {
	c.in.skip = skip{on: true, header: h, left: h.PayloadLen}
	c.in.r += frame.HeaderLen
}

// skip throws away what has come of a frame that found no room, and gives it its
// Nack once it was read to the end.
func (c *conn) skip() (closing bool) {
	s := &c.in.skip
	b := c.in.unread()
	n := min(s.left, len(b))
	s.running = frame.UpdateChecksum(s.running, b[:n])
	s.left -= n
	c.in.r += n
	b = b[n:]
	if s.left > 0 || len(b) < frame.TrailerLen {
		return false
	}
	if binary.LittleEndian.Uint32(b) != s.running {
		return c.refuse(frame.ErrPayloadCrcMismatch)
	}
	c.lots = append(c.lots, lot{kind: s.header.Type, tier: s.header.Durability, refused: true, frames: 1, records: 1})
	*s = skip{}
	c.in.r += frame.TrailerLen
	c.in.need = 0
	c.in.consumed = true
	c.in.again = true // look at what is behind it
	return false
}
