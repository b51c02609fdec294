package wab

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weir-agent/weir/wab/record"
	"github.com/weir-agent/weir/wab/vfs/vfstest"
)

// TestNextKeepsItsBounds: whatever the groups, the bounds and the end, the reader returns every record once, in order, with the bytes that were
// appended, and never more than was asked for.
func TestNextKeepsItsBounds(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		l := openTest(t, vfstest.NewDisk(), Options{SegmentBytes: minSegmentBytes})
		defer l.Close()
		s := l.Shards()[0]
		var want []record.Coordinate
		var payloads []string
		size := rapid.OneOf(rapid.IntRange(1, 300), rapid.IntRange(slabBytes-20, slabBytes+20), rapid.Just(windowBytes+1))
		for range rapid.IntRange(1, 4).Draw(rt, "groups") {
			var group []string
			for range rapid.IntRange(1, 12).Draw(rt, "records") {
				group = append(group, strings.Repeat(string(rune('a'+(len(payloads)+len(group))%26)), size.Draw(rt, "size")))
			}
			want = append(want, push(t, s, record.Durable, group...)...)
			payloads = append(payloads, group...)
		}
		from, _ := s.Cursor()
		r := s.NewReader(from)
		defer r.Close()
		var all []record.Record
		for len(all) < len(want) {
			most, mostBytes := rapid.IntRange(1, 9).Draw(rt, "maxRecords"), rapid.OneOf(rapid.IntRange(1, 1000), rapid.IntRange(1, 1<<20)).Draw(rt, "maxBytes")
			var end Position
			stop := len(want)
			if rapid.Bool().Draw(rt, "ends") {
				stop = rapid.IntRange(len(all)+1, len(want)).Draw(rt, "end")
				end = behind(s, want[stop-1])
			}
			had := len(all)
			var err error
			if all, err = r.Next(all, most, mostBytes, end); err != nil {
				rt.Fatal(err)
			}
			size := 0
			for _, rec := range all[had:] {
				size += len(rec.Payload)
			}
			switch n := len(all) - had; {
			case n == 0 || n > most || n > 1 && size > mostBytes || len(all) > stop:
				rt.Fatalf("%d records of %d bytes, bounds %d and %d, up to record %d of %d", n, size, most, mostBytes, stop, len(all))
			case n < most && len(all) < stop && size+len(payloads[len(all)]) <= mostBytes:
				rt.Fatalf("%d records of %d bytes, where bounds %d and %d have room for the next", n, size, most, mostBytes)
			}
			at := r.Position()
			if at.Before(behind(s, want[len(all)-1])) || len(all) < len(want) && !at.Before(behind(s, want[len(all)])) {
				rt.Fatalf("position %v behind record %v", at, want[len(all)-1])
			}
		}
		for i, rec := range all {
			if rec.Coordinate != want[i] || string(rec.Payload) != payloads[i] || cap(rec.Payload) != len(rec.Payload) {
				rt.Fatalf("record %d is %+v with %d bytes, want %+v with %d", i, rec.Coordinate, len(rec.Payload), want[i], len(payloads[i]))
			}
		}
	})
}

// behind returns the position behind a record.
func behind(s *Shard, c record.Coordinate) Position {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.segs {
		if f.addr == c.Segment {
			return Position{Segment: f.number, Index: c.Index + 1}
		}
	}
	return Position{}
}
