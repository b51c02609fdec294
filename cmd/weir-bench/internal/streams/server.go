package streams

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime/debug"

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

// ServeProcess is what the other process of a measurement does: it says its addresses in a line of JSON, gives back what memory it can for each line
// that it reads, which it says by an empty line, and ends with its input.
func ServeProcess(ctx context.Context, in io.Reader, out io.Writer) error {
	s, err := Serve(ctx)
	if err != nil {
		return err
	}
	line, err := json.Marshal(s.Addresses)
	if err != nil {
		return errors.Join(err, s.Close())
	}
	if _, err := fmt.Fprintf(out, "%s\n", line); err != nil {
		return errors.Join(err, s.Close())
	}
	for lines := bufio.NewScanner(in); lines.Scan(); {
		debug.FreeOSMemory()
		if _, err := fmt.Fprintln(out); err != nil {
			return errors.Join(err, s.Close())
		}
	}
	return s.Close()
}

// Process is a server in a process of its own.
type Process struct {
	Addresses Addresses
	cmd       *exec.Cmd
	in        io.WriteCloser
	out       *bufio.Reader
}

// StartProcess runs this binary with the arguments that make it call ServeProcess.
func StartProcess(ctx context.Context, args ...string) (*Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("streams: %w", err)
	}
	p := &Process{cmd: exec.CommandContext(ctx, self, args...)}
	p.cmd.Stderr = os.Stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("streams: %w", err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("streams: %w", err)
	}
	p.out = bufio.NewReader(out)
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("streams: %w", err)
	}
	line, err := p.out.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &p.Addresses)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("streams: the server said nothing of its addresses: %w", err), p.Close())
	}
	return p, nil
}

// PID is the process's.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Free has the process give back what memory it can.
func (p *Process) Free() error {
	if _, err := io.WriteString(p.in, "\n"); err != nil {
		return fmt.Errorf("streams: %w", err)
	}
	if _, err := p.out.ReadString('\n'); err != nil {
		return fmt.Errorf("streams: %w", err)
	}
	return nil
}

// Close ends the process and waits for it.
func (p *Process) Close() error {
	err := p.in.Close()
	return errors.Join(err, p.cmd.Wait())
}
