// Package localtransport carries weida between runtimes of one process, and over Unix sockets between processes of one machine (weida-protocol §2.1,
// weida-supplement §7). There is no TLS, no idle timer and no window of a whole link. Within a process nobody has an identity and a stream is memory that one
// side writes and the other reads. On a socket the kernel proves the peer, and each stream is a connection of its own:
//
//	0x01            control connection: the server answers with 16 random bytes, the token
//	0x02 <token>    transfer connection: one stream of the dialling side
//	0x03 <token>    reverse connection: parked, for one stream of the accepting side
//
// What follows on a connection is chunks, in both directions:
//
//	0x00 <u32 length, little-endian> <bytes>    payload
//	0x01                                        the end of the stream
//	0x02 <u64 code, little-endian>              the stream was abandoned
//
// The control connection carries one stream in each direction, for the HELLOs; an abandonment there, or its end, is the end of the link.
package localtransport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/weir-agent/weir/weida/transport"
)

const (
	// DefaultWindow is how many bytes a writer may be ahead of the reader of a stream.
	DefaultWindow = 1 << 20
	// DefaultMaxStreams is how many live streams each side of a link may have opened; another one waits.
	DefaultMaxStreams = 255
	// DefaultMaxParked is how many connections are kept ready for streams of the side that cannot dial.
	DefaultMaxParked = 8
	// MaxBusBytes bounds the name of a bus.
	MaxBusBytes = 256
	// backlog is how many links may wait for Accept.
	backlog = 16
)

var (
	// ErrNoBus is returned by a dial to a bus that nobody listens on.
	ErrNoBus = errors.New("localtransport: nobody listens on the bus")
	// ErrBusTaken is returned by Listen on a bus that has a listener.
	ErrBusTaken = errors.New("localtransport: the bus has a listener")
	// ErrBusName is returned for a name that is empty, longer than MaxBusBytes or holds a control character.
	ErrBusName = errors.New("localtransport: not a name of a bus")
)

// Buses are the in-process addresses of those runtimes that share it. The zero value has none and is ready for use; its methods may be
// called by several goroutines at once.
type Buses struct {
	mu     sync.Mutex
	listed map[string]*Listener
	taken  chan struct{} // closed when another bus is taken; nil while nobody waits
}

// Await reports whether somebody listens on a bus, and returns a channel that is closed when the next bus is taken, this or another.
func (b *Buses) Await(name string) (listens bool, taken <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.taken == nil {
		b.taken = make(chan struct{})
	}
	return b.listed[name] != nil, b.taken
}

// Config bounds links.
type Config struct {
	// Window is how many bytes a writer may be ahead of the reader of a stream within a process; default DefaultWindow. On a socket the kernel's buffer is
	// the window.
	Window int
	// MaxStreams is how many live streams each side of a link may have opened; default DefaultMaxStreams.
	MaxStreams int
	// MaxParked is how many connections the dialling side of a socket keeps ready for streams of the other side; default DefaultMaxParked, and less than 0 is
	// none. The other side accepts as many.
	MaxParked int
}

func (c Config) filled() Config {
	if c.Window == 0 {
		c.Window = DefaultWindow
	}
	if c.MaxStreams == 0 {
		c.MaxStreams = DefaultMaxStreams
	}
	if c.MaxParked == 0 {
		c.MaxParked = DefaultMaxParked
	}
	return c
}

// Addr is the address of a bus.
type Addr string

// Network returns "inproc".
func (Addr) Network() string { return "inproc" }

// String returns the name of the bus.
func (a Addr) String() string { return string(a) }

// CheckBus refuses what is no name of a bus.
func CheckBus(name string) error {
	if name == "" || len(name) > MaxBusBytes {
		return fmt.Errorf("%w: %d bytes, 1 to %d are possible", ErrBusName, len(name), MaxBusBytes)
	}
	for i := range len(name) {
		if name[i] < 0x20 || name[i] == 0x7f {
			return fmt.Errorf("%w: %q holds a control character", ErrBusName, name)
		}
	}
	return nil
}

// Listen takes a bus, until Close. It fails with ErrBusTaken or ErrBusName.
func (b *Buses) Listen(name string, conf Config) (*Listener, error) {
	if err := CheckBus(name); err != nil {
		return nil, err
	}
	conf = conf.filled()
	l := &Listener{buses: b, name: name, conf: conf, links: make(chan transport.Link, backlog), closed: make(chan struct{})}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.listed[name] != nil {
		return nil, fmt.Errorf("%w: %q", ErrBusTaken, name)
	}
	if b.listed == nil {
		b.listed = map[string]*Listener{}
	}
	b.listed[name] = l
	if b.taken != nil {
		close(b.taken)
		b.taken = nil
	}
	return l, nil
}

// Dial makes a link to whoever listens on a bus. It waits for its acceptance where many wait, until ctx ends, and fails with ErrNoBus where nobody
// listens.
func (b *Buses) Dial(ctx context.Context, name string) (transport.Link, error) {
	b.mu.Lock()
	l := b.listed[name]
	b.mu.Unlock()
	if l == nil {
		return nil, fmt.Errorf("%w %q", ErrNoBus, name)
	}
	dialled, accepted := l.pair()
	select {
	case l.links <- accepted:
		return dialled, nil
	case <-l.closed:
	case <-ctx.Done():
	}
	dialled.Close(transport.CodeCanceled, "")
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return nil, fmt.Errorf("%w %q", ErrNoBus, name)
}

// Listener accepts the links of one bus.
type Listener struct {
	buses *Buses
	name  string
	conf  Config
	links chan transport.Link

	live   liveLinks
	mu     sync.Mutex
	closed chan struct{}
}

var _ transport.Listener = (*Listener)(nil)

func (l *Listener) pair() (dialled, accepted *link) {
	dialled, accepted = newLinks(l.conf.Window, l.conf.MaxStreams, func() { l.live.remove(accepted) })
	dialled.info.Remote, accepted.info.Local = l.Addr(), l.Addr()
	l.live.add(accepted)
	return dialled, accepted
}

// Accept returns the next link.
func (l *Listener) Accept(ctx context.Context) (transport.Link, error) {
	return transport.Next(ctx, l.links, l.closed, func() error { return transport.ErrListenerClosed })
}

// Addr returns the name of the bus.
func (l *Listener) Addr() net.Addr { return Addr(l.name) }

// Close frees the bus and refuses the links that were not accepted.
func (l *Listener) Close() error {
	l.buses.mu.Lock()
	if l.buses.listed[l.name] == l {
		delete(l.buses.listed, l.name)
	}
	l.buses.mu.Unlock()
	l.mu.Lock()
	select {
	case <-l.closed:
	default:
		close(l.closed)
	}
	l.mu.Unlock()
	for {
		select {
		case waiting := <-l.links:
			waiting.Close(transport.CodeShutdown, "")
		default:
			return nil
		}
	}
}

// Wait waits until every link has ended; when ctx ends first, the rest is ended.
func (l *Listener) Wait(ctx context.Context) error { return l.live.wait(ctx) }
