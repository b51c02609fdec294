package deadletter

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"time"

	"github.com/weir-agent/weir/wab/record"
)

// List returns the letters, in the order in which they died, as far as files were not cleaned since. Where something
// does not verify it yields a *CorruptError and goes on. One letter is in memory at a time; it is the caller's to keep.
func (s *Store) List() iter.Seq2[Letter, error] {
	return s.each(func(f *file) bool { return f.live > 0 || f.damaged }, func(entry) bool { return true })
}

// Requeued returns those letters that wait for being delivered again, like List.
func (s *Store) Requeued() iter.Seq2[Letter, error] {
	return s.each(func(f *file) bool { return f.marked > 0 }, func(e entry) bool { return e.requeued })
}

// each yields the letters that count and are wanted. While it goes on no file is removed.
func (s *Store) each(wantFile func(*file) bool, want func(entry) bool) iter.Seq2[Letter, error] {
	return func(yield func(Letter, error) bool) {
		s.mu.Lock()
		s.lists++
		s.mu.Unlock()
		defer func() {
			s.mu.Lock()
			s.lists--
			s.mu.Unlock()
		}()
		for f, size := s.following(0, wantFile); f != nil; f, size = s.following(f.number, wantFile) {
			if !s.eachIn(f, size, want, yield) {
				return
			}
		}
	}
}

// following returns the first wanted file above number, and how much of it is durable.
func (s *Store) following(number uint64, want func(*file) bool) (*file, int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.files {
		if f.number > number && want(f) {
			return f, f.size
		}
	}
	return nil, 0
}

// eachIn yields what is in one file; false: the caller has enough.
func (s *Store) eachIn(f *file, size int64, want func(entry) bool, yield func(Letter, error) bool) bool {
	handle, done, err := s.handleOf(f)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist) || yield(Letter{}, err)
	}
	defer done() // read only
	w, _, err := openWalker(f.name, handle, size)
	if err != nil {
		return yield(Letter{}, err)
	}
	for it, ok := w.next(); ok; it, ok = w.next() {
		switch {
		case it.damage != nil:
			if !(it.tail && s.opts.ReadOnly) && !yield(Letter{}, it.damage) {
				return false
			}
		case it.letter != nil:
			e, ok := s.current(f, it)
			it.letter.Requeued = e.requeued
			if ok && want(e) && !yield(*it.letter, nil) {
				return false
			}
		}
	}
	return true
}

// current returns the entry of the letter of it, if it is the one that counts.
func (s *Store) current(f *file, it item) (entry, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.index[keyOf(it.letter.ID)]
	return e, ok && e.file == f.number && e.at == it.at
}

// Get returns the letter with this id; ErrNotFound where there is none, and a *CorruptError where it does not verify.
func (s *Store) Get(id record.ID) (Letter, error) {
	s.mu.Lock()
	e, ok := s.index[keyOf(id)]
	if !ok {
		s.mu.Unlock()
		return Letter{}, fmt.Errorf("%w: %v", ErrNotFound, id)
	}
	f := s.find(e.file)
	size := f.size
	s.mu.Unlock()
	var found *Letter
	var bad error
	s.eachIn(f, size, func(e2 entry) bool { return e2 == e }, func(l Letter, err error) bool {
		if err != nil {
			bad = err
			return true
		}
		found = &l
		return false
	})
	switch {
	case found != nil:
		return *found, nil
	case bad != nil:
		return Letter{}, bad
	}
	return Letter{}, fmt.Errorf("deadletter: %v was moved or removed meanwhile: %w", id, ErrNotFound)
}

// exported is a letter as a line of Export.
type exported struct {
	ID       record.ID `json:"id"`
	Shard    int       `json:"shard"`
	Segment  string    `json:"segment"`
	Index    uint64    `json:"index"`
	Reason   string    `json:"reason"`
	Status   int       `json:"status,omitempty"`
	Attempts int       `json:"attempts"`
	Appended time.Time `json:"appended"`
	Died     time.Time `json:"died"`
	Requeued bool      `json:"requeued,omitempty"`
	Payload  []byte    `json:"payload"`
}

// MarshalJSON gives the letter as Export writes it; the payload is base64.
func (l Letter) MarshalJSON() ([]byte, error) {
	return json.Marshal(exported{
		ID: l.ID, Shard: l.Shard, Segment: l.Segment, Index: l.Index, Reason: l.Reason, Status: l.Status, Attempts: l.Attempts,
		Appended: l.Appended.UTC(), Died: l.Died.UTC(), Requeued: l.Requeued, Payload: l.Payload,
	})
}

// Export writes each letter as a line of JSON, and returns how many it wrote. It goes on behind
// what cannot be read, and then its error says so.
func (s *Store) Export(w io.Writer) (int, error) {
	n, bad := 0, 0
	var first error
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	for l, err := range s.List() {
		if err != nil {
			if bad++; first == nil {
				first = err
			}
			continue
		}
		if err := enc.Encode(l); err != nil {
			return n, fmt.Errorf("deadletter: export: %w", err)
		}
		n++
	}
	if bad > 0 {
		return n, fmt.Errorf("deadletter: export: %d places cannot be read, first: %w", bad, first)
	}
	return n, nil
}
