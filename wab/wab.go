// Package wab is a durable write-ahead buffer: shards of segment files to which records
// are appended in group commits, read back in order and confirmed. It knows nothing
// of what the records are or where they go.
//
// An ack is never a false ack: Ticket.Wait returns nil for a Durable record only after
// an fdatasync that covers it returned nil and the directory entry of its file was
// synced; for a Buffered record only after its write reached the operating system.
//
// Nothing acked is lost in silence: bytes that no longer verify are copied to the
// quarantine folder with a report of what is missing, and the records before and after them are
// still read.
//
// The format, the assumptions about disks and the crash table are in README.md
// beside this file.
package wab

import (
	"errors"
	"fmt"
)

// States in which an append is refused or fails. All but ErrClosed may pass by themselves.
var (
	// ErrClosed: the log is closed, or the shard takes no appends.
	ErrClosed = errors.New("wab: the log is closed")
	// ErrFull: the byte cap is reached; it passes when segments are confirmed.
	ErrFull = errors.New("wab: the byte cap is reached")
	// ErrNoSpace: the file system has too little free space, or a new segment could not be made.
	ErrNoSpace = errors.New("wab: no segment can be made")
	// ErrRecordSize: nothing was appended because of a record of the wrong size.
	ErrRecordSize = errors.New("wab: a record has 1 byte to 16 MiB")
	// ErrRetired: the group's file was retired by a failed write or sync.
	ErrRetired = errors.New("wab: the segment was retired by a failed write or sync")
)

// CorruptError says where bytes that were once written do not verify.
type CorruptError struct {
	Segment string // address or file name
	Offset  int64  // of the first byte that does not verify
	Reason  string
	Err     error
}

func (e *CorruptError) Error() string {
	text := fmt.Sprintf("wab: %s, offset %d: %s", e.Segment, e.Offset, e.Reason)
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

func (e *CorruptError) Unwrap() error { return e.Err }

// Position is a place between records: the next record to read is Index (1-based)
// of segment number Segment, or the first one after it. The zero Position is before all records.
type Position struct {
	Segment uint64
	Index   uint64
}

// Before reports whether p is before q.
func (p Position) Before(q Position) bool {
	return p.Segment < q.Segment || p.Segment == q.Segment && p.Index < q.Index
}
