// Package deadletter keeps records that their sink refused for good, until somebody delivers them again or drops
// them. It is a log of its own in a folder of its own, in the format of package segment.
//
// Each change is one group: letters, or marks that say of letters that they are gone or requeued. A group is
// appended and synced before the call that caused it returns nil; a group starts on a sector of its own, so that a torn
// write cannot touch what is durable. Nothing is written over. A file whose write or sync failed is never written
// again, nor is one of an earlier run: the next group goes into a new file.
//
// Where several letters have the same id the last one counts, so each change can be made again. Space is got back from the oldest
// file: what still counts of it is copied to the end of the log and synced, then the file is removed. Marks
// are never older than the letter they are about, so those of the oldest file can go with it. A file in which something
// does not verify is not removed but renamed to *.damaged.
//
// While one process has the store open, others may open it with Options.ReadOnly.
//
// Memory: an index of some 50 bytes for each letter. As a letter counts as at least minLetterBytes, that is at
// most 50 MiB for each GiB of Options.MaxBytes. Payloads are in memory one at a time.
package deadletter

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/weir-agent/weir/wab/record"
	"github.com/weir-agent/weir/wab/segment"
	"github.com/weir-agent/weir/wab/vfs"
)

var (
	// ErrFull: the letters that are kept have Options.MaxBytes.
	ErrFull = errors.New("deadletter: the store is full")
	// ErrClosed: the store is closed.
	ErrClosed = errors.New("deadletter: the store is closed")
	// ErrReadOnly: the store was opened to be read only.
	ErrReadOnly = errors.New("deadletter: the store is open for reading only")
	// ErrNotFound: there is no letter with this id.
	ErrNotFound = errors.New("deadletter: no such letter")
)

// CorruptError says where the store cannot be read, and that letters may be missing there. What
// is around it is not affected.
type CorruptError struct {
	File   string
	Offset int64
	Reason string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("deadletter: %s, offset %d: %s", e.File, e.Offset, e.Reason)
}

// Letter is a record that was refused, and why.
type Letter struct {
	record.Record
	Shard    int
	Reason   string // at most 1,024 bytes are kept
	Status   int    // the endpoint's number for the answer, 0 for none
	Attempts int    // in the run in which it died
	Died     time.Time
	// Requeued: it waits for being delivered again.
	Requeued bool
}

// Options configures a store. The zero value is usable.
type Options struct {
	// MaxBytes bounds what the letters take, each at least 1 KiB; default 1 GiB. The folder may take a quarter more, and
	// some MiB, where letters went.
	MaxBytes int64
	// ReadOnly opens the store as it is now, without the lock and without changing anything.
	ReadOnly bool
	// Rand gives the nonces of the files; default crypto/rand.
	Rand io.Reader
	// Now gives the time of a file's creation; default time.Now.
	Now func() time.Time
}

const (
	defaultMaxBytes = 1 << 30
	// minLetterBytes is what a letter counts at least, so that small ones are not free in the index.
	minLetterBytes = 1 << 10
	// defaultFileBytes is the size from which a new file is begun.
	defaultFileBytes = 4 << 20
	// slackFiles and slackShare are how much space, in files and as a part of what is kept, letters that went may take before
	// their files are cleaned.
	slackFiles = 2
	slackShare = 4

	lockName = "LOCK"
)

// Store is an open store. Its methods are safe for use by several goroutines.
type Store struct {
	fs        vfs.FS
	opts      Options
	fileBytes int64
	lock      io.Closer // nil where it is read only

	turn chan struct{} // capacity 1: whoever has put something in may write

	// Of the turn's owner:
	out     *output // the file that is written; nil: the next group begins a new one
	highest uint64  // number of any file

	mu      sync.Mutex // never held over I/O
	closed  bool
	index   map[key]entry
	files   []*file // by number, all but the damaged ones that were set aside
	used    int64   // bytes that count against MaxBytes
	marked  int     // letters that are requeued
	version uint64  // of the requeues
	changed chan struct{}
	damage  []*CorruptError
	damages int
	lists   int   // iterations that are under way
	cleaned error // why files are not cleaned any more
}

// key is the part of an id by which letters are found; 16 bytes of a SHA-256 do not meet by chance.
type key [16]byte

func keyOf(id record.ID) key { return key(id[:16]) }

// entry says where the letter that counts for an id is.
type entry struct {
	file     uint64 // number
	at       uint32 // index of its first record in the file
	bytes    uint32 // what it takes there
	requeued bool
}

// counts is what the letter counts against MaxBytes.
func (e entry) counts() int64 { return max(int64(e.bytes), minLetterBytes) }

// Open opens the store whose folder is fsys, or makes it. It reads all files once. It fails with vfs.ErrLocked where another process has
// the store, unless Options.ReadOnly. Damage does not keep it from opening: see Stats.
func Open(fsys vfs.FS, opts Options) (*Store, error) {
	if opts.MaxBytes == 0 {
		opts.MaxBytes = defaultMaxBytes
	}
	if opts.MaxBytes < 0 {
		return nil, fmt.Errorf("deadletter: a byte cap of %d", opts.MaxBytes)
	}
	if opts.Rand == nil {
		opts.Rand = rand.Reader
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	s := &Store{fs: fsys, opts: opts, fileBytes: defaultFileBytes, turn: make(chan struct{}, 1), changed: make(chan struct{})}
	if !opts.ReadOnly {
		var err error
		if s.lock, err = fsys.Lock(lockName); err != nil {
			return nil, fmt.Errorf("deadletter: lock the store: %w", err)
		}
	}
	if err := s.load(); err != nil {
		return nil, errors.Join(err, s.release())
	}
	if s.marked > 0 {
		s.version = 1
	}
	return s, nil
}

// Close ends the store; what is waiting in WaitRequeued gets ErrClosed. A second call does nothing.
func (s *Store) Close() error {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	close(s.changed)
	s.mu.Unlock()
	err := s.retire()
	return errors.Join(err, s.release())
}

// retire closes the file that is written.
func (s *Store) retire() error {
	if s.out == nil {
		return nil
	}
	err := s.out.handle.Close()
	s.out = nil
	return err
}

func (s *Store) release() error {
	var errs []error
	for _, f := range s.files {
		if f.handle != nil {
			errs = append(errs, f.handle.Close())
		}
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
		s.lock = nil
	}
	return errors.Join(errs...)
}

// Stats is the store at one instant.
type Stats struct {
	Letters  int64
	Requeued int64 // of these, those that wait for delivery
	Bytes    int64 // what the letters count against MaxBytes
	MaxBytes int64
	Files    int
	// FileBytes is the size of the files.
	FileBytes int64
	// Damages counts the places that do not verify; Damage holds the first of them.
	Damages int
	Damage  []*CorruptError
	// CleanError says why space is not got back any more in this run; nil while it is.
	CleanError error
}

// Stats returns the state of the store. It costs no I/O.
func (s *Store) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Stats{
		Letters: int64(len(s.index)), Requeued: int64(s.marked), Bytes: s.used, MaxBytes: s.opts.MaxBytes,
		Files: len(s.files), Damages: s.damages, Damage: append([]*CorruptError(nil), s.damage...), CleanError: s.cleaned,
	}
	for _, f := range s.files {
		st.FileBytes += f.size
	}
	return st
}

// maxDamage bounds the reports that are kept.
const maxDamage = 100

// report notes damage. Called with mu held.
func (s *Store) report(e *CorruptError) {
	s.damages++
	if len(s.damage) < maxDamage {
		s.damage = append(s.damage, e)
	}
}

// letterBytes is what l takes in a file.
func letterBytes(l *Letter) int64 {
	parts := int64((len(l.Payload) - 1) / inlineBytes)
	return segment.RecordBytes(letterFixed+len(l.Segment)+2+min(len(l.Reason), maxReasonBytes)) + int64(len(l.Payload)) + parts*segment.RecordBytes(partFixed)
}
