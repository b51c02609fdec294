package drain

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-agent/weir/sinks"
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
		_ = b.log.Close()
		b = openBench(t, in, vfstest.NewDisk(), 1) // what it has in memory is gone
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
