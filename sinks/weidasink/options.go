package weidasink

import (
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/weir-agent/weir/weida"
)

// The values of Options.RequiredAck.
const (
	// AckStored: the broker has the record on its disk, and has flushed it. As a confirm does not say whether it was flushed, the broker must promise it for all of
	// its queues when the link is made; nothing is sent to one that does not.
	AckStored = "stored"
	// AckWritten: the broker has the record on its disk, flushed or not. What was not flushed is lost with a power cut there.
	AckWritten = "written"
	// AckAccepted: the broker has the record in memory at least. It is lost if the broker dies before a consumer took it.
	AckAccepted = "accepted"
)

// The defaults and bounds of Options.
const (
	DefaultContentType    = "application/octet-stream"
	DefaultMaxInFlight    = 512
	DefaultConnectTimeout = 10 * time.Second
	DefaultTimeout        = 30 * time.Second

	maxInFlight = 4096
	// maxLabelBytes bounds topic and content type (weida-supplement §1.4, keys 2 and 5).
	maxLabelBytes = 256
)

// Options says where and how to deliver. Only URL is required; the zero value of every other field means its default. The names in brackets are the
// keys below sink.weida in the configuration.
type Options struct {
	// URL is the address of the queue: weida://sha256:<fingerprint of the broker>@host:port/path, or weida+unix://<percent-encoded path>/path on the same
	// machine [url].
	URL string `toml:"url"`
	// Topic goes with every message, at most 256 bytes; consumers choose by it. Default: none [topic].
	Topic string `toml:"topic"`
	// ContentType goes with every message, at most 256 bytes; default application/octet-stream [content_type].
	ContentType string `toml:"content_type"`
	// RequiredAck is how safe a record must be at the broker to be delivered: stored (default), written or accepted [required_ack].
	RequiredAck string `toml:"required_ack"`
	// MaxInFlight is how many records may be under way at once, over all batches: 1 to 4096, default 512 [max_in_flight].
	MaxInFlight int `toml:"max_in_flight"`
	// MaxRecordBytes is the largest payload that is sent; a larger one is rejected here. 0: none is, and one that the broker has no room for is
	// tried again for ever [max_record_bytes].
	MaxRecordBytes int64 `toml:"max_record_bytes"`
	// IdentityDir is the folder of the key by which the broker knows this sink. The key is made if there is none. Empty: the sink stays anonymous
	// [identity_dir].
	IdentityDir string `toml:"identity_dir"`
	// ConnectTimeout bounds a first dial, and how long a batch waits for a lost link to come back; default 10 s [connect_timeout].
	ConnectTimeout time.Duration `toml:"connect_timeout"`
	// Timeout is how long a batch may get nothing done: no part of a record sent, none confirmed; default 30 s [timeout].
	Timeout time.Duration `toml:"timeout"`
}

// Check returns all faults of the options, joined, each of which begins with its configuration key. It touches nothing.
func (o Options) Check() error {
	_, err := resolve(o)
	return err
}

// settings are Options after filling and validation.
type settings struct {
	Options
	addr     weida.Address
	level    weida.Level      // that a confirm must reach
	promised weida.Guarantees // that the link must have
}

// resolve fills the defaults of o and checks it.
func resolve(o Options) (settings, error) {
	s := settings{Options: o}
	var faults []error
	wrong := func(bad bool, key, format string, args ...any) {
		if bad {
			faults = append(faults, fmt.Errorf("sink.weida."+key+": "+format, args...))
		}
	}
	s.fill()
	if o.URL == "" {
		wrong(true, "url", "is required")
	} else {
		addr, err := weida.ParseAddress(o.URL)
		s.addr = addr
		switch {
		case err != nil:
			wrong(true, "url", "%w: it is like weida://sha256:FINGERPRINT@host:7443/queue", err)
		case addr.Carrier == weida.OverQUIC && !addr.Pinned:
			wrong(true, "url", "does not say which broker must answer: put its fingerprint before the host, weida://sha256:FINGERPRINT@%s%s", addr.Authority(), addr.Path)
		case addr.Carrier != weida.OverQUIC && addr.Carrier != weida.OverUnix:
			wrong(true, "url", "is of a kind that leaves no process: use weida:// or weida+unix://")
		}
	}
	for _, l := range []struct{ key, value string }{{"topic", s.Topic}, {"content_type", s.ContentType}} {
		wrong(len(l.value) > maxLabelBytes, l.key, "has %d bytes, at most %d go", len(l.value), maxLabelBytes)
		wrong(!utf8.ValidString(l.value), l.key, "is not UTF-8")
	}
	switch s.RequiredAck {
	case AckStored:
		s.level, s.promised = weida.LevelStored, weida.Guarantees{Acknowledgement: weida.AckStored, Durability: weida.Flushed}
	case AckWritten:
		s.level = weida.LevelStored
	case AckAccepted:
		s.level = weida.LevelAccepted
	default:
		wrong(true, "required_ack", "%q: use %s, %s or %s", s.RequiredAck, AckStored, AckWritten, AckAccepted)
	}
	wrong(s.MaxInFlight < 1 || s.MaxInFlight > maxInFlight, "max_in_flight", "%d is not between 1 and %d", s.MaxInFlight, maxInFlight)
	wrong(s.MaxRecordBytes < 0, "max_record_bytes", "%d is negative", s.MaxRecordBytes)
	wrong(s.ConnectTimeout < 0, "connect_timeout", "%v is negative", s.ConnectTimeout)
	wrong(s.Timeout < 0, "timeout", "%v is negative", s.Timeout)
	return s, errors.Join(faults...)
}

// fill replaces zero values by their defaults.
func (s *settings) fill() {
	if s.ContentType == "" {
		s.ContentType = DefaultContentType
	}
	if s.RequiredAck == "" {
		s.RequiredAck = AckStored
	}
	if s.MaxInFlight == 0 {
		s.MaxInFlight = DefaultMaxInFlight
	}
	if s.ConnectTimeout == 0 {
		s.ConnectTimeout = DefaultConnectTimeout
	}
	if s.Timeout == 0 {
		s.Timeout = DefaultTimeout
	}
}
