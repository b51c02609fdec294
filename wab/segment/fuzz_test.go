package segment_test

import (
	"bytes"
	"testing"

	"github.com/weir-agent/weir/wab/record"
	"github.com/weir-agent/weir/wab/segment"
)

func FuzzParseHeader(f *testing.F) {
	f.Add(segment.AppendHeader(nil, testHeader(testNonce)))
	f.Add(make([]byte, segment.HeaderBytes))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, _, err := segment.ParseHeader(b)
		if err != nil {
			return
		}
		again, damaged, err := segment.ParseHeader(segment.AppendHeader(nil, h))
		if again != h || damaged || err != nil {
			t.Errorf("got %+v, %v, %v after encoding %+v", again, damaged, err, h)
		}
		if h.Nonce == 0 || h.Number == 0 {
			t.Errorf("zero is valid: %+v", h)
		}
	})
}

func FuzzParseFooter(f *testing.F) {
	f.Add(segment.AppendFooter(nil, segment.Footer{Records: 6, End: 4200}, testNonce, 4608), uint64(testNonce), int64(4608))
	f.Fuzz(func(t *testing.T, b []byte, nonce uint64, off int64) {
		foot, ok := segment.ParseFooter(b, nonce, off)
		if !ok {
			return
		}
		if foot.End < segment.HeaderBytes || foot.End > off {
			t.Errorf("the end of the groups is %d, the footer is at %d", foot.End, off)
		}
		if again, ok := segment.ParseFooter(segment.AppendFooter(nil, foot, nonce, off), nonce, off); !ok || again != foot {
			t.Errorf("got %+v, %v after encoding %+v", again, ok, foot)
		}
	})
}

// FuzzScanner gives the scanner any bytes; scan holds it to its bounds. Every record that it finds has the right
// size, and indexes rise.
func FuzzScanner(f *testing.F) {
	f.Add(write(testNonce, true, smallGroups()...).bytes)
	f.Add(write(testNonce, false, smallGroups()...).bytes)
	f.Add(write(testNonce+1, true, smallGroups()...).bytes)
	f.Add(make([]byte, 3000))
	f.Add(make([]byte, 100))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 1<<16 {
			return
		}
		next := uint64(1)
		for _, it := range scan(t, b, testNonce) {
			switch it.Kind {
			case segment.Record:
				if it.Index < next || len(it.Payload) == 0 || len(it.Payload) > record.MaxBytes {
					t.Fatalf("record %d of %d bytes, next is %d", it.Index, len(it.Payload), next)
				}
				next = it.Index + 1
			case segment.Damage:
				if it.Index < next {
					t.Fatalf("damage from index %d on, next is %d", it.Index, next)
				}
				next = it.Index + it.Lost
			}
		}
	})
}

// FuzzDamagedSegment damages a real segment in one stretch: no record is invented, and groups that were not touched are read.
func FuzzDamagedSegment(f *testing.F) {
	f.Add(uint16(1100), []byte{0, 0, 0, 0})
	f.Add(uint16(1024), bytes.Repeat([]byte{0xff}, 600))
	f.Fuzz(func(t *testing.T, at uint16, patch []byte) {
		w := write(testNonce, true, smallGroups()...)
		off := segment.HeaderBytes + int(at)%(len(w.bytes)-segment.HeaderBytes)
		n := copy(w.bytes[off:], patch)
		clean := write(testNonce, true, smallGroups()...)
		for _, i := range clean.hold(t, scan(t, w.bytes, testNonce)) {
			if from, to := clean.place(clean.group[i-1]); to <= int64(off) || from >= int64(off+n) {
				t.Errorf("record %d of the group at %d..%d is missing; damaged were %d..%d", i, from, to, off, off+n)
			}
		}
	})
}

// FuzzGroup writes any payloads and reads them back.
func FuzzGroup(f *testing.F) {
	f.Add([]byte("abc\x00def"), uint64(1), uint64(9))
	f.Fuzz(func(t *testing.T, b []byte, nonce, first uint64) {
		if nonce == 0 || first == 0 || first >= 1<<62 || len(b) > 1<<16 {
			return
		}
		var g segment.Group
		g.Reset(nonce, first)
		var want [][]byte
		for p := range bytes.SplitSeq(b, []byte{0}) {
			if len(p) > 0 {
				g.Add(p)
				want = append(want, p)
			}
		}
		if len(want) == 0 {
			return
		}
		size := g.Bytes()
		out := g.Seal(segment.HeaderBytes, segment.HeaderBytes, 1)
		if int64(len(out)) != size || size%8 != 0 {
			t.Fatalf("%d bytes, announced were %d", len(out), size)
		}
		sc := segment.NewScanner(nonce, segment.HeaderBytes, first, segment.HeaderBytes+size)
		for i := range want {
			it, need := sc.Next(out[sc.Offset()-segment.HeaderBytes:])
			if need > 0 || it.Kind != segment.Record || it.Index != first+uint64(i) || !bytes.Equal(it.Payload, want[i]) {
				t.Fatalf("record %d: got %+v, need %d", i, it, need)
			}
		}
		if it, _ := sc.Next(nil); it.Kind != segment.End || sc.Index() != first+uint64(len(want)) {
			t.Fatalf("the end: %+v", it)
		}
	})
}
