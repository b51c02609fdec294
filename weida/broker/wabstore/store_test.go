package wabstore_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/weir-agent/weir/wab"
	"github.com/weir-agent/weir/wab/record"
	"github.com/weir-agent/weir/wab/vfs"
	"github.com/weir-agent/weir/wab/vfs/vfstest"
	"github.com/weir-agent/weir/weida/broker"
	"github.com/weir-agent/weir/weida/broker/wabstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func options(fsys vfs.FS) wabstore.Options {
	return wabstore.Options{
		Log:        wab.Options{FS: fsys, SegmentBytes: 64 << 10, MinFreeBytes: -1, MaxBytes: 16 << 20},
		SlackBytes: 16 << 10,
	}
}

// world is a broker's queue on a disk, and what producers and consumers know of it.
type world struct {
	store     *wabstore.Store
	q         *broker.Queue
	key       broker.Key
	next      int
	bySeq     map[broker.Seq]*broker.Message
	confirmed map[broker.ID]*broker.Message
	delivered map[broker.ID]uint64
	attempts  map[broker.Seq]uint64 // that the store took
	out       []broker.Delivery
	refused   []error
}

func newWorld() *world {
	return &world{confirmed: map[broker.ID]*broker.Message{}, delivered: map[broker.ID]uint64{}, attempts: map[broker.Seq]uint64{}}
}

func (w *world) open(opts wabstore.Options) error {
	store, err := wabstore.Open("", opts)
	if err != nil {
		return err
	}
	st, err := store.Load()
	if err == nil {
		w.q, err = broker.NewQueue(broker.Config{Bytes: 4 << 20, Window: opts.Window}, st)
	}
	if err != nil {
		return errors.Join(err, store.Close())
	}
	w.store, w.out, w.bySeq = store, nil, map[broker.Seq]*broker.Message{}
	w.key = broker.Key{Consumer: 1}
	return w.q.Subscribe(w.key)
}

func (w *world) message(n int) *broker.Message {
	w.next++
	m := &broker.Message{Topic: fmt.Sprint("t.", w.next), ContentType: "c", TraceParent: "p", TraceState: "s", Body: []byte(strings.Repeat("x", n))}
	copy(m.ID[:], fmt.Sprint("id", w.next))
	return m
}

func (w *world) admit(m *broker.Message) {
	if seq, repeat, err := w.q.Admit(m); err == nil && !repeat {
		w.bySeq[seq] = m
	}
}

// run lets the queue do what it can.
func (w *world) run() {
	for w.q.Work() {
		ops := slices.Clone(w.q.Step())
		errs := w.store.Append(ops)
		e := w.q.Done(errs)
		for i, op := range ops {
			if op.Kind == broker.OpAttempt && (errs == nil || errs[i] == nil) {
				w.attempts[op.Seq] = op.Attempt
			}
		}
		for _, seq := range e.Confirmed {
			w.confirmed[w.bySeq[seq].ID] = w.bySeq[seq]
		}
		for _, r := range e.Refused {
			w.refused = append(w.refused, r.Err)
		}
		for _, d := range e.Deliver {
			w.delivered[d.Message.ID]++
			w.out = append(w.out, d)
		}
	}
}

// settle settles all that is out but the first delivery.
func (w *world) settle() {
	for len(w.out) > 1 {
		w.q.Settle(w.out[1].Seq)
		w.out = slices.Delete(w.out, 1, 2)
	}
}

// scenario is a run that touches everything: it admits, hands out, settles all but one, moves that one, closes and goes on.
func scenario(fsys vfs.FS, w *world, opts wabstore.Options) error {
	opts.Log.FS = fsys
	for round := range 2 {
		if err := w.open(opts); err != nil {
			return err
		}
		w.q.Grant(w.key, uint64(40))
		for i := range 12 {
			w.admit(w.message(i * 800))
			w.admit(w.message(10))
			w.run()
			w.settle()
			w.run()
			if i == 5 {
				w.q.Requeue(w.out[0].Seq, w.out[0].Attempt)
				w.out = nil
				w.run()
			}
			if len(w.out) == 0 {
				break // the disk has crashed
			}
		}
		synctest.Wait()
		if err := w.store.Close(); err != nil && round == 0 && errors.Is(err, vfstest.ErrCrashed) {
			return err
		}
	}
	return nil
}

// verify opens an image twice and holds what is there to what the world knows.
func verify(t *testing.T, disk *vfstest.Disk, w *world, what string) {
	t.Helper()
	for again := range 2 {
		store, err := wabstore.Open("", options(disk))
		if err != nil {
			t.Fatalf("%s, opening %d: %v", what, again, err)
		}
		st, err := store.Load()
		if err != nil {
			t.Fatalf("%s, opening %d: Load: %v", what, again, err)
		}
		if err := store.Close(); err != nil {
			t.Fatalf("%s, opening %d: Close: %v", what, again, err)
		}
		live := map[broker.ID]broker.Stored{}
		for i, m := range st.Messages {
			live[m.Message.ID] = m
			if i > 0 && st.Messages[i-1].Seq >= m.Seq || m.Seq >= st.Next {
				t.Fatalf("%s, opening %d: seq %d out of order", what, again, m.Seq)
			}
			if m.Attempts < w.attempts[m.Seq] {
				t.Fatalf("%s, opening %d: %d attempts of %d are known", what, again, m.Attempts, w.attempts[m.Seq])
			}
		}
		if len(live) != len(st.Messages) {
			t.Fatalf("%s, opening %d: a message is there twice", what, again)
		}
		for id, m := range w.confirmed {
			if got, ok := live[id]; ok && !reflect.DeepEqual(got.Message, m) {
				t.Fatalf("%s, opening %d: message %s changed", what, again, m.Topic)
			} else if !ok && !slices.Contains(st.IDs, id) {
				t.Fatalf("%s, opening %d: message %s is lost", what, again, m.Topic)
			} else if !ok && w.delivered[id] == 0 {
				t.Fatalf("%s, opening %d: message %s was never handed out and is gone", what, again, m.Topic)
			}
		}
	}
}

func images(k int) map[string]vfstest.Choice {
	return map[string]vfstest.Choice{
		"none": {Keep: vfstest.KeepNone}, "all": {Keep: vfstest.KeepAll},
		"some": {Keep: vfstest.KeepSome, Seed: uint64(k), Garbage: k%2 == 0, BothNames: k%3 == 0},
	}
}

// everyOperation runs the scenario with a fault at operation k for every k, and verifies what is left.
func everyOperation(t *testing.T, stride int, fault func(k int) vfstest.Fault) {
	var points, confirmed atomic.Int64
	for k := 1; ; k += stride {
		fired := false
		synctest.Test(t, func(t *testing.T) {
			disk := vfstest.NewDisk()
			inj := vfstest.NewInjector(disk)
			inj.Add(fault(k))
			w := newWorld()
			err := scenario(inj, w, options(nil))
			fired = len(inj.Fired()) > 0
			confirmed.Add(int64(len(w.confirmed)))
			for name, choice := range images(k) {
				verify(t, disk.Image(choice), w, fmt.Sprintf("operation %d %v (%v), image %s", k, inj.Fired(), err, name))
				points.Add(1)
			}
			verify(t, disk.Kill(), w, fmt.Sprintf("operation %d %v (%v), kill", k, inj.Fired(), err))
		})
		if !fired {
			break
		}
	}
	t.Logf("%d crash points, %d messages confirmed", points.Load(), confirmed.Load())
	if int(points.Load())*stride < 200 || int(confirmed.Load())*stride < 1000 {
		t.Errorf("too little happened: %d crash points, %d messages confirmed", points.Load(), confirmed.Load())
	}
}

func TestCrashAtEveryOperation(t *testing.T) {
	everyOperation(t, stride, func(k int) vfstest.Fault { return vfstest.Fault{Kinds: vfstest.Mutating, At: k, Crash: true} })
}

func TestFailEveryOperation(t *testing.T) {
	for name, fault := range map[string]vfstest.Fault{
		"EIO":     {Kinds: vfstest.Mutating, Err: syscall.EIO},
		"ENOSPC":  {Kinds: vfstest.Mutating, Err: syscall.ENOSPC},
		"short":   {Kinds: vfstest.WriteAt, Err: syscall.ENOSPC, Short: 100},
		"dropped": {Kinds: vfstest.SyncData, Err: syscall.EIO, Drop: true},
	} {
		t.Run(name, func(t *testing.T) {
			everyOperation(t, stride, func(k int) vfstest.Fault {
				fault.At = k
				return fault
			})
		})
	}
}

func TestReopen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := vfstest.NewDisk()
		w := newWorld()
		if err := w.open(options(disk)); err != nil {
			t.Fatal(err)
		}
		large := w.message(2500 << 10)
		for i := range large.Body {
			large.Body[i] = byte(i % 251)
		}
		settled := w.message(3)
		w.admit(large)
		w.admit(settled)
		w.admit(&broker.Message{})
		w.q.Grant(w.key, 2)
		w.run()
		w.q.Settle(2)
		w.run()
		w.q.Requeue(1, 1)
		w.q.Grant(w.key, 3)
		w.run()
		if err := w.store.Close(); err != nil {
			t.Fatal(err)
		}
		store, err := wabstore.Open("", options(disk))
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		got, err := store.Load()
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Messages) != 2 || got.Messages[1].Message.Body == nil {
			t.Fatalf("%d messages", len(got.Messages))
		}
		got.Messages[1].Message.Body = nil // an empty body
		want := broker.State{
			Messages: []broker.Stored{{Seq: 1, Message: large, Attempts: 2}, {Seq: 3, Message: &broker.Message{}}},
			IDs:      []broker.ID{settled.ID}, Next: 4,
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("IDs %v, Next %d, attempts %d and %d, or another body", got.IDs, got.Next, got.Messages[0].Attempts, got.Messages[1].Attempts)
		}
	})
}

func TestOneStuckMessageDoesNotKeepTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := vfstest.NewDisk()
		opts := options(disk)
		opts.Window = 10
		w := newWorld()
		if err := w.open(opts); err != nil {
			t.Fatal(err)
		}
		w.q.Grant(w.key, 1<<20)
		for range 1000 {
			w.admit(w.message(8 << 10))
			w.run()
			w.settle()
			w.run()
		}
		<-time.After(2 * time.Second) // the log removes segments in the background
		synctest.Wait()
		if len(w.refused) > 0 || len(w.confirmed) != 1000 {
			t.Fatalf("%d confirmed, refused: %v", len(w.confirmed), w.refused)
		}
		segments := 0
		for _, name := range disk.Names() {
			if strings.Contains(name, "/seg_") {
				segments++
			}
		}
		if segments > 6 { // 8 MB went through segments of 64 KiB
			t.Errorf("%d segments are kept", segments)
		}
		if err := w.store.Close(); err != nil {
			t.Fatal(err)
		}
		again := newWorld()
		if err := again.open(opts); err != nil {
			t.Fatal(err)
		}
		defer again.store.Close()
		again.q.Grant(again.key, 9)
		again.run()
		if len(again.out) != 1 || again.out[0].Seq != 1 || again.out[0].Attempt != 2 {
			t.Errorf("after a restart %v, want the second attempt of message 1", again.out)
		}
		if _, repeat, _ := again.q.Admit(again.message(1)); !repeat {
			t.Error("the id of the stuck message is not known")
		}
		if seq, repeat, _ := again.q.Admit(w.message(1)); repeat || seq != 1001 {
			t.Errorf("a new message: seq %d, repeat %t", seq, repeat)
		}
	})
}

func TestDiskFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := vfstest.NewDisk()
		inj := vfstest.NewInjector(disk)
		w := newWorld()
		if err := w.open(options(inj)); err != nil {
			t.Fatal(err)
		}
		defer func() { w.store.Close() }()
		w.admit(w.message(100))
		w.run()
		inj.Add(vfstest.Fault{Kinds: vfstest.WriteAt | vfstest.Create | vfstest.Preallocate, Err: syscall.ENOSPC, Sticky: true})
		for range 5 {
			w.admit(w.message(100))
			w.run()
		}
		if len(w.refused) != 5 || len(w.confirmed) != 1 {
			t.Fatalf("%d refused, %d confirmed on a full disk", len(w.refused), len(w.confirmed))
		}
		w.q.Grant(w.key, 9)
		w.run()
		if len(w.out) != 1 {
			t.Fatalf("%d deliveries on a full disk, want 1", len(w.out))
		}
		inj.Clear()
		for range 10 { // the log tries for a new segment once a second
			<-time.After(time.Second)
			synctest.Wait()
		}
		w.admit(w.message(100))
		w.run()
		if len(w.confirmed) != 2 {
			t.Errorf("with space again: %d confirmed, refused: %v", len(w.confirmed), w.refused)
		}
	})
}

func TestFormat(t *testing.T) {
	for name, payload := range map[string][]byte{
		"unknown kind": {99}, "cut message": {1, 1}, "cut attempt": {3, 1}, "cut settlement": {4}, "cut ids": {5, 1, 2}, "body longer than said": append(append([]byte{1, 1, 0}, make([]byte, 32+4+1)...), 7),
	} {
		t.Run(name, func(t *testing.T) {
			disk := vfstest.NewDisk()
			log, err := wab.Open("", options(disk).Log)
			if err != nil {
				t.Fatal(err)
			}
			ticket, err := log.Shards()[0].Append(record.Durable, payload)
			if err = errors.Join(err, ticket.Wait(), log.Close()); err != nil {
				t.Fatal(err)
			}
			store, err := wabstore.Open("", options(disk))
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			if _, err := store.Load(); !errors.Is(err, wabstore.ErrFormat) {
				t.Errorf("Load: %v, want ErrFormat", err)
			}
		})
	}
}

// A log at its cap is never stuck: messages are refused before there is no room to move what is alive, and admitted again when some were settled. Small changes,
// each of which takes a sector on disk, make it no longer than it may be.
func TestLogIsNeverStuckAtItsCap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts := options(vfstest.NewDisk())
		opts.Log.MaxBytes = 2 << 20
		w := newWorld()
		if err := w.open(opts); err != nil {
			t.Fatal(err)
		}
		fill := func() (admitted int) {
			for n := len(w.refused); len(w.refused) == n; admitted++ {
				w.admit(w.message(4 << 10))
				w.run()
			}
			return admitted
		}
		first := fill()
		if !errors.Is(w.refused[0], wabstore.ErrFull) || first < 100 {
			t.Fatalf("%d admitted, then %v", first, w.refused[0])
		}
		for round := range 20 {
			w.q.Grant(w.key, uint64(1000*(round+1)))
			w.run()
			for range 200 { // the first message comes back again and again
				w.q.Requeue(w.out[0].Seq, w.out[0].Attempt)
				w.out = w.out[1:]
				w.run()
				w.out = append(w.out[len(w.out)-1:], w.out[:len(w.out)-1]...)
			}
			w.settle()
			w.run()
			again := 0
			for range 5 { // as a producer does that was refused
				<-time.After(time.Second) // the log removes segments in the background
				synctest.Wait()
				again += fill()
			}
			if again < first/2 {
				t.Fatalf("round %d: %d admitted after all but one were settled, %d at first: %v", round, again, first, w.refused[len(w.refused)-1])
			}
		}
		if err := w.store.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
