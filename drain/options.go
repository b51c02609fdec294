package drain

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/weir-agent/weir/wab"
)

// Options configures a Drain. The zero value is usable; New copies it, fills in the
// defaults and checks it once.
type Options struct {
	// BatchRecords and BatchBytes bound a batch; defaults 1,000 records (at most 1,048,576) and 4 MiB of payload (at
	// most 1 GiB). A batch holds at least one record, whatever its size.
	BatchRecords int
	BatchBytes   int
	// Linger is how long a batch that is not full waits, counted from the append of its first
	// record; default 200 ms, negative for none.
	Linger time.Duration
	// MaxInFlight is how many batches of a shard may be sent and not confirmed, 1 to 64; default 4. 1 is strict order.
	MaxInFlight int
	// MaxAge expires records that were appended longer ago; they are counted and not sent. 0: none expires.
	MaxAge time.Duration
	// RateLimit is how many records a second are sent at most, over all shards; 0: no limit. A
	// batch holds no more than one second's worth.
	RateLimit int

	// SinkTimeout bounds one call of Deliver; default 1 min.
	SinkTimeout time.Duration
	// HangGrace is how long after its deadline a call that has not returned is waited for; default 5 s.
	HangGrace time.Duration
	// StopTimeout bounds how long Run takes to return: calls that are under way get nine tenths of it to
	// end by themselves; default 5 s.
	StopTimeout time.Duration
	// BackoffMin and BackoffMax bound the wait after failed attempts: it is random between 0 and BackoffMin,
	// doubled with each failure in a row up to BackoffMax; defaults 100 ms and 1 min.
	BackoffMin time.Duration
	BackoffMax time.Duration
	// RetryAfterMax bounds what an endpoint may ask for; default 10 min.
	RetryAfterMax time.Duration
	// HoldInterval is how often a held shard tries again, give or take a quarter; default 30 s.
	HoldInterval time.Duration
	// RestartInterval is how long a shard waits after a panic of its loop; default 1 s.
	RestartInterval time.Duration

	// Jitter returns random numbers in [0, 1) and is safe for concurrent use; default math/rand/v2.
	Jitter func() float64
	// Observer is told what happens; see its fields.
	Observer Observer
}

// Observer is a set of functions that the drain calls, each of which may be nil. They must return soon
// and must not call the drain.
type Observer struct {
	// Changed: a shard went into another state. why is the last error where the state is one of trouble.
	Changed func(shard int, to State, why string)
	// DeadLettered: n records of a shard were put into the dead-letter store; reason is that of the first.
	DeadLettered func(shard, n int, reason string)
	// Panicked: the loop of a shard (inSink false) or its sink panicked.
	Panicked func(shard int, inSink bool, value any, stack []byte)
}

const (
	maxBatchRecords = 1 << 20
	maxBatchBytes   = 1 << 30
)

func (o Options) fill() (Options, error) {
	setDefault(&o.BatchRecords, 1000)
	setDefault(&o.BatchBytes, 4<<20)
	setDefault(&o.Linger, 200*time.Millisecond)
	setDefault(&o.MaxInFlight, 4)
	setDefault(&o.SinkTimeout, time.Minute)
	setDefault(&o.HangGrace, 5*time.Second)
	setDefault(&o.StopTimeout, 5*time.Second)
	setDefault(&o.BackoffMin, 100*time.Millisecond)
	setDefault(&o.BackoffMax, max(time.Minute, o.BackoffMin))
	setDefault(&o.RetryAfterMax, 10*time.Minute)
	setDefault(&o.HoldInterval, 30*time.Second)
	setDefault(&o.RestartInterval, time.Second)
	if o.Jitter == nil {
		o.Jitter = rand.Float64
	}
	var faults []error
	fault := func(bad bool, format string, args ...any) {
		if bad {
			faults = append(faults, fmt.Errorf("drain: "+format, args...))
		}
	}
	fault(o.BatchRecords < 1 || o.BatchRecords > maxBatchRecords, "batches of %d records: 1 to %d are possible", o.BatchRecords, maxBatchRecords)
	fault(o.BatchBytes < 1 || o.BatchBytes > maxBatchBytes, "batches of %d bytes: 1 to %d are possible", o.BatchBytes, maxBatchBytes)
	fault(o.MaxInFlight < 1 || o.MaxInFlight > wab.MaxMarks, "%d batches in flight: 1 to %d are possible", o.MaxInFlight, wab.MaxMarks)
	fault(o.MaxAge < 0, "a max_age of %v", o.MaxAge)
	fault(o.RateLimit < 0, "a rate limit of %d", o.RateLimit)
	fault(o.BackoffMax < o.BackoffMin, "the longest back-off, %v, is under the shortest, %v", o.BackoffMax, o.BackoffMin)
	for _, d := range []time.Duration{o.SinkTimeout, o.HangGrace, o.StopTimeout, o.BackoffMin, o.RetryAfterMax, o.HoldInterval, o.RestartInterval} {
		fault(d < 0, "a negative time, %v", d)
	}
	o.Linger = max(o.Linger, 0)
	if o.RateLimit > 0 {
		o.BatchRecords = min(o.BatchRecords, o.RateLimit)
	}
	return o, errors.Join(faults...)
}

func setDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

// backoff returns the wait after the given number of failures in a row, 1 or more: full jitter.
func (o *Options) backoff(failures int) time.Duration {
	limit := o.BackoffMin
	for ; failures > 1 && limit < o.BackoffMax; failures-- {
		limit *= 2
	}
	return time.Duration(o.Jitter() * float64(min(limit, o.BackoffMax)))
}

// holdWait returns the wait of a held shard.
func (o *Options) holdWait() time.Duration {
	return time.Duration((0.75 + o.Jitter()/2) * float64(o.HoldInterval))
}
