package wab

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"time"

	"github.com/weir-agent/weir/wab/segment"
	"github.com/weir-agent/weir/wab/vfs"
)

// spareFiles is how many confirmed segments are kept to be used again.
const spareFiles = 2

// runKeeper does, off the commit path, what has to be done behind it: the sync of Buffered records, sealing,
// the cursor, removal. Each step can fail, or the process die, at any point of it; it is then done again.
func (s *Shard) runKeeper() {
	// The first run is by a signal: a timer that is due at once trips the race detector's runtime in a synctest bubble.
	signal(s.keep)
	timer := time.NewTimer(s.log.opts.RetryInterval)
	defer timer.Stop()
	var k keeper
	for {
		select {
		case <-s.stop:
			return
		case <-s.keep:
		case <-timer.C:
		}
		if wait := k.run(s); wait > 0 {
			timer.Reset(wait)
		}
	}
}

// keeper holds when the steps with an interval were last done.
type keeper struct {
	saved time.Time
}

// run does what is due and returns when to look again at the latest; 0: when woken.
func (k *keeper) run(s *Shard) time.Duration {
	s.log.look()
	s.flushEvents()
	wait := s.syncBuffered()
	failed := s.sealClosed()
	if due := s.log.opts.CursorInterval - time.Since(k.saved); due > 0 && s.cursorWaits() {
		wait = earlier(wait, due)
	} else {
		if err := s.StoreCursor(); err != nil && !errors.Is(err, ErrClosed) {
			failed = true
		}
		k.saved = time.Now()
	}
	if s.removeConfirmed() {
		failed = true
	}
	if failed || s.degraded() || s.log.LowSpace() {
		wait = earlier(wait, s.log.opts.RetryInterval)
	}
	s.flushEvents()
	return wait
}

func earlier(a, b time.Duration) time.Duration {
	if a == 0 || b < a {
		return b
	}
	return a
}

// syncBuffered syncs what no producer waits for, once it is old enough.
func (s *Shard) syncBuffered() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.dirty) == 0 {
		return 0
	}
	if s.syncing {
		return s.log.opts.SyncInterval
	}
	if due := s.log.opts.SyncInterval - time.Since(s.dirtySince); due > 0 && !s.dirty[0].closed {
		return due
	}
	s.sync()
	return 0
}

// sealClosed completes each segment that takes no more groups. It reports whether something failed.
func (s *Shard) sealClosed() (failed bool) {
	for {
		f := s.nextToSeal()
		if f == nil {
			return failed
		}
		if err := s.seal(f); err != nil {
			s.note("seal", err)
			return true
		}
		s.restored("seal")
	}
}

func (s *Shard) nextToSeal() *segmentFile {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.segs {
		if f.closed && !f.sealed && f.failed == nil && f.final() && f.off == f.synced && !f.nonceless {
			return f
		}
	}
	return nil
}

// seal writes the footer, cuts the file to its length, syncs it and gives it its final
// name: the commit point. Nobody else writes or syncs a file that is closed and synced.
func (s *Shard) seal(f *segmentFile) error {
	file := f.file
	if file == nil {
		var err error
		if file, err = s.log.fs.Open(f.name); err != nil {
			return fmt.Errorf("wab: seal %s: %w", f.name, err)
		}
	}
	at := segment.SectorUp(f.off)
	foot := segment.Footer{Records: f.index, End: f.off, First: f.first, Last: f.last}
	foot.Back, foot.BackRecords = s.witness(f)
	err := writeAll(file, segment.AppendFooter(nil, foot, f.header.Nonce, at), at)
	if err == nil {
		err = file.Truncate(at + segment.FooterBytes)
	}
	if err == nil {
		err = file.SyncData()
	}
	if err != nil {
		err = fmt.Errorf("wab: seal %s: %w", f.name, errors.Join(err, file.Close()))
		s.mu.Lock()
		f.failed, f.file = err, nil // readable as it is; sealed after the next start
		s.mu.Unlock()
		return err
	}
	sealed := s.path(f.stemName() + sealedSuffix)
	if err := s.rename(f, sealed); err != nil {
		s.mu.Lock()
		f.file = file
		s.mu.Unlock()
		return fmt.Errorf("wab: seal %s: %w", f.name, err)
	}
	s.mu.Lock()
	f.name, f.size, f.sealed, f.file = sealed, at+segment.FooterBytes, true, nil
	s.counts.sealed++
	s.mu.Unlock()
	if err := errors.Join(file.Close(), s.log.fs.SyncDir(s.dir)); err != nil {
		return fmt.Errorf("wab: seal %s: %w", f.name, err) // the old name may come back; it is sealed again then
	}
	return nil
}

// witness returns what f's footer says of the segment before it.
func (s *Shard) witness(f *segmentFile) (back, records uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := len(s.segs) - 1; i >= 0; i-- {
		if b := s.segs[i]; b.number < f.number && b.index > 0 {
			if f.number-b.number > math.MaxUint32 || b.index > math.MaxUint32 {
				return 0, 0
			}
			return uint32(f.number - b.number), uint32(b.index)
		}
	}
	return 0, 0
}

// rename gives a segment's file another name. A rename that fails may have been done all the same, or half, with both names there: the
// new name counts where it leads to the file with f's nonce.
func (s *Shard) rename(f *segmentFile, name string) error {
	err := s.log.fs.Rename(f.name, name)
	if err == nil || !s.isNamed(f, name) {
		return err
	}
	if e := s.log.fs.Remove(f.name); e != nil && !errors.Is(e, fs.ErrNotExist) {
		return errors.Join(err, e)
	}
	return nil
}

func (s *Shard) isNamed(f *segmentFile, name string) bool {
	file, err := s.log.fs.OpenRead(name)
	if err != nil {
		return false
	}
	defer file.Close() // read only
	head := make([]byte, segment.HeaderBytes)
	n, err := readFull(file, head, 0)
	if err != nil {
		return false
	}
	h, _, err := segment.ParseHeader(head[:n])
	return err == nil && h == f.header
}

// Cursor returns the position of the first record that is not confirmed, and the marks
// that were stored with it.
func (s *Shard) Cursor() (Position, []Position) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cursor, append([]Position(nil), s.marks...)
}

// Confirm says that every record before pos is done with. marks are positions behind pos, in order, at most MaxMarks
// (more are dropped), that the caller wants back from Cursor after a restart.
// It takes effect in memory at once, and reaches the disk within CursorInterval and at Close.
// Segments that are wholly confirmed are recycled or removed after that. A pos before the cursor changes the marks only, and one behind the last record
// counts as the end: what is appended later is never confirmed in advance.
func (s *Shard) Confirm(pos Position, marks []Position) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.segs); n == 0 {
		pos = s.cursor
	} else if end := (Position{Segment: s.segs[n-1].number, Index: s.segs[n-1].index + 1}); end.Before(pos) {
		pos = end
	}
	if s.cursor.Before(pos) {
		s.cursor = pos
	}
	s.marks = append(s.marks[:0], marks[:min(len(marks), MaxMarks)]...)
	s.cursorDirty = true
	signal(s.keep)
}

func (s *Shard) cursorWaits() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cursorDirty || s.syncedPosition() != s.savedSynced
}

// syncedPosition is the last record that is known to be on stable storage in the newest segment that has one.
func (s *Shard) syncedPosition() Position {
	for i := len(s.segs) - 1; i >= 0; i-- {
		if f := s.segs[i]; f.failed == nil && f.synced == f.off && f.index > 0 && (f.sealed || !f.recovered) {
			return Position{Segment: f.number, Index: f.index}
		}
	}
	return Position{}
}

// StoreCursor stores what Confirm was told, if it is not stored yet, and returns when it is on stable storage. It is for those who
// must know that before they go on; all others leave it to the background.
func (s *Shard) StoreCursor() error {
	select {
	case s.cursorTurn <- struct{}{}:
	case <-s.stop:
		return ErrClosed
	}
	defer func() { <-s.cursorTurn }()
	return s.saveCursor()
}

// saveCursor stores the cursor if it moved. The caller has the cursor turn, or is the last goroutine of the shard.
func (s *Shard) saveCursor() error {
	s.mu.Lock()
	s.saveAsked = false
	st := cursorState{next: s.cursor, highest: s.lastNumber, synced: s.syncedPosition(), marks: append([]Position(nil), s.marks...)}
	if !s.cursorDirty && st.synced == s.savedSynced {
		s.mu.Unlock()
		return nil
	}
	s.cursorDirty = false
	s.mu.Unlock()
	if err := s.cursorFile.save(s.log.fs, s.dir, st); err != nil {
		s.mu.Lock()
		s.cursorDirty = true
		s.mu.Unlock()
		s.note("cursor", err)
		return err
	}
	s.mu.Lock()
	s.savedSynced, s.savedNext, s.savedHighest = st.synced, st.next, st.highest
	s.mu.Unlock()
	s.restored("cursor")
	return nil
}

// removeConfirmed recycles or removes the segments before the stored cursor.
func (s *Shard) removeConfirmed() (failed bool) {
	if s.removeLeftovers() {
		failed = true
	}
	skip := map[*segmentFile]bool{} // those that failed: others are not to wait for them
	for {
		f, spare := s.nextToRemove(skip)
		if f == nil {
			if !failed {
				s.restored("remove")
			}
			return failed
		}
		if err := s.discard(f, spare); err != nil {
			s.note("remove", err)
			skip[f], failed = true, true
			continue
		}
		s.mu.Lock()
		s.segs = without(s.segs, f)
		s.log.used.Add(-f.bytes())
		if spare {
			s.recyclable = append(s.recyclable, f)
		}
		signal(s.prepare) // it may have lacked space
		s.mu.Unlock()
	}
}

// nextToRemove returns the first segment that is wholly confirmed, on disk too, and whether it is to be used again.
func (s *Shard) nextToRemove(skip map[*segmentFile]bool) (f *segmentFile, spare bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.segs {
		done := f.number < s.savedNext.Segment || f.number == s.savedNext.Segment && s.savedNext.Index > f.index
		if !done || !f.final() || !f.sealed && f.failed == nil && !f.nonceless {
			return nil, false
		}
		if skip[f] || f.untouched {
			continue
		}
		fits := f.size > s.log.opts.SegmentBytes/2 && f.size <= s.log.opts.SegmentBytes
		return f, s.writable && f.sealed && fits && !f.keep && len(s.recyclable) < spareFiles
	}
	return nil, false
}

// discard removes a segment's file or makes it a spare one. What is not known to be free of damage is
// verified first.
func (s *Shard) discard(f *segmentFile, spare bool) error {
	s.mu.Lock()
	suspect, file := f.keep, f.file
	f.file = nil
	s.mu.Unlock()
	if suspect {
		if err := s.verify(f); err != nil {
			return err
		}
	}
	if file != nil {
		s.note("remove", file.Close()) // a retired file
	}
	if !spare {
		if err := s.log.fs.Remove(f.name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("wab: remove %s: %w", f.name, err)
		}
		return nil // a name that comes back after a crash is before the cursor
	}
	if name := s.path(f.stemName() + spareSuffix); f.name != name { // else an earlier try failed behind the rename
		if err := s.rename(f, name); err != nil {
			return fmt.Errorf("wab: recycle %s: %w", f.name, err)
		}
		f.name = name
	}
	// The old name must be gone for good before the file gets other contents.
	if err := s.log.fs.SyncDir(s.dir); err != nil {
		return fmt.Errorf("wab: recycle %s: %w", f.name, err)
	}
	return nil
}

// removeLeftovers removes the segments without a record that recovery found. They may have held records that a power cut took after they
// were delivered, so their numbers must be stored before their names go.
func (s *Shard) removeLeftovers() (failed bool) {
	s.mu.Lock()
	stored := s.savedHighest
	s.mu.Unlock()
	var rest []*segmentFile
	for _, f := range s.leftovers {
		if f.number > stored {
			rest = append(rest, f)
			continue
		}
		if err := s.log.fs.Remove(f.name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.note("remove", fmt.Errorf("wab: remove %s: %w", f.name, err))
			rest, failed = append(rest, f), true
		}
	}
	s.leftovers = rest
	return failed
}

func without(segs []*segmentFile, f *segmentFile) []*segmentFile {
	if i := slices.Index(segs, f); i > 0 {
		return slices.Delete(slices.Clone(segs), i, i+1)
	} else if i == 0 {
		return segs[1:]
	}
	return segs
}

// verify walks a confirmed segment once and quarantines the damage in it.
func (s *Shard) verify(f *segmentFile) error {
	file, err := s.openRead(f)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("wab: verify %s: %w", f.name, err)
	}
	defer file.Close() // read only
	return s.verifyFile(f, file)
}

func (s *Shard) verifyFile(f *segmentFile, file vfs.File) error {
	if f.nonceless {
		return s.quarantine(f, file, Damage{Segment: f.addr, Length: f.size, FirstIndex: 1, Lost: -1, Reason: "neither header nor groups verify", Found: s.now()})
	}
	w := window{file: file, sc: segment.NewScanner(f.header.Nonce, segment.HeaderBytes, 1, f.off), patch: true}
	for {
		it, err := w.next()
		if err != nil {
			return fmt.Errorf("wab: verify %s: %w", f.name, err)
		}
		switch it.Kind {
		case segment.Record:
		case segment.Damage, segment.Tail:
			if err := s.quarantine(f, file, s.damage(f, it)); err != nil {
				return err
			}
		default:
			return nil
		}
	}
}

// damage describes an item of f.
func (s *Shard) damage(f *segmentFile, it segment.Item) Damage {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := Damage{Segment: f.addr, Offset: it.Off, Length: it.Len, FirstIndex: it.Index, Lost: int64(it.Lost), Reason: it.Reason, Durable: it.Durable || f.sealed || it.Off < f.synced, Found: s.now()}
	if it.Kind == segment.Tail {
		d.Lost = int64(f.index + 1 - it.Index)
		d.Reason = "the end of the segment does not verify"
	}
	return d
}
