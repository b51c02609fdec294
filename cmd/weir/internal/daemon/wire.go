package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/weir-agent/weir/cmd/weir/internal/config"
	"github.com/weir-agent/weir/drain"
	"github.com/weir-agent/weir/drain/deadletter"
	"github.com/weir-agent/weir/ingest"
	"github.com/weir-agent/weir/sinks"
	"github.com/weir-agent/weir/sinks/discard"
	"github.com/weir-agent/weir/sinks/filesink"
	"github.com/weir-agent/weir/sinks/httpsink"
	"github.com/weir-agent/weir/sinks/kafkasink"
	"github.com/weir-agent/weir/sinks/natssink"
	"github.com/weir-agent/weir/sinks/pgsink"
	"github.com/weir-agent/weir/sinks/s3sink"
	"github.com/weir-agent/weir/sinks/weidasink"
	"github.com/weir-agent/weir/wab"
)

const deadletterDir = "deadletter"

func (d *Daemon) wabOptions(cfg config.Config) wab.Options {
	c := cfg.WAB
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

func (d *Daemon) openDeadLetters(cfg config.Config) (*deadletter.Store, error) {
	path := filepath.Join(cfg.WAB.Dir, deadletterDir)
	if err := makeDataDir(path); err != nil {
		return nil, err
	}
	dir, err := d.openDir(path)
	if err != nil {
		return nil, fmt.Errorf("dead letters: %w", err)
	}
	return deadletter.Open(dir, deadletter.Options{MaxBytes: int64(cfg.Drain.DeadletterMaxBytes)})
}

func (d *Daemon) openSink(cfg config.Config) (sinks.Sink, error) {
	switch cfg.Sink.Type {
	case config.SinkFile:
		opts := cfg.Sink.File
		dir, err := d.openDir(filepath.Dir(opts.Path))
		if err != nil {
			return nil, fmt.Errorf("sink.file.path: %w", err)
		}
		opts.FS = dir
		return filesink.New(opts)
	case config.SinkHTTP:
		return httpsink.New(cfg.Sink.HTTP)
	case config.SinkWeida:
		return weidasink.New(cfg.Sink.Weida)
	case config.SinkKafka:
		return kafkasink.New(cfg.Sink.Kafka)
	case config.SinkNATS:
		return natssink.New(cfg.Sink.NATS)
	case config.SinkPostgres:
		return pgsink.New(cfg.Sink.Postgres)
	case config.SinkS3:
		return s3sink.New(cfg.Sink.S3)
	case config.SinkDiscard:
		return new(discard.Sink), nil
	}
	return nil, fmt.Errorf("sink.type: %q", cfg.Sink.Type)
}

// target names where the records go, without secrets.
func target(cfg config.Config) string {
	switch cfg.Sink.Type {
	case config.SinkFile:
		return cfg.Sink.File.Path
	case config.SinkHTTP:
		return config.SafeURL(cfg.Sink.HTTP.URL)
	case config.SinkWeida:
		return cfg.Sink.Weida.URL // it holds no secret
	case config.SinkKafka:
		return cfg.Sink.Kafka.Brokers + " " + cfg.Sink.Kafka.Topic // checked to hold no secret
	case config.SinkNATS:
		return config.SafeURLs(cfg.Sink.NATS.URL) + " " + cfg.Sink.NATS.Subject
	case config.SinkPostgres:
		return config.SafeURL(cfg.Sink.Postgres.URL) + " " + cfg.Sink.Postgres.Table
	case config.SinkS3:
		return strings.TrimSpace(config.SafeURL(cfg.Sink.S3.Endpoint) + " s3://" + cfg.Sink.S3.Bucket + "/" + cfg.Sink.S3.Prefix)
	}
	return ""
}

func (d *Daemon) drainOptions(cfg config.Config) drain.Options {
	c := cfg.Drain
	linger := c.Linger
	if linger == 0 {
		linger = -1 // none; the zero value of the option is its default
	}
	return drain.Options{
		BatchRecords: c.BatchRecords, BatchBytes: int(c.BatchBytes), Linger: linger, MaxInFlight: c.MaxInFlight,
		MaxAge: c.MaxAge, RateLimit: c.RateLimit, SinkTimeout: c.SinkTimeout, BackoffMin: c.BackoffMin, BackoffMax: c.BackoffMax,
		HoldInterval: c.HoldInterval, RetryAfterMax: retryAfterMax(cfg), StopTimeout: cfg.ShutdownTimeout / 2,
		Observer: drain.Observer{
			Changed: d.deliveryChanged,
			DeadLettered: func(shard, n int, reason string) {
				d.log.Warn("records became dead letters", "shard", shard, "records", n, "reason", reason)
			},
			Panicked: func(shard int, inSink bool, value any, stack []byte) {
				d.log.Error("panic in the delivery; it goes on", "shard", shard, "in_sink", inSink, "value", value, "stack", string(stack))
			},
		},
	}
}

// retryAfterMax bounds what any sink passes on; the HTTP sink has its own key for it.
func retryAfterMax(cfg config.Config) time.Duration {
	if cfg.Sink.Type == config.SinkHTTP {
		return cfg.Sink.HTTP.RetryAfterMax
	}
	return 0 // the drain's default
}

// deliveryChanged tells the log of trouble with a shard's delivery, and of its end.
func (d *Daemon) deliveryChanged(shard int, to drain.State, why string) {
	level := stateLevel(to)
	d.mu.Lock()
	troubled := d.troubled[shard]
	d.troubled[shard] = level >= slog.LevelWarn || troubled && to != drain.Delivering && to != drain.Idle
	d.mu.Unlock()
	if troubled && (to == drain.Delivering || to == drain.Idle) {
		d.log.Info("delivery works again", "shard", shard)
		return
	}
	d.log.Log(context.Background(), level, "delivery", "shard", shard, "state", to.String(), "why", why)
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

func (d *Daemon) ingestConfig(cfg config.Config) ingest.Config {
	c := cfg.Socket
	return ingest.Config{
		Path: c.Path, MaxConnections: c.MaxConnections, FrameTimeout: c.FrameTimeout, WriteTimeout: c.WriteTimeout,
		MaxPayloadBytes: int(c.MaxPayloadBytes), MaxBatchRecords: c.MaxBatchRecords,
		PipelineRecords: c.PipelineRecords, PipelineBytes: int(c.PipelineBytes), MemoryBytes: int64(c.MemoryBytes), PeerUIDs: c.PeerUIDs,
		Observer: ingest.Observer{AcceptFailed: func(err error) {
			d.log.Warn("accepting failed; it is tried again", "error", err)
		}},
	}
}
