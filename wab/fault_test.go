package wab_test

import (
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-agent/weir/wab"
	"github.com/weir-agent/weir/wab/record"
	"github.com/weir-agent/weir/wab/vfs/vfstest"
	"github.com/weir-agent/weir/wab/wabtest"
)

// TestAbandonedGroupIsNackedWhole: after a short write no record of the group is acked, whatever is synced later (F2).
func TestAbandonedGroupIsNackedWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, inj, log, l, s := rig(t)
		inj.Add(vfstest.Fault{Kinds: vfstest.WriteAt, Err: syscall.ENOSPC, Short: 500})
		ticket, err := s.Append(record.Durable, l.Payload(10), l.Payload(10), l.Payload(2000))
		if err != nil {
			t.Fatal(err)
		}
		if err := ticket.Wait(); !errors.Is(err, wab.ErrRetired) || !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("Wait: %v", err)
		}
		for i := range ticket.Len() {
			if ticket.Err(i) == nil {
				t.Errorf("record %d of the abandoned group is acked", i)
			}
		}
		mustPush(t, l, s, record.Durable, 100)
		closeLog(t, log)
	})
}

// TestFailedSyncIsFinal: a file whose sync failed is never written or synced again, and what it held before stays readable (F3).
func TestFailedSyncIsFinal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, inj, log, l, s := rig(t)
		mustPush(t, l, s, record.Durable, 100)
		inj.Add(vfstest.Fault{Kinds: vfstest.SyncData, Name: "shard_00/seg_00000001-*", Err: syscall.EIO, Drop: true})
		if err := l.Push(s, record.Durable, l.Payload(100)); !errors.Is(err, wab.ErrRetired) {
			t.Errorf("push: %v", err)
		}
		inj.Record(vfstest.WriteAt | vfstest.SyncData | vfstest.Truncate)
		mustPush(t, l, s, record.Durable, 100)
		pass(5 * time.Second)
		if got := len(mustRead(t, s)); got < 2 {
			t.Errorf("%d records can be read, want those that were acked", got)
		}
		closeLog(t, log)
		for _, op := range inj.Log() {
			if strings.HasPrefix(op.Name, "shard_00/seg_00000001-") {
				t.Errorf("after the failed sync: %v", op)
			}
		}
		verify(t, disk.Image(vfstest.Choice{Keep: vfstest.KeepNone}), l, true, "power cut")
	})
}

// TestWriteBesideAFailedSync: a group whose write runs while the sync of its file fails is nacked, and the file is left alone (F3).
func TestWriteBesideAFailedSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, inj, log, l, s := rig(t)
		sync, write := vfstest.NewGate(), vfstest.NewGate()
		inj.Add(vfstest.Fault{Kinds: vfstest.SyncData, Gate: sync, Err: syscall.EIO, Drop: true})
		durable, buffered := make(chan error, 1), make(chan error, 1)
		go func() { durable <- l.Push(s, record.Durable, l.Payload(100)) }()
		<-sync.Reached()
		inj.Add(vfstest.Fault{Kinds: vfstest.WriteAt, Gate: write})
		go func() { buffered <- l.Push(s, record.Buffered, l.Payload(100)) }()
		<-write.Reached()
		sync.Release()
		synctest.Wait()
		inj.Record(vfstest.WriteAt | vfstest.SyncData | vfstest.Truncate)
		write.Release()
		for tier, done := range map[string]chan error{"durable": durable, "buffered": buffered} {
			if err := <-done; !errors.Is(err, wab.ErrRetired) {
				t.Errorf("%s: %v", tier, err)
			}
		}
		mustPush(t, l, s, record.Durable, 100)
		pass(2 * time.Second)
		closeLog(t, log)
		for _, op := range inj.Log() {
			if strings.HasPrefix(op.Name, "shard_00/seg_00000001-") {
				t.Errorf("after the failed sync: %v", op)
			}
		}
		verify(t, disk.Image(vfstest.Choice{Keep: vfstest.KeepNone}), l, true, "power cut")
	})
}

// TestCursorIsPerRecord: records that come into a segment after part of it was confirmed are not skipped (F14).
func TestCursorIsPerRecord(t *testing.T) {
	disk, l := vfstest.NewDisk(), wabtest.NewLedger()
	log := open(t, disk)
	s := log.Shards()[0]
	mustPush(t, l, s, record.Durable, 10, 10)
	drain(t, l, s)
	mustPush(t, l, s, record.Durable, 10, 10, 10)
	closeLog(t, log)
	if out := reopen(t, disk, l); out.missing > 0 || len(out.read) != 3 || out.read[0].Index != 3 {
		t.Errorf("%d records, %d missing: %v", len(out.read), out.missing, out.read)
	}
}

// TestBadOptionsTouchNothing (F19).
func TestBadOptionsTouchNothing(t *testing.T) {
	for name, opts := range map[string]wab.Options{
		"shards": {Shards: 65}, "segment": {SegmentBytes: 4096}, "group records": {GroupRecords: -1},
		"group bytes": {GroupBytes: 1 << 30}, "cap": {MaxBytes: -5}, "interval": {SyncInterval: -1},
	} {
		disk := vfstest.NewDisk()
		opts.FS = disk
		if log, err := wab.Open("", opts); err == nil {
			closeLog(t, log)
			t.Errorf("%s: accepted", name)
		}
		if names := disk.Names(); len(names) > 0 {
			t.Errorf("%s: made %v", name, names)
		}
	}
}

// TestEqualPayloadsHaveTheirOwnIDs, within a batch, a segment, a shard and over shards (F20).
func TestEqualPayloadsHaveTheirOwnIDs(t *testing.T) {
	disk := vfstest.NewDisk()
	opts := crashOptions()
	opts.FS, opts.Shards = disk, 2
	ids := map[record.ID]bool{}
	for range 3 {
		log, err := wab.Open("", opts)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range log.Shards() {
			ticket, err := s.Append(record.Durable, []byte("same"), []byte("same"))
			if err == nil {
				err = ticket.Wait()
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		closeLog(t, log)
	}
	read, _, err := wabtest.Reopen(disk, opts)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range read {
		ids[r.ID] = true
	}
	if len(read) != 12 || len(ids) != 12 {
		t.Errorf("%d records have %d ids, want 12 each", len(read), len(ids))
	}
}

// TestUnreadableSegmentIsPassed: reads that fail for ever delay the reader a bounded number of times; what cannot be read is counted (F30).
func TestUnreadableSegmentIsPassed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, l := sealedLog(t, 3)
		inj := vfstest.NewInjector(disk)
		log := open(t, inj)
		s := log.Shards()[0]
		pass(time.Second)
		inj.Add(vfstest.Fault{Kinds: vfstest.ReadAt, Name: segments(t, disk)[1], Err: syscall.EIO, Sticky: true})
		from, _ := s.Cursor()
		r := s.NewReader(from)
		var read []record.Record
		failed := 0
		for range 40 {
			var err error
			if read, err = r.Next(read, 100, 1<<20, wab.Position{}); err != nil {
				failed++
			}
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		if len(read) != 20 || failed == 0 || failed > 10 {
			t.Errorf("%d records, want the 20 of the other segments; %d calls failed", len(read), failed)
		}
		if st := s.Stats(); st.Lost != 10 {
			t.Errorf("%d records are counted as lost, want 10", st.Lost)
		}
		l.Confirm(read)
		closeLog(t, log)
	})
}

// TestReaderPassesWhatWasCutWhileItRan: a file that gets shorter under the log is damage like any other.
func TestReaderPassesWhatWasCutWhileItRan(t *testing.T) {
	disk, l := sealedLog(t, 2)
	log := open(t, disk)
	if err := disk.Cut(segments(t, disk)[0], 3000); err != nil {
		t.Fatal(err)
	}
	r := log.Shards()[0].NewReader(wab.Position{})
	var read []record.Record
	for range 20 {
		var err error
		if read, err = r.Next(read, 100, 1<<20, wab.Position{}); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatal(err)
		}
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	loss, err := l.Check(read, false)
	if err != nil || loss.Missing == 0 || int64(loss.Missing) != log.Shards()[0].Stats().Lost {
		t.Errorf("%d records are missing, %d are counted, %v", loss.Missing, log.Shards()[0].Stats().Lost, err)
	}
	closeLog(t, log)
}

// TestStatsAreRecomputed: what is left is known again after a restart (F53).
func TestStatsAreRecomputed(t *testing.T) {
	disk, l := sealedLog(t, 3)
	log := open(t, disk)
	s := log.Shards()[0]
	r := s.NewReader(wab.Position{})
	if _, err := r.Next(nil, 13, 1<<20, wab.Position{}); err != nil {
		t.Fatal(err)
	}
	s.Confirm(r.Position(), nil)
	before := s.Stats()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	closeLog(t, log)
	log = open(t, disk)
	after := log.Shards()[0].Stats()
	if after.BacklogRecords != 17 || before.BacklogRecords != 17 || after.Confirmed != before.Confirmed || after.BacklogBytes <= 0 || after.Oldest.IsZero() {
		t.Errorf("backlog %d records, %d bytes, confirmed %v, oldest %v; before %d, %v", after.BacklogRecords, after.BacklogBytes, after.Confirmed, after.Oldest, before.BacklogRecords, before.Confirmed)
	}
	closeLog(t, log)
	_ = l
}
