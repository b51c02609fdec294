package drain

import (
	"context"
	"time"

	"github.com/weir-agent/weir/drain/deadletter"
	"github.com/weir-agent/weir/sinks"
	"github.com/weir-agent/weir/wab"
	"github.com/weir-agent/weir/wab/record"
)

// batch is what a feed gives: records, and the position behind them. One without records says only that there
// is nothing before end any more.
type batch struct {
	records []record.Record
	end     wab.Position
	shard   int
	// anew: where it ends depends on when it was cut, so the end must be stored before it is sent.
	anew bool
}

// feed cuts batches. It is used by one goroutine.
type feed interface {
	// next waits for the next batch. An error other than that of ctx or wab.ErrClosed may pass.
	next(ctx context.Context) (batch, error)
	// close frees what the feed holds.
	close() error
}

// origin is where the records of a lane come from, and where it is noted what became of them.
type origin interface {
	// open returns a feed that begins at the first record that is not done with.
	open() feed
	// confirm says that all batches up to end are done with; marks are the ends of those that are in flight.
	confirm(end wab.Position, marks []wab.Position)
	// mark makes what confirm was told last durable.
	mark() error
	// bury makes records that are refused durable as dead letters.
	bury(ctx context.Context, letters []deadletter.Letter) error
	// settle notes records as delivered where confirm alone does not.
	settle(ctx context.Context, records []record.Record) error
	// settles tells whether settle is to be called at all.
	settles() bool
}

// shardOrigin is a shard of the log.
type shardOrigin struct {
	shard  *wab.Shard
	number int
	dead   *deadletter.Store
	opts   *Options
	// old are the ends of batches of an earlier run that have not been taken up again; they stay marks until they are.
	old []wab.Position
}

func (o *shardOrigin) open() feed {
	at, marks := o.shard.Cursor()
	o.old = marks
	return &shardFeed{number: o.number, opts: o.opts, reader: o.shard.NewReader(at), marks: marks, end: at}
}

func (o *shardOrigin) confirm(end wab.Position, marks []wab.Position) {
	last := end
	if len(marks) > 0 {
		last = marks[len(marks)-1]
	}
	for len(o.old) > 0 && !last.Before(o.old[0]) {
		o.old = o.old[1:]
	}
	o.shard.Confirm(end, append(marks, o.old...))
}

func (o *shardOrigin) mark() error { return o.shard.StoreCursor() }

func (o *shardOrigin) bury(ctx context.Context, letters []deadletter.Letter) error {
	return o.dead.Add(ctx, letters...)
}

func (o *shardOrigin) settle(context.Context, []record.Record) error { return nil }
func (o *shardOrigin) settles() bool                                 { return false }

// shardFeed reads a shard from the cursor on. The batches up to the last mark are those of an earlier run.
type shardFeed struct {
	number int
	opts   *Options
	reader *wab.Reader
	marks  []wab.Position
	part   []record.Record // of the first of these batches
	end    wab.Position    // of the last batch
	last   int             // records of the last batch

	over *record.Record // read, but too large for the batch before it
}

func (f *shardFeed) close() error { return f.reader.Close() }

func (f *shardFeed) next(ctx context.Context) (batch, error) {
	for {
		b, err := f.cut(ctx)
		if err != nil || len(b.records) > 0 {
			return b, err
		}
		if f.end.Before(b.end) { // only damage
			f.end = b.end
			return b, nil
		}
		if len(f.marks) > 0 {
			continue
		}
		if err := f.reader.Wait(ctx); err != nil {
			return batch{}, err
		}
	}
}

// cut returns the records that make the next batch, none where there are none now.
func (f *shardFeed) cut(ctx context.Context) (batch, error) {
	b := batch{shard: f.number, end: f.reader.Position()}
	if len(f.marks) > 0 {
		var err error
		if f.part, err = f.reader.Next(f.part, maxBatchRecords, maxBatchBytes, f.marks[0]); err != nil {
			return b, err // what was read stays, so that the batch is whole when the rest comes
		}
		b.records, b.end = f.part, f.reader.Position()
		f.part, f.marks = nil, f.marks[1:]
		return f.done(b), nil
	}
	size := 0
	// Batches of a backlog are alike: room for one as large as the last saves growing it.
	b.records = make([]record.Record, 0, min(f.last+f.last/4, f.opts.BatchRecords))
	if f.over != nil {
		b.records, size = append(b.records, *f.over), len(f.over.Payload)
		f.over = nil
	}
	err := f.fill(&b, &size)
	if len(b.records) == 0 {
		return b, err
	}
	if !f.room(&b, size) {
		return f.done(b), nil
	}
	if err != nil { // it comes again, with the next batch
		b.anew = true
		return f.done(b), nil
	}
	return f.linger(ctx, b, size)
}

// done makes b the last batch.
func (f *shardFeed) done(b batch) batch {
	if len(b.records) > 0 {
		f.end, f.last = b.end, len(b.records)
	}
	return b
}

// room reports whether b is not full.
func (f *shardFeed) room(b *batch, size int) bool {
	return f.over == nil && len(b.records) < f.opts.BatchRecords && size < f.opts.BatchBytes
}

// fill reads what is committed now into b, up to its bounds. A record that is over them is
// kept for the next batch, so that what is in a full batch does not depend on when it was read.
func (f *shardFeed) fill(b *batch, size *int) error {
	for f.room(b, *size) {
		had, from := len(b.records), f.reader.Position()
		var err error
		b.records, err = f.reader.Next(b.records, f.opts.BatchRecords-had, f.opts.BatchBytes-*size, wab.Position{})
		for i := had; i < len(b.records); i++ {
			*size += len(b.records[i].Payload)
		}
		if n := len(b.records); had > 0 && n > had && *size > f.opts.BatchBytes {
			// Next returns one record at least: it is the only one, and does not belong here.
			last := b.records[n-1]
			*size -= len(last.Payload)
			f.over = &last
			b.records, b.end = b.records[:n-1], from
			return err
		}
		b.end = f.reader.Position()
		if err != nil || len(b.records) == had {
			return err
		}
	}
	return nil
}

// linger waits for more records until b is full or its first record is old enough. The age counts from the
// append of the first record, whatever comes after it.
func (f *shardFeed) linger(ctx context.Context, b batch, size int) (batch, error) {
	age := min(max(time.Since(b.records[0].Appended), 0), f.opts.Linger)
	due, cancel := context.WithTimeout(ctx, f.opts.Linger-age)
	defer cancel()
	for due.Err() == nil && f.room(&b, size) {
		if err := f.reader.Wait(due); err != nil {
			break
		}
		pause(due, min(f.opts.Linger/lookups, maxLookup))
		if err := f.fill(&b, &size); err != nil {
			break // it comes again, with the next batch
		}
	}
	b.anew = f.room(&b, size)
	return f.done(b), ctx.Err()
}

const (
	// lookups is how often a batch that waits looks for what has come meanwhile; each time costs one read.
	lookups = 8
	// maxLookup bounds the time between two looks.
	maxLookup = 25 * time.Millisecond
)

// pause waits for d or the end of ctx.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// letterOf makes the dead letter of a record.
func letterOf(shard int, r record.Record, o sinks.Outcome, attempts int, now time.Time) deadletter.Letter {
	return deadletter.Letter{Record: r, Shard: shard, Reason: o.Reason, Status: o.Status, Attempts: attempts, Died: now}
}
