package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-agent/weir/weida"
)

const (
	// RecordIDExtension is the extension key under which a producer puts the 32-byte record id on a message, and under which the
	// broker hands it on to the consumer.
	RecordIDExtension = 64

	defaultMaxQueues    = 64
	defaultMaxAdmitting = 8192
)

// QueueOptions configures one queue of a broker.
type QueueOptions struct {
	// Path is where producers and consumers find the queue.
	Path string
	// Config bounds it.
	Config Config
	// Store keeps it; nil is a Memory. The broker loads it and appends to it, and the caller closes it once Serve has returned.
	Store Store
	// DeadLetter is the path of the queue of this broker that takes what has come back Config.MaxAttempts times. One is needed if and only if there is such
	// a bound. It is an ordinary queue; one that is full keeps the dead letters where they died until it has room.
	DeadLetter string
}

// Options configures a broker.
type Options struct {
	Queues []QueueOptions
	// MaxQueues bounds them, 64 by default; more fail with weida.ErrLimitExceeded before any path is claimed.
	MaxQueues int
	// MaxAdmitting is how many messages a queue takes in at a time, 8192 by default; one more is rejected. What is read of their bodies counts against the
	// byte bound of the queue as it comes in.
	MaxAdmitting int
	// Log gets what no peer is told; nil discards it.
	Log *slog.Logger
}

// Broker serves queues on a listener (weida-supplement §11): messages come as one-way transfers or as exchanges, which are confirmed with the level that the
// store of the queue has reached, and go to subscribers that have granted credit, until one reports them Processed. Its methods may be called by several
// goroutines at once.
type Broker struct {
	log    *slog.Logger
	queues []*served
	byPath map[string]*served
	retire atomic.Bool // Retire was called: that the listener closes is no fault any more
}

// New loads the stores and claims the paths of the queues on a listener. A broker whose construction failed leaves paths claimed: it is an error of
// the configuration, and not to be tried again on the same listener. It fails with ErrConfig, with weida.ErrLimitExceeded, as a store's Load does, or as
// weida.Listener.QueueAcceptor does, and names the queue.
func New(l *weida.Listener, o Options) (*Broker, error) {
	if o.MaxQueues == 0 {
		o.MaxQueues = defaultMaxQueues
	}
	if len(o.Queues) > o.MaxQueues {
		return nil, fmt.Errorf("%w: %d queues, at most %d", weida.ErrLimitExceeded, len(o.Queues), o.MaxQueues)
	}
	if o.MaxAdmitting <= 0 {
		o.MaxAdmitting = defaultMaxAdmitting
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	b := &Broker{log: o.Log, byPath: make(map[string]*served, len(o.Queues))}
	for _, qo := range o.Queues {
		s, err := newServed(qo, o)
		if err != nil {
			return nil, fmt.Errorf("queue %s: %w", qo.Path, err)
		}
		if b.byPath[qo.Path] != nil {
			return nil, fmt.Errorf("queue %s: %w: the path is there twice", qo.Path, ErrConfig)
		}
		b.queues = append(b.queues, s)
		b.byPath[qo.Path] = s
	}
	for i, qo := range o.Queues {
		if err := b.connect(b.queues[i], qo); err != nil {
			return nil, fmt.Errorf("queue %s: %w", qo.Path, err)
		}
	}
	for _, s := range b.queues {
		var err error
		if s.acceptor, err = l.QueueAcceptor(s.path); err != nil {
			return nil, fmt.Errorf("queue %s: %w", s.path, err)
		}
	}
	return b, nil
}

// connect sets the way of the dead letters of a queue.
func (b *Broker) connect(s *served, o QueueOptions) error {
	switch {
	case o.DeadLetter == "" && o.Config.MaxAttempts == 0:
		return nil
	case o.DeadLetter == "":
		return fmt.Errorf("%w: a bound on attempts needs a queue for dead letters", ErrConfig)
	case o.Config.MaxAttempts == 0:
		return fmt.Errorf("%w: a queue for dead letters needs a bound on attempts", ErrConfig)
	case o.DeadLetter == o.Path || b.byPath[o.DeadLetter] == nil:
		return fmt.Errorf("%w: %q is not another queue of this broker", ErrConfig, o.DeadLetter)
	}
	s.undertaker = b.byPath[o.DeadLetter]
	return nil
}

// Serve serves all queues until ctx ends, and waits for their goroutines. A queue that fails is named in the log and in the error, and the others go on.
func (b *Broker) Serve(ctx context.Context) error {
	errs := make([]error, len(b.queues))
	var wg sync.WaitGroup
	for i, s := range b.queues {
		wg.Go(func() {
			if err := s.serve(ctx); err != nil && ctx.Err() == nil && !b.retire.Load() {
				b.log.Error("a queue has stopped", "queue", s.path, "error", err)
				errs[i] = fmt.Errorf("queue %s: %w", s.path, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// QueueStats is a queue at one instant, and what became of its messages since Serve began. Its Bytes hold what is being taken in, too.
type QueueStats struct {
	Stats
	Totals
	// Admitting is how many messages are being taken in.
	Admitting int
	// StoreError is why the store did not take the last change; nil if it did.
	StoreError error
}

// Totals counts messages since Serve began.
type Totals struct {
	Admitted, AdmittedBytes uint64 // that the store took
	Repeats                 uint64 // confirmed without being taken in again
	Refused                 uint64 // for want of room, by the store, or since the queue is retired
	Delivered               uint64 // written to consumers, every attempt
	Settled                 uint64
	Requeued                uint64 // came back without having been processed
	DeadLettered            uint64 // taken by the queue for dead letters
}

// Paths returns the paths of the queues in the order of the configuration.
func (b *Broker) Paths() []string {
	paths := make([]string, len(b.queues))
	for i, s := range b.queues {
		paths[i] = s.path
	}
	return paths
}

// Stats returns the state of a queue, and whether there is one at the path.
func (b *Broker) Stats(path string) (QueueStats, bool) {
	s := b.byPath[path]
	if s == nil {
		return QueueStats{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.q.Stats()
	st.Bytes += s.reading
	return QueueStats{Stats: st, Totals: s.totals, Admitting: len(s.admitting), StoreError: s.storeErr}, true
}

// Peek returns at most limit messages of a queue behind the seq after, oldest first, as Queue.Peek does, and whether there is a queue at the path.
// The messages are the queue's and not to be changed.
func (b *Broker) Peek(path string, after Seq, limit int) ([]Peeked, bool) {
	s := b.byPath[path]
	if s == nil {
		return nil, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.q.Peek(after, limit), true
}

// Newest is Peek for the newest limit messages.
func (b *Broker) Newest(path string, limit int) ([]Peeked, bool) {
	s := b.byPath[path]
	if s == nil {
		return nil, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.q.Peek(s.q.Newest(limit), limit), true
}

// Arrived waits until the store has taken a message of a queue behind the seq after. It returns false if ctx ended first, or there is no
// queue at the path.
func (b *Broker) Arrived(ctx context.Context, path string, after Seq) bool {
	s := b.byPath[path]
	if s == nil {
		return false
	}
	for {
		s.mu.Lock()
		there, changed := s.q.Newest(0) > after, s.arrived
		s.mu.Unlock()
		if there {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// Retire ends the work of the queues (§11.6): from now on every admission is rejected, deliveries go on under the credit there is until nothing is out and nothing
// can be handed out, or the deadline has passed. What is out then goes back. It returns what became of the deliveries of each queue. After it the listener is to be closed, and
// Serve to be ended: a peer then learns from its link that the broker ends, and not from a path at which there is nothing any more.
func (b *Broker) Retire(deadline time.Duration) map[string]Retirement {
	b.retire.Store(true)
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	results := make([]Retirement, len(b.queues))
	var wg sync.WaitGroup
	for i, s := range b.queues {
		wg.Go(func() { results[i] = s.retire(ctx) })
	}
	wg.Wait()
	byPath := make(map[string]Retirement, len(results))
	for i, s := range b.queues {
		byPath[s.path] = results[i]
	}
	return byPath
}
