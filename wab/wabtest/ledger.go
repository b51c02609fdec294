// Package wabtest has the oracle of every crash, fault and soak test of the log: a ledger of what was pushed, acked
// and read, and the check that nothing acked is missing.
package wabtest

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/weir-agent/weir/wab"
	"github.com/weir-agent/weir/wab/record"
	"github.com/weir-agent/weir/wab/vfs"
)

// Ledger remembers every push by its payload, which must be unique. It is safe for use by several goroutines.
type Ledger struct {
	mu     sync.Mutex
	rows   map[string]*row
	places map[place]string // the payload that was acked with a coordinate
	faults []string         // of acks
	next   int
	open   bool // there may be records that it does not know
}

// Snapshot returns the ledger as it is now. What is pushed later is unknown to it, and its Check lets that pass; so it judges an image of the disk
// that is taken afterwards, while pushes go on.
func (l *Ledger) Snapshot() *Ledger {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := &Ledger{rows: map[string]*row{}, places: map[place]string{}, faults: slices.Clone(l.faults), next: l.next, open: true}
	for p, r := range l.rows {
		twin := *r
		s.rows[p] = &twin
	}
	return s
}

type place struct {
	segment string
	index   uint64
}

type row struct {
	tier      record.Durability
	acked     bool
	confirmed bool
	segment   string
	index     uint64
}

// NewLedger returns an empty ledger.
func NewLedger() *Ledger { return &Ledger{rows: map[string]*row{}, places: map[place]string{}} }

// Payload returns a new payload of n bytes or a few more, that no other call returns.
func (l *Ledger) Payload(n int) []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next++
	p := fmt.Appendf(nil, "#%d.", l.next)
	for len(p) < n {
		p = append(p, byte('a'+(l.next+len(p))%26))
	}
	return p
}

// Push appends payloads and waits; it books what was acked. The error is Append's or Wait's.
func (l *Ledger) Push(s *wab.Shard, d record.Durability, payloads ...[]byte) error {
	l.mu.Lock()
	for _, p := range payloads {
		l.rows[string(p)] = &row{tier: d}
	}
	l.mu.Unlock()
	t, err := s.Append(d, payloads...)
	if err != nil {
		return err
	}
	err = t.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, p := range payloads {
		if t.Err(i) != nil {
			continue
		}
		r := l.rows[string(p)]
		r.segment, r.index = t.Coordinate(i)
		r.acked = true
		at := place{r.segment, r.index}
		if other, ok := l.places[at]; ok {
			l.faults = append(l.faults, fmt.Sprintf("%s/%d was acked for %.20q and again for %.20q", r.segment, r.index, other, p))
		}
		l.places[at] = string(p)
	}
	return err
}

// Confirm books records as confirmed. Call it before Shard.Confirm.
func (l *Ledger) Confirm(records []record.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range records {
		if r := l.rows[string(records[i].Payload)]; r != nil {
			r.confirmed = true
		}
	}
}

// Acked returns how many records were acked.
func (l *Ledger) Acked() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.rows {
		if r.acked {
			n++
		}
	}
	return n
}

// Loss says what a check found wrong; the zero value is a ledger that holds.
type Loss struct {
	Missing int    // acked, not confirmed, not there
	Again   int    // confirmed, and there again, as it may be after a crash
	First   string // the first fault in words
}

// Check compares what was read back, from the cursor on, with the ledger. powerCut: Buffered records may be missing.
// lost records of damage are allowed for by the caller.
func (l *Ledger) Check(read []record.Record, powerCut bool) (loss Loss, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.faults) > 0 {
		return loss, errors.New(l.faults[0])
	}
	seen := map[string]bool{}
	ids := map[record.ID]bool{}
	for i := range read {
		r := &read[i]
		want, ok := l.rows[string(r.Payload)]
		switch {
		case !ok && l.open:
			continue
		case !ok:
			return loss, fmt.Errorf("record %s/%d was never pushed: %.40q", r.Segment, r.Index, r.Payload)
		case ids[r.ID]:
			return loss, fmt.Errorf("id %v is there twice", r.ID)
		case r.ID != record.ComputeID(r.Segment, r.Index, r.Payload):
			return loss, fmt.Errorf("record %s/%d has a wrong id", r.Segment, r.Index)
		case want.acked && (want.segment != r.Segment || want.index != r.Index):
			return loss, fmt.Errorf("record %.20q was acked as %s/%d and is read as %s/%d", r.Payload, want.segment, want.index, r.Segment, r.Index)
		case i > 0 && read[i-1].Segment == r.Segment && read[i-1].Index >= r.Index:
			return loss, fmt.Errorf("record %s/%d comes after %d", r.Segment, r.Index, read[i-1].Index)
		case seen[string(r.Payload)]:
			return loss, fmt.Errorf("record %.20q is there twice", r.Payload)
		}
		if want.confirmed {
			loss.Again++
		}
		seen[string(r.Payload)], ids[r.ID] = true, true
	}
	for p, r := range l.rows {
		if r.acked && !r.confirmed && !seen[p] && !(powerCut && r.tier == record.Buffered) {
			if loss.Missing == 0 {
				loss.First = fmt.Sprintf("record %.20q, acked %v as %s/%d", p, r.tier, r.segment, r.index)
			}
			loss.Missing++
		}
	}
	return loss, nil
}

// Settle takes what is missing for lost from now on: a power cut or damage took it, and Check has said how much that was.
func (l *Ledger) Settle(read []record.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	seen := map[string]bool{}
	for i := range read {
		seen[string(read[i].Payload)] = true
	}
	for p, r := range l.rows {
		if r.acked && !seen[p] {
			r.confirmed = true
		}
	}
}

// Recover is Reopen without the making of new segments, which it lets fail for want of space: the fastest way to look at many images.
func Recover(fsys vfs.FS, opts wab.Options) ([]record.Record, []wab.Stats, error) {
	opts.MinFreeBytes = math.MaxInt64 / 2
	return Reopen(fsys, opts)
}

// ReadAll returns every record of a shard that is committed and not confirmed.
func ReadAll(s *wab.Shard) ([]record.Record, error) {
	from, _ := s.Cursor()
	r := s.NewReader(from)
	var all []record.Record
	for {
		n := len(all)
		var err error
		if all, err = r.Next(all, 1000, 1<<20, wab.Position{}); err != nil {
			return all, errors.Join(err, r.Close())
		}
		if len(all) == n {
			return all, r.Close()
		}
	}
}

// Reopen opens the log on fsys, reads all records of all shards, closes it, and returns them by shard.
func Reopen(fsys vfs.FS, opts wab.Options) (read []record.Record, st []wab.Stats, err error) {
	opts.FS = fsys
	l, err := wab.Open("", opts)
	if err != nil {
		return nil, nil, err
	}
	for _, s := range l.Shards() {
		rs, err := ReadAll(s)
		if err != nil {
			return nil, nil, errors.Join(err, l.Close())
		}
		read = append(read, rs...)
		st = append(st, s.Stats())
	}
	return read, st, l.Close()
}
