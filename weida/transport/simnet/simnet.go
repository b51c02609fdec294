// Package simnet is a network of packets inside one process, which loses, delays, reorders and repeats them as it is told, from a seed.
//
// Its ends are net.PacketConn, so that anything that speaks UDP runs over it. It uses channels and timers alone, so it
// works inside a testing/synctest bubble, where its delays pass at once, and outside of one.
package simnet

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"
)

const (
	// inboxPackets is how many packets an end holds that were not read; as a socket does, it drops what comes beyond.
	inboxPackets = 8192
	// firstPort is the port of the first end; the others follow.
	firstPort = 10000
)

// Conditions is what the network does to packets. The zero value delivers each at once, once and in order.
type Conditions struct {
	// Loss, Duplicate and Reorder are how likely a packet is lost, repeated, and held back behind later ones, from 0 to 1.
	Loss, Duplicate, Reorder float64
	// Delay is how long each packet takes.
	Delay time.Duration
	// HoldBack is by how much longer a packet takes that is reordered, at most; it is drawn uniformly.
	HoldBack time.Duration
	// Cut loses every packet.
	Cut bool
}

// Stats counts what became of packets.
type Stats struct {
	Sent, Delivered, Lost, Duplicated, Reordered, Overflowed uint64
}

// Network carries packets between its ends. Its methods may be called by several goroutines at once.
type Network struct {
	mu         sync.Mutex
	rng        *rand.Rand
	conditions Conditions
	ends       map[netip.AddrPort]*Conn
	nextPort   uint16
	stats      Stats
}

// New returns a network without ends. The same seed and the same order of packets give the same fate to each packet.
func New(seed uint64, c Conditions) *Network {
	return &Network{
		rng: rand.New(rand.NewPCG(seed, 0)), conditions: c,
		ends: make(map[netip.AddrPort]*Conn), nextPort: firstPort,
	}
}

// Set changes what happens to packets that are sent from now on.
func (n *Network) Set(c Conditions) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.conditions = c
}

// Stats returns the counts so far.
func (n *Network) Stats() Stats {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.stats
}

// Listen makes an end with an address of its own.
func (n *Network) Listen() *Conn {
	n.mu.Lock()
	defer n.mu.Unlock()
	addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, 1}), n.nextPort)
	n.nextPort++
	return n.bind(addr)
}

// ListenAt makes an end with the address of one that was closed, as a server that restarts does.
func (n *Network) ListenAt(addr net.Addr) (*Conn, error) {
	udp, ok := addr.(*net.UDPAddr)
	if !ok {
		return nil, fmt.Errorf("simnet: listen at %v: not an address of this network", addr)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ends[udp.AddrPort()] != nil {
		return nil, fmt.Errorf("simnet: listen at %v: address in use", addr)
	}
	return n.bind(udp.AddrPort()), nil
}

func (n *Network) bind(addr netip.AddrPort) *Conn {
	c := &Conn{
		network: n, addr: addr, inbox: make(chan packet, inboxPackets), closed: make(chan struct{}),
		deadline: deadline{passed: make(chan struct{})},
	}
	n.ends[addr] = c
	return c
}

// packet is what an end has received.
type packet struct {
	from net.Addr
	data []byte
}

// send decides what becomes of one packet. data is the network's.
func (n *Network) send(from *Conn, to netip.AddrPort, data []byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stats.Sent++
	c := n.conditions
	if c.Cut || n.rng.Float64() < c.Loss {
		n.stats.Lost++
		return
	}
	copies := 1
	if n.rng.Float64() < c.Duplicate {
		copies = 2
		n.stats.Duplicated++
	}
	for range copies {
		delay := c.Delay
		if c.HoldBack > 0 && n.rng.Float64() < c.Reorder {
			delay += time.Duration(n.rng.Int64N(int64(c.HoldBack)))
			n.stats.Reordered++
		}
		p := packet{from: from.LocalAddr(), data: data}
		if delay == 0 {
			n.deliver(to, p)
			continue
		}
		time.AfterFunc(delay, func() {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.deliver(to, p)
		})
	}
}

// deliver puts a packet into an end's inbox. n.mu is held.
func (n *Network) deliver(to netip.AddrPort, p packet) {
	end := n.ends[to]
	if end == nil {
		n.stats.Lost++
		return
	}
	select {
	case end.inbox <- p:
		n.stats.Delivered++
	default:
		n.stats.Overflowed++
	}
}

// Conn is an end of the network.
type Conn struct {
	network  *Network
	addr     netip.AddrPort
	inbox    chan packet
	closed   chan struct{}
	once     sync.Once
	deadline deadline
}

var _ net.PacketConn = (*Conn)(nil)

// ReadFrom returns the next packet; what does not fit into p is cut off.
func (c *Conn) ReadFrom(p []byte) (int, net.Addr, error) {
	passed := c.deadline.channel()
	select {
	case <-c.closed:
		return 0, nil, net.ErrClosed
	case <-passed:
		return 0, nil, os.ErrDeadlineExceeded
	default:
	}
	select {
	case got := <-c.inbox:
		return copy(p, got.data), got.from, nil
	case <-c.closed:
		return 0, nil, net.ErrClosed
	case <-passed:
		return 0, nil, os.ErrDeadlineExceeded
	}
}

// WriteTo sends p to an end of the same network. It never waits, and it does not fail where the packet is lost.
func (c *Conn) WriteTo(p []byte, to net.Addr) (int, error) {
	select {
	case <-c.closed:
		return 0, net.ErrClosed
	default:
	}
	udp, ok := to.(*net.UDPAddr)
	if !ok {
		return 0, fmt.Errorf("simnet: write to %v: not an address of this network", to)
	}
	addr := udp.AddrPort()
	addr = netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port())
	c.network.send(c, addr, append([]byte(nil), p...))
	return len(p), nil
}

// Close takes the end off the network. Packets on their way to it are lost.
func (c *Conn) Close() error {
	c.once.Do(func() {
		close(c.closed)
		c.network.mu.Lock()
		defer c.network.mu.Unlock()
		delete(c.network.ends, c.addr)
	})
	return nil
}

// LocalAddr returns the address of the end, a *net.UDPAddr.
func (c *Conn) LocalAddr() net.Addr { return net.UDPAddrFromAddrPort(c.addr) }

// SetDeadline sets the deadline of reads; writes never wait.
func (c *Conn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

// SetReadDeadline sets when reads that wait, and later ones, fail with os.ErrDeadlineExceeded; the zero time means never.
func (c *Conn) SetReadDeadline(t time.Time) error {
	c.deadline.set(t)
	return nil
}

// SetWriteDeadline does nothing, as writes never wait.
func (c *Conn) SetWriteDeadline(time.Time) error { return nil }

// deadline is a moment that can be moved while somebody waits for it.
type deadline struct {
	mu     sync.Mutex
	timer  *time.Timer
	passed chan struct{}
}

func (d *deadline) channel() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.passed
}

func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	select {
	case <-d.passed:
		d.passed = make(chan struct{})
	default:
	}
	if t.IsZero() {
		return
	}
	wait := time.Until(t)
	if wait <= 0 {
		close(d.passed)
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(wait, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.timer == timer { // otherwise it was moved while this waited for the lock
			d.timer = nil
			close(d.passed)
		}
	})
	d.timer = timer
}
