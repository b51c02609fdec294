package frame

import (
	"bytes"
	"testing"

	"github.com/weir-agent/weir/wab/record"
)

func FuzzParse(f *testing.F) {
	f.Add(Append(nil, Push, record.Durable, []byte("hello")), 16)
	f.Add(AppendNack(nil, VersionMismatch), 0)
	f.Add(AppendPushBatch(nil, record.Buffered, []byte("a"), []byte("bc")), 64)
	f.Fuzz(func(t *testing.T, in []byte, maxPayload int) {
		h, payload, err := Parse(in, maxPayload)
		if err != nil {
			if payload != nil {
				t.Fatalf("a payload with %v", err)
			}
			if _, ok := err.(Verdict); !ok {
				t.Fatalf("%v is no verdict", err)
			}
			return
		}
		if len(payload) > payloadCap(maxPayload) || len(payload) != h.PayloadLen || h.FrameLen() != len(in) {
			t.Fatalf("payload of %d bytes, header %+v, input of %d bytes", len(payload), h, len(in))
		}
		want := bytes.Clone(in)
		if want[durabilityAt] == retiredDurability {
			want = edit(want, durabilityAt, byte(record.Durable))
		}
		if got := Append(nil, h.Type, h.Durability, payload); !bytes.Equal(got, want) {
			t.Fatalf("re-encoded\n%x, want\n%x", got, want)
		}
	})
}

func FuzzParseBatch(f *testing.F) {
	f.Add(AppendBatch(nil, []byte("a"), []byte("bc")), 8, 8)
	f.Add([]byte{1, 0xff, 0xff}, 0, 0)
	f.Fuzz(func(t *testing.T, in []byte, maxRecords, maxRecord int) {
		got, err := ParseBatch(nil, in, maxRecords, maxRecord)
		if err != nil {
			if r, ok := err.(Verdict).Reason(); !ok || r.Transient() {
				t.Fatalf("%v maps to %v, %v", err, r, ok)
			}
			return
		}
		if len(got) == 0 || len(got) > MaxBatchRecords {
			t.Fatalf("%d records", len(got))
		}
		if again := AppendBatch(nil, got...); !bytes.Equal(again, in) {
			t.Fatalf("re-encoded\n%x, want\n%x", again, in)
		}
	})
}

func FuzzParseAckBatch(f *testing.F) {
	f.Add([]byte{1, 9, 0, 0x0d, 1}, 9)
	f.Fuzz(func(t *testing.T, in []byte, sent int) {
		bits, err := ParseAckBatch(in, sent)
		if err != nil {
			return
		}
		if again := AppendAckBatchBody(nil, sent, bits.Get); !bytes.Equal(again, in) {
			t.Fatalf("re-encoded\n%x, want\n%x", again, in)
		}
	})
}

func FuzzParseCoordinate(f *testing.F) {
	f.Add([]byte(coordinateBody(1, 3, "a/b")))
	f.Fuzz(func(t *testing.T, in []byte) {
		c, err := ParseCoordinate(in)
		if err != nil {
			return
		}
		if again := AppendCoordinate(nil, c); !bytes.Equal(again, in) || len(in) > MaxCoordinateBytes {
			t.Fatalf("re-encoded\n%x, want\n%x", again, in)
		}
	})
}
