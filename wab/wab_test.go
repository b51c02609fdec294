package wab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/weir-agent/weir/wab/record"
	"github.com/weir-agent/weir/wab/vfs"
	"github.com/weir-agent/weir/wab/vfs/vfstest"
)

func openTest(t *testing.T, fsys vfs.FS, opts Options) *Log {
	t.Helper()
	opts.FS = fsys
	if opts.SegmentBytes == 0 {
		opts.SegmentBytes = minSegmentBytes
	}
	l, err := Open("", opts)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func push(t *testing.T, s *Shard, d record.Durability, payloads ...string) []record.Coordinate {
	t.Helper()
	bs := make([][]byte, len(payloads))
	for i, p := range payloads {
		bs[i] = []byte(p)
	}
	ticket, err := s.Append(d, bs...)
	if err != nil {
		t.Fatalf("Append: %v", err)
	}
	if err := ticket.Wait(); err != nil {
		t.Fatalf("Wait: %v", err)
	}
	var cs []record.Coordinate
	for i := range payloads {
		seg, index := ticket.Coordinate(i)
		cs = append(cs, record.Coordinate{Segment: seg, Index: index, ID: record.ComputeID(seg, index, bs[i])})
	}
	return cs
}

// readAll returns all records that are committed now, from the cursor on.
func readAll(t *testing.T, s *Shard) []record.Record {
	t.Helper()
	from, _ := s.Cursor()
	r := s.NewReader(from)
	defer r.Close()
	var all []record.Record
	for {
		n := len(all)
		var err error
		all, err = r.Next(all, 100, 1<<20, Position{})
		if err != nil {
			t.Fatalf("Next: %v", err)
		}
		if len(all) == n {
			return all
		}
	}
}

func TestAppendReadReopen(t *testing.T) {
	disk := vfstest.NewDisk()
	l := openTest(t, disk, Options{})
	var want []record.Coordinate
	var texts []string
	for i := range 500 {
		tier := record.Durable
		if i%3 == 0 {
			tier = record.Buffered
		}
		text := fmt.Sprintf("record %d %s", i, bytes.Repeat([]byte{'x'}, i))
		want = append(want, push(t, l.Shards()[0], tier, text)...)
		texts = append(texts, text)
	}
	check := func(when string, got []record.Record) {
		t.Helper()
		if len(got) != len(want) {
			t.Fatalf("%s: %d records, want %d", when, len(got), len(want))
		}
		for i, r := range got {
			if r.Coordinate != want[i] || string(r.Payload) != texts[i] {
				t.Fatalf("%s: record %d is %v, want %v", when, i, r.Coordinate, want[i])
			}
		}
	}
	check("live", readAll(t, l.Shards()[0]))
	if err := l.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	l = openTest(t, disk, Options{})
	check("reopened", readAll(t, l.Shards()[0]))
}

func TestConcurrentProducersShareGroups(t *testing.T) {
	l := openTest(t, vfstest.NewDisk(), Options{})
	s := l.Shards()[0]
	const producers, each = 16, 200
	var wg sync.WaitGroup
	for p := range producers {
		wg.Go(func() {
			for i := range each {
				tier := record.Durable
				if i%5 == 0 {
					tier = record.Buffered
				}
				ticket, err := s.Append(tier, fmt.Appendf(nil, "%d/%d", p, i))
				if err == nil {
					err = ticket.Wait()
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if got := len(readAll(t, s)); got != producers*each {
		t.Errorf("%d records, want %d", got, producers*each)
	}
}

func TestConfirmedSegmentsAreRecycled(t *testing.T) {
	disk := vfstest.NewDisk()
	l := openTest(t, disk, Options{})
	s := l.Shards()[0]
	r := s.NewReader(Position{})
	defer r.Close()
	payload := string(bytes.Repeat([]byte{'p'}, 4000))
	for range 200 {
		push(t, s, record.Durable, payload)
		if err := r.Wait(context.Background()); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Next(nil, 100, 1<<20, Position{}); err != nil {
			t.Fatal(err)
		}
		s.Confirm(r.Position(), nil)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if used := l.UsedBytes(); used != 0 {
		t.Errorf("%d bytes in use after all was confirmed", used)
	}
	l = openTest(t, disk, Options{})
	if got := readAll(t, l.Shards()[0]); len(got) != 0 {
		t.Errorf("%d records come again after all was confirmed", len(got))
	}
}

func TestLargeRecordGetsItsSegment(t *testing.T) {
	l := openTest(t, vfstest.NewDisk(), Options{})
	s := l.Shards()[0]
	push(t, s, record.Durable, "small")
	big := string(bytes.Repeat([]byte{'b'}, record.MaxBytes))
	push(t, s, record.Durable, big)
	push(t, s, record.Durable, "small again")
	got := readAll(t, s)
	if len(got) != 3 || string(got[1].Payload) != big {
		t.Fatalf("%d records", len(got))
	}
	if _, err := s.Append(record.Durable, make([]byte, record.MaxBytes+1)); !errors.Is(err, ErrRecordSize) {
		t.Errorf("a record over the limit: %v", err)
	}
	if _, err := s.Append(record.Durable, nil); !errors.Is(err, ErrRecordSize) {
		t.Errorf("an empty record: %v", err)
	}
}

func TestCapRefusesAndRecovers(t *testing.T) {
	l := openTest(t, vfstest.NewDisk(), Options{MaxBytes: 1 << 20})
	s := l.Shards()[0]
	payload := bytes.Repeat([]byte{'p'}, 10_000)
	n := 0
	for ; ; n++ {
		ticket, err := s.Append(record.Durable, payload)
		if errors.Is(err, ErrFull) {
			break
		}
		if err == nil {
			err = ticket.Wait()
		}
		if err != nil || n > 200 {
			t.Fatalf("push %d: %v", n, err)
		}
	}
	if n < 80 {
		t.Errorf("refused after %d records of 10 kB at a cap of 1 MiB", n)
	}
	all := readAll(t, s)
	if len(all) != n {
		t.Fatalf("%d records, want %d", len(all), n)
	}
	r := s.NewReader(Position{})
	defer r.Close()
	if _, err := r.Next(nil, n, 1<<30, Position{}); err != nil {
		t.Fatal(err)
	}
	s.Confirm(r.Position(), nil)
	for {
		ticket, err := s.Append(record.Durable, payload)
		if errors.Is(err, ErrFull) {
			continue // until the keeper has removed the confirmed segments
		}
		if err == nil {
			err = ticket.Wait()
		}
		if err != nil {
			t.Fatal(err)
		}
		return
	}
}

func TestKilledLogIsWholeAfterwards(t *testing.T) {
	disk := vfstest.NewDisk()
	l := openTest(t, disk, Options{})
	for i := range 50 {
		push(t, l.Shards()[0], record.Buffered, fmt.Sprint("r", i))
	}
	l2 := openTest(t, disk.Kill(), Options{})
	if got := len(readAll(t, l2.Shards()[0])); got != 50 {
		t.Errorf("%d records after a kill, want 50", got)
	}
}

func TestStoreCursorIsDurable(t *testing.T) {
	disk := vfstest.NewDisk()
	l := openTest(t, disk, Options{CursorInterval: 1 << 40})
	s := l.Shards()[0]
	push(t, s, record.Durable, "a", "b", "c")
	first := s.Stats().Confirmed
	pos := Position{Segment: first.Segment, Index: first.Index + 1}
	marks := []Position{{Segment: pos.Segment, Index: pos.Index + 1}}
	s.Confirm(pos, marks)
	if err := s.StoreCursor(); err != nil {
		t.Fatal(err)
	}
	again := openTest(t, disk.Crash(vfstest.Choice{Keep: vfstest.KeepNone}), Options{})
	got, gotMarks := again.Shards()[0].Cursor()
	if got != pos || len(gotMarks) != 1 || gotMarks[0] != marks[0] {
		t.Errorf("after a crash the cursor is %v with marks %v, want %v with %v", got, gotMarks, pos, marks)
	}
}

// TestDefaultCapCountsWhatTheLogHolds: a backlog does not make the cap smaller at the next start, and a full disk does not make it 0.
func TestDefaultCapCountsWhatTheLogHolds(t *testing.T) {
	disk := vfstest.NewDisk()
	disk.SetFree(4 << 20)
	l := openTest(t, disk, Options{MinFreeBytes: -1})
	before := l.MaxBytes()
	for range 30 {
		push(t, l.Shards()[0], record.Durable, string(bytes.Repeat([]byte{'p'}, 60<<10)))
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	disk.SetFree(0)
	l = openTest(t, disk, Options{MinFreeBytes: -1})
	if got := l.MaxBytes(); before < 3<<20 || got < 3*(60<<10)*30/4 {
		t.Errorf("the cap was %d, and is %d with %d bytes held on a full disk", before, got, l.UsedBytes())
	}
}
