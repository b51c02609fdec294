package sinktest

import (
	"io"
	"net"
	"sync"
	"testing"
)

// bufferBytes is what the kernel keeps of a sink's bytes while the proxy holds, besides what it keeps at the sink's side.
const bufferBytes = 64 << 10

// Proxy stands between a sink and the server that it delivers to, so that a test can hold what goes to the server, or cut it off.
type Proxy struct {
	Gate
	// Address is where the sink connects to.
	Address string

	network, target string
	listener        net.Listener
	wg              sync.WaitGroup

	mu   sync.Mutex
	open map[net.Conn]struct{} // guarded by mu
}

// NewProxy starts a proxy on a loopback address to target, which network names as for net.Dial. The end of the test ends it.
func NewProxy(t testing.TB, network, target string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{Address: l.Addr().String(), network: network, target: target, listener: l, open: map[net.Conn]struct{}{}}
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		l.Close()
		p.Cut()
		p.wg.Wait()
	})
	return p
}

// Cut ends every connection.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.open {
		c.Close()
	}
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		if tcp, ok := client.(*net.TCPConn); ok {
			_ = tcp.SetReadBuffer(bufferBytes) // the kernel would take many megabytes before a write blocks
		}
		server, err := net.Dial(p.network, p.target)
		if err != nil {
			client.Close()
			continue
		}
		p.mu.Lock()
		p.open[client], p.open[server] = struct{}{}, struct{}{}
		p.mu.Unlock()
		end := sync.OnceFunc(func() {
			client.Close()
			server.Close()
			p.mu.Lock()
			delete(p.open, client)
			delete(p.open, server)
			p.mu.Unlock()
		})
		p.wg.Go(func() {
			defer end()
			_, _ = io.Copy(held{server, p}, client) // it ends with either side
		})
		p.wg.Go(func() {
			defer end()
			_, _ = io.Copy(client, server)
		})
	}
}

// held writes to a connection, and waits before that while the proxy holds.
type held struct {
	net.Conn
	p *Proxy
}

func (h held) Write(b []byte) (int, error) {
	h.p.Pass()
	return h.Conn.Write(b)
}

// ReadFrom hides that of the connection, which would pass by Write.
func (h held) ReadFrom(r io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{h}, r)
}
