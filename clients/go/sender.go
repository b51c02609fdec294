package weir

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weir-agent/weir/ingest/frame"
)

// session is one connection of a producer: the sender puts batches in and writes
// them, the receiver takes them out in order and reads their answers.
type session struct {
	p       *Producer
	link    *link
	single  bool
	room    chan struct{} // a token for each batch in flight
	pending chan *batch
	put     int           // batches that the sender put in
	unsent  int           // number of the one that it did not write, if there is one
	dead    chan struct{} // closed when nothing more can be answered
	over    chan struct{} // closed when the receiver is gone
	out     []byte

	mu       sync.Mutex
	inFlight int // batches that were put in and not answered; the read deadline is that of the first

	// Of the receiver, to be read when it is over:
	useful bool  // a record was acked
	broken error // why it is over
	took   int   // batches that it took
}

// run is the sender.
func (p *Producer) run() {
	var s *session
	defer func() {
		if s != nil {
			s.finish(false)
		}
		p.abandon()
	}()
	failures := 0
	for {
		b := p.nextBatch()
		if b == nil {
			return
		}
		if s == nil {
			// The error of a try is that of the socket; the pauses between tries say enough.
			s, _ = p.connect()
		}
		if s != nil && s.send(b) {
			continue
		}
		failures++
		taken := false
		if s != nil {
			taken = s.finish(true)
			if s.useful {
				failures = 0
			}
			s = nil
		}
		if !taken {
			p.again(b) // not a byte of it was written
		}
		if failures > 0 && !p.pause(failures) {
			return
		}
	}
}

// nextBatch waits for a complete batch; nil at the end of the producer.
func (p *Producer) nextBatch() *batch {
	for {
		p.mu.Lock()
		var b *batch
		if len(p.queue) > 0 {
			b = p.queue[0]
			p.queue = p.queue[1:]
		}
		p.mu.Unlock()
		if b != nil {
			return b
		}
		select {
		case <-p.wake:
		case <-p.life.Done():
			return nil
		}
	}
}

// abandon reports what was never sent.
func (p *Producer) abandon() {
	p.mu.Lock()
	p.closed = true
	p.seal()
	rest := p.queue
	p.queue = nil
	p.mu.Unlock()
	for _, b := range rest {
		p.all(b, Outcome{Unknown, ErrClosed})
	}
}

// pause rests before another try; it reports whether the producer still lives.
func (p *Producer) pause(failures int) bool {
	d := p.opts.MaxBackoff
	if shift := failures - 1; shift < 20 {
		d = min(d, p.opts.MinBackoff<<shift)
	}
	timer := time.NewTimer(time.Duration(float64(d) * (1 - p.opts.Jitter()/2)))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-p.life.Done():
		return false
	}
}

func (p *Producer) connect() (*session, error) {
	l, err := dial(p.life, p.opts.Path)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	single := p.single || p.opts.BatchRecords == 1
	p.mu.Unlock()
	s := &session{
		p: p, link: l, single: single,
		room:    make(chan struct{}, p.opts.InFlight),
		pending: make(chan *batch, p.opts.InFlight),
		dead:    make(chan struct{}), over: make(chan struct{}),
	}
	go s.receive()
	return s, nil
}

// send writes a batch once there is room in flight. It reports false if nothing of
// it was written: then the session is of no more use. After a write that failed in
// the middle the receiver finds out what was answered.
func (s *session) send(b *batch) bool {
	select {
	case s.room <- struct{}{}:
	case <-s.dead:
		return false
	case <-s.p.life.Done():
		return false
	}
	s.pending <- b // there is room in it for as many as in flight
	s.put++
	s.unsent = s.put
	if !s.began() {
		return false
	}
	s.encode(b)
	n, err := s.link.write(s.out, time.Now().Add(s.p.opts.Timeout))
	if n == 0 && err != nil {
		s.link.nc.Close()
		return false
	}
	s.unsent = 0
	if err != nil {
		// The Nack of a frame that was refused by its header may be there to be read,
		// so only the writing side ends here.
		endWriting(s.link)
	}
	return true
}

func (s *session) encode(b *batch) {
	s.out = s.out[:0]
	if s.single {
		for i := range b.len() {
			s.out = frame.Append(s.out, frame.Push, s.p.opts.Durability, b.payload(i))
		}
		return
	}
	payloads := make([][]byte, b.len())
	for i := range payloads {
		payloads[i] = b.payload(i)
	}
	s.out = frame.AppendPushBatch(s.out, s.p.opts.Durability, payloads...)
}

// endWriting ends a connection's writing side, or all of it if it has no sides.
func endWriting(l *link) {
	if half, ok := l.nc.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		return
	}
	l.nc.Close()
}

// began counts a batch as in flight; false if the session is dead.
func (s *session) began() bool {
	select {
	case <-s.dead:
		return false
	default:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inFlight++
	if s.inFlight == 1 {
		return s.link.nc.SetReadDeadline(time.Now().Add(s.p.opts.Timeout)) == nil
	}
	return true
}

// ended counts a batch as answered and sets the deadline of the next one.
func (s *session) ended() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inFlight--
	deadline := time.Time{}
	if s.inFlight > 0 {
		deadline = time.Now().Add(s.p.opts.Timeout)
	}
	if err := s.link.nc.SetReadDeadline(deadline); err != nil {
		return fmt.Errorf("weir: read the reply: %w", err)
	}
	return nil
}

// finish ends the session and waits until everything that was written has its
// outcome; at the end of the producer, or where a batch could not be written, that
// is at once. It reports whether the receiver has dealt with the
// batch that was not written.
func (s *session) finish(failed bool) (taken bool) {
	close(s.pending)
	unhook := context.AfterFunc(s.p.life, func() { s.link.nc.Close() })
	defer unhook()
	if !failed {
		endWriting(s.link) // the daemon answers what it has and closes
	}
	<-s.over
	taken = s.unsent != 0 && s.took >= s.unsent
	for b := range s.pending { // what the receiver left
		s.took++
		if s.took != s.unsent {
			s.p.all(b, Outcome{Unknown, s.broken})
		}
	}
	return taken
}

// receive reads the answers in order until the connection ends, however it does.
// It waits for bytes, not for a batch, so that it notices an end between batches.
func (s *session) receive() {
	defer close(s.over)
	defer s.link.nc.Close()
	defer close(s.dead)
	for s.broken == nil {
		if _, err := s.link.in.Peek(1); err != nil {
			s.broken = fmt.Errorf("weir: read the reply: %w", err)
			return
		}
		var b *batch
		select {
		case b = <-s.pending:
		default:
		}
		if b == nil {
			s.broken = fmt.Errorf("%w: nothing was asked", errReply)
			return
		}
		s.took++
		if s.single {
			s.broken = s.settleSingle(b)
		} else {
			s.broken = s.settleBatch(b)
		}
		if err := s.ended(); s.broken == nil {
			s.broken = err
		}
		if s.broken == nil {
			<-s.room
		}
	}
}

// settleBatch settles a batch by its one answer. An error ends the session.
func (s *session) settleBatch(b *batch) (broken error) {
	reply, err := s.link.read(frame.PushBatch)
	var bits frame.Bitmap
	if err == nil {
		bits, err = frame.ParseAckBatch(reply, b.len())
	}
	if err == nil {
		for i, report := range b.report {
			if bits.Get(i) {
				s.useful = true
				report(Outcome{State: Acked})
			} else {
				report(Outcome{Unknown, errNotDurable})
			}
		}
		s.p.settled(b)
		return nil
	}
	var nack *NackError
	if errors.As(err, &nack) {
		switch {
		case nack.Reason.Transient():
			s.p.all(b, Outcome{Unknown, err})
			return nil
		case nack.Reason == frame.UnknownMessage:
			// The daemon is too old for batches; nothing of this one was stored.
			s.p.sendSingly()
			s.p.again(b)
			return err
		case nack.Reason == frame.PayloadTooLarge && b.len() > 1:
			// Its caps are lower than ours; nothing was stored.
			s.p.learn(b.len() / 2)
			s.p.again(b.part(0, b.len()/2), b.part(b.len()/2, b.len()))
			return err
		case nack.Reason == frame.PayloadTooLarge:
			s.p.learn(s.p.opts.BatchRecords) // it was the record, not the batch
		}
	}
	s.p.all(b, Outcome{StateOf(err), err})
	return err
}

// settleSingle settles a batch whose records were sent as single pushes.
func (s *session) settleSingle(b *batch) (broken error) {
	for i, report := range b.report {
		if broken != nil {
			report(Outcome{Unknown, broken})
			continue
		}
		_, err := s.link.read(frame.Push)
		if err == nil {
			s.useful = true
		}
		report(Outcome{StateOf(err), err})
		var nack *NackError
		if err != nil && !(errors.As(err, &nack) && nack.Reason.Transient()) {
			broken = fmt.Errorf("weir: record %d of its batch ended the connection: %w", i, err)
		}
	}
	s.p.settled(b)
	return broken
}

// learn sets how many records the next batches have.
func (p *Producer) learn(most int) {
	p.mu.Lock()
	p.most = most
	p.mu.Unlock()
}

func (p *Producer) sendSingly() {
	p.mu.Lock()
	p.single = true
	p.mu.Unlock()
}
