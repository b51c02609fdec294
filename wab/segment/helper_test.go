package segment_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/weir-agent/weir/wab/segment"
)

const (
	testNonce = 0x1122334455667788
	testTime  = 1_700_000_000_000_000_000
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares got with a file of testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s: the format has changed: old data could not be read", name)
	}
}

// wrote is a segment as its writer made it, and what is in it.
type wrote struct {
	bytes   []byte
	records []string // record i has index i+1
	group   []int    // the group that record i is in
	end     int64    // behind the last group
}

func testHeader(nonce uint64) segment.Header {
	return segment.Header{Instance: 0xfeedface, Shard: 3, Number: 7, Nonce: nonce, Created: testTime}
}

// write makes a segment of these groups. Each second one starts in a new sector, as behind a sync. footer ends it.
func write(nonce uint64, footer bool, groups ...[]string) wrote {
	w := wrote{bytes: segment.AppendHeader(nil, testHeader(nonce))}
	var g segment.Group
	durable := int64(segment.HeaderBytes)
	for i, payloads := range groups {
		off := int64(len(w.bytes))
		if i%2 == 0 {
			off = segment.SectorUp(off)
			durable = int64(len(w.bytes))
		}
		w.bytes = append(w.bytes, make([]byte, off-int64(len(w.bytes)))...)
		g.Reset(nonce, uint64(len(w.records))+1)
		for _, p := range payloads {
			g.Add([]byte(p))
			w.records = append(w.records, p)
			w.group = append(w.group, i)
		}
		w.bytes = append(w.bytes, g.Seal(off, durable, testTime+int64(i))...)
	}
	w.end = int64(len(w.bytes))
	if footer {
		off := segment.SectorUp(w.end)
		w.bytes = append(w.bytes, make([]byte, off-w.end)...)
		foot := segment.Footer{Records: uint64(len(w.records)), End: w.end, First: testTime, Last: testTime + int64(len(groups))}
		w.bytes = segment.AppendFooter(w.bytes, foot, nonce, off)
	}
	return w
}

// scan walks b as the log does, with no more bytes than the scanner asks for, and holds it to its bounds.
func scan(t testing.TB, b []byte, nonce uint64) []segment.Item {
	t.Helper()
	limit := int64(len(b))
	sc := segment.NewScanner(nonce, segment.HeaderBytes, 1, limit)
	var items []segment.Item
	end := int64(0) // of the bytes that the scanner is given
	var run []byte  // what Run takes off them, which Next must say too
	left := 0
	for calls := 0; ; calls++ {
		if calls > 3*len(b)+16 {
			t.Fatalf("the scanner does not come to an end: %d calls for %d bytes", calls, len(b))
		}
		from := sc.Offset()
		given := b[min(from, limit):max(end, min(from, limit))]
		if left == 0 {
			ahead := *sc
			n, size := ahead.Run(given, 3, 1<<10)
			left, run = n, given[:size]
			if ahead.Offset() != from+size || ahead.Index() != sc.Index()+uint64(n) {
				t.Fatalf("a run of %d records, %d bytes, went from record %d at %d to %d at %d", n, size, sc.Index(), from, ahead.Index(), ahead.Offset())
			}
		}
		index := sc.Index()
		it, need := sc.Next(given)
		if left > 0 {
			var payload []byte
			payload, run = segment.NextPayload(run)
			left--
			if it.Kind != segment.Record || it.Index != index || it.Time != sc.Time() || !bytes.Equal(it.Payload, payload) {
				t.Fatalf("a run has record %d of %d bytes, Next has %+v", index, len(payload), it)
			}
			if left == 0 && len(run) > 0 {
				t.Fatalf("%d bytes behind a run", len(run))
			}
		}
		if off := sc.Offset(); off > max(limit, segment.HeaderBytes) || off < from {
			t.Fatalf("the scanner went from %d to %d, its limit is %d", from, off, limit)
		} else if need > 0 {
			if off+int64(need) <= end || off+int64(need) > limit {
				t.Fatalf("at %d the scanner needs %d bytes; it had them up to %d, the limit is %d", off, need, end, limit)
			}
			end = off + int64(need)
			continue
		}
		if it.Kind == segment.Record {
			it.Payload = bytes.Clone(it.Payload)
		}
		if it.Off < 0 || it.Len < 0 || it.Kind != segment.End && it.Off+it.Len > limit {
			t.Fatalf("an item outside of the segment: %+v", it)
		}
		items = append(items, it)
		if it.Kind == segment.End || it.Kind == segment.Complete || it.Kind == segment.Tail {
			return items
		}
	}
}

// hold checks that every record found is one that was written, in order and once, and returns the indexes that are missing.
func (w wrote) hold(t testing.TB, items []segment.Item) (missing []uint64) {
	t.Helper()
	next := uint64(1)
	for _, it := range items {
		if it.Kind != segment.Record {
			continue
		}
		if it.Index < next || it.Index > uint64(len(w.records)) {
			t.Fatalf("record %d after %d, of %d: invented", it.Index, next-1, len(w.records))
		}
		if string(it.Payload) != w.records[it.Index-1] {
			t.Fatalf("record %d reads as %.40q, was written as %.40q", it.Index, it.Payload, w.records[it.Index-1])
		}
		for ; next < it.Index; next++ {
			missing = append(missing, next)
		}
		next++
	}
	for ; next <= uint64(len(w.records)); next++ {
		missing = append(missing, next)
	}
	return missing
}

// oneGroup reports whether the missing records are of one group.
func (w wrote) oneGroup(missing []uint64) bool {
	for _, i := range missing {
		if w.group[i-1] != w.group[missing[0]-1] {
			return false
		}
	}
	return true
}

// told adds up what the damage of a scan says is missing.
func told(items []segment.Item) (lost uint64) {
	for _, it := range items {
		if it.Kind == segment.Damage {
			lost += it.Lost
		}
	}
	return lost
}
