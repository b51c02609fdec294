package deadletter

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/weir-agent/weir/wab/record"
	"github.com/weir-agent/weir/wab/segment"
	"github.com/weir-agent/weir/wab/vfs"
)

// output is the file that is written.
type output struct {
	file   *file
	handle vfs.File
	nonce  uint64
	end    int64  // all before it is durable
	next   uint64 // index of the next record
	group  segment.Group
}

// begin takes the turn to write.
func (s *Store) begin(ctx context.Context) error {
	if s.opts.ReadOnly {
		return ErrReadOnly
	}
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		<-s.turn
		return ErrClosed
	}
	return nil
}

// end gives the turn back, after a look at whether files are to be cleaned.
func (s *Store) end() {
	if err := s.clean(); err != nil {
		s.mu.Lock()
		s.cleaned = err
		s.mu.Unlock()
	}
	<-s.turn
}

// Add puts letters into the store. When it returns nil they are on stable storage. Letters whose id is in the store are
// left as they are there. With ErrFull, or another error, some of the letters may be in the store; the call can be
// made again. The payloads are not kept.
func (s *Store) Add(ctx context.Context, letters ...Letter) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.end()
	fresh := make([]*Letter, 0, len(letters))
	s.mu.Lock()
	for i := range letters {
		if _, ok := s.index[keyOf(letters[i].ID)]; !ok {
			fresh = append(fresh, &letters[i])
		}
	}
	s.mu.Unlock()
	return s.addAll(fresh, true)
}

// Refused takes letters that were requeued, and refused again, back as dead, with a new reason. Those that are not in the store any
// more are passed over.
func (s *Store) Refused(ctx context.Context, letters ...Letter) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.end()
	var again []*Letter
	s.mu.Lock()
	for i := range letters {
		if _, ok := s.index[keyOf(letters[i].ID)]; ok {
			again = append(again, &letters[i])
		}
	}
	s.mu.Unlock()
	return s.addAll(again, false)
}

// addAll writes letters, in groups. Called with the turn.
func (s *Store) addAll(letters []*Letter, capped bool) error {
	for len(letters) > 0 {
		n, bytes := 0, int64(0)
		for n < len(letters) && (n == 0 || bytes+letterBytes(letters[n]) <= s.fileBytes) {
			bytes += letterBytes(letters[n])
			n++
		}
		if capped {
			if n = s.fits(letters[:n]); n == 0 {
				return fmt.Errorf("%w: it may keep %d bytes: requeue or drop letters, or raise the limit", ErrFull, s.opts.MaxBytes)
			}
		}
		if err := s.writeLetters(letters[:n]); err != nil {
			return err
		}
		letters = letters[n:]
	}
	return nil
}

// fits returns how many of the letters MaxBytes has room for.
func (s *Store) fits(letters []*Letter) int {
	s.mu.Lock()
	used := s.used
	s.mu.Unlock()
	for i, l := range letters {
		if used += max(letterBytes(l), minLetterBytes); used > s.opts.MaxBytes {
			return i
		}
	}
	return len(letters)
}

// writeLetters writes letters as one group and books them.
func (s *Store) writeLetters(letters []*Letter) error {
	at := make([]uint32, len(letters))
	var buf []byte
	f, err := s.write(func(g *segment.Group) {
		for i, l := range letters {
			at[i] = uint32(g.First()) + uint32(g.Count())
			buf = appendLetter(buf[:0], l)
			g.Add(buf)
			for off := inlineBytes; off < len(l.Payload); off += inlineBytes {
				buf = appendPart(buf[:0], l, off)
				g.Add(buf)
			}
		}
	})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, l := range letters {
		s.put(f, at[i], l)
	}
	return nil
}

// Requeue lets the drain deliver the letters with these ids again, under the same ids. They stay in the store
// until they are delivered. It returns how many were marked; the error wraps ErrNotFound where some
// of the ids are not in the store, and then the others are marked all the same.
func (s *Store) Requeue(ctx context.Context, ids ...record.ID) (int, error) {
	if err := s.begin(ctx); err != nil {
		return 0, err
	}
	defer s.end()
	known, missing := s.known(ids)
	n, err := s.writeMarks(markRequeued, known)
	if n > 0 {
		s.mu.Lock()
		s.version++
		close(s.changed)
		s.changed = make(chan struct{})
		s.mu.Unlock()
	}
	return n, errors.Join(missing, err)
}

// Drop removes the letters with these ids for good. Its results are like those of Requeue.
func (s *Store) Drop(ctx context.Context, ids ...record.ID) (int, error) {
	if err := s.begin(ctx); err != nil {
		return 0, err
	}
	defer s.end()
	known, missing := s.known(ids)
	n, err := s.writeMarks(markGone, known)
	return n, errors.Join(missing, err)
}

// Delivered removes letters that were requeued and have been delivered. Ids that are not in the store are passed over.
func (s *Store) Delivered(ctx context.Context, ids ...record.ID) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.end()
	known, _ := s.known(ids)
	_, err := s.writeMarks(markGone, known)
	return err
}

// known returns the ids that are in the store, and an error for those that are not.
func (s *Store) known(ids []record.ID) ([]record.ID, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := make([]record.ID, 0, len(ids))
	missing := 0
	var first record.ID
	for _, id := range ids {
		if _, ok := s.index[keyOf(id)]; ok {
			known = append(known, id)
			continue
		}
		if missing == 0 {
			first = id
		}
		missing++
	}
	switch missing {
	case 0:
		return known, nil
	case 1:
		return known, fmt.Errorf("%w: %v", ErrNotFound, first)
	}
	return known, fmt.Errorf("%w: %v and %d more", ErrNotFound, first, missing-1)
}

// marksInGroup bounds the ids that one group marks.
const marksInGroup = 16 * maxMarkIDs

// writeMarks writes marks and books them. It returns how many ids that were. Called with the turn.
func (s *Store) writeMarks(what byte, ids []record.ID) (int, error) {
	done := 0
	for done < len(ids) {
		part := ids[done:min(len(ids), done+marksInGroup)]
		var buf []byte
		_, err := s.write(func(g *segment.Group) {
			for from := 0; from < len(part); from += maxMarkIDs {
				buf = appendMarks(buf[:0], what, part[from:min(len(part), from+maxMarkIDs)])
				g.Add(buf)
			}
		})
		if err != nil {
			return done, err
		}
		s.mu.Lock()
		for _, id := range part {
			if what == markGone {
				s.drop(id)
			} else {
				s.mark(id)
			}
		}
		s.mu.Unlock()
		done += len(part)
	}
	return done, nil
}

// write appends the group that add fills and syncs it. After an error the file is not used any more. Called with the turn.
func (s *Store) write(add func(g *segment.Group)) (*file, error) {
	if s.out != nil && s.out.end >= s.fileBytes {
		if err := s.retire(); err != nil {
			return nil, fmt.Errorf("deadletter: close a file: %w", err)
		}
	}
	if s.out == nil {
		if err := s.create(); err != nil {
			return nil, err
		}
	}
	o := s.out
	start := segment.SectorUp(o.end)
	o.group.Reset(o.nonce, o.next)
	add(&o.group)
	b := o.group.Seal(start, o.end, s.opts.Now().UnixNano())
	_, err := o.handle.WriteAt(b, start)
	if err == nil {
		err = o.handle.SyncData()
	}
	if err != nil {
		return nil, fmt.Errorf("deadletter: write %s: %w", o.file.name, errors.Join(err, s.retire()))
	}
	o.end = start + int64(len(b))
	o.next += uint64(o.group.Count())
	if o.group.BufferBytes() > int(2*s.fileBytes) {
		o.group = segment.Group{} // a large letter made it large
	}
	s.mu.Lock()
	o.file.size = o.end
	s.mu.Unlock()
	return o.file, nil
}

// create makes the next file. When it returns nil, its header and its name are on stable storage.
func (s *Store) create() error {
	nonce, err := s.nonce()
	if err != nil {
		return err
	}
	s.highest++
	f := &file{number: s.highest, name: fileName(s.highest), size: segment.HeaderBytes}
	handle, err := s.fs.Create(f.name)
	if err != nil {
		return fmt.Errorf("deadletter: create %s: %w", f.name, err)
	}
	head := segment.AppendHeader(nil, segment.Header{Number: f.number, Nonce: nonce, Created: s.opts.Now().UnixNano()})
	if _, err = handle.WriteAt(head, 0); err == nil {
		err = handle.SyncData()
	}
	if err == nil {
		err = s.fs.SyncDir(".")
	}
	if err != nil {
		return fmt.Errorf("deadletter: create %s: %w", f.name, errors.Join(err, handle.Close(), s.fs.Remove(f.name)))
	}
	s.out = &output{file: f, handle: handle, nonce: nonce, end: segment.HeaderBytes, next: 1}
	s.mu.Lock()
	s.files = append(s.files, f)
	s.mu.Unlock()
	return nil
}

func (s *Store) nonce() (uint64, error) {
	for {
		var b [8]byte
		if _, err := io.ReadFull(s.opts.Rand, b[:]); err != nil {
			return 0, fmt.Errorf("deadletter: read random bytes: %w", err)
		}
		if n := binary.LittleEndian.Uint64(b[:]); n != 0 {
			return n, nil
		}
	}
}

// WaitRequeued waits until letters were requeued after the version of seen, and returns the present version. Of a store
// that has just been opened the version is 1 where it holds requeued letters, and 0 otherwise.
func (s *Store) WaitRequeued(ctx context.Context, seen uint64) (uint64, error) {
	for {
		s.mu.Lock()
		version, changed, closed := s.version, s.changed, s.closed
		s.mu.Unlock()
		if closed {
			return 0, ErrClosed
		}
		if version > seen {
			return version, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}
