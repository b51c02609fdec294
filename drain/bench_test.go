package drain

import (
	"bytes"
	"context"
	"testing"

	"github.com/weir-agent/weir/drain/deadletter"
	"github.com/weir-agent/weir/sinks"
	"github.com/weir-agent/weir/wab"
	"github.com/weir-agent/weir/wab/record"
	"github.com/weir-agent/weir/wab/vfs/vfstest"
)

// BenchmarkDrain delivers a backlog of 256-byte records on a real file system to a sink that costs nothing.
func BenchmarkDrain(b *testing.B) {
	const backlog = 500_000
	payloads := make([][]byte, 1000)
	for i := range payloads {
		payloads[i] = bytes.Repeat([]byte{'x'}, 256)
	}
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		l, err := wab.Open(b.TempDir(), wab.Options{})
		if err != nil {
			b.Fatal(err)
		}
		for range backlog / len(payloads) {
			ticket, err := l.Shards()[0].Append(record.Buffered, payloads...)
			if err == nil {
				err = ticket.Wait()
			}
			if err != nil {
				b.Fatal(err)
			}
		}
		dead, err := deadletter.Open(vfstest.NewDisk(), deadletter.Options{})
		if err != nil {
			b.Fatal(err)
		}
		left := make(chan int, 64) // as many calls as may be under way
		sink := sinkFunc(func(_ context.Context, batch sinks.Batch) []sinks.Outcome {
			left <- len(batch.Records)
			return sinks.Same(len(batch.Records), delivered)
		})
		d, err := New(l.Shards(), sink, dead, Options{})
		if err != nil {
			b.Fatal(err)
		}
		ctx, cancel := context.WithCancel(b.Context())
		done := make(chan error, 1)
		b.StartTimer()
		go func() { done <- d.Run(ctx) }()
		for n := 0; n < backlog; {
			n += <-left
		}
		b.StopTimer()
		cancel()
		if err := <-done; err != nil {
			b.Fatal(err)
		}
		if err := l.Close(); err != nil {
			b.Fatal(err)
		}
		if err := dead.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	b.ReportMetric(float64(b.N)*backlog/b.Elapsed().Seconds(), "records/s")
}
