//go:build !nonats

package natssink

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-agent/weir/sinks"
	"github.com/weir-agent/weir/sinks/setup"
)

// pingInterval is how often a connection is asked whether it lives; two questions without an answer end it.
const pingInterval = 15 * time.Second

// dial is one attempt to connect, which all who wait for it share.
type dial struct {
	done chan struct{} // closed when link or err is set
	link *link
	err  error
}

// over tells that the attempt failed, or that its connection has ended.
func (d *dial) over() bool {
	select {
	case <-d.done:
		return d.err != nil || d.link.lost()
	default:
		return false
	}
}

// connect returns the connection, and makes it where there is none.
func (s *Sink) connect(ctx context.Context) (*link, error) {
	s.mu.Lock()
	if s.ctx.Err() != nil {
		s.mu.Unlock()
		return nil, setup.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		s.mu.Unlock()
		return nil, err
	}
	d := s.current
	if d == nil || d.over() {
		d = &dial{done: make(chan struct{})}
		s.current = d
		s.wg.Go(func() {
			defer close(d.done)
			d.link, d.err = s.open()
		})
	}
	s.mu.Unlock()
	select {
	case <-d.done:
		return d.link, d.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// link is one connection.
type link struct {
	conn   *nats.Conn
	js     jetstream.JetStream
	dialer *dialer
	closed chan struct{} // closed when the connection has ended

	mu    sync.Mutex
	fault error // why the server wants nothing more of it; guarded by mu
}

// open connects to the first server that lets it in. It takes no longer than the time-out at each, and ends with Close.
func (s *Sink) open() (*link, error) {
	login, err := s.opts.login()
	if err != nil {
		return nil, err
	}
	l := &link{dialer: &dialer{ctx: s.ctx, conns: setup.NewConns(s.opts.ConnectTimeout)}, closed: make(chan struct{})}
	// A login that is under way ends with the sink, too; the dialer ends only what it dials.
	defer context.AfterFunc(s.ctx, l.cut)()
	opts := append(login,
		nats.Name("weir"), nats.NoReconnect(), nats.Timeout(s.opts.ConnectTimeout), nats.SetCustomDialer(l.dialer), nats.SkipHostLookup(),
		nats.PingInterval(pingInterval), nats.MaxPingsOutstanding(2), nats.FlusherTimeout(s.opts.AckTimeout),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { l.refused(err) }),
		nats.ClosedHandler(func(*nats.Conn) {
			close(l.closed)
			l.dialer.conns.Close()
		}),
	)
	if s.opts.InboxPrefix != "" {
		opts = append(opts, nats.CustomInboxPrefix(s.opts.InboxPrefix))
	}
	l.conn, err = nats.Connect(s.opts.URL, opts...)
	if err != nil {
		l.dialer.conns.Close()
		if last := l.dialer.lastError(); errors.Is(err, nats.ErrNoServers) && last != nil {
			err = last // which tells more
		}
		return nil, fmt.Errorf("connect: %w", err)
	}
	l.js, err = jetstream.New(l.conn, jetstream.WithPublishAsyncMaxPending(s.opts.MaxPending))
	if err != nil {
		l.conn.Close()
		return nil, err
	}
	return l, nil
}

// refused takes an error that the server sent by itself. One that concerns what is published ends the connection, so that
// nobody waits for acks that do not come.
func (l *link) refused(err error) {
	text := err.Error()
	if errors.Is(err, nats.ErrPermissionViolation) && strings.Contains(text, `"$JS.API.`) {
		return // of the question in ask, which makes do without an answer
	}
	if !errors.Is(err, nats.ErrPermissionViolation) && !refusesLogin(err) {
		return
	}
	l.mu.Lock()
	l.fault = err
	l.mu.Unlock()
	l.cut()
}

// cut ends the connection at once, whatever is under way.
func (l *link) cut() { l.dialer.conns.Close() }

// lost tells whether the connection has ended.
func (l *link) lost() bool {
	select {
	case <-l.closed:
		return true
	default:
		return false
	}
}

// why returns the cause of an error that followed from the end of ctx or of the connection, and err itself otherwise.
func (l *link) why(ctx context.Context, err error) error {
	l.mu.Lock()
	fault := l.fault
	l.mu.Unlock()
	switch {
	case fault != nil:
		return fault
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case l.lost():
		if last := l.conn.LastError(); last != nil {
			return fmt.Errorf("%w: %w", errLost, last)
		}
		return errLost
	}
	return err
}

// await waits for one answer. After the end of ctx or of the connection it takes an answer that is there already.
func (l *link) await(ctx context.Context, f jetstream.PubAckFuture) error {
	acked, failed := f.Ok(), f.Err()
	select {
	case <-acked:
		return nil
	case err := <-failed:
		return err
	case <-l.closed:
	case <-ctx.Done():
	}
	select {
	case <-acked:
		return nil
	case err := <-failed:
		return err
	default:
		return l.why(ctx, errLost)
	}
}

// ask finds out why nobody takes what is published to subject: a stream that is meant to and has no leader now is
// worth another try, the lack of one is for the operator to mend. Where nobody answers that either, as in a cluster that has no leader at
// all or for a user who may not ask, it counts whether a stream has acked before.
func (l *link) ask(ctx context.Context, subject string, ackedBefore bool) sinks.Outcome {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	name, err := l.js.StreamNameBySubject(ctx, subject)
	switch {
	case err == nil:
		return sinks.Outcome{Verdict: sinks.Retry, Reason: sinks.CleanReason("stream " + name + " does not answer now: it may have no leader")}
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return sinks.Outcome{Verdict: sinks.Hold, Reason: sinks.CleanReason("no stream takes the subject " + subject)}
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return sinks.Outcome{Verdict: sinks.Hold, Reason: "the server has no JetStream for this account"}
	}
	o := sinks.Outcome{Verdict: sinks.Hold, Reason: sinks.CleanReason("nobody answers on the subject " + subject + ", nor whether a stream should: " + err.Error())}
	if ackedBefore {
		o.Verdict = sinks.Retry
	}
	return o
}

// dialer makes the connections of one nats.Conn, and remembers why it last could not.
type dialer struct {
	ctx   context.Context // of the sink
	conns *setup.Conns    // it can end them from outside, which nats.Conn cannot while a write blocks

	mu  sync.Mutex
	err error // guarded by mu
}

// Dial implements nats.CustomDialer.
func (d *dialer) Dial(network, address string) (net.Conn, error) {
	conn, err := d.conns.Dial(d.ctx, network, address)
	d.mu.Lock()
	d.err = err
	d.mu.Unlock()
	return conn, err
}

func (d *dialer) lastError() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}
