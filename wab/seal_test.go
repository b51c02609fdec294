package wab_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-agent/weir/wab"
	"github.com/weir-agent/weir/wab/record"
	"github.com/weir-agent/weir/wab/vfs/vfstest"
	"github.com/weir-agent/weir/wab/wabtest"
)

// TestSeal: a seal ends the active segment and no other, its records stay readable in order, and appends go on behind it.
func TestSeal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, l := vfstest.NewDisk(), wabtest.NewLedger()
		log := open(t, disk)
		s := log.Shards()[0]
		if err := s.Seal(); err != nil {
			t.Fatalf("Seal of an empty segment: %v", err)
		}
		pass(time.Second)
		if got := files(t, disk, "shard_00", ".wab.sealed"); len(got) != 0 {
			t.Errorf("an empty segment was sealed: %q", got)
		}
		for range 2 {
			mustPush(t, l, s, record.Durable, 100, 200)
			mustPush(t, l, s, record.Buffered, 300)
			if err := s.Seal(); err != nil {
				t.Fatalf("Seal: %v", err)
			}
			pass(time.Second)
		}
		mustPush(t, l, s, record.Durable, 50)
		if got := files(t, disk, "shard_00", ".wab.sealed"); len(got) != 2 {
			t.Errorf("sealed segments %q, want 2", got)
		}
		states := s.SegmentStates(10)
		if len(states) != 3 || states[0].Records != 3 || !states[1].Sealed || !states[2].Active || states[2].Sealed || states[2].Records != 1 || states[2].Confirmed != 0 {
			t.Errorf("states %+v", states)
		}
		if got := s.SegmentStates(1); len(got) != 1 || got[0] != states[2] {
			t.Errorf("the newest state is %+v, want %+v", got, states[2])
		}
		r := s.NewReader(wab.Position{})
		read, err := r.Next(nil, 5, 1<<20, wab.Position{})
		if err != nil || len(read) != 5 {
			t.Fatalf("Next: %d records, %v", len(read), err)
		}
		s.Confirm(r.Position(), nil)
		if states = s.SegmentStates(10); states[0].Confirmed != 3 || states[1].Confirmed != 2 {
			t.Errorf("after a confirm: states %+v", states)
		}
		l.Confirm(read)
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		if got := drain(t, l, s); len(got) != 2 {
			t.Errorf("%d records are left, want 2", len(got))
		}
		closeLog(t, log)
		if err := s.Seal(); !errors.Is(err, wab.ErrClosed) {
			t.Errorf("Seal of a closed log: %v", err)
		}
	})
}

// TestSealUnderLoad: seals between the appends of several producers lose nothing and never fail.
func TestSealUnderLoad(t *testing.T) {
	log := open(t, vfstest.NewDisk())
	s := log.Shards()[0]
	const producers, each, seals = 4, 100, 40
	var wg sync.WaitGroup
	for p := range producers {
		wg.Go(func() {
			for i := range each {
				ticket, err := s.Append([]record.Durability{record.Durable, record.Buffered}[i%2], fmt.Appendf(nil, "%d/%d", p, i))
				if err == nil {
					err = ticket.Wait()
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range seals {
		if err := s.Seal(); err != nil {
			t.Error(err)
		}
	}
	wg.Wait()
	read, err := wabtest.ReadAll(s)
	if err != nil {
		t.Fatal(err)
	}
	if len(read) != producers*each {
		t.Errorf("%d records, want %d", len(read), producers*each)
	}
	closeLog(t, log)
}
