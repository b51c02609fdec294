package drain

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/weir-agent/weir/sinks"
	"github.com/weir-agent/weir/wab"
	"github.com/weir-agent/weir/wab/record"
	"github.com/weir-agent/weir/wab/vfs/vfstest"
)

// holdAll never delivers, until its context ends.
func holdAll(ctx context.Context, b sinks.Batch) []sinks.Outcome {
	<-ctx.Done()
	return sinks.Same(len(b.Records), fails(sinks.Retry, 0))
}

// TestRestartRepeatsBatches: batches that were in flight are sent again with the same records and keys, after an
// orderly stop and after a death, whatever the options are by then and whatever came behind.
func TestRestartRepeatsBatches(t *testing.T) {
	for _, kill := range []bool{false, true} {
		t.Run(fmt.Sprint("kill ", kill), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				logDisk, deadDisk := vfstest.NewDisk(), vfstest.NewDisk()
				b := openBench(t, logDisk, deadDisk, 1)
				s := scripted(holdAll)
				b.run(s, Options{BatchRecords: 10})
				b.push(0, numbered(0, 25)...) // 10, 10, and 5 by linger
				after(time.Second)
				b.push(0, "s") // 1 by linger
				after(time.Second)
				first := s.calls()
				slices.SortFunc(first, func(a, b attempt) int { return strings.Compare(a.payloads(), b.payloads()) })
				if len(first) != 4 {
					t.Fatalf("%d batches, want 4", len(first))
				}
				if kill {
					logDisk, deadDisk = logDisk.Kill(), deadDisk.Kill()
				}
				b.stop()
				<-b.ended
				_, _ = b.log.Close(), b.dead.Close()

				// A run that takes up only the first of them does not forget the others.
				b = openBench(t, logDisk, deadDisk, 1)
				b.run(scripted(holdAll), Options{BatchRecords: 3, MaxInFlight: 1})
				after(time.Second)
				if kill {
					logDisk, deadDisk = logDisk.Kill(), deadDisk.Kill()
				}
				b.stop()
				<-b.ended
				_, _ = b.log.Close(), b.dead.Close()

				b = openBench(t, logDisk, deadDisk, 1)
				b.push(0, numbered(100, 3)...)
				s = scripted(takesAll)
				b.run(s, Options{BatchRecords: 3, MaxInFlight: 1})
				after(time.Second)
				again := s.calls()
				if len(again) < 5 {
					t.Fatalf("%d batches after the restart, want 5 or more", len(again))
				}
				for i, a := range first {
					if again[i].batch.Key != a.batch.Key || again[i].payloads() != a.payloads() || again[i].batch.Attempt != 1 {
						t.Errorf("batch %d was %s and is %s", i, a.payloads(), again[i].payloads())
					}
				}
				if n := len(again[4].batch.Records); n != 3 {
					t.Errorf("a batch behind the old ones has %d records, want 3", n)
				}
				b.close()
			})
		})
	}
}

// TestABatchThatWasSentComesAgain: at the very moment at which a batch is first sent, what is on stable storage is
// enough for a later run to send the same one, also where more records have come behind it.
func TestABatchThatWasSentComesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type moment struct {
			disk *vfstest.Disk
			key  record.ID
			what string
		}
		var mu sync.Mutex
		var moments []moment
		disk := vfstest.NewDisk()
		b := openBench(t, disk, vfstest.NewDisk(), 1)
		opts := Options{BatchRecords: 20, MaxInFlight: 3}
		s := scripted(func(ctx context.Context, batch sinks.Batch) []sinks.Outcome {
			a := attempt{batch: batch}
			mu.Lock()
			moments = append(moments, moment{disk.Image(vfstest.Choice{Keep: vfstest.KeepNone}), batch.Key, a.payloads()})
			mu.Unlock()
			<-time.After(120 * time.Millisecond)
			return takesAll(ctx, batch)
		})
		b.run(s, opts)
		random := rand.New(rand.NewPCG(3, 4))
		for i := range 40 {
			b.push(0, numbered(i*100, 1+random.IntN(30))...)
			after(time.Duration(random.IntN(250)) * time.Millisecond)
		}
		after(time.Second)
		b.close()
		partial := 0
		for _, m := range moments {
			b := openBench(t, m.disk, vfstest.NewDisk(), 1)
			b.push(0, "one", "more")
			s := scripted(takesAll)
			b.run(s, opts)
			after(time.Second)
			if !slices.ContainsFunc(s.calls(), func(a attempt) bool { return a.batch.Key == m.key }) {
				t.Errorf("the batch %s does not come again", m.what)
			}
			b.close()
			if strings.Count(m.what, " ") < 19 {
				partial++
			}
		}
		if partial < 10 || len(moments)-partial < 5 {
			t.Errorf("%d batches, %d of them not full", len(moments), partial)
		}
	})
}

// TestFullBatchesAreCutAlike: a batch that is full has the same records whenever it is read: whatever is committed by then
// and wherever the cursor stands.
func TestFullBatchesAreCutAlike(t *testing.T) {
	keys := func(t *testing.T, pieces int) (all []record.ID) {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			s := scripted(takesAll)
			opts := Options{BatchRecords: 50, BatchBytes: 10_000, MaxInFlight: 1, Linger: time.Hour}
			random := rand.New(rand.NewPCG(1, 2))
			var payloads []string
			for i := range 1000 {
				payloads = append(payloads, fmt.Sprintf("%0*d", 1+random.IntN(800), i))
			}
			payloads = append(payloads, numbered(0, 50)...)
			if pieces > 0 {
				b.run(s, opts)
			}
			step := len(payloads)
			if pieces > 0 {
				step /= pieces
			}
			for len(payloads) > 0 {
				n := min(step, len(payloads))
				b.push(0, payloads[:n]...)
				payloads = payloads[n:]
				after(time.Second)
			}
			if pieces == 0 {
				b.run(s, opts)
			}
			after(2 * time.Minute)
			for _, a := range s.calls() {
				var ids []byte
				for _, r := range a.batch.Records {
					ids = append(append(ids, r.Payload...), '/')
				}
				all = append(all, record.ComputeID("", 0, ids))
			}
			b.close()
		})
		return all
	}
	want := keys(t, 0)
	if len(want) < 40 {
		t.Fatalf("%d batches", len(want))
	}
	for _, pieces := range []int{1, 7, 100, 500} {
		if got := keys(t, pieces); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("pushed in %d pieces: %d batches, not the same %d", pieces, len(got), len(want))
		}
	}
}

// moody is a sink that does everything a sink may do, and some that it may not, as a seed decides.
type moody struct {
	mu        sync.Mutex
	random    *rand.Rand
	delivered map[record.ID]int
	keys      map[record.ID]string // what each key stood for
	t         *testing.T
	tame      bool // from now on it delivers
}

func newMoody(t *testing.T, seed uint64) *moody {
	return &moody{t: t, random: rand.New(rand.NewPCG(seed, 7)), delivered: map[record.ID]int{}, keys: map[record.ID]string{}}
}

func (m *moody) Close() error { return nil }

// bad tells which records the endpoint refuses for good.
func bad(r record.Record) bool { return r.ID[5] < 8 }

func (m *moody) Deliver(ctx context.Context, b sinks.Batch) []sinks.Outcome {
	m.mu.Lock()
	defer m.mu.Unlock()
	content := ""
	for _, r := range b.Records {
		content += string(r.Payload) + "\n"
	}
	if had, ok := m.keys[b.Key]; ok && had != content {
		m.t.Errorf("one key for two bodies: %q and %q", had, content)
	}
	m.keys[b.Key] = content
	mood := m.random.IntN(12)
	if m.tame {
		mood = 11
	}
	wait := time.Duration(m.random.IntN(300)) * time.Millisecond
	m.mu.Unlock()
	select {
	case <-time.After(wait):
	case <-ctx.Done():
	}
	m.mu.Lock()
	n := len(b.Records)
	switch mood {
	case 0:
		panic("moody")
	case 1:
		return sinks.Same(n+1, delivered)
	case 2:
		return make([]sinks.Outcome, n)
	case 3:
		return nil
	case 4:
		o := fails(sinks.Retry, 429)
		o.RetryAfter = time.Second
		return sinks.Same(n, o)
	case 5:
		return sinks.Same(n, fails(sinks.Hold, 401))
	case 6:
		return sinks.Same(n, fails(sinks.Split, 413))
	case 7, 8:
		return m.each(b.Records)
	}
	for _, r := range b.Records {
		if bad(r) {
			return sinks.Same(n, fails(sinks.Reject, 400))
		}
	}
	for _, r := range b.Records {
		m.delivered[r.ID]++
	}
	return sinks.Same(n, delivered)
}

// each answers for each record by itself.
func (m *moody) each(records []record.Record) []sinks.Outcome {
	out := make([]sinks.Outcome, len(records))
	for i, r := range records {
		switch k := m.random.IntN(4); {
		case bad(r) && k == 0:
			out[i] = sinks.Outcome{Verdict: sinks.Reject, Isolated: true, Status: 400, Reason: "named"}
		case bad(r) || k == 1:
			out[i] = fails(sinks.Retry, 500)
		default:
			out[i] = delivered
			m.delivered[r.ID]++
		}
	}
	return out
}

// owed checks the ledger: every acked record is delivered, pending or a dead letter; at the end none is pending.
func owed(t *testing.T, acked []record.ID, m *moody, dead map[record.ID]bool, pending map[record.ID]bool) {
	t.Helper()
	lost := 0
	for _, id := range acked {
		if m.delivered[id] == 0 && !dead[id] && !pending[id] {
			lost++
		}
	}
	if lost > 0 {
		t.Errorf("%d of %d acked records are lost", lost, len(acked))
	}
}

func (b *bench) deadIDs() map[record.ID]bool {
	all := map[record.ID]bool{}
	for _, l := range b.letters() {
		all[l.ID] = true
	}
	return all
}

func (b *bench) pending() map[record.ID]bool {
	b.t.Helper()
	all := map[record.ID]bool{}
	for _, s := range b.log.Shards() {
		at, _ := s.Cursor()
		r := s.NewReader(at)
		for {
			records, err := r.Next(nil, 1000, 1<<20, wab.Position{})
			if err != nil {
				b.t.Fatalf("Next: %v", err)
			}
			if len(records) == 0 {
				break
			}
			for _, x := range records {
				all[x.ID] = true
			}
		}
		_ = r.Close()
	}
	return all
}

// TestLedgerOverCrashes: while records come and the sink does what it likes, the power fails again and again; nothing that
// was acked is lost.
func TestLedgerOverCrashes(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { crashes(t, seed) })
		})
	}
}

func crashes(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 1))
	logDisk, deadDisk := vfstest.NewDisk(), vfstest.NewDisk()
	m := newMoody(t, seed)
	var acked []record.ID
	for life := range 10 {
		logFaults, deadFaults := vfstest.NewInjector(logDisk), vfstest.NewInjector(deadDisk)
		b := openBench(t, logFaults, deadFaults, 2)
		owed(t, acked, m, b.deadIDs(), b.pending())
		// Half of the lives end at an operation of their own, the others between two pushes.
		if life%2 == 0 {
			logFaults.Add(vfstest.Fault{Kinds: vfstest.Mutating, At: random.IntN(250), Crash: true})
			deadFaults.Add(vfstest.Fault{Kinds: vfstest.Mutating, At: random.IntN(50), Crash: true})
		}
		b.run(m, Options{BatchRecords: 1 + random.IntN(40), MaxInFlight: 1 + random.IntN(4), BackoffMax: 2 * time.Second, HoldInterval: 2 * time.Second})
		for range 20 {
			acked = append(acked, b.tryPush(random.IntN(2), numbered(len(acked), 1+random.IntN(60))...)...)
			after(time.Duration(random.IntN(700)) * time.Millisecond)
		}
		choice := vfstest.Choice{Keep: vfstest.Keep(random.IntN(3)), Seed: random.Uint64(), Garbage: random.IntN(2) == 0}
		// The store's disk goes a moment later: what has left the log is in it.
		logDisk, deadDisk = logDisk.Crash(choice), deadDisk.Crash(choice)
		b.stop()
		<-b.ended
		_, _ = b.log.Close(), b.dead.Close()
	}
	b := openBench(t, logDisk, deadDisk, 2)
	m.mu.Lock()
	m.tame = true
	m.mu.Unlock()
	b.run(m, Options{})
	after(10 * time.Minute)
	if n := len(b.pending()); n != 0 {
		t.Errorf("%d records are pending in the end", n)
	}
	owed(t, acked, m, b.deadIDs(), nil)
	if len(acked) < 1000 {
		t.Errorf("only %d records were acked", len(acked))
	}
	b.close()
}

// tryPush returns the ids of what was acked.
func (b *bench) tryPush(shard int, payloads ...string) (ids []record.ID) {
	for _, p := range payloads {
		ticket, err := b.log.Shards()[shard].Append(record.Durable, []byte(p))
		if err == nil {
			err = ticket.Wait()
		}
		if err == nil {
			seg, index := ticket.Coordinate(0)
			ids = append(ids, record.ComputeID(seg, index, []byte(p)))
		}
	}
	return ids
}

// TestCountsAddUp: over any course of outcomes each record has exactly one fate, and the counters say the same.
func TestCountsAddUp(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		seed := rapid.Uint64().Draw(rt, "seed")
		opts := Options{
			BatchRecords: rapid.IntRange(1, 50).Draw(rt, "batch records"),
			BatchBytes:   rapid.IntRange(1, 2000).Draw(rt, "batch bytes"),
			MaxInFlight:  rapid.IntRange(1, 6).Draw(rt, "in flight"),
			Linger:       rapid.SampledFrom([]time.Duration{-1, 0, time.Second}).Draw(rt, "linger"),
		}
		pushes := rapid.SliceOfN(rapid.IntRange(1, 80), 1, 12).Draw(rt, "pushes")
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			m := newMoody(t, seed)
			b.run(m, opts)
			var acked []record.ID
			for _, n := range pushes {
				acked = append(acked, b.push(0, numbered(len(acked), n)...)...)
				after(300 * time.Millisecond)
			}
			after(time.Hour)
			m.mu.Lock()
			m.tame = true
			m.mu.Unlock()
			after(10 * time.Minute)
			dead := b.deadIDs()
			st := b.shard(0)
			m.mu.Lock()
			for _, id := range acked {
				if n := m.delivered[id]; n > 1 || n == 1 && dead[id] || n == 0 && !dead[id] {
					t.Errorf("a record was delivered %d times, dead letter: %v", n, dead[id])
				}
			}
			m.mu.Unlock()
			if int(st.Delivered) != len(m.delivered) || int(st.DeadLettered) != len(dead) || int(st.Delivered+st.DeadLettered) != len(acked) || st.InFlight != 0 || st.InFlightRecords != 0 || st.State != Idle {
				t.Errorf("%d acked, %d delivered, %d dead: %+v", len(acked), len(m.delivered), len(dead), st)
			}
			var counted uint64
			for _, l := range st.Latency {
				counted += l.Count
			}
			if counted != st.Delivered {
				t.Errorf("%d records in the histogram, %d delivered", counted, st.Delivered)
			}
			b.close()
		})
	})
}
