package drain

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-agent/weir/drain/deadletter"
	"github.com/weir-agent/weir/sinks"
	"github.com/weir-agent/weir/wab"
	"github.com/weir-agent/weir/wab/vfs"
	"github.com/weir-agent/weir/wab/vfs/vfstest"
)

// F34: an outage of days spends nothing: delivery resumes by itself, soon after the endpoint is back.
func TestF34LongOutage(t *testing.T) {
	for _, o := range []sinks.Outcome{fails(sinks.Retry, 0), fails(sinks.Retry, 503), fails(sinks.Hold, 401)} {
		t.Run(o.Reason, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *bench) {
				want := numbered(0, 200)
				b.push(0, want...)
				up := atomic.Bool{}
				s := scripted(func(ctx context.Context, batch sinks.Batch) []sinks.Outcome {
					if up.Load() {
						return takesAll(ctx, batch)
					}
					return sinks.Same(len(batch.Records), o)
				})
				b.run(s, Options{BatchRecords: 10})
				after(72 * time.Hour)
				tries := len(s.calls())
				if tries < 72*60 || tries > 72*60*20 {
					t.Errorf("%d attempts in 72 hours", tries)
				}
				if n := len(b.letters()); n != 0 {
					t.Errorf("%d dead letters", n)
				}
				up.Store(true)
				after(90 * time.Second)
				s.wantOnce(t, want)
				b.close()
			})
		})
	}
}

// F22: what is the endpoint's fault holds the shard: nothing is dead-lettered, it is tried slowly, and that is visible.
func TestF22Hold(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		want := numbered(0, 100)
		b.push(0, want...)
		up := atomic.Bool{}
		s := scripted(func(ctx context.Context, batch sinks.Batch) []sinks.Outcome {
			if up.Load() {
				return takesAll(ctx, batch)
			}
			return sinks.Same(len(batch.Records), fails(sinks.Hold, 403))
		})
		b.run(s, Options{BatchRecords: 10, HoldInterval: 20 * time.Second})
		after(2 * time.Second)
		first := len(s.calls())
		after(20 * time.Minute)
		if n := len(s.calls()) - first; n < 50 || n > 70 {
			t.Errorf("%d attempts in 20 minutes, want about 60", n)
		}
		st := b.shard(0)
		if st.State != Held || st.DeadLettered != 0 || !strings.Contains(st.LastError, "403") || st.NextAttempt.IsZero() {
			t.Errorf("held: %+v", st)
		}
		up.Store(true)
		after(time.Minute)
		s.wantOnce(t, want)
		b.close()
	})
}

// F35: Retry-After is honoured, by all batches of the shard, and clamped.
func TestF35RetryAfter(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.push(0, numbered(0, 20)...)
		first := true
		var mu sync.Mutex
		s := scripted(func(ctx context.Context, batch sinks.Batch) []sinks.Outcome {
			mu.Lock()
			defer mu.Unlock()
			if first {
				first = false
				o := fails(sinks.Retry, 429)
				o.RetryAfter = 1000 * time.Hour
				return sinks.Same(len(batch.Records), o)
			}
			return takesAll(ctx, batch)
		})
		b.run(s, Options{BatchRecords: 10, MaxInFlight: 1, RetryAfterMax: 7 * time.Minute})
		after(time.Hour)
		calls := s.calls()
		if len(calls) != 3 {
			t.Fatalf("%d attempts, want 3", len(calls))
		}
		if wait := calls[1].at.Sub(calls[0].at); wait != 7*time.Minute {
			t.Errorf("the wait was %v, want 7 min", wait)
		}
		if calls[1].batch.Attempt != 2 || calls[1].batch.Key != calls[0].batch.Key {
			t.Errorf("the second attempt: %d, key %v, want 2, %v", calls[1].batch.Attempt, calls[1].batch.Key, calls[0].batch.Key)
		}
		b.close()
	})
}

// F34: when one batch gets through, the others of the shard do not sit out their back-off.
func TestF34OthersFollowTheFirst(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		want := numbered(0, 40)
		b.push(0, want...)
		up := atomic.Bool{}
		s := scripted(func(ctx context.Context, batch sinks.Batch) []sinks.Outcome {
			if up.Load() {
				return takesAll(ctx, batch)
			}
			return sinks.Same(len(batch.Records), fails(sinks.Retry, 0))
		})
		random := rand.New(rand.NewPCG(1, 1))
		var mu sync.Mutex
		b.run(s, Options{BatchRecords: 10, BackoffMax: time.Hour, Jitter: func() float64 {
			mu.Lock()
			defer mu.Unlock()
			return random.Float64()
		}})
		after(100 * time.Hour)
		up.Store(true)
		for b.shard(0).Delivered == 0 {
			after(time.Second)
		}
		after(5 * time.Second)
		s.wantOnce(t, want)
		b.close()
	})
}

// F36: an endpoint that was away meets a ramp, not the backlog.
func TestF36RampAfterAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		p := numbered(0, 1000)
		for range 250 {
			b.push(0, p...)
		}
		up := atomic.Bool{}
		s := scripted(func(ctx context.Context, batch sinks.Batch) []sinks.Outcome {
			<-time.After(5 * time.Millisecond)
			if up.Load() {
				return takesAll(ctx, batch)
			}
			return sinks.Same(len(batch.Records), fails(sinks.Retry, 0))
		})
		b.run(s, Options{})
		after(time.Hour)
		up.Store(true)
		before := b.shard(0)
		for b.shard(0).Delivered == before.Delivered {
			after(10 * time.Millisecond)
		}
		counts := make([]int, 12)
		last := b.shard(0).Delivered
		for i := range counts {
			after(time.Second)
			now := b.shard(0).Delivered
			counts[i] = int(now-last) / 1000
			last = now
		}
		if counts[0] > 4 {
			t.Errorf("batches in each second: %v; want at most 4 in the first", counts)
		}
		if slices.Max(counts) < 100 {
			t.Errorf("batches in each second: %v; want 100 and more in the end", counts)
		}
		b.close()
	})
}

// F38: a panic of the sink is an attempt that failed, and visible.
func TestF38SinkPanics(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.push(0, "a", "b")
		calls := atomic.Int32{}
		s := scripted(func(ctx context.Context, batch sinks.Batch) []sinks.Outcome {
			if calls.Add(1) < 4 {
				panic("oh no")
			}
			return takesAll(ctx, batch)
		})
		told := atomic.Int32{}
		b.run(s, Options{Observer: Observer{Panicked: func(shard int, inSink bool, value any, stack []byte) {
			if shard == 0 && inSink && value == "oh no" && bytes.Contains(stack, []byte("TestF38")) {
				told.Add(1)
			}
		}}})
		after(time.Minute)
		if st := b.shard(0); st.SinkPanics != 3 || st.LoopPanics != 0 || st.Delivered != 2 || !strings.Contains(st.LastError, "oh no") || told.Load() != 3 {
			t.Errorf("told %d times, %+v", told.Load(), st)
		}
		s.wantOnce(t, []string{"a", "b"})
		b.close()
	})
}

// panicFS panics at reads while it is armed.
type panicFS struct {
	vfs.FS
	armed *atomic.Bool
}

func (f panicFS) OpenRead(name string) (vfs.File, error) {
	file, err := f.FS.OpenRead(name)
	return panicFile{file, f.armed}, err
}

type panicFile struct {
	vfs.File
	armed *atomic.Bool
}

func (f panicFile) ReadAt(b []byte, off int64) (int, error) {
	if f.armed.Swap(false) {
		panic("in the reader")
	}
	return f.File.ReadAt(b, off)
}

// F38: a panic of the loop is visible, and it starts again from the cursor.
func TestF38LoopPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		armed := new(atomic.Bool)
		fsys := panicFS{vfstest.NewDisk(), armed}
		b := openBench(t, fsys, vfstest.NewDisk(), 1)
		want := numbered(0, 100)
		b.push(0, want...)
		_ = b.log.Close()
		b = openBench(t, fsys, vfstest.NewDisk(), 1) // what it has in memory is gone
		armed.Store(true)
		s := scripted(takesAll)
		var mu sync.Mutex
		var states []string
		b.run(s, Options{RestartInterval: 3 * time.Second, Observer: Observer{Changed: func(shard int, to State, why string) {
			mu.Lock()
			defer mu.Unlock()
			if shard == 0 {
				states = append(states, fmt.Sprint(to, " ", why))
			}
		}}})
		after(time.Second)
		if st := b.shard(0); st.State != Failed || st.LoopPanics != 1 || !strings.Contains(st.LastError, "in the reader") {
			t.Errorf("after the panic: %+v", st)
		}
		after(5 * time.Second)
		s.wantOnce(t, want)
		mu.Lock()
		if len(states) < 2 || !strings.HasPrefix(states[0], "failed") || !strings.Contains(states[0], "in the reader") || states[len(states)-1] != "idle " {
			t.Errorf("states: %q", states)
		}
		mu.Unlock()
		b.close()
	})
}

// F39: a lone record arrives within linger of its ack.
func TestF39LoneRecord(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		s := scripted(takesAll)
		b.run(s, Options{})
		for i := range 5 {
			after(10 * time.Minute)
			b.push(0, fmt.Sprint(i))
			acked := time.Now()
			after(200 * time.Millisecond)
			calls := s.calls()
			if len(calls) != i+1 {
				t.Fatalf("%d batches 200 ms after record %d", len(calls), i)
			}
			if took := calls[i].at.Sub(acked); took > 200*time.Millisecond {
				t.Errorf("record %d was sent after %v", i, took)
			}
		}
		if st := b.shard(0); st.Delivered != 5 || st.Latency[6].Count != 5 { // up to 250 ms
			t.Errorf("stats: %+v", st)
		}
		b.close()
	})
}

// F39: what is older than linger when it is read goes out at once.
func TestF39OldRecordsDoNotLinger(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.push(0, "a", "b")
		after(time.Second)
		s := scripted(takesAll)
		b.run(s, Options{Linger: time.Second})
		synctest.Wait()
		if n := len(s.calls()); n != 1 {
			t.Errorf("%d batches at once, want 1", n)
		}
		b.close()
	})
}

// F40: a trickle does not put off the batch: its age counts from the first record.
func TestF40Trickle(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		s := scripted(takesAll)
		b.run(s, Options{Linger: 300 * time.Millisecond})
		pushed := map[string]time.Time{}
		for i := range 100 {
			p := fmt.Sprint(i)
			pushed[p] = time.Now()
			b.push(0, p)
			after(50 * time.Millisecond)
		}
		after(time.Second)
		for _, a := range s.calls() {
			for _, r := range a.batch.Records {
				if took := a.at.Sub(pushed[string(r.Payload)]); took > 300*time.Millisecond {
					t.Errorf("record %s was sent after %v", r.Payload, took)
				}
			}
		}
		if n := len(s.calls()); n < 15 || n > 20 { // five seconds in pieces of 300 ms
			t.Errorf("%d batches, want about 17", n)
		}
		b.close()
	})
}

// F41: producers are acked while the sink takes nothing.
func TestF41AnAckWaitsForNoDrain(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		free := make(chan struct{})
		s := scripted(func(ctx context.Context, batch sinks.Batch) []sinks.Outcome {
			<-free
			return takesAll(ctx, batch)
		})
		b.run(s, Options{BatchRecords: 1})
		want := numbered(0, 500)
		began := time.Now()
		for _, p := range want {
			b.push(0, p)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("the pushes waited for %v", took)
		}
		close(free)
		after(time.Minute)
		s.wantOnce(t, want)
		b.close()
	})
}

// One shard's sick batch, and one shard's hanging call, stop no other shard.
func TestShardsDoNotStopEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := openBench(t, vfstest.NewDisk(), vfstest.NewDisk(), 3)
		free := make(chan struct{})
		s := scripted(func(ctx context.Context, batch sinks.Batch) []sinks.Outcome {
			switch batch.Shard {
			case 0:
				return sinks.Same(len(batch.Records), fails(sinks.Retry, 503))
			case 1:
				<-free
			}
			return takesAll(ctx, batch)
		})
		b.run(s, Options{})
		after(time.Hour)
		var want []string
		for i := range 10 {
			p := numbered(i*100, 100)
			b.push(0, "sick")
			b.push(1, "slow")
			b.push(2, p...)
			want = append(want, p...)
			after(250 * time.Millisecond)
		}
		if got := b.shard(2).Delivered; got != 1000 {
			t.Errorf("%d records of the healthy shard were delivered, want 1000", got)
		}
		if b.shard(0).State != Retrying || b.shard(1).State != Delivering || b.shard(2).State != Idle {
			t.Errorf("states: %v, %v, %v", b.shard(0).State, b.shard(1).State, b.shard(2).State)
		}
		s.mu.Lock()
		for _, p := range want {
			if s.delivered[p] != 1 {
				t.Errorf("%q was delivered %d times", p, s.delivered[p])
			}
		}
		s.mu.Unlock()
		close(free)
		after(time.Second)
		b.close()
	})
}

// A full dead-letter store holds the shard and says so; nothing is replaced, and it goes on when there is room.
func TestFullDeadLetterStoreHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		_ = b.dead.Close()
		dead, err := deadletter.Open(vfstest.NewDisk(), deadletter.Options{MaxBytes: 3 << 10})
		if err != nil {
			t.Fatal(err)
		}
		b.dead = dead
		ids := b.push(0, numbered(0, 10)...)
		b.push(0, "good")
		s := scripted(poison(fails(sinks.Reject, 400), numbered(0, 10)...))
		b.run(s, Options{})
		after(time.Hour)
		if st := b.shard(0); st.State != DeadLetterFull || !strings.Contains(st.LastError, "full") {
			t.Errorf("full: %+v", st)
		}
		if n := len(b.letters()); n != 3 {
			t.Errorf("%d letters, want 3", n)
		}
		if n := b.log.Shards()[0].Stats().BacklogRecords; n != 11 {
			t.Errorf("%d records are unconfirmed, want 11", n)
		}
		for range 3 {
			var drop [][32]byte
			for _, l := range b.letters() {
				drop = append(drop, l.ID)
			}
			for _, id := range drop {
				if _, err := b.dead.Drop(t.Context(), id); err != nil {
					t.Fatal(err)
				}
			}
			after(5 * time.Second)
		}
		st := b.shard(0)
		if n := b.log.Shards()[0].Stats().BacklogRecords; n != 0 || st.DeadLettered != uint64(len(ids)) || st.Delivered != 1 || st.State != Idle {
			t.Errorf("%d records are unconfirmed, %+v", n, st)
		}
		b.close()
	})
}

// A log that is closed under the drain ends it with an error.
func TestLogClosedUnderTheDrain(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.run(scripted(takesAll), Options{})
		after(time.Second)
		_ = b.log.Close()
		after(time.Second)
		if st := b.shard(0); st.State != Failed {
			t.Errorf("state %v, want failed", st.State)
		}
		b.stop()
		if err := <-b.ended; !errors.Is(err, wab.ErrClosed) {
			t.Errorf("Run: %v, want ErrClosed", err)
		}
		_ = b.dead.Close()
	})
}
