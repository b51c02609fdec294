package wab

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weir-agent/weir/wab/record"
)

// BenchmarkAppend is the appending path alone, on the real file system of the temporary folder.
func BenchmarkAppend(b *testing.B) {
	for _, tier := range []record.Durability{record.Durable, record.Buffered} {
		for _, c := range []struct{ producers, batch int }{{1, 1}, {16, 1}, {64, 1}, {1, 256}, {4, 256}} {
			b.Run(fmt.Sprintf("%s/producers=%d/batch=%d", tier, c.producers, c.batch), func(b *testing.B) {
				l, err := Open(b.TempDir(), Options{})
				if err != nil {
					b.Fatal(err)
				}
				defer l.Close()
				s := l.Shards()[0]
				payloads := make([][]byte, c.batch)
				for i := range payloads {
					payloads[i] = make([]byte, 256)
				}
				var left atomic.Int64
				left.Store(int64(b.N))
				b.ResetTimer()
				var wg sync.WaitGroup
				for range c.producers {
					wg.Go(func() {
						for left.Add(-1) >= 0 {
							t, err := s.Append(tier, payloads...)
							if err == nil {
								err = t.Wait()
							}
							if err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
				st := s.Stats()
				b.ReportMetric(float64(b.N*c.batch)/b.Elapsed().Seconds(), "records/s")
				b.ReportMetric(float64(st.AppendedRecords)/float64(max(1, st.Syncs)), "records/sync")
			})
		}
	}
}
