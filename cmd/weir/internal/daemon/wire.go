package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"

	"github.com/weir-agent/weir/cmd/weir/internal/config"
	"github.com/weir-agent/weir/drain"
	"github.com/weir-agent/weir/drain/deadletter"
	"github.com/weir-agent/weir/ingest"
	"github.com/weir-agent/weir/sinks"
	"github.com/weir-agent/weir/sinks/discard"
	"github.com/weir-agent/weir/sinks/filesink"
	"github.com/weir-agent/weir/sinks/httpsink"
	"github.com/weir-agent/weir/wab"
)

const deadletterDir = "deadletter"

func (d *Daemon) wabOptions() wab.Options {
	c := d.cfg.WAB
	free := int64(c.MinFreeBytes)
	if free == 0 {
		free = -1
	}
	return wab.Options{
		Shards: c.Shards, SegmentBytes: int64(c.SegmentBytes), GroupRecords: c.GroupRecords, GroupBytes: int64(c.GroupBytes),
		MaxBytes: int64(c.MaxBytes), MinFreeBytes: free,
		Observer: wab.Observer{
			Failed: func(shard int, step string, err error) {
				d.log.Error("a step of the log failed", "shard", shard, "step", step, "error", err)
			},
			Recovered: func(shard int, step string) {
				d.log.Info("a step of the log works again", "shard", shard, "step", step)
			},
			Damaged: func(shard int, dmg wab.Damage) {
				d.log.Error("damaged bytes were passed; a copy is in quarantine", "shard", shard, "segment", dmg.Segment,
					"offset", dmg.Offset, "bytes", dmg.Length, "records_lost", dmg.Lost, "reason", dmg.Reason)
			},
		},
	}
}

func (d *Daemon) openDeadLetters() (*deadletter.Store, error) {
	path := filepath.Join(d.cfg.WAB.Dir, deadletterDir)
	if err := makeDataDir(path); err != nil {
		return nil, err
	}
	dir, err := d.openDir(path)
	if err != nil {
		return nil, fmt.Errorf("dead letters: %w", err)
	}
	return deadletter.Open(dir, deadletter.Options{MaxBytes: int64(d.cfg.Drain.DeadletterMaxBytes)})
}

func (d *Daemon) openSink() (sinks.Sink, error) {
	switch d.cfg.Sink.Type {
	case config.SinkFile:
		opts := d.cfg.Sink.File
		dir, err := d.openDir(filepath.Dir(opts.Path))
		if err != nil {
			return nil, fmt.Errorf("sink.file.path: %w", err)
		}
		opts.FS = dir
		return filesink.New(opts)
	case config.SinkHTTP:
		return httpsink.New(d.cfg.Sink.HTTP)
	case config.SinkDiscard:
		return new(discard.Sink), nil
	}
	return nil, fmt.Errorf("sink.type: %q", d.cfg.Sink.Type)
}

// target names where the records go, without secrets.
func (d *Daemon) target() string {
	switch d.cfg.Sink.Type {
	case config.SinkFile:
		return d.cfg.Sink.File.Path
	case config.SinkHTTP:
		if u, err := url.Parse(d.cfg.Sink.HTTP.URL); err == nil {
			u.RawQuery, u.Fragment, u.User = "", "", nil
			return u.String()
		}
	}
	return ""
}

func (d *Daemon) drainOptions() drain.Options {
	c := d.cfg.Drain
	linger := c.Linger
	if linger == 0 {
		linger = -1 // none; the zero value of the option is its default
	}
	return drain.Options{
		BatchRecords: c.BatchRecords, BatchBytes: int(c.BatchBytes), Linger: linger, MaxInFlight: c.MaxInFlight,
		MaxAge: c.MaxAge, RateLimit: c.RateLimit, StopTimeout: d.cfg.ShutdownTimeout / 2,
		Observer: drain.Observer{
			Changed: func(shard int, to drain.State, why string) {
				d.log.Log(context.Background(), stateLevel(to), "delivery", "shard", shard, "state", to.String(), "why", why)
			},
			DeadLettered: func(shard, n int, reason string) {
				d.log.Warn("records became dead letters", "shard", shard, "records", n, "reason", reason)
			},
			Panicked: func(shard int, inSink bool, value any, stack []byte) {
				d.log.Error("panic in the delivery; it goes on", "shard", shard, "in_sink", inSink, "value", value, "stack", string(stack))
			},
		},
	}
}

// stateLevel keeps the coming and going of a healthy delivery out of the log.
func stateLevel(s drain.State) slog.Level {
	switch s {
	case drain.Idle, drain.Delivering:
		return slog.LevelDebug
	case drain.Paused:
		return slog.LevelInfo
	}
	return slog.LevelWarn
}

func (d *Daemon) ingestConfig() ingest.Config {
	c := d.cfg.Socket
	return ingest.Config{
		Path: c.Path, MaxConnections: c.MaxConnections, FrameTimeout: c.FrameTimeout, WriteTimeout: c.WriteTimeout,
		MaxPayloadBytes: int(c.MaxPayloadBytes), MaxBatchRecords: c.MaxBatchRecords,
		PipelineRecords: c.PipelineRecords, PipelineBytes: int(c.PipelineBytes), MemoryBytes: int64(c.MemoryBytes), PeerUIDs: c.PeerUIDs,
		Observer: ingest.Observer{AcceptFailed: func(err error) {
			d.log.Warn("accepting failed; it is tried again", "error", err)
		}},
	}
}
