package quictransport

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"

	quic "github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/qlog"
	"github.com/quic-go/quic-go/qlogwriter"

	"github.com/weir-agent/weir/weida/transport"
)

// tracker derives the receipts of one link from the events that quic-go reports: packets sent, acknowledged and lost.
//
// quic-go reports from the connection's own goroutine; streams are tracked and settled from any. What it keeps is bounded by
// what may be under way: an entry for each tracked stream's part of each packet that is neither acknowledged nor lost, and at most that
// many parts of a stream that were acknowledged before what precedes them.
type tracker struct {
	live atomic.Int64 // len(streams): events are passed over while it is 0

	mu      sync.Mutex
	ended   error // why the link ended, once it has
	streams map[quic.StreamID]*tracked
	sent    []sentPart // by packet number, ascending; the first is at head
	head    int
}

// tracked is a stream whose receipt is held. It is guarded by the tracker's lock.
type tracked struct {
	id       quic.StreamID
	receipt  *transport.Receipt
	finished bool // CloseWrite was called
	acked    int64
	beyond   []span // acknowledged parts behind acked, ascending and apart
	size     int64  // the size of the whole stream once its end was sent, -1 before
	endAcked bool
	settled  bool
}

// span is the bytes of a stream from begin up to end.
type span struct{ begin, end int64 }

// keptParts is how many parts an idle link keeps the room of.
const keptParts = 256

// sentPart is what one packet carried of one tracked stream.
type sentPart struct {
	packet qlog.PacketNumber
	stream *tracked // nil when the part counts no more
	span
	fin bool
}

var (
	_ qlogwriter.Trace    = (*tracker)(nil)
	_ qlogwriter.Recorder = (*tracker)(nil)
)

func newTracker() *tracker { return &tracker{streams: make(map[quic.StreamID]*tracked)} }

// AddProducer makes the tracker the recorder of its connection's events.
func (t *tracker) AddProducer() qlogwriter.Recorder { return t }

// Close is called when the last event was recorded. The receipts are settled by fail, which knows why.
func (t *tracker) Close() error { return nil }

// RecordEvent looks at packets that may carry or acknowledge parts of tracked streams.
func (t *tracker) RecordEvent(ev qlogwriter.Event) {
	if t.live.Load() == 0 {
		return
	}
	switch e := ev.(type) {
	case qlog.PacketSent:
		if e.Header.PacketType == qlog.PacketType1RTT {
			t.packetSent(e.Header.PacketNumber, e.Frames)
		}
	case qlog.PacketReceived:
		if e.Header.PacketType == qlog.PacketType1RTT {
			t.packetReceived(e.Frames)
		}
	case qlog.PacketLost:
		if e.Header.PacketType == qlog.PacketType1RTT {
			t.packetLost(e.Header.PacketNumber)
		}
	}
}

// track begins the receipt of a stream of which nothing was sent yet.
func (t *tracker) track(id quic.StreamID) *tracked {
	s := &tracked{id: id, size: -1}
	s.receipt = transport.NewReceipt(func() { t.settle(s, transport.ErrReceiptEvicted) })
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended != nil {
		s.settled = true
		s.receipt.Settle(t.ended)
		return s
	}
	if len(t.streams) == 0 {
		t.drop()
	}
	t.streams[id] = s
	t.live.Add(1)
	return s
}

// finish notes that this side has ended the stream.
func (t *tracker) finish(s *tracked) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.finished = true
}

// settle gives a stream's receipt its outcome, unless it has one.
func (t *tracker) settle(s *tracked, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.settleLocked(s, err)
}

func (t *tracker) settleLocked(s *tracked, err error) {
	if s.settled {
		return
	}
	s.settled, s.beyond = true, nil
	delete(t.streams, s.id)
	t.live.Add(-1)
	s.receipt.Settle(err)
}

// fail settles every receipt when the link has ended: finished streams cannot be known, the others were cut off.
func (t *tracker) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = err
	for _, s := range t.streams {
		if s.finished {
			t.settleLocked(s, transport.ErrIndeterminate)
		} else {
			t.settleLocked(s, err)
		}
	}
}

func (t *tracker) packetSent(packet qlog.PacketNumber, frames []qlog.Frame) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range frames {
		sf, ok := f.Frame.(*qlog.StreamFrame)
		if !ok {
			continue
		}
		s := t.streams[sf.StreamID]
		if s == nil {
			continue
		}
		part := sentPart{packet: packet, stream: s, span: span{sf.Offset, sf.Offset + sf.Length}, fin: sf.Fin}
		if sf.Fin {
			s.size = part.end
		}
		t.push(part)
	}
}

// push appends a part, using the room before head again where that is half of the slice.
func (t *tracker) push(part sentPart) {
	if len(t.sent) == cap(t.sent) && t.head > len(t.sent)/2 {
		n := copy(t.sent, t.sent[t.head:])
		clear(t.sent[n:])
		t.sent, t.head = t.sent[:n], 0
	}
	t.sent = append(t.sent, part)
}

func (t *tracker) packetReceived(frames []qlog.Frame) {
	t.mu.Lock()
	defer t.mu.Unlock()
	// A refusal counts before an acknowledgement that came with it.
	for _, f := range frames {
		if stop, ok := f.Frame.(*qlog.StopSendingFrame); ok {
			if s := t.streams[stop.StreamID]; s != nil {
				t.settleLocked(s, &transport.StopError{Code: uint64(stop.ErrorCode)})
			}
		}
	}
	for _, f := range frames {
		if ack, ok := f.Frame.(*qlog.AckFrame); ok {
			t.acknowledged(ack.AckRanges)
		}
	}
}

// packetLost drops the parts of a packet that quic-go gave up: it sends them again in another packet.
func (t *tracker) packetLost(packet qlog.PacketNumber) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := t.search(packet); i < len(t.sent) && t.sent[i].packet == packet; i++ {
		t.sent[i].stream = nil
	}
}

// search returns the index of the first part of packet, or of the next one that has any.
func (t *tracker) search(packet qlog.PacketNumber) int {
	i, _ := slices.BinarySearchFunc(t.sent[t.head:], packet, func(p sentPart, n qlog.PacketNumber) int {
		return cmp.Compare(p.packet, n)
	})
	return t.head + i
}

// acknowledged notes the parts that the peer's transport holds. Ranges come in descending order, as ACK frames have them.
//
// Every part up to the largest acknowledged packet is looked at, and those that still count are moved to the end of that
// region: these are few, as a packet that is much older than an acknowledged one is lost.
func (t *tracker) acknowledged(ranges []qlog.AckRange) {
	if len(ranges) == 0 {
		return
	}
	end := t.search(ranges[0].Largest + 1)
	keep, r := end, 0
	for i := end - 1; i >= t.head; i-- {
		part := t.sent[i]
		for r < len(ranges) && part.packet < ranges[r].Smallest {
			r++
		}
		if part.stream == nil || part.stream.settled {
			continue
		}
		if r < len(ranges) && part.packet <= ranges[r].Largest {
			t.take(part)
			continue
		}
		if !part.stream.holds(part) {
			keep--
			t.sent[keep] = part
		}
	}
	clear(t.sent[t.head:keep])
	t.head = keep
	if len(t.streams) == 0 {
		t.drop()
	}
}

// drop forgets every part, when no stream is tracked.
func (t *tracker) drop() {
	if cap(t.sent) > keptParts {
		t.sent = nil
	}
	clear(t.sent)
	t.sent, t.head = t.sent[:0], 0
}

// take adds an acknowledged part to its stream, and settles the receipt when nothing is missing.
func (t *tracker) take(part sentPart) {
	s := part.stream
	s.endAcked = s.endAcked || part.fin
	s.add(part.span)
	if s.endAcked && s.acked == s.size {
		t.settleLocked(s, nil)
	}
}

// holds reports whether the peer is known to have all of a part.
func (s *tracked) holds(part sentPart) bool {
	return part.end <= s.acked && (!part.fin || s.endAcked)
}

// add puts sp among the acknowledged parts.
func (s *tracked) add(sp span) {
	if sp.end <= s.acked {
		return
	}
	if sp.begin > s.acked {
		s.addBeyond(sp)
		return
	}
	s.acked = sp.end
	n := 0
	for n < len(s.beyond) && s.beyond[n].begin <= s.acked {
		s.acked = max(s.acked, s.beyond[n].end)
		n++
	}
	s.beyond = slices.Delete(s.beyond, 0, n)
}

// addBeyond keeps sp for later, joined with what it touches.
func (s *tracked) addBeyond(sp span) {
	i, _ := slices.BinarySearchFunc(s.beyond, sp.begin, func(b span, begin int64) int {
		if b.end < begin {
			return -1
		}
		return 1
	})
	j := i
	for j < len(s.beyond) && s.beyond[j].begin <= sp.end {
		sp.begin, sp.end = min(sp.begin, s.beyond[j].begin), max(sp.end, s.beyond[j].end)
		j++
	}
	s.beyond = slices.Replace(s.beyond, i, j, sp)
}
