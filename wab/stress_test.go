package wab_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-agent/weir/wab"
	"github.com/weir-agent/weir/wab/record"
	"github.com/weir-agent/weir/wab/vfs/vfstest"
	"github.com/weir-agent/weir/wab/wabtest"
)

// TestDurableRecordsGatherBehindAHeldSync: what comes while the disk syncs shares the next sync.
func TestDurableRecordsGatherBehindAHeldSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, inj, log, l, s := rig(t)
		gate := vfstest.NewGate()
		inj.Add(vfstest.Fault{Kinds: vfstest.SyncData, Gate: gate})
		before := s.Stats().Syncs
		const producers = 20
		done := make(chan error, producers)
		for range producers {
			go func() { done <- l.Push(s, record.Durable, l.Payload(50)) }()
			synctest.Wait()
		}
		if l.Acked() > 0 {
			t.Errorf("%d records were acked before any sync", l.Acked())
		}
		if read := mustRead(t, s); len(read) > 0 {
			t.Errorf("%d records can be read before they are durable", len(read))
		}
		gate.Release()
		for range producers {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if syncs := s.Stats().Syncs - before; syncs != 2 {
			t.Errorf("%d syncs for one record and %d that came during its sync, want 2", syncs, producers-1)
		}
		closeLog(t, log)
	})
}

// TestHeldWrite: nothing is acked while the disk hangs in a write, of either tier, and all of it afterwards.
func TestHeldWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, inj, log, l, s := rig(t)
		gate := vfstest.NewGate()
		inj.Add(vfstest.Fault{Kinds: vfstest.WriteAt, Gate: gate})
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				if err := l.Push(s, []record.Durability{record.Durable, record.Buffered}[i%2], l.Payload(3000), l.Payload(5)); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		if l.Acked() > 0 || len(mustRead(t, s)) > 0 {
			t.Errorf("%d records were acked, %d can be read, while the first write runs", l.Acked(), len(mustRead(t, s)))
		}
		gate.Release()
		wg.Wait()
		verify(t, disk.Image(vfstest.Choice{Keep: vfstest.KeepNone}), l, true, "image")
		closeLog(t, log)
	})
}

func mustRead(t *testing.T, s *wab.Shard) []record.Record {
	t.Helper()
	read, err := wabtest.ReadAll(s)
	if err != nil {
		t.Fatal(err)
	}
	return read
}

// TestNoSpaceAtEveryByte lets the disk be full after each of many numbers of bytes, and lifts that (F11, F12).
func TestNoSpaceAtEveryByte(t *testing.T) {
	for free := int64(0); free < 220_000; free += 2741 * stride {
		synctest.Test(t, func(t *testing.T) {
			disk, _, log, l, s := rig(t)
			mustPush(t, l, s, record.Durable, 100)
			disk.SetFree(free)
			for range 40 {
				_ = l.Push(s, record.Durable, l.Payload(7000)) // booked by the ledger
				_ = l.Push(s, record.Buffered, l.Payload(700))
			}
			what := fmt.Sprintf("%d bytes free", free)
			if st := s.Stats(); st.RefusedRecords+st.Failures["write"] == 0 || len(st.Faults) == 0 {
				t.Fatalf("%s: nothing was refused: %+v", what, st)
			}
			for name, choice := range images(int(free)) {
				image := disk.Image(choice)
				image.SetFree(vfstest.DiskBytes)
				verify(t, image, l, true, what+", image "+name)
			}
			drain(t, l, s) // progress needs no space
			pass(5 * time.Second)
			if st := s.Stats(); st.BacklogRecords > 0 {
				t.Errorf("%s: %d records of backlog after all was confirmed", what, st.BacklogRecords)
			}
			disk.SetFree(vfstest.DiskBytes)
			healed(t, l, log, what)
			closeLog(t, log)
			verify(t, disk, l, false, what)
		})
	}
}

// TestDrainedLogFreesAFullDisk: with no free byte at all, confirming makes room and appends go on (F12).
func TestDrainedLogFreesAFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := vfstest.NewDisk()
		log := open(t, disk)
		l := wabtest.NewLedger()
		s := log.Shards()[0]
		mustPush(t, l, s, record.Durable, 100)
		pass(2 * time.Second) // the cursor file is there
		disk.SetFree(500_000)
		for range 200 {
			if l.Push(s, record.Durable, l.Payload(7000)) != nil {
				break
			}
		}
		disk.SetFree(0)
		drain(t, l, s)
		pass(3 * time.Second)
		for range 30 {
			mustPush(t, l, s, record.Durable, 7000)
			drain(t, l, s)
			pass(2 * time.Second)
		}
		closeLog(t, log)
		verify(t, disk, l, false, "after the close")
	})
}

// TestProducersWhileFaultsFire runs producers of both tiers, a drain that confirms, readers that look on, and images of power cuts, while
// operations fail, are held and go on. Afterwards the log is closed beside the last of the pushes.
func TestProducersWhileFaultsFire(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			disk := vfstest.NewDisk()
			inj := vfstest.NewInjector(disk)
			opts := crashOptions()
			opts.FS, opts.GroupRecords, opts.GroupBytes = inj, 1+int(seed)*7, 3000<<seed
			opts.SyncInterval, opts.CursorInterval, opts.RetryInterval = time.Millisecond, time.Millisecond, time.Millisecond
			log, err := wab.Open("", opts)
			if err != nil {
				t.Fatal(err)
			}
			st := &stress{t: t, disk: disk, inj: inj, l: wabtest.NewLedger(), s: log.Shards()[0], seed: seed}
			st.run(log)
			verify(t, disk.Image(vfstest.Choice{Seed: seed}), st.l, true, "power cut behind the close")
			verify(t, disk, st.l, false, "reopened")
			if st.l.Acked() < 500 || !st.enough() {
				t.Errorf("too little happened: %d records acked, %d faults", st.l.Acked(), len(inj.Fired()))
			}
		})
	}
}

type stress struct {
	t    *testing.T
	disk *vfstest.Disk
	inj  *vfstest.Injector
	l    *wabtest.Ledger
	s    *wab.Shard
	seed uint64

	confirming sync.Mutex // no confirm between a snapshot of the ledger and the image
	pushed     atomic.Int64
}

const (
	stressPushes = 250 // by each producer, or more, until there were stressFaults, but no more than stressMost
	stressMost   = 20 * stressPushes
	stressFaults = 8
)

// enough reports whether as many operations failed or were held as an idle run would not have.
func (st *stress) enough() bool { return len(st.inj.Fired()) >= stressFaults }

func (st *stress) run(log *wab.Log) {
	var producers, others sync.WaitGroup
	ctx, cancel := context.WithCancel(st.t.Context())
	for p := range 6 {
		producers.Go(func() { st.produce(uint64(p)) })
	}
	others.Go(func() { st.drain(ctx) })
	others.Go(func() { st.look(ctx) })
	others.Go(func() { st.breakThings(ctx) })
	others.Go(func() { st.takeImages(ctx) })
	// The log is closed while the last pushes run: each gets a definite answer.
	for pushed := int64(0); pushed < 6*stressPushes*9/10 || !st.enough() && pushed < 6*stressMost*9/10; pushed = st.pushed.Load() {
		if err := st.s.NewReader(wab.Position{}).Wait(ctx); err != nil {
			st.t.Error(err)
		}
		pause(1)
	}
	cancel()
	others.Wait()
	_ = log.Close() // a fault may still be armed; the ledger says whether anything is lost
	producers.Wait()
}

// pause lets other goroutines go on for a moment.
func pause(n int) {
	for range 50 * n {
		runtime.Gosched()
	}
}

func (st *stress) produce(p uint64) {
	rng := rand.New(rand.NewPCG(st.seed, p))
	for n := 0; n < stressPushes || n < stressMost && !st.enough(); n++ {
		var batch [][]byte
		for range 1 + rng.IntN(1+rng.IntN(8)) {
			batch = append(batch, st.l.Payload(1+rng.IntN(1+rng.IntN(3000))))
		}
		err := st.l.Push(st.s, []record.Durability{record.Durable, record.Buffered}[rng.IntN(2)], batch...)
		if errors.Is(err, wab.ErrNoSpace) {
			pause(20)
		}
		st.pushed.Add(1)
	}
}

func (st *stress) drain(ctx context.Context) {
	from, _ := st.s.Cursor()
	r := st.s.NewReader(from)
	defer func() { _ = r.Close() }()
	for r.Wait(ctx) == nil {
		read, _ := r.Next(nil, 40, 1<<20, wab.Position{}) // an injected error is tried again
		st.confirming.Lock()
		st.l.Confirm(read)
		st.s.Confirm(r.Position(), []wab.Position{r.Position()})
		st.confirming.Unlock()
	}
}

// look reads from the start again and again, behind the cursor too, where segments go while it reads.
func (st *stress) look(ctx context.Context) {
	for ctx.Err() == nil {
		r := st.s.NewReader(wab.Position{})
		for range 5 {
			_, _ = r.Next(nil, 100, 1<<20, wab.Position{}) // injected
		}
		_ = r.Close()
		if lost := st.s.Stats().Lost; lost > 0 {
			st.t.Errorf("%d records are said to be lost", lost)
			return
		}
		pause(1)
	}
}

func (st *stress) breakThings(ctx context.Context) {
	rng := rand.New(rand.NewPCG(st.seed, 99))
	for ctx.Err() == nil {
		f := vfstest.Fault{Kinds: vfstest.Mutating, At: 1 + rng.IntN(20), Err: syscall.EIO}
		switch rng.IntN(7) {
		case 0:
			f.Kinds, f.Drop = vfstest.SyncData, true
		case 1:
			f.Kinds, f.Short = vfstest.WriteAt, 1+rng.IntN(700)
		case 2:
			f.Late = true
		case 3:
			f.Kinds, f.Err = vfstest.OpenRead|vfstest.ReadAt|vfstest.Open|vfstest.Create, syscall.EMFILE
		default: // a slow disk
			gate := vfstest.NewGate()
			f.Err, f.Gate = nil, gate
			f.Kinds = []vfstest.Kind{vfstest.SyncData, vfstest.WriteAt, vfstest.Rename | vfstest.SyncDir, vfstest.OpenRead | vfstest.ReadAt}[rng.IntN(4)]
			st.inj.Add(f)
			pause(30)
			gate.Release()
			continue
		}
		st.inj.Add(f)
		pause(30)
		if rng.IntN(3) == 0 {
			st.inj.Clear()
		}
	}
	st.inj.Clear()
}

func (st *stress) takeImages(ctx context.Context) {
	for seed := st.seed * 1000; ctx.Err() == nil; seed++ {
		st.confirming.Lock()
		known := st.l.Snapshot()
		image := st.disk.Image(vfstest.Choice{Seed: seed, Garbage: seed%2 == 0, BothNames: seed%3 == 0})
		st.confirming.Unlock()
		read, _, err := wabtest.Recover(image, crashOptions())
		if err != nil {
			st.t.Errorf("image %d: %v", seed, err)
			return
		}
		if loss, err := known.Check(read, true); err != nil || loss.Missing > 0 {
			st.t.Errorf("image %d: %v, %d records are lost: %s", seed, err, loss.Missing, loss.First)
			return
		}
		pause(5)
	}
}
