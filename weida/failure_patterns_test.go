package weida_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/weir-agent/weir/weida"
)

// This file holds the rows of the failure model that are of Pub/Sub, PAIR, SURVEY and BUS (weida-supplement §4.8).

const (
	pubPath  = "/pub"
	pairPath = "/pair"
)

// surveyor returns a surveyor that is connected to a path.
func (f *fixture) surveyor(path string) *weida.Surveyor {
	f.t.Helper()
	s := f.client.Surveyor(weida.ClientTLS{})
	f.connect(s, path)
	return s
}

// survey asks and returns what the one answer came to, and io.EOF where there is none.
func (f *fixture) survey(s *weida.Surveyor, size int) error {
	f.t.Helper()
	run, err := s.Survey(f.t.Context(), weida.Meta{}, make([]byte, size), time.Hour)
	if err != nil {
		f.t.Fatal(err)
	}
	defer run.Close()
	a, err := run.Next(f.t.Context())
	if err != nil {
		return err
	}
	if _, err := run.Next(f.t.Context()); !errors.Is(err, io.EOF) {
		f.t.Errorf("a second answer: %v", err)
	}
	return a.Err
}

// empty is an error for a survey that was not.
func empty(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return fmt.Errorf("got %w, want no answer", err)
}

// member returns a member of a bus that has dialled a path.
func (f *fixture) member(path string) *weida.BusMember {
	f.t.Helper()
	m, err := f.client.Listener().Bus("/member", weida.ClientTLS{})
	if err != nil {
		f.t.Fatal(err)
	}
	if path != "" {
		f.connect(m, path)
	}
	return m
}

// dropped waits until so many copies of a bus were dropped.
func (f *fixture) dropped(m *weida.BusMember, want uint64) error {
	f.t.Helper()
	for range 600 {
		if m.Dropped().Total() >= want {
			break
		}
		time.Sleep(time.Second) // of the bubble's clock
	}
	if d := m.Dropped(); d != (weida.Drops{Failed: want}) {
		return fmt.Errorf("dropped %+v, want %d that failed", d, want)
	}
	return nil
}

// queued sends on a bus and wants it queued for so many.
func queued(m *weida.BusMember, size, want int) error {
	n, err := m.Send(weida.Meta{}, make([]byte, size))
	if err == nil && n != want {
		err = fmt.Errorf("queued for %d, want %d", n, want)
	}
	return err
}

func neverConnectedPatterns() []failureCase {
	return []failureCase{
		{name: "DialledPair.Send", want: weida.ErrNotConnected, definite: true, run: func(f *fixture) error {
			return f.client.Pair(weida.ClientTLS{}).Send(f.t.Context(), weida.Meta{}, nil)
		}},
		{name: "BoundPair.Send waits", want: context.DeadlineExceeded, run: func(f *fixture) error {
			bound, err := f.server.Listener().Pair(pairPath)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(f.t.Context(), time.Hour)
			defer cancel()
			return bound.Send(ctx, weida.Meta{}, nil)
		}},
		{name: "Surveyor.Survey is empty", run: func(f *fixture) error { return empty(f.survey(f.client.Surveyor(weida.ClientTLS{}), 1)) }},
		{name: "BusMember.Send addresses nobody", run: func(f *fixture) error { return queued(f.member(""), 1, 0) }},
		{name: "Publisher.Publish reaches nobody", run: func(f *fixture) error {
			p, err := f.server.Listener().Publisher(pubPath)
			if err != nil {
				return err
			}
			if n, err := p.Publish(weida.Meta{}, nil); n != 0 || err != nil {
				return fmt.Errorf("queued for %d: %w", n, err)
			}
			return nil
		}},
		{name: "Subscriber.Recv waits", want: context.DeadlineExceeded, run: func(f *fixture) error {
			ctx, cancel := context.WithTimeout(f.t.Context(), time.Hour)
			defer cancel()
			_, err := f.client.Subscriber(weida.ClientTLS{}).Recv(ctx)
			return err
		}},
	}
}

func allPeersDownPatterns() []failureCase {
	return []failureCase{
		{name: "DialledPair.Send is kept", run: func(f *fixture) error {
			p := f.client.Pair(weida.ClientTLS{})
			f.connect(p, pullPath)
			f.down(p)
			err := p.Send(f.t.Context(), weida.Meta{}, []byte("later"))
			if p.Queued() != 1 {
				f.t.Errorf("%d messages are queued, want 1", p.Queued())
			}
			return err
		}},
		{name: "Surveyor.Survey is empty", run: func(f *fixture) error {
			s := f.surveyor(repPath)
			f.down(s)
			return empty(f.survey(s, 1))
		}},
		{name: "BusMember.Send drops and counts", run: func(f *fixture) error {
			m := f.member(pullPath)
			f.down(m)
			return errors.Join(queued(m, 1, 0), f.dropped(m, 1))
		}},
		{name: "Subscriber.Recv waits", want: context.DeadlineExceeded, run: func(f *fixture) error {
			s := f.client.Subscriber(weida.ClientTLS{})
			f.connect(s, pubPath)
			f.down(s)
			ctx, cancel := context.WithTimeout(f.t.Context(), time.Hour)
			defer cancel()
			_, err := s.Recv(ctx)
			return err
		}},
	}
}

func lostBeforeTheEndPatterns() []failureCase {
	return []failureCase{
		{name: "DialledPair.Send", want: weida.ErrConnectionLost, cause: weida.CauseIdleTimeout, definite: true, run: func(f *fixture) error {
			p := f.client.Pair(weida.ClientTLS{})
			f.connect(p, pullPath)
			f.cut()
			return p.Send(f.t.Context(), weida.Meta{}, make([]byte, beyondWindow))
		}},
		{name: "Surveyor.Survey, one error among the answers", want: weida.ErrConnectionLost, cause: weida.CauseIdleTimeout, definite: true, run: func(f *fixture) error {
			s := f.surveyor(repPath)
			f.cut()
			return f.survey(s, beyondWindow)
		}},
		{name: "BusMember.Send drops and counts", run: func(f *fixture) error {
			m := f.member(pullPath)
			f.cut()
			return errors.Join(queued(m, beyondWindow, 1), f.dropped(m, 1))
		}},
	}
}

func lostAfterTheEndPatterns() []failureCase {
	return []failureCase{
		{name: "DialledPair.Send", run: func(f *fixture) error {
			p := f.client.Pair(weida.ClientTLS{})
			f.connect(p, pullPath)
			f.cut()
			return p.Send(f.t.Context(), weida.Meta{}, []byte("x"))
		}},
		{name: "Surveyor.Survey, one error among the answers", want: weida.ErrIndeterminate, run: func(f *fixture) error {
			s := f.surveyor(repPath)
			f.whenRequested(func(r *weida.IncomingRequest) {
				f.cut()
				<-r.Canceled()
			})
			return f.survey(s, 1)
		}},
	}
}

func peerRefusesPatterns() []failureCase {
	return []failureCase{
		{name: "Surveyor.Survey, one error among the answers", want: weida.ErrRejected, definite: true, run: func(f *fixture) error {
			f.whenRequested(func(r *weida.IncomingRequest) {
				if err := r.Refuse(weida.CodeRejected, "no"); err != nil {
					f.t.Error(err)
				}
			})
			return f.survey(f.surveyor(repPath), beyondWindow)
		}},
		{name: "Surveyor.Survey, dropped", want: weida.ErrNoReply, run: func(f *fixture) error {
			f.whenRequested(func(r *weida.IncomingRequest) { _ = r.Close() }) // it always returns nil
			return f.survey(f.surveyor(repPath), 1)
		}},
		{name: "BusMember.Send drops and counts", run: func(f *fixture) error {
			f.whenPulled(func(in *weida.IncomingTransfer) { _ = in.Close() }) // it always returns nil
			m := f.member(pullPath)
			return errors.Join(queued(m, beyondWindow, 1), f.dropped(m, 1))
		}},
	}
}

func pathUnknownPatterns() []failureCase {
	return []failureCase{
		{name: "Surveyor.Survey, one error among the answers", want: weida.ErrUnknownEndpoint, definite: true, run: func(f *fixture) error {
			return f.survey(f.surveyor("/nobody"), 1)
		}},
		{name: "Surveyor.Survey, the other kind", want: weida.ErrUnsupported, definite: true, run: func(f *fixture) error {
			return f.survey(f.surveyor(pullPath), 1)
		}},
		{name: "DialledPair.Send", want: weida.ErrUnknownEndpoint, definite: true, run: func(f *fixture) error {
			p := f.client.Pair(weida.ClientTLS{})
			f.connect(p, "/nobody")
			return p.Send(f.t.Context(), weida.Meta{}, make([]byte, beyondWindow))
		}},
		{name: "BusMember.Send drops and counts", run: func(f *fixture) error {
			m := f.member("/nobody")
			return errors.Join(queued(m, beyondWindow, 1), f.dropped(m, 1))
		}},
	}
}
