package weida

import (
	"context"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/weir-agent/weir/weida/transport"
)

// Surveyor asks all of its live peers at once and collects what they answer in time. Whoever is asked has a Replier at the path. Its methods may be called by several
// goroutines at once.
type Surveyor struct{ set *peerSet }

// Surveyor returns a surveyor that is not connected to anybody. Close frees it.
func (rt *Runtime) Surveyor(terms ClientTLS) *Surveyor { return &Surveyor{rt.newPeerSet(terms)} }

// Connect is as Peer's.
func (s *Surveyor) Connect(ctx context.Context, url string) error { return s.set.connect(ctx, url) }

// Disconnect is as Peer's.
func (s *Surveyor) Disconnect(url string) error { return s.set.disconnect(url) }

// PeerCount is how many links are up.
func (s *Surveyor) PeerCount() int { return s.set.live() }

// Events returns a reader of what happens to the links from now on.
func (s *Surveyor) Events() *Events { return s.set.events.reader() }

// Close closes the links and so ends every survey. It is idempotent and always returns nil.
func (s *Surveyor) Close() error {
	s.set.close(transport.CodeNoError, "")
	return nil
}

// Answer is what came of asking one peer.
type Answer struct {
	// URL is the address that was connected to, and Peer who is there.
	URL  string
	Peer PeerIdentity
	// Reply is to be read or closed. It is nil where Err says why there is none.
	Reply *IncomingTransfer
	Err   error
}

// Survey is a question under way. It must be closed.
type Survey struct {
	cancel context.CancelFunc
	timer  *time.Timer

	mu      sync.Mutex
	asked   int // peers of whom no answer was taken yet, in time or late
	queue   []Answer
	late    uint64
	expired bool
	wake    chan struct{} // closed and replaced when something has changed
}

// target is a live peer.
type target struct {
	conn *conn
	url  string
	path string
}

// targets returns the live peers, and how many there are that are not.
func (s *peerSet) targets() (live []target, away int, err error) {
	if s.rt.draining.Load() {
		return nil, 0, ErrClosed
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, 0, ErrClosed
	}
	for _, sl := range s.slots {
		if sl.up() {
			live = append(live, target{sl.conn, sl.url, sl.addr.Path})
		} else {
			away++
		}
	}
	return live, away, nil
}

// Survey asks every live peer. d bounds both the asking and the collecting; ctx is the life of all exchanges. Without a live peer the survey is empty. It fails with ErrClosed.
func (s *Surveyor) Survey(ctx context.Context, meta Meta, body []byte, d time.Duration) (*Survey, error) {
	peers, _, err := s.set.targets()
	if err != nil {
		return nil, opError("survey", "peers", err)
	}
	body = slices.Clone(body)
	meta.Extensions = slices.Clone(meta.Extensions)
	run := &Survey{asked: len(peers), wake: make(chan struct{})}
	ctx, run.cancel = context.WithCancel(ctx)
	run.timer = time.AfterFunc(d, run.expire)
	for _, p := range peers {
		ask := func() { run.take(p.ask(ctx, s.set.rt, meta, body)) }
		if !s.set.rt.spawn(ask) {
			run.take(Answer{URL: p.url, Err: opened(ErrClosed)})
		}
	}
	return run, nil
}

// ask asks one peer and waits for its answer.
func (p target) ask(ctx context.Context, rt *Runtime, meta Meta, body []byte) Answer {
	a := Answer{URL: p.url, Peer: p.conn.link.Info().Peer}
	w, r, err := p.conn.link.OpenBi(ctx)
	if err != nil {
		a.Err = opened(ended(ctx, err))
		return a
	}
	reply := newReplyStream(ctx, p.conn, r, p.path)
	t, err := newOutgoing(ctx, p.conn, w, p.path, &meta, false)
	if err != nil {
		_ = reply.Close() // it always returns nil
		a.Err = opened(err)
		return a
	}
	a.Reply, a.Err = rt.ask(t, reply, body)
	return a
}

// take queues an answer that is in time, and drops one that is not.
func (r *Survey) take(a Answer) {
	r.mu.Lock()
	r.asked--
	late := r.expired
	if late {
		r.late++
	} else {
		r.queue = append(r.queue, a)
	}
	r.announce()
	r.mu.Unlock()
	if late && a.Reply != nil {
		_ = a.Reply.Close() // it always returns nil
	}
}

// announce wakes whoever waits in Next. r.mu is held.
func (r *Survey) announce() {
	close(r.wake)
	r.wake = make(chan struct{})
}

func (r *Survey) expire() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expired = true
	r.announce()
}

// Next returns the next answer. It fails with io.EOF when everybody has answered or the time is over, or with ctx's error. What came in time is returned also when it is
// asked for later.
func (r *Survey) Next(ctx context.Context) (Answer, error) {
	for {
		r.mu.Lock()
		if len(r.queue) > 0 {
			a := r.queue[0]
			r.queue = r.queue[1:]
			r.mu.Unlock()
			return a, nil
		}
		over, wake := r.expired || r.asked == 0, r.wake
		r.mu.Unlock()
		if over {
			return Answer{}, io.EOF
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return Answer{}, context.Cause(ctx)
		}
	}
}

// Late is how many answers have come after the time was over, failures among them.
func (r *Survey) Late() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.late
}

// Close ends the exchanges, also those whose replies are being read. It is idempotent and always returns nil.
func (r *Survey) Close() error {
	r.timer.Stop()
	r.expire()
	r.cancel()
	r.mu.Lock()
	left := r.queue
	r.queue = nil
	r.mu.Unlock()
	for _, a := range left {
		if a.Reply != nil {
			_ = a.Reply.Close() // it always returns nil
		}
	}
	return nil
}
