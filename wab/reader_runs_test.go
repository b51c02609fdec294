package wab

import (
	"bytes"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weir-agent/weir/wab/record"
	"github.com/weir-agent/weir/wab/vfs/vfstest"
)

// TestRunsAreWhatNextGivesOneByOne: with damage anywhere, reads that fail and a start in the middle of a group, what Next reads in runs is what
// it gives when it is asked for one record at a time: records, positions, and what is counted as damage.
func TestRunsAreWhatNextGivesOneByOne(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		disk, coords := damagedLog(t, rt)
		from := Position{Segment: 1, Index: uint64(rapid.IntRange(1, 20).Draw(rt, "from"))}
		var end Position
		if rapid.Bool().Draw(rt, "ends") {
			end = Position{Segment: rapid.SampledFrom([]uint64{1, 1, 2, 3}).Draw(rt, "end segment"), Index: from.Index + uint64(rapid.IntRange(0, 12).Draw(rt, "end"))}
		}
		fail := rapid.SampledFrom([]vfstest.Fault{{}, {Err: syscall.EIO}, {Err: syscall.EIO, At: 2}, {Err: syscall.EIO, At: 2, Sticky: true}}).Draw(rt, "failing reads")
		one := readWith(rt, disk.Clone(), from, end, fail, func() (int, int) { return 1, 1 })
		runs := readWith(rt, disk, from, end, fail, func() (int, int) {
			return rapid.IntRange(1, 50).Draw(rt, "maxRecords"), rapid.OneOf(rapid.IntRange(1, 2000), rapid.IntRange(1, 1<<20)).Draw(rt, "maxBytes")
		})
		// The segment that is prepared for what comes next may be there or not.
		if one.pos.Segment == runs.pos.Segment && one.pos != runs.pos || one.damaged != runs.damaged || one.lost != runs.lost {
			rt.Fatalf("runs end at %v with %d damaged, %d lost; one by one it is %v, %d, %d", runs.pos, runs.damaged, runs.lost, one.pos, one.damaged, one.lost)
		}
		same := func(a, b record.Record) bool {
			return a.Coordinate == b.Coordinate && bytes.Equal(a.Payload, b.Payload) && a.Appended.Equal(b.Appended)
		}
		if !slices.EqualFunc(one.records, runs.records, same) {
			rt.Fatalf("%d records in runs, %d one by one, or not the same ones", len(runs.records), len(one.records))
		}
		for _, rec := range runs.records {
			if !slices.Contains(coords, rec.Coordinate) {
				rt.Fatalf("%+v was never appended", rec.Coordinate)
			}
		}
	})
}

// damagedLog returns a disk with up to three segments, sealed or not, of which some bytes were overwritten, and what had been appended.
func damagedLog(t *testing.T, rt *rapid.T) (*vfstest.Disk, []record.Coordinate) {
	disk := vfstest.NewDisk()
	var coords []record.Coordinate
	size := rapid.OneOf(rapid.IntRange(1, 300), rapid.IntRange(1, 300), rapid.IntRange(windowBytes/8, windowBytes/2), rapid.Just(windowBytes+1))
	var stamp atomic.Int64
	for range rapid.IntRange(1, 3).Draw(rt, "segments") {
		l, err := Open("", Options{FS: disk, SegmentBytes: minSegmentBytes, Now: func() time.Time { return time.Unix(stamp.Add(1), 0) }})
		if err != nil {
			rt.Fatal(err)
		}
		for range rapid.IntRange(1, 4).Draw(rt, "groups") {
			var group []string
			for range rapid.IntRange(3, 8).Draw(rt, "records") {
				group = append(group, strings.Repeat(string(rune('a'+(len(coords)+len(group))%26)), size.Draw(rt, "size")))
			}
			coords = append(coords, push(t, l.Shards()[0], record.Durable, group...)...)
		}
		if err := l.Close(); err != nil {
			rt.Fatal(err)
		}
	}
	names := slices.DeleteFunc(disk.Names(), func(n string) bool { return !strings.HasSuffix(n, ".sealed") })
	for range rapid.IntRange(0, 3).Draw(rt, "damages") {
		name := rapid.SampledFrom(names).Draw(rt, "damaged")
		b, err := disk.Bytes(name)
		if err != nil {
			rt.Fatal(err)
		}
		off := rapid.IntRange(1024, len(b)-1).Draw(rt, "offset")
		n := rapid.OneOf(rapid.Just(1), rapid.IntRange(1, 2000)).Draw(rt, "bytes")
		if err := disk.Overwrite(name, int64(off), bytes.Repeat([]byte{rapid.Byte().Draw(rt, "byte")}, min(n, len(b)-off))); err != nil {
			rt.Fatal(err)
		}
	}
	return disk, coords
}

// found is what a reader gave.
type found struct {
	records []record.Record
	pos     Position
	damaged uint64
	lost    int64
}

// readWith reads up to end with the bounds that it is given for each call, while reads fail as fail says.
func readWith(rt *rapid.T, disk *vfstest.Disk, from, end Position, fail vfstest.Fault, bounds func() (int, int)) found {
	inj := vfstest.NewInjector(disk)
	l, err := Open("", Options{FS: inj, SegmentBytes: minSegmentBytes})
	if err != nil {
		rt.Fatal(err)
	}
	s := l.Shards()[0]
	if fail.Err != nil {
		fail.Kinds, fail.Name = vfstest.ReadAt, "shard_00/*.sealed"
		inj.Add(fail)
	}
	r := s.NewReader(from)
	var out found
	for idle, calls := 0, 0; idle <= 3*readAttempts; calls++ {
		if calls > 10_000 {
			rt.Fatal("the reader comes to no end")
		}
		had, at := len(out.records), r.Position()
		records, bytes := bounds()
		if out.records, err = r.Next(out.records, records, bytes, end); err != nil && fail.Err == nil {
			rt.Fatal(err)
		}
		if n := len(out.records); n > had && r.Position().Before(behind(s, out.records[n-1].Coordinate)) {
			rt.Fatalf("position %v is before the end of %+v", r.Position(), out.records[n-1].Coordinate)
		}
		if idle++; len(out.records) > had || r.Position() != at {
			idle = 0
		}
	}
	out.pos = r.Position()
	st := s.Stats()
	out.damaged, out.lost = st.Damaged, st.Lost
	if err := r.Close(); err != nil {
		rt.Fatal(err)
	}
	if err := l.Close(); err != nil {
		rt.Fatal(err)
	}
	return out
}
