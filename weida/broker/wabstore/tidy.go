package wabstore

import (
	"encoding/binary"
	"errors"

	"github.com/weir-agent/weir/wab/record"
	"github.com/weir-agent/weir/weida/broker"
)

// tidy drops what is not alive from the front, moves what is alive there while the log is too long, and confirms the rest. appended is
// how many bytes the last append had; the work is bounded by it. A move that fails is tried again after the next append.
func (s *Store) tidy(appended int64) {
	s.trim()
	if s.shard.Stats().BacklogBytes > s.tooLong() {
		budget := max(moveBytes, 4*appended)
		n := 0
		for n < len(s.order) && budget > 0 {
			budget -= s.order[n].size
			n++
		}
		if s.move(n) == nil {
			s.trim()
		}
	}
	s.confirm()
}

// tooLong is from how many bytes on disk on the log is made shorter: with what wab puts around records, as an attempt on its own takes a whole sector.
func (s *Store) tooLong() int64 {
	return min(2*s.alive+max(s.opts.SlackBytes, 2*s.segment), s.most()-s.segment)
}

// most is how many bytes the log may have and still move all that is alive before anything of it is dropped.
func (s *Store) most() int64 { return s.log.MaxBytes() - s.alive - 2*s.segment }

// room is how many bytes of messages may be admitted now. What was confirmed counts until it is removed, within a second.
func (s *Store) room() int64 { return s.most() - s.log.UsedBytes() }

func (s *Store) trim() {
	n := 0
	for n < len(s.order) && !s.order[n].alive() {
		n++
	}
	clear(s.order[:n])
	s.order = s.order[n:]
}

func (s *Store) confirm() {
	pos := s.base
	if len(s.order) > 0 && s.order[0].pos.Before(pos) {
		pos = s.order[0].pos
	}
	s.shard.Confirm(pos, nil)
}

// move writes the first n entries anew at the end of the log, with a sync, and the next seq before them, so that the log is not needed up to there.
func (s *Store) move(n int) error {
	payloads := [][]byte{appendHead(kindNext, uint64(s.next))}
	var ids []byte
	count := 0
	moved := make([]*entry, 0, n)
	for _, e := range s.order[:n] {
		switch {
		case e.message != nil:
			payloads = appendMessage(payloads, e.seq, e.attempts, e.message)
		case e.id != broker.ID{}:
			ids = append(binary.AppendUvarint(ids, uint64(e.seq)), e.id[:]...)
			if count++; count%idsPerRecord == 0 {
				payloads = append(payloads, append(appendHead(kindIDs), ids...))
				ids = nil
			}
		default:
			continue
		}
		moved = append(moved, e)
	}
	if len(ids) > 0 {
		payloads = append(payloads, append(appendHead(kindIDs), ids...))
	}
	pos := s.shard.Stats().Appended
	if err := errors.Join(s.write(record.Durable, payloads)...); err != nil {
		return err
	}
	s.base = pos
	for _, e := range moved {
		e.pos = pos
	}
	s.order = append(s.order[n:], moved...)
	return nil
}
