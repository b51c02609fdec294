// Package wabstore keeps the queue of a broker in a log of wab, so that its messages, attempts, settlements and known ids survive the
// death of the process and of the machine.
//
// Every change is a record. Messages and attempts are as safe as Options.Durability says before Append returns; settlements on their own are
// Buffered, since a settlement that is lost repeats a delivery that is marked as a repeat. At each start what is alive is written anew,
// with a sync; from then on a message that stays is moved to the end of the log when the log has grown to more than twice what is
// alive, so that it does not keep the log for ever.
package wabstore

import (
	"errors"
	"fmt"

	"github.com/weir-agent/weir/wab"
	"github.com/weir-agent/weir/wab/record"
	"github.com/weir-agent/weir/weida/broker"
	"github.com/weir-agent/weir/weida/wire"
)

const (
	chunkRecords = 1024    // of one append to the log
	chunkBytes   = 2 << 20 // of one append to the log, or one record
	loadRecords  = 1024
	loadBytes    = 8 << 20
	loadTries    = 16       // of reading what cannot be read
	moveBytes    = 1 << 20  // that one Append moves at most, and four times what it appends
	defaultSlack = 64 << 20 // bytes
	defaultIDs   = 65536

	// What a segment of the log is at most, as wab has it.
	defaultSegment = 64 << 20
	segmentsOfCap  = 8
)

// ErrFull: the log has no room for another message until some are settled. What is left under its cap is for moving what is alive, without which it would never be shorter.
var ErrFull = errors.New("wabstore: the log of the queue is full")

// Options configures a store. The zero value is usable.
type Options struct {
	// Log are the options of the log. Its Shards is always 1. MaxBytes should leave room for the messages of the queue six times.
	Log wab.Options
	// Durability is how safe messages and attempts are; default record.Durable, which is Stored(Flushed); record.Buffered is Stored(Written).
	Durability record.Durability
	// Window is how many ids of settled messages are kept; default 65536, negative: none. It should be the window of the queue.
	Window int
	// SlackBytes is how far the log may grow beyond twice what is alive, if that is more than two of its segments; default 64 MiB.
	SlackBytes int64
}

// entry is a message or an id that the log must keep.
type entry struct {
	pos      wab.Position // at or before its record
	size     int64
	seq      broker.Seq
	attempts uint64
	message  *broker.Message // nil: settled
	id       broker.ID       // zero: none, or no longer known
}

func (e *entry) alive() bool { return e.message != nil || e.id != broker.ID{} }

// Store is a durable broker.Store. Like every store it is for one goroutine.
type Store struct {
	opts    Options
	log     *wab.Log
	shard   *wab.Shard
	order   []*entry // in the order of their records
	bySeq   map[broker.Seq]*entry
	known   []*entry // settled, with an id, oldest first
	next    broker.Seq
	segment int64        // size of one segment, about
	base    wab.Position // at or before the newest record of kindNext
	bytes   int64        // appended since the start
	alive   int64        // bytes of the entries that are alive
}

var _ broker.Store = (*Store)(nil)

// Open opens the log of one queue in the folder dir, which must exist, or makes it. It fails as wab.Open does.
func Open(dir string, opts Options) (*Store, error) {
	opts.Log.Shards = 1
	if opts.Durability == 0 {
		opts.Durability = record.Durable
	}
	if opts.Durability != record.Durable && opts.Durability != record.Buffered {
		return nil, fmt.Errorf("wabstore: unknown durability %v", opts.Durability)
	}
	if opts.Window == 0 {
		opts.Window = defaultIDs
	}
	opts.Window = max(opts.Window, 0)
	if opts.SlackBytes == 0 {
		opts.SlackBytes = defaultSlack
	}
	log, err := wab.Open(dir, opts.Log)
	if err != nil {
		return nil, err
	}
	segment := int64(defaultSegment)
	if opts.Log.SegmentBytes > 0 {
		segment = opts.Log.SegmentBytes
	}
	return &Store{opts: opts, log: log, segment: min(segment, log.MaxBytes()/segmentsOfCap), shard: log.Writable()[0], bySeq: map[broker.Seq]*entry{}, next: 1}, nil
}

// Level returns Stored.
func (*Store) Level() wire.Level { return wire.LevelStored }

// Flushed reports whether Stored means Stored(Flushed) here.
func (s *Store) Flushed() bool { return s.opts.Durability == record.Durable }

// Close closes the log.
func (s *Store) Close() error { return s.log.Close() }

// Load reads the log. It fails where the log cannot be read, and with ErrFormat on what a newer version wrote.
//
// After the death of a process what is read need not be on stable storage, and a repeat would be confirmed from it. So all of it is written anew and synced
// first; where that fails, the messages come back without their ids and the known ids are forgotten: a repeat is then stored again.
func (s *Store) Load() (broker.State, error) {
	from, _ := s.shard.Cursor()
	f, err := s.read(from)
	if err != nil {
		return broker.State{}, err
	}
	s.next, s.base = f.next, from
	for _, seq := range f.ids(s.opts.Window) {
		e := s.keep(&entry{pos: from, seq: seq, id: f.settled[seq]})
		s.known = append(s.known, e)
	}
	messages := f.messages()
	for _, m := range messages {
		s.keep(&entry{pos: from, seq: m.Seq, attempts: m.Attempts, message: m.Message, id: m.Message.ID})
	}
	st := broker.State{Messages: messages, Next: f.next}
	if err := s.move(len(s.order)); err != nil {
		for i, m := range st.Messages {
			nameless := *m.Message
			nameless.ID = broker.ID{}
			st.Messages[i].Message = &nameless
		}
		return st, nil
	}
	for _, e := range s.known {
		st.IDs = append(st.IDs, e.id)
	}
	s.confirm()
	return st, nil
}

func (s *Store) read(from wab.Position) (*fold, error) {
	r := s.shard.NewReader(from)
	f := newFold()
	for tries := 0; ; {
		read, err := r.Next(nil, loadRecords, loadBytes, wab.Position{})
		for i := range read {
			if err := f.record(read[i].Payload); err != nil {
				return nil, errors.Join(fmt.Errorf("%s, record %d: %w", read[i].Segment, read[i].Index, err), r.Close())
			}
		}
		if err != nil {
			if tries++; tries == loadTries {
				return nil, errors.Join(err, r.Close())
			}
			continue
		}
		if len(read) == 0 {
			return f, r.Close()
		}
	}
}

func (s *Store) keep(e *entry) *entry {
	if e.message != nil {
		e.size = int64(broker.MessageCharge + len(e.message.Body))
	} else {
		e.size = int64(len(e.id))
	}
	s.order = append(s.order, e)
	s.bySeq[e.seq] = e
	s.alive += e.size
	return e
}

// Append stores ops as broker.Store says. The errors are ErrFull and those of wab.
func (s *Store) Append(ops []broker.Op) []error {
	var payloads [][]byte
	var errs []error
	fail := func(i int, err error) {
		if errs == nil {
			errs = make([]error, len(ops))
		}
		errs[i] = errors.Join(errs[i], err)
	}
	ends := make([]int, len(ops)) // behind the payloads of each op
	tier := record.Buffered
	room := s.room()
	for i, op := range ops {
		switch op.Kind {
		case broker.OpAdmit:
			if room -= int64(broker.MessageCharge + len(op.Message.Body)); room < 0 {
				fail(i, ErrFull)
				break
			}
			payloads = appendMessage(payloads, op.Seq, 0, op.Message)
			tier = s.opts.Durability
		case broker.OpAttempt:
			payloads = append(payloads, appendHead(kindAttempt, uint64(op.Seq), op.Attempt))
			tier = s.opts.Durability
		case broker.OpSettle:
			payloads = append(payloads, appendHead(kindSettle, uint64(op.Seq)))
		}
		ends[i] = len(payloads)
	}
	pos, before := s.shard.Stats().Appended, s.bytes
	results := s.write(tier, payloads)
	begin := 0
	for i, op := range ops {
		if err := errors.Join(results[begin:ends[i]]...); err != nil {
			fail(i, err)
		}
		begin = ends[i]
		var err error
		if errs != nil {
			err = errs[i]
		}
		s.apply(op, pos, err)
	}
	s.tidy(s.bytes - before)
	return errs
}

// apply keeps the books. A settlement counts even if it was not stored: what a queue has settled need not be kept.
func (s *Store) apply(op broker.Op, pos wab.Position, err error) {
	s.next = max(s.next, op.Seq+1)
	e := s.bySeq[op.Seq]
	switch {
	case op.Kind == broker.OpAdmit && err == nil:
		s.keep(&entry{pos: pos, seq: op.Seq, message: op.Message, id: op.Message.ID})
	case op.Kind == broker.OpAttempt && e != nil:
		e.attempts = max(e.attempts, op.Attempt)
	case op.Kind == broker.OpSettle && e != nil && e.message != nil:
		s.alive -= e.size
		e.message, e.size = nil, 0
		if e.id == (broker.ID{}) || s.opts.Window == 0 {
			e.id = broker.ID{}
			delete(s.bySeq, e.seq)
			return
		}
		e.size = int64(len(e.id))
		s.alive += e.size
		s.known = append(s.known, e)
		if len(s.known) > s.opts.Window {
			oldest := s.known[0]
			s.known = s.known[1:]
			s.alive -= oldest.size
			oldest.id, oldest.size = broker.ID{}, 0
			delete(s.bySeq, oldest.seq)
		}
	}
}

// write appends payloads in chunks and returns an error or nil for each.
func (s *Store) write(tier record.Durability, payloads [][]byte) []error {
	errs := make([]error, 0, len(payloads))
	for len(payloads) > 0 {
		n, bytes := 0, 0
		for n < len(payloads) && n < chunkRecords && (n == 0 || bytes+len(payloads[n]) <= chunkBytes) {
			bytes += len(payloads[n])
			n++
		}
		ticket, err := s.shard.Append(tier, payloads[:n]...)
		if err == nil {
			_ = ticket.Wait() // the error of each record is asked for below
		}
		for i := range n {
			if err != nil {
				errs = append(errs, err)
			} else {
				errs = append(errs, ticket.Err(i))
			}
		}
		s.bytes += int64(bytes)
		payloads = payloads[n:]
	}
	return errs
}
