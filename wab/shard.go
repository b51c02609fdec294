package wab

import (
	"fmt"
	"path"
	"sync"
	"time"

	"github.com/weir-agent/weir/wab/record"
	"github.com/weir-agent/weir/wab/segment"
	"github.com/weir-agent/weir/wab/vfs"
)

// Shard is one independent log. Its methods are safe for use by several goroutines.
//
// Two turns order the I/O: the write turn (one goroutine writes a group to the active file)
// and the sync turn (one goroutine syncs the files that have unsynced bytes). A turn is taken by a
// goroutine that waits for a ticket, so a lone producer does all by itself; when a turn ends it
// is offered to one sleeper that can use it. While one group is in its sync the next one gathers,
// and Buffered records are written beside the sync.
type Shard struct {
	log      *Log
	number   int
	dir      string
	writable bool

	mu      sync.Mutex // never held over I/O, a channel operation or a sleep
	segs    []*segmentFile
	active  *segmentFile // the last of segs, or nil while no segment can be made
	next    *segmentFile // prepared: its name and header are on stable storage
	gather  *group
	writing *group // has the write turn
	syncing bool   // somebody has the sync turn
	// unsynced are the written groups with Durable records, in order; dirty the files with unsynced bytes.
	unsynced []*group
	dirty    []*segmentFile
	spare    []*segment.Group // buffers
	closed   bool

	lastNumber uint64        // the highest number that any name had
	wantBytes  int64         // what the next segment must hold at least, of one large record
	prepared   chan struct{} // closed when the preparation ended, if somebody waits
	prepareErr error
	arrived    chan struct{} // closed when more can be read, if a reader waits

	cursor      Position
	marks       []Position
	cursorDirty bool
	saveAsked   bool     // the keeper was woken since it last saved the cursor, for what is synced goes into it
	savedNext   Position // what the cursor file says
	savedSynced Position
	cursorTurn  chan struct{} // capacity 1: who has sent to it may use cursorFile
	// savedHighest is the highest segment number that the cursor file has; leftovers, the keeper's, are the segments without a record that
	// recovery found.
	savedHighest uint64
	leftovers    []*segmentFile
	cursorFile   cursorFile // the keeper's
	// lastAppends and lastRecords are those of the last group with Durable records.
	lastAppends, lastRecords int
	lastSync                 time.Duration  // what the last sync took
	dirtySince               time.Time      // the oldest unsynced byte is younger than that
	recyclable               []*segmentFile // files to be used again; the preparer takes them

	hot     hotTail // has its own lock
	health  health
	counts  counts
	prepare chan struct{} // wakes the preparer
	keep    chan struct{} // wakes the keeper
	stop    chan struct{}
	wg      sync.WaitGroup
}

// segmentFile is one segment of a shard from its preparation to its removal.
type segmentFile struct {
	number   uint64
	instance uint64
	addr     string // the address in coordinates
	header   segment.Header

	// Guarded by Shard.mu:
	name   string   // the present path
	file   vfs.File // open for writing; nil once sealed
	size   int64    // of the file, footer room included
	tail   int64    // end of the groups that got a place, written or about to be
	off    int64    // end of the written groups
	index  uint64   // last index before off
	fence  int64    // end of what was handed to a sync; see place
	synced int64
	first  int64 // append times, Unix nanoseconds
	last   int64
	failed error // retired: never written or synced again
	closed bool  // takes no more groups
	sealed bool
	// recovered: it was not written by this run, so that no sync of it is known of.
	recovered bool
	// nonceless: neither header nor groups verify, so that nothing in it can be read.
	nonceless bool
	// before: a position behind the last record of the segment before it, as its footer has it; zero: not known.
	before Position
	// keep: it may hold damage that is not in quarantine yet, so it is verified before it is removed.
	keep bool
	// untouched: what is behind its records could not be copied to quarantine. It is neither sealed nor removed in this run.
	untouched bool
}

// footerRoom is what a segment keeps free behind its groups.
const footerRoom = 2 * segment.SectorBytes

// place returns where the next group starts: never in a sector that holds bytes that were
// handed to a sync, so that a torn write cannot touch what is acked.
func (f *segmentFile) place() int64 {
	if fenced := segment.SectorUp(f.fence); fenced > f.tail {
		return fenced
	}
	return f.tail
}

// holds reports whether a group of n bytes fits behind what has a place.
func (f *segmentFile) holds(n int64) bool {
	return segment.SectorUp(f.tail)+n <= f.size-footerRoom
}

// final reports whether off and index will not change any more.
func (f *segmentFile) final() bool { return f.closed && f.tail == f.off }

func (s *Shard) path(name string) string { return path.Join(s.dir, name) }

// Append adds payloads, in order, as consecutive records to the group commit that is being
// gathered; the bytes are copied. It returns at once unless a group is full or the next segment is not ready
// yet. With an error nothing was appended: ErrFull, ErrNoSpace, ErrRecordSize or
// ErrClosed. Where only the first payloads found a place, the ticket tells.
func (s *Shard) Append(d record.Durability, payloads ...[]byte) (Ticket, error) {
	var bytes int64
	for _, p := range payloads {
		if len(p) == 0 || len(p) > record.MaxBytes {
			return Ticket{}, fmt.Errorf("%w: got %d", ErrRecordSize, len(p))
		}
		bytes += segment.RecordBytes(len(p))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.admit(bytes); err != nil {
		s.counts.refused += uint64(len(payloads))
		return Ticket{}, err
	}
	t := Ticket{shard: s, tier: d}
	for len(payloads) > 0 {
		g, err := s.room(segment.RecordBytes(len(payloads[0])))
		if err != nil {
			s.counts.refused += uint64(len(payloads))
			if t.head.n == 0 {
				return Ticket{}, err
			}
			t.add(span{n: len(payloads), err: err})
			break
		}
		n := s.fillGroup(g, d, payloads)
		t.add(span{g: g, at: g.count - n, n: n})
		payloads = payloads[n:]
	}
	return t, nil
}

// admit checks the caps. Called with mu held.
func (s *Shard) admit(bytes int64) error {
	switch {
	case s.closed || !s.writable:
		return ErrClosed
	case s.log.used.Load()+bytes > s.log.opts.MaxBytes:
		return ErrFull
	case s.log.lowSpace.Load():
		return fmt.Errorf("%w: free space is under min_free_bytes", ErrNoSpace)
	}
	return nil
}

// fillGroup adds as many payloads as the group takes, at least one.
func (s *Shard) fillGroup(g *group, d record.Durability, payloads [][]byte) int {
	n := 0
	before := g.enc.Bytes()
	for n < len(payloads) && (n == 0 || s.takes(g, segment.RecordBytes(len(payloads[n])))) {
		g.enc.Add(payloads[n])
		n++
		g.count++
	}
	grown := g.enc.Bytes() - before
	g.charged += grown
	s.log.used.Add(grown)
	g.appends++
	if d == record.Durable {
		g.durable = true
	}
	return n
}

// takes reports whether another record of n bytes fits into the gathering group.
func (s *Shard) takes(g *group, n int64) bool {
	return !g.full && g.count < s.log.opts.GroupRecords &&
		g.enc.Bytes()+n <= s.log.opts.GroupBytes && g.file.holds(g.enc.Bytes()+n+8)
}

// room returns the gathering group with room for a record of n encoded bytes. It may
// release mu and wait: for a full group to be written, or for the next segment.
func (s *Shard) room(n int64) (*group, error) {
	for {
		if s.closed {
			return nil, ErrClosed
		}
		g := s.gather
		switch {
		case g != nil && s.takes(g, n):
			return g, nil
		case g != nil:
			g.full = true
			s.waitLocked(g, record.Buffered) // its own tickets get the error, if there is one
		case s.active != nil && s.active.holds(segment.GroupHeaderBytes+n+8):
			return s.newGroup(), nil
		default:
			if err := s.rotate(segment.GroupHeaderBytes + n + 8); err != nil {
				return nil, err
			}
		}
	}
}

func (s *Shard) newGroup() *group {
	f := s.active
	g := &group{file: f, time: s.log.opts.Now().UnixNano(), enc: s.buffer()}
	// Nothing is gathered while another group has no place yet, so tail and the index behind it are known.
	g.first = f.index + 1
	if w := s.writing; w != nil && w.file == f {
		g.first = w.first + uint64(w.count)
	}
	g.enc.Reset(f.header.Nonce, g.first)
	s.gather = g
	return g
}

const spareBuffers = 4

func (s *Shard) buffer() *segment.Group {
	if n := len(s.spare); n > 0 {
		b := s.spare[n-1]
		s.spare = s.spare[:n-1]
		return b
	}
	return new(segment.Group)
}

// release keeps a buffer for the next group, unless a large record made it large.
func (s *Shard) release(b *segment.Group) {
	if len(s.spare) < spareBuffers && int64(b.BufferBytes()) <= 2*s.log.opts.GroupBytes {
		s.spare = append(s.spare, b)
	}
}

// rotate makes the prepared segment the active one. It may release mu and wait for the
// preparation. Called with no group gathering.
func (s *Shard) rotate(n int64) error {
	if s.next == nil || !s.next.holds(n) {
		s.wantBytes = max(s.wantBytes, n)
		return s.awaitSegment()
	}
	s.activate()
	return nil
}

// activate puts the prepared segment behind the active one.
func (s *Shard) activate() {
	if s.active != nil {
		s.active.closed = true
	}
	s.active, s.next = s.next, nil
	s.active.first = s.log.opts.Now().UnixNano()
	s.active.last = s.active.first
	s.segs = append(s.segs, s.active)
	s.wantBytes = 0
	signal(s.prepare)
	signal(s.keep)
}

// awaitSegment releases mu until a preparation ended, and returns its error.
func (s *Shard) awaitSegment() error {
	if s.prepareErr != nil {
		return s.prepareErr // the preparer tries again by itself
	}
	if s.prepared == nil {
		s.prepared = make(chan struct{})
	}
	ch := s.prepared
	signal(s.prepare)
	s.mu.Unlock()
	select {
	case <-ch:
	case <-s.stop:
	}
	s.mu.Lock()
	if s.next == nil {
		return s.prepareErr
	}
	return nil
}

// signal wakes the goroutine that owns ch, a channel of capacity 1.
func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// now is for stored stamps.
func (s *Shard) now() time.Time { return s.log.opts.Now() }
