package wab_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/weir-agent/weir/wab"
	"github.com/weir-agent/weir/wab/record"
	"github.com/weir-agent/weir/wab/vfs"
	"github.com/weir-agent/weir/wab/vfs/vfstest"
	"github.com/weir-agent/weir/wab/wabtest"
)

func crashOptions() wab.Options {
	return wab.Options{SegmentBytes: 64 << 10, MinFreeBytes: -1, MaxBytes: 64 << 20}
}

// scenario is a run of the log that touches every mutating operation: append, rotate, seal, confirm, recycle, close. It goes on
// past errors, as a daemon does.
func scenario(fsys vfs.FS, l *wabtest.Ledger) error {
	for round := range 2 {
		opts := crashOptions()
		opts.FS = fsys
		log, err := wab.Open("", opts)
		if err != nil {
			return err
		}
		s := log.Shards()[0]
		from, _ := s.Cursor()
		r := s.NewReader(from)
		for i := range 12 {
			tier := record.Durable
			if i%4 == 3 {
				tier = record.Buffered
			}
			var batch [][]byte
			for range 1 + i%3 {
				batch = append(batch, l.Payload(100+i*900))
			}
			_ = l.Push(s, tier, batch...)
			if i%5 == 4 {
				// An error of reading is tried again by the next call.
				read, _ := r.Next(nil, 6, 1<<20, wab.Position{})
				l.Confirm(read)
				s.Confirm(r.Position(), nil)
			}
			synctest.Wait()
		}
		if round == 0 {
			_ = l.Push(s, record.Durable, l.Payload(70<<10)) // larger than a segment
		}
		err = errors.Join(r.Close(), log.Close())
		if err != nil && errors.Is(err, vfstest.ErrCrashed) {
			return err
		}
	}
	return nil
}

// images are the states that a power cut may leave.
func images(k int) map[string]vfstest.Choice {
	out := map[string]vfstest.Choice{
		"none": {Keep: vfstest.KeepNone},
		"all":  {Keep: vfstest.KeepAll},
	}
	for i := range 3 {
		out[fmt.Sprint("some", i)] = vfstest.Choice{Keep: vfstest.KeepSome, Seed: uint64(k*10 + i), Garbage: i == 2, BothNames: i == 1}
	}
	return out
}

// verify opens an image, checks the ledger, and checks it again after a second opening.
func verify(t *testing.T, disk *vfstest.Disk, l *wabtest.Ledger, powerCut bool, what string) {
	t.Helper()
	for again := range 2 {
		read, stats, err := wabtest.Reopen(disk, crashOptions())
		if err != nil {
			t.Fatalf("%s, opening %d: %v", what, again, err)
		}
		loss, err := l.Check(read, powerCut)
		if err != nil || loss.Missing > 0 {
			t.Fatalf("%s, opening %d: %v, %d lost: %s\n%v\n%+v", what, again, err, loss.Missing, loss.First, disk.Names(), stats)
		}
	}
}

func TestCrashAtEveryOperation(t *testing.T) {
	var points, acked atomic.Int64
	for k := 1; ; k += stride {
		fired := false
		synctest.Test(t, func(t *testing.T) {
			disk := vfstest.NewDisk()
			inj := vfstest.NewInjector(disk)
			inj.Add(vfstest.Fault{Kinds: vfstest.Mutating, At: k, Crash: true})
			l := wabtest.NewLedger()
			_ = scenario(inj, l)
			fired = len(inj.Fired()) > 0
			acked.Add(int64(l.Acked()))
			for name, choice := range images(k) {
				verify(t, disk.Image(choice), l, true, fmt.Sprintf("crash at operation %d, image %s", k, name))
				points.Add(1)
			}
			verify(t, disk.Kill(), l, false, fmt.Sprintf("kill at operation %d", k))
			points.Add(1)
		})
		if !fired {
			break
		}
	}
	t.Logf("%d crash points, %d records acked", points.Load(), acked.Load())
	if points.Load() < 300/stride || acked.Load() < 1000/stride {
		t.Errorf("too little happened: %d crash points, %d records acked", points.Load(), acked.Load())
	}
}

func TestFailEveryOperation(t *testing.T) {
	for cause, kinds := range map[error][]string{ // what a failure leaves behind does not depend on its name
		syscall.EIO: {"plain", "short", "drop", "late"}, syscall.ENOSPC: {"plain", "short"}, syscall.EMFILE: {"plain"}, syscall.EROFS: {"plain"},
	} {
		for _, kind := range kinds {
			t.Run(fmt.Sprintf("%v/%s", cause, kind), func(t *testing.T) {
				for k := 1; ; k += stride {
					fired := false
					synctest.Test(t, func(t *testing.T) {
						disk := vfstest.NewDisk()
						inj := vfstest.NewInjector(disk)
						f := vfstest.Fault{Kinds: vfstest.Mutating, At: k, Err: cause}
						switch kind {
						case "short":
							f.Kinds, f.Short = vfstest.WriteAt, 100
						case "drop":
							f.Kinds, f.Drop = vfstest.SyncData, true
						case "late":
							f.Late = true
						}
						inj.Add(f)
						l := wabtest.NewLedger()
						err := scenario(inj, l)
						fired = len(inj.Fired()) > 0
						what := fmt.Sprintf("%v (%s) at operation %d %v (scenario: %v)", cause, kind, k, inj.Fired(), err)
						for name, choice := range images(k) {
							verify(t, disk.Image(choice), l, true, what+", image "+name)
						}
						verify(t, disk.Kill(), l, false, what+", kill")
					})
					if !fired {
						break
					}
				}
			})
		}
	}
}
