package deadletter

import (
	"errors"
	"fmt"
	"io/fs"
)

// movedAtOnce bounds how many files one change copies.
const movedAtOnce = 4

// clean gets space back from the oldest files. Called with the turn.
func (s *Store) clean() error {
	moved := 0
	for {
		f := s.oldest()
		if f == nil || f.live > 0 && moved == movedAtOnce {
			return nil
		}
		if f.live > 0 {
			moved++
			if err := s.moveOut(f); err != nil {
				return err
			}
		}
		if err := s.putAway(f); err != nil {
			return err
		}
	}
}

// oldest returns the oldest file, if it is to be cleaned: where nothing in it counts, or the files together hold too much that does not.
func (s *Store) oldest() *file {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lists > 0 || s.cleaned != nil || len(s.files) == 0 || s.out != nil && s.files[0] == s.out.file {
		return nil
	}
	var size, bytes int64
	for _, f := range s.files {
		size += f.size
		bytes += f.bytes
	}
	f := s.files[0]
	if f.live == 0 || size-bytes > bytes/slackShare+slackFiles*s.fileBytes {
		return f
	}
	return nil
}

// moveOut copies the letters of f that count to the end of the log.
func (s *Store) moveOut(f *file) error {
	var letters []*Letter
	var bytes int64
	var failed error
	flush := func() bool {
		failed = s.addAll(letters, false)
		letters, bytes = letters[:0], 0
		return failed == nil
	}
	s.eachIn(f, f.size, func(entry) bool { return true }, func(l Letter, err error) bool {
		if err != nil {
			s.mu.Lock()
			if !f.damaged {
				f.damaged = true
				s.report(&CorruptError{File: f.name, Reason: err.Error()})
			}
			s.mu.Unlock()
			return true
		}
		letters = append(letters, &l)
		bytes += letterBytes(&l)
		return bytes < s.fileBytes || flush()
	})
	if failed == nil {
		flush()
	}
	if failed != nil {
		return fmt.Errorf("deadletter: clean %s: %w", f.name, failed)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.live > 0 { // they do not verify any more, or the disk cannot read them now
		return fmt.Errorf("deadletter: clean %s: %d letters in it cannot be read: it is left as it is", f.name, f.live)
	}
	return nil
}

// putAway removes a file of which nothing counts any more. One in which something does not verify is kept under another name.
func (s *Store) putAway(f *file) error {
	var err error
	if f.damaged {
		err = s.fs.Rename(f.name, f.name+damagedSuffix)
	} else {
		err = s.fs.Remove(f.name)
	}
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		// A file that came back would bring back what the marks of a later one, gone for good, had removed.
		err = s.fs.SyncDir(".")
	}
	if err != nil {
		return fmt.Errorf("deadletter: clean %s: %w", f.name, err)
	}
	s.mu.Lock()
	s.files = s.files[1:]
	s.mu.Unlock()
	return nil
}
