package broker

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/weir-agent/weir/weida"
	"github.com/weir-agent/weir/weida/wire"
)

// served is a queue on its path. Events reach the queue from any goroutine under the lock; one goroutine stores its steps, outside of the lock, so that while
// a group is made durable the next one gathers, and does what they come to.
type served struct {
	path       string
	acceptor   *weida.Acceptor
	store      Store
	level      wire.Level
	undertaker *served // the queue for dead letters, or nil
	log        *slog.Logger
	admitting  chan struct{} // a token for each message that is being taken in
	wake       chan struct{} // holds one token while there may be work
	work       sync.WaitGroup

	mu        sync.Mutex
	q         *Queue
	reading   int // bytes of bodies and charges that are being read and not admitted yet
	owed      int // producers whose messages were read whole and that are not answered yet
	waiting   map[Seq][]*admission
	relays    map[Seq]*weida.Reporter // of producers who want to hear of Processed
	consumers map[*weida.Consumer]*consumer
	byID      map[ConsumerID]*consumer
	lastID    ConsumerID
	dead      []Delivery    // that the undertaker has to take
	deadWake  chan struct{} // holds one token while dead may hold something
	arrived   chan struct{} // closed and made anew when messages were taken
	idle      chan struct{} // of a retirement: closed when nothing is out; nil before it
	totals    Totals
	storeErr  error
	// complained is when the log was last told of it, and complaining whether it was not told of the end.
	complained  time.Time
	complaining bool
}

func newServed(qo QueueOptions, o Options) (*served, error) {
	if err := weida.CheckPath(qo.Path); err != nil {
		return nil, err
	}
	if qo.Store == nil {
		qo.Store = new(Memory)
	}
	state, err := qo.Store.Load()
	if err != nil {
		return nil, err
	}
	q, err := NewQueue(qo.Config, state)
	if err != nil {
		return nil, err
	}
	return &served{
		path: qo.Path, store: qo.Store, level: qo.Store.Level(), log: o.Log.With("queue", qo.Path),
		admitting: make(chan struct{}, o.MaxAdmitting), wake: make(chan struct{}, 1), deadWake: make(chan struct{}, 1), arrived: make(chan struct{}),
		q: q, waiting: map[Seq][]*admission{}, relays: map[Seq]*weida.Reporter{}, consumers: map[*weida.Consumer]*consumer{}, byID: map[ConsumerID]*consumer{},
	}, nil
}

// serve serves the queue until ctx ends or its acceptor was closed.
func (s *served) serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer s.work.Wait()
	defer cancel()
	s.work.Go(func() { s.storing(ctx) })
	if s.undertaker != nil {
		s.work.Go(func() { s.bury(ctx) })
	}
	for {
		in, err := s.acceptor.Accept(ctx)
		switch {
		case err != nil:
			return errors.Join(err, s.acceptor.Close())
		case in.Subscription != nil:
			s.subscription(ctx, in.Subscription)
		default:
			s.incoming(ctx, in)
		}
	}
}

// update lets f change the queue, under the lock.
func (s *served) update(f func(q *Queue)) {
	s.mu.Lock()
	f(s.q)
	work := s.q.Work()
	s.settleRetirement()
	s.mu.Unlock()
	if work {
		poke(s.wake)
	}
}

// poke puts the token into a channel that holds one.
func poke(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

// storing stores what changes and does what it comes to, until ctx ends. Then it stores the settlements that are left; nothing is handed out any more.
func (s *served) storing(ctx context.Context) {
	for {
		for s.step() {
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
			s.update(func(q *Queue) { q.EndRetire() })
			for s.step() {
			}
			s.mu.Lock()
			for seq := range s.relays {
				s.relay(seq, false, 0)
			}
			s.mu.Unlock()
			return
		}
	}
}

// step stores one step of the queue and reports whether there was one.
func (s *served) step() bool {
	s.mu.Lock()
	if !s.q.Work() {
		s.mu.Unlock()
		return false
	}
	ops := s.q.Step()
	s.mu.Unlock()
	var errs []error
	if len(ops) > 0 {
		errs = s.store.Append(ops)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(ops) > 0 {
		s.noteStoreError(errs)
	}
	s.apply(s.q.Done(errs))
	s.settleRetirement()
	return true
}

// complainInterval is how often the log says at most that a store fails: one that is full takes and refuses changes by turns.
const complainInterval = 10 * time.Second

// noteStoreError logs that the store fails, and when it takes changes again. Of the errors of a step, one for each change, it keeps the first. The lock is held.
func (s *served) noteStoreError(errs []error) {
	var err error
	if i := slices.IndexFunc(errs, func(err error) bool { return err != nil }); i >= 0 {
		err = errs[i]
	}
	switch {
	case err != nil && s.storeErr == nil && time.Since(s.complained) >= complainInterval:
		s.log.Error("the store does not take changes; messages are rejected until it does", "error", err)
		s.complained, s.complaining = time.Now(), true
	case err == nil && s.storeErr != nil && s.complaining:
		s.log.Info("the store takes changes again")
		s.complaining = false
	}
	s.storeErr = err
}

// apply does what a step came to. It does not wait. The lock is held.
func (s *served) apply(e Effects) {
	for _, seq := range e.Confirmed {
		s.answer(seq, nil)
	}
	for _, r := range e.Refused {
		s.answer(r.Seq, errStore)
	}
	for _, d := range e.Deliver {
		s.enqueue(d)
	}
	if len(e.Dead) > 0 {
		s.dead = append(s.dead, e.Dead...)
		poke(s.deadWake)
	}
	if len(e.Confirmed) > 0 {
		close(s.arrived)
		s.arrived = make(chan struct{})
	}
}

// answer tells those who wait for the outcome of an admission. The lock is held.
func (s *served) answer(seq Seq, err error) {
	for _, a := range s.waiting[seq] {
		s.decide(a, seq, err)
	}
	delete(s.waiting, seq)
}

// retire is Broker.Retire for one queue; ctx is its deadline.
func (s *served) retire(ctx context.Context) Retirement {
	s.update(func(q *Queue) {
		if s.idle == nil {
			s.idle = make(chan struct{})
		}
		q.Retire()
	})
	select {
	case <-s.idle: // it is set once
	case <-ctx.Done():
	}
	var r Retirement
	s.update(func(q *Queue) { r = q.EndRetire() })
	return r
}

// settleRetirement ends the wait of a retirement when nothing is out, nothing is left to do and everybody was answered. The lock is held.
func (s *served) settleRetirement() {
	if s.idle == nil || s.q.Work() || s.q.Stats().Unsettled > 0 || s.owed > 0 {
		return
	}
	select {
	case <-s.idle:
	default:
		close(s.idle)
	}
}
