package wab_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-agent/weir/wab"
	"github.com/weir-agent/weir/wab/record"
	"github.com/weir-agent/weir/wab/vfs/vfstest"
	"github.com/weir-agent/weir/wab/wabtest"
)

// TestCloseWaitsForAWriteThatRuns: a segment whose first group is being written is not an empty one.
func TestCloseWaitsForAWriteThatRuns(t *testing.T) {
	for _, tier := range []record.Durability{record.Durable, record.Buffered} {
		synctest.Test(t, func(t *testing.T) {
			disk, inj, log, l, s := rig(t)
			gate := vfstest.NewGate()
			inj.Add(vfstest.Fault{Kinds: vfstest.WriteAt, Gate: gate})
			go l.Push(s, tier, l.Payload(100)) // nacked or acked: the ledger knows
			<-gate.Reached()
			closed := make(chan error)
			go func() { closed <- log.Close() }()
			synctest.Wait()
			gate.Release()
			if err := <-closed; err != nil {
				t.Errorf("Close: %v", err)
			}
			synctest.Wait()
			if l.Acked() != 1 {
				t.Errorf("%v: %d records acked, want 1", tier, l.Acked())
			}
			verify(t, disk, l, false, fmt.Sprint(tier, " record"))
		})
	}
}

// TestBufferedAckBesideAHeldSync: while the disk hangs in an fdatasync, Buffered records are acked, whoever else waits.
func TestBufferedAckBesideAHeldSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, inj, log, l, s := rig(t)
		sync, write := vfstest.NewGate(), vfstest.NewGate()
		inj.Add(vfstest.Fault{Kinds: vfstest.SyncData, Gate: sync})
		push := func(d record.Durability) <-chan error {
			done := make(chan error, 1)
			go func() { done <- l.Push(s, d, l.Payload(100)) }()
			synctest.Wait()
			return done
		}
		first := push(record.Durable)
		<-sync.Reached()
		inj.Add(vfstest.Fault{Kinds: vfstest.WriteAt, Gate: write})
		written := push(record.Buffered) // holds the write turn
		durable := push(record.Durable)  // both wait for the next one
		buffered := push(record.Buffered)
		write.Release()
		synctest.Wait()
		for name, done := range map[string]<-chan error{"the one that was written": written, "the one that gathered": buffered} {
			select {
			case err := <-done:
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
			default:
				t.Errorf("%s: the Buffered record waits for the sync of others", name)
			}
		}
		select {
		case <-first:
			t.Error("a Durable record was acked before its sync")
		case <-durable:
			t.Error("a Durable record was acked before its sync")
		default:
		}
		sync.Release()
		if err := errors.Join(<-first, <-durable); err != nil {
			t.Error(err)
		}
		closeLog(t, log)
		verify(t, disk, l, false, "after the close")
	})
}

// healed lets a log that had a fault run on and checks that no trace of it is left: all is accepted, nothing is
// wrong any more, and what is confirmed goes away.
func healed(t *testing.T, l *wabtest.Ledger, log *wab.Log, what string) {
	t.Helper()
	s := log.Shards()[0]
	pass(3 * time.Second)
	for range 4 {
		for range 12 {
			if err := l.Push(s, record.Durable, l.Payload(9000)); err != nil {
				t.Fatalf("%s: push: %v", what, err)
			}
		}
		if err := l.Push(s, record.Buffered, l.Payload(100)); err != nil {
			t.Fatalf("%s: push: %v", what, err)
		}
		drain(t, l, s)
		pass(3 * time.Second)
	}
	st := s.Stats()
	if len(st.Faults) > 0 || !st.Accepting {
		t.Errorf("%s: still wrong: %+v, accepting: %v", what, st.Faults, st.Accepting)
	}
	if st.Segments > 2 || st.BacklogRecords != 0 {
		t.Errorf("%s: %d segments and %d records are left after all was confirmed", what, st.Segments, st.BacklogRecords)
	}
}

// work is what a daemon does, without opening and closing.
func work(l *wabtest.Ledger, s *wab.Shard) {
	for i := range 14 {
		tier := record.Durable
		if i%4 == 3 {
			tier = record.Buffered
		}
		_ = l.Push(s, tier, l.Payload(100+i*900), l.Payload(20))
		if i%5 == 4 {
			from, _ := s.Cursor()
			r := s.NewReader(from)
			read, _ := r.Next(nil, 100, 1<<20, wab.Position{})
			l.Confirm(read)
			s.Confirm(r.Position(), nil)
			r.Close()
		}
		pass(time.Second)
	}
}

// TestHealsAfterEveryFault fails each operation of a run in turn, once or for a while, and sees the log go on by itself.
func TestHealsAfterEveryFault(t *testing.T) {
	const all = vfstest.Mutating | vfstest.Open | vfstest.OpenRead | vfstest.ReadAt | vfstest.Space
	for _, test := range []struct {
		name  string
		fault vfstest.Fault
	}{
		{"EIO", vfstest.Fault{Kinds: all, Err: syscall.EIO}},
		{"EIO, done nonetheless", vfstest.Fault{Kinds: vfstest.Mutating, Err: syscall.EIO, Late: true}},
		{"dropped pages", vfstest.Fault{Kinds: vfstest.SyncData, Err: syscall.EIO, Drop: true}},
		{"short write", vfstest.Fault{Kinds: vfstest.WriteAt, Err: syscall.ENOSPC, Short: 100}},
		{"no space for a while", vfstest.Fault{Kinds: vfstest.Create | vfstest.WriteAt | vfstest.Preallocate, Err: syscall.ENOSPC, Sticky: true}},
		{"no inodes for a while", vfstest.Fault{Kinds: vfstest.Create | vfstest.Mkdir, Err: syscall.ENOSPC, Sticky: true}},
		{"no files for a while", vfstest.Fault{Kinds: vfstest.Create | vfstest.Open | vfstest.OpenRead, Err: syscall.EMFILE, Sticky: true}},
		{"read-only for a while", vfstest.Fault{Kinds: vfstest.Mutating, Err: syscall.EROFS, Sticky: true}},
	} {
		t.Run(test.name, func(t *testing.T) {
			for k := 1; ; k += stride {
				fired := false
				synctest.Test(t, func(t *testing.T) {
					disk := vfstest.NewDisk()
					inj := vfstest.NewInjector(disk)
					log := open(t, inj)
					synctest.Wait()
					fault := test.fault
					fault.At = k
					inj.Add(fault)
					l := wabtest.NewLedger()
					work(l, log.Shards()[0])
					failures := log.Shards()[0].Stats().Failures
					inj.Clear()
					fired = len(inj.Fired()) > 0
					what := fmt.Sprintf("operation %d", k)
					if fired {
						what = fmt.Sprintf("operation %d: %v, failures %v", k, inj.Fired()[0].Op, failures)
					}
					healed(t, l, log, what)
					for name, choice := range images(k) {
						verify(t, disk.Image(choice), l, true, what+", image "+name)
					}
					closeLog(t, log)
					verify(t, disk, l, false, what)
				})
				if !fired {
					break
				}
			}
		})
	}
}

// TestLowSpacePasses: free space under the limit refuses appends, and they go on when it is back.
func TestLowSpacePasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := vfstest.NewDisk()
		opts := crashOptions()
		opts.FS, opts.MinFreeBytes = disk, 1<<20
		log, err := wab.Open("", opts)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { log.Close() })
		l := wabtest.NewLedger()
		s := log.Shards()[0]
		mustPush(t, l, s, record.Durable, 100)
		disk.SetFree(1000)
		for range 3 { // the first of them wakes the keeper, which looks
			err = l.Push(s, record.Buffered, l.Payload(10))
			pass(time.Second)
		}
		if !errors.Is(err, wab.ErrNoSpace) {
			t.Errorf("with little space: %v", err)
		}
		disk.SetFree(vfstest.DiskBytes)
		pass(5 * time.Second)
		mustPush(t, l, s, record.Durable, 100)
		closeLog(t, log)
		verify(t, disk, l, false, "after the close")
	})
}

// TestLargeRecordThatFoundNoSpace does not keep small ones from being accepted.
func TestLargeRecordThatFoundNoSpace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, _, log, l, s := rig(t)
		disk.SetFree(1 << 20)
		if err := l.Push(s, record.Durable, l.Payload(8<<20)); !errors.Is(err, wab.ErrNoSpace) {
			t.Errorf("a record larger than the disk: %v", err)
		}
		pass(5 * time.Second)
		for range 40 {
			mustPush(t, l, s, record.Durable, 4000)
			pass(time.Second)
		}
		closeLog(t, log)
		verify(t, disk, l, false, "after the close")
	})
}

// TestNewestRecordsAreReadFromMemory: a reader at the end of the log needs no read of a file, over groups of each size, over rotations, and
// in a segment that is larger than the memory; and it gets the bytes that the files hold.
func TestNewestRecordsAreReadFromMemory(t *testing.T) {
	for _, test := range []struct {
		name    string
		segment int64
		size    func(i int) int
	}{
		{"small segments", 64 << 10, func(i int) int { return 1 + i*i%5000 }},
		{"a large segment", 16 << 20, func(i int) int { return 1 + i*i*37%150_000 }},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk, l := vfstest.NewDisk(), wabtest.NewLedger()
				inj := vfstest.NewInjector(disk)
				opts := crashOptions()
				opts.FS, opts.SegmentBytes, opts.MaxBytes = inj, test.segment, 64<<20
				log, err := wab.Open("", opts)
				if err != nil {
					t.Fatal(err)
				}
				s := log.Shards()[0]
				inj.Add(vfstest.Fault{Kinds: vfstest.ReadAt, Err: syscall.EIO, Sticky: true})
				from, _ := s.Cursor()
				r := s.NewReader(from)
				var read []record.Record
				for i := range 200 {
					mustPush(t, l, s, []record.Durability{record.Durable, record.Buffered}[i%2], test.size(i), 1+i%7)
					if read, err = r.Next(read, 100, 1<<20, wab.Position{}); err != nil {
						t.Fatalf("push %d: %v", i, err)
					}
					if len(read) != 2*(i+1) {
						t.Fatalf("push %d: %d records read, want %d", i, len(read), 2*(i+1))
					}
				}
				if err := r.Close(); err != nil {
					t.Fatal(err)
				}
				inj.Clear()
				again := mustRead(t, s)
				same := func(a, b record.Record) bool { return a.ID == b.ID && bytes.Equal(a.Payload, b.Payload) }
				if !slices.EqualFunc(again, read, same) {
					t.Errorf("%d records from the files, %d others from memory", len(again), len(read))
				}
				closeLog(t, log)
			})
		})
	}
}
