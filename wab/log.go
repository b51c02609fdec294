package wab

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-agent/weir/wab/record"
	"github.com/weir-agent/weir/wab/vfs"
)

// Log is an open data folder. Its methods are safe for use by several goroutines.
type Log struct {
	fs       vfs.FS
	opts     Options
	instance uint64
	lock     io.Closer
	shards   []*Shard
	ownFS    io.Closer // the FS that Open made

	used     atomic.Int64 // bytes of all segments that are not removed
	lowSpace atomic.Bool
	spaceMu  sync.Mutex
	lookedAt time.Time // guarded by spaceMu
}

// spaceInterval is how often the free space is looked at.
const spaceInterval = 250 * time.Millisecond

// Open opens the data folder dir, which must exist, or makes a new log in it. Before it changes anything it takes the
// lock (vfs.ErrLocked where another process has it). It reads the ends of all segments and walks those
// that were not sealed: what is damaged is said through Observer and Stats, and does not keep the log
// from opening. A segment in a newer format is refused (segment.ErrVersion). Options.FS replaces dir.
func Open(dir string, opts Options) (*Log, error) {
	opts, err := opts.fill()
	if err != nil {
		return nil, err
	}
	l := &Log{fs: opts.FS, opts: opts}
	if l.fs == nil {
		d, err := vfs.OpenDir(dir)
		if err != nil {
			return nil, fmt.Errorf("wab: open %s: %w", dir, err)
		}
		l.fs, l.ownFS = d, d
	}
	if err := l.open(); err != nil {
		return nil, errors.Join(err, l.release())
	}
	return l, nil
}

func (l *Log) open() error {
	var err error
	if l.lock, err = l.fs.Lock(lockName); err != nil {
		return fmt.Errorf("wab: lock the data folder: %w", err)
	}
	free, _, err := l.fs.Space()
	if err != nil {
		return fmt.Errorf("wab: free space: %w", err)
	}
	held, err := l.heldBytes()
	if err != nil {
		return err
	}
	l.opts.capBytes(free + held)
	if err := l.openInstance(); err != nil {
		return err
	}
	if err := mkdir(l.fs, quarantineName); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	entries, err := l.fs.ReadDir(".")
	if err != nil {
		return fmt.Errorf("wab: list the data folder: %w", err)
	}
	on := l.opts.Shards
	for _, e := range entries {
		if n, ok := parseShardDir(e.Name); ok && e.Mode.IsDir() {
			on = max(on, n+1)
		}
	}
	for n := range on {
		s, err := l.openShard(n)
		if err != nil {
			return err
		}
		l.shards = append(l.shards, s)
	}
	if err := l.syncNames(".", quarantineName); err != nil {
		return err
	}
	for _, s := range l.shards {
		s.start()
	}
	return nil
}

// syncNames makes the names lasting that an earlier process may have made and not synced: it was killed in between, and
// what rests on them is promised from now on.
func (l *Log) syncNames(folders ...string) error {
	for _, folder := range folders {
		if err := l.fs.SyncDir(folder); err != nil {
			return fmt.Errorf("wab: sync the folder %s: %w", folder, err)
		}
	}
	return nil
}

// heldBytes is the size of all segment files: space that is not free, and that the log may go on using.
func (l *Log) heldBytes() (sum int64, err error) {
	entries, err := l.fs.ReadDir(".")
	if err != nil {
		return 0, fmt.Errorf("wab: list the data folder: %w", err)
	}
	for _, dir := range entries {
		if _, ok := parseShardDir(dir.Name); !ok || !dir.Mode.IsDir() {
			continue
		}
		files, err := l.fs.ReadDir(dir.Name)
		if err != nil {
			return 0, fmt.Errorf("wab: list %s: %w", dir.Name, err)
		}
		for _, f := range files {
			if _, ok := parseSegmentName(f.Name); ok && f.Mode.IsRegular() {
				sum += f.Size
			}
		}
	}
	return sum, nil
}

func mkdir(fsys vfs.FS, name string) error {
	err := fsys.Mkdir(name)
	if err == nil {
		err = fsys.SyncDir(path.Dir(name))
	}
	if err != nil {
		return fmt.Errorf("wab: make %s: %w", name, err)
	}
	return nil
}

func (l *Log) openShard(n int) (*Shard, error) {
	s := &Shard{
		log: l, number: n, dir: shardDir(n), writable: n < l.opts.Shards,
		prepare: make(chan struct{}, 1), keep: make(chan struct{}, 1), stop: make(chan struct{}),
		cursorTurn: make(chan struct{}, 1),
	}
	err := mkdir(l.fs, s.dir)
	fresh := err == nil
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	if err := s.recoverShard(fresh); err != nil {
		return nil, err
	}
	return s, l.syncNames(s.dir)
}

// openInstance reads the id of the data folder, or makes one. An unreadable one is kept aside and replaced: ids
// of records come from segment names, which hold it.
func (l *Log) openInstance() error {
	f, err := l.fs.OpenRead(instanceName)
	if err == nil {
		b := make([]byte, 64)
		n, rerr := readFull(f, b, 0)
		if err := errors.Join(rerr, f.Close()); err != nil {
			return fmt.Errorf("wab: read the instance file: %w", err)
		}
		if l.instance, err = parseInstance(b[:n]); err == nil {
			return nil
		}
		if err := l.setAside(instanceName); err != nil {
			return err
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("wab: open the instance file: %w", err)
	}
	if l.instance, err = randomUint64(l.opts.Rand); err != nil {
		return err
	}
	err = keepFile(l.fs, instanceName, func(f vfs.File) error {
		return writeAll(f, fmt.Appendf(nil, "%016x\n", l.instance), 0)
	})
	if err != nil {
		return fmt.Errorf("wab: write the instance file: %w", err)
	}
	return nil
}

// setAside renames a file that is not understood to the first free name.
func (l *Log) setAside(name string) error {
	for n := 1; ; n++ {
		err := l.fs.Rename(name, fmt.Sprintf("%s.damaged-%d", name, n))
		if !errors.Is(err, fs.ErrExist) {
			if err != nil {
				return fmt.Errorf("wab: set %s aside: %w", name, err)
			}
			return nil
		}
	}
}

// Shards returns all shards, in order: those that take appends, then those that are only read.
// A read-only shard answers Append with ErrClosed.
func (l *Log) Shards() []*Shard { return l.shards }

// Writable returns the shards that take appends, at least one.
func (l *Log) Writable() []*Shard { return l.shards[:l.opts.Shards] }

// Instance is the id of the data folder.
func (l *Log) Instance() uint64 { return l.instance }

// Close syncs what is written, stores the cursors and frees all. Appends that are running get their answer. It
// returns the first error; a second call does nothing.
func (l *Log) Close() error {
	var errs []error
	for _, s := range l.shards {
		errs = append(errs, s.close())
	}
	return errors.Join(append(errs, l.release())...)
}

func (l *Log) release() error {
	var errs []error
	for _, c := range []io.Closer{l.lock, l.ownFS} {
		if c != nil {
			errs = append(errs, c.Close())
		}
	}
	l.lock, l.ownFS = nil, nil
	return errors.Join(errs...)
}

// checkSpace refuses a new file that would go under MinFreeBytes.
func (l *Log) checkSpace(size int64) error {
	if l.opts.MinFreeBytes < 0 {
		return nil
	}
	free, _, err := l.fs.Space()
	if err != nil {
		return fmt.Errorf("wab: free space: %w", err)
	}
	if free-size < l.opts.MinFreeBytes {
		return fmt.Errorf("wab: a segment of %d bytes would leave %d bytes free, min_free_bytes is %d", size, free-size, l.opts.MinFreeBytes)
	}
	return nil
}

// look notes, at most every spaceInterval, whether there is enough free space for appends.
func (l *Log) look() {
	if l.opts.MinFreeBytes < 0 {
		return
	}
	l.spaceMu.Lock()
	due := time.Since(l.lookedAt) >= spaceInterval
	if due {
		l.lookedAt = time.Now()
	}
	l.spaceMu.Unlock()
	if !due {
		return
	}
	if free, _, err := l.fs.Space(); err == nil {
		l.lowSpace.Store(free < l.opts.MinFreeBytes)
	}
}

func (l *Log) observeSync(shard int, took time.Duration) {
	if f := l.opts.Observer.Synced; f != nil {
		f(shard, took)
	}
}

// start begins the background work of a shard.
func (s *Shard) start() {
	s.wg.Go(s.runKeeper)
	if s.writable {
		s.wg.Go(s.runPreparer)
	}
}

// close ends the shard: the group that gathers is written, all is synced, the active segment sealed, the cursor stored.
func (s *Shard) close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	if g := s.gather; g != nil {
		g.full = true
		s.waitLocked(g, record.Buffered) // its tickets get the error, if there is one
	}
	if g := s.writing; g != nil { // until its write has returned, its segment may look empty
		s.waitLocked(g, record.Buffered)
	}
	close(s.stop)
	s.mu.Unlock()
	s.wg.Wait()

	s.mu.Lock()
	for s.syncing || len(s.dirty) > 0 {
		if s.syncing {
			s.awaitTurn()
			continue
		}
		s.sync()
	}
	if s.active != nil {
		s.active.closed = true
	}
	next := s.next
	s.next = nil
	s.mu.Unlock()

	s.cursorTurn <- struct{}{} // for good: nobody else stores the cursor any more
	before := s.failures()
	if next != nil { // it never held a record
		s.note("remove", errors.Join(next.file.Close(), s.log.fs.Remove(next.name)))
	}
	s.dropEmpty()
	s.sealClosed()
	err := s.saveCursor()
	s.removeConfirmed()
	s.note("cursor", s.cursorFile.close())
	s.closeFiles()
	s.flushEvents()
	if err == nil && s.failures() != before {
		err = fmt.Errorf("wab: %s: not all could be put in order; nothing is lost: %w", s.dir, s.lastError())
	}
	return err
}

// awaitTurn sleeps until some turn ends. Called with mu held.
func (s *Shard) awaitTurn() {
	if s.arrived == nil {
		s.arrived = make(chan struct{})
	}
	ch := s.arrived
	s.mu.Unlock()
	<-ch
	s.mu.Lock()
}

// dropEmpty removes the active segment if it never held a record.
func (s *Shard) dropEmpty() {
	s.mu.Lock()
	f := s.active
	s.active = nil
	if f == nil || f.index > 0 || f.failed != nil {
		s.mu.Unlock()
		return
	}
	s.segs = without(s.segs, f)
	s.mu.Unlock()
	s.note("remove", errors.Join(f.file.Close(), s.log.fs.Remove(f.name)))
}

// closeFiles closes what is still open: the files that were retired.
func (s *Shard) closeFiles() {
	for _, f := range s.segs {
		if f.file != nil {
			s.note("remove", f.file.Close())
			f.file = nil
		}
	}
}
