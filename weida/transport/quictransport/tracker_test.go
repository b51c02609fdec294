package quictransport

import (
	"errors"
	"slices"
	"testing"

	quic "github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/qlog"
	"pgregory.net/rapid"

	"github.com/weir-agent/weir/weida/transport"
)

func sentEvent(packet qlog.PacketNumber, frames ...*qlog.StreamFrame) qlog.PacketSent {
	e := qlog.PacketSent{Header: qlog.PacketHeader{PacketType: qlog.PacketType1RTT, PacketNumber: packet}}
	for _, f := range frames {
		e.Frames = append(e.Frames, qlog.Frame{Frame: f})
	}
	return e
}

func lostEvent(packet qlog.PacketNumber) qlog.PacketLost {
	return qlog.PacketLost{Header: qlog.PacketHeader{PacketType: qlog.PacketType1RTT, PacketNumber: packet}}
}

func receivedEvent(frames ...any) qlog.PacketReceived {
	e := qlog.PacketReceived{Header: qlog.PacketHeader{PacketType: qlog.PacketType1RTT}}
	for _, f := range frames {
		e.Frames = append(e.Frames, qlog.Frame{Frame: f})
	}
	return e
}

// ackEvent acknowledges the ranges given as pairs of first and last packet, in descending order.
func ackEvent(pairs ...qlog.PacketNumber) qlog.PacketReceived {
	ack := &qlog.AckFrame{}
	for p := range slices.Chunk(pairs, 2) {
		ack.AckRanges = append(ack.AckRanges, qlog.AckRange{Smallest: p[0], Largest: p[1]})
	}
	return receivedEvent(ack)
}

func part(id quic.StreamID, begin, end int64, fin bool) *qlog.StreamFrame {
	return &qlog.StreamFrame{StreamID: id, Offset: begin, Length: end - begin, Fin: fin}
}

func TestTracker(t *testing.T) {
	pending := errors.New("not settled")
	handshake := ackEvent(0, 9)
	handshake.Header.PacketType = qlog.PacketTypeHandshake
	early := sentEvent(1, part(2, 0, 10, true))
	early.Header.PacketType = qlog.PacketType0RTT
	stop := &qlog.StopSendingFrame{StreamID: 2, ErrorCode: 7}
	tests := []struct {
		name   string
		events []any // events of quic-go
		want   error
	}{
		{"one packet", []any{sentEvent(1, part(2, 0, 10, true)), ackEvent(1, 1)}, nil},
		{"nothing acknowledged", []any{sentEvent(1, part(2, 0, 10, true)), ackEvent(0, 0)}, pending},
		{"the end alone is not enough", []any{sentEvent(1, part(2, 0, 10, false)), sentEvent(2, part(2, 10, 10, true)), ackEvent(2, 2)}, pending},
		{"the bytes alone are not enough", []any{sentEvent(1, part(2, 0, 10, false)), sentEvent(2, part(2, 10, 10, true)), ackEvent(1, 1)}, pending},
		{"out of order", []any{
			sentEvent(1, part(2, 0, 10, false)), sentEvent(2, part(2, 10, 20, false)), sentEvent(3, part(2, 20, 30, true)),
			ackEvent(3, 3), ackEvent(1, 1), ackEvent(2, 2),
		}, nil},
		{"two ranges at once", []any{
			sentEvent(1, part(2, 0, 10, false)), sentEvent(5, part(2, 10, 20, true)), sentEvent(6, part(6, 0, 1, false)), ackEvent(5, 6, 0, 2),
		}, nil},
		{"lost and sent again", []any{sentEvent(1, part(2, 0, 10, true)), lostEvent(1), sentEvent(2, part(2, 0, 10, true)), ackEvent(2, 2)}, nil},
		{"lost and not sent again", []any{sentEvent(1, part(2, 0, 10, false)), sentEvent(2, part(2, 10, 20, true)), lostEvent(1), ackEvent(2, 2)}, pending},
		{"sent again in two parts", []any{
			sentEvent(1, part(2, 0, 10, true)), lostEvent(1), sentEvent(2, part(2, 0, 4, false)), sentEvent(3, part(2, 4, 10, true)), ackEvent(3, 3), ackEvent(2, 3),
		}, nil},
		{"sent again without being lost", []any{sentEvent(1, part(2, 0, 10, true)), sentEvent(2, part(2, 0, 10, true)), ackEvent(1, 1)}, nil},
		{"acknowledgements of another space", []any{sentEvent(1, part(2, 0, 10, true)), handshake}, pending},
		{"packets of another space", []any{early, ackEvent(1, 1)}, pending},
		{"a packet that was never sent", []any{ackEvent(0, 1000)}, pending},
		{"other streams", []any{sentEvent(1, part(6, 0, 10, true)), ackEvent(1, 1)}, pending},
		{"stopped", []any{sentEvent(1, part(2, 0, 10, true)), receivedEvent(stop)}, &transport.StopError{Code: 7}},
		{"stopped and acknowledged at once", []any{
			sentEvent(1, part(2, 0, 10, true)), receivedEvent(&qlog.AckFrame{AckRanges: []qlog.AckRange{{Smallest: 1, Largest: 1}}}, stop),
		}, &transport.StopError{Code: 7}},
		{"stopped after it was acknowledged", []any{sentEvent(1, part(2, 0, 10, true)), ackEvent(1, 1), receivedEvent(stop)}, nil},
		{"an acknowledgement without ranges", []any{sentEvent(1, part(2, 0, 10, true)), ackEvent()}, pending},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tr := newTracker()
			s := tr.track(2)
			for _, e := range tt.events {
				switch e := e.(type) {
				case qlog.PacketSent:
					tr.RecordEvent(e)
				case qlog.PacketReceived:
					tr.RecordEvent(e)
				case qlog.PacketLost:
					tr.RecordEvent(e)
				}
			}
			settled, err := s.receipt.Settled()
			if !settled {
				err = pending
			}
			stop, isStop := errors.AsType[*transport.StopError](tt.want)
			got, gotStop := errors.AsType[*transport.StopError](err)
			if isStop != gotStop || isStop && *got != *stop || !isStop && !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
			if settled && (tr.live.Load() != 0 || len(tr.streams) != 0) {
				t.Errorf("a settled receipt leaves %d streams", len(tr.streams))
			}
		})
	}
}

// modelled is a stream in the plainest form: which bytes the peer has.
type modelled struct {
	id      quic.StreamID
	tracked *tracked
	size    int64
	have    []bool
	end     bool
	queue   []*qlog.StreamFrame // what is still to be sent, or to be sent again
}

func (m *modelled) whole() bool { return m.end && !slices.Contains(m.have, false) }

// TestTrackerAgainstModel sends streams over a network that loses, reorders and repeats, and compares each receipt with a model that
// marks single bytes.
func TestTrackerAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tr := newTracker()
		var streams []*modelled
		for i := range rapid.IntRange(1, 5).Draw(t, "streams") {
			m := &modelled{id: quic.StreamID(4*i + 2), size: rapid.Int64Range(0, 40).Draw(t, "size")}
			m.have = make([]bool, m.size)
			m.tracked = tr.track(m.id)
			for at := int64(0); ; {
				n := min(rapid.Int64Range(1, 16).Draw(t, "length"), m.size-at)
				m.queue = append(m.queue, part(m.id, at, at+n, at+n == m.size))
				if at += n; at == m.size {
					break
				}
			}
			streams = append(streams, m)
		}
		packets := map[qlog.PacketNumber][]*qlog.StreamFrame{} // sent, neither acknowledged nor lost
		lost := map[qlog.PacketNumber][]*qlog.StreamFrame{}
		var last qlog.PacketNumber
		acknowledge := func(n qlog.PacketNumber) {
			frames := packets[n]
			if frames == nil {
				frames = lost[n]
			}
			for _, f := range frames {
				m := streams[f.StreamID/4]
				for i := f.Offset; i < f.Offset+f.Length; i++ {
					m.have[i] = true
				}
				m.end = m.end || f.Fin
			}
			delete(packets, n)
		}
		t.Repeat(map[string]func(*rapid.T){
			"send": func(t *rapid.T) {
				last += qlog.PacketNumber(rapid.IntRange(1, 2).Draw(t, "skip"))
				for _, m := range streams {
					if len(m.queue) > 0 && rapid.Bool().Draw(t, "with") {
						packets[last] = append(packets[last], m.queue[0])
						m.queue = m.queue[1:]
					}
				}
				tr.RecordEvent(sentEvent(last, packets[last]...))
			},
			"lose": func(t *rapid.T) {
				n := qlog.PacketNumber(rapid.IntRange(0, int(last)).Draw(t, "packet"))
				if packets[n] == nil {
					return
				}
				for _, f := range packets[n] {
					m := streams[f.StreamID/4]
					m.queue = append(m.queue, f)
				}
				lost[n] = packets[n]
				delete(packets, n)
				tr.RecordEvent(lostEvent(n))
			},
			"acknowledge": func(t *rapid.T) {
				largest := qlog.PacketNumber(rapid.IntRange(0, int(last)).Draw(t, "largest"))
				var ranges []qlog.PacketNumber
				for n := largest; n >= 0 && len(ranges) < 8; {
					first := max(0, n-qlog.PacketNumber(rapid.IntRange(0, 4).Draw(t, "length")))
					ranges = append(ranges, first, n)
					for i := first; i <= n; i++ {
						// A packet that was given up counts for nothing here, as its bytes are sent again.
						if packets[i] != nil {
							acknowledge(i)
						}
					}
					n = first - 2 - qlog.PacketNumber(rapid.IntRange(0, 3).Draw(t, "gap"))
				}
				tr.RecordEvent(ackEvent(ranges...))
			},
			"": func(t *rapid.T) {
				for _, m := range streams {
					settled, err := m.tracked.receipt.Settled()
					if settled != m.whole() || err != nil {
						t.Fatalf("stream %d: settled %v, %v; the peer has %v, its end %v", m.id, settled, err, m.have, m.end)
					}
				}
				unsettled := 0
				for _, m := range streams {
					if !m.whole() {
						unsettled++
					}
				}
				if len(tr.streams) != unsettled || len(tr.sent)-tr.head > 5*(int(last)+1) {
					t.Fatalf("it keeps %d streams and %d parts", len(tr.streams), len(tr.sent)-tr.head)
				}
			},
		})
	})
}

// TestTrackerForgetsWhatIsSettled sends for long while one early packet stays unacknowledged.
func TestTrackerForgetsWhatIsSettled(t *testing.T) {
	tr := newTracker()
	stuck := tr.track(2)
	tr.RecordEvent(sentEvent(0, part(2, 0, 1, true)))
	for i := range 10_000 {
		n := qlog.PacketNumber(i + 1)
		s := tr.track(quic.StreamID(4*n + 2))
		tr.RecordEvent(sentEvent(n, part(s.id, 0, 100, true)))
		if i >= 10 {
			tr.RecordEvent(ackEvent(1, n-10))
		}
	}
	if kept := len(tr.sent) - tr.head; kept != 11 || cap(tr.sent) > 1000 {
		t.Errorf("it keeps %d parts in room for %d", kept, cap(tr.sent))
	}
	if settled, _ := stuck.receipt.Settled(); settled {
		t.Error("the first receipt settled without an acknowledgement")
	}
	tr.fail(&transport.CloseError{Cause: transport.CauseIdleTimeout})
	if _, err := stuck.receipt.Settled(); err == nil || errors.Is(err, transport.ErrIndeterminate) {
		t.Errorf("an unfinished stream ended with %v", err)
	}
	late := tr.track(6)
	if settled, err := late.receipt.Settled(); !settled || err == nil {
		t.Errorf("a receipt on a link that is gone: settled %v, %v", settled, err)
	}
}
