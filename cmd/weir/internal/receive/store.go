package receive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"sync"

	"github.com/weir-agent/weir/sinks/filesink"
	"github.com/weir-agent/weir/wab/record"
	"github.com/weir-agent/weir/wab/vfs"
)

// store is the file and the set of keys in it.
type store struct {
	name string
	lock io.Closer
	file vfs.File
	size int64         // of the file; the writer's own
	wake chan struct{} // has room for one
	done chan struct{} // closed when the writer is done

	mu      sync.Mutex
	stored  map[record.ID]struct{} // keys on stable storage
	pending map[record.ID]*group   // keys that a group will store
	next    *group                 // the group that gathers
	counts  Stats
	failed  error // sticky: what a file that failed once holds is not known
	closing bool
}

// group is what shares one write and one sync.
type group struct {
	lines   []byte
	keys    []record.ID
	records int64
	done    chan struct{}
	err     error // valid after done
}

func newGroup() *group { return &group{done: make(chan struct{})} }

var errClosed = errors.New("receive: the endpoint is closed")

func openStore(dir vfs.FS, name string) (*store, error) {
	lock, err := dir.Lock(name + ".lock")
	if err != nil {
		return nil, fmt.Errorf("receive: lock %s: %w", name, err)
	}
	s := &store{
		name: name, lock: lock, wake: make(chan struct{}, 1), done: make(chan struct{}),
		stored: map[record.ID]struct{}{}, pending: map[record.ID]*group{}, next: newGroup(),
	}
	if err := s.open(dir); err != nil {
		return nil, errors.Join(fmt.Errorf("receive: open %s: %w", name, err), lock.Close())
	}
	go s.write()
	return s, nil
}

func (s *store) open(dir vfs.FS) error {
	f, err := dir.Open(s.name)
	if errors.Is(err, fs.ErrNotExist) {
		f, err = dir.Create(s.name)
	}
	if err != nil {
		return err
	}
	s.file = f
	if err = s.readBack(); err == nil {
		err = errors.Join(f.SyncData(), dir.SyncDir("."))
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	return nil
}

// add stores what is new of p and returns when all of p is on stable storage.
func (s *store) add(ctx context.Context, p push) error {
	groups, err := s.enqueue(p)
	if err != nil {
		return err
	}
	for _, g := range groups {
		select {
		case <-g.done:
			if g.err != nil {
				return g.err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// enqueue puts what is new of p into the next group and returns the groups that
// have to be on stable storage for p to be.
func (s *store) enqueue(p push) ([]*group, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed != nil {
		return nil, s.failed
	}
	if s.closing {
		return nil, errClosed
	}
	g := s.next
	var wait []*group
	added := false
	s.counts.Received += int64(len(p.items))
	for i := range p.items {
		it := &p.items[i]
		if it.keyed && (i == 0 || !p.whole) {
			if known, earlier := s.known(it.key); known {
				wait = appendNew(wait, earlier)
				if p.whole {
					s.counts.Repeats += int64(len(p.items))
					return wait, nil
				}
				s.counts.Repeats++
				continue
			}
			s.pending[it.key] = g
			g.keys = append(g.keys, it.key)
		}
		of := 0
		if p.whole {
			of = len(p.items)
		}
		g.lines = appendLine(g.lines, it, i+1, of)
		g.records++
		added = true
	}
	if added {
		wait = appendNew(wait, g)
		select {
		case s.wake <- struct{}{}:
		default: // the writer is told already
		}
	}
	return wait, nil
}

// known tells whether key is stored, or will be by the group that it returns.
func (s *store) known(key record.ID) (bool, *group) {
	if g, ok := s.pending[key]; ok {
		return true, g
	}
	_, ok := s.stored[key]
	return ok, nil
}

// appendNew appends g where it is a group and not the last one already.
func appendNew(list []*group, g *group) []*group {
	if g == nil || len(list) > 0 && list[len(list)-1] == g {
		return list
	}
	return append(list, g)
}

// The fixed parts of a line. A reader of the file relies on key, line and of being
// first, in this order: they fit maxPrefixBytes.
const (
	keyMember  = `{"key":"`
	lineMember = `,"line":`
	ofMember   = `,"of":`
)

// appendLine appends one record; of is how many share its key, 0 where none does.
func appendLine(dst []byte, it *item, line, of int) []byte {
	if !it.keyed {
		dst = append(dst, '{')
	} else {
		dst = it.key.AppendText(append(dst, keyMember...))
		dst = append(dst, '"')
		if of > 0 {
			dst = strconv.AppendInt(append(dst, lineMember...), int64(line), 10)
			dst = strconv.AppendInt(append(dst, ofMember...), int64(of), 10)
		}
		dst = append(dst, ',')
	}
	dst = filesink.AppendPayload(dst, it.payload, false)
	return append(dst, "}\n"...)
}

// write is the writer: the one goroutine that touches the file.
func (s *store) write() {
	defer close(s.done)
	spare := newGroup()
	for range s.wake {
		s.mu.Lock()
		g := s.next
		if len(g.lines) == 0 {
			closing := s.closing
			s.mu.Unlock()
			if closing {
				return
			}
			continue
		}
		s.next = spare
		s.mu.Unlock()

		g.err = s.writeGroup(g)
		s.settle(g)
		close(g.done)
		spare = newGroup()
		spare.lines = g.lines[:0]
		if cap(g.lines) > maxPooledBytes {
			spare.lines = nil
		}
	}
}

func (s *store) writeGroup(g *group) error {
	s.mu.Lock()
	failed := s.failed
	s.mu.Unlock()
	if failed != nil {
		return failed
	}
	if _, err := s.file.WriteAt(g.lines, s.size); err != nil {
		return fmt.Errorf("receive: write %s: %w", s.name, err)
	}
	if err := s.file.SyncData(); err != nil {
		return fmt.Errorf("receive: sync %s: %w", s.name, err)
	}
	s.size += int64(len(g.lines))
	return nil
}

// settle makes the group's keys stored ones, or none where it failed.
func (s *store) settle(g *group) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range g.keys {
		delete(s.pending, key)
		if g.err == nil {
			s.stored[key] = struct{}{}
		}
	}
	if g.err == nil {
		s.counts.Stored += g.records
	} else if s.failed == nil {
		s.failed = g.err
	}
	if s.closing { // one more turn, to see whether it is the last
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

func (s *store) stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts
}

func (s *store) close() error {
	s.mu.Lock()
	first := !s.closing
	s.closing = true
	s.mu.Unlock()
	if !first {
		<-s.done
		return nil
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
	<-s.done
	return errors.Join(s.file.Close(), s.lock.Close())
}
