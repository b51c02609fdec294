package wabstore

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/weir-agent/weir/weida/broker"
)

// fold is the state of a queue as its records tell it, in the order of the log. A message may be there twice, since it was moved.
type fold struct {
	live    map[broker.Seq]broker.Stored
	byID    map[broker.ID]broker.Seq // of live
	settled map[broker.Seq]broker.ID
	next    broker.Seq
	partial broker.Stored // a message whose parts are still coming
	need    uint64        // how much of it
}

func newFold() *fold {
	return &fold{live: map[broker.Seq]broker.Stored{}, byID: map[broker.ID]broker.Seq{}, settled: map[broker.Seq]broker.ID{}, next: 1}
}

func (f *fold) record(b []byte) error {
	if len(b) == 0 {
		return ErrFormat
	}
	kind, c := b[0], cursor{b: b[1:]}
	if kind != kindPart {
		f.need = 0 // of a message that never was whole, and was not confirmed
	}
	switch kind {
	case kindMessage:
		if s, need := c.message(); !c.bad {
			f.begin(s, need)
		}
	case kindPart:
		seq := broker.Seq(c.number())
		if f.need > 0 && seq == f.partial.Seq && uint64(len(c.b)) <= f.need {
			m := f.partial.Message
			m.Body = append(m.Body, c.b...)
			f.begin(f.partial, f.need-uint64(len(c.b)))
		}
	case kindAttempt:
		seq, attempt := broker.Seq(c.number()), c.number()
		if s, ok := f.live[seq]; ok && !c.bad {
			s.Attempts = max(s.Attempts, attempt)
			f.live[seq] = s
		}
	case kindSettle:
		if seq := broker.Seq(c.number()); !c.bad {
			f.settle(seq)
		}
	case kindIDs:
		for len(c.b) > 0 && !c.bad {
			seq := broker.Seq(c.number())
			f.settled[seq] = c.id()
			f.saw(seq)
		}
	case kindNext:
		f.next = max(f.next, broker.Seq(c.number()))
	default:
		c.bad = true
	}
	if c.bad {
		return fmt.Errorf("%w: kind %d", ErrFormat, kind)
	}
	return nil
}

func (f *fold) saw(seq broker.Seq) { f.next = max(f.next, seq+1) }

func (f *fold) begin(s broker.Stored, need uint64) {
	f.saw(s.Seq)
	f.partial, f.need = s, need
	if need > 0 {
		return
	}
	f.partial = broker.Stored{}
	// An earlier message of the same id was refused though it was written, or it is older than the window: this one stands for both.
	if before, ok := f.byID[s.Message.ID]; ok {
		s.Attempts = max(s.Attempts, f.live[before].Attempts)
		delete(f.live, before)
	}
	f.live[s.Seq] = s
	if s.Message.ID != (broker.ID{}) {
		f.byID[s.Message.ID] = s.Seq
	}
}

func (f *fold) settle(seq broker.Seq) {
	s, ok := f.live[seq]
	if !ok {
		return
	}
	delete(f.live, seq)
	if id := s.Message.ID; id != (broker.ID{}) {
		delete(f.byID, id)
		f.settled[seq] = id
	}
}

// messages returns what is not settled, in order.
func (f *fold) messages() []broker.Stored {
	return slices.SortedFunc(maps.Values(f.live), func(a, b broker.Stored) int { return cmp.Compare(a.Seq, b.Seq) })
}

// ids returns the seqs of the last window settled messages that had an id, in order.
func (f *fold) ids(window int) []broker.Seq {
	seqs := slices.Sorted(maps.Keys(f.settled))
	return seqs[max(0, len(seqs)-window):]
}
