//go:build !nonats

package natssink

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-agent/weir/sinks"
	"github.com/weir-agent/weir/wab/record"
)

// Built tells whether this build has the sink.
const Built = true

const (
	// stallWait is how long a publish waits for room under MaxPending before it looks whether it still may.
	stallWait = 100 * time.Millisecond
	// askTimeout bounds the question whether a stream takes the subject.
	askTimeout = 2 * time.Second
)

var (
	errNoAck = errors.New("natssink: not every ack came in time")
	errLost  = errors.New("natssink: the connection was lost")
)

// Sink is the NATS sink. It is safe for use by several goroutines.
type Sink struct {
	opts Options
	host string
	// publishing are the client's options of each message: the drain alone tries again.
	publishing []jetstream.PublishOpt
	ctx        context.Context // ends with Close
	stop       context.CancelFunc
	wg         sync.WaitGroup // dials; raised under mu, and not once ctx has ended
	// acked tells that a stream has acked something since the start.
	acked atomic.Bool

	mu      sync.Mutex
	current *dial // the newest; guarded by mu
}

var _ sinks.Sink = (*Sink)(nil)

// New checks o and the files that it names, and returns the sink. No connection is made. Every fault of o is in the error,
// each named by its configuration key.
func New(o Options) (*Sink, error) {
	o, err := resolve(o)
	if err != nil {
		return nil, err
	}
	if _, err := o.login(); err != nil {
		return nil, err
	}
	host, err := hostToken()
	if err != nil && strings.Contains(o.Subject, "{host}") {
		return nil, fmt.Errorf("sink.nats.subject: the name of this machine: %w", err)
	}
	s := &Sink{opts: o, host: host, publishing: []jetstream.PublishOpt{jetstream.WithRetryAttempts(0), jetstream.WithStallWait(stallWait)}}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s, nil
}

// Close ends the connection; a Deliver that is under way then returns Retry. It may be called again.
func (s *Sink) Close() error {
	s.mu.Lock()
	s.stop() // no dial begins after this
	s.mu.Unlock()
	s.wg.Wait()
	s.mu.Lock()
	d := s.current
	s.mu.Unlock()
	if d != nil && d.link != nil {
		d.link.cut() // a write that blocks would keep the next call waiting
		d.link.conn.Close()
	}
	return nil
}

// Deliver publishes the records of b and waits for their acks. See sinks.Sink.
func (s *Sink) Deliver(ctx context.Context, b sinks.Batch) []sinks.Outcome {
	if len(b.Records) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.opts.AckTimeout, errNoAck)
	defer cancel()
	l, err := s.connect(ctx)
	if err != nil {
		return sinks.Same(len(b.Records), outcomeOf(err))
	}
	// After the end of ctx nothing is known of what is under way, and the connection may be what is stuck: it is given up, which also
	// ends a write that blocks and frees all that waits for an ack.
	defer context.AfterFunc(ctx, l.cut)()
	subject := s.opts.subject(b.Shard, s.host)
	futures := make([]jetstream.PubAckFuture, len(b.Records))
	out := make([]sinks.Outcome, len(b.Records))
	for i := range b.Records {
		if futures[i], err = s.publish(ctx, l, subject, &b.Records[i]); err != nil {
			out[i] = outcomeOf(l.why(ctx, err))
		}
	}
	unanswered := false
	for i, f := range futures {
		if f == nil {
			continue
		}
		err := l.await(ctx, f)
		unanswered = unanswered || errors.Is(err, jetstream.ErrNoStreamResponse)
		if err == nil && !s.acked.Load() {
			s.acked.Store(true)
		}
		out[i] = outcomeOf(err)
	}
	if unanswered {
		o := l.ask(ctx, subject, s.acked.Load())
		for i := range out {
			if out[i].Verdict == sinks.Invalid {
				out[i] = o
			}
		}
	}
	return out
}

// publish sends one record, when there is room for one more that waits for its ack.
func (s *Sink) publish(ctx context.Context, l *link, subject string, r *record.Record) (jetstream.PubAckFuture, error) {
	m := &nats.Msg{Subject: subject, Data: r.Payload, Header: nats.Header{jetstream.MsgIDHeader: {r.ID.String()}}}
	if s.opts.Stream != "" {
		m.Header[jetstream.ExpectedStreamHeader] = []string{s.opts.Stream}
	}
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		f, err := l.js.PublishMsgAsync(m, s.publishing...)
		if !errors.Is(err, jetstream.ErrTooManyStalledMsgs) || l.lost() {
			return f, err
		}
	}
}

// hostToken returns the machine's name as one token of a subject.
func hostToken() (string, error) {
	name, err := os.Hostname()
	if err != nil {
		return "", err
	}
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(" \t\r\n.*>", r) {
			return '_'
		}
		return r
	}, name), nil
}
