package drain

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/weir-agent/weir/drain/deadletter"
	"github.com/weir-agent/weir/sinks"
	"github.com/weir-agent/weir/wab"
)

// Drain delivers the records of some shards, and the letters that were requeued, to one sink. Its methods are safe
// for use by several goroutines.
type Drain struct {
	opts   Options
	sink   sinks.Sink
	lanes  []*lane // the shards', then that of the requeued letters
	pace   pacer
	paused atomic.Bool
	ran    atomic.Bool
}

// requeueLane is the number of the lane of requeued letters.
const requeueLane = -1

// New checks opts and returns a drain that does nothing until Run. The shards, the sink and the store stay the caller's to
// close, after Run has returned.
func New(shards []*wab.Shard, sink sinks.Sink, dead *deadletter.Store, opts Options) (*Drain, error) {
	opts, err := opts.fill()
	if err != nil {
		return nil, err
	}
	d := &Drain{opts: opts, sink: sink, pace: pacer{rate: float64(opts.RateLimit)}}
	for _, s := range shards {
		st := s.Stats()
		o := &shardOrigin{shard: s, number: st.Shard, dead: dead, opts: &d.opts}
		d.add(&lane{origin: o, number: st.Shard, ages: true, meter: meter{stats: ShardStats{Confirmed: st.Confirmed, Read: st.Confirmed}}})
	}
	d.add(&lane{origin: newLetterOrigin(dead, &d.opts), number: requeueLane})
	return d, nil
}

func (d *Drain) add(l *lane) {
	l.drain, l.wake = d, make(chan struct{}, 1)
	l.meter.stats.Shard, l.meter.bounds = l.number, latencyBounds()
	d.lanes = append(d.lanes, l)
}

var errRanBefore = errors.New("drain: Run was called before")

// Run delivers until ctx ends, and then returns once every call of the sink has ended, or Options.StopTimeout
// has passed. The cursor of each shard then stands where its delivery ended. It returns nil after the end of ctx; an error
// where a log was closed under it. It can be called once.
func (d *Drain) Run(ctx context.Context) error {
	if d.ran.Swap(true) {
		return errRanBefore
	}
	var wg sync.WaitGroup
	errs := make([]error, len(d.lanes))
	for i, l := range d.lanes {
		wg.Go(func() {
			if err := l.run(ctx); err != nil {
				errs[i] = fmt.Errorf("drain: shard %d: %w", l.number, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Pause lets no new attempt start; those under way end by themselves.
func (d *Drain) Pause() { d.setPaused(true) }

// Resume undoes Pause.
func (d *Drain) Resume() { d.setPaused(false) }

func (d *Drain) setPaused(to bool) {
	d.paused.Store(to)
	for _, l := range d.lanes {
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
}

// Stats returns what there is to know of the drain now. It costs no I/O.
func (d *Drain) Stats() Stats {
	st := Stats{Paused: d.paused.Load()}
	for _, l := range d.lanes {
		if l.number == requeueLane {
			st.Requeued = l.meter.snapshot()
		} else {
			st.Shards = append(st.Shards, l.meter.snapshot())
		}
	}
	return st
}
