package daemon

import (
	"context"
	"errors"
	"sync"

	"github.com/weir-agent/weir/drain"
	"github.com/weir-agent/weir/drain/deadletter"
	"github.com/weir-agent/weir/sinks"
	"github.com/weir-agent/weir/wab"
)

// delivery is the drain and its sink. Both can be replaced while producers go on pushing: the drain stops in order, so that
// its cursor stands where it ended, and the next one goes on from there. What was under way and did not end in time is
// sent again, as after a restart.
type delivery struct {
	shards []*wab.Shard
	dead   *deadletter.Store

	mu     sync.Mutex
	drain  *drain.Drain // guarded by mu
	sink   sinks.Sink   // guarded by mu
	paused bool         // guarded by mu
	before drain.Stats  // totals of the drains that were replaced; guarded by mu

	// Of the goroutine that runs the daemon:
	cancel context.CancelFunc
	ended  chan error // of the drain that runs
}

func newDelivery(shards []*wab.Shard, dead *deadletter.Store, sink sinks.Sink, opts drain.Options) (*delivery, error) {
	d, err := drain.New(shards, sink, dead, opts)
	if err != nil {
		return nil, err
	}
	return &delivery{shards: shards, dead: dead, drain: d, sink: sink, ended: make(chan error, 1)}, nil
}

// start runs the drain until stop.
func (v *delivery) start() {
	v.mu.Lock()
	d := v.drain
	v.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	v.cancel = cancel
	go func() { v.ended <- d.Run(ctx) }()
}

// replace stops the drain and starts one with other options that delivers to sink, which is the delivery's from then on; the
// sink it had is the caller's to close. After an error nothing has changed, but after errDrainLost no drain runs any more.
func (v *delivery) replace(sink sinks.Sink, opts drain.Options) error {
	if _, err := drain.New(v.shards, sink, v.dead, opts); err != nil {
		return err // before anything stops
	}
	v.cancel()
	if err := <-v.ended; err != nil {
		return errors.Join(errDrainLost, err)
	}
	next, err := drain.New(v.shards, sink, v.dead, opts)
	if err != nil {
		return errors.Join(errDrainLost, err)
	}
	v.mu.Lock()
	v.before = total(v.before, v.drain.Stats())
	v.drain, v.sink = next, sink
	if v.paused {
		next.Pause()
	}
	v.mu.Unlock()
	v.start()
	return nil
}

// errDrainLost: there is no drain any more; the daemon has to end.
var errDrainLost = errors.New("the delivery ended")

func (v *delivery) pause(yes bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.paused = yes
	if yes {
		v.drain.Pause()
	} else {
		v.drain.Resume()
	}
}

// stats returns what the drain says, with the totals since the start of the daemon.
func (v *delivery) stats() drain.Stats {
	v.mu.Lock()
	defer v.mu.Unlock()
	return total(v.before, v.drain.Stats())
}

// identity is the fingerprint by which the other end knows the sink; empty for a sink that proves none.
func (v *delivery) identity() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	if s, ok := v.sink.(interface{ Identity() string }); ok {
		return s.Identity()
	}
	return ""
}

func (v *delivery) close() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.sink.Close()
}

// total adds the totals of drains that were replaced to what the present one says.
func total(before, now drain.Stats) drain.Stats {
	for i := range before.Shards {
		addTotals(&now.Shards[i], before.Shards[i])
	}
	addTotals(&now.Requeued, before.Requeued)
	return now
}

func addTotals(s *drain.ShardStats, b drain.ShardStats) {
	s.Delivered += b.Delivered
	s.Retried += b.Retried
	s.DeadLettered += b.DeadLettered
	s.Expired += b.Expired
	s.Batches += b.Batches
	s.Attempts += b.Attempts
	s.SinkPanics += b.SinkPanics
	s.LoopPanics += b.LoopPanics
	s.BadOutcomes += b.BadOutcomes
	s.Timeouts += b.Timeouts
	s.LatencySum += b.LatencySum
	for i := range b.Latency {
		s.Latency[i].Count += b.Latency[i].Count
	}
	if s.LastError == "" {
		s.LastError, s.LastErrorAt = b.LastError, b.LastErrorAt
	}
}
