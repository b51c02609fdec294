package weidasink

import (
	"context"
	"strings"
	"testing"

	"github.com/weir-agent/weir/sinks"
	"github.com/weir-agent/weir/sinks/sinktest"
	"github.com/weir-agent/weir/weida"
)

// BenchmarkDeliver delivers batches of 1,000 records of 256 bytes to a listener in the same process that confirms them at once.
func BenchmarkDeliver(b *testing.B) {
	far := newBroker(b, brokerOptions{quiet: true, answer: func(_ int, r *weida.IncomingRequest, _ []byte) {
		_ = r.Respond(context.Background(), weida.Meta{Achieved: weida.Some(weida.LevelStored)}, nil) // the sink waits for it
	}})
	s := sinktest.Open(b, New, Options{URL: far.url()})
	payload := strings.Repeat("x", 256)
	payloads := make([]string, 1000)
	for i := range payloads {
		payloads[i] = payload
	}
	batch := sinktest.BatchOf(payloads...)
	for b.Loop() {
		for _, o := range s.Deliver(b.Context(), batch) {
			if o.Verdict != sinks.Delivered {
				b.Fatal(o)
			}
		}
	}
	b.ReportMetric(float64(len(batch.Records))*float64(b.N)/b.Elapsed().Seconds(), "records/s")
}
