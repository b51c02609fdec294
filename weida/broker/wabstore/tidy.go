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
	from := s.baseAt
	if len(s.order) > 0 {
		from = min(from, s.order[0].at)
	}
	if s.bytes-from > 2*s.alive+s.opts.SlackBytes {
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
	pos, at := s.shard.Stats().Appended, s.bytes
	if err := errors.Join(s.write(record.Durable, payloads)...); err != nil {
		return err
	}
	s.base, s.baseAt = pos, at
	for _, e := range moved {
		e.pos, e.at = pos, at
	}
	s.order = append(s.order[n:], moved...)
	return nil
}
