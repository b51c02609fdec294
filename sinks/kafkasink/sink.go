//go:build !nokafka

package kafkasink

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"strings"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weir-agent/weir/sinks"
	"github.com/weir-agent/weir/sinks/setup"
	"github.com/weir-agent/weir/wab/record"
)

// Built tells whether this build has the sink.
const Built = true

// IDHeader is the header that has the record's id, "sha256:" and 64 hexadecimal digits.
const IDHeader = "weir-record-id"

// maxOverheadBytes is what a Kafka record of ours has at most besides its payload and key, alone in its batch.
const maxOverheadBytes = 256

var (
	errNoAck    = errors.New("not every ack came in time")
	errTooLarge = errors.New("the record is larger than sink.kafka.batch_max_bytes")
)

// Sink is the Kafka sink. It is safe for use by several goroutines.
type Sink struct {
	opts Options
	host string
	ctx  context.Context // ends with Close
	stop context.CancelFunc

	mu      sync.Mutex
	current *link // the newest; guarded by mu
}

var _ sinks.Sink = (*Sink)(nil)

// New checks o and the files that it names, and returns the sink. No connection is made. Every fault of o is in the error,
// each named by its configuration key.
func New(o Options) (*Sink, error) {
	o, err := resolve(o)
	if err != nil {
		return nil, err
	}
	if err := o.login(); err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("sink.kafka: the name of this machine: %w", err)
	}
	s := &Sink{opts: o, host: hostToken(host)}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s, nil
}

// hostToken returns a machine's name as a part of a topic's.
func hostToken(name string) string {
	return strings.Map(func(r rune) rune {
		if badInTopic(r) {
			return '_'
		}
		return r
	}, name)
}

// Close ends the client; a Deliver that is under way then returns Retry. It may be called again.
func (s *Sink) Close() error {
	s.mu.Lock()
	s.stop() // no client is made after this
	l := s.current
	s.mu.Unlock()
	if l != nil {
		l.cut()
	}
	return nil
}

// Deliver produces the records of b and waits for their acks. See sinks.Sink.
func (s *Sink) Deliver(ctx context.Context, b sinks.Batch) []sinks.Outcome {
	if len(b.Records) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.opts.AckTimeout, errNoAck)
	defer cancel()
	l, err := s.connect(ctx)
	if err != nil {
		return sinks.Same(len(b.Records), outcomeOf(err, s.opts.Key != ""))
	}
	out := s.attempt(ctx, l, b)
	if v := out[0].Verdict; len(out) == 1 && !out[0].Isolated && (v == sinks.Split || v == sinks.Reject) {
		return s.alone(ctx, b)
	}
	return out
}

// alone delivers one record by a client of its own: what the broker refused may have been a record of another batch in the same
// request.
func (s *Sink) alone(ctx context.Context, b sinks.Batch) []sinks.Outcome {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	l, err := s.open()
	if err != nil {
		return sinks.Same(1, outcomeOf(err, s.opts.Key != ""))
	}
	defer l.cut()
	out := s.attempt(ctx, l, b)
	if out[0].Verdict == sinks.Split {
		out[0].Verdict = sinks.Reject
	}
	out[0].Isolated = out[0].Verdict == sinks.Reject
	return out
}

// connect returns the client that all batches share, and makes it where there is none.
func (s *Sink) connect(ctx context.Context) (*link, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return nil, setup.ErrClosed
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if s.current == nil || s.current.over() {
		l, err := s.open()
		if err != nil {
			return nil, err
		}
		s.current = l
	}
	return s.current, nil
}

// attempt produces the records of b by l. After the end of ctx it is not known what is under way, and the client may be what is stuck:
// it is given up, with all that it has buffered.
func (s *Sink) attempt(ctx context.Context, l *link, b sinks.Batch) []sinks.Outcome {
	keep := context.AfterFunc(ctx, l.cut)
	defer func() {
		if !keep() {
			<-l.gone
		}
	}()
	topic, keyed := expand(s.opts.Topic, b.Shard, s.host, ""), s.opts.Key != ""
	if err := l.find(ctx, topic); err != nil {
		return sinks.Same(len(b.Records), outcomeOf(l.why(ctx, err), keyed))
	}
	a := newAnswers(ctx, len(b.Records))
	place := s.placeOf(b.Shard)
	for i := range b.Records {
		if err := ctx.Err(); err != nil {
			a.set(i, err)
			continue
		}
		r := s.recordOf(topic, place, b.Shard, &b.Records[i])
		if len(r.Key)+len(r.Value)+maxOverheadBytes > s.opts.BatchMaxBytes {
			a.set(i, errTooLarge)
			continue
		}
		l.client.Produce(ctx, r, func(_ *kgo.Record, err error) { a.set(i, err) })
	}
	select {
	case <-a.all:
	case <-l.gone: // it answers no more for what came after its end
	}
	return s.judge(ctx, l, topic, a.take())
}

// judge returns the outcomes of errs, and renews what the client must learn anew.
func (s *Sink) judge(ctx context.Context, l *link, topic string, errs []error) []sinks.Outcome {
	out := make([]sinks.Outcome, len(errs))
	forget, cut := false, false
	for i, err := range errs {
		if errors.Is(err, errTooLarge) {
			out[i] = sinks.Outcome{Verdict: sinks.Reject, Isolated: true, Reason: err.Error()}
			continue
		}
		if err != nil {
			err = l.why(ctx, err)
			forget = forget || ofTopic(err)
			cut = cut || ofProducer(err)
		}
		out[i] = outcomeOf(err, s.opts.Key != "")
	}
	switch {
	case cut:
		l.cut()
	case forget:
		l.forget(topic)
	}
	return out
}

// placeOf returns the number that chooses the partition of a shard's records.
func (s *Sink) placeOf(shard int) int32 {
	h := fnv.New32a()
	fmt.Fprintf(h, "%s/%d", s.host, shard)
	return int32(h.Sum32() >> 1)
}

// recordOf returns r as Kafka has it. It shares the payload. Its partition is a number that the partitioner takes modulo the
// partitions that there are.
func (s *Sink) recordOf(topic string, place int32, shard int, r *record.Record) *kgo.Record {
	id := r.ID.String()
	k := &kgo.Record{Topic: topic, Value: r.Payload, Headers: []kgo.RecordHeader{{Key: IDHeader, Value: []byte(id)}}, Partition: place}
	if s.opts.Partition == PartitionID {
		k.Partition = int32(r.ID[0])<<16 | int32(r.ID[1])<<8 | int32(r.ID[2])
	}
	if s.opts.Key != "" {
		k.Key = []byte(expand(s.opts.Key, shard, s.host, id))
	}
	return k
}

// answers gathers what became of each record of a batch.
type answers struct {
	ctx context.Context // of the batch
	all chan struct{}   // closed when each has its answer

	mu   sync.Mutex
	errs []error // errGivenUp where there is no answer yet; guarded by mu; nil once taken
	left int     // guarded by mu
}

func newAnswers(ctx context.Context, n int) *answers {
	a := &answers{ctx: ctx, all: make(chan struct{}), errs: make([]error, n), left: n}
	for i := range a.errs {
		a.errs[i] = errGivenUp
	}
	return a
}

// set books the answer for record i, once each; nil for an ack, which is not believed after the end of the context. After take it
// counts for nothing.
func (a *answers) set(i int, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.errs == nil {
		return
	}
	if err == nil {
		err = a.ctx.Err()
	}
	a.errs[i] = err
	if a.left--; a.left == 0 {
		close(a.all)
	}
}

// take returns the answers so far.
func (a *answers) take() []error {
	a.mu.Lock()
	defer a.mu.Unlock()
	errs := a.errs
	a.errs = nil
	return errs
}
