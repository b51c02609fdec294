//go:build !nos3

package s3sink

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weir-agent/weir/sinks"
	"github.com/weir-agent/weir/sinks/s3sink/s3test"
	"github.com/weir-agent/weir/sinks/sinktest"
	"github.com/weir-agent/weir/wab/record"
)

// TestName: names are told apart by the key, sort as the log does, and hold nothing but what a name may.
func TestName(t *testing.T) {
	o, err := resolve(Options{Bucket: "b", Prefix: "{yyyy}/{shard}/"})
	if err != nil {
		t.Fatal(err)
	}
	b := sinktest.Batch("b", 2)
	b.Shard, b.Records[0].Appended = 3, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	key := strings.TrimPrefix(b.Key.String(), "sha256:")
	for _, tc := range []struct {
		change func()
		want   string
	}{
		{func() {}, "2026/3/shard_00-seg_00000001-00112233445566aa-0000000001-" + key + ".jsonl.zst"},
		{func() { o.Compression = CompressionGzip }, "2026/3/shard_00-seg_00000001-00112233445566aa-0000000001-" + key + ".jsonl.gz"},
		{func() { o.Compression, o.Format = CompressionNone, FormatLength }, "2026/3/shard_00-seg_00000001-00112233445566aa-0000000001-" + key + ".length"},
		{func() { b.Records[0].Index = 12345678901 }, "2026/3/shard_00-seg_00000001-00112233445566aa-12345678901-" + key + ".length"},
		{func() { b.Records[0].Segment = "../ö {}\x00" }, "2026/3/..-------12345678901-" + key + ".length"},
		{func() { b.Records[0].Segment = strings.Repeat("x", 5000) }, "2026/3/" + strings.Repeat("x", 200) + "-12345678901-" + key + ".length"},
	} {
		tc.change()
		if got := o.name(&b, "h"); got != tc.want {
			t.Errorf("got  %s\nwant %s", got, tc.want)
		}
	}
	first, next := sinktest.Batch("b", 9), sinktest.Batch("b", 10)
	next.Records = next.Records[9:]
	if a, z := o.name(&first, "h"), o.name(&next, "h"); a >= z {
		t.Errorf("%s does not sort before %s", a, z)
	}
}

// TestObjectIsTheBatch: whatever is in a batch, its object has it in its order, and is the same bytes each time.
func TestObjectIsTheBatch(t *testing.T) {
	for _, format := range []string{FormatJSONL, FormatLength} {
		for _, compression := range []string{CompressionZstd, CompressionGzip, CompressionNone} {
			t.Run(format+" "+compression, func(t *testing.T) {
				o := Options{Format: format, Compression: compression}
				e, err := newEncoder(&o)
				if err != nil {
					t.Fatal(err)
				}
				defer e.close()
				rapid.Check(t, func(rt *rapid.T) {
					var b sinks.Batch
					for i, p := range rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 1, 100), 1, 20).Draw(rt, "payloads") {
						r := record.Record{Payload: p}
						r.Segment, r.Index = "shard_00/s", uint64(i)
						r.ID = record.ComputeID(r.Segment, r.Index, p)
						b.Records = append(b.Records, r)
					}
					data := e.object(&b)
					if again := e.object(&b); !bytes.Equal(data, again) {
						rt.Fatal("the object is another one the second time")
					}
					got := s3test.Records(t, s3test.Unpack(t, s3test.Object{Name: "x" + o.ending(), Data: data}))
					if len(got) != len(b.Records) {
						rt.Fatalf("%d records of %d", len(got), len(b.Records))
					}
					for i, r := range b.Records {
						want := s3test.Record{Payload: string(r.Payload)}
						if format == FormatJSONL {
							want.ID, want.Segment, want.Index = r.ID.String(), r.Segment, r.Index
						}
						if got[i] != want {
							rt.Fatalf("record %d: got %+v, want %+v", i, got[i], want)
						}
					}
				})
			})
		}
	}
}

// TestLengthBytes: the format is what the document says.
func TestLengthBytes(t *testing.T) {
	o := Options{Format: FormatLength, Compression: CompressionNone}
	e, err := newEncoder(&o)
	if err != nil {
		t.Fatal(err)
	}
	b := sinks.Batch{Records: []record.Record{{Payload: []byte("hello")}, {Payload: bytes.Repeat([]byte("x"), 258)}}}
	if got, want := string(e.object(&b)), "\x00\x00\x00\x05hello\x00\x00\x01\x02"+strings.Repeat("x", 258); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func BenchmarkObject(b *testing.B) {
	batch := sinktest.Batch("b", 1000)
	for i := range batch.Records {
		batch.Records[i].Payload = bytes.Repeat(fmt.Appendf(nil, "%8d", i*i), 32)
	}
	for _, compression := range []string{CompressionZstd, CompressionGzip, CompressionNone} {
		b.Run(compression, func(b *testing.B) {
			e, err := newEncoder(&Options{Format: FormatJSONL, Compression: compression})
			if err != nil {
				b.Fatal(err)
			}
			defer e.close()
			b.SetBytes(256 * 1000)
			for b.Loop() {
				e.object(&batch)
			}
		})
	}
}
