package drain

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// feedNice is how far the thread of a feed stands behind the others of the process. Where all processors are busy it still gets a quarter
// of one beside each thread that is not niced.
const feedNice = 5

// ownThread puts the calling goroutine on a thread of its own for the rest of its life, and lets the kernel prefer the other threads to it: what reads
// back and hashes is busy for as long as there is a backlog, and a thread that has to sync or to answer would otherwise wait for the end of
// its time slice. That is milliseconds. The thread ends with the goroutine.
func ownThread() {
	runtime.LockOSThread()
	now, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	if err != nil {
		return
	}
	// The system call gives 20 minus the nice value. Where it is refused, by a filter for example, the thread is as the others are.
	_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), min(20-now+feedNice, 19))
}
