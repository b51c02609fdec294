// Package wab is a durable write-ahead buffer: shards of segment files to which records
// are appended in group commits, read back in order and confirmed.
//
// An ack is never a false ack: Ticket.Wait returns nil for a Durable record only after
// an fdatasync that covers it returned nil and the directory entry of its file was
// synced; for a Buffered record only after its write reached the operating system.
package wab

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-agent/weir/wab/record"
)

// States in which an append is refused or fails. Each may pass by itself, except ErrClosed.
var (
	ErrClosed     = errors.New("wab: the log is closed")
	ErrFull       = errors.New("wab: the byte cap is reached")
	ErrNoSpace    = errors.New("wab: the file system has too little free space")
	ErrRecordSize = errors.New("wab: a record has 1 byte to 16 MiB")
)

// CorruptError says where bytes that were once written do not verify.
type CorruptError struct {
	Segment string // address
	Offset  int64  // of the first byte that does not verify
	Reason  string
	Err     error
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("wab: segment %s, offset %d: %s", e.Segment, e.Offset, e.Reason)
}

func (e *CorruptError) Unwrap() error { return e.Err }

// Position is a place between records: the next record to read is Index (1-based)
// of segment number Segment, or the first one after it.
type Position struct {
	Segment uint64
	Index   uint64
}

// Shard is one independent log. Its methods are safe for use by several goroutines.
type Shard struct{}

// Append adds payloads, in order, as consecutive records to the group commit that is being
// gathered, and returns at once; the bytes are copied. It fails as a whole (nothing
// was appended) with ErrFull, ErrNoSpace, ErrRecordSize or ErrClosed. Every ticket
// must be waited for: it is the waiters that do the writing.
func (s *Shard) Append(d record.Durability, payloads ...[]byte) (Ticket, error) {
	panic("wab: under construction")
}

// Ticket stands for the records of one Append.
type Ticket struct{}

// Wait returns when the outcome of every record is known: nil if all are as safe as asked.
// After an error the records' fate is unknown and Err tells them apart.
func (t *Ticket) Wait() error { panic("wab: under construction") }

// Len returns the number of records.
func (t *Ticket) Len() int { return 0 }

// Err returns, after Wait, nil if record i (0-based) is as safe as it was asked to be.
func (t *Ticket) Err(i int) error { panic("wab: under construction") }

// Coordinate returns, after Wait, the segment address and the 1-based index of record i.
// record.ComputeID gives the id.
func (t *Ticket) Coordinate(i int) (segment string, index uint64) {
	panic("wab: under construction")
}

// Cursor returns the position of the first record that is not confirmed, and the marks that were
// stored with it.
func (s *Shard) Cursor() (Position, []Position) { panic("wab: under construction") }

// MaxMarks is how many marks Confirm keeps.
const MaxMarks = 64

// Confirm says that every record before pos is done with. marks are positions after pos that the
// caller wants back from Cursor after a restart (the ends of the batches in flight).
// It takes effect in memory at once and reaches the disk within a second and at Close; segments that are wholly
// confirmed are recycled after that.
func (s *Shard) Confirm(pos Position, marks []Position) { panic("wab: under construction") }

// Reader reads a shard's committed records in order, from sealed segments into the active one.
// It is for one goroutine.
type Reader struct{}

// NewReader returns a reader whose first record is the first one at or after from.
func (s *Shard) NewReader(from Position) *Reader { panic("wab: under construction") }

// Next appends to dst the records that are committed now, at most maxRecords, of at most maxBytes payload
// bytes in all (but at least one record, whatever its size), and none at or past end unless end is the zero Position.
// It does not wait; no records and a nil error mean that the reader is at the committed end. The payloads are the caller's.
// Damage is passed over, counted and kept in quarantine; an error is one of reading and may pass.
func (r *Reader) Next(dst []record.Record, maxRecords, maxBytes int, end Position) ([]record.Record, error) {
	panic("wab: under construction")
}

// Position returns the position behind the last record that Next returned (past damage, too).
func (r *Reader) Position() Position { panic("wab: under construction") }

// Wait returns nil when a record is committed that Next has not returned yet, or the error of ctx,
// or ErrClosed.
func (r *Reader) Wait(ctx context.Context) error { panic("wab: under construction") }

// Close releases what the reader holds.
func (r *Reader) Close() error { return nil }

// Backlog is what a shard holds that is not confirmed.
type Backlog struct {
	Records int64
	Bytes   int64 // payload bytes are not known at start; these are bytes on disk
	Oldest  time.Time
}
