package quictransport

import (
	"context"
	"crypto/tls"
	"errors"
	"net"

	quic "github.com/quic-go/quic-go"

	"github.com/weir-agent/weir/weida/transport"
)

// ErrDiallerClosed is returned by Dial after Close.
var ErrDiallerClosed = errors.New("quictransport: dialler closed")

// Dialler dials links from one socket. Its methods may be called by several goroutines at once.
type Dialler struct {
	endpoint *endpoint
	config   *quic.Config
}

// NewDialler returns a dialler on conn, which is the dialler's from then on. If conn is nil, it opens a UDP socket of its own, for IPv6 and IPv4
// or for IPv4 alone where there is no IPv6.
func NewDialler(conn net.PacketConn, config Config) (*Dialler, error) {
	if conn == nil {
		udp, err := listenUDP()
		if err != nil {
			return nil, err
		}
		conn = udp
	}
	return &Dialler{endpoint: newEndpoint(conn, nil), config: config.withDefaults().quicConfig(true)}, nil
}

// Dial makes a link to addr. conf says whom to accept and whom to be; its ServerName, ALPN token, versions and session cache are
// replaced or ignored as a link needs it, except that ServerName is kept if it is set. conf is not changed.
//
// A handshake that fails gives a *transport.CloseError, in which an error of conf's verifier can be found by errors.As. If ctx ends
// first, Dial returns its error.
func (d *Dialler) Dial(ctx context.Context, addr net.Addr, conf *tls.Config) (transport.Link, error) {
	if !d.endpoint.add() {
		return nil, ErrDiallerClosed
	}
	conn, err := d.endpoint.tr.Dial(ctx, addr, linkTLS(conf), d.config)
	if err != nil {
		d.endpoint.remove()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, closeError(err)
	}
	return newLink(conn, true, d.endpoint.remove), nil
}

// Addr is the address of the socket.
func (d *Dialler) Addr() net.Addr { return d.endpoint.tr.Conn.LocalAddr() }

// Close dials no more; links live on. It is idempotent.
func (d *Dialler) Close() error {
	d.endpoint.shut()
	return nil
}

// Wait waits until every link has ended, and frees the socket. When ctx ends first, the rest is cut off without a word to
// the peers, and Wait returns ctx's error. Close comes before it.
func (d *Dialler) Wait(ctx context.Context) error { return d.endpoint.wait(ctx) }
