package streams

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"runtime/debug"

	"github.com/weir-agent/weir/cmd/weir-bench/internal/proc"
	"github.com/weir-agent/weir/weida"
)

// Addresses says where the servers listen.
type Addresses struct {
	TLS   string `json:"tls"`
	Bare  string `json:"bare"`
	Weida string `json:"weida"` // with the fingerprint, without a path
	Unix  string `json:"unix"`  // weida over a Unix socket, without a path
	// Inproc is weida within the process, on the buses of Buses; both are empty in another process.
	Inproc string       `json:"-"`
	Buses  *weida.Buses `json:"-"`
}

// Server serves over TCP with TLS, over bare QUIC streams and over weida.
type Server struct {
	Addresses Addresses
	tls       *tlsServer
	bare      *bareServer
	weida     *weidaServer
}

// Serve starts all servers on the loopback address.
func Serve(ctx context.Context) (*Server, error) {
	id, err := weida.GenerateIdentity("127.0.0.1")
	if err != nil {
		return nil, err
	}
	cert, err := tls.X509KeyPair(id.PEM(), id.PEM())
	if err != nil {
		return nil, fmt.Errorf("streams: %w", err)
	}
	s := &Server{}
	if s.tls, err = listenTLS(cert); err != nil {
		return nil, err
	}
	if s.bare, err = listenBare(cert); err != nil {
		return nil, errors.Join(err, s.tls.close())
	}
	if s.weida, err = listenWeida(ctx, id); err != nil {
		return nil, errors.Join(err, s.tls.close(), s.bare.close())
	}
	s.Addresses = Addresses{TLS: s.tls.listener.Addr().String(), Bare: s.bare.listener.Addr().String()}
	s.weida.addresses(&s.Addresses)
	return s, nil
}

// Close ends all servers.
func (s *Server) Close() error { return errors.Join(s.tls.close(), s.bare.close(), s.weida.close()) }

// ServeProcess is what the other process of a measurement does: it says its addresses, gives back what memory it can for each line that it reads, and ends with its input.
func ServeProcess(ctx context.Context, in io.Reader, out io.Writer) error {
	s, err := Serve(ctx)
	if err != nil {
		return err
	}
	err = proc.Answer(in, out, s.Addresses, func(string) any {
		debug.FreeOSMemory()
		return nil
	})
	return errors.Join(err, s.Close())
}

// Process is a server in a process of its own.
type Process struct {
	*proc.Child
	Addresses Addresses
}

// StartProcess runs this binary with the arguments that make it call ServeProcess.
func StartProcess(ctx context.Context, args ...string) (p *Process, err error) {
	p = &Process{}
	p.Child, err = proc.StartChild(ctx, &p.Addresses, args...)
	return p, err
}

// Free has the process give back what memory it can.
func (p *Process) Free() error { return p.Ask("", new(any)) }
