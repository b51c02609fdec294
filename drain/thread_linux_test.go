package drain

import (
	"context"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weir-agent/weir/wab"
)

// TestFeedHasItsOwnThread: the thread of a feed stands behind the others, and what runs on theirs later is as it was.
func TestFeedHasItsOwnThread(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := &priorityFeed{seen: make(chan int, 1)}
	r := &round{lane: &lane{drain: &Drain{}}, gone: make(chan struct{})}
	close(r.gone)
	r.wg.Go(func() { r.runFeed(t.Context(), f) })
	got := <-f.seen
	r.wg.Wait()
	if want := max(before-feedNice, 1); got != want { // 20 minus the nice value
		t.Errorf("the feed has priority %d, the others %d, want %d", got, before, want)
	}
	if after, err := unix.Getpriority(unix.PRIO_PROCESS, 0); err != nil || after != before {
		t.Errorf("the thread of the caller has priority %d (%v), had %d", after, err, before)
	}
}

// priorityFeed says which priority the thread has that it is called on.
type priorityFeed struct{ seen chan int }

func (f *priorityFeed) next(context.Context) (batch, error) {
	p, _ := unix.Getpriority(unix.PRIO_PROCESS, unix.Gettid())
	f.seen <- p
	return batch{}, wab.ErrClosed
}

func (f *priorityFeed) close() error { return nil }
