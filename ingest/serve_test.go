package ingest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/weir-agent/weir/ingest/frame"
	"github.com/weir-agent/weir/wab"
	"github.com/weir-agent/weir/wab/record"
)

func TestEveryRequestIsAnswered(t *testing.T) {
	r := start(t, Config{}, wab.Options{})
	p := r.dial()
	p.send(push("one"))
	p.want("Ack")
	p.send(pushBuffered("two"))
	p.want("Ack")
	p.send(frame.AppendHealthCheck(nil))
	p.want("HealthCheckResponse")
	p.send(frame.Append(nil, frame.HealthCheck, record.Durable, []byte("ignored")))
	p.want("HealthCheckResponse")
	p.send(batchOf("three", "four", "five"))
	p.want("AckBatch 07")
	p.send(tracked("six"))
	h, payload := p.read()
	if h.Type != frame.AckTracked || h.Durability != record.Durable {
		t.Fatalf("reply %+v", h)
	}
	c, err := frame.ParseCoordinate(payload)
	if err != nil {
		t.Fatal(err)
	}
	if want := record.ComputeID(c.Segment, c.Index, []byte("six")); c.ID != want || c.Index != 6 {
		t.Errorf("coordinate %+v, want id %v at index 6", c, want)
	}
	if want := []string{"one", "two", "three", "four", "five", "six"}; !slices.Equal(r.records(), want) {
		t.Errorf("log holds %q, want %q", r.records(), want)
	}
	st := r.srv.Stats()
	if st.AckedRecords != 6 || st.Frames[frame.Push] != 2 || st.Frames[frame.HealthCheck] != 2 || st.Open != 1 {
		t.Errorf("stats %+v", st)
	}
	answered := uint64(0)
	for _, b := range st.AnswerTimes {
		answered += b.Count
	}
	if answered != 6 || st.AnswerTotal <= 0 || st.AnswerQuantile(0.5) <= 0 || st.AnswerQuantile(0.5) > st.AnswerQuantile(1) {
		t.Errorf("%d records were answered, in %v, half of them in %v, all in %v", answered, st.AnswerTotal, st.AnswerQuantile(0.5), st.AnswerQuantile(1))
	}
}

// The retired tier is Durable: its ack waits for the sync.
func TestRetiredDurability(t *testing.T) {
	r := start(t, Config{}, wab.Options{})
	p := r.dial()
	p.send(frame.Append(nil, frame.Push, 2, []byte("old")))
	h, _ := p.read()
	if h.Type != frame.Ack || r.log.Shards()[0].Stats().Syncs == 0 {
		t.Errorf("reply %v after %d syncs", h.Type, r.log.Shards()[0].Stats().Syncs)
	}
}

func TestPipelineKeepsOrder(t *testing.T) {
	tests := []struct{ n, window int }{{2, 0}, {300, 0}, {300, 1}, {3000, 64}, {3000, 0}}
	for _, tt := range tests {
		n := tt.n
		t.Run(fmt.Sprintf("%d frames, window %d", n, tt.window), func(t *testing.T) {
			r := start(t, Config{PipelineRecords: tt.window}, wab.Options{})
			p := r.dial()
			var in, want []string
			var out []byte
			for i := range n {
				s := fmt.Sprintf("record %d", i)
				switch i % 5 {
				case 0:
					out, want = append(out, tracked(s)...), append(want, "AckTracked")
				case 1:
					out, want = append(out, frame.AppendHealthCheck(nil)...), append(want, "HealthCheckResponse")
					continue
				case 2:
					out, want = append(out, pushBuffered(s)...), append(want, "Ack")
				case 3:
					out, want = append(out, batchOf(s)...), append(want, "AckBatch 01")
				case 4:
					out, want = append(out, push(s)...), append(want, "Ack")
				}
				in = append(in, s)
			}
			done := make(chan struct{})
			go func() {
				defer close(done)
				p.nc.Write(out)
			}()
			p.want(want...)
			<-done
			p.wantOpen()
			if got := r.records(); !slices.Equal(got, in) {
				t.Errorf("the log holds %d records, want %d in the order of the frames", len(got), len(in))
			}
		})
	}
}

// Coordinates of pipelined tracked pushes belong to their own payloads, though the
// buffer was read into again.
func TestPipelinedCoordinates(t *testing.T) {
	r := start(t, Config{}, wab.Options{})
	p := r.dial()
	const n = 2000
	var out []byte
	for i := range n {
		out = append(out, tracked(fmt.Sprintf("%d %s", i, strings.Repeat("x", i%100)))...)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.nc.Write(out)
	}()
	for i := range n {
		_, payload := p.read()
		c, err := frame.ParseCoordinate(payload)
		if err != nil {
			t.Fatal(err)
		}
		if want := record.ComputeID(c.Segment, c.Index, fmt.Appendf(nil, "%d %s", i, strings.Repeat("x", i%100))); c.ID != want {
			t.Fatalf("record %d has id %v, want %v", i, c.ID, want)
		}
	}
	<-done
}

func TestLargeFrames(t *testing.T) {
	r := start(t, Config{}, wab.Options{SegmentBytes: 1 << 20})
	p := r.dial()
	for _, size := range []int{firstSlabBytes - frame.Overhead, firstSlabBytes, 64 << 10, 1<<20 + 1, frame.MaxPayloadBytes} {
		s := strings.Repeat("x", size)
		p.send(push(s))
		p.want("Ack")
		p.send(push("small"))
		p.want("Ack")
	}
	if got := len(r.records()); got != 10 {
		t.Errorf("%d records, want 10", got)
	}
	p.wantOpen()
	if got := r.srv.Stats().MemoryBytes; got != 0 {
		t.Errorf("an idle connection holds %d bytes", got)
	}
}

// A byte at a time is as good as all at once.
func TestDribbledFrames(t *testing.T) {
	r := start(t, Config{}, wab.Options{})
	p := r.dial()
	all := slices.Concat(push("a"), batchOf("b", "c"), tracked("d"))
	for i := range all {
		p.send(all[i : i+1])
	}
	p.want("Ack", "AckBatch 03", "AckTracked")
}

func TestRefusals(t *testing.T) {
	good := push("hello")
	edit := func(i int, v byte) []byte {
		// The parser checks the CRC before these fields, so it has to be right.
		return fixHeader(good, func(b []byte) { b[i] = v })
	}
	lying := func(typ frame.Type, n uint32) []byte {
		f := frame.Append(nil, typ, record.Durable, nil)
		return fixHeader(f, func(b []byte) { b[8], b[9], b[10], b[11] = byte(n), byte(n>>8), byte(n>>16), byte(n>>24) })[:frame.HeaderLen]
	}
	flip := func(i int) []byte {
		b := bytes.Clone(good)
		b[i] ^= 1
		return b
	}
	tests := []struct {
		name string
		in   []byte
		want string
	}{
		{"magic", []byte("GET / HTTP/1.1\r\n\r\n"), "Nack BadMagic"},
		{"version", edit(4, 2), "Nack VersionMismatch"},
		{"header CRC", flip(12), "Nack BadHeaderCrc"},
		{"unknown type", edit(5, 0x0A), "Nack UnknownMessage"},
		{"unknown tier", edit(6, 0), "Nack UnknownMessage"},
		{"flags", edit(7, 1), "Nack ReservedFlagsSet"},
		{"above the cap, payload not sent", lying(frame.Push, frame.MaxPayloadBytes+1), "Nack PayloadTooLarge"},
		{"payload CRC", flip(16), "Nack BadPayloadCrc"},
		{"empty push", frame.Append(nil, frame.Push, record.Durable, nil), "Nack EmptyPayload"},
		{"empty tracked", frame.Append(nil, frame.PushTracked, record.Durable, nil), "Nack EmptyPayload"},
		{"empty batch body", frame.Append(nil, frame.PushBatch, record.Durable, nil), "Nack BadBatchFraming"},
		{"ack from a client", frame.AppendAck(nil), "Nack UnknownMessage"},
		{"nack from a client", frame.AppendNack(nil, frame.InternalError), "Nack UnknownMessage"},
		{"health response from a client", frame.AppendHealthCheckResponse(nil), "Nack UnknownMessage"},
		{"batch with an empty record at its end", batchOf("a", "b", ""), "Nack EmptyPayload"},
		{"batch of too many", batchOf(repeat("x", 1025)...), "Nack PayloadTooLarge"},
		{"batch announcing 65535", frame.Append(nil, frame.PushBatch, record.Durable, []byte{1, 0xff, 0xff}), "Nack PayloadTooLarge"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := start(t, Config{}, wab.Options{})
			p := r.dial()
			// What came before is answered first, what comes behind is not looked at.
			p.send(push("before"), tt.in, push("behind"))
			p.want("Ack", tt.want)
			p.nc.CloseWrite()
			p.wantEnd()
			if got := r.records(); !slices.Equal(got, []string{"before"}) {
				t.Errorf("the log holds %q, want only what came before", got)
			}
		})
	}
}

func fixHeader(f []byte, change func([]byte)) []byte {
	b := bytes.Clone(f)
	change(b)
	crc := frame.UpdateChecksum(0, b[:12])
	b[12], b[13], b[14], b[15] = byte(crc), byte(crc>>8), byte(crc>>16), byte(crc>>24)
	return b
}

func TestVersionMismatchSaysTheVersion(t *testing.T) {
	r := start(t, Config{}, wab.Options{})
	p := r.dial()
	p.send(fixHeader(push("x"), func(b []byte) { b[4] = 9 }))
	if _, payload := p.read(); !bytes.Equal(payload, []byte{2, 1}) {
		t.Errorf("payload %x, want 0201", payload)
	}
}

// A peer that is still writing a payload which is refused by its header gets to
// read why.
func TestRefusalReachesAWritingPeer(t *testing.T) {
	r := start(t, Config{MaxPayloadBytes: 1000}, wab.Options{})
	p := r.dial()
	p.send(push(strings.Repeat("x", 4<<20)))
	p.want("Nack PayloadTooLarge")
	p.nc.CloseWrite()
	p.wantEnd()
}

func TestConfiguredCaps(t *testing.T) {
	r := start(t, Config{MaxPayloadBytes: 100, MaxBatchRecords: 3}, wab.Options{})
	p := r.dial()
	p.send(push(strings.Repeat("x", 100)), batchOf("a", "b", "c"))
	p.want("Ack", "AckBatch 07")
	p.send(batchOf("a", "b", "c", "d"))
	p.want("Nack PayloadTooLarge")
	p = r.dial()
	p.send(push(strings.Repeat("x", 101)))
	p.want("Nack PayloadTooLarge")
}

func TestBatchAtTheHardCap(t *testing.T) {
	r := start(t, Config{MaxBatchRecords: frame.MaxBatchRecords}, wab.Options{})
	p := r.dial()
	p.send(push("before"), batchOf(repeat("x", frame.MaxBatchRecords)...), push("behind"))
	p.want("Ack", "AckBatch "+strings.Repeat("ff", 256), "Ack")
}

func TestConnectionsAreSpreadOverShards(t *testing.T) {
	r := start(t, Config{}, wab.Options{Shards: 3})
	shards := map[string]int{}
	for range 6 {
		p := r.dial()
		for range 2 {
			p.send(tracked("x"))
			_, payload := p.read()
			c, err := frame.ParseCoordinate(payload)
			if err != nil {
				t.Fatal(err)
			}
			shard, _, _ := strings.Cut(c.Segment, "/")
			shards[shard]++
		}
	}
	if len(shards) != 3 {
		t.Errorf("records by shard: %v, want 4 in each of 3", shards)
	}
	for shard, n := range shards {
		if n != 4 {
			t.Errorf("%s has %d records, want 4", shard, n)
		}
	}
}

// A refused record does not count among the answer times: a full log would look like a fast disk.
func TestRefusedIsNoAnswerTime(t *testing.T) {
	r := start(t, Config{}, wab.Options{MaxBytes: 1 << 20})
	p := r.dial()
	big := strings.Repeat("x", 600<<10)
	p.send(push(big))
	p.want("Ack")
	p.send(push(big))
	p.want("Nack InternalError")
	st := r.srv.Stats()
	answered := uint64(0)
	for _, b := range st.AnswerTimes {
		answered += b.Count
	}
	if answered != 1 || st.FailedRecords != 1 {
		t.Errorf("%d answers counted and %d records failed, want 1 and 1", answered, st.FailedRecords)
	}
}
