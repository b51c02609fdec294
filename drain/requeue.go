package drain

import (
	"context"
	"errors"
	"iter"
	"sync/atomic"

	"github.com/weir-agent/weir/drain/deadletter"
	"github.com/weir-agent/weir/wab"
	"github.com/weir-agent/weir/wab/record"
)

// letterOrigin is the dead letters that were requeued. They stay in the store until they are delivered, so that a death
// in between costs nothing.
type letterOrigin struct {
	dead *deadletter.Store
	opts *Options
	// done counts the batches that are done with, in all; more is told when it grows.
	done atomic.Uint64
	more chan struct{} // capacity 1
}

func newLetterOrigin(dead *deadletter.Store, opts *Options) *letterOrigin {
	return &letterOrigin{dead: dead, opts: opts, more: make(chan struct{}, 1)}
}

func (o *letterOrigin) open() feed { return &letterFeed{origin: o, given: o.done.Load()} }

// confirm counts: the end of a batch of letters is its number.
func (o *letterOrigin) confirm(end wab.Position, _ []wab.Position) {
	o.done.Store(max(o.done.Load(), end.Index))
	select {
	case o.more <- struct{}{}:
	default:
	}
}

func (o *letterOrigin) mark() error { return nil }

func (o *letterOrigin) bury(ctx context.Context, letters []deadletter.Letter) error {
	return o.dead.Refused(ctx, letters...)
}

func (o *letterOrigin) settle(ctx context.Context, records []record.Record) error {
	ids := make([]record.ID, len(records))
	for i := range records {
		ids[i] = records[i].ID
	}
	return o.dead.Delivered(ctx, ids...)
}

func (o *letterOrigin) settles() bool { return true }

// letterFeed goes over the requeued letters, again and again: one pass begins when all of the one before is
// done with, so that no letter is in flight twice.
type letterFeed struct {
	origin *letterOrigin
	given  uint64 // batches
	seen   uint64 // version of the requeues that the last pass covers

	pull func() (deadletter.Letter, error, bool) // of the pass that goes on
	stop func()
	over *deadletter.Letter // read, but not of the batch before it
}

func (f *letterFeed) close() error {
	if f.stop != nil {
		f.stop()
	}
	return nil
}

func (f *letterFeed) next(ctx context.Context) (batch, error) {
	for {
		if f.pull == nil {
			if err := f.begin(ctx); err != nil {
				return batch{}, err
			}
		}
		b, err := f.cut()
		if len(b.records) > 0 {
			f.given++
			b.end = wab.Position{Index: f.given}
			return b, nil
		}
		if err != nil {
			return batch{}, err
		}
	}
}

// begin waits for requeued letters that no pass has covered, and begins one.
func (f *letterFeed) begin(ctx context.Context) error {
	for f.origin.done.Load() < f.given {
		select {
		case <-f.origin.more:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	seen, err := f.origin.dead.WaitRequeued(ctx, f.seen)
	if errors.Is(err, deadletter.ErrClosed) {
		return wab.ErrClosed
	}
	if err != nil {
		return err
	}
	f.seen = seen
	f.pull, f.stop = iter.Pull2(f.origin.dead.Requeued())
	return nil
}

// cut returns the next batch of the pass, of letters of one shard. No records: the pass is at its end, or met a letter
// that cannot be read, which stays in the store.
func (f *letterFeed) cut() (batch, error) {
	var b batch
	size := 0
	for len(b.records) < f.origin.opts.BatchRecords {
		l, err := f.letter()
		if err != nil || l == nil {
			return b, err
		}
		n := len(b.records)
		if n > 0 && (l.Shard != b.shard || size+len(l.Payload) > f.origin.opts.BatchBytes) {
			f.over = l
			return b, nil
		}
		b.shard = l.Shard
		b.records = append(b.records, l.Record)
		size += len(l.Payload)
	}
	return b, nil
}

// letter returns the next letter of the pass; nil at its end.
func (f *letterFeed) letter() (*deadletter.Letter, error) {
	if l := f.over; l != nil {
		f.over = nil
		return l, nil
	}
	l, err, ok := f.pull()
	if !ok {
		f.stop()
		f.pull, f.stop = nil, nil
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &l, nil
}
