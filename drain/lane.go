package drain

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/weir-agent/weir/drain/deadletter"
	"github.com/weir-agent/weir/sinks"
	"github.com/weir-agent/weir/wab"
	"github.com/weir-agent/weir/wab/record"
)

// lane drains one origin. What it keeps over a panic of its loop is here, the rest in round.
type lane struct {
	drain  *Drain
	origin origin
	number int
	// ages: records expire by MaxAge.
	ages  bool
	meter meter
	wake  chan struct{} // capacity 1: something that is not an event of the round changed
}

// errPanicked is returned by a round that a panic ended.
var errPanicked = errors.New("drain: the loop panicked")

// run drains until ctx ends, or the log is closed. After a panic it starts again from the cursor.
func (l *lane) run(ctx context.Context) error {
	for {
		err := l.round(ctx)
		if ctx.Err() != nil || err == nil {
			return nil
		}
		l.setState(Failed, err.Error())
		if !errors.Is(err, errPanicked) {
			return err
		}
		pause(ctx, l.drain.opts.RestartInterval)
	}
}

// setState tells the observer where the state is another one.
func (l *lane) setState(to State, why string) {
	changed := false
	l.meter.update(func(s *ShardStats) { changed, s.State = s.State != to, to })
	if f := l.drain.opts.Observer.Changed; f != nil && changed {
		f(l.number, to, why)
	}
}

// round runs the loop once, from the cursor on.
func (l *lane) round(ctx context.Context) (err error) {
	sinkCtx, cutSink := context.WithCancel(context.WithoutCancel(ctx))
	feedCtx, stopFeed := context.WithCancel(ctx)
	r := &round{
		lane: l, opts: &l.drain.opts, sinkCtx: sinkCtx, cutSink: cutSink,
		gate:   newGate(&l.drain.opts, time.Now()),
		events: make(chan func()), batches: make(chan batch), gone: make(chan struct{}),
	}
	defer func() {
		if v := recover(); v != nil {
			err = l.panicked(false, v)
		}
		stopFeed()
		cutSink()
		close(r.gone)
		r.part()
		l.meter.update(func(s *ShardStats) {
			s.InFlight, s.InFlightRecords, s.Hung, s.NextAttempt, s.Oldest = 0, 0, 0, time.Time{}, time.Time{}
		})
	}()
	f := l.origin.open()
	r.wg.Go(func() { r.runFeed(feedCtx, f) })
	r.loop(ctx)
	return r.err
}

// panicked books a panic.
func (l *lane) panicked(inSink bool, value any) error {
	stack := debug.Stack()
	l.meter.update(func(s *ShardStats) {
		if inSink {
			s.SinkPanics++
		} else {
			s.LoopPanics++
		}
	})
	if f := l.drain.opts.Observer.Panicked; f != nil {
		f(l.number, inSink, value, stack)
	}
	err := fmt.Errorf("%w: %v", errPanicked, value)
	l.meter.trouble(err.Error(), time.Now())
	return err
}

// round is the state of one run of the loop. All of it belongs to the goroutine of loop, which others reach through
// events.
type round struct {
	lane    *lane
	opts    *Options
	sinkCtx context.Context // ends what is under way
	cutSink context.CancelFunc
	gate    gate
	events  chan func()
	batches chan batch
	gone    chan struct{} // closed when nobody receives events any more
	wg      sync.WaitGroup

	slots    []*slot // in order
	end      wab.Position
	calls    []*call // under way, not given up
	lost     int     // given up, not returned
	jobs     int     // under way
	stopping bool
	stopAt   time.Time // stopping: when calls are cut
	leaveAt  time.Time // stopping: when to leave
	err      error     // of the feed: nothing more comes
}

// call is one attempt that is under way.
type call struct {
	piece  *piece
	begun  time.Time
	cancel context.CancelFunc
	lost   bool
}

// post hands f to the loop; it is dropped where the loop has ended.
func (r *round) post(f func()) {
	select {
	case r.events <- f:
	case <-r.gone:
	}
}

// part waits for the goroutines of the round, for as long as a call that hangs would be waited for.
func (r *round) part() {
	done := make(chan struct{})
	go func() {
		r.wg.Wait()
		close(done)
	}()
	t := time.NewTimer(r.opts.HangGrace)
	defer t.Stop()
	if r.stopping {
		t.Reset(time.Until(r.leaveAt))
	}
	select {
	case <-done:
	case <-t.C:
	}
}

// runFeed hands batches to the loop. It is to be a goroutine of its own.
func (r *round) runFeed(ctx context.Context, f feed) {
	defer func() {
		if v := recover(); v != nil {
			err := r.lane.panicked(false, v)
			r.post(func() { r.err = err })
		}
	}()
	defer f.close() // read only
	ownThread()
	for ctx.Err() == nil {
		b, err := f.next(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, wab.ErrClosed):
			r.post(func() { r.err = err })
			return
		case err != nil:
			r.lane.meter.trouble(err.Error(), time.Now())
			pause(ctx, readPause)
			continue
		}
		select {
		case r.batches <- b:
		case <-ctx.Done():
		}
	}
}

// readPause is the wait after a read of the log that failed.
const readPause = time.Second

func (r *round) loop(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	done := ctx.Done()
	for {
		now := time.Now()
		if r.ended(now) {
			return
		}
		r.giveUp(now)
		next := earliest(r.start(now), r.nextGiveUp())
		r.publish(next)
		if r.stopping {
			next = earliest(next, r.leaveAt)
			if r.stopAt.After(now) {
				next = earliest(next, r.stopAt)
			}
		}
		timer.Stop()
		if !next.IsZero() {
			timer.Reset(time.Until(next))
		}
		var batches chan batch
		if len(r.slots) < r.opts.MaxInFlight && !r.stopping {
			batches = r.batches
		}
		select {
		case f := <-r.events:
			f()
		case b := <-batches:
			r.admit(b)
		case <-timer.C:
		case <-r.lane.wake:
		case <-done:
			done, r.stopping = nil, true
			r.stopAt = time.Now().Add(r.opts.StopTimeout / 10 * 9)
			r.leaveAt = time.Now().Add(r.opts.StopTimeout)
		}
	}
}

// ended reports whether the loop is to end, and cuts the calls when it is time for that.
func (r *round) ended(now time.Time) bool {
	if r.stopping && !now.Before(r.stopAt) {
		r.cutSink()
	}
	quiet := len(r.calls) == 0 && r.jobs == 0
	switch {
	case r.stopping:
		return quiet && r.lost == 0 || !now.Before(r.leaveAt)
	case r.err != nil:
		return quiet && (len(r.slots) == 0 || errors.Is(r.err, errPanicked))
	}
	return false
}

// earliest returns the earlier one of two times, of which the zero time is none.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// admit takes up a batch. Its end is a mark of the cursor before it is first sent.
func (r *round) admit(b batch) {
	s := &slot{end: b.end, shard: b.shard}
	if len(b.records) > 0 {
		p := &piece{slot: s, records: b.records}
		if b.anew {
			p.job = mark
		}
		s.pieces, s.oldest = []*piece{p}, b.records[0].Appended
	}
	r.slots = append(r.slots, s)
	r.lane.meter.update(func(st *ShardStats) {
		st.Read = b.end
		st.InFlightRecords += len(b.records)
	})
	r.sweep()
}

// sweep lets go of the batches that are done with, up to the first that is not, and moves the cursor.
func (r *round) sweep() {
	n := 0
	for n < len(r.slots) && len(r.slots[n].pieces) == 0 {
		r.end = r.slots[n].end
		n++
	}
	r.slots = r.slots[n:]
	marks := make([]wab.Position, len(r.slots))
	for i, s := range r.slots {
		marks[i] = s.end
	}
	r.lane.origin.confirm(r.end, marks)
	r.lane.meter.update(func(s *ShardStats) {
		s.Batches += uint64(n)
		if r.end != (wab.Position{}) {
			s.Confirmed = r.end
		}
	})
}

// start starts what may start now, and returns when it is to be called again; zero: after an event.
func (r *round) start(now time.Time) time.Time {
	if r.stopping {
		return time.Time{}
	}
	next := r.startInOrder(now)
	r.sweepExpired()
	return next
}

func (r *round) startInOrder(now time.Time) (next time.Time) {
	sending := !r.lane.drain.paused.Load() && r.lost < r.opts.MaxInFlight
	for i := 0; i < len(r.slots); i++ {
		for _, p := range r.slots[i].pieces {
			if !p.busy && (p.job != noJob || sending) {
				next = earliest(next, r.try(p, now))
			}
			if r.opts.MaxInFlight == 1 && p.size() > 0 {
				return next
			}
		}
	}
	return next
}

// try starts p if it may start now. It returns when to try again; zero: after an event.
func (r *round) try(p *piece, now time.Time) time.Time {
	if p.due.After(now) {
		return p.due
	}
	if r.lane.ages && r.opts.MaxAge > 0 && p.job != settle {
		if n := p.expire(now.Add(-r.opts.MaxAge)); n > 0 {
			r.lane.meter.update(func(s *ShardStats) {
				s.Expired += uint64(n)
				s.InFlightRecords -= n
			})
		}
		if p.size() == 0 {
			return time.Time{}
		}
	}
	if p.job != noJob {
		r.work(p)
		return time.Time{}
	}
	if len(r.calls) >= r.gate.limit() {
		return time.Time{}
	}
	if at := r.gate.opens(); at.After(now) {
		return at
	}
	if at, ok := r.lane.drain.pace.take(now, len(p.records)); !ok {
		return at
	}
	r.gate.begin(now, len(p.records))
	r.send(p, now)
	return time.Time{}
}

// sweepExpired lets go of the pieces of which everything expired.
func (r *round) sweepExpired() {
	gone := false
	for _, s := range r.slots {
		for _, p := range s.pieces {
			if p.size() == 0 {
				s.swap(p)
				gone = true
			}
		}
	}
	if gone {
		r.sweep()
	}
}

// work starts the job of p.
func (r *round) work(p *piece) {
	p.busy = true
	r.jobs++
	r.wg.Go(func() {
		var err error
		defer func() {
			if v := recover(); v != nil {
				err = r.lane.panicked(false, v)
			}
			r.post(func() { r.worked(p, err) })
		}()
		err = p.perform(r.sinkCtx, r.lane.origin)
	})
}

// worked books the end of a job.
func (r *round) worked(p *piece, err error) {
	r.jobs--
	p.busy = false
	now := time.Now()
	if p.job == mark { // where it failed the log says so, and its records are sent all the same
		p.job = noJob
		return
	}
	if err != nil {
		p.fails++
		p.full = errors.Is(err, deadletter.ErrFull)
		p.due = now.Add(r.opts.backoff(p.fails))
		if p.full {
			p.due = now.Add(fullPause)
		}
		r.lane.meter.trouble(err.Error(), now)
		return
	}
	if n := len(p.graves); p.job == bury {
		r.lane.meter.update(func(s *ShardStats) {
			s.DeadLettered += uint64(n)
			s.InFlightRecords -= n
		})
		if f := r.opts.Observer.DeadLettered; f != nil {
			f(r.lane.number, n, p.graves[0].Reason)
		}
	} else {
		r.lane.meter.delivered(p.records, now)
	}
	p.slot.swap(p)
	r.sweep()
}

// fullPause is how often a refused record is offered to a dead-letter store that is full.
const fullPause = time.Second

// send starts one attempt at p.
func (r *round) send(p *piece, now time.Time) {
	p.busy = true
	p.tries++
	if p.key == (record.ID{}) {
		p.key = record.BatchKey(p.records)
	}
	ctx, cancel := context.WithTimeout(r.sinkCtx, r.opts.SinkTimeout)
	c := &call{piece: p, begun: now, cancel: cancel}
	r.calls = append(r.calls, c)
	r.lane.meter.update(func(s *ShardStats) { s.Attempts++ })
	b := sinks.Batch{Shard: p.slot.shard, Records: p.records, Key: p.key, Attempt: p.tries}
	r.wg.Go(func() {
		var out []sinks.Outcome
		var err error
		defer func() {
			if v := recover(); v != nil {
				err = fmt.Errorf("the sink panicked: %v", v)
				_ = r.lane.panicked(true, v)
			}
			r.post(func() { r.returned(c, out, err) })
		}()
		out = r.lane.drain.sink.Deliver(ctx, b)
	})
}

// returned books the end of a call. One that was given up counts for nothing: its batch is on its way again.
func (r *round) returned(c *call, out []sinks.Outcome, err error) {
	c.cancel()
	if c.lost {
		r.lost--
		return
	}
	r.forget(c)
	p, now := c.piece, time.Now()
	p.busy = false
	if err != nil {
		r.failed(c, err.Error(), now)
		return
	}
	v, ok := sortOutcomes(p, out, now)
	if !ok {
		r.lane.meter.update(func(s *ShardStats) { s.BadOutcomes++ })
		r.failed(c, fmt.Sprintf("the sink gave %d outcomes that do not account for %d records", len(out), len(p.records)), now)
		return
	}
	r.settleGate(c, &v, now)
	if v.worst.Verdict != sinks.Invalid {
		r.lane.meter.trouble(v.worst.Verdict.String()+": "+v.worst.Reason, now)
	}
	settles := r.lane.origin.settles()
	if !settles {
		r.lane.meter.delivered(v.delivered, now)
	}
	if n := len(v.again) + len(v.halve); n > 0 {
		r.lane.meter.update(func(s *ShardStats) { s.Retried += uint64(n) })
	}
	if again := v.replace(p, settles); again != nil && !v.held { // for held ones the gate has the time
		again.due = now.Add(max(r.opts.backoff(again.fails), min(v.wait, r.opts.RetryAfterMax)))
	}
	r.sweep()
}

// settleGate tells the gate what the endpoint answered.
func (r *round) settleGate(c *call, v *verdicts, now time.Time) {
	answered := len(v.delivered) > 0 || len(v.halve) > 0 || len(v.graves) > 0
	if v.overload {
		r.gate.overload(now, c.begun, len(c.piece.records), len(v.delivered))
	}
	switch {
	case v.held:
		r.gate.hold(now, max(r.opts.holdWait(), min(v.wait, r.opts.RetryAfterMax)))
	case v.retried && !answered && !v.overload:
		r.gate.failure(now, c.begun)
	case answered && !v.overload:
		if r.gate.success(now, len(v.delivered)) {
			r.hurry(now)
		}
	}
	if v.wait > 0 {
		r.gate.wait(now, min(v.wait, r.opts.RetryAfterMax))
	}
}

// hurry ends the back-off of what waits, because the endpoint answers again.
func (r *round) hurry(now time.Time) {
	for _, s := range r.slots {
		for _, p := range s.pieces {
			if p.job == noJob && p.due.After(now) {
				p.due = now
			}
		}
	}
}

// failed books an attempt that came to nothing.
func (r *round) failed(c *call, why string, now time.Time) {
	p := c.piece
	p.fails++
	p.due = now.Add(r.opts.backoff(p.fails))
	r.gate.failure(now, c.begun)
	r.lane.meter.trouble(why, now)
	r.lane.meter.update(func(s *ShardStats) { s.Retried += uint64(len(p.records)) })
}

func (r *round) forget(c *call) {
	for i := range r.calls {
		if r.calls[i] == c {
			r.calls = append(r.calls[:i], r.calls[i+1:]...)
			return
		}
	}
}

// nextGiveUp is when giveUp has to be called next; zero: when a call has been started.
func (r *round) nextGiveUp() time.Time {
	if len(r.calls) == 0 {
		return time.Time{}
	}
	return r.calls[0].begun.Add(r.opts.SinkTimeout + r.opts.HangGrace) // they are in the order of their start
}

// giveUp stops waiting for calls that did not return by their deadline and the grace.
func (r *round) giveUp(now time.Time) {
	limit := r.opts.SinkTimeout + r.opts.HangGrace
	for len(r.calls) > 0 && !r.calls[0].begun.Add(limit).After(now) {
		c := r.calls[0]
		c.lost = true
		r.forget(c)
		r.lost++
		c.piece.busy = false
		r.lane.meter.update(func(s *ShardStats) { s.Timeouts++ })
		r.failed(c, fmt.Sprintf("the sink did not return within %v", limit), now)
	}
}

// publish makes the state visible.
func (r *round) publish(next time.Time) {
	state, why := r.state()
	var oldest time.Time
	if len(r.slots) > 0 {
		oldest = r.slots[0].oldest
	}
	r.lane.meter.update(func(s *ShardStats) {
		s.InFlight, s.Hung, s.NextAttempt, s.Oldest = len(r.slots), r.lost, next, oldest
		if why == "" && state > Delivering {
			why = s.LastError
		}
	})
	r.lane.setState(state, why)
}

func (r *round) state() (State, string) {
	retrying, full := false, false
	for _, s := range r.slots {
		for _, p := range s.pieces {
			retrying = retrying || p.fails > 0
			full = full || p.full
		}
	}
	switch {
	case r.err != nil:
		return Failed, r.err.Error()
	case r.lost >= r.opts.MaxInFlight:
		return Failed, fmt.Sprintf("%d calls of the sink do not return", r.lost)
	case r.lane.drain.paused.Load():
		return Paused, ""
	case full:
		return DeadLetterFull, ""
	case r.gate.held:
		return Held, ""
	case retrying:
		return Retrying, ""
	case len(r.slots) > 0:
		return Delivering, ""
	}
	return Idle, ""
}
