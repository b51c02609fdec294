package wab

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/weir-agent/weir/wab/segment"
	"github.com/weir-agent/weir/wab/vfs"
)

// Options configures a log. The zero value is usable; Open copies it, fills in the defaults
// and checks it once.
type Options struct {
	// FS is the data folder. Default: the real folder given to Open.
	FS vfs.FS
	// Shards is how many shards take appends, 1 to 64; default 1. Shards found on disk beyond
	// these are still read.
	Shards int
	// SegmentBytes is the size of a segment file, at least 64 KiB; default 64 MiB, and
	// at most an eighth of MaxBytes a shard. A record that is larger gets a larger segment.
	SegmentBytes int64
	// GroupRecords and GroupBytes bound one group commit; defaults 16,384 records and 4 MiB.
	// A group holds at least one record, whatever its size.
	GroupRecords int
	GroupBytes   int64
	// MaxBytes is the hard cap on the bytes that unconfirmed segments take in all shards;
	// default 10 GiB, or 80 % of the space at Open, free or held by the log, if that is less.
	MaxBytes int64
	// MinFreeBytes is the free space of the file system under which appends are refused;
	// default 64 MiB, negative for none.
	MinFreeBytes int64
	// SyncInterval is how long Buffered records wait for a background fdatasync; default 200 ms.
	SyncInterval time.Duration
	// CursorInterval is how soon a confirm reaches the disk; default 500 ms.
	CursorInterval time.Duration
	// RetryInterval is how soon a failed step of the background (a new segment, a
	// seal, a cursor) is tried again; default 1 s.
	RetryInterval time.Duration
	// Now gives the append times that are stored; default time.Now.
	Now func() time.Time
	// Rand gives the instance and the nonces; default crypto/rand.
	Rand io.Reader
	// Observer is told what happens; see its fields.
	Observer Observer
}

// Observer is a set of functions that the log calls, each of which may be nil. They
// are called without locks held, must return soon and must not call the log.
type Observer struct {
	// Synced: one fdatasync of a group commit returned nil after d.
	Synced func(shard int, d time.Duration)
	// Failed: a step failed: "write", "sync", "prepare", "seal", "cursor", "remove" or "quarantine".
	Failed func(shard int, step string, err error)
	// Recovered: a step that had failed works again.
	Recovered func(shard int, step string)
	// Damaged: bytes that do not verify were passed.
	Damaged func(shard int, d Damage)
}

const (
	minSegmentBytes   = 64 << 10
	maxShards         = 64
	defaultMaxBytes   = 10 << 30
	capSharePercent   = 80
	segmentsUnderACap = 8
)

func (o Options) fill() (Options, error) {
	var faults []error
	fault := func(bad bool, format string, args ...any) {
		if bad {
			faults = append(faults, fmt.Errorf("wab: "+format, args...))
		}
	}
	setDefault(&o.Shards, 1)
	setDefault(&o.SegmentBytes, 64<<20)
	setDefault(&o.GroupRecords, 16<<10)
	setDefault(&o.GroupBytes, 4<<20)
	setDefault(&o.MinFreeBytes, 64<<20)
	setDefault(&o.SyncInterval, 200*time.Millisecond)
	setDefault(&o.CursorInterval, 500*time.Millisecond)
	setDefault(&o.RetryInterval, time.Second)
	fault(o.Shards < 1 || o.Shards > maxShards, "%d shards: 1 to %d are possible", o.Shards, maxShards)
	fault(o.SegmentBytes < minSegmentBytes, "segments of %d bytes: %d are the least", o.SegmentBytes, minSegmentBytes)
	fault(o.GroupRecords < 1, "groups of %d records: 1 is the least", o.GroupRecords)
	fault(o.GroupBytes < 1 || o.GroupBytes > segment.MaxGroupBytes/2, "groups of %d bytes: 1 to %d are possible", o.GroupBytes, segment.MaxGroupBytes/2)
	fault(o.MaxBytes < 0, "a byte cap of %d", o.MaxBytes)
	fault(o.SyncInterval < 0 || o.CursorInterval < 0 || o.RetryInterval < 0, "a negative interval")
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Rand == nil {
		o.Rand = rand.Reader
	}
	return o, errors.Join(faults...)
}

// capBytes completes the options that depend on the space of the file system: what is free or held by the log, so that
// a backlog does not make the cap smaller at the next start.
func (o *Options) capBytes(space int64) {
	if o.MaxBytes == 0 {
		o.MaxBytes = min(defaultMaxBytes, space/100*capSharePercent)
	}
	o.SegmentBytes = max(minSegmentBytes, min(o.SegmentBytes, o.MaxBytes/int64(segmentsUnderACap*o.Shards)))
	o.SegmentBytes = segment.SectorUp(o.SegmentBytes)
}

func setDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}
