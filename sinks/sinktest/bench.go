package sinktest

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-agent/weir/sinks"
)

// A batch of a benchmark is benchRecords records of benchBytes bytes, and BenchCallers of them are under way at once, as the drain
// has them.
const (
	benchRecords = 1000
	benchBytes   = 256
	BenchCallers = 4
)

// BenchBatch returns the n-th batch of a benchmark.
func BenchBatch(n int) sinks.Batch {
	return BatchAt(n*benchRecords, slices.Repeat([]string{strings.Repeat("x", benchBytes)}, benchRecords)...)
}

// Bench delivers batches to a server that takes them all.
func Bench(b *testing.B, s sinks.Sink) {
	InParallel(b, func(n int) error {
		for i, o := range s.Deliver(b.Context(), BenchBatch(n)) {
			if o.Verdict != sinks.Delivered {
				return fmt.Errorf("record %d: %+v", i, o)
			}
		}
		return nil
	})
}

// InParallel runs one, which delivers the n-th batch, for each iteration, and reports records and their bytes a second.
func InParallel(b *testing.B, one func(n int) error) {
	jobs := make(chan int)
	var wg sync.WaitGroup
	for range BenchCallers {
		wg.Go(func() {
			for n := range jobs {
				if err := one(n); err != nil {
					b.Error(err)
				}
			}
		})
	}
	n, began := 0, time.Now()
	for b.Loop() {
		n++
		jobs <- n
	}
	close(jobs)
	wg.Wait()
	records := float64(n*benchRecords) / time.Since(began).Seconds()
	b.ReportMetric(records, "records/s")
	b.ReportMetric(records*benchBytes/1e6, "MB/s")
}
