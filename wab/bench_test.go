package wab

import (
	"fmt"
	"slices"
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

// BenchmarkRead reads back records of 256 bytes, as the drain does: the newest ones from memory, a backlog from its files.
func BenchmarkRead(b *testing.B) {
	for _, c := range []struct {
		name    string
		batches int
	}{{"memory", 10}, {"file", 400}} {
		b.Run(c.name, func(b *testing.B) {
			l, err := Open(b.TempDir(), Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer l.Close()
			s := l.Shards()[0]
			payloads := slices.Repeat([][]byte{make([]byte, 256)}, 1000)
			for range c.batches {
				t, err := s.Append(record.Durable, payloads...)
				if err == nil {
					err = t.Wait()
				}
				if err != nil {
					b.Fatal(err)
				}
			}
			from, _ := s.Cursor()
			r := s.NewReader(from)
			defer func() { r.Close() }()
			dst := make([]record.Record, 0, 1000)
			b.ReportAllocs()
			for range b.N {
				if dst, err = r.Next(dst[:0], 1000, 1<<20, Position{}); err != nil {
					b.Fatal(err)
				}
				if len(dst) == 0 {
					r.Close()
					r = s.NewReader(from)
				}
			}
			b.ReportMetric(1000*float64(b.N)/b.Elapsed().Seconds(), "records/s")
		})
	}
}
