//go:build !nokafka

package kafkasink

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/weir-agent/weir/sinks"
	"github.com/weir-agent/weir/sinks/kafkasink/kafkatest"
	"github.com/weir-agent/weir/sinks/sinktest"
	"github.com/weir-agent/weir/wab/record"
)

// BenchmarkDeliver delivers batches of 1,000 records of 256 bytes, several at once, as the drain does.
func BenchmarkDeliver(b *testing.B) {
	server := kafkatest.Start(b, kafkatest.Config{})
	server.AddTopic("bench", 4)
	s := sinktest.Open(b, New, Options{Brokers: server.Address, Topic: "bench"})
	const size = 1000
	payload := bytes.Repeat([]byte("x"), 256)
	jobs := make(chan sinks.Batch)
	done := make(chan struct{})
	for range 4 {
		go func() {
			defer func() { done <- struct{}{} }()
			for batch := range jobs {
				if o := s.Deliver(b.Context(), batch)[size-1]; o.Verdict != sinks.Delivered {
					b.Errorf("%+v", o)
				}
			}
		}()
	}
	n, began := 0, time.Now()
	for b.Loop() {
		n++
		batch := sinktest.Batch(fmt.Sprint(n), size)
		for i := range batch.Records {
			r := &batch.Records[i]
			r.Payload, r.Index = payload, uint64(n*size+i)
			r.ID = record.ComputeID(r.Segment, r.Index, r.Payload)
		}
		jobs <- batch
	}
	close(jobs)
	for range 4 {
		<-done
	}
	b.ReportMetric(float64(n*size)/time.Since(began).Seconds(), "records/s")
}
