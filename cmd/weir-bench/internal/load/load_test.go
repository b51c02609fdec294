package load

import (
	"bufio"
	"errors"
	"io"
	"net"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-agent/weir/ingest/frame"
	"github.com/weir-agent/weir/wab/record"
)

// known is a daemon whose figures are known: it answers the frames of a connection one after the other, each with what answer returns.
type known struct {
	answer func(n int) []byte // of the n-th frame, from 0; it may take its time
	seen   atomic.Int64
}

func (k *known) serve(nc net.Conn) {
	defer nc.Close()
	arrived := make(chan struct{}, 1<<16)
	go func() {
		defer close(arrived)
		r := bufio.NewReader(nc)
		for {
			head := make([]byte, 16)
			if _, err := io.ReadFull(r, head); err != nil {
				return
			}
			h, err := frame.ParseHeader(head, 16<<20)
			if err != nil {
				return
			}
			if _, err := r.Discard(h.FrameLen() - len(head)); err != nil {
				return
			}
			arrived <- struct{}{}
		}
	}()
	for n := 0; ; n++ {
		if _, ok := <-arrived; !ok {
			return
		}
		answer := k.answer(n)
		k.seen.Add(1)
		if _, err := nc.Write(answer); err != nil {
			return
		}
	}
}

// dial connects in memory, for a bubble.
func (k *known) dial() (net.Conn, error) {
	client, server := net.Pipe()
	go k.serve(server)
	return client, nil
}

func after(d time.Duration, answer []byte) func(int) []byte {
	return func(int) []byte {
		time.Sleep(d)
		return answer
	}
}

var ack = frame.AppendAck(nil)

// batchAnswer acks all of a batch of n but the first failed ones.
func batchAnswer(n, failed int) []byte {
	return frame.AppendAckBatch(nil, n, func(i int) bool { return i >= failed })
}

// near reports whether a figure is exact to the digits that the histogram keeps.
func near(got, want int64) bool { return got > want-want/500 && got < want+want/500 }

// TestClosedLoopFiguresAreKnown: against a daemon that takes 3 ms for a frame the figures are what arithmetic says.
func TestClosedLoopFiguresAreKnown(t *testing.T) {
	const each = 3 * time.Millisecond
	for name, c := range map[string]struct {
		connections, inFlight, batch int
		answer                       []byte
		latency                      time.Duration
		perSecond                    float64 // acked records
		failed                       int64
	}{
		"one by one":               {1, 1, 1, ack, each, 1000.0 / 3, 0},
		"four connections":         {4, 1, 1, ack, each, 4000.0 / 3, 0},
		"four in flight":           {1, 4, 1, ack, 4 * each, 1000.0 / 3, 0},
		"batches of ten, two fail": {1, 1, 10, batchAnswer(10, 2), each, 8000.0 / 3, 2},
		"nacks are no throughput":  {1, 1, 1, frame.AppendNack(nil, frame.InternalError), each, 0, 1},
		"two by two, ten a batch":  {2, 2, 10, batchAnswer(10, 0), 2 * each, 2 * 10_000.0 / 3, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := &known{answer: after(each, c.answer)}
				r, err := Run(t.Context(), Options{
					dial: k.dial, Connections: c.connections, InFlight: c.inFlight, Batch: c.batch, Tier: record.Durable, Bytes: 10, Duration: 3 * time.Second,
				})
				if err != nil {
					t.Fatal(err)
				}
				if got := r.Latency.ValueAtQuantile(50); !near(got, int64(c.latency)) {
					t.Errorf("p50 %v, want %v", time.Duration(got), c.latency)
				}
				if got := r.PerSecond(); got < c.perSecond*0.99 || got > c.perSecond*1.01 {
					t.Errorf("%.1f records/s, want %.1f", got, c.perSecond)
				}
				if frames := r.Latency.TotalCount(); frames != k.seen.Load() || r.Failed != frames*c.failed {
					t.Errorf("%d latencies of %d frames, %d failed", frames, k.seen.Load(), r.Failed)
				}
			})
		})
	}
}

// TestOpenLoopCountsTheStall: in an open loop a stall counts for every frame that was due in it, not for the one that was under way.
func TestOpenLoopCountsTheStall(t *testing.T) {
	const stall = 300 * time.Millisecond
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
	k := &known{answer: func(n int) []byte {
		if n == 20 {
			<-time.After(stall)
		}
		return ack
	}}
	go func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			go k.serve(nc)
		}
	}()
	measure := func(rate float64) (slow int64) {
		r, err := Run(t.Context(), Options{
			Socket: socket, Connections: 1, InFlight: 1000, Batch: 1, Tier: record.Durable, Bytes: 10, Duration: time.Minute, Frames: 400, Rate: rate,
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, bar := range r.Latency.Distribution() {
			if bar.From >= int64(stall/2) {
				slow += bar.Count
			}
		}
		return slow
	}
	// 1,000 a second: of the 300 that are due during the stall, 150 wait for at least half of it; on a loaded machine, more.
	if slow := measure(1000); slow < 145 {
		t.Errorf("%d frames waited for half of the stall or longer, want 150 or more", slow)
	}
}
