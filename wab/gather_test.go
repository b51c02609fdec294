package wab

import (
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
		shared := func(appends int) {
			s.mu.Lock()
			s.lastAppends, s.lastSync = appends, time.Second // of the last group
			s.mu.Unlock()
		}
		groups := func() uint64 { return s.Stats().Groups }

		shared(2)
		before := groups()
		first, err := s.Append(record.Durable, []byte("first"))
		if err != nil {
			t.Fatal(err)
		}
		second := make(chan error, 1)
		go func() {
			ticket, err := s.Append(record.Durable, []byte("second"))
			if err == nil {
				err = ticket.Wait()
			}
			second <- err
		}()
		if err := first.Wait(); err != nil {
			t.Fatal(err)
		}
		if err := <-second; err != nil {
			t.Fatal(err)
		}
		if n := groups() - before; n != 1 {
			t.Errorf("two producers who share take %d groups, want 1", n)
		}

		shared(1)
		ticket, err := s.Append(record.Durable, []byte("lone"))
		if err != nil {
			t.Fatal(err)
		}
		s.mu.Lock()
		waited := s.gatherMore(s.gather)
		s.mu.Unlock()
		if waited {
			t.Error("a lone producer was made to wait")
		}
		if err := ticket.Wait(); err != nil {
			t.Fatal(err)
		}
	})
}
