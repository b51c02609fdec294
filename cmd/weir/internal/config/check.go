package config

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"

	"github.com/weir-agent/weir/sinks/httpsink"
)

const maxSocketPath = 107

// check completes what depends on other keys and returns all faults. It touches no file.
func (c *Config) check() (faults []error) {
	fault := func(bad bool, format string, args ...any) {
		if bad {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	if c.Socket.Path == "" {
		c.Socket.Path = filepath.Join(c.WAB.Dir, "weir.sock")
	}
	if c.Admin.Socket == "" {
		c.Admin.Socket = filepath.Join(c.WAB.Dir, "admin.sock")
	}
	if c.Sink.File.Path == "" {
		c.Sink.File.Path = filepath.Join(c.WAB.Dir, "delivered.jsonl")
	}
	fault(c.WAB.Dir == "", "wab.dir: is empty")
	for _, p := range []struct{ key, path string }{{"socket.path", c.Socket.Path}, {"admin.socket", c.Admin.Socket}} {
		fault(len(p.path) > maxSocketPath, "%s: %q has %d bytes; a socket path has at most %d: use a shorter one", p.key, p.path, len(p.path), maxSocketPath)
	}
	fault(c.Socket.Path == c.Admin.Socket, "admin.socket: must differ from socket.path")
	fault(!slices.Contains([]string{SinkFile, SinkHTTP, SinkDiscard}, c.Sink.Type), "sink.type: %q is not a sink: use file, http or discard", c.Sink.Type)
	fault(!slices.Contains([]string{"debug", "info", "warn", "error"}, c.Log.Level), "log.level: %q: use debug, info, warn or error", c.Log.Level)
	fault(!slices.Contains([]string{"text", "json"}, c.Log.Format), "log.format: %q: use text or json", c.Log.Format)
	fault(c.ShutdownTimeout <= 0, "shutdown_timeout: %v: must be above 0", c.ShutdownTimeout)
	if c.Admin.Listen != "" {
		_, _, err := net.SplitHostPort(c.Admin.Listen)
		fault(err != nil, "admin.listen: %q is not host:port", c.Admin.Listen)
	}
	if c.Sink.Type == SinkHTTP {
		faults = append(faults, checkHTTP(c.Sink.HTTP)...)
	}
	return append(faults, c.checkRanges()...)
}

func checkHTTP(o httpsink.Options) []error {
	err := o.Check()
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	if err != nil {
		return []error{err}
	}
	return nil
}

func (c *Config) checkRanges() (faults []error) {
	for _, r := range []struct {
		key          string
		v, low, high int64
	}{
		{"socket.max_connections", int64(c.Socket.MaxConnections), 1, 1 << 20},
		{"socket.frame_timeout", int64(c.Socket.FrameTimeout), 1, 1 << 62},
		{"socket.write_timeout", int64(c.Socket.WriteTimeout), 1, 1 << 62},
		{"socket.max_payload_bytes", int64(c.Socket.MaxPayloadBytes), 1, 16 << 20},
		{"socket.max_batch_records", int64(c.Socket.MaxBatchRecords), 1, 2048},
		{"socket.pipeline_records", int64(c.Socket.PipelineRecords), 1, 1 << 20},
		{"socket.pipeline_bytes", int64(c.Socket.PipelineBytes), 1, 1 << 30},
		{"socket.memory_bytes", int64(c.Socket.MemoryBytes), 1, 1 << 40},
		{"wab.shards", int64(c.WAB.Shards), 1, 64},
		{"wab.segment_bytes", int64(c.WAB.SegmentBytes), 64 << 10, 1 << 34},
		{"wab.group_records", int64(c.WAB.GroupRecords), 1, 1 << 20},
		{"wab.group_bytes", int64(c.WAB.GroupBytes), 1, 32 << 20},
		{"wab.max_bytes", int64(c.WAB.MaxBytes), 0, 1 << 62},
		{"wab.min_free_bytes", int64(c.WAB.MinFreeBytes), 0, 1 << 62},
		{"drain.batch_records", int64(c.Drain.BatchRecords), 1, 1 << 20},
		{"drain.batch_bytes", int64(c.Drain.BatchBytes), 1, 1 << 30},
		{"drain.linger", int64(c.Drain.Linger), 0, 1 << 62},
		{"drain.max_in_flight", int64(c.Drain.MaxInFlight), 1, 64},
		{"drain.max_age", int64(c.Drain.MaxAge), 0, 1 << 62},
		{"drain.rate_limit", int64(c.Drain.RateLimit), 0, 1 << 40},
		{"drain.deadletter_max_bytes", int64(c.Drain.DeadletterMaxBytes), 1, 1 << 62},
	} {
		if r.v < r.low {
			faults = append(faults, fmt.Errorf("%s: %d is under the least, %d", r.key, r.v, r.low))
		}
		if r.v > r.high {
			faults = append(faults, fmt.Errorf("%s: %d is over the most, %d", r.key, r.v, r.high))
		}
	}
	return faults
}

// ErrUsage marks an error of usage or configuration: exit status 2.
var ErrUsage = errors.New("usage")
