// Package record holds the words that every part of weir shares about one
// record: its coordinate, its id and the durability that its producer asked
// for. It does no I/O.
package record

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"
)

// MaxBytes is the largest payload of one record: MAX_PAYLOAD_HARD_CAP of
// weir wire v1, 16 MiB.
const MaxBytes = 16 << 20

// Durability says how safe a record has to be before its producer gets an ack.
// The values are the durability bytes of weir wire v1.
type Durability uint8

const (
	// Durable is acked once the record is on stable storage.
	Durable Durability = 1
	// Buffered is acked once the write of the record reached the operating
	// system; it survives the death of the daemon, not of the machine.
	Buffered Durability = 3
)

// String returns "durable" or "buffered", or the number of an unknown value.
func (d Durability) String() string {
	switch d {
	case Durable:
		return "durable"
	case Buffered:
		return "buffered"
	}
	return fmt.Sprintf("durability(%#02x)", uint8(d))
}

// ParseDurability is the inverse of String for the two known tiers.
func ParseDurability(s string) (Durability, error) {
	switch s {
	case "durable":
		return Durable, nil
	case "buffered":
		return Buffered, nil
	}
	return 0, fmt.Errorf("record: unknown durability %q: use durable or buffered", s)
}

// ID is a record id: the SHA-256 digest that names one record for ever. It is
// the key that a sink gets with the record, and the id in an AckTracked.
type ID [sha256.Size]byte

const idPrefix = "sha256:"

// String returns the text form, "sha256:" and 64 lower-case hex digits.
func (id ID) String() string { return string(id.AppendText(nil)) }

// AppendText appends the text form to b.
func (id ID) AppendText(b []byte) []byte {
	return hex.AppendEncode(append(b, idPrefix...), id[:])
}

// MarshalText implements encoding.TextMarshaler with the text form.
func (id ID) MarshalText() ([]byte, error) { return id.AppendText(nil), nil }

// UnmarshalText implements encoding.TextUnmarshaler; it takes what ParseID takes.
func (id *ID) UnmarshalText(b []byte) error {
	v, err := ParseID(string(b))
	if err != nil {
		return err
	}
	*id = v
	return nil
}

var errID = errors.New(`record: an id is "sha256:" and 64 hex digits`)

// ParseID reads the text form of an id.
func ParseID(s string) (ID, error) {
	var id ID
	digits, ok := strings.CutPrefix(s, idPrefix)
	if !ok || len(digits) != hex.EncodedLen(len(id)) {
		return ID{}, errID
	}
	if _, err := hex.Decode(id[:], []byte(digits)); err != nil {
		return ID{}, errID
	}
	return id, nil
}

// ComputeID returns the id of the record at index (1-based) of the segment
// whose address is segment: SHA-256 over len(segment), segment, index,
// len(payload), payload, each number a little-endian u64 (weir wire v1,
// "AckTracked payload").
func ComputeID(segment string, index uint64, payload []byte) ID {
	var h IDHasher
	return h.ID(segment, index, payload)
}

// IDHasher computes ids without an allocation for each; the zero value is
// ready. It must not be used by two goroutines at once.
type IDHasher struct {
	segment string
	buf     []byte // what is hashed in front of the index, and room for the rest
}

// ID returns what ComputeID returns.
func (h *IDHasher) ID(segment string, index uint64, payload []byte) ID {
	if n := 8 + len(segment); segment == h.segment && len(h.buf) > n {
		h.buf = h.buf[:n]
	} else {
		h.buf = binary.LittleEndian.AppendUint64(h.buf[:0], uint64(len(segment)))
		h.buf = append(h.buf, segment...)
		h.segment = segment
	}
	h.buf = binary.LittleEndian.AppendUint64(h.buf, index)
	h.buf = binary.LittleEndian.AppendUint64(h.buf, uint64(len(payload)))
	if len(payload) <= 4096 {
		h.buf = append(h.buf, payload...)
		return sha256.Sum256(h.buf)
	}
	d := sha256.New()
	d.Write(h.buf)
	d.Write(payload)
	return ID(d.Sum(nil))
}

// BatchKey returns the key of a batch: SHA-256 over the ids of its records
// (32 raw bytes each), in order.
func BatchKey(records []Record) ID {
	h := sha256.New()
	for i := range records {
		h.Write(records[i].ID[:])
	}
	return ID(h.Sum(nil))
}

// Coordinate names one record: where it is read from, and its id.
type Coordinate struct {
	// Segment is the address "<shard dir>/<sealed file name>", at most 255
	// bytes. It is opaque and stable from the first ack on.
	Segment string
	// Index is the 1-based ordinal of the record within the segment.
	Index uint64
	// ID is the record id over Segment, Index and the payload.
	ID ID
}

// Record is one record as it is read back from the log.
type Record struct {
	Coordinate
	// Payload is the producer's bytes, 1 to MaxBytes.
	Payload []byte
	// Appended is when the group commit that holds the record was begun.
	Appended time.Time
}
