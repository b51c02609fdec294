package httpsink

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/weir-agent/weir/sinks"
	"github.com/weir-agent/weir/wab/record"
)

func benchBatch(n, size int) sinks.Batch {
	b := sinks.Batch{Attempt: 1}
	for i := range n {
		r := record.Record{Payload: bytes.Repeat([]byte{'a' + byte(i%26)}, size)}
		r.Segment, r.Index = "shard_00/seg_00000001-00112233445566aa.wab.sealed", uint64(i+1)
		r.ID = record.ComputeID(r.Segment, r.Index, r.Payload)
		b.Records = append(b.Records, r)
	}
	b.Key = record.BatchKey(b.Records)
	return b
}

func benchmarkDeliver(b *testing.B, o Options) {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
	}))
	defer server.Close()
	o.URL = server.URL
	s, err := New(o)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	batch := benchBatch(1000, 256)
	b.ReportAllocs()
	for b.Loop() {
		for i, o := range s.Deliver(context.Background(), batch) {
			if o.Verdict != sinks.Delivered {
				b.Fatalf("record %d: %+v", i, o)
			}
		}
	}
	b.ReportMetric(float64(b.N*len(batch.Records))/b.Elapsed().Seconds(), "records/s")
}

func BenchmarkDeliverRaw(b *testing.B)    { benchmarkDeliver(b, Options{}) }
func BenchmarkDeliverNDJSON(b *testing.B) { benchmarkDeliver(b, Options{Format: FormatNDJSON}) }
func BenchmarkDeliverJSON(b *testing.B)   { benchmarkDeliver(b, Options{Format: FormatJSON}) }
