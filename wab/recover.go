package wab

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/weir-agent/weir/wab/segment"
	"github.com/weir-agent/weir/wab/vfs"
)

// lostNumbers is more than the highest number of one slot of the cursor file is ahead of the other's, of which either may be
// lost. No name goes before a slot has its number.
const lostNumbers = 1000

// recoverShard reads what a shard's folder holds and makes it readable. It only reads, but for files that
// never held an acked record (temporary and spare ones, segments without a record);
// what else has to be mended is done later, and again after a death, by the keeper. A folder that is fresh gets its cursor
// file, so that one without it has lost it.
func (s *Shard) recoverShard(fresh bool) error {
	entries, err := s.log.fs.ReadDir(s.dir)
	if err != nil {
		return fmt.Errorf("wab: list %s: %w", s.dir, err)
	}
	s.cursorFile = cursorFile{name: s.path(cursorName), instance: s.log.instance, shard: s.number}
	state, err := s.cursorFile.load(s.log.fs)
	if err != nil {
		return err // what it says is a hint, but the numbers that it keeps from being used again are not known elsewhere
	}
	if fresh {
		if err := s.cursorFile.create(s.log.fs, s.dir, state); err != nil {
			return err
		}
	}
	s.lastNumber, s.savedHighest = state.highest, state.highest
	switch { // nothing else may tell any more which numbers were used
	case s.cursorFile.generation == 0:
		s.lastNumber = uint64(max(0, s.now().UnixMicro()))
	case s.cursorFile.damaged:
		s.lastNumber += lostNumbers
	}
	// Sealed names come first: the same file under its older name, too, is what a rename in two steps leaves.
	// This folder's own come before what is of another one and has the same number.
	own := fmt.Sprintf("-%016x.", s.log.instance)
	rank := func(name string) int {
		return 2*boolInt(!strings.HasSuffix(name, sealedSuffix)) + boolInt(!strings.Contains(name, own))
	}
	slices.SortStableFunc(entries, func(a, b vfs.Entry) int { return cmp.Compare(rank(a.Name), rank(b.Name)) })
	found := map[uint64]*segmentFile{}
	for _, e := range entries {
		name, ok := parseSegmentName(e.Name)
		if !ok {
			if e.Name != cursorName {
				s.ignore(e.Name, "not a name of weir's")
			}
			continue
		}
		s.lastNumber = max(s.lastNumber, name.number)
		if err := s.recoverEntry(e, name, state, found); err != nil {
			return err
		}
		if n := len(s.segs); n > 0 {
			found[s.segs[n-1].number] = s.segs[n-1]
		}
	}
	slices.SortFunc(s.segs, func(a, b *segmentFile) int {
		if a.number < b.number {
			return -1
		}
		return 1
	})
	s.missSegments(state)
	s.restoreCursor(state)
	return nil
}

func (s *Shard) recoverEntry(e vfs.Entry, name segmentName, state cursorState, found map[uint64]*segmentFile) error {
	switch {
	case !e.Mode.IsRegular():
		s.ignore(e.Name, "not a regular file")
	case name.suffix == tempSuffix, name.suffix == spareSuffix:
		if err := s.log.fs.Remove(s.path(e.Name)); err != nil {
			s.note("remove", fmt.Errorf("wab: remove %s: %w", s.path(e.Name), err))
		}
	case name.suffix != activeSuffix && name.suffix != sealedSuffix:
		s.ignore(e.Name, "not a name of weir's")
	default:
		f := s.describe(name.number, name.instance)
		f.name, f.size = s.path(e.Name), e.Size
		f.closed, f.recovered, f.sealed = true, true, name.suffix == sealedSuffix
		if twin := found[f.number]; twin != nil {
			s.recoverTwin(f, twin)
			return nil
		}
		return s.recoverSegment(f, state)
	}
	return nil
}

// recoverTwin handles a second file with the number of a segment. Where it is the same segment under the name that it had
// before it was sealed, the older name goes.
func (s *Shard) recoverTwin(f, sealed *segmentFile) {
	file, err := s.log.fs.OpenRead(f.name)
	if err == nil {
		head := make([]byte, segment.HeaderBytes)
		n, rerr := readFull(file, head, 0)
		h, _, perr := segment.ParseHeader(head[:n])
		err = errors.Join(rerr, perr, file.Close())
		if err == nil && f.instance == sealed.instance && h == sealed.header && sealed.sealed {
			if err := s.log.fs.Remove(f.name); err != nil {
				s.note("remove", fmt.Errorf("wab: remove %s: %w", f.name, err))
			}
			return
		}
	}
	s.ignore(f.name, "another file has the same segment number")
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// recoverSegment learns where the records of one segment end and takes it into the list.
func (s *Shard) recoverSegment(f *segmentFile, state cursorState) error {
	file, err := s.log.fs.OpenRead(f.name)
	if err != nil {
		// Were it passed, the cursor would go past it, and once it can be opened again it would count as confirmed.
		return fmt.Errorf("wab: open %s: %w", f.name, err)
	}
	defer file.Close() // read only
	if known, err := s.readEnds(f, file); err != nil || known {
		if err == nil {
			s.take(f)
		}
		return err
	}
	return s.measure(f, file, state)
}

// readEnds reads the header, and of a sealed segment the footer. known: there is nothing more to find out,
// and f is complete.
func (s *Shard) readEnds(f *segmentFile, file vfs.File) (known bool, err error) {
	head := make([]byte, segment.HeaderBytes)
	n, err := readFull(file, head, 0)
	if err != nil {
		return false, fmt.Errorf("wab: read %s: %w", f.name, err)
	}
	head = head[:n]
	end := make([]byte, min(segment.FooterBytes, f.size))
	if _, err := readFull(file, end, f.size-int64(len(end))); err != nil {
		return false, fmt.Errorf("wab: read %s: %w", f.name, err)
	}
	h, _, err := segment.ParseHeader(head)
	switch {
	case errors.Is(err, segment.ErrVersion):
		return false, fmt.Errorf("wab: %s: %w", f.name, err)
	case err != nil:
		nonce, ok := findNonce(f, file)
		f.nonceless = !ok
		h = segment.Header{Instance: f.instance, Number: f.number, Nonce: nonce, Shard: uint32(s.number)}
	case h.Number != f.number || h.Instance != f.instance || h.Shard != uint32(s.number):
		return false, &CorruptError{Segment: f.name, Reason: fmt.Sprintf("the header is of segment %d of shard %d: the file was moved or renamed; move it out of the data folder or give it back its name", h.Number, h.Shard)}
	}
	f.header = h
	f.off, f.tail = segment.HeaderBytes, segment.HeaderBytes
	f.first, f.last = h.Created, h.Created
	if f.nonceless || !f.sealed {
		return false, nil
	}
	foot, ok := segment.ParseFooter(end, h.Nonce, f.size-int64(len(end)))
	if ok {
		f.setFooter(foot)
	}
	return ok, nil
}

// findNonce looks through a file whose header is lost.
func findNonce(f *segmentFile, file vfs.File) (uint64, bool) {
	b := make([]byte, windowBytes)
	for off := int64(segment.HeaderBytes); off < f.size; off += windowBytes - segment.SectorBytes {
		n, err := readPatched(file, b, off)
		if nonce, ok := segment.SearchNonce(b[:n], off, f.size, f.instance, f.number); ok {
			return nonce, true
		}
		if err != nil || n == 0 {
			break
		}
	}
	return 0, false
}

func (f *segmentFile) setFooter(foot segment.Footer) {
	f.setEnd(foot.End, foot.Records)
	f.first, f.last = foot.First, foot.Last
	if back := uint64(foot.Back); back > 0 && back < f.number {
		f.before = Position{Segment: f.number - back, Index: uint64(foot.BackRecords) + 1}
	}
}

func (f *segmentFile) setEnd(off int64, index uint64) {
	f.off, f.tail, f.synced, f.fence, f.index = off, off, off, off, index
}

// measure walks a segment that has no footer at its end: one that was active, or one that was cut or damaged.
func (s *Shard) measure(f *segmentFile, file vfs.File, state cursorState) error {
	var tail segment.Item
	if f.nonceless {
		tail = segment.Item{Kind: segment.Tail, Off: 0, Len: f.size, Index: 1, Begun: usedLength(file, 0, f.size) > 0}
	} else {
		var err error
		if tail, err = s.walk(f, file); err != nil {
			return err
		}
	}
	proven := uint64(0)
	if state.synced.Segment == f.number {
		proven = state.synced.Index
	}
	footless := f.sealed && tail.Kind != segment.Complete
	switch {
	case f.nonceless && (proven > 0 || f.sealed || tail.Begun): // the reader, or who is to remove it, keeps all of it
		f.setEnd(f.off, proven)
	case proven > f.index:
		f.setEnd(f.off, proven) // the reader reports what is missing
		s.keepTail(f, file, tail, tail.Len, "acknowledged bytes do not verify")
	case footless:
		s.keepTail(f, file, tail, tail.Len, "the end of a sealed segment is missing: records may be lost")
	case tail.Begun: // a group that is longer than the usual holds but one record
		s.keepTail(f, file, tail, s.log.opts.GroupBytes, "the tail does not verify: a torn write that was not acknowledged as durable, or damage")
	case f.index == 0:
		s.leftovers = append(s.leftovers, f)
		return nil
	}
	f.keep = footless || f.nonceless // verified again before it is removed
	s.take(f)
	return nil
}

// walk finds the end of the records of f. Memory: one window.
func (s *Shard) walk(f *segmentFile, file vfs.File) (segment.Item, error) {
	w := window{file: file, sc: segment.NewScanner(f.header.Nonce, segment.HeaderBytes, 1, f.size), patch: true}
	seen := false
	for {
		it, err := w.next()
		if err != nil {
			return it, fmt.Errorf("wab: scan %s: %w", f.name, err)
		}
		switch it.Kind {
		case segment.Record:
			if !seen && it.Time != 0 {
				f.first, seen = it.Time, true
			}
			f.last = max(f.last, it.Time)
			f.setEnd(w.sc.Offset(), it.Index)
		case segment.Damage:
			f.setEnd(w.sc.Offset(), max(f.index, it.Index+it.Lost-1))
		case segment.Complete:
			f.setFooter(it.Footer)
			return it, nil
		default:
			f.setEnd(max(segment.HeaderBytes, min(alignEnd(f.off), f.size)), f.index)
			return it, nil
		}
	}
}

// alignEnd is the end of the group that ends with the record at off.
func alignEnd(off int64) int64 { return (off + 7) / 8 * 8 }

// keepTail copies at most n of the bytes behind the last record to quarantine, as far as they may mean something.
// Until that has worked, the file is left as it is.
func (s *Shard) keepTail(f *segmentFile, file vfs.File, tail segment.Item, n int64, reason string) {
	d := Damage{Segment: f.addr, Offset: tail.Off, Length: usedLength(file, tail.Off, min(n, tail.Len)), FirstIndex: f.index + 1, Lost: 0, Reason: reason, Found: s.now()}
	if f.sealed {
		d.Lost = -1
	}
	if err := s.quarantine(f, file, d); err != nil {
		f.failed, f.untouched = err, true
	}
}

// usedLength is how far the non-zero bytes of a range go.
func usedLength(file vfs.File, off, n int64) (used int64) {
	b := make([]byte, min(n, windowBytes))
	for at := int64(0); at < n; {
		got, err := readPatched(file, b[:min(int64(len(b)), n-at)], off+at)
		for i, c := range b[:got] {
			if c != 0 {
				used = at + int64(i) + 1
			}
		}
		if err != nil || got == 0 {
			break
		}
		at += int64(got)
	}
	return used
}

func readFull(f vfs.File, b []byte, off int64) (int, error) {
	n, err := readPatched(f, b, off)
	if err != nil && !errors.Is(err, io.EOF) {
		return n, err
	}
	return n, nil
}

// take puts a recovered segment into the list.
func (s *Shard) take(f *segmentFile) {
	s.log.used.Add(f.bytes())
	s.segs = append(s.segs, f)
}

// bytes is what the segment counts against the cap.
func (f *segmentFile) bytes() int64 { return f.off - segment.HeaderBytes }

// missSegments reports the segments that are gone altogether: the newest one that the cursor file knew, and each that the footer of
// the one behind it bears witness to.
func (s *Shard) missSegments(state cursorState) {
	if newest := state.synced; newest.Segment > 0 {
		s.missSegment(Position{Segment: newest.Segment, Index: newest.Index + 1}, s.log.instance, state.next)
	}
	for _, f := range s.segs {
		if f.before.Segment > 0 {
			s.missSegment(f.before, f.instance, state.next)
		}
	}
}

// missSegment reports the segment whose records end before end, if it is not there and was not confirmed.
func (s *Shard) missSegment(end Position, instance uint64, cursor Position) {
	if f := s.segmentFrom(Position{Segment: end.Segment}); !cursor.Before(end) || f != nil && f.number == end.Segment {
		return
	}
	first := uint64(1)
	if cursor.Segment == end.Segment {
		first = max(1, cursor.Index)
	}
	f := s.describe(end.Segment, instance)
	d := Damage{Segment: f.addr, FirstIndex: first, Lost: int64(end.Index - first), Durable: true, Reason: "the segment is missing", Found: s.now()}
	if s.cursorFile.damaged || s.cursorFile.generation == 0 {
		d.Lost, d.Reason = -1, "the segment is missing; whether its records were confirmed is not known, for the cursor is damaged or missing"
	}
	if err := s.quarantine(f, nil, d); err != nil {
		s.note("quarantine", err)
	}
}

// restoreCursor clamps what the cursor file said to what there is.
func (s *Shard) restoreCursor(state cursorState) {
	s.cursor, s.marks = state.next, state.marks
	if s.cursor.Segment > s.lastNumber+1 { // of a segment that never was
		s.cursor, s.marks = Position{}, nil
	}
	for _, f := range s.leftovers {
		s.cursorDirty = s.cursorDirty || f.number > s.savedHighest
	}
	if len(s.segs) == 0 {
		s.cursor = Position{Segment: s.lastNumber + 1, Index: 1}
		s.marks = nil
		return
	}
	first := Position{Segment: s.segs[0].number, Index: 1}
	if s.cursor.Before(first) {
		s.cursor = first
	}
	s.marks = slices.DeleteFunc(slices.Clone(s.marks), func(m Position) bool { return !s.cursor.Before(m) })
	for _, f := range s.segs {
		if f.number < s.cursor.Segment {
			f.keep = true // whether it holds damage is not known; verified before it is removed
		}
	}
}

// ignore books a file that is left alone.
func (s *Shard) ignore(name, why string) {
	s.counts.ignored++
	s.note("ignored", &CorruptError{Segment: s.path(name), Reason: why + ": left alone", Err: fs.ErrInvalid})
}
