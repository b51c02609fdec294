package drain

import (
	"sync"
	"time"

	"github.com/weir-agent/weir/wab"
	"github.com/weir-agent/weir/wab/record"
)

// State says what the drain of a shard does now.
type State uint8

// The states of a shard, from the least to the most troubled.
const (
	// Idle: nothing is there to deliver.
	Idle State = iota
	// Delivering: batches are on their way.
	Delivering
	// Retrying: the last attempt failed, or part of a batch waits to be sent again.
	Retrying
	// Held: the endpoint is at fault (credentials, address, redirect); it is tried at the slow rate.
	Held
	// DeadLetterFull: a refused record finds no room in the dead-letter store.
	DeadLetterFull
	// Paused: by Pause.
	Paused
	// Failed: the loop is down after a panic, the log is closed, or all calls of the sink hang.
	Failed
)

// String returns the state as status and metrics name it.
func (s State) String() string {
	switch s {
	case Idle:
		return "idle"
	case Delivering:
		return "delivering"
	case Retrying:
		return "retrying"
	case Held:
		return "held"
	case DeadLetterFull:
		return "deadletter_full"
	case Paused:
		return "paused"
	}
	return "failed"
}

// Stats is the drain at one instant.
type Stats struct {
	Paused bool
	// Shards are in the order given to New.
	Shards []ShardStats
	// Requeued is the delivery of letters that were requeued; its Shard is -1. What it delivers was counted as
	// dead-lettered before.
	Requeued ShardStats
}

// ShardStats is one shard. In each: what was read since the start = Delivered + DeadLettered + Expired + InFlightRecords.
type ShardStats struct {
	Shard int
	State State
	// Confirmed is the cursor; Read is behind the last batch that was taken up.
	Confirmed wab.Position
	Read      wab.Position
	// InFlight counts batches between the two, InFlightRecords the records of them that are not done with.
	InFlight        int
	InFlightRecords int
	// Oldest is when the first record of the oldest batch in flight was appended; zero where none is in flight.
	Oldest time.Time
	// LastError is the last failure in words, at most some hundred bytes; it stays after the trouble has passed.
	LastError   string
	LastErrorAt time.Time
	// NextAttempt is when something is tried again; zero where nothing waits for a time.
	NextAttempt time.Time

	// Totals since New.
	Delivered    uint64 // records
	Retried      uint64 // records, each time that one has to be sent again
	DeadLettered uint64 // records
	Expired      uint64 // records
	Batches      uint64 // done with
	Attempts     uint64 // calls of Deliver
	SinkPanics   uint64
	LoopPanics   uint64
	BadOutcomes  uint64 // calls whose outcomes did not account for each record
	Timeouts     uint64 // calls that did not return by their deadline and grace
	// Hung is how many of these have not returned yet.
	Hung int
	// Latency counts delivered records by the time from append to delivery.
	Latency []LatencyBucket
	// LatencySum is the sum of these times.
	LatencySum time.Duration
}

// LatencyBucket counts the records that took at most Upto, and longer than the bucket before (0: longer than all bounds).
type LatencyBucket struct {
	Upto  time.Duration
	Count uint64
}

// latencyBounds returns the upper bounds of the latency buckets.
func latencyBounds() [latencyBuckets - 1]time.Duration {
	return [...]time.Duration{
		time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond,
		250 * time.Millisecond, 500 * time.Millisecond, time.Second, 5 * time.Second, 30 * time.Second, 5 * time.Minute,
		time.Hour, 24 * time.Hour,
	}
}

const latencyBuckets = 15

// maxErrorBytes bounds LastError.
const maxErrorBytes = 512

// meter is what the outside sees of a lane. It is safe for use by several goroutines.
type meter struct {
	mu     sync.Mutex
	stats  ShardStats
	bounds [latencyBuckets - 1]time.Duration
	counts [latencyBuckets]uint64
}

// update changes the stats.
func (m *meter) update(f func(s *ShardStats)) {
	m.mu.Lock()
	f(&m.stats)
	m.mu.Unlock()
}

// trouble notes a failure in words.
func (m *meter) trouble(text string, now time.Time) {
	if len(text) > maxErrorBytes {
		text = text[:maxErrorBytes]
	}
	m.update(func(s *ShardStats) { s.LastError, s.LastErrorAt = text, now })
}

// delivered counts records, all delivered now.
func (m *meter) delivered(records []record.Record, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stats.Delivered += uint64(len(records))
	m.stats.InFlightRecords -= len(records)
	var last time.Time
	var took time.Duration
	bucket := 0
	for i := range records {
		if at := records[i].Appended; i == 0 || at != last { // records of one group share the time
			last = at
			took = max(now.Sub(at), 0)
			for bucket = 0; bucket < len(m.bounds) && took > m.bounds[bucket]; bucket++ {
			}
		}
		m.counts[bucket]++
		m.stats.LatencySum += took
	}
}

func (m *meter) snapshot() ShardStats {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.stats
	s.Latency = make([]LatencyBucket, latencyBuckets)
	for i, n := range m.counts {
		s.Latency[i].Count = n
		if i < len(m.bounds) {
			s.Latency[i].Upto = m.bounds[i]
		}
	}
	return s
}
