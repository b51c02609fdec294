package weir

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/weir-agent/weir/ingest"
	"github.com/weir-agent/weir/ingest/frame"
	"github.com/weir-agent/weir/wab/record"
	"github.com/weir-agent/weir/wab/vfs/vfstest"
)

// tally collects outcomes by record.
type tally struct {
	mu  sync.Mutex
	got map[string][]Outcome
}

func (y *tally) report(s string) func(Outcome) {
	return func(o Outcome) {
		y.mu.Lock()
		defer y.mu.Unlock()
		if y.got == nil {
			y.got = map[string][]Outcome{}
		}
		y.got[s] = append(y.got[s], o)
	}
}

// states counts the outcomes by state and checks that each record has just one.
func (y *tally) states(t *testing.T, n int) map[State]int {
	t.Helper()
	y.mu.Lock()
	defer y.mu.Unlock()
	out := map[State]int{}
	for s, os := range y.got {
		if len(os) != 1 {
			t.Errorf("%q has %d outcomes", s, len(os))
		}
		out[os[0].State]++
	}
	if len(y.got) != n {
		t.Errorf("%d of %d records have an outcome", len(y.got), n)
	}
	return out
}

func send(t *testing.T, p *Producer, y *tally, name string, n int) {
	t.Helper()
	for i := range n {
		s := fmt.Sprintf("%s %d", name, i)
		if err := p.Send(t.Context(), []byte(s), y.report(s)); err != nil {
			t.Fatal(err)
		}
	}
}

func closeAll(t *testing.T, p *Producer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), watchdog)
	defer cancel()
	if err := p.Close(ctx); err != nil {
		t.Errorf("Close: %v", err)
	}
}

func TestProducerDeliversAll(t *testing.T) {
	tests := []struct {
		name string
		opts ProducerOptions
	}{
		{"defaults", ProducerOptions{}},
		{"small batches", ProducerOptions{BatchRecords: 3, InFlight: 1, Queue: 1}},
		{"bytes bound", ProducerOptions{BatchBytes: 50}},
		{"single pushes", ProducerOptions{BatchRecords: 1}},
		{"buffered", ProducerOptions{Durability: Buffered}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := startDaemon(t, ingest.Config{})
			tt.opts.Path = d.path
			p := NewProducer(tt.opts)
			var y tally
			const n = 400
			var wg sync.WaitGroup
			for g := range 4 {
				wg.Go(func() { send(t, p, &y, fmt.Sprint("producer ", g), n/4) })
			}
			wg.Wait()
			closeAll(t, p)
			if got := y.states(t, n); got[Acked] != n {
				t.Errorf("states %v", got)
			}
			if got := d.records(t); len(got) != n {
				t.Errorf("the log has %d records, want %d", len(got), n)
			}
		})
	}
}

// The order of one goroutine's records is kept.
func TestProducerKeepsOrder(t *testing.T) {
	d := startDaemon(t, ingest.Config{})
	p := NewProducer(ProducerOptions{Path: d.path, BatchRecords: 7})
	var order []int
	for i := range 100 {
		if err := p.Send(t.Context(), fmt.Appendf(nil, "%d", i), func(Outcome) { order = append(order, i) }); err != nil {
			t.Fatal(err)
		}
	}
	closeAll(t, p)
	for i, got := range order {
		if got != i {
			t.Fatalf("outcome %d is that of record %d", i, got)
		}
	}
	if len(order) != 100 {
		t.Errorf("%d outcomes", len(order))
	}
}

// A record is sent when it has lingered, without another one or a flush.
func TestProducerLingers(t *testing.T) {
	d := startDaemon(t, ingest.Config{})
	p := NewProducer(ProducerOptions{Path: d.path, Linger: time.Millisecond})
	done := make(chan Outcome, 1)
	if err := p.Send(t.Context(), []byte("alone"), func(o Outcome) { done <- o }); err != nil {
		t.Fatal(err)
	}
	if o := <-done; o.State != Acked {
		t.Errorf("outcome %+v", o)
	}
	closeAll(t, p)
}

// A daemon that comes late, goes away and comes back: nothing that waits is lost, and what
// was in flight is reported.
func TestProducerReconnects(t *testing.T) {
	d := startDaemon(t, ingest.Config{})
	d.stop()
	p := NewProducer(ProducerOptions{Path: d.path, BatchRecords: 10, MinBackoff: time.Millisecond, MaxBackoff: time.Millisecond, Queue: 100})
	var y tally
	send(t, p, &y, "before", 100)
	d.serve(t, ingest.Config{Path: d.path})
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := y.states(t, 100); got[Acked] != 100 {
		t.Errorf("states %v", got)
	}
	d.stop()
	d.serve(t, ingest.Config{Path: d.path})
	send(t, p, &y, "after", 100)
	closeAll(t, p)
	// Between, the producer may have written one batch into a connection that was ending.
	got := y.states(t, 200)
	if got[Refused] != 0 || got[Acked] < 190 {
		t.Errorf("states %v", got)
	}
	in := d.records(t)
	for s, os := range y.got {
		if os[0].State == Acked && in[s] == 0 {
			t.Errorf("%q was acked and is not in the log", s)
		}
	}
}

// Clear bits are Unknown, set ones Acked.
func TestProducerReportsBits(t *testing.T) {
	var payloads [][]byte
	for i := range 9 {
		payloads = append(payloads, fmt.Appendf(nil, "r %d", i))
	}
	size := len(frame.AppendPushBatch(nil, record.Durable, payloads...))
	path := script(t, func(_ int, nc net.Conn) {
		answer(nc, size, frame.AppendAckBatch(nil, 9, func(i int) bool { return i == 0 || i == 8 }))
	})
	p := NewProducer(ProducerOptions{Path: path, BatchRecords: 9})
	var y tally
	send(t, p, &y, "r", 9)
	closeAll(t, p)
	for i := range 9 {
		want := Unknown
		if i == 0 || i == 8 {
			want = Acked
		}
		if got := y.got[fmt.Sprintf("r %d", i)][0].State; got != want {
			t.Errorf("record %d is %v, want %v", i, got, want)
		}
	}
}

// An answer to a batch of another size says nothing about this one.
func TestProducerChecksTheEchoedCount(t *testing.T) {
	size := len(frame.AppendPushBatch(nil, record.Durable, []byte("r 0"), []byte("r 1")))
	path := script(t, func(_ int, nc net.Conn) {
		answer(nc, size, frame.AppendAckBatch(nil, 3, func(int) bool { return true }))
	})
	p := NewProducer(ProducerOptions{Path: path, BatchRecords: 2})
	var y tally
	send(t, p, &y, "r", 2)
	closeAll(t, p)
	if got := y.states(t, 2); got[Unknown] != 2 {
		t.Errorf("states %v", got)
	}
}

// A daemon with lower caps gets smaller batches; a record that it refuses alone is
// Refused, and the others are not.
func TestProducerSplitsRefusedBatches(t *testing.T) {
	d := startDaemon(t, ingest.Config{MaxBatchRecords: 5, MaxPayloadBytes: 200})
	p := NewProducer(ProducerOptions{Path: d.path, BatchRecords: 64, InFlight: 1, MinBackoff: time.Millisecond, MaxBackoff: time.Millisecond})
	var y tally
	send(t, p, &y, "small", 40)
	if err := p.Send(t.Context(), make([]byte, 300), y.report("large")); err != nil {
		t.Fatal(err)
	}
	send(t, p, &y, "more", 23)
	closeAll(t, p)
	if got := y.states(t, 64); got[Refused] != 1 || got[Acked] != 63 {
		t.Errorf("states %v", got)
	}
	var nack *NackError
	if err := y.got["large"][0].Err; !errors.As(err, &nack) || nack.Reason != frame.PayloadTooLarge {
		t.Errorf("the large record got %v", err)
	}
	for s, n := range d.records(t) {
		if n != 1 {
			t.Errorf("%q is there %d times: a refused batch stores nothing", s, n)
		}
	}
}

// A daemon that does not know batches gets single pushes, on a fresh connection.
func TestProducerFallsBackToPushes(t *testing.T) {
	batch := len(frame.AppendPushBatch(nil, record.Durable, []byte("r 0"), []byte("r 1")))
	single := len(frame.Append(nil, frame.Push, record.Durable, []byte("r 0")))
	path := script(t, func(n int, nc net.Conn) {
		if n == 0 {
			answer(nc, batch, frame.AppendNack(nil, frame.UnknownMessage))
			return
		}
		for range 2 {
			if err := answer(nc, single, frame.AppendAck(nil)); err != nil {
				t.Error(err)
			}
		}
	})
	p := NewProducer(ProducerOptions{Path: path, BatchRecords: 2, MinBackoff: time.Millisecond})
	var y tally
	send(t, p, &y, "r", 2)
	closeAll(t, p)
	if got := y.states(t, 2); got[Acked] != 2 {
		t.Errorf("states %v", got)
	}
}

// A failed sync is Unknown, and the connection goes on.
func TestProducerReportsFailedSyncs(t *testing.T) {
	d := startDaemon(t, ingest.Config{})
	p := NewProducer(ProducerOptions{Path: d.path, BatchRecords: 4})
	var y tally
	send(t, p, &y, "good", 4)
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.disk.Add(vfstest.Fault{Kinds: vfstest.SyncData, Name: "shard_00/seg_00000001-*", Sticky: true, Err: errors.New("no"), Drop: true})
	send(t, p, &y, "bad", 4)
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	send(t, p, &y, "good again", 4)
	closeAll(t, p)
	if got := y.states(t, 12); got[Acked] != 8 || got[Unknown] != 4 {
		t.Errorf("states %v", got)
	}
}

// A close whose time is over reports what is left, once.
func TestProducerCloseHonoursItsContext(t *testing.T) {
	tests := []struct {
		name string
		path func(t *testing.T) string
	}{
		{"nobody there", func(t *testing.T) string { return t.TempDir() + "/none" }},
		{"no answer", func(t *testing.T) string {
			d := startDaemon(t, ingest.Config{})
			gate := vfstest.NewGate()
			t.Cleanup(gate.Release)
			d.disk.Add(vfstest.Fault{Kinds: vfstest.SyncData, Sticky: true, Gate: gate})
			return d.path
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := NewProducer(ProducerOptions{Path: tt.path(t), BatchRecords: 5})
			var y tally
			send(t, p, &y, "r", 33)
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := p.Close(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("Close = %v", err)
			}
			if got := y.states(t, 33); got[Unknown] != 33 {
				t.Errorf("states %v", got)
			}
			if err := p.Send(t.Context(), []byte("x"), y.report("x")); !errors.Is(err, ErrClosed) {
				t.Errorf("Send after Close = %v", err)
			}
		})
	}
}

// Send waits for room no longer than its context.
func TestProducerPushesBack(t *testing.T) {
	p := NewProducer(ProducerOptions{Path: t.TempDir() + "/none", BatchRecords: 1, InFlight: 1, Queue: 3})
	var y tally
	send(t, p, &y, "r", 3)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Send(ctx, []byte("x"), y.report("x")); !errors.Is(err, context.Canceled) {
		t.Errorf("Send = %v, want it to wait", err)
	}
	p.Close(ctx)
	if got := y.states(t, 3); got[Unknown] != 3 {
		t.Errorf("states %v", got)
	}
}

func TestBackoffGrowsToItsBound(t *testing.T) {
	o := ProducerOptions{}.fill()
	if o.Jitter() >= 1 || o.MinBackoff != 50*time.Millisecond || o.MaxBackoff != 5*time.Second {
		t.Errorf("defaults %+v", o)
	}
}
