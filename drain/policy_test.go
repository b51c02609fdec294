package drain

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-agent/weir/sinks"
	"github.com/weir-agent/weir/wab/record"
	"github.com/weir-agent/weir/wab/vfs/vfstest"
)

func TestOptionsAreChecked(t *testing.T) {
	for _, tc := range []struct {
		name string
		opts Options
		want string
	}{
		{"batch records", Options{BatchRecords: 1<<20 + 1}, "batches of 1048577 records"},
		{"batch bytes", Options{BatchBytes: -1}, "batches of -1 bytes"},
		{"in flight", Options{MaxInFlight: 65}, "65 batches in flight"},
		{"max age", Options{MaxAge: -time.Second}, "max_age of -1s"},
		{"rate", Options{RateLimit: -2}, "rate limit of -2"},
		{"back-off", Options{BackoffMin: time.Minute, BackoffMax: time.Second}, "longest back-off"},
		{"sink timeout", Options{SinkTimeout: -1}, "negative time"},
		{"hold", Options{HoldInterval: -1}, "negative time"},
	} {
		if _, err := New(nil, scripted(takesAll), nil, tc.opts); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q in it", tc.name, err, tc.want)
		}
	}
	got, err := Options{}.fill()
	if err != nil || got.BatchRecords != 1000 || got.BatchBytes != 4<<20 || got.Linger != 200*time.Millisecond || got.MaxInFlight != 4 ||
		got.BackoffMin != 100*time.Millisecond || got.BackoffMax != time.Minute || got.HoldInterval != 30*time.Second {
		t.Errorf("defaults: %+v, %v", got, err)
	}
}

func TestBackoffDoublesWithFullJitter(t *testing.T) {
	share := 0.999999
	o, err := Options{Jitter: func() float64 { return share }}.fill()
	if err != nil {
		t.Fatal(err)
	}
	for failures, want := range map[int]time.Duration{1: 100 * time.Millisecond, 2: 200 * time.Millisecond, 5: 1600 * time.Millisecond, 10: 51200 * time.Millisecond, 11: time.Minute, 1 << 40: time.Minute} {
		if got := o.backoff(failures); got > want || got < want-want/1000 {
			t.Errorf("after %d failures at most %v, want %v", failures, got, want)
		}
	}
	share = 0
	if got := o.backoff(9); got != 0 {
		t.Errorf("at least %v, want 0", got)
	}
	if got := o.holdWait(); got != 22500*time.Millisecond {
		t.Errorf("a hold is %v at least, want 22.5 s", got)
	}
}

func TestSortOutcomes(t *testing.T) {
	named := sinks.Outcome{Verdict: sinks.Reject, Isolated: true, Reason: "named"}
	for _, tc := range []struct {
		name                            string
		out                             []sinks.Outcome
		bad                             bool
		delivered, again, halve, graves string
		held, overload                  bool
		worst                           sinks.Verdict
	}{
		{name: "all delivered", out: sinks.Same(3, delivered), delivered: "012"},
		{name: "too few", out: sinks.Same(2, delivered), bad: true},
		{name: "too many", out: sinks.Same(4, delivered), bad: true},
		{name: "none", bad: true},
		{name: "one invalid", out: []sinks.Outcome{delivered, {}, delivered}, bad: true},
		{name: "an unknown verdict", out: []sinks.Outcome{delivered, {Verdict: 99}, named}, bad: true},
		{name: "retry", out: sinks.Same(3, fails(sinks.Retry, 500)), again: "012", worst: sinks.Retry},
		{name: "overload", out: []sinks.Outcome{delivered, fails(sinks.Retry, 429), fails(sinks.Retry, 500)}, delivered: "0", again: "12", overload: true, worst: sinks.Retry},
		{name: "hold is told before retry", out: []sinks.Outcome{fails(sinks.Retry, 503), fails(sinks.Hold, 401), delivered}, delivered: "2", again: "01", held: true, overload: true, worst: sinks.Hold},
		{name: "split", out: sinks.Same(3, fails(sinks.Split, 413)), halve: "012", worst: sinks.Split},
		{name: "reject of the batch", out: sinks.Same(3, fails(sinks.Reject, 400)), halve: "012", worst: sinks.Reject},
		{name: "reject of one", out: []sinks.Outcome{delivered, named, fails(sinks.Reject, 400)}, delivered: "0", halve: "2", graves: "1", worst: sinks.Reject},
	} {
		p := &piece{slot: &slot{}}
		for i := range 3 {
			p.records = append(p.records, record.Record{Payload: fmt.Append(nil, i)})
		}
		v, ok := sortOutcomes(p, tc.out, time.Now())
		if ok == tc.bad {
			t.Errorf("%s: ok = %v", tc.name, ok)
			continue
		}
		text := func(records []record.Record) (s string) {
			for _, r := range records {
				s += string(r.Payload)
			}
			return s
		}
		graves := ""
		for _, l := range v.graves {
			graves += string(l.Payload)
		}
		if text(v.delivered) != tc.delivered || text(v.again) != tc.again || text(v.halve) != tc.halve || graves != tc.graves ||
			v.held != tc.held || v.overload != tc.overload || v.worst.Verdict != tc.worst {
			t.Errorf("%s: delivered %q, again %q, halve %q, graves %q, %+v", tc.name, text(v.delivered), text(v.again), text(v.halve), graves, v)
		}
	}
	one := &piece{slot: &slot{}, records: make([]record.Record, 1), tries: 2, before: 3}
	for _, verdict := range []sinks.Verdict{sinks.Split, sinks.Reject} {
		v, ok := sortOutcomes(one, []sinks.Outcome{fails(verdict, 400)}, time.Now())
		if !ok || len(v.graves) != 1 || v.graves[0].Attempts != 5 {
			t.Errorf("%v of a record that was sent alone: %+v", verdict, v)
		}
	}
}

// Outcomes that do not account for every record are not believed: the batch is sent again, whole, with the same key.
func TestBadOutcomesAreSentAgain(t *testing.T) {
	for name, out := range map[string][]sinks.Outcome{
		"none":       nil,
		"too few":    sinks.Same(2, delivered),
		"too many":   sinks.Same(4, delivered),
		"an invalid": {delivered, delivered, {}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *bench) {
				b.push(0, "a", "b", "c")
				calls := atomic.Int32{}
				var keys []record.ID
				s := sinkFunc(func(ctx context.Context, batch sinks.Batch) []sinks.Outcome {
					keys = append(keys, batch.Key)
					if calls.Add(1) == 1 {
						return out
					}
					return takesAll(ctx, batch)
				})
				b.run(s, Options{})
				after(time.Second)
				st := b.shard(0)
				if st.BadOutcomes != 1 || st.Delivered != 3 || st.Retried != 3 || st.Attempts != 2 || keys[0] != keys[1] {
					t.Errorf("%+v", st)
				}
				b.close()
			})
		})
	}
}

// With one batch in flight nothing overtakes anything, over any failures.
func TestStrictOrder(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		want := numbered(0, 300)
		b.push(0, want...)
		calls := 0
		s := scripted(func(ctx context.Context, batch sinks.Batch) []sinks.Outcome {
			switch calls++; {
			case calls%3 == 0:
				return sinks.Same(len(batch.Records), fails(sinks.Split, 413))
			case calls%2 == 0:
				return sinks.Same(len(batch.Records), fails(sinks.Retry, 500))
			}
			return takesAll(ctx, batch)
		})
		b.run(s, Options{BatchRecords: 20, MaxInFlight: 1})
		after(time.Hour)
		dead := map[string]bool{} // a single record that was too large
		for _, l := range b.letters() {
			dead[string(l.Payload)] = true
		}
		want = slices.DeleteFunc(want, func(p string) bool { return dead[p] })
		if !slices.Equal(s.order, want) {
			t.Errorf("the order was %.500v", s.order)
		}
		b.close()
	})
}

// Batches are begun in order, and no more of them than the window holds are unconfirmed.
func TestWindow(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		want := numbered(0, 100)
		b.push(0, want...)
		var mu sync.Mutex
		running, most := 0, 0
		blocked := make(chan struct{})
		s := scripted(func(ctx context.Context, batch sinks.Batch) []sinks.Outcome {
			mu.Lock()
			running++
			most = max(most, running)
			mu.Unlock()
			if string(batch.Records[0].Payload) == "r00000" {
				<-blocked
			}
			<-time.After(10 * time.Millisecond)
			mu.Lock()
			running--
			mu.Unlock()
			return takesAll(ctx, batch)
		})
		b.run(s, Options{BatchRecords: 10, MaxInFlight: 3})
		after(10 * time.Second)
		if n := len(s.calls()); n != 3 {
			t.Errorf("%d batches were begun while the first is not done with, want 3", n)
		}
		if st := b.shard(0); st.InFlight != 3 || st.InFlightRecords != 10 || st.Confirmed.Index != 1 {
			t.Errorf("while the first waits: %+v", st)
		}
		close(blocked)
		after(10 * time.Second)
		if most != 3 {
			t.Errorf("%d calls at once, want 3", most)
		}
		for i, a := range s.calls()[3:] {
			if got := string(a.batch.Records[0].Payload); got < fmt.Sprintf("r%05d", 10*i) {
				t.Errorf("batch %d begins with %s", i+3, got)
			}
		}
		s.wantOnce(t, want)
		b.close()
	})
}

// A batch ends before the record that would make it larger than its bytes; one that is larger by itself goes alone.
func TestBatchBytes(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.push(0, strings.Repeat("a", 40), strings.Repeat("b", 40), strings.Repeat("c", 40), strings.Repeat("d", 500), "e", "f")
		s := scripted(takesAll)
		b.run(s, Options{BatchBytes: 100, MaxInFlight: 1})
		after(time.Second)
		var sizes []int
		for _, a := range s.calls() {
			sizes = append(sizes, len(a.batch.Records))
		}
		if !slices.Equal(sizes, []int{2, 1, 1, 2}) {
			t.Errorf("batches of %v records, want 2, 1, 1, 2", sizes)
		}
		b.close()
	})
}

func TestNoLinger(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		s := scripted(takesAll)
		b.run(s, Options{Linger: -1})
		b.push(0, "a")
		synctest.Wait()
		if n := len(s.calls()); n != 1 {
			t.Errorf("%d batches at once, want 1", n)
		}
		b.close()
	})
}

func TestPauseAndResume(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		s := scripted(takesAll)
		b.run(s, Options{})
		b.drain.Pause()
		b.push(0, "a")
		after(time.Hour)
		if st := b.shard(0); len(s.calls()) != 0 || st.State != Paused || !b.drain.Stats().Paused {
			t.Errorf("paused: %d calls, %+v", len(s.calls()), st)
		}
		b.drain.Resume()
		synctest.Wait()
		if st := b.shard(0); len(s.calls()) != 1 || st.State != Idle || b.drain.Stats().Paused {
			t.Errorf("resumed: %d calls, %+v", len(s.calls()), st)
		}
		b.close()
	})
}

func TestRateLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := openBench(t, vfstest.NewDisk(), vfstest.NewDisk(), 2)
		b.push(0, numbered(0, 3000)...)
		b.push(1, numbered(3000, 3000)...)
		s := scripted(takesAll)
		b.run(s, Options{RateLimit: 100})
		after(30 * time.Second)
		got := b.shard(0).Delivered + b.shard(1).Delivered
		if got < 2900 || got > 3200 {
			t.Errorf("%d records in 30 s, want about 3,000", got)
		}
		if b.shard(0).Delivered < 500 || b.shard(1).Delivered < 500 {
			t.Errorf("the shards got %d and %d of it", b.shard(0).Delivered, b.shard(1).Delivered)
		}
		b.close()
	})
}

// Records that are too old are not sent, and counted; dead letters do not expire.
func TestMaxAge(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		up := atomic.Bool{}
		s := scripted(func(ctx context.Context, batch sinks.Batch) []sinks.Outcome {
			if !up.Load() {
				return sinks.Same(len(batch.Records), fails(sinks.Retry, 500))
			}
			return takesAll(ctx, batch)
		})
		b.run(s, Options{MaxAge: time.Hour, BatchRecords: 3, MaxInFlight: 1})
		b.push(0, "old 1", "old 2")
		after(10 * time.Minute)
		b.push(0, "newer 1", "newer 2") // 1 joins no batch of the old: these were sent by linger
		after(55 * time.Minute)
		if st := b.shard(0); st.Expired != 2 || st.InFlightRecords != 2 {
			t.Errorf("after 65 minutes: %+v", st)
		}
		up.Store(true)
		after(3 * time.Minute)
		s.wantOnce(t, []string{"newer 1", "newer 2"})
		if st := b.shard(0); st.Delivered+st.Expired != 4 || st.State != Idle || b.log.Shards()[0].Stats().BacklogRecords != 0 {
			t.Errorf("in the end: %+v", st)
		}
		b.halt()
		after(2 * time.Hour)
		ids := b.push(0, "dead")
		b.run(scripted(poison(fails(sinks.Reject, 400), "dead")), Options{MaxAge: time.Hour})
		after(time.Second)
		b.halt()
		after(2 * time.Hour)
		if _, err := b.dead.Requeue(t.Context(), ids...); err != nil {
			t.Fatal(err)
		}
		s = scripted(takesAll)
		b.run(s, Options{MaxAge: time.Hour})
		after(time.Second)
		s.wantOnce(t, []string{"dead"})
		b.close()
	})
}

// Letters that are requeued while the drain runs are delivered, in batches of one shard each, and leave the store.
func TestRequeueWhileRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := openBench(t, vfstest.NewDisk(), vfstest.NewDisk(), 2)
		accept := atomic.Bool{}
		s := scripted(func(ctx context.Context, batch sinks.Batch) []sinks.Outcome {
			if accept.Load() {
				return takesAll(ctx, batch)
			}
			out := sinks.Same(len(batch.Records), fails(sinks.Reject, 400))
			for i := range out {
				out[i].Isolated = true
			}
			return out
		})
		b.run(s, Options{BatchRecords: 8})
		ids := append(b.push(0, numbered(0, 50)...), b.push(1, numbered(50, 50)...)...)
		after(time.Second)
		if n := len(b.letters()); n != 100 {
			t.Fatalf("%d letters, want 100", n)
		}
		accept.Store(true)
		first := len(s.calls())
		for i := range 4 {
			if n, err := b.dead.Requeue(t.Context(), ids[i*25:i*25+25]...); n != 25 || err != nil {
				t.Fatalf("Requeue: %d, %v", n, err)
			}
		}
		after(10 * time.Second)
		if n := len(b.letters()); n != 0 {
			t.Errorf("%d letters are left", n)
		}
		s.wantOnce(t, numbered(0, 100))
		for _, a := range s.calls()[first:] {
			want := fmt.Sprintf("shard_%02d/", a.batch.Shard)
			for _, r := range a.batch.Records {
				if !strings.HasPrefix(r.Segment, want) {
					t.Errorf("a record of %s is in a batch of shard %d", r.Segment, a.batch.Shard)
				}
			}
		}
		if st := b.drain.Stats().Requeued; st.Delivered != 100 || st.State != Idle || st.InFlightRecords != 0 {
			t.Errorf("stats: %+v", st)
		}
		b.close()
	})
}

// A letter that is on its way again is not sent a second time because others are requeued meanwhile, or it is once more.
func TestRequeueWhileRedelivering(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		accept := atomic.Bool{}
		s := scripted(func(ctx context.Context, batch sinks.Batch) []sinks.Outcome {
			if accept.Load() {
				<-time.After(10 * time.Second)
				return takesAll(ctx, batch)
			}
			return sinks.Same(len(batch.Records), fails(sinks.Reject, 400))
		})
		b.run(s, Options{})
		ids := b.push(0, "a", "b")
		after(time.Second)
		accept.Store(true)
		for i := range 2 {
			if _, err := b.dead.Requeue(t.Context(), ids[:i+1]...); err != nil {
				t.Fatal(err)
			}
			after(time.Second)
		}
		after(time.Minute)
		s.wantOnce(t, []string{"a", "b"})
		if n := len(b.letters()); n != 0 {
			t.Errorf("%d letters are left", n)
		}
		b.close()
	})
}

// A letter that was delivered again, of which the store could not note that, is delivered once all the same.
func TestRequeueWithAFailingStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := vfstest.NewInjector(vfstest.NewDisk())
		b := openBench(t, vfstest.NewDisk(), in, 1)
		ids := b.push(0, "a")
		accept := atomic.Bool{}
		s := scripted(func(ctx context.Context, batch sinks.Batch) []sinks.Outcome {
			if accept.Load() {
				in.Add(vfstest.Fault{Kinds: vfstest.SyncData, Err: errInjected, Sticky: true})
				return takesAll(ctx, batch)
			}
			return sinks.Same(len(batch.Records), fails(sinks.Reject, 400))
		})
		b.run(s, Options{})
		after(time.Second)
		accept.Store(true)
		if _, err := b.dead.Requeue(t.Context(), ids...); err != nil {
			t.Fatal(err)
		}
		after(time.Hour)
		if n := len(b.letters()); n != 1 {
			t.Errorf("%d letters while the store fails, want 1", n)
		}
		in.Clear()
		after(2 * time.Minute)
		if n := len(b.letters()); n != 0 {
			t.Errorf("%d letters when the store works again, want none", n)
		}
		s.wantOnce(t, []string{"a"})
		b.close()
	})
}

func TestRunOnce(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.run(scripted(takesAll), Options{})
		synctest.Wait()
		if err := b.drain.Run(t.Context()); err == nil {
			t.Error("a second Run returned nil")
		}
		b.close()
	})
}

func TestObserverIsToldOfDeadLetters(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.push(0, "bad")
		var mu sync.Mutex
		var told []string
		b.run(scripted(poison(fails(sinks.Reject, 422), "bad")), Options{Observer: Observer{DeadLettered: func(shard, n int, reason string) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, fmt.Sprint(shard, n, reason))
		}}})
		after(time.Second)
		mu.Lock()
		if !slices.Equal(told, []string{"0 1reject 422"}) {
			t.Errorf("told %q", told)
		}
		mu.Unlock()
		b.close()
	})
}
