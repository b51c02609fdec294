package wab

import (
	"github.com/weir-agent/weir/wab/record"
	"github.com/weir-agent/weir/wab/segment"
)

// Seal ends the active segment, so that it is sealed, and removed once its records are confirmed, without waiting
// until it is full. A segment without a record is left as it is. It returns ErrClosed where the shard takes no appends, and
// ErrNoSpace where no next segment can be made; then nothing has changed. The sealing itself is done in the background.
func (s *Shard) Seal() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		if s.closed || !s.writable {
			return ErrClosed
		}
		f, g := s.active, s.gather
		switch {
		case g != nil:
			g.full = true
			s.waitLocked(g, record.Buffered) // its own tickets get the error, if there is one
		case f == nil || f.index == 0 && s.writing == nil:
			return nil
		default:
			// A rotation that only waited for the next segment has left the active one in place: once more.
			if err := s.rotate(segment.GroupHeaderBytes); err != nil || s.active != f {
				return err
			}
		}
	}
}

// SegmentState is what a shard knows of one of its segments.
type SegmentState struct {
	Number    uint64
	Bytes     int64  // of its records, as written
	Size      int64  // of the file
	Records   uint64 // in it
	Confirmed uint64 // of these
	Sealed    bool
	Active    bool // appends go into it
	Failed    bool // retired by a failed write or sync
}

// SegmentStates returns the state of the newest most segments, oldest first. It costs no I/O.
func (s *Shard) SegmentStates(most int) []SegmentState {
	s.mu.Lock()
	defer s.mu.Unlock()
	segs := s.segs[max(0, len(s.segs)-most):]
	out := make([]SegmentState, 0, len(segs))
	for _, f := range segs {
		st := SegmentState{
			Number: f.number, Bytes: f.off, Size: f.size, Records: f.index, Sealed: f.sealed, Active: f == s.active, Failed: f.failed != nil,
		}
		switch {
		case f.number < s.cursor.Segment:
			st.Confirmed = st.Records
		case f.number == s.cursor.Segment && s.cursor.Index > 0:
			st.Confirmed = min(st.Records, s.cursor.Index-1)
		}
		out = append(out, st)
	}
	return out
}
