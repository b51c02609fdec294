package weir

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/weir-agent/weir/ingest/frame"
)

// ProducerOptions configures a Producer. Only Path has no default.
type ProducerOptions struct {
	// Path is the daemon's socket.
	Path string
	// Durability of all records; default Durable.
	Durability Durability
	// BatchRecords and BatchBytes bound one batch; defaults 512 records, at most
	// 2048, and 256 KiB. A record above BatchBytes travels alone. With 1 record a
	// batch the records go as plain pushes.
	BatchRecords int
	BatchBytes   int
	// Linger is how long the first record of a batch waits for others; default 5 ms.
	Linger time.Duration
	// InFlight is how many batches may be unanswered; default 4.
	InFlight int
	// Queue is how many batches there may be in all before Send waits; default 16,
	// at least InFlight.
	Queue int
	// Timeout is how long the daemon may leave a batch unanswered, or unread;
	// default 30 s.
	Timeout time.Duration
	// MinBackoff and MaxBackoff bound the pause before another try to connect;
	// defaults 50 ms, doubling to 5 s, each cut by a random part.
	MinBackoff time.Duration
	MaxBackoff time.Duration
	// Jitter returns a number in [0, 1); default math/rand/v2.
	Jitter func() float64
}

func (o ProducerOptions) fill() ProducerOptions {
	set(&o.Durability, Durable)
	set(&o.BatchRecords, 512)
	set(&o.BatchBytes, 256<<10)
	set(&o.Linger, 5*time.Millisecond)
	set(&o.InFlight, 4)
	set(&o.Queue, 16)
	set(&o.Timeout, defaultTimeout)
	set(&o.MinBackoff, 50*time.Millisecond)
	set(&o.MaxBackoff, 5*time.Second)
	o.BatchRecords = min(max(o.BatchRecords, 1), frame.MaxBatchRecords)
	o.BatchBytes = min(max(o.BatchBytes, 1), frame.MaxPayloadBytes/2)
	o.InFlight = max(o.InFlight, 1)
	o.Queue = max(o.Queue, o.InFlight)
	if o.Jitter == nil {
		o.Jitter = rand.Float64
	}
	return o
}

func set[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

// Producer sends records in batches, several of them in flight, and reconnects
// with a growing pause. It is safe for use by several goroutines. Records are sent
// in the order of their Sends, but a batch that has to be taken apart comes later.
//
// Each record that Send took gets exactly one Outcome. After an error of the
// connection every record in flight on it is Unknown, and it is up to the caller
// to send it again. Records that wait for a connection keep waiting.
type Producer struct {
	opts  ProducerOptions
	slots chan struct{} // one for each batch, from its first record to its outcome
	wake  chan struct{} // the sender has something to look at
	life  context.Context
	end   context.CancelFunc // cuts everything off
	done  chan struct{}      // the sender is gone

	mu      sync.Mutex
	current *batch   // takes records
	queue   []*batch // complete
	single  bool     // the daemon takes no batches
	most    int      // records a batch; less than BatchRecords once the daemon refused that many
	closed  bool
	open    int           // batches with a slot
	idle    chan struct{} // closed when open becomes zero, if somebody waits
}

// batch is a run of records that travel together.
type batch struct {
	flat   []byte // the payloads, one behind the other
	ends   []int  // of each payload in flat
	report []func(Outcome)
	// parts is how many parts of the batch that Send filled have no outcome yet; they
	// share it, under Producer.mu. The last one gives the slot back.
	parts *int
}

func (b *batch) len() int { return len(b.ends) }

// payload returns record i.
func (b *batch) payload(i int) []byte {
	from := 0
	if i > 0 {
		from = b.ends[i-1]
	}
	return b.flat[from:b.ends[i]]
}

// part returns records from to to as a batch of its own.
func (b *batch) part(from, to int) *batch {
	p := &batch{parts: b.parts}
	for i := from; i < to; i++ {
		p.add(b.payload(i), b.report[i])
	}
	return p
}

func (b *batch) add(payload []byte, report func(Outcome)) {
	b.flat = append(b.flat, payload...)
	b.ends = append(b.ends, len(b.flat))
	b.report = append(b.report, report)
}

// NewProducer returns a producer, which connects when there is a batch to send. It
// must be closed.
func NewProducer(opts ProducerOptions) *Producer {
	opts = opts.fill()
	p := &Producer{
		opts:  opts,
		slots: make(chan struct{}, opts.Queue),
		wake:  make(chan struct{}, 1),
		done:  make(chan struct{}),
		most:  opts.BatchRecords,
	}
	p.life, p.end = context.WithCancel(context.Background())
	go func() {
		defer close(p.done)
		p.run()
	}()
	return p
}

// Send takes a record of 1 byte to 16 MiB less 7 bytes; payload is copied. While
// Queue batches are under way it waits, until ctx ends. With a nil error, report
// is called once, from a goroutine of the producer and in order within
// a batch; it must not wait for the producer. With an error it is never called.
func (p *Producer) Send(ctx context.Context, payload []byte, report func(Outcome)) error {
	if err := checkBatch([][]byte{payload}); err != nil {
		return err
	}
	slot := false
	for {
		taken, err := p.take(payload, report, &slot)
		if err != nil || taken {
			if slot {
				<-p.slots
			}
			return err
		}
		select {
		case p.slots <- struct{}{}:
			slot = true
		case <-ctx.Done():
			return fmt.Errorf("weir: wait for room: %w", ctx.Err())
		case <-p.life.Done():
			return ErrClosed
		}
	}
}

// take puts a record into the current batch, or into a new one if slot says that
// there is one for it, which it uses up then.
func (p *Producer) take(payload []byte, report func(Outcome), slot *bool) (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false, ErrClosed
	}
	if b := p.current; b != nil && len(b.flat)+len(payload) > p.opts.BatchBytes {
		p.seal()
	}
	if p.current == nil {
		if !*slot {
			return false, nil
		}
		*slot = false
		b := &batch{parts: new(1)}
		p.current = b
		p.open++
		time.AfterFunc(p.opts.Linger, func() { p.lingered(b) })
	}
	p.current.add(payload, report)
	if p.current.len() >= p.most || len(p.current.flat) >= p.opts.BatchBytes {
		p.seal()
	}
	return true, nil
}

// lingered seals a batch whose first record has waited long enough.
func (p *Producer) lingered(b *batch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current == b {
		p.seal()
	}
}

// seal completes the current batch. Called with mu held.
func (p *Producer) seal() {
	if p.current == nil {
		return
	}
	p.queue = append(p.queue, p.current)
	p.current = nil
	p.signal()
}

func (p *Producer) signal() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Flush sends what there is without lingering, and waits until every record that was
// taken before has its outcome, or ctx ends.
func (p *Producer) Flush(ctx context.Context) error {
	p.mu.Lock()
	p.seal()
	if p.open == 0 {
		p.mu.Unlock()
		return nil
	}
	if p.idle == nil {
		p.idle = make(chan struct{})
	}
	idle := p.idle
	p.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("weir: flush: %w", ctx.Err())
	}
}

// Close takes no more records, flushes, and ends the connection. If ctx ends before
// that, what has no outcome yet becomes Unknown and the error of ctx is returned.
// Every report was called when Close returns. A second call does the same.
func (p *Producer) Close(ctx context.Context) error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	err := p.Flush(ctx)
	p.end()
	<-p.done
	return err
}

// settled is called after the reports of a batch. With the last part of it the
// slot is given back.
func (p *Producer) settled(b *batch) {
	p.mu.Lock()
	*b.parts--
	last := *b.parts == 0
	if last {
		p.open--
	}
	if p.open == 0 && p.idle != nil {
		close(p.idle)
		p.idle = nil
	}
	p.mu.Unlock()
	if last {
		<-p.slots // its own token is in there
	}
}

// again puts a batch that has to be sent once more, whole or in parts, in front of
// the queue.
func (p *Producer) again(parts ...*batch) {
	p.mu.Lock()
	*parts[0].parts += len(parts) - 1
	p.queue = append(parts, p.queue...)
	p.mu.Unlock()
	p.signal()
}

// all reports one outcome for all records.
func (p *Producer) all(b *batch, o Outcome) {
	for _, report := range b.report {
		report(o)
	}
	p.settled(b)
}
