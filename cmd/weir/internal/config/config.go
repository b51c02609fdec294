// Package config is weir's configuration: its keys, their defaults, and the one way in which the
// file, WEIR_* variables and flags become one checked Config. Nothing here touches data.
package config

import (
	"fmt"
	"net/http"
	"time"

	"github.com/weir-agent/weir/sinks/filesink"
	"github.com/weir-agent/weir/sinks/httpsink"
	"github.com/weir-agent/weir/sinks/kafkasink"
	"github.com/weir-agent/weir/sinks/natssink"
	"github.com/weir-agent/weir/sinks/pgsink"
	"github.com/weir-agent/weir/sinks/s3sink"
	"github.com/weir-agent/weir/sinks/weidasink"
)

// Size is a number of bytes. It is written as a whole number, or as text with a unit: B, KB, MB, GB, TB (powers of
// 1000) or KiB, MiB, GiB, TiB (powers of 1024).
type Size int64

// Config is the whole configuration. The names of the keys are in the tags.
type Config struct {
	// ShutdownTimeout bounds the time from SIGTERM to the exit.
	ShutdownTimeout time.Duration `toml:"shutdown_timeout"`

	Socket  Socket  `toml:"socket"`
	WAB     WAB     `toml:"wab"`
	Drain   Drain   `toml:"drain"`
	Sink    Sink    `toml:"sink"`
	Admin   Admin   `toml:"admin"`
	Log     Log     `toml:"log"`
	Runtime Runtime `toml:"runtime"`
}

// Socket is the section [socket].
type Socket struct {
	Path            string        `toml:"path"` // default: weir.sock in the data folder
	MaxConnections  int           `toml:"max_connections"`
	FrameTimeout    time.Duration `toml:"frame_timeout"`
	WriteTimeout    time.Duration `toml:"write_timeout"`
	MaxPayloadBytes Size          `toml:"max_payload_bytes"`
	MaxBatchRecords int           `toml:"max_batch_records"`
	PipelineRecords int           `toml:"pipeline_records"`
	PipelineBytes   Size          `toml:"pipeline_bytes"`
	MemoryBytes     Size          `toml:"memory_bytes"`
	PeerUIDs        []uint32      `toml:"peer_uids"`
}

// WAB is the section [wab]: the log.
type WAB struct {
	Dir          string `toml:"dir"`
	Shards       int    `toml:"shards"`
	SegmentBytes Size   `toml:"segment_bytes"`
	GroupRecords int    `toml:"group_records"`
	GroupBytes   Size   `toml:"group_bytes"`
	MaxBytes     Size   `toml:"max_bytes"` // 0: 10 GiB, or 80 % of the space, free or held, if that is less
	MinFreeBytes Size   `toml:"min_free_bytes"`
}

// Drain is the section [drain].
type Drain struct {
	BatchRecords       int           `toml:"batch_records"`
	BatchBytes         Size          `toml:"batch_bytes"`
	Linger             time.Duration `toml:"linger"`
	MaxInFlight        int           `toml:"max_in_flight"`
	MaxAge             time.Duration `toml:"max_age"`    // 0: records do not expire
	RateLimit          int           `toml:"rate_limit"` // records a second; 0: none
	SinkTimeout        time.Duration `toml:"sink_timeout"`
	BackoffMin         time.Duration `toml:"backoff_min"`
	BackoffMax         time.Duration `toml:"backoff_max"`
	HoldInterval       time.Duration `toml:"hold_interval"`
	DeadletterMaxBytes Size          `toml:"deadletter_max_bytes"`
}

// Sink is the section [sink].
type Sink struct {
	Type     string            `toml:"type"` // one of the sink types below
	HTTP     httpsink.Options  `toml:"http"`
	Weida    weidasink.Options `toml:"weida"`
	File     filesink.Options  `toml:"file"`
	Kafka    kafkasink.Options `toml:"kafka"`
	NATS     natssink.Options  `toml:"nats"`
	Postgres pgsink.Options    `toml:"postgres"`
	S3       s3sink.Options    `toml:"s3"`
}

// Admin is the section [admin].
type Admin struct {
	Listen string `toml:"listen"` // empty: not on TCP
	Socket string `toml:"socket"` // empty: admin.sock in the data folder
}

// Log is the section [log].
type Log struct {
	Level  string `toml:"level"`
	Format string `toml:"format"`
}

// Runtime is the section [runtime]: the process.
type Runtime struct {
	GOGC        int  `toml:"gogc"`         // default 400, a fifth of the CPU less than with Go's 100; 0: as the variable GOGC says; -1: no collection by growth
	MemoryLimit Size `toml:"memory_limit"` // default 256 MiB; 0: as the variable GOMEMLIMIT says, none without it
}

// The sink types.
const (
	SinkFile     = "file"
	SinkHTTP     = "http"
	SinkWeida    = "weida"
	SinkKafka    = "kafka"
	SinkNATS     = "nats"
	SinkPostgres = "postgres"
	SinkS3       = "s3"
	SinkDiscard  = "discard"
)

// Default returns the configuration of a `weir run` without any: data in ./weir-data.
func Default() Config {
	return Config{
		ShutdownTimeout: 10 * time.Second,
		Socket: Socket{
			MaxConnections: 1024, FrameTimeout: 30 * time.Second, WriteTimeout: 30 * time.Second, MaxPayloadBytes: 16 << 20,
			MaxBatchRecords: 1024, PipelineRecords: 1024, PipelineBytes: 4 << 20, MemoryBytes: 128 << 20,
		},
		WAB: WAB{Dir: "weir-data", Shards: 1, SegmentBytes: 64 << 20, GroupRecords: 16 << 10, GroupBytes: 4 << 20, MinFreeBytes: 64 << 20},
		Drain: Drain{
			BatchRecords: 1000, BatchBytes: 4 << 20, Linger: 200 * time.Millisecond, MaxInFlight: 4, SinkTimeout: time.Minute, BackoffMin: 100 * time.Millisecond,
			BackoffMax: time.Minute, HoldInterval: 30 * time.Second, DeadletterMaxBytes: 1 << 30,
		},
		Sink: Sink{
			Type: SinkFile,
			HTTP: httpsink.Options{
				Method: http.MethodPost, Format: httpsink.FormatRaw, Compression: httpsink.CompressionNone, Concurrency: 64,
				ConnectTimeout: 10 * time.Second, TLSTimeout: 10 * time.Second, Timeout: 30 * time.Second, AnswerTimeout: 10 * time.Second,
				IdleTimeout: time.Minute, MaxConnectionAge: 5 * time.Minute, RetryAfterMax: 10 * time.Minute,
				Partial: httpsink.PartialNone, BulkAction: httpsink.BulkActionNone,
			},
			Weida: weidasink.Options{
				ContentType: weidasink.DefaultContentType, RequiredAck: weidasink.AckStored, MaxInFlight: weidasink.DefaultMaxInFlight,
				ConnectTimeout: weidasink.DefaultConnectTimeout, Timeout: weidasink.DefaultTimeout,
			},
			File:     filesink.Options{Format: filesink.FormatJSONL},
			Kafka:    kafkasink.Default(),
			NATS:     natssink.Default(),
			Postgres: pgsink.Default(),
			S3:       s3sink.Default(),
		},
		Admin:   Admin{Listen: "127.0.0.1:9185"},
		Runtime: Runtime{GOGC: 400, MemoryLimit: 256 << 20},
		Log:     Log{Level: "info", Format: "text"},
	}
}

// String writes the size with the largest unit that divides it.
func (s Size) String() string {
	for _, u := range []struct {
		n    Size
		name string
	}{{1 << 40, "TiB"}, {1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if s >= u.n && s%u.n == 0 {
			return fmt.Sprintf("%d%s", s/u.n, u.name)
		}
	}
	return fmt.Sprintf("%dB", int64(s))
}

// Human writes the size for a person: three digits and the largest unit that leaves 1 or more.
func (s Size) Human() string {
	v, unit := float64(s), "B"
	for _, u := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if v < 1024 {
			break
		}
		v, unit = v/1024, u
	}
	if unit == "B" {
		return fmt.Sprintf("%d B", int64(s))
	}
	if v >= 1000 { // three digits would want an exponent
		return fmt.Sprintf("%.0f %s", v, unit)
	}
	return fmt.Sprintf("%.3g %s", v, unit)
}
