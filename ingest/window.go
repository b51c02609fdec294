package ingest

import (
	"sync"
)

// window is what a connection has in flight: lots that were appended and not
// answered yet. The reader puts lots in, the replier takes them out.
type window struct {
	maxRecords, maxBytes int

	mu      sync.Mutex
	changed sync.Cond // of records going down, queue going up, or over
	queue   []lot
	records int // of the lots put in and not done
	bytes   int
	over    bool // nothing more is put in
	started bool
	wg      sync.WaitGroup // the replier
}

func (w *window) init(records, bytes int) {
	w.maxRecords, w.maxBytes = records, bytes
	w.changed.L = &w.mu
}

// idle reports whether nothing is in flight, replies written.
func (w *window) idle() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.records == 0
}

// waitIdle waits for that.
func (w *window) waitIdle() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.records > 0 {
		w.changed.Wait()
	}
}

// room waits until another record may be put in, and returns how many, of how many
// bytes, and whether it had to wait.
func (w *window) room() (records, bytes int, waited bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.records > 0 && (w.records >= w.maxRecords || w.bytes >= w.maxBytes) {
		waited = true
		w.changed.Wait()
	}
	return w.maxRecords - w.records, w.maxBytes - w.bytes, waited
}

// put hands lots to the replier and starts it if this is the first time.
func (w *window) put(c *conn, lots []lot) {
	w.mu.Lock()
	w.queue = append(w.queue, lots...)
	for i := range lots {
		w.records += lots[i].weight()
		w.bytes += lots[i].bytes
	}
	if !w.started {
		w.started = true
		w.wg.Go(c.reply)
	}
	w.mu.Unlock()
	w.changed.Broadcast()
}

// take returns all lots that wait for their replies; none once it is over. spare
// is memory for the next ones.
func (w *window) take(spare []lot) []lot {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.queue) == 0 && !w.over {
		w.changed.Wait()
	}
	lots := w.queue
	w.queue = spare[:0]
	return lots
}

// done says that the replies of lots were written.
func (w *window) done(lots []lot) {
	w.mu.Lock()
	for i := range lots {
		w.records -= lots[i].weight()
		w.bytes -= lots[i].bytes
	}
	w.mu.Unlock()
	w.changed.Broadcast()
}

// finish waits until everything in flight was answered and the replier is gone.
func (w *window) finish() {
	w.mu.Lock()
	w.over = true
	w.mu.Unlock()
	w.changed.Broadcast()
	w.wg.Wait()
}
