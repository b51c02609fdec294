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

// recoverShard reads what a shard's folder holds and makes it readable. It only reads, but for files that
// never held an acked record (temporary and spare ones, segments without a record);
// what else has to be mended is done later, and again after a death, by the keeper.
func (s *Shard) recoverShard() error {
	entries, err := s.log.fs.ReadDir(s.dir)
	if err != nil {
		return fmt.Errorf("wab: list %s: %w", s.dir, err)
	}
	s.cursorFile = cursorFile{name: s.path(cursorName), instance: s.log.instance, shard: s.number}
	state, err := s.cursorFile.load(s.log.fs)
	if err != nil {
		s.note("cursor", err) // a hint only; a new file cannot be made in its place, so it is tried again
	}
	s.lastNumber = state.highest
	// Sealed names come first: the same file under its older name, too, is what a rename in two steps leaves.
	slices.SortStableFunc(entries, func(a, b vfs.Entry) int {
		return cmp.Compare(boolInt(!strings.HasSuffix(a.Name, sealedSuffix)), boolInt(!strings.HasSuffix(b.Name, sealedSuffix)))
	})
	for _, e := range entries {
		name, ok := parseSegmentName(e.Name)
		if !ok {
			if e.Name != cursorName {
				s.ignore(e.Name, "not a name of weir's")
			}
			continue
		}
		s.lastNumber = max(s.lastNumber, name.number)
		if err := s.recoverEntry(e, name, state); err != nil {
			return err
		}
	}
	slices.SortFunc(s.segs, func(a, b *segmentFile) int {
		if a.number < b.number {
			return -1
		}
		return 1
	})
	s.restoreCursor(state)
	return nil
}

func (s *Shard) recoverEntry(e vfs.Entry, name segmentName, state cursorState) error {
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
		if i := slices.IndexFunc(s.segs, func(o *segmentFile) bool { return o.number == f.number }); i >= 0 {
			s.recoverTwin(f, s.segs[i])
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
		s.note("open", fmt.Errorf("wab: open %s: %w", f.name, err))
		s.ignore(f.name, "it cannot be opened")
		return nil
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
	head := make([]byte, segment.HeaderBytes+segment.GroupHeaderBytes)
	n, err := readFull(file, head, 0)
	if err != nil {
		return false, fmt.Errorf("wab: read %s: %w", f.name, err)
	}
	head = head[:n]
	end := make([]byte, min(segment.FooterBytes, f.size))
	if _, err := readFull(file, end, f.size-int64(len(end))); err != nil {
		return false, fmt.Errorf("wab: read %s: %w", f.name, err)
	}
	h, _, err := segment.ParseHeader(head[:min(n, segment.HeaderBytes)])
	switch {
	case errors.Is(err, segment.ErrVersion):
		return false, fmt.Errorf("wab: %s: %w", f.name, err)
	case err != nil:
		nonce, ok := segment.FindNonce(head[min(n, segment.HeaderBytes):], end, f.size)
		if !ok {
			f.nonceless = true
		}
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
		f.setEnd(foot.End, foot.Records)
		f.first, f.last = foot.First, foot.Last
	}
	return ok, nil
}

func (f *segmentFile) setEnd(off int64, index uint64) {
	f.off, f.tail, f.synced, f.fence, f.index = off, off, off, off, index
}

// measure walks a segment that has no footer at its end: one that was active, or one that was cut or damaged.
func (s *Shard) measure(f *segmentFile, file vfs.File, state cursorState) error {
	var tail segment.Item
	if f.nonceless {
		tail = segment.Item{Kind: segment.Tail, Off: 0, Len: f.size, Index: 1, Begun: !allZero(file, f.size)}
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
	case proven > f.index:
		f.setEnd(f.off, proven) // the reader reports what is missing
		s.keepTail(f, file, tail, "acknowledged bytes do not verify")
	case footless:
		s.keepTail(f, file, tail, "the end of a sealed segment is missing: records may be lost")
	case tail.Begun:
		s.keepTail(f, file, tail, "the tail does not verify: a torn write that was not acknowledged as durable, or damage")
	case f.index == 0:
		if err := s.log.fs.Remove(f.name); err != nil {
			s.note("remove", fmt.Errorf("wab: remove %s: %w", f.name, err))
		}
		return nil
	}
	if f.sealed && footless {
		f.keep = true // its size says nothing; verified again before it is removed
	}
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
			f.setEnd(it.Footer.End, it.Footer.Records)
			return it, nil
		default:
			f.setEnd(alignEnd(f.off), f.index)
			return it, nil
		}
	}
}

// alignEnd is the end of the group that ends with the record at off.
func alignEnd(off int64) int64 { return (off + 7) / 8 * 8 }

// keepTail copies the bytes behind the last record to quarantine, as far as they may mean something.
// Until that has worked, the file is left as it is.
func (s *Shard) keepTail(f *segmentFile, file vfs.File, tail segment.Item, reason string) {
	d := Damage{Segment: f.addr, Offset: tail.Off, Length: usedLength(file, tail.Off, tail.Len), FirstIndex: f.index + 1, Lost: 0, Reason: reason, Found: s.now()}
	if f.sealed {
		d.Lost = -1
	}
	if err := s.quarantine(f, file, d); err != nil {
		f.failed = err // not sealed, not removed in this run
	}
}

// usedLength is how far the non-zero bytes of a range go, at most 1 MiB.
func usedLength(file vfs.File, off, n int64) int64 {
	n = min(n, copyChunk)
	b := make([]byte, n)
	got, err := readPatched(file, b, off)
	if err != nil && !errors.Is(err, io.EOF) {
		return n
	}
	for b = b[:got]; len(b) > 0 && b[len(b)-1] == 0; {
		b = b[:len(b)-1]
	}
	return int64(len(b))
}

func allZero(file vfs.File, size int64) bool {
	b := make([]byte, windowBytes)
	for off := int64(0); off < size; {
		n, err := readPatched(file, b, off)
		for _, c := range b[:n] {
			if c != 0 {
				return false
			}
		}
		if err != nil || n == 0 {
			break
		}
		off += int64(n)
	}
	return true
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

// restoreCursor clamps what the cursor file said to what there is.
func (s *Shard) restoreCursor(state cursorState) {
	s.cursor, s.marks = state.next, state.marks
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
