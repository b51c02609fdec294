package drain

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-agent/weir/drain/deadletter"
	"github.com/weir-agent/weir/sinks"
	"github.com/weir-agent/weir/wab"
	"github.com/weir-agent/weir/wab/record"
	"github.com/weir-agent/weir/wab/vfs"
	"github.com/weir-agent/weir/wab/vfs/vfstest"
)

// attempt is one call of a scripted sink.
type attempt struct {
	at    time.Time
	batch sinks.Batch
}

func (a attempt) payloads() string {
	var all []string
	for _, r := range a.batch.Records {
		all = append(all, string(r.Payload))
	}
	return fmt.Sprint(all)
}

// script is a sink that answers what a function says.
type script struct {
	answer func(ctx context.Context, b sinks.Batch) []sinks.Outcome

	mu        sync.Mutex
	attempts  []attempt
	delivered map[string]int // payload: times
	order     []string
}

func scripted(answer func(ctx context.Context, b sinks.Batch) []sinks.Outcome) *script {
	return &script{answer: answer, delivered: map[string]int{}}
}

var delivered = sinks.Outcome{Verdict: sinks.Delivered}

func takesAll(_ context.Context, b sinks.Batch) []sinks.Outcome {
	return sinks.Same(len(b.Records), delivered)
}

func (s *script) Close() error { return nil }

func (s *script) Deliver(ctx context.Context, b sinks.Batch) []sinks.Outcome {
	s.mu.Lock()
	s.attempts = append(s.attempts, attempt{at: time.Now(), batch: b})
	s.mu.Unlock()
	out := s.answer(ctx, b)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, o := range out {
		if o.Verdict == sinks.Delivered {
			s.delivered[string(b.Records[i].Payload)]++
			s.order = append(s.order, string(b.Records[i].Payload))
		}
	}
	return out
}

func (s *script) calls() []attempt {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.attempts)
}

// bench is a log with a dead-letter store and a drain, on a disk in memory.
type bench struct {
	t     *testing.T
	disk  vfs.FS
	log   *wab.Log
	dead  *deadletter.Store
	drain *Drain
	stop  context.CancelFunc
	ended chan error
}

func openBench(t *testing.T, logDisk, deadDisk vfs.FS, shards int) *bench {
	t.Helper()
	l, err := wab.Open("", wab.Options{FS: logDisk, Shards: shards, SegmentBytes: 64 << 10})
	if err != nil {
		t.Fatalf("wab.Open: %v", err)
	}
	d, err := deadletter.Open(deadDisk, deadletter.Options{})
	if err != nil {
		t.Fatalf("deadletter.Open: %v", err)
	}
	return &bench{t: t, disk: logDisk, log: l, dead: d}
}

// newBench is a bench on new disks.
func newBench(t *testing.T) *bench {
	t.Helper()
	return openBench(t, vfstest.NewDisk(), vfstest.NewDisk(), 1)
}

// run starts the drain.
func (b *bench) run(sink sinks.Sink, opts Options) {
	b.t.Helper()
	if opts.Jitter == nil {
		opts.Jitter = func() float64 { return 0.5 }
	}
	d, err := New(b.log.Shards(), sink, b.dead, opts)
	if err != nil {
		b.t.Fatalf("New: %v", err)
	}
	ctx, cancel := context.WithCancel(b.t.Context())
	b.drain, b.stop, b.ended = d, cancel, make(chan error, 1)
	go func() { b.ended <- d.Run(ctx) }()
}

// halt stops the drain and waits for it.
func (b *bench) halt() {
	b.t.Helper()
	b.stop()
	if err := <-b.ended; err != nil {
		b.t.Errorf("Run: %v", err)
	}
}

// close ends everything.
func (b *bench) close() {
	b.t.Helper()
	b.halt()
	if err := b.log.Close(); err != nil {
		b.t.Errorf("close the log: %v", err)
	}
	if err := b.dead.Close(); err != nil {
		b.t.Errorf("close the store: %v", err)
	}
}

func (b *bench) push(shard int, payloads ...string) []record.ID {
	b.t.Helper()
	all := make([][]byte, len(payloads))
	for i, p := range payloads {
		all[i] = []byte(p)
	}
	ticket, err := b.log.Shards()[shard].Append(record.Durable, all...)
	if err == nil {
		err = ticket.Wait()
	}
	if err != nil {
		b.t.Fatalf("push: %v", err)
	}
	ids := make([]record.ID, len(payloads))
	for i := range payloads {
		seg, index := ticket.Coordinate(i)
		ids[i] = record.ComputeID(seg, index, all[i])
	}
	return ids
}

func numbered(from, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("r%05d", from+i)
	}
	return all
}

func (b *bench) shard(n int) ShardStats { return b.drain.Stats().Shards[n] }

func (b *bench) letters() []deadletter.Letter {
	b.t.Helper()
	var all []deadletter.Letter
	for l, err := range b.dead.List() {
		if err != nil {
			b.t.Fatalf("List: %v", err)
		}
		all = append(all, l)
	}
	return all
}

func (s *script) wantOnce(t *testing.T, want []string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range want {
		if s.delivered[p] != 1 {
			t.Errorf("%q was delivered %d times, want 1", p, s.delivered[p])
		}
	}
	if len(s.delivered) != len(want) {
		t.Errorf("%d records were delivered, want %d", len(s.delivered), len(want))
	}
}

func TestDeliversInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		want := numbered(0, 5000)
		b.push(0, want...)
		s := scripted(takesAll)
		b.run(s, Options{MaxInFlight: 1})
		synctest.Wait()
		after(time.Second)
		if !slices.Equal(s.order, want) {
			t.Errorf("%d records in another order than %d were pushed", len(s.order), len(want))
		}
		for _, a := range s.calls() {
			if got := record.BatchKey(a.batch.Records); got != a.batch.Key {
				t.Errorf("key %v, want %v", a.batch.Key, got)
			}
			if len(a.batch.Records) > 1000 || a.batch.Attempt != 1 {
				t.Errorf("%d records, attempt %d", len(a.batch.Records), a.batch.Attempt)
			}
		}
		st := b.shard(0)
		if st.State != Idle || st.Delivered != 5000 || st.InFlightRecords != 0 || st.Batches == 0 {
			t.Errorf("stats: %+v", st)
		}
		if got := b.log.Shards()[0].Stats().BacklogRecords; got != 0 {
			t.Errorf("%d records are not confirmed", got)
		}
		b.close()
	})
}

// after lets d pass in the bubble, and all that follows from it happen.
func after(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// sinkFunc is a sink that is a function.
type sinkFunc func(ctx context.Context, b sinks.Batch) []sinks.Outcome

func (f sinkFunc) Deliver(ctx context.Context, b sinks.Batch) []sinks.Outcome { return f(ctx, b) }
func (f sinkFunc) Close() error                                               { return nil }
