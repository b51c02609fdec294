package weida

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/weir-agent/weir/weida/transport"
	"github.com/weir-agent/weir/weida/transport/localtransport"
)

// peerSet is the peers that an endpoint dials, each in a slot that dials again when its link is lost. Every dialling pattern is one with a way of choosing.
type peerSet struct {
	rt     *Runtime
	terms  ClientTLS
	ns     *namespace // where the streams that the peers begin find endpoints
	events eventLog
	attach func(ctx context.Context, c *conn, path string) error // what is done on each link before it is up; may be nil

	mu      sync.Mutex
	slots   []*slot
	next    int           // of the round robin
	changed chan struct{} // closed and replaced whenever a slot comes up or ends
	ever    bool          // a slot was there at some time
	lost    *ConnectionLostError
	closed  bool
}

// slot is an address with the link to it. All but the first four fields are guarded by the set's lock.
type slot struct {
	url  string
	addr Address
	ctx  context.Context // ends with the slot
	end  context.CancelFunc

	conn *conn                // nil while it is down
	lost *ConnectionLostError // why it is down
	gone bool                 // it will not be dialled again
}

func (rt *Runtime) newPeerSet(terms ClientTLS) *peerSet {
	s := &peerSet{rt: rt, terms: terms, ns: newNamespace(), changed: make(chan struct{})}
	rt.mu.Lock()
	defer rt.mu.Unlock()
	s.closed = rt.closed
	rt.peers[s] = struct{}{}
	return s
}

// connect dials an address once, and keeps the link up from then on.
func (s *peerSet) connect(ctx context.Context, url string) error {
	addr, err := ParseAddress(url)
	if err != nil {
		return opError("connect", url, err)
	}
	if known, err := s.known(url); known || err != nil {
		return opError("connect", url, err)
	}
	c, err := s.dial(ctx, addr)
	if err != nil {
		return opError("connect", url, err)
	}
	if peer, ok := c.link.Info().Peer.Fingerprint(); ok {
		addr = addr.WithPin(peer) // whoever answers later must be the same
	}
	sl := &slot{url: url, addr: addr, conn: c}
	sl.ctx, sl.end = context.WithCancel(context.Background())
	if !s.add(sl) {
		sl.end()
		c.link.Close(transport.CodeNoError, "")
		_, err := s.known(url)
		return opError("connect", url, err)
	}
	return nil
}

// dial makes a link on which all is done that must be before it is up.
func (s *peerSet) dial(ctx context.Context, a Address) (*conn, error) {
	c, err := s.rt.dial(ctx, a, s.terms, s.ns)
	if err != nil || s.attach == nil {
		return c, err
	}
	if err := s.attach(ctx, c, a.Path); err != nil {
		c.link.Close(transport.CodeCanceled, "gave up")
		return nil, outcomeOf(err)
	}
	return c, nil
}

// known reports whether there is a slot for an address that was not given up.
func (s *peerSet) known(url string) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false, ErrClosed
	}
	return slices.ContainsFunc(s.slots, func(sl *slot) bool { return sl.url == url && !sl.gone }), nil
}

// add puts a slot with a live link into the set, in place of one that was given up. It does nothing if somebody was faster, or the set is closed.
func (s *peerSet) add(sl *slot) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || slices.ContainsFunc(s.slots, func(o *slot) bool { return o.url == sl.url && !o.gone }) {
		return false
	}
	if !s.rt.spawn(func() { s.keep(sl) }) {
		return false
	}
	s.slots = slices.DeleteFunc(s.slots, func(o *slot) bool { return o.url == sl.url })
	s.slots = append(s.slots, sl)
	s.ever = true
	s.announce()
	s.connected(sl)
	return true
}

// connected tells of a link that is up. s.mu is held, so that events come in order.
func (s *peerSet) connected(sl *slot) {
	s.events.add(Connected{URL: sl.url, Peer: sl.conn.link.Info().Peer, Guarantees: sl.conn.agreed.Guarantees})
}

// announce wakes whoever waits for a slot. s.mu is held.
func (s *peerSet) announce() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// keep is a slot's goroutine: it waits for the loss of the link and dials again.
func (s *peerSet) keep(sl *slot) {
	defer sl.end()
	for {
		c := sl.conn // nobody else changes it
		select {
		case <-c.link.Done():
		case <-sl.ctx.Done():
			c.link.Close(transport.CodeNoError, "")
			return
		}
		lost := lossCause(c.link.Err())
		s.mu.Lock()
		sl.conn, sl.lost, s.lost = nil, lost, lost
		s.mu.Unlock()
		if sl.ctx.Err() != nil {
			return
		}
		s.events.add(Lost{sl.url, lost})
		next, gaveUp := s.redial(sl, lost)
		if next == nil {
			s.giveUp(sl, gaveUp)
			return
		}
		s.mu.Lock()
		sl.conn = next
		s.announce()
		s.connected(sl)
		s.mu.Unlock()
	}
}

// giveUp ends a slot that stays in the set for the cause of its loss. Nothing is told of one that this side has ended.
func (s *peerSet) giveUp(sl *slot, why GaveUp) {
	s.mu.Lock()
	sl.gone = true
	s.announce()
	s.mu.Unlock()
	if sl.ctx.Err() == nil {
		why.URL = sl.url
		s.events.add(why)
	}
}

// redial dials until there is a link, or says why it gave up.
func (s *peerSet) redial(sl *slot, lost *ConnectionLostError) (*conn, GaveUp) {
	p := &s.rt.opts.Reconnect
	if p.Never || lost.Cause == CauseLocallyClosed || p.StopOnPeerClosed && lost.Cause == CausePeerClosed {
		return nil, GaveUp{Reason: GaveUpPolicy, Err: lost}
	}
	var err error = lost
	for attempt := 1; p.MaxAttempts == 0 || attempt <= p.MaxAttempts; attempt++ {
		delay := p.delay(attempt)
		taken, back := s.absent(sl, err)
		if back {
			delay = 0
		}
		s.events.add(Retrying{sl.url, attempt, delay})
		if !s.pause(sl, delay, taken) {
			return nil, GaveUp{}
		}
		var c *conn
		if c, err = s.dial(sl.ctx, sl.addr); err == nil {
			return c, GaveUp{}
		}
		if why, final := judgeRedial(err, sl.addr.Pinned); final {
			return nil, why
		}
	}
	return nil, GaveUp{Reason: GaveUpPolicy, Attempts: p.MaxAttempts, Err: err}
}

// pause waits before an attempt, and reports whether there is to be one. In a process nobody waits longer than until somebody listens, where nobody did.
func (s *peerSet) pause(sl *slot, delay time.Duration, taken <-chan struct{}) bool {
	timer := time.NewTimer(delay)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			return true
		case <-taken:
			var listens bool
			if listens, taken = s.rt.opts.Buses.Await(sl.addr.Local); listens {
				return true
			}
		case <-sl.ctx.Done():
			return false
		}
	}
}

// absent returns what to wait for where nobody listens on the bus of a slot, and nil where somebody does or it has none. A bus that was taken since it was dialled in vain
// is nothing to wait for: back is then true.
func (s *peerSet) absent(sl *slot, err error) (taken <-chan struct{}, back bool) {
	if sl.addr.Carrier != OverInproc {
		return nil, false
	}
	listens, taken := s.rt.opts.Buses.Await(sl.addr.Local)
	if listens {
		return nil, errors.Is(err, localtransport.ErrNoBus)
	}
	return taken, false
}

// delay is how long to wait before an attempt, counted from 1.
func (p *ReconnectPolicy) delay(attempt int) time.Duration {
	d := p.Initial
	for i := 1; i < attempt && d < p.Max; i++ {
		d *= 2
	}
	d = min(d, p.Max)
	if !p.NoJitter {
		d = d/2 + rand.N(d/2+1)
	}
	return d
}

// judgeRedial reports whether a failure would only come again (weida-supplement §5).
func judgeRedial(err error, pinned bool) (GaveUp, bool) {
	if untrusted, ok := errors.AsType[*UntrustedError](err); ok {
		return GaveUp{Reason: GaveUpPeerChanged, Presented: &untrusted.Fingerprint, Err: err}, true
	}
	if errors.Is(err, ErrTLS) && pinned {
		return GaveUp{Reason: GaveUpPeerChanged, Err: err}, true
	}
	for _, final := range []error{ErrTLS, ErrNegotiation, ErrAlreadyRegistered, ErrUnsupported, ErrInvalidAddress, ErrClosed} {
		if errors.Is(err, final) {
			return GaveUp{Reason: GaveUpFailed, Err: err}, true
		}
	}
	return GaveUp{}, false
}

// disconnect ends a slot and its link.
func (s *peerSet) disconnect(url string) error {
	s.mu.Lock()
	i := slices.IndexFunc(s.slots, func(sl *slot) bool { return sl.url == url })
	if i < 0 {
		s.mu.Unlock()
		return opError("disconnect", url, ErrNotConnected)
	}
	sl := s.slots[i]
	s.slots = slices.Delete(s.slots, i, i+1)
	if len(s.slots) == 0 && s.lost == nil {
		s.lost = &ConnectionLostError{Cause: CauseLocallyClosed}
	}
	c := sl.conn
	s.announce()
	s.mu.Unlock()
	sl.end()
	if c != nil {
		c.link.Close(transport.CodeNoError, "")
	}
	return nil
}

// live returns how many slots have a link.
func (s *peerSet) live() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, sl := range s.slots {
		if sl.up() {
			n++
		}
	}
	return n
}

// up reports whether a slot has a link that has not ended. The set's lock is held.
func (sl *slot) up() bool { return sl.conn != nil && sl.conn.link.Err() == nil }

// turn returns the next slot in turn that has a link. Where there is none, it returns what to wait for, or why waiting is of no use.
func (s *peerSet) turn() (c *conn, path string, wait <-chan struct{}, err error) {
	if s.rt.draining.Load() {
		return nil, "", nil, ErrClosed
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, "", nil, ErrClosed
	}
	if !s.ever {
		return nil, "", nil, ErrNotConnected
	}
	hope := false
	for i := range s.slots {
		at := (s.next + i) % len(s.slots)
		sl := s.slots[at]
		if sl.up() {
			s.next = at + 1
			return sl.conn, sl.addr.Path, nil, nil
		}
		hope = hope || !sl.gone
	}
	if !hope {
		return nil, "", nil, s.lost
	}
	return nil, "", s.changed, nil
}

// pick returns the next live peer in turn, waiting for one until ctx ends or for Options.SendTimeout; then it fails with why the last link was lost.
func (s *peerSet) pick(ctx context.Context) (c *conn, path string, err error) {
	c, path, wait, err := s.turn()
	if c != nil || err != nil {
		return c, path, err
	}
	var timeout <-chan time.Time
	if d := s.rt.opts.SendTimeout; d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		timeout = timer.C
	}
	for {
		select {
		case <-wait:
		case <-timeout:
			return nil, "", s.lastLoss()
		case <-ctx.Done():
			return nil, "", context.Cause(ctx)
		}
		if c, path, wait, err = s.turn(); c != nil || err != nil {
			return c, path, err
		}
	}
}

// lastLoss is why there is no live peer.
func (s *peerSet) lastLoss() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost == nil {
		// A link has ended whose slot does not know it yet.
		return &ConnectionLostError{Cause: CauseTransport}
	}
	return s.lost
}

// open opens a one-way transfer to the next live peer. A peer that is lost before anything was written is passed over.
func (s *peerSet) open(ctx context.Context, meta *Meta) (*OutgoingTransfer, error) {
	for {
		c, path, err := s.pick(ctx)
		if err != nil {
			return nil, err
		}
		w, err := c.link.OpenUni(ctx)
		if err == nil {
			return c.newNumbered(ctx, w, path, meta)
		}
		if c.link.Err() == nil {
			return nil, ended(ctx, err)
		}
	}
}

// openBi opens an exchange with the next live peer. A peer that is lost before anything was written is passed over.
func (s *peerSet) openBi(ctx context.Context, meta *Meta, wantReceipt bool) (*OutgoingTransfer, *ReplyStream, error) {
	for {
		c, path, err := s.pick(ctx)
		if err != nil {
			return nil, nil, err
		}
		w, r, err := c.link.OpenBi(ctx)
		if err == nil {
			reply := newReplyStream(ctx, c, r, path)
			t, err := newOutgoing(ctx, c, w, path, meta, wantReceipt)
			if err != nil {
				_ = reply.Close() // it always returns nil
				return nil, nil, err
			}
			return t, reply, nil
		}
		if c.link.Err() == nil {
			return nil, nil, ended(ctx, err)
		}
	}
}

// close ends every slot and its link. It does not wait for their goroutines, which are the runtime's.
func (s *peerSet) close(code uint64, text string) {
	s.mu.Lock()
	s.closed = true
	slots := slices.Clone(s.slots)
	conns := make([]*conn, 0, len(slots))
	for _, sl := range slots {
		if sl.conn != nil {
			conns = append(conns, sl.conn)
		}
	}
	s.announce()
	s.mu.Unlock()
	for _, sl := range slots {
		sl.end()
	}
	for _, c := range conns {
		c.link.Close(code, text)
	}
	s.ns.close()
	s.events.close()
	s.rt.mu.Lock()
	delete(s.rt.peers, s)
	s.rt.mu.Unlock()
}
