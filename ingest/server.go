package ingest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-agent/weir/ingest/frame"
	"github.com/weir-agent/weir/internal/unixsocket"
)

// Server listens on one socket and serves its connections. Its methods are safe
// for use by several goroutines.
type Server struct {
	cfg       Config
	appenders []Appender
	sock      *unixsocket.Socket
	mem       memory
	count     counters
	begun     time.Time

	stop     chan struct{} // closed when the server stops taking frames
	stopping atomic.Bool   // set before stop is closed
	stopOnce sync.Once
	stopErr  error // of closing the socket; written within stopOnce

	mu    sync.Mutex
	conns map[*conn]struct{} // open connections
	next  int                // of the appenders
	wg    sync.WaitGroup     // the connections
}

// New checks cfg, then takes the socket, so that producers may connect once it
// has returned; Serve answers them. appenders has one entry a shard, and
// connections are spread over them in turn. A wrong configuration touches nothing.
func New(cfg Config, appenders []Appender) (*Server, error) {
	cfg, err := cfg.fill()
	if err != nil {
		return nil, err
	}
	if len(appenders) == 0 {
		return nil, errors.New("ingest: there is no shard to append to")
	}
	cfg.PeerUIDs = slices.Clone(cfg.PeerUIDs)
	sock, err := unixsocket.Listen(cfg.Path)
	if err != nil {
		return nil, err
	}
	s := &Server{
		cfg:       cfg,
		appenders: slices.Clone(appenders),
		sock:      sock,
		begun:     time.Now(),
		stop:      make(chan struct{}),
		conns:     map[*conn]struct{}{},
	}
	s.mem.limit = cfg.MemoryBytes
	return s, nil
}

// Serve accepts connections until ctx ends or Shutdown is called, and returns
// nil then; the end of ctx begins a shutdown. Connections may still be busy:
// Shutdown waits for them. An error is one of accepting that does not pass.
func (s *Server) Serve(ctx context.Context) error {
	unhook := context.AfterFunc(ctx, s.beginStop)
	defer unhook()
	pause := time.Duration(0)
	for {
		nc, err := s.sock.AcceptUnix()
		switch {
		case err == nil:
			pause = 0
			s.admit(nc)
		case s.stopping.Load():
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("ingest: accept: %w", err)
		default:
			s.count.acceptErrors.Add(1)
			if f := s.cfg.Observer.AcceptFailed; f != nil {
				f(err)
			}
			pause = nextPause(pause)
			if !s.sleep(pause) {
				return nil
			}
		}
	}
}

const (
	firstAcceptPause = 5 * time.Millisecond
	maxAcceptPause   = time.Second
)

// nextPause returns how long accepting rests after another failure in a row.
func nextPause(last time.Duration) time.Duration {
	return min(maxAcceptPause, max(firstAcceptPause, 2*last))
}

// sleep reports whether the server still runs after d.
func (s *Server) sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.stop:
		return false
	}
}

// admit starts a connection, or refuses it.
func (s *Server) admit(nc *net.UnixConn) {
	if err := allowed(nc, s.cfg.PeerUIDs); err != nil {
		s.count.refusedPeer.Add(1)
		nc.Close()
		return
	}
	raw, err := nc.SyscallConn()
	if err != nil {
		s.count.acceptErrors.Add(1)
		nc.Close()
		return
	}
	c := newConn(s, nc, raw)
	s.mu.Lock()
	full := len(s.conns) >= s.cfg.MaxConnections
	stopped := s.stopping.Load() // under mu: beginStop looks at conns after it was set
	if !full && !stopped {
		s.conns[c] = struct{}{}
		c.app = s.appenders[s.next%len(s.appenders)]
		s.next = (s.next + 1) % len(s.appenders)
		s.wg.Go(c.run)
	}
	s.mu.Unlock()
	switch {
	case stopped:
		nc.Close()
	case full:
		s.count.refusedLimit.Add(1)
		s.refuse(nc)
	default:
		s.count.accepted.Add(1)
	}
}

// refuse tells a peer that there is no room for it now. The socket buffer of a
// new connection is empty, so the write does not block; the deadline makes sure.
func (s *Server) refuse(nc *net.UnixConn) {
	s.count.nacks[frame.InternalError].Add(1)
	if nc.SetWriteDeadline(time.Now().Add(refuseTimeout)) == nil {
		// Nothing can be done for a peer that is gone already.
		_, _ = nc.Write(frame.AppendNack(nil, frame.InternalError))
	}
	nc.Close()
}

const refuseTimeout = 100 * time.Millisecond

// leave is called by a connection at its end.
func (s *Server) leave(c *conn) {
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
}

// beginStop stops accepting and reading; frames that were read whole are
// answered.
func (s *Server) beginStop() {
	s.stopOnce.Do(func() {
		s.stopping.Store(true)
		close(s.stop)
		s.stopErr = s.sock.Close()
		for _, c := range s.open() {
			c.wake()
		}
	})
}

// open returns the open connections.
func (s *Server) open() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		out = append(out, c)
	}
	return out
}

// Shutdown stops accepting, removes the socket, stops reading frames, and waits
// until every frame that was read whole has its answer and the connections are
// closed. If ctx ends before that, the connections are cut off and the error of
// ctx is returned; what was appended is still waited for, in the background. It
// may be called more than once.
func (s *Server) Shutdown(ctx context.Context) error {
	s.beginStop()
	done := make(chan struct{})
	go func() {
		s.wg.Wait()
		close(done)
	}()
	select {
	case <-done:
		return s.stopErr
	case <-ctx.Done():
	}
	for _, c := range s.open() {
		c.nc.Close()
	}
	return fmt.Errorf("ingest: shutdown: %w", ctx.Err())
}
