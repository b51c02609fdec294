package broker

import (
	"context"
	"errors"
	"time"
)

// retryInterval is after what time a dead letter that the other queue did not take is offered again.
const retryInterval = time.Second

// bury hands dead letters to the queue for them, one after the other, until ctx ends. One that is not taken stays where it is, also over the death of the broker; one
// that does not fit lets the others go first.
func (s *served) bury(ctx context.Context) {
	misfits, refused := 0, false // of those since the last that was taken
	for {
		s.mu.Lock()
		var d Delivery
		some := len(s.dead)
		if some > 0 {
			d = s.dead[0]
		}
		s.mu.Unlock()
		if some == 0 {
			select {
			case <-s.deadWake:
				continue
			case <-ctx.Done():
				return
			}
		}
		err := s.undertaker.take(ctx, d.Message)
		if err == nil {
			s.log.Warn("a message is dead", "to", s.undertaker.path, "seq", uint64(d.Seq), "attempts", d.Attempt)
			s.update(func(q *Queue) {
				s.dead = s.dead[1:]
				s.totals.DeadLettered++
				q.Settle(d.Seq)
				s.relay(d.Seq, false, 0)
			})
			misfits, refused = 0, false
			continue
		}
		if !refused && ctx.Err() == nil {
			refused = true
			s.log.Warn("a dead letter was not taken and is offered again", "to", s.undertaker.path, "error", err)
		}
		if errors.Is(err, ErrFull) {
			s.mu.Lock()
			s.dead = append(s.dead[1:], d)
			s.mu.Unlock()
			if misfits++; misfits < some {
				continue
			}
		}
		misfits = 0
		select {
		case <-time.After(retryInterval):
		case <-ctx.Done():
			return
		}
	}
}

// take admits a dead letter of another queue and returns nil when the store has it.
func (s *served) take(ctx context.Context, m *Message) error {
	a := newAdmission(m, nil)
	s.update(func(q *Queue) {
		if q.Free()-s.reading < m.charge() {
			s.expect(a, 0, ErrFull)
			return
		}
		seq, repeat, err := q.AdmitDead(m)
		a.repeat = repeat
		s.expect(a, seq, err)
	})
	return a.wait(ctx)
}
