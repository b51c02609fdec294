//go:build !nopostgres

package pgsink

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-agent/weir/sinks"
	"github.com/weir-agent/weir/sinks/setup"
)

// Built tells whether this build has the sink.
const Built = true

const (
	// maxStatementBytes is the most payload that goes into one statement: the server has a limit of 1 GiB for a value, of which all
	// payloads of a batch are one.
	maxStatementBytes = 256 << 20
	// goodbye bounds how long a connection is told that it ends.
	goodbye = time.Second
)

var errNoAnswer = errors.New("no answer in time")

// Sink is the PostgreSQL sink. It is safe for use by several goroutines.
type Sink struct {
	opts  Options
	sql   string
	conns *setup.Conns
	slots chan struct{}  // one for each connection in use
	wg    sync.WaitGroup // statements, and ends of connections; from nought it is raised under mu, and not once closed is set

	mu     sync.Mutex
	idle   []*pgx.Conn // guarded by mu
	closed bool        // guarded by mu
}

var _ sinks.Sink = (*Sink)(nil)

// New checks o and the files that it names, and returns the sink. No connection is made. Every fault of o is in the error,
// each named by its configuration key.
func New(o Options) (*Sink, error) {
	o, err := resolve(o)
	if err != nil {
		return nil, err
	}
	s := &Sink{opts: o, sql: statement(&o), conns: setup.NewConns(o.ConnectTimeout), slots: make(chan struct{}, o.Connections)}
	if _, err := s.login(); err != nil {
		return nil, err
	}
	return s, nil
}

// Close ends every connection; a Deliver that is under way then returns Retry. It may be called again.
func (s *Sink) Close() error {
	s.mu.Lock()
	s.closed = true
	idle := s.idle
	s.idle = nil
	s.mu.Unlock()
	for _, c := range idle {
		s.end(context.Background(), c)
	}
	s.conns.Close()
	s.wg.Wait()
	return nil
}

// Deliver inserts the records of b with one statement. See sinks.Sink.
func (s *Sink) Deliver(ctx context.Context, b sinks.Batch) []sinks.Outcome {
	if len(b.Records) == 0 {
		return nil
	}
	out := make([]sinks.Outcome, len(b.Records))
	rows := s.rows(b.Records, out)
	o := sinks.Outcome{Verdict: sinks.Split, Reason: "the batch has more than 256 MiB"}
	if rows.bytes <= maxStatementBytes || rows.n == 1 {
		o = outcomeOf(s.insert(ctx, rows))
	}
	o.Isolated = o.Verdict == sinks.Reject && rows.n == 1
	for i := range out {
		if out[i].Verdict == sinks.Invalid {
			out[i] = o
		}
	}
	return out
}

// insert runs the statement for rows. nil says that it was committed.
func (s *Sink) insert(parent context.Context, rows rows) error {
	if rows.n == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(parent, s.opts.Timeout, errNoAnswer)
	defer cancel()
	err := s.insertOn(ctx, rows)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx) // what followed from it is in other words each time
	}
	return err
}

func (s *Sink) insertOn(ctx context.Context, rows rows) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	closed := s.closed
	if !closed {
		s.wg.Add(1)
	}
	s.mu.Unlock()
	if closed {
		return setup.ErrClosed
	}
	defer s.wg.Done()
	select {
	case s.slots <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-s.slots }()
	c, err := s.take(ctx)
	if err != nil {
		return err
	}
	_, err = c.Exec(ctx, s.sql, rows.args...)
	s.give(ctx, c, err)
	return err
}

// take returns a connection that is idle, or a new one.
func (s *Sink) take(ctx context.Context) (*pgx.Conn, error) {
	s.mu.Lock()
	if n := len(s.idle); n > 0 {
		c := s.idle[n-1]
		s.idle = s.idle[:n-1]
		s.mu.Unlock()
		return c, nil
	}
	s.mu.Unlock()
	config, err := s.login()
	if err != nil {
		return nil, err
	}
	return pgx.ConnectConfig(ctx, config)
}

// give takes a connection back after err. One that the server refused the rows on is as good as before; after any other failure
// it is ended, with all that are idle, as they are likely to be of a server that is gone, or of one that may not be written any more.
func (s *Sink) give(ctx context.Context, c *pgx.Conn, err error) {
	var ended []*pgx.Conn
	s.mu.Lock()
	if s.closed || c.IsClosed() || err != nil && outcomeOf(err).Verdict != sinks.Reject {
		ended = append(s.idle, c)
		s.idle = nil
	} else {
		s.idle = append(s.idle, c)
	}
	s.mu.Unlock()
	for _, c := range ended {
		s.end(ctx, c)
	}
}

// end closes a connection. What is left to do of it Close waits for.
func (s *Sink) end(ctx context.Context, c *pgx.Conn) {
	s.wg.Go(func() { // under a statement or in Close
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), goodbye)
		defer cancel()
		_ = c.Close(ctx) // it is given up: what it says no longer matters
		<-c.PgConn().CleanupDone()
	})
}
