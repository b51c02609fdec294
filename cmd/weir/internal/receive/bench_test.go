package receive

import (
	"encoding/binary"
	"net/http/httptest"
	"testing"

	"github.com/weir-agent/weir/sinks"
	"github.com/weir-agent/weir/sinks/httpsink"
	"github.com/weir-agent/weir/wab/record"
	"github.com/weir-agent/weir/wab/vfs"
)

// benchmarkReceive measures the sink and the endpoint together, on a real file.
func benchmarkReceive(b *testing.B, format string) {
	dir, err := vfs.OpenDir(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	defer dir.Close()
	r, err := Open(Options{FS: dir, Name: fileName})
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close()
	server := httptest.NewServer(r)
	defer server.Close()
	s, err := httpsink.New(httpsink.Options{URL: server.URL, Format: format})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	batch := sinks.Batch{Attempt: 1, Records: make([]record.Record, 1000)}
	var n uint64
	for b.Loop() {
		for i := range batch.Records {
			n++
			one := &batch.Records[i]
			one.Segment, one.Index, one.Payload = "shard_00/seg", n, make([]byte, 256)
			for j := range one.Payload {
				one.Payload[j] = 'a' + byte(i%26)
			}
			binary.LittleEndian.PutUint64(one.ID[:], n)
		}
		batch.Key = record.BatchKey(batch.Records)
		for i, o := range s.Deliver(b.Context(), batch) {
			if o.Verdict != sinks.Delivered {
				b.Fatalf("record %d: %+v", i, o)
			}
		}
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "records/s")
}

func BenchmarkReceiveRaw(b *testing.B)    { benchmarkReceive(b, httpsink.FormatRaw) }
func BenchmarkReceiveNDJSON(b *testing.B) { benchmarkReceive(b, httpsink.FormatNDJSON) }
