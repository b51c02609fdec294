// Package compare runs the same work against what a user would pick instead of weir: each system is started here, on
// loopback, with the setting under which its answer means that the record is on stable storage.
package compare

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/weir-agent/weir/cmd/weir-bench/internal/load"
)

// System is something that takes records and answers for each of them.
type System struct {
	Name string
	// Setting is what makes its answer durable, in words.
	Setting string
	// Start brings it up in an empty folder. The error wraps ErrMissing where it is not installed.
	Start func(ctx context.Context, dir string) (*Server, error)
	// Producer makes the protocol of one producer.
	Producer func() Producer
}

// ErrMissing: the system is not installed.
var ErrMissing = errors.New("compare: not installed")

// Producer speaks a system's protocol on one connection.
type Producer interface {
	// Hello makes the connection ready.
	Hello(rw *bufio.ReadWriter) error
	// Request appends the request that stores a record.
	Request(b, payload []byte) []byte
	// Reply reads the answer to one request; an error means that it was not stored.
	Reply(r *bufio.Reader) error
}

// Server is a started system.
type Server struct {
	Network, Address string
	cmd              *exec.Cmd
	exited           chan error
}

const (
	startTimeout = 20 * time.Second
	startPoll    = 10 * time.Millisecond
	stopTimeout  = 10 * time.Second
)

// launch starts a program and waits until its address takes connections.
func launch(ctx context.Context, dir, network, address, program string, args ...string) (*Server, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", ErrMissing, program)
	}
	log, err := os.Create(filepath.Join(dir, filepath.Base(program)+".log"))
	if err != nil {
		return nil, fmt.Errorf("compare: %w", err)
	}
	defer log.Close() // the child has its own
	s := &Server{Network: network, Address: address, exited: make(chan error, 1)}
	s.cmd = exec.CommandContext(ctx, path, args...)
	s.cmd.Dir = dir
	s.cmd.Stdout, s.cmd.Stderr = log, log
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("compare: %w", err)
	}
	go func() { s.exited <- s.cmd.Wait() }()
	for until := time.Now().Add(startTimeout); time.Now().Before(until); time.Sleep(startPoll) {
		if nc, err := net.Dial(network, address); err == nil {
			return s, nc.Close()
		}
		select {
		case err := <-s.exited:
			s.exited <- err
			text, _ := os.ReadFile(log.Name()) // the cause is err, this is its explanation
			return nil, fmt.Errorf("compare: %s ended: %w\n%s", program, err, text)
		default:
		}
	}
	return nil, errors.Join(fmt.Errorf("compare: %s does not take connections on %s", program, address), s.Stop())
}

// PID is the process to measure.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// Stop ends the system and waits.
func (s *Server) Stop() error {
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("compare: %w", err)
	}
	select {
	case <-s.exited: // what it says of a SIGTERM differs
		return nil
	case <-time.After(stopTimeout):
		err := s.cmd.Process.Kill()
		<-s.exited
		return err
	}
}

// Load is the shape of the work.
type Load struct {
	Connections, InFlight, Bytes int
	Duration                     time.Duration
}

// Run makes a closed loop: each connection keeps InFlight requests unanswered.
func Run(ctx context.Context, s System, srv *Server, l Load) (load.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, l.Duration)
	defer cancel()
	results := make([]load.Result, l.Connections)
	errs := make([]error, l.Connections)
	var wg sync.WaitGroup
	began := time.Now()
	for i := range l.Connections {
		wg.Go(func() { results[i], errs[i] = produce(ctx, s.Producer(), srv, l) })
	}
	wg.Wait()
	total := load.Result{Elapsed: time.Since(began), Latency: load.NewHistogram()}
	for _, r := range results {
		total.Records += r.Records
		if r.Latency != nil {
			total.Latency.Merge(r.Latency)
		}
	}
	return total, errors.Join(errs...)
}

const bufferBytes = 256 << 10

// produce keeps the window full: it writes what is missing in one write, then reads what has come.
func produce(ctx context.Context, p Producer, srv *Server, l Load) (load.Result, error) {
	nc, err := net.Dial(srv.Network, srv.Address)
	if err != nil {
		return load.Result{}, fmt.Errorf("compare: %w", err)
	}
	defer nc.Close()
	rw := bufio.NewReadWriter(bufio.NewReaderSize(nc, bufferBytes), bufio.NewWriter(nc))
	if err := p.Hello(rw); err != nil {
		return load.Result{}, fmt.Errorf("compare: hello: %w", err)
	}
	out := load.Result{Latency: load.NewHistogram()}
	payload := make([]byte, l.Bytes)
	for i := range payload {
		payload[i] = byte('a' + i%26)
	}
	began := make([]time.Time, 0, l.InFlight)
	var buf []byte
	for ctx.Err() == nil || len(began) > 0 {
		buf = buf[:0]
		for len(began) < l.InFlight && ctx.Err() == nil {
			buf = p.Request(buf, payload)
			began = append(began, time.Now())
		}
		if len(buf) > 0 {
			if _, err := nc.Write(buf); err != nil {
				return out, fmt.Errorf("compare: write: %w", err)
			}
		}
		n := 0
		for n == 0 || n < len(began) && rw.Reader.Buffered() > 0 {
			if err := p.Reply(rw.Reader); err != nil {
				return out, fmt.Errorf("compare: reply: %w", err)
			}
			_ = out.Latency.RecordValue(int64(time.Since(began[n]))) // in range: a minute at most
			n++
		}
		out.Records += int64(n)
		began = append(began[:0], began[n:]...)
	}
	return out, nil
}
