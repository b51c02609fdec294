// Package quictransport makes links over QUIC. It is the only package of weida that knows quic-go.
//
// A link is one QUIC connection with the ALPN token of weida-protocol §2.1 and TLS 1.3. Windows are fixed, so that what a peer can make
// this side hold is what the configuration says: StreamReceiveWindow for a stream, ConnectionReceiveWindow for a link. There is no
// 0-RTT and no session resumption, so that every link begins with a whole handshake, in which the verifier is asked.
//
// # Receipts
//
// quic-go has no call that tells when the peer has acknowledged a stream. A receipt is derived from the events that it reports in the
// process (weida-supplement §15, D2): which packets carried which bytes of the streams whose receipts somebody holds, which packets
// the peer acknowledged, and which were given up as lost and sent again. It settles when every byte and the end are acknowledged. quic-go
// reports every packet of a link or none, so a link pays a little for each packet as soon as it can give receipts at all; Config.NoReceipts
// makes links that cannot and pay nothing. The rest of the cost is paid for streams whose receipt is held.
package quictransport

import (
	"context"
	"crypto/tls"
	"time"

	quic "github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/qlogwriter"
)

// ALPN is the only application protocol that a link may have (weida-protocol §2.1).
const ALPN = "weida/0"

// Defaults of weida-supplement §1.1 and §1.14.
const (
	DefaultMaxUniStreams           = 2048
	DefaultMaxBidiStreams          = 1024
	DefaultStreamReceiveWindow     = 1 << 20  // bytes
	DefaultConnectionReceiveWindow = 16 << 20 // bytes
	DefaultKeepAlive               = 10 * time.Second
	DefaultIdleTimeout             = 30 * time.Second
	DefaultMaxConnections          = 1024
	DefaultMaxConnectionsPerPeer   = 64
	DefaultHandshakeTimeout        = 10 * time.Second
)

// Config is what both sides of a link set. The zero value gives the defaults.
type Config struct {
	// MaxUniStreams and MaxBidiStreams are how many streams the peer may have open at once, of each kind. 0 means
	// DefaultMaxUniStreams and DefaultMaxBidiStreams, less than 0 means none.
	MaxUniStreams, MaxBidiStreams int
	// StreamReceiveWindow and ConnectionReceiveWindow are the bytes that the peer may send ahead of the reader, on a stream and on the whole
	// link. 0 means the defaults. They do not grow.
	StreamReceiveWindow, ConnectionReceiveWindow uint64
	// KeepAlive is how often the dialling side sends something on an idle link; 0 means DefaultKeepAlive, less than 0 means never.
	// The accepting side never does.
	KeepAlive time.Duration
	// IdleTimeout ends a link on which nothing was heard for so long. The smaller of the two sides' values counts. 0 means DefaultIdleTimeout.
	IdleTimeout time.Duration
	// HandshakeTimeout bounds a handshake as a whole, on both sides. 0 means DefaultHandshakeTimeout.
	HandshakeTimeout time.Duration
	// NoReceipts makes links on which no receipt can be had.
	NoReceipts bool
}

// withDefaults returns c with every zero replaced.
func (c Config) withDefaults() Config {
	c.MaxUniStreams = orDefault(c.MaxUniStreams, DefaultMaxUniStreams)
	c.MaxBidiStreams = orDefault(c.MaxBidiStreams, DefaultMaxBidiStreams)
	c.StreamReceiveWindow = orDefault(c.StreamReceiveWindow, DefaultStreamReceiveWindow)
	c.ConnectionReceiveWindow = orDefault(c.ConnectionReceiveWindow, DefaultConnectionReceiveWindow)
	c.KeepAlive = max(0, orDefault(c.KeepAlive, DefaultKeepAlive))
	c.IdleTimeout = orDefault(c.IdleTimeout, DefaultIdleTimeout)
	c.HandshakeTimeout = orDefault(c.HandshakeTimeout, DefaultHandshakeTimeout)
	return c
}

func orDefault[T comparable](v, def T) T {
	var zero T
	if v == zero {
		return def
	}
	return v
}

// quicConfig returns the configuration of quic-go for one side. c has its defaults.
func (c Config) quicConfig(dialling bool) *quic.Config {
	q := &quic.Config{
		Versions: []quic.Version{quic.Version1},
		// quic-go gives a handshake twice this as a whole.
		HandshakeIdleTimeout:           c.HandshakeTimeout / 2,
		MaxIdleTimeout:                 c.IdleTimeout,
		InitialStreamReceiveWindow:     c.StreamReceiveWindow,
		MaxStreamReceiveWindow:         c.StreamReceiveWindow,
		InitialConnectionReceiveWindow: c.ConnectionReceiveWindow,
		MaxConnectionReceiveWindow:     c.ConnectionReceiveWindow,
		MaxIncomingStreams:             int64(c.MaxBidiStreams),
		MaxIncomingUniStreams:          int64(c.MaxUniStreams),
	}
	if dialling {
		q.KeepAlivePeriod = c.KeepAlive
	}
	if !c.NoReceipts {
		q.Tracer = func(context.Context, bool, quic.ConnectionID) qlogwriter.Trace { return newTracker() }
	}
	return q
}

// linkTLS returns conf as links use it: TLS 1.3 with our ALPN token alone and without resumption. conf itself is not changed.
func linkTLS(conf *tls.Config) *tls.Config {
	conf = conf.Clone()
	conf.NextProtos = []string{ALPN}
	conf.MinVersion = tls.VersionTLS13
	conf.SessionTicketsDisabled = true
	conf.ClientSessionCache = nil
	return conf
}
