package weida

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/weir-agent/weir/weida/transport/localtransport"
	"github.com/weir-agent/weir/weida/transport/quictransport"
	"github.com/weir-agent/weir/weida/wire"
)

// Guarantees is one level for each dimension that two sides negotiate (weida-supplement §1.7). The zero value is core, which everybody has.
type Guarantees = wire.Guarantees

// The levels that this library honours, and those that a broker may offer and its clients require, for the fields of Guarantees; the rest is in package wire.
const (
	OrderDetect     = wire.OrderDetect
	OrderReassemble = wire.OrderReassemble
	DedupBounded    = wire.DedupBounded
	AckAccepted     = wire.AckAccepted
	AckStored       = wire.AckStored
	AckReplicated   = wire.AckReplicated
	Written         = wire.Written
	Flushed         = wire.Flushed
)

// Limits bounds what one link may make this side hold. Zero fields mean the defaults of weida-supplement §1.14.
type Limits struct {
	// MaxHeaderBytes is the longest header that is read, 16384 by default. It is told to the peer.
	MaxHeaderBytes int
	// MaxConcurrentUniStreams and MaxConcurrentBidiStreams are how many streams of each kind the peer may have open, 2048 and 1024 by default.
	MaxConcurrentUniStreams, MaxConcurrentBidiStreams int
	// StreamReceiveWindow and ConnectionReceiveWindow are how many unread bytes are held, for a stream and for all of a link, 1 MiB and 16 MiB by default.
	StreamReceiveWindow, ConnectionReceiveWindow int
	// KeepAlive is how often a dialling side speaks on an idle link, 10 s by default; less than 0 is never.
	KeepAlive time.Duration
	// IdleTimeout ends a link on which nothing was heard, 30 s by default.
	IdleTimeout time.Duration
	// HelloTimeout ends a link on which the peer's HELLO does not come, 10 s by default.
	HelloTimeout time.Duration
	// MaxSubscriptions is how many filters a peer may hold on a link, over all paths, 256 by default. One more ends the link with LIMIT_EXCEEDED.
	MaxSubscriptions int
	// SubscriberBufferBytes is how many bytes of payload wait for one subscriber or member of a bus, 8 MiB by default. What does not fit is
	// dropped for that one alone.
	SubscriberBufferBytes int
	// MaxSequenceScopes is for how many paths and topics numbers are kept on a link, and how many topics a publisher numbers and counts drops of, 1024 by default.
	// Beyond it nothing is tracked.
	MaxSequenceScopes int
	// MaxReorderHold is how many transfers a link holds back to put them in order, 256 by default and at most half of MaxConcurrentUniStreams.
	MaxReorderHold int
	// MaxDedupEntries is how many transfers a link remembers to know repeats, 4096 by default.
	MaxDedupEntries int
	// MaxLocalStreams is how many live streams each side of a link within the machine may have opened, 255 by default. An open at the bound waits.
	MaxLocalStreams int
	// MaxParkedReverse is how many connections a dialling side keeps ready for streams of the other side of a Unix socket, and how many that takes, 8 by
	// default; less than 0 is none.
	MaxParkedReverse int
	// NoReceipts makes links that keep no receipts and pay nothing for them: Delivery.Wait then fails, and a drain waits for nothing.
	NoReceipts bool
}

// Buses are the in-process addresses of the runtimes that share it. The zero value has none and is ready for use.
type Buses = localtransport.Buses

// OutboxFull is what Pusher.Send does when the outbox is full.
type OutboxFull uint8

// The ways of a full outbox.
const (
	// OutboxBlock waits for room until the context of Send ends. It is the default.
	OutboxBlock OutboxFull = iota
	// OutboxDrop discards the message and counts it.
	OutboxDrop
	// OutboxReject fails with ErrLimitExceeded.
	OutboxReject
)

// ReconnectPolicy is how a lost link is dialled again (weida-supplement §5). The zero value gives the defaults.
type ReconnectPolicy struct {
	// Initial is the delay before the first attempt, 100 ms by default. It doubles with each attempt.
	Initial time.Duration
	// Max bounds the delay, 30 s by default.
	Max time.Duration
	// NoJitter uses each delay as it is, and not a random part of its upper half.
	NoJitter bool
	// MaxAttempts is how often it is tried before the peer is given up; 0 is for ever.
	MaxAttempts int
	// StopOnPeerClosed gives up a peer that closed the link itself.
	StopOnPeerClosed bool
	// Never gives up at once.
	Never bool
}

// Resolver returns the addresses of a host, in the order in which they are tried.
type Resolver func(ctx context.Context, host string) ([]netip.Addr, error)

// Options is what a Runtime is made with. The zero value gives the defaults.
type Options struct {
	// Limits holds for each link.
	Limits Limits
	// MaxConnections is how many links a binding may have, 1024 by default, and MaxConnectionsPerPeer how many of them one
	// proved key or, over a Unix socket, one process as the kernel tells, 64 by default. One more is closed with LIMIT_EXCEEDED after its handshake.
	MaxConnections, MaxConnectionsPerPeer int
	// EndpointQueue is how many transfers wait at an endpoint to be taken, 256 by default. When it is full, the streams of further ones are not
	// read, which closes their windows. It is also how many copies wait for one subscriber or member of a bus.
	EndpointQueue int
	// MaxResolvedAddresses is how many addresses of a host are tried, 8 by default, and ConnectAttemptTimeout how long each but the last, 250 ms by default.
	MaxResolvedAddresses  int
	ConnectAttemptTimeout time.Duration
	// ShutdownTimeout bounds how long Shutdown waits for sockets to become idle, 1 s by default.
	ShutdownTimeout time.Duration
	// Offered is what links may be asked to honour, and Required, which must be within it, what each link must honour. Both are core by default.
	// What this version of the library cannot honour is refused.
	Offered, Required Guarantees
	// Reconnect is how lost links are dialled again.
	Reconnect ReconnectPolicy
	// SendTimeout is how long an open waits for a live peer; 0 is until its context ends.
	SendTimeout time.Duration
	// OutboxMessages and OutboxBytes bound what a Pusher holds while no peer is live, 1000 and 8 MiB by default; OutboxFull is what happens at the bound.
	OutboxMessages, OutboxBytes int
	OutboxFull                  OutboxFull
	// ReportBytes and ReportInterval are how far a level moves, or how long it takes, before the next record of a report is sent, 1 MiB and 100 ms
	// by default, whichever comes first.
	ReportBytes    int
	ReportInterval time.Duration
	// Resolver replaces the system's look-up of addresses.
	Resolver Resolver
	// Buses are the in-process addresses. Runtimes reach each other through BindInproc if they were given the same; nil is a set of the runtime's own.
	Buses *Buses
	// DialFrom is the socket from which links are dialled, and the runtime's from then on; nil opens one when it is first needed.
	DialFrom net.PacketConn
}

// Defaults of Options and Limits.
const (
	defaultHelloTimeout          = 10 * time.Second
	defaultMaxSubscriptions      = 256
	defaultSubscriberBufferBytes = 8 << 20
	defaultMaxSequenceScopes     = 1024
	defaultMaxReorderHold        = 256
	defaultMaxDedupEntries       = 4096
	defaultMaxConnections        = 1024
	defaultMaxConnectionsPerPeer = 64
	defaultEndpointQueue         = 256
	defaultMaxResolvedAddresses  = 8
	defaultConnectAttemptTimeout = 250 * time.Millisecond
	defaultShutdownTimeout       = time.Second
	defaultReconnectInitial      = 100 * time.Millisecond
	defaultReconnectMax          = 30 * time.Second
	defaultOutboxMessages        = 1000
	defaultOutboxBytes           = 8 << 20
	defaultReportBytes           = 1 << 20
	defaultReportInterval        = 100 * time.Millisecond
)

func orDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

// filled returns o with every zero replaced, or why it cannot be.
func (o Options) filled() (Options, error) {
	orDefault(&o.Limits.MaxHeaderBytes, wire.DefaultMaxHeaderBytes)
	orDefault(&o.Limits.MaxConcurrentUniStreams, quictransport.DefaultMaxUniStreams)
	orDefault(&o.Limits.MaxConcurrentBidiStreams, quictransport.DefaultMaxBidiStreams)
	orDefault(&o.Limits.HelloTimeout, defaultHelloTimeout)
	orDefault(&o.Limits.MaxSubscriptions, defaultMaxSubscriptions)
	orDefault(&o.Limits.SubscriberBufferBytes, defaultSubscriberBufferBytes)
	orDefault(&o.Limits.MaxSequenceScopes, defaultMaxSequenceScopes)
	orDefault(&o.Limits.MaxReorderHold, defaultMaxReorderHold)
	orDefault(&o.Limits.MaxDedupEntries, defaultMaxDedupEntries)
	orDefault(&o.Limits.MaxLocalStreams, localtransport.DefaultMaxStreams)
	orDefault(&o.MaxConnections, defaultMaxConnections)
	orDefault(&o.MaxConnectionsPerPeer, defaultMaxConnectionsPerPeer)
	orDefault(&o.EndpointQueue, defaultEndpointQueue)
	orDefault(&o.MaxResolvedAddresses, defaultMaxResolvedAddresses)
	orDefault(&o.ConnectAttemptTimeout, defaultConnectAttemptTimeout)
	orDefault(&o.ShutdownTimeout, defaultShutdownTimeout)
	orDefault(&o.Reconnect.Initial, defaultReconnectInitial)
	orDefault(&o.Reconnect.Max, defaultReconnectMax)
	orDefault(&o.OutboxMessages, defaultOutboxMessages)
	orDefault(&o.OutboxBytes, defaultOutboxBytes)
	orDefault(&o.ReportBytes, defaultReportBytes)
	orDefault(&o.ReportInterval, defaultReportInterval)
	if o.Buses == nil {
		o.Buses = new(Buses)
	}
	if o.Resolver == nil {
		o.Resolver = systemResolver
	}
	for _, n := range []struct {
		name  string
		value int
	}{
		{"Limits.MaxHeaderBytes", o.Limits.MaxHeaderBytes},
		{"Limits.StreamReceiveWindow", o.Limits.StreamReceiveWindow},
		{"Limits.ConnectionReceiveWindow", o.Limits.ConnectionReceiveWindow},
		{"Limits.MaxSubscriptions", o.Limits.MaxSubscriptions},
		{"Limits.SubscriberBufferBytes", o.Limits.SubscriberBufferBytes},
		{"Limits.MaxSequenceScopes", o.Limits.MaxSequenceScopes},
		{"Limits.MaxReorderHold", o.Limits.MaxReorderHold},
		{"Limits.MaxDedupEntries", o.Limits.MaxDedupEntries},
		{"Limits.MaxLocalStreams", o.Limits.MaxLocalStreams},
		{"MaxConnections", o.MaxConnections},
		{"MaxConnectionsPerPeer", o.MaxConnectionsPerPeer},
		{"EndpointQueue", o.EndpointQueue},
		{"MaxResolvedAddresses", o.MaxResolvedAddresses},
		{"OutboxMessages", o.OutboxMessages},
		{"OutboxBytes", o.OutboxBytes},
		{"ReportBytes", o.ReportBytes},
		{"Reconnect.MaxAttempts", o.Reconnect.MaxAttempts},
	} {
		if n.value < 0 {
			return Options{}, fmt.Errorf("weida options: %s is negative", n.name)
		}
	}
	return o, o.checkGuarantees()
}

// checkGuarantees refuses what cannot be honoured. An acknowledgement above the transport's is a broker's to honour, and so are its axes.
func (o Options) checkGuarantees() error {
	hello := wire.Hello{Offered: o.Offered, Required: o.Required}
	if _, err := wire.AppendHello(nil, &hello); err != nil {
		return fmt.Errorf("weida options: guarantees: %w", err)
	}
	rest := o.Offered
	rest.Acknowledgement, rest.Durability, rest.Replicas = 0, 0, 0
	rest.Ordering, rest.Deduplication, rest.DedupWindowMillis = 0, 0, 0
	if rest != (Guarantees{}) || o.Offered.Ordering > wire.OrderReassemble || o.Offered.Deduplication > wire.DedupBounded {
		return fmt.Errorf("weida options: guarantees %v: %w", o.Offered, ErrUnsupported)
	}
	return nil
}

func (o *Options) hello() wire.Hello {
	return wire.Hello{
		Versions: []uint64{wire.Version}, MaxHeaderBytes: uint64(o.Limits.MaxHeaderBytes),
		MaxTransfers: uint64(max(0, o.Limits.MaxConcurrentBidiStreams)), Offered: o.Offered, Required: o.Required,
	}
}

func (o *Options) quic() quictransport.Config {
	l := &o.Limits
	return quictransport.Config{
		MaxUniStreams: l.MaxConcurrentUniStreams, MaxBidiStreams: l.MaxConcurrentBidiStreams,
		StreamReceiveWindow: uint64(l.StreamReceiveWindow), ConnectionReceiveWindow: uint64(l.ConnectionReceiveWindow),
		KeepAlive: l.KeepAlive, IdleTimeout: l.IdleTimeout, NoReceipts: l.NoReceipts,
	}
}

func (o *Options) local() localtransport.Config {
	return localtransport.Config{Window: o.Limits.StreamReceiveWindow, MaxStreams: o.Limits.MaxLocalStreams, MaxParked: o.Limits.MaxParkedReverse}
}

func systemResolver(ctx context.Context, host string) ([]netip.Addr, error) {
	return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
}
