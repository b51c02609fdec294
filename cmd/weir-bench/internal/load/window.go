package load

import (
	"sync/atomic"
	"time"
)

// window is the frames of a connection that are not answered, in order, at most so many as it was made for. One goroutine sends, another one takes the
// answers; neither costs the other more than an atomic access for a frame.
type window struct {
	began    []time.Time // when each was written or due; a ring
	sent     atomic.Int64
	answered atomic.Int64
	ended    atomic.Bool // no more will be sent
	failed   atomic.Bool // no more answers will come
	waiting  atomic.Bool // the sender waits for room
	freed    chan struct{}
}

func newWindow(frames int) window {
	return window{began: make([]time.Time, max(1, frames)), freed: make(chan struct{}, 1)}
}

// room waits until there is room and returns for how many frames; 0 means that the reader has given up.
func (w *window) room() int {
	for {
		if w.failed.Load() {
			return 0
		}
		if n := len(w.began) - int(w.sent.Load()-w.answered.Load()); n > 0 {
			return n
		}
		w.waiting.Store(true)
		if w.failed.Load() || w.sent.Load()-w.answered.Load() < int64(len(w.began)) {
			w.waiting.Store(false)
			continue
		}
		<-w.freed
	}
}

// send notes a frame that is about to be written. There is room for it.
func (w *window) send(at time.Time) {
	n := w.sent.Load()
	w.began[n%int64(len(w.began))] = at
	w.sent.Store(n + 1)
}

// oldest is when the frame that is answered next was written or due.
func (w *window) oldest() time.Time { return w.began[w.answered.Load()%int64(len(w.began))] }

// answer takes the oldest frame out.
func (w *window) answer() { w.answered.Add(1) }

// wake lets the sender see what has become free.
func (w *window) wake() {
	if w.waiting.Load() && (w.failed.Load() || w.sent.Load()-w.answered.Load() < int64(len(w.began))) && w.waiting.CompareAndSwap(true, false) {
		w.freed <- struct{}{}
	}
}

// giveUp says that no more answers will come.
func (w *window) giveUp(err error) {
	if err != nil {
		w.failed.Store(true)
		w.wake()
	}
}

// end says that no more will be sent, and reports whether nothing is unanswered.
func (w *window) end() bool {
	w.ended.Store(true)
	return w.over()
}

// over reports whether no more will be sent and all of it was answered.
func (w *window) over() bool { return w.ended.Load() && w.sent.Load() == w.answered.Load() }
