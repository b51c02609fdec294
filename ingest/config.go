// Package ingest takes frames of weir wire v1 from a Unix socket and appends
// their records to the log: listener, peer check, connection loop and limits.
//
// An ack is never a false ack. A reply that says "stored" is written only after
// the ticket of the record was waited for and returned nil for that record, in
// the order in which the frames came. Every ticket is waited for, whether the
// peer is still there or not.
//
// # Memory that peers can make us use
//
// Config.MaxConnections times 16 KiB of first buffers, and Config.MemoryBytes
// for all that is above them: larger read buffers, which grow only as the bytes
// of a frame arrive, and what is read ahead of its replies. A frame that finds no
// room is read to its end and thrown away, and gets Nack(InternalError). What a
// connection could do without, 128 KiB to read ahead into, is given from the first
// half of MemoryBytes only. An idle
// connection holds no buffer. The log holds a copy of what waits for its group
// commit, so it is bounded by the same sum.
package ingest

import (
	"errors"
	"fmt"
	"time"

	"github.com/weir-agent/weir/ingest/frame"
	"github.com/weir-agent/weir/internal/unixsocket"
	"github.com/weir-agent/weir/wab"
	"github.com/weir-agent/weir/wab/record"
)

// Appender takes records; *wab.Shard is one. Append copies the payloads, keeps
// their order and either appends all or fails as a whole. A connection uses one
// Appender for its life.
type Appender interface {
	Append(d record.Durability, payloads ...[]byte) (wab.Ticket, error)
}

var _ Appender = (*wab.Shard)(nil)

// Config configures a Server. Only Path has no default; New copies it, fills in
// the defaults and checks it once.
type Config struct {
	// Path is where the socket is made, at most 107 bytes long. Its folder must
	// exist. Beside it a file with the suffix ".lock" is made, which stays.
	Path string
	// MaxConnections is how many connections may be open; default 1024. One more
	// gets Nack(InternalError) and is closed.
	MaxConnections int
	// FrameTimeout is how long a frame that has begun may take to arrive;
	// default 30 s. A connection may be idle between frames for ever.
	FrameTimeout time.Duration
	// WriteTimeout is how long a peer may leave replies unread once its socket
	// buffer is full; default 30 s.
	WriteTimeout time.Duration
	// MaxPayloadBytes bounds one payload, and one record of a batch; default and
	// most 16 MiB.
	MaxPayloadBytes int
	// MaxBatchRecords bounds one batch; default 1024, at most 2048.
	MaxBatchRecords int
	// PipelineRecords and PipelineBytes bound what one connection has in flight;
	// defaults 1024 and 4 MiB. One frame is always taken, whatever its size.
	PipelineRecords int
	PipelineBytes   int
	// MemoryBytes is the budget of all connections together, see the package
	// comment; default 128 MiB, at least one frame of MaxPayloadBytes.
	MemoryBytes int64
	// PeerUIDs are the user ids that may connect. Empty: the daemon's own and root.
	PeerUIDs []uint32
	// Observer is told what a counter cannot say.
	Observer Observer
}

// Observer is a set of functions that the server calls, each of which may be
// nil. They must return soon.
type Observer struct {
	// AcceptFailed: accepting failed, for instance for want of file descriptors;
	// it is tried again after a pause.
	AcceptFailed func(error)
}

const (
	defaultMaxConnections  = 1024
	defaultFrameTimeout    = 30 * time.Second
	defaultWriteTimeout    = 30 * time.Second
	defaultMaxBatchRecords = 1024
	defaultPipelineRecords = 1024
	defaultPipelineBytes   = 4 << 20
	defaultMemoryBytes     = 128 << 20
)

func (c Config) fill() (Config, error) {
	var faults []error
	fault := func(bad bool, format string, args ...any) {
		if bad {
			faults = append(faults, fmt.Errorf("ingest: "+format, args...))
		}
	}
	setDefault(&c.MaxConnections, defaultMaxConnections)
	setDefault(&c.FrameTimeout, defaultFrameTimeout)
	setDefault(&c.WriteTimeout, defaultWriteTimeout)
	setDefault(&c.MaxPayloadBytes, frame.MaxPayloadBytes)
	setDefault(&c.MaxBatchRecords, defaultMaxBatchRecords)
	setDefault(&c.PipelineRecords, defaultPipelineRecords)
	setDefault(&c.PipelineBytes, defaultPipelineBytes)
	setDefault(&c.MemoryBytes, defaultMemoryBytes)
	if err := unixsocket.CheckPath(c.Path); err != nil {
		faults = append(faults, err)
	}
	fault(c.MaxConnections < 1, "max_connections is %d, 1 is the least", c.MaxConnections)
	fault(c.FrameTimeout < 0, "frame_timeout is negative")
	fault(c.WriteTimeout < 0, "the write timeout is negative")
	fault(c.MaxPayloadBytes < 1 || c.MaxPayloadBytes > frame.MaxPayloadBytes,
		"max_payload_bytes is %d, 1 to %d are possible", c.MaxPayloadBytes, frame.MaxPayloadBytes)
	fault(c.MaxBatchRecords < 1 || c.MaxBatchRecords > frame.MaxBatchRecords,
		"max_batch_records is %d, 1 to %d are possible", c.MaxBatchRecords, frame.MaxBatchRecords)
	fault(c.PipelineRecords < 1, "pipeline_records is %d, 1 is the least", c.PipelineRecords)
	fault(c.PipelineBytes < 1, "pipeline_bytes is %d, 1 is the least", c.PipelineBytes)
	least := slabBytes(c.MaxPayloadBytes + frame.Overhead)
	fault(c.MemoryBytes < int64(least), "the memory budget is %d bytes, %d are the least for max_payload_bytes %d",
		c.MemoryBytes, least, c.MaxPayloadBytes)
	return c, errors.Join(faults...)
}

func setDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}
