package wab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/weir-agent/weir/wab/record"
	"github.com/weir-agent/weir/wab/segment"
	"github.com/weir-agent/weir/wab/vfs"
)

// readAttempts is how often a read that fails is tried again by the caller of Next before what cannot be read
// counts as damage.
const readAttempts = 5

// Reader reads a shard's committed records in order, from sealed segments into the active one, whose newest bytes are in memory.
// It is for one goroutine.
type Reader struct {
	s        *Shard
	pos      Position
	seg      *segmentFile
	w        window
	limit    int64        // how far seg may be read, as far as is known
	index    uint64       // of the last record before limit
	pending  segment.Item // a record that is read but not returned yet; Kind End: none
	failures int
	passed   *segmentFile // nothing of it can be read, and that was reported
	hasher   record.IDHasher
}

// NewReader returns a reader whose first record is the first one at or after from.
func (s *Shard) NewReader(from Position) *Reader {
	return &Reader{s: s, pos: from}
}

// Position returns the position behind the last record that Next returned, past damage too.
func (r *Reader) Position() Position { return r.pos }

// Close releases the open file. The reader must not be used afterwards.
func (r *Reader) Close() error {
	if r.w.file == nil {
		return nil
	}
	err := r.w.file.Close()
	r.w.file = nil
	return err
}

// Next appends to dst the records that are committed now: at most maxRecords, of at most maxBytes payload bytes
// in all (but at least one record, whatever its size), and none at or past end unless end is the
// zero Position. It does not wait; no records and a nil error mean that the reader is at the committed end or at end.
// The payloads are the caller's to keep. Damage is passed over, counted and kept in quarantine. An
// error is one of reading: Next may be called again, and after some attempts passes what cannot be read as damage.
func (r *Reader) Next(dst []record.Record, maxRecords, maxBytes int, end Position) ([]record.Record, error) {
	first := len(dst)
	bytes := 0
	for len(dst)-first < maxRecords {
		it, err := r.peek(end)
		if err != nil || it.Kind != segment.Record {
			return dst, err
		}
		n := len(it.Payload)
		if bytes += n; bytes > maxBytes && len(dst) > first {
			return dst, nil
		}
		dst = r.add(dst, it.Index, slices.Clip(slices.Clone(it.Payload)), time.Unix(0, it.Time))
		r.pending = segment.Item{}
		for bytes < maxBytes && len(dst)-first < maxRecords {
			had := len(dst)
			dst, n = r.run(dst, maxRecords-(had-first), maxBytes-bytes, end)
			if bytes += n; len(dst) == had {
				break
			}
		}
	}
	return dst, nil
}

// run appends records that follow in their group, as many as are in memory, verify and have room; all others are for peek. It returns their
// payload bytes, too. What it saves is that each record is an item of its own.
func (r *Reader) run(dst []record.Record, maxRecords, maxBytes int, end Position) ([]record.Record, int) {
	if end != (Position{}) {
		if !r.pos.Before(end) {
			return dst, 0
		}
		if end.Segment == r.pos.Segment {
			maxRecords = int(min(uint64(maxRecords), end.Index-r.pos.Index))
		}
	}
	n, run := r.w.run(maxRecords, min(maxBytes, slabBytes))
	run = append([]byte(nil), run...) // one allocation, which is not cleared before
	at, size := time.Unix(0, r.w.sc.Time()), 0
	for range n {
		var payload []byte
		payload, run = segment.NextPayload(run)
		size += len(payload)
		dst = r.add(dst, r.pos.Index, payload, at)
	}
	return dst, size
}

// add appends one record, of which payload is the caller's to keep.
func (r *Reader) add(dst []record.Record, index uint64, payload []byte, at time.Time) []record.Record {
	r.pos.Index = index + 1
	return append(dst, record.Record{
		Coordinate: record.Coordinate{Segment: r.seg.addr, Index: index, ID: r.hasher.ID(r.seg.addr, index, payload)},
		Payload:    payload,
		Appended:   at,
	})
}

// slabBytes is how many payload bytes share one allocation, at most.
const slabBytes = 64 << 10

// peek returns the next record without taking it, or an item of kind End where there is none.
func (r *Reader) peek(end Position) (segment.Item, error) {
	for {
		if end != (Position{}) && !r.pos.Before(end) {
			return segment.Item{}, nil
		}
		if r.pending.Kind == segment.Record {
			return r.pending, nil
		}
		if r.seg == nil {
			if ok, err := r.open(); !ok {
				return segment.Item{}, err
			}
		}
		more, err := r.step()
		if err != nil {
			return segment.Item{}, r.readFailed(err)
		}
		if !more {
			return segment.Item{}, nil
		}
	}
}

// step scans one item of the open segment, or leaves it. It reports false at the committed end.
func (r *Reader) step() (bool, error) {
	if r.w.sc.Offset() >= r.limit { // what may be read only grows
		limit, index, final := r.s.limitOf(r.seg)
		r.limit, r.index = limit, index
		r.w.sc.SetLimit(limit)
		switch {
		case r.w.sc.Offset() < limit:
		case final:
			return r.leave(index)
		default:
			return false, nil
		}
	}
	it, err := r.w.next()
	if err != nil {
		return false, err
	}
	if r.failures > 0 {
		r.s.restored("read")
	}
	r.failures, r.w.patch = 0, false
	switch it.Kind {
	case segment.Record:
		if it.Index >= r.pos.Index {
			r.pending = it
			r.pos.Index = it.Index
		}
	case segment.Damage:
		r.pass(it, it.Index+it.Lost)
	case segment.Tail:
		r.pass(it, r.index+1)
		r.w.sc.Skip(r.limit, r.index+1)
	}
	return true, nil
}

// pass goes past damage.
func (r *Reader) pass(it segment.Item, next uint64) {
	if next < r.pos.Index || next == r.pos.Index && it.Lost > 0 {
		return // before the place where this reader began: seen by an earlier one
	}
	it.Lost = next - it.Index
	d := r.s.damage(r.seg, it)
	d.Lost = int64(it.Lost)
	r.report(d)
	r.pos.Index = max(r.pos.Index, next)
}

// report quarantines damage; where that fails the segment is verified again before it is removed.
// Of a segment that is wholly confirmed there is nothing to say: it may be on its way out, or be another one by now.
func (r *Reader) report(d Damage) {
	if r.s.confirmed(r.seg) {
		return
	}
	if err := r.s.quarantine(r.seg, r.w.file, d); err != nil {
		r.s.mu.Lock()
		r.seg.keep = true
		r.s.mu.Unlock()
	}
}

// leave goes from a segment that is read to its end into the next one. It reports false where there is none yet.
func (r *Reader) leave(index uint64) (bool, error) {
	if r.pos.Index <= index {
		d := Damage{Segment: r.seg.addr, Offset: r.w.sc.Offset(), FirstIndex: r.pos.Index, Lost: int64(index + 1 - r.pos.Index), Reason: "records at the end of the segment are missing", Durable: true, Found: r.s.now()}
		r.report(d)
		r.pos.Index = index + 1
	}
	next := r.s.segmentFrom(Position{Segment: r.seg.number + 1})
	if next == nil {
		return false, nil
	}
	r.s.note("read", r.Close())
	r.seg = nil
	r.pos = Position{Segment: next.number, Index: 1}
	return true, nil
}

// open opens the segment at the reader's position. It reports false where there is none.
func (r *Reader) open() (bool, error) {
	f := r.s.segmentFrom(r.pos)
	if f == nil {
		return false, nil
	}
	if r.pos.Segment != f.number {
		r.pos = Position{Segment: f.number, Index: 1}
	}
	file, err := r.s.openRead(f)
	if errors.Is(err, fs.ErrNotExist) || f.nonceless {
		return r.unreadable(f, file)
	}
	if err != nil {
		err = fmt.Errorf("wab: read %s: %w", f.addr, err)
		r.s.note("read", err)
		return false, err
	}
	r.s.restored("read") // also for another reader that failed and was closed
	r.seg, r.limit, r.index = f, 0, 0
	r.w = window{
		file: file, sc: segment.NewScanner(f.header.Nonce, segment.HeaderBytes, 1, 0), buf: r.w.buf[:0],
		hot: func(b []byte, off int64) bool { return r.s.hot.read(f, b, off) },
	}
	return true, nil
}

// unreadable passes a segment of which nothing can be read.
func (r *Reader) unreadable(f *segmentFile, file vfs.File) (bool, error) {
	_, index, _ := r.s.limitOf(f)
	d := Damage{Segment: f.addr, FirstIndex: r.pos.Index, Lost: int64(index+1) - int64(r.pos.Index), Reason: "the file is missing", Durable: true, Found: r.s.now()}
	if f.nonceless {
		d.Length, d.Reason = f.size, "neither the header nor a group verifies"
		if index == 0 {
			d.Lost = -1
		}
	}
	r.seg = f
	r.w.file = file
	if r.passed != f {
		r.report(d)
		r.passed = f
	}
	r.seg = nil
	r.s.note("read", r.Close())
	r.pos = Position{Segment: f.number, Index: index + 1}
	next := r.s.segmentFrom(Position{Segment: f.number + 1})
	if next == nil {
		return false, nil
	}
	r.pos = Position{Segment: next.number, Index: 1}
	return r.open()
}

func (s *Shard) confirmed(f *segmentFile) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.cursor.Before(Position{Segment: f.number, Index: f.index + 1})
}

// readFailed counts attempts; after some, the next one takes what cannot be read for damage.
func (r *Reader) readFailed(err error) error {
	if r.failures++; r.failures >= readAttempts {
		r.w.patch = true
	}
	r.s.note("read", err)
	return fmt.Errorf("wab: read %s: %w", r.seg.addr, err)
}

// Wait returns nil when a record is committed that Next has not returned yet, or the error of ctx, or ErrClosed.
func (r *Reader) Wait(ctx context.Context) error {
	for {
		r.s.mu.Lock()
		if r.s.canRead(r.pos) {
			r.s.mu.Unlock()
			return nil
		}
		if r.s.arrived == nil {
			r.s.arrived = make(chan struct{})
		}
		ch := r.s.arrived
		r.s.mu.Unlock()
		select {
		case <-ch:
		case <-ctx.Done():
			return ctx.Err()
		case <-r.s.stop:
			return ErrClosed
		}
	}
}

// canRead reports whether a record at or after pos is committed. Called with mu held.
func (s *Shard) canRead(pos Position) bool {
	for i := len(s.segs) - 1; i >= 0; i-- {
		f := s.segs[i]
		if f.number < pos.Segment {
			return false
		}
		_, index, _ := s.limitLocked(f)
		from := uint64(1)
		if f.number == pos.Segment {
			from = pos.Index
		}
		if index >= from {
			return true
		}
	}
	return false
}

// segmentFrom returns the first segment at or after pos, or nil.
func (s *Shard) segmentFrom(pos Position) *segmentFile {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, _ := slices.BinarySearchFunc(s.segs, pos.Segment, func(f *segmentFile, n uint64) int { return cmp.Compare(f.number, n) })
	if i == len(s.segs) {
		return nil
	}
	return s.segs[i]
}

func (s *Shard) limitOf(f *segmentFile) (off int64, index uint64, final bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.limitLocked(f)
}

// limitLocked returns how far f may be read: up to the first record that still waits for its sync. final:
// that will not change.
func (s *Shard) limitLocked(f *segmentFile) (off int64, index uint64, final bool) {
	if len(s.unsynced) > 0 {
		switch u := s.unsynced[0]; {
		case u.file == f:
			return u.prevEnd, u.prevIndex, false
		case u.file.number < f.number:
			return segment.HeaderBytes, 0, false
		}
	}
	return f.off, f.index, f.final()
}

// openRead opens f. Its name on disk changes once, from active to sealed, a moment before f.name does; so the names are
// tried in this order.
func (s *Shard) openRead(f *segmentFile) (vfs.File, error) {
	var file vfs.File
	var err error
	for _, suffix := range []string{activeSuffix, sealedSuffix} {
		file, err = s.log.fs.OpenRead(s.path(f.stemName() + suffix))
		if !errors.Is(err, fs.ErrNotExist) {
			return file, err
		}
	}
	return nil, err
}
