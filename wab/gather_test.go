package wab

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-agent/weir/wab/record"
	"github.com/weir-agent/weir/wab/vfs/vfstest"
)

// TestGathersOnForThoseWhoShared: after a group that two producers shared, the first one of the next group waits a moment for the other; a lone
// producer, and one whose group is as large as the last one, do not.
func TestGathersOnForThoseWhoShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := Open("", Options{FS: vfstest.NewDisk(), SegmentBytes: minSegmentBytes, MinFreeBytes: -1})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		s := l.Shards()[0]
		for _, tc := range []struct {
			name    string
			last    int // appends of the last group
			records int // of the last group
			appends int
			each    int // records of an append
			waits   bool
		}{
			{"lone", 1, 1, 1, 1, false},
			{"one of two", 2, 2, 1, 1, true},
			{"one of three", 3, 3, 1, 1, true},
			{"two of three", 3, 3, 2, 1, false},
			{"one of many", 64, 64, 1, 1, true},
			{"all records of three appends in one", 3, 30, 1, 30, false},
			{"half of the records of four appends in one", 4, 40, 1, 20, true},
		} {
			s.mu.Lock()
			s.lastAppends, s.lastRecords, s.lastSync = tc.last, tc.records, time.Second
			s.mu.Unlock()
			var tickets []Ticket
			for range tc.appends {
				ticket, err := s.Append(record.Durable, slices.Repeat([][]byte{[]byte("x")}, tc.each)...)
				if err != nil {
					t.Fatal(err)
				}
				tickets = append(tickets, ticket)
			}
			for _, ticket := range tickets {
				if err := ticket.Wait(); err != nil {
					t.Fatal(err)
				}
			}
			if g := tickets[0].head.g; g.waited != tc.waits {
				t.Errorf("%s: waited %v, want %v", tc.name, g.waited, tc.waits)
			}
		}
	})
}
