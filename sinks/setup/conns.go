package setup

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// ErrClosed is the error of a dial after Close.
var ErrClosed = errors.New("the sink is closed")

// Conns makes and knows every connection of a client, so that Close can end them, whatever the client is doing on them. It is
// safe for use by several goroutines.
type Conns struct {
	dialer net.Dialer
	ctx    context.Context // ends with Close
	cancel context.CancelFunc

	mu     sync.Mutex
	open   map[*conn]struct{} // guarded by mu
	closed bool               // guarded by mu
}

// NewConns returns Conns whose look-up and connect take no longer than connectTimeout.
func NewConns(connectTimeout time.Duration) *Conns {
	c := &Conns{dialer: net.Dialer{Timeout: connectTimeout}, open: map[*conn]struct{}{}}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// Dial connects, as net.Dialer.DialContext does; it ends with Close, too.
func (c *Conns) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()
	plain, err := c.dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	one := &conn{Conn: plain, owner: c}
	c.mu.Lock()
	closed := c.closed
	if !closed {
		c.open[one] = struct{}{}
	}
	c.mu.Unlock()
	if closed {
		return nil, errors.Join(ErrClosed, plain.Close())
	}
	return one, nil
}

// Close ends every connection and every dial, and refuses new ones. It may be called again.
func (c *Conns) Close() {
	c.cancel()
	c.mu.Lock()
	c.closed = true
	open := c.open
	c.open = nil
	c.mu.Unlock()
	for one := range open {
		_ = one.Conn.Close() // the connection is given up: what it says no longer matters
	}
}

// Open returns how many connections are open.
func (c *Conns) Open() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open)
}

type conn struct {
	net.Conn
	owner *Conns
}

func (c *conn) Close() error {
	c.owner.mu.Lock()
	delete(c.owner.open, c)
	c.owner.mu.Unlock()
	return c.Conn.Close()
}
