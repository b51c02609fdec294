package wab

import (
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/weir-agent/weir/wab/record"
	"github.com/weir-agent/weir/wab/vfs"
)

func (s *Shard) waitSpan(p *span, d record.Durability) error {
	if p.g == nil {
		return p.err
	}
	s.mu.Lock()
	p.err = s.waitLocked(p.g, d)
	s.mu.Unlock()
	return p.err
}

// waitLocked returns the outcome of g's records of tier d. Until it is known it takes the turns that
// are free and needed, or sleeps. Called with mu held, which it releases meanwhile.
//
// Nobody sleeps who could go on: a goroutine looks under mu before it sleeps, and whoever ends a turn calls handover.
func (s *Shard) waitLocked(g *group, d record.Durability) error {
	for {
		if err, ok := g.outcome(d); ok {
			return err
		}
		switch {
		case g == s.gather && s.mayWrite(g, d):
			if d != record.Durable || g.full || !s.gatherMore(g) {
				s.write(g)
			}
		case g.written && !s.syncing:
			s.sync()
		default:
			s.sleep(g, d)
		}
	}
}

const (
	// A group gathers on for at most gatherMost, and at most the gatherShare-th part of what its sync will take.
	gatherMost  = 200 * time.Microsecond
	gatherShare = 3
	// gatherRounds bounds it where the clock stands still.
	gatherRounds = 1000
)

// gatherMore lets a group gather on for a moment where the last one was shared by at least twice as many appends with twice as many records: those
// producers have just got their acks, and their next records are on the way. Without it a few records
// would have a sync of their own, and all others wait for the one after it. A lone producer never waits. It
// reports whether mu was released; then the caller looks anew.
func (s *Shard) gatherMore(g *group) bool {
	if g.waited || 2*g.appends > s.lastAppends || 2*g.count > s.lastRecords {
		return false
	}
	g.waited = true
	s.syncing = true // the turn that this group is about to use
	wantAppends, wantRecords, most := s.lastAppends, s.lastRecords, min(gatherMost, s.lastSync/gatherShare)
	began := time.Now()
	for rounds := 0; rounds < gatherRounds && time.Since(began) < most && g == s.gather && g.appends < wantAppends && g.count < wantRecords; rounds++ {
		s.mu.Unlock()
		runtime.Gosched()
		s.mu.Lock()
	}
	s.syncing = false
	if g != s.gather { // somebody else wrote it, or it failed: the turn is free for whoever needs it
		s.moved()
		s.handover()
	}
	return true
}

// mayWrite reports whether the gathering group is to be written now: a Durable record waits until the
// sync turn is free too, so that the group gathers while another one is synced.
func (s *Shard) mayWrite(g *group, d record.Durability) bool {
	return s.writing == nil && (d != record.Durable || g.full || !s.syncing)
}

func (s *Shard) sleep(g *group, d record.Durability) {
	ch := &g.syncedCh
	if d != record.Durable {
		ch = &g.writtenCh
	}
	if *ch == nil {
		*ch = make(chan struct{})
	}
	slot := tierSlot(d)
	if g.lead[slot] == nil {
		g.lead[slot] = make(chan struct{}, 1)
	}
	done, lead := *ch, g.lead[slot]
	g.sleepers[slot]++
	s.mu.Unlock()
	select {
	case <-done:
	case <-lead:
	}
	s.mu.Lock()
	g.sleepers[slot]--
}

// handover offers the free turns to a sleeper that can use them. Called with mu held whenever a turn ends.
func (s *Shard) handover() {
	if g := s.gather; g != nil && s.writing == nil {
		if g.sleepers[1] > 0 {
			g.token(1)
			return
		}
		if g.sleepers[0] > 0 && (g.full || !s.syncing) {
			g.token(0)
			return
		}
	}
	if s.syncing {
		return
	}
	for _, g := range s.unsynced {
		if g.sleepers[0] > 0 {
			g.token(0)
			return
		}
	}
}

// write takes the write turn for the gathering group. Called with mu held, which
// it releases for the I/O.
func (s *Shard) write(g *group) {
	f := g.file
	before := f.tail
	g.prevEnd, g.prevIndex = f.tail, g.first-1
	g.start = f.place()
	out := g.enc.Seal(g.start, f.synced, g.time)
	g.end = g.start + int64(len(out))
	f.tail = g.end
	s.gather, s.writing = nil, g
	if g.durable {
		s.lastAppends, s.lastRecords = g.appends, g.count
	}
	file := f.file
	s.mu.Unlock()
	_, err := file.WriteAt(out, g.start)
	if err == nil {
		s.hot.add(f, g.start, out, s.log.opts.SegmentBytes)
	}
	s.mu.Lock()
	s.writing = nil
	s.release(g.enc)
	g.enc = nil
	if err == nil {
		err = f.failed
	}
	if err != nil {
		s.log.used.Add(-g.charged)
		s.retire(f, "write", fmt.Errorf("wab: write to %s: %w", f.name, err))
		g.fail(fmt.Errorf("%w: %w", ErrRetired, err))
		s.handover()
		return
	}
	s.log.used.Add(g.end - before - g.charged)
	f.off, f.index, f.last = g.end, g.first+uint64(g.count)-1, g.time
	s.counts.appended += uint64(g.count)
	s.counts.groups++
	s.restoredLocked("write")
	fresh := f.off > f.synced && s.markDirty(f)
	g.setWritten()
	if g.durable {
		s.unsynced = append(s.unsynced, g)
	} else {
		s.moved()
	}
	signalIf(s.keep, fresh && !g.durable || f.closed)
	s.handover()
}

func signalIf(ch chan struct{}, yes bool) {
	if yes {
		signal(ch)
	}
}

// markDirty books that f has unsynced bytes, and reports whether it had none.
func (s *Shard) markDirty(f *segmentFile) bool {
	if slices.Contains(s.dirty, f) {
		return false
	}
	if len(s.dirty) == 0 {
		s.dirtySince = time.Now()
	}
	s.dirty = append(s.dirty, f)
	return true
}

// moved wakes the readers that wait. Called with mu held.
func (s *Shard) moved() {
	wake(s.arrived)
	s.arrived = nil
}

type syncTarget struct {
	f    *segmentFile
	file vfs.File // f's, which a retirement may take away meanwhile
	off  int64
	took time.Duration
	err  error
}

// sync takes the sync turn: it syncs each file with unsynced bytes, in order. Called with mu held,
// which it releases for the I/O.
//
// A group that is written to a file while the sync of that file runs may or may not
// be covered by it; only what was written before it began counts.
func (s *Shard) sync() {
	s.syncing = true
	s.dirtySince = time.Now() // what is written from now on is left over
	targets := make([]syncTarget, 0, 2)
	for _, f := range s.dirty {
		f.fence = f.off
		targets = append(targets, syncTarget{f: f, file: f.file, off: f.off})
	}
	s.mu.Unlock()
	for i := range targets {
		began := time.Now()
		targets[i].err = targets[i].file.SyncData()
		targets[i].took = time.Since(began)
		if targets[i].err == nil {
			s.log.observeSync(s.number, targets[i].took)
		}
	}
	s.mu.Lock()
	s.syncing = false
	for _, t := range targets {
		s.syncDone(t)
	}
	s.settle()
	s.moved()
	signalIf(s.keep, len(targets) > 1 || !s.saveAsked || len(s.dirty) > 0)
	s.saveAsked = true
	s.handover()
}

// syncDone books the end of one file's sync.
func (s *Shard) syncDone(t syncTarget) {
	s.counts.syncs++
	s.health.syncTime(t.took)
	s.lastSync = t.took
	switch {
	case t.err != nil:
		s.retire(t.f, "sync", fmt.Errorf("wab: sync %s: %w", t.f.name, t.err))
	case t.f.failed != nil: // retired meanwhile: its groups are nacked
	default:
		s.restoredLocked("sync")
		t.f.synced = t.off
		if t.f.off == t.off {
			s.dropDirty(t.f)
		}
	}
}

func (s *Shard) dropDirty(f *segmentFile) {
	for i, d := range s.dirty {
		if d == f {
			s.dirty = append(s.dirty[:i], s.dirty[i+1:]...)
			return
		}
	}
}

// settle tells the groups that are synced now, in order.
func (s *Shard) settle() {
	rest := s.unsynced[:0]
	for _, g := range s.unsynced {
		switch {
		case g.end <= g.file.synced:
			s.counts.synced += uint64(g.count)
			g.setSynced()
		case g.err != nil:
		default:
			rest = append(rest, g)
		}
	}
	clear(s.unsynced[len(rest):])
	s.unsynced = rest
}

// retire ends the life of a file whose write or sync failed: it is never written or synced again, the
// records in it that wait for a sync are nacked, and the gathering group moves to the next
// file. What was written stays readable. Called with mu held.
func (s *Shard) retire(f *segmentFile, step string, err error) {
	s.failedLocked(step, err)
	if f.failed != nil {
		return
	}
	f.failed = err
	f.closed = true
	f.tail = f.off
	s.dropDirty(f)
	nack := fmt.Errorf("%w: %w", ErrRetired, err)
	for _, g := range s.unsynced {
		if g.file == f {
			g.fail(nack)
		}
	}
	s.settle()
	s.moved()
	if s.active == f {
		s.replaceActive(nack)
	}
	signal(s.prepare)
	signal(s.keep)
}

// replaceActive goes on in the prepared segment, if there is one.
func (s *Shard) replaceActive(nack error) {
	s.active = nil
	g := s.gather
	if s.next != nil && (g == nil || s.next.holds(g.enc.Bytes()+8)) {
		s.activate()
		if g != nil {
			g.file, g.first = s.active, 1
			g.enc.Rebind(s.active.header.Nonce, 1)
		}
		return
	}
	if g != nil {
		s.gather = nil
		s.log.used.Add(-g.charged)
		s.release(g.enc)
		g.enc = nil
		g.fail(nack)
	}
}
