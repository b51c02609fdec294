package wabstore

import (
	"encoding/binary"
	"errors"
	"slices"

	"github.com/weir-agent/weir/weida/broker"
)

// The first byte of a record.
const (
	kindMessage = 1 // seq, attempts, id, labels, length of the body, its first part
	kindPart    = 2 // seq, the next part of the body of the message before it
	kindAttempt = 3 // seq, attempt
	kindSettle  = 4 // seq
	kindIDs     = 5 // (seq, id) of settled messages
	kindNext    = 6 // the next seq
)

const (
	// partBytes is how much of a body one record holds at most.
	partBytes = 1 << 20
	// idsPerRecord bounds a record of kindIDs to about 40 KiB.
	idsPerRecord = 1000
)

// ErrFormat: a record that verifies is not one of this version.
var ErrFormat = errors.New("wabstore: a record of an unknown kind or form")

func appendHead(kind byte, numbers ...uint64) []byte {
	b := append(make([]byte, 0, 32), kind)
	for _, n := range numbers {
		b = binary.AppendUvarint(b, n)
	}
	return b
}

// appendMessage appends the records of a message to dst: one, and one more for each further part of its body.
func appendMessage(dst [][]byte, seq broker.Seq, attempts uint64, m *broker.Message) [][]byte {
	b := appendHead(kindMessage, uint64(seq), attempts)
	b = append(b, m.ID[:]...)
	for _, label := range []string{m.Topic, m.ContentType, m.TraceParent, m.TraceState} {
		b = binary.AppendUvarint(b, uint64(len(label)))
		b = append(b, label...)
	}
	b = binary.AppendUvarint(b, uint64(len(m.Body)))
	body := m.Body
	n := min(len(body), partBytes)
	dst = append(dst, append(b, body[:n]...))
	for body = body[n:]; len(body) > 0; body = body[n:] {
		n = min(len(body), partBytes)
		dst = append(dst, append(appendHead(kindPart, uint64(seq)), body[:n]...))
	}
	return dst
}

// cursor takes a record apart; what is missing makes it bad.
type cursor struct {
	b   []byte
	bad bool
}

func (c *cursor) number() uint64 {
	n, size := binary.Uvarint(c.b)
	if size <= 0 {
		c.bad = true
		return 0
	}
	c.b = c.b[size:]
	return n
}

func (c *cursor) bytes(n uint64) []byte {
	if n > uint64(len(c.b)) {
		c.bad = true
		return nil
	}
	b := c.b[:n]
	c.b = c.b[n:]
	return b
}

func (c *cursor) id() (id broker.ID) {
	copy(id[:], c.bytes(uint64(len(id))))
	return id
}

// message reads the first record of a message. need is how much of the body is still to come. Memory follows the bytes that are there.
func (c *cursor) message() (s broker.Stored, need uint64) {
	s.Seq, s.Attempts = broker.Seq(c.number()), c.number()
	m := &broker.Message{ID: c.id()}
	for _, label := range []*string{&m.Topic, &m.ContentType, &m.TraceParent, &m.TraceState} {
		*label = string(c.bytes(c.number()))
	}
	total := c.number()
	m.Body = slices.Clone(c.b) // so that a message does not hold all that was read with it
	if total < uint64(len(c.b)) {
		c.bad = true
		return s, 0
	}
	s.Message = m
	return s, total - uint64(len(c.b))
}
