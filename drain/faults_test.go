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

// bubble runs a test in simulated time, on a new bench that it closes itself.
func bubble(t *testing.T, f func(t *testing.T, b *bench)) {
	synctest.Test(t, func(t *testing.T) { f(t, newBench(t)) })
}

var errInjected = errors.New("injected")

func fails(v sinks.Verdict, status int) sinks.Outcome {
	return sinks.Outcome{Verdict: v, Status: status, Reason: fmt.Sprint(v, " ", status)}
}

// poison refuses every batch that holds one of the records, as an endpoint does that answers for the whole request.
func poison(o sinks.Outcome, bad ...string) func(context.Context, sinks.Batch) []sinks.Outcome {
	return func(ctx context.Context, b sinks.Batch) []sinks.Outcome {
		for _, r := range b.Records {
			if slices.Contains(bad, string(r.Payload)) {
				return sinks.Same(len(b.Records), o)
			}
		}
		return takesAll(ctx, b)
	}
}

// F26: of a batch that was delivered in part only that part is done with: the rest is sent again, alone, and the
// cursor waits for it.
func TestF26OnlyDeliveredPartsMoveOn(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.push(0, "a", "b", "c", "d")
		release := atomic.Bool{}
		s := scripted(func(_ context.Context, batch sinks.Batch) []sinks.Outcome {
			out := sinks.Same(len(batch.Records), delivered)
			for i, r := range batch.Records {
				if p := string(r.Payload); !release.Load() && (p == "a" || p == "c") {
					out[i] = fails(sinks.Retry, 500)
				}
			}
			return out
		})
		b.run(s, Options{})
		after(30 * time.Second)
		if got := b.log.Shards()[0].Stats().BacklogRecords; got != 4 {
			t.Errorf("%d records are unconfirmed while the first is not delivered, want 4", got)
		}
		release.Store(true)
		after(2 * time.Minute)
		s.wantOnce(t, []string{"a", "b", "c", "d"})
		for i, a := range s.calls() {
			want := "[a c]"
			if i == 0 {
				want = "[a b c d]"
			}
			if a.payloads() != want {
				t.Errorf("attempt %d sent %s, want %s", i, a.payloads(), want)
			}
		}
		if st := b.shard(0); st.Delivered != 4 || b.log.Shards()[0].Stats().BacklogRecords != 0 {
			t.Errorf("in the end: %+v", st)
		}
		b.close()
	})
}

// F27: a record is confirmed only after its dead letter is durable.
func TestF27ConfirmedAfterTheDeadLetter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := vfstest.NewInjector(vfstest.NewDisk())
		b := openBench(t, vfstest.NewDisk(), in, 1)
		in.Add(vfstest.Fault{Kinds: vfstest.SyncData, Err: errInjected, Sticky: true})
		b.push(0, "bad", "good")
		b.run(scripted(poison(fails(sinks.Reject, 400), "bad")), Options{})
		after(10 * time.Minute)
		st := b.shard(0)
		if st.DeadLettered != 0 || st.State != Retrying || !strings.Contains(st.LastError, "injected") {
			t.Errorf("the store fails, and the drain says %+v", st)
		}
		if n := b.log.Shards()[0].Stats().BacklogRecords; n != 2 {
			t.Errorf("%d records are unconfirmed, want 2", n)
		}
		in.Clear()
		after(2 * time.Minute)
		if n := b.log.Shards()[0].Stats().BacklogRecords; n != 0 || len(b.letters()) != 1 || b.shard(0).DeadLettered != 1 {
			t.Errorf("the store works again: %d unconfirmed, %d letters", n, len(b.letters()))
		}
		b.close()
	})
}

// F28: a letter that is requeued leaves the store only once it is delivered, over any number of failures and restarts.
func TestF28RequeuedLettersStayUntilDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logDisk, deadDisk := vfstest.NewDisk(), vfstest.NewDisk()
		b := openBench(t, logDisk, deadDisk, 1)
		ids := b.push(0, "x", "y", "z")
		b.run(scripted(poison(fails(sinks.Reject, 422), "x", "y", "z")), Options{})
		after(time.Second)
		if n, err := b.dead.Requeue(t.Context(), ids...); n != 3 || err != nil {
			t.Fatalf("Requeue: %d, %v", n, err)
		}
		after(time.Second)
		for _, l := range b.letters() {
			if l.Requeued {
				t.Errorf("%q was refused again and is still marked", l.Payload)
			}
		}
		b.halt()
		if _, err := b.dead.Requeue(t.Context(), ids[0], ids[2]); err != nil {
			t.Fatal(err)
		}
		down := scripted(func(_ context.Context, batch sinks.Batch) []sinks.Outcome {
			return sinks.Same(len(batch.Records), fails(sinks.Retry, 500))
		})
		b.run(down, Options{})
		after(time.Hour)
		if n := len(b.letters()); n != 3 {
			t.Errorf("%d letters while their redelivery fails, want 3", n)
		}
		b.halt()
		b2 := openBench(t, logDisk.Kill(), deadDisk.Kill(), 1)
		_, _ = b.log.Close(), b.dead.Close() // their disk is gone
		s := scripted(takesAll)
		b2.run(s, Options{})
		after(time.Second)
		s.wantOnce(t, []string{"x", "z"})
		for _, a := range s.calls() {
			for _, r := range a.batch.Records {
				if !slices.Contains(ids, r.ID) {
					t.Errorf("%q has another id than before", r.Payload)
				}
			}
		}
		left := b2.letters()
		if len(left) != 1 || string(left[0].Payload) != "y" {
			t.Errorf("letters left: %v", left)
		}
		if st := b2.drain.Stats(); st.Requeued.Delivered != 2 || st.Shards[0].Delivered != 0 {
			t.Errorf("stats: %+v", st)
		}
		b2.close()
	})
}

// F30: damage is passed once and counted; what is around it is delivered, and the drain stays killable.
func TestF30DamageIsPassedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := vfstest.NewDisk()
		b := openBench(t, disk, vfstest.NewDisk(), 1)
		want := numbered(0, 50)
		b.push(0, want...)
		_ = b.log.Close()
		for _, name := range disk.Names() {
			data, err := disk.Bytes(name)
			if at := bytes.Index(data, []byte("r00020")); err == nil && at > 0 {
				if err := disk.FlipBit(name, int64(at), 1); err != nil {
					t.Fatal(err)
				}
			}
		}
		b = openBench(t, disk, vfstest.NewDisk(), 1)
		s := scripted(takesAll)
		b.run(s, Options{BatchRecords: 7})
		after(time.Minute)
		s.wantOnce(t, slices.Delete(slices.Clone(want), 20, 21))
		st := b.log.Shards()[0].Stats()
		if st.Damaged != 1 || st.Lost != 1 || st.BacklogRecords != 0 {
			t.Errorf("damaged %d, lost %d, backlog %d; want 1, 1, 0", st.Damaged, st.Lost, st.BacklogRecords)
		}
		b.close()
	})
}

// A log that cannot be read now is read again, and nothing is passed over for that.
func TestReadErrorsPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := vfstest.NewInjector(vfstest.NewDisk())
		b := openBench(t, in, vfstest.NewDisk(), 1)
		want := numbered(0, 100)
		b.push(0, want...)
		in.Add(vfstest.Fault{Kinds: vfstest.ReadAt, At: 0, Err: errInjected}, vfstest.Fault{Kinds: vfstest.ReadAt, At: 1, Err: errInjected})
		s := scripted(takesAll)
		b.run(s, Options{})
		after(500 * time.Millisecond)
		if st := b.shard(0); !strings.Contains(st.LastError, "injected") || st.Delivered != 0 {
			t.Errorf("while it cannot be read: %+v", st)
		}
		after(10 * time.Second)
		s.wantOnce(t, want)
		if st := b.log.Shards()[0].Stats(); st.Damaged != 0 || st.BacklogRecords != 0 {
			t.Errorf("damaged %d, backlog %d", st.Damaged, st.BacklogRecords)
		}
		b.close()
	})
}

// F30: where nothing but damage is left the cursor passes it, and the segment goes.
func TestF30OnlyDamage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := vfstest.NewDisk()
		b := openBench(t, disk, vfstest.NewDisk(), 1)
		b.push(0, "the only one")
		_ = b.log.Close()
		for _, name := range disk.Names() {
			data, err := disk.Bytes(name)
			if at := bytes.Index(data, []byte("the only one")); err == nil && at > 0 {
				if err := disk.FlipBit(name, int64(at), 1); err != nil {
					t.Fatal(err)
				}
			}
		}
		b = openBench(t, disk, vfstest.NewDisk(), 1)
		s := scripted(takesAll)
		b.run(s, Options{})
		after(time.Minute)
		if st := b.log.Shards()[0].Stats(); st.BacklogRecords != 0 || st.Lost != 1 || len(s.calls()) != 0 {
			t.Errorf("backlog %d, lost %d, %d calls; want 0, 1, 0", st.BacklogRecords, st.Lost, len(s.calls()))
		}
		b.close()
	})
}

// F31: a record that is refused, or too large, is found in about 2·log2(n) requests, wherever it is; the
// others are delivered once, and what comes behind them too.
func TestF31OneBadRecordIsIsolated(t *testing.T) {
	for _, o := range []sinks.Outcome{fails(sinks.Reject, 400), fails(sinks.Split, 413)} {
		for _, at := range []int{0, 1, 499, 500, 998, 999} {
			t.Run(fmt.Sprint(o.Reason, "/", at), func(t *testing.T) {
				bubble(t, func(t *testing.T, b *bench) {
					all := numbered(0, 1000)
					b.push(0, all...)
					s := scripted(poison(o, all[at]))
					b.run(s, Options{MaxInFlight: 1})
					after(time.Second)
					if n := len(s.calls()); n > 21 {
						t.Errorf("%d requests, want 21 at most", n)
					}
					b.push(0, "behind")
					after(time.Second)
					s.wantOnce(t, append(slices.Delete(slices.Clone(all), at, at+1), "behind"))
					letters := b.letters()
					if len(letters) != 1 || string(letters[0].Payload) != all[at] || letters[0].Status != o.Status || letters[0].Reason != o.Reason || letters[0].Attempts < 9 {
						t.Errorf("letters: %.300v", letters)
					}
					if st := b.shard(0); st.Delivered != 1000 || st.DeadLettered != 1 || st.State != Idle {
						t.Errorf("stats: %+v", st)
					}
					b.close()
				})
			})
		}
	}
}

// F31: a record that the endpoint names is a dead letter at once, and no request more is made for it.
func TestF31NamedRecordNeedsNoBisection(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.push(0, numbered(0, 100)...)
		s := scripted(func(_ context.Context, batch sinks.Batch) []sinks.Outcome {
			out := sinks.Same(len(batch.Records), delivered)
			for i := range out {
				if i%10 == 3 {
					out[i] = sinks.Outcome{Verdict: sinks.Reject, Isolated: true, Status: 400, Reason: "named"}
				}
			}
			return out
		})
		b.run(s, Options{})
		after(time.Second)
		if st := b.shard(0); len(s.calls()) != 1 || st.DeadLettered != 10 || st.Delivered != 90 || st.Retried != 0 {
			t.Errorf("%d requests, %+v", len(s.calls()), st)
		}
		b.close()
	})
}

// F32: however many segments there are at the start, no more records than the window holds are in memory, and all arrive in order.
func TestF32ManySegments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := vfstest.NewDisk()
		b := openBench(t, disk, vfstest.NewDisk(), 1)
		filler := strings.Repeat("f", 6000)
		var want []string
		for i := range 300 {
			p := make([]string, 10)
			for j := range p {
				p[j] = fmt.Sprintf("%04d-%s", i*10+j, filler)
			}
			b.push(0, p...)
			want = append(want, p...)
		}
		_ = b.log.Close()
		b = openBench(t, disk, vfstest.NewDisk(), 1)
		if n := b.log.Shards()[0].Stats().Segments; n < 250 {
			t.Fatalf("only %d segments", n)
		}
		s := scripted(takesAll)
		most := 0
		s.answer = func(ctx context.Context, batch sinks.Batch) []sinks.Outcome {
			if len(batch.Records) > 20 {
				t.Errorf("a batch of %d records", len(batch.Records))
			}
			<-time.After(time.Millisecond)
			return takesAll(ctx, batch)
		}
		b.run(s, Options{BatchRecords: 20, MaxInFlight: 1})
		for range 200 {
			after(time.Millisecond)
			most = max(most, b.shard(0).InFlightRecords)
		}
		if most > 20 {
			t.Errorf("%d records in flight, want 20 at most", most)
		}
		after(time.Minute)
		if !slices.Equal(s.order, want) {
			t.Errorf("%d records arrived, or in another order; want %d", len(s.order), len(want))
		}
		b.close()
	})
}

// F33: a sink that never returns is given up and its batch sent again; shutdown does not wait for it longer than it may.
func TestF33SinkThatHangs(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.push(0, "a")
		free := make(chan struct{})
		calls := atomic.Int32{}
		s := scripted(func(ctx context.Context, batch sinks.Batch) []sinks.Outcome {
			if calls.Add(1) <= 2 {
				<-free // whatever ctx says
			}
			return takesAll(ctx, batch)
		})
		b.run(s, Options{SinkTimeout: 10 * time.Second, HangGrace: 5 * time.Second})
		after(16 * time.Second)
		if st := b.shard(0); st.Timeouts != 1 || st.Hung != 1 || st.State != Retrying || !strings.Contains(st.LastError, "did not return") {
			t.Errorf("after one lost call: %+v", st)
		}
		after(time.Minute)
		s.mu.Lock()
		n := s.delivered["a"]
		s.mu.Unlock()
		if st := b.shard(0); n != 1 || st.Delivered != 1 || st.Hung != 2 || st.State != Idle {
			t.Errorf("after two lost calls and one that returned: %d times, %+v", n, st)
		}
		began := time.Now()
		b.stop()
		<-b.ended
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("the stop took %v, want 5 s at most", took)
		}
		close(free)
		synctest.Wait()
		_, _ = b.log.Close(), b.dead.Close()
	})
}

// F33: when every call hangs, no more are made than may be in flight, and that is visible; delivery goes on when they return.
func TestF33LostCallsAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		want := numbered(0, 10)
		b.push(0, want...)
		free := make(chan struct{})
		s := scripted(func(ctx context.Context, batch sinks.Batch) []sinks.Outcome {
			<-free
			return takesAll(ctx, batch)
		})
		b.run(s, Options{BatchRecords: 1, MaxInFlight: 3})
		after(24 * time.Hour)
		if st := b.shard(0); len(s.calls()) != 3 || st.Hung != 3 || st.State != Failed {
			t.Errorf("%d calls, %+v", len(s.calls()), st)
		}
		close(free)
		after(time.Minute)
		if st := b.shard(0); st.Delivered != 10 || st.Hung != 0 || st.State != Idle {
			t.Errorf("afterwards: %+v", st)
		}
		b.close()
	})
}

// F33: a call that takes the end of its context to heart ends a stop early.
func TestF33StopCutsCalls(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.push(0, "a")
		s := scripted(func(ctx context.Context, batch sinks.Batch) []sinks.Outcome {
			<-ctx.Done()
			return sinks.Same(len(batch.Records), fails(sinks.Retry, 0))
		})
		b.run(s, Options{})
		after(time.Second)
		began := time.Now()
		b.halt()
		if took := time.Since(began); took != 4500*time.Millisecond {
			t.Errorf("the stop took %v, want nine tenths of 5 s", took)
		}
		if n := b.log.Shards()[0].Stats().BacklogRecords; n != 1 {
			t.Errorf("%d records are unconfirmed, want 1", n)
		}
		_, _ = b.log.Close(), b.dead.Close()
	})
}

// A call that ends by itself after the stop counts: what it delivered is confirmed.
func TestStopConfirmsWhatArrives(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.push(0, "a")
		s := scripted(func(ctx context.Context, batch sinks.Batch) []sinks.Outcome {
			<-time.After(3 * time.Second)
			return takesAll(ctx, batch)
		})
		b.run(s, Options{})
		after(time.Second)
		b.halt()
		if n := b.log.Shards()[0].Stats().BacklogRecords; n != 0 {
			t.Errorf("%d records are unconfirmed, want none", n)
		}
		_, _ = b.log.Close(), b.dead.Close()
	})
}

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
		b := openBench(t, panicFS{vfstest.NewDisk(), armed}, vfstest.NewDisk(), 1)
		want := numbered(0, 100)
		b.push(0, want...)
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
