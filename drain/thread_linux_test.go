package drain

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"testing"
	"time"

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

// TestThreadOfAFeedEndsWithIt: nothing else is ever run on a thread that stands behind the others, whether the feed ended or panicked.
func TestThreadOfAFeedEndsWithIt(t *testing.T) {
	for _, panics := range []bool{false, true} {
		f := &threadFeed{panics: panics}
		// The main thread of a process cannot end; Go parks it for good, so that it is met once at most.
		for f.thread = os.Getpid(); f.thread == os.Getpid(); {
			r := &round{lane: &lane{drain: &Drain{}}, gone: make(chan struct{})}
			close(r.gone)
			r.wg.Go(func() { r.runFeed(t.Context(), f) })
			r.wg.Wait()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		for task := fmt.Sprintf("/proc/self/task/%d", f.thread); ctx.Err() == nil; runtime.Gosched() {
			if _, err := os.Stat(task); errors.Is(err, fs.ErrNotExist) {
				break
			}
		}
		if ctx.Err() != nil {
			t.Errorf("the thread of a feed is still there; the feed panicked: %v", panics)
		}
		cancel()
	}
}

// threadFeed notes its thread, and ends.
type threadFeed struct {
	thread int
	panics bool
}

func (f *threadFeed) next(context.Context) (batch, error) {
	f.thread = unix.Gettid()
	if f.panics {
		panic("test")
	}
	return batch{}, wab.ErrClosed
}

func (f *threadFeed) close() error { return nil }
