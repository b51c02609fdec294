package drain_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-agent/weir/drain"
	"github.com/weir-agent/weir/drain/deadletter"
	"github.com/weir-agent/weir/sinks"
	"github.com/weir-agent/weir/sinks/httpsink"
	"github.com/weir-agent/weir/wab"
	"github.com/weir-agent/weir/wab/vfs"
	"github.com/weir-agent/weir/wab/vfs/vfstest"
)

var errRowFault = errors.New("a fault of the row")

// ndjson is a sink that sends a batch as one request.
func ndjson() httpsink.Options { return httpsink.Options{Format: httpsink.FormatNDJSON} }

// refuses is a script that answers each request that holds one of the records with a status.
func refuses(status int, bad ...string) func(int, http.ResponseWriter, *request) bool {
	return func(_ int, w http.ResponseWriter, q *request) bool {
		for _, p := range q.records {
			if slices.Contains(bad, p) {
				w.WriteHeader(status)
				return true
			}
		}
		return false
	}
}

// rowF27: while the dead-letter store fails the refused record stays in the log.
func rowF27(t *testing.T, over wire) {
	e := (&endpoint{script: refuses(http.StatusBadRequest, "bad")}).start(t, over)
	in := vfstest.NewInjector(vfstest.NewDisk())
	r := newRig(t, nil, in)
	in.Add(vfstest.Fault{Kinds: vfstest.SyncData, Err: errRowFault, Sticky: true})
	r.push("bad", "good")
	r.deliver(e, setup{})
	r.until("some failures of the store", func() bool { return len(in.Fired()) >= 3 })
	if n, st := r.backlog(), r.shard(); n != 2 || st.DeadLettered != 0 {
		t.Errorf("the store fails: %d records are unconfirmed, want 2, %d dead, want 0", n, st.DeadLettered)
	}
	in.Clear()
	r.ledger(e, 1)
	if l := r.letters(); len(l) != 1 || l[0].Status != http.StatusBadRequest {
		t.Errorf("letters %+v, want one with status 400", l)
	}
}

// rowF28: requeued letters are delivered under their own ids, and what cannot be read whole is kept.
func rowF28(t *testing.T, over wire) {
	var well atomic.Bool
	e := &endpoint{script: func(_ int, w http.ResponseWriter, _ *request) bool {
		if !well.Load() {
			w.WriteHeader(http.StatusUnprocessableEntity)
		}
		return !well.Load()
	}}
	e.start(t, over)
	disk := vfstest.NewDisk()
	r := newRig(t, nil, disk)
	for _, p := range []string{"letter x", "letter y", "letter z"} {
		r.push(p)
		r.deliver(e, setup{})
		r.until("a dead letter", func() bool { return r.backlog() == 0 })
		r.endDrain()
	}
	r.ledger(e, 3)
	r.halt()
	flip(t, disk, "letter y")
	r.open()
	n, err := r.dead.Requeue(t.Context(), r.acked["letter x"], r.acked["letter y"], r.acked["letter z"])
	if n != 2 || !errors.Is(err, deadletter.ErrNotFound) {
		t.Errorf("Requeue = %d, %v, want 2 and ErrNotFound", n, err)
	}
	well.Store(true)
	r.deliver(e, setup{})
	r.until("the delivery of two letters", func() bool { return r.drain.Stats().Requeued.Delivered == 2 })
	if n := r.dead.Stats().Damages; n != 1 {
		t.Errorf("%d damages are reported, want 1", n)
	}
	kept := false
	for _, name := range disk.Names() {
		data, err := disk.Bytes(name)
		kept = kept || err == nil && bytes.Contains(data, []byte("etter y"))
	}
	if !kept {
		t.Error("the file of the damaged letter is gone")
	}
	r.endDrain()
	e.mu.Lock()
	if e.times["letter x"] != 1 || e.times["letter z"] != 1 || len(e.times) != 2 {
		t.Errorf("taken: %v, want x and z once", e.times)
	}
	e.mu.Unlock()
	for _, err := range r.dead.List() {
		if _, damaged := errors.AsType[*deadletter.CorruptError](err); !damaged {
			t.Errorf("the list has an entry with error %v, want only the damage", err)
		}
	}
}

// flip inverts a bit of the first byte of text, wherever it stands on the disk.
func flip(t *testing.T, disk *vfstest.Disk, text string) {
	t.Helper()
	found := false
	for _, name := range disk.Names() {
		data, err := disk.Bytes(name)
		if at := bytes.Index(data, []byte(text)); err == nil && at >= 0 {
			found = true
			if err := disk.FlipBit(name, int64(at), 1); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !found {
		t.Fatalf("%q is not on the disk", text)
	}
}

// hang is a script that leaves requests unanswered until free is closed or the client has gone.
func hang(free <-chan struct{}) func(int, http.ResponseWriter, *request) bool {
	return func(_ int, w http.ResponseWriter, q *request) bool {
		select {
		case <-free:
			return false
		case <-q.ctx.Done():
			return true
		}
	}
}

// rowF29: a stop while requests are in flight and producers push: each push has a definite answer, and what was acked is
// delivered by the next run.
func rowF29(t *testing.T, over wire) {
	free := make(chan struct{})
	e := (&endpoint{script: hang(free)}).start(t, over)
	r := newRig(t, nil, nil)
	r.push(some("early", 10)...)
	stopsSoon := setup{http: ndjson(), drain: drain.Options{StopTimeout: 100 * time.Millisecond}}
	r.deliver(e, stopsSoon)
	r.until("a request", func() bool { return e.begun.Load() > 0 })
	r.endDrain()
	if n := r.backlog(); n != 10 {
		t.Errorf("%d records are unconfirmed after the stop, want 10", n)
	}
	var producers sync.WaitGroup
	var pushed atomic.Int64
	for i := range 3 {
		producers.Go(func() {
			for k := 0; ; k++ {
				if err := r.append(fmt.Sprint("late ", i, "-", k)); err != nil {
					if !errors.Is(err, wab.ErrClosed) {
						t.Errorf("a push: %v, want ErrClosed", err)
					}
					return
				}
				pushed.Add(1)
			}
		})
	}
	r.until("some pushes", func() bool { return pushed.Load() > 100 })
	r.halt()
	producers.Wait()
	close(free)
	r.open()
	r.deliver(e, stopsSoon)
	r.ledger(e, 0)
}

// rowF30: a damaged record is passed once, is counted and kept, and those around it are delivered.
func rowF30(t *testing.T, over wire) {
	e := (&endpoint{}).start(t, over)
	disk := vfstest.NewDisk()
	r := newRig(t, disk, nil)
	r.push(some("r", 50)...)
	r.halt()
	flip(t, disk, "r-00020")
	r.open()
	r.deliver(e, setup{drain: drain.Options{BatchRecords: 7, MaxInFlight: 1}})
	r.ledger(e, 0, "r-00020")
	r.wantOnce(e)
	if st := r.one.Stats(); st.Damaged != 1 || st.Lost != 1 {
		t.Errorf("damaged %d, lost %d, want 1 and 1", st.Damaged, st.Lost)
	}
	if kept, err := wab.Quarantine(disk); err != nil || len(kept) != 1 {
		t.Errorf("in quarantine: %+v, %v, want one report", kept, err)
	}
	if n := e.taken(); n != 49 {
		t.Errorf("%d records arrived, want 49", n)
	}
}

// rowF31: one refused record in a thousand is found in about 2·log2(n) requests.
func rowF31(t *testing.T, over wire) {
	const most = 21
	for _, status := range []int{http.StatusBadRequest, http.StatusRequestEntityTooLarge} {
		e := (&endpoint{script: refuses(status, "r-00613")}).start(t, over)
		r := newRig(t, nil, nil)
		r.push(some("r", 1000)...)
		r.deliver(e, setup{http: ndjson(), drain: drain.Options{MaxInFlight: 1}})
		r.until("an empty log", func() bool { return r.backlog() == 0 })
		if n := e.begun.Load(); n > most {
			t.Errorf("status %d: %d requests, want %d at most", status, n, most)
		}
		r.push("behind")
		r.ledger(e, 1)
		r.wantOnce(e)
		if l := r.letters(); len(l) == 1 && (string(l[0].Payload) != "r-00613" || l[0].Status != status) {
			t.Errorf("status %d: the letter is %q with %d", status, l[0].Payload, l[0].Status)
		}
	}
}

// rowF32: hundreds of segments at the start are delivered with no more in memory than the window.
func rowF32(t *testing.T, over wire) {
	const batch, window = 20, 2
	e := &endpoint{}
	r := newRig(t, nil, nil)
	e.script = func(int, http.ResponseWriter, *request) bool {
		if n := r.shard().InFlightRecords; n > batch*window {
			t.Errorf("%d records are in flight, want %d at most", n, batch*window)
		}
		return false
	}
	e.start(t, over)
	filler := strings.Repeat("f", 6000)
	for i := range 300 {
		all := some(fmt.Sprint("r", i), 10)
		for k := range all {
			all[k] += filler
		}
		r.push(all...)
	}
	r.halt()
	r.open()
	if n := r.one.Stats().Segments; n < 250 {
		t.Fatalf("only %d segments", n)
	}
	r.deliver(e, setup{http: ndjson(), drain: drain.Options{BatchRecords: batch, MaxInFlight: window}})
	r.ledger(e, 0)
	r.wantOnce(e)
}

// rowF33: a server that reads nothing, never answers, or stops within its answer is given up, and a stop
// does not wait for it.
func rowF33(t *testing.T, over wire) {
	e := &endpoint{
		early: func(n int, _ http.ResponseWriter, r *http.Request) bool {
			if n == 0 {
				_, _ = io.CopyN(io.Discard, r.Body, 10) // and no more, until the client goes
				<-r.Context().Done()
			}
			return n == 0
		},
		script: func(n int, w http.ResponseWriter, q *request) bool {
			if n == 2 {
				w.Header().Set("Content-Length", "1000")
				w.WriteHeader(http.StatusInternalServerError)
				_, _ = io.WriteString(w, "wait")
				_ = http.NewResponseController(w).Flush()
			}
			if n <= 2 {
				<-q.ctx.Done()
			}
			return n <= 2
		},
	}
	e.start(t, over)
	r := newRig(t, nil, nil)
	r.push("one")
	impatient := ndjson()
	impatient.Timeout, impatient.AnswerTimeout = 100*time.Millisecond, 100*time.Millisecond
	r.deliver(e, setup{http: impatient})
	r.ledger(e, 0)
	if n := e.begun.Load(); n < 4 {
		t.Errorf("%d requests, want 4 or more", n)
	}
	r.wantState(drain.Retrying)
	r.endDrain()

	free := make(chan struct{})
	sick := (&endpoint{script: hang(free)}).start(t, over)
	r.push("two")
	r.deliver(sick, setup{http: ndjson(), drain: drain.Options{StopTimeout: 100 * time.Millisecond}})
	r.until("a request", func() bool { return sick.begun.Load() > 0 })
	r.endDrain() // returns although no answer ever comes
	if n := r.backlog(); n != 1 {
		t.Errorf("%d records are unconfirmed after the stop, want 1", n)
	}
	close(free)
	r.deliver(e, setup{http: ndjson()})
	r.ledger(e, 0)
}

// rowF34: however many attempts an outage has cost, delivery resumes by itself.
func rowF34(t *testing.T, over wire) {
	const outage = 200
	e := &endpoint{script: func(n int, w http.ResponseWriter, _ *request) bool {
		if n >= outage {
			return false
		}
		if n%10 == 0 {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(500 + n%5)
		return true
	}}
	e.start(t, over)
	r := newRig(t, nil, nil)
	r.push(some("r", 5)...)
	r.deliver(e, setup{http: ndjson()})
	r.ledger(e, 0)
	r.wantOnce(e)
	if n := e.begun.Load(); n <= outage {
		t.Errorf("%d requests, want more than %d", n, outage)
	}
}

// rowF35: a Retry-After is obeyed within bounds, whatever it says.
func rowF35(t *testing.T, over wire) {
	values := []string{
		"0", "-5", "soon", "1.5", " ", "86400", strings.Repeat("9", 40),
		"Sun, 06 Nov 1994 08:49:37 GMT", "Fri, 31 Dec 9999 23:59:59 GMT", "Sunday, 06-Nov-94 08:49:37 GMT",
	}
	e := &endpoint{script: func(n int, w http.ResponseWriter, _ *request) bool {
		if n < len(values) {
			w.Header().Set("Retry-After", values[n])
			w.WriteHeader([]int{429, 503}[n%2])
		}
		return n < len(values)
	}}
	e.start(t, over)
	r := newRig(t, nil, nil)
	r.push(some("r", 3)...)
	clamped := setup{http: ndjson(), drain: drain.Options{RetryAfterMax: 5 * time.Millisecond}}
	r.deliver(e, clamped)
	r.ledger(e, 0)
	r.wantOnce(e)
	if n := len(e.all()); n != len(values)+1 {
		t.Errorf("%d requests, want %d", n, len(values)+1)
	}
}

// rowF36: an endpoint that comes back gets one request first, and one more at once for each that it has answered.
func rowF36(t *testing.T, over wire) {
	const outage, slowly = 30, 20 * time.Millisecond
	var now, answered atomic.Int64
	e := &endpoint{script: func(n int, w http.ResponseWriter, q *request) bool {
		if n < outage {
			panic(http.ErrAbortHandler)
		}
		may := answered.Load() + 1
		if at := now.Add(1); at > may {
			t.Errorf("%d requests at once after %d were answered", at, may-1)
		}
		select { // a slow endpoint, so that a burst would be seen
		case <-time.After(slowly):
		case <-q.ctx.Done():
		}
		answered.Add(1)
		now.Add(-1)
		return false
	}}
	e.start(t, over)
	r := newRig(t, nil, nil)
	r.push(some("r", 160)...)
	// The batches are bound by bytes, so that the pace, which is in records, leaves the number of requests alone.
	r.deliver(e, setup{http: ndjson(), drain: drain.Options{BatchBytes: 10 * len("r-00000"), MaxInFlight: 8}})
	r.ledger(e, 0)
	r.wantOnce(e)
	r.wantState(drain.Retrying)
}

// rowF37: a backlog of many megabytes is read once and in sequence.
func rowF37(t *testing.T, over wire) {
	e := (&endpoint{}).start(t, over)
	dir, err := vfs.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	in := vfstest.NewInjector(dir)
	r := newRig(t, in, nil)
	r.halt()
	r.segmentBytes = 4 << 20
	r.open()
	size := int64(0)
	for i := range 20 {
		all := some(fmt.Sprint("r", i), 20)
		for k := range all {
			all[k] += strings.Repeat("b", 60<<10)
			size += int64(len(all[k]))
		}
		r.push(all...)
	}
	r.halt()
	r.open() // what it has in memory is gone
	in.Record(vfstest.ReadAt)
	r.deliver(e, setup{http: ndjson(), drain: drain.Options{BatchRecords: 16}})
	r.ledger(e, 0)
	r.wantOnce(e)
	r.endDrain()
	ends := map[string]int64{}
	read, back := int64(0), 0
	for _, op := range in.Log() {
		read += op.Len
		if op.Off < ends[op.Name]-4096 {
			back++
		}
		ends[op.Name] = op.Off + op.Len
	}
	t.Logf("a backlog of %d bytes: %d bytes in %d reads, %d of them not in sequence", size, read, len(in.Log()), back)
	if read < size || read > size+size/4 {
		t.Errorf("%d bytes were read for a backlog of %d", read, size)
	}
}

// panics is a sink whose first calls panic, before or after the sink below has delivered.
type panics struct {
	sinks.Sink
	left atomic.Int32
}

func (s *panics) Deliver(ctx context.Context, b sinks.Batch) []sinks.Outcome {
	n := s.left.Add(-1)
	if n == 0 {
		s.Sink.Deliver(ctx, b)
	}
	if n >= 0 {
		panic(errRowFault)
	}
	return s.Sink.Deliver(ctx, b)
}

// rowF38: a panic of the sink is seen, and is an attempt that failed.
func rowF38(t *testing.T, over wire) {
	e := (&endpoint{}).start(t, over)
	r := newRig(t, nil, nil)
	r.push(some("r", 4)...)
	var told atomic.Int32
	s := setup{http: ndjson(), wrap: func(below sinks.Sink) sinks.Sink {
		p := &panics{Sink: below}
		p.left.Store(3)
		return p
	}}
	s.drain.Observer.Panicked = func(_ int, inSink bool, value any, _ []byte) {
		if inSink && value == errRowFault {
			told.Add(1)
		}
	}
	r.deliver(e, s)
	r.ledger(e, 0)
	r.wantState(drain.Retrying)
	if n := r.shard().SinkPanics; n != 3 || told.Load() != 3 {
		t.Errorf("%d panics are counted and %d were told, want 3", n, told.Load())
	}
	if all := e.all(); len(all) != 2 || all[0].key != all[1].key {
		t.Errorf("%d requests, want 2 with the same key", len(all))
	}
}

// rowF39: a lone record arrives without a second one and without a stop.
func rowF39(t *testing.T, over wire) {
	e := (&endpoint{}).start(t, over)
	r := newRig(t, nil, nil)
	r.deliver(e, setup{drain: drain.Options{Linger: 5 * time.Millisecond}})
	for i, p := range some("lone", 5) {
		r.push(p)
		r.until("a lone record", func() bool { return e.taken() == i+1 })
	}
	r.ledger(e, 0)
	r.wantOnce(e)
}

// rowF40: a trickle that is faster than the linger time does not put the batch off.
func rowF40(t *testing.T, over wire) {
	e := (&endpoint{}).start(t, over)
	r := newRig(t, nil, nil)
	r.deliver(e, setup{http: ndjson(), drain: drain.Options{Linger: 20 * time.Millisecond}})
	n := 0
	r.until("an arrival within the trickle", func() bool {
		r.push(fmt.Sprint("drop ", n))
		n++
		return e.taken() > 0
	})
	r.ledger(e, 0)
	r.wantOnce(e)
}

// rowF41: producers are acked while the server answers nothing.
func rowF41(t *testing.T, over wire) {
	free := make(chan struct{})
	e := (&endpoint{script: hang(free)}).start(t, over)
	r := newRig(t, nil, nil)
	r.deliver(e, setup{http: ndjson(), drain: drain.Options{BatchRecords: 10, MaxInFlight: 2}})
	r.push("first")
	r.until("a request that hangs", func() bool { return e.begun.Load() > 0 })
	for _, p := range some("r", 500) {
		r.push(p)
	}
	if n := e.taken(); n != 0 || r.backlog() != 501 {
		t.Errorf("%d records delivered, %d in the log, want 0 and 501", n, r.backlog())
	}
	close(free)
	r.ledger(e, 0)
	r.wantOnce(e)
}
