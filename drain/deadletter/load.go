package deadletter

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/weir-agent/weir/wab/vfs"
)

// loadAttempts is how often a store that is read only is looked at anew because a file went away meanwhile.
const loadAttempts = 10

// load reads all files.
func (s *Store) load() error {
	for n := 1; ; n++ {
		err := s.loadOnce()
		if err == nil || !s.opts.ReadOnly || n == loadAttempts || !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := s.release(); err != nil {
			return err
		}
	}
}

func (s *Store) loadOnce() error {
	s.index, s.files, s.used, s.marked, s.damage, s.damages = map[key]entry{}, nil, 0, 0, nil, 0
	entries, err := s.fs.ReadDir(".")
	if err != nil {
		return fmt.Errorf("deadletter: list the store: %w", err)
	}
	for _, e := range entries {
		number, whole := parseFileName(e.Name)
		s.highest = max(s.highest, number)
		if whole && e.Mode.IsRegular() {
			s.files = append(s.files, &file{number: number, name: e.Name, size: e.Size})
		}
	}
	slices.SortFunc(s.files, func(a, b *file) int {
		if a.number < b.number {
			return -1
		}
		return 1
	})
	files := slices.Clone(s.files)
	for i, f := range files {
		if err := s.loadFile(f, i == len(files)-1); err != nil {
			return err
		}
	}
	return nil
}

// loadFile reads one file into the index.
func (s *Store) loadFile(f *file, last bool) error {
	handle, err := s.fs.OpenRead(f.name)
	if err != nil {
		return fmt.Errorf("deadletter: open %s: %w", f.name, err)
	}
	if s.opts.ReadOnly {
		f.handle = handle // it stays readable when it is removed
	} else {
		defer handle.Close() // read only
	}
	w, empty, err := openWalker(f.name, handle, f.size)
	if bad, ok := errors.AsType[*CorruptError](err); ok {
		if empty {
			return s.discard(f) // made by a run that died before it held a letter
		}
		f.damaged = true
		s.report(bad)
		return nil
	}
	if err != nil {
		return err
	}
	for it, ok := w.next(); ok; it, ok = w.next() {
		s.apply(f, it, s.opts.ReadOnly && last)
	}
	return nil
}

// apply books one item. growing: the end of the file may be in the middle of being written.
func (s *Store) apply(f *file, it item, growing bool) {
	switch {
	case it.damage != nil:
		if !it.tail || !growing {
			f.damaged = true
			s.report(it.damage)
		}
	case it.letter != nil:
		s.put(f, it.at, it.letter)
	default:
		for i := range len(it.ids) / 32 {
			id := idAt(it.ids, i)
			if it.what == markGone {
				s.drop(id)
			} else {
				s.mark(id)
			}
		}
	}
}

// discard removes a file without letters from the disk and from the list.
func (s *Store) discard(f *file) error {
	if s.opts.ReadOnly {
		return nil
	}
	if err := s.fs.Remove(f.name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("deadletter: remove %s: %w", f.name, err)
	}
	s.files = slices.DeleteFunc(s.files, func(o *file) bool { return o == f })
	return nil
}

// find returns the file with this number. Called with mu held, as all below.
func (s *Store) find(number uint64) *file {
	i, ok := slices.BinarySearchFunc(s.files, number, func(f *file, n uint64) int {
		switch {
		case f.number < n:
			return -1
		case f.number > n:
			return 1
		}
		return 0
	})
	if !ok {
		return nil
	}
	return s.files[i]
}

// put makes l, which begins at record at of f, the letter that counts for its id.
func (s *Store) put(f *file, at uint32, l *Letter) {
	s.drop(l.ID)
	e := entry{file: f.number, at: at, bytes: uint32(letterBytes(l))}
	s.index[keyOf(l.ID)] = e
	f.live++
	f.bytes += int64(e.bytes)
	s.used += e.counts()
	if l.Requeued {
		s.mark(l.ID)
	}
}

// drop forgets the letter with this id, if there is one.
func (s *Store) drop(id [32]byte) {
	e, ok := s.index[keyOf(id)]
	if !ok {
		return
	}
	delete(s.index, keyOf(id))
	s.used -= e.counts()
	f := s.find(e.file)
	f.live--
	f.bytes -= int64(e.bytes)
	if e.requeued {
		s.marked--
		f.marked--
	}
}

// mark notes that the letter with this id, if there is one, is requeued.
func (s *Store) mark(id [32]byte) {
	e, ok := s.index[keyOf(id)]
	if !ok || e.requeued {
		return
	}
	e.requeued = true
	s.index[keyOf(id)] = e
	s.marked++
	s.find(e.file).marked++
}

// handleOf opens f for reading. The returned function ends that.
func (s *Store) handleOf(f *file) (vfs.File, func() error, error) {
	if f.handle != nil {
		return f.handle, func() error { return nil }, nil
	}
	h, err := s.fs.OpenRead(f.name)
	if err != nil {
		return nil, nil, fmt.Errorf("deadletter: open %s: %w", f.name, err)
	}
	return h, h.Close, nil
}
