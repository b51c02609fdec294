package frame

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/weir-agent/weir/wab/record"
)

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The worked examples of the specification.
const (
	pushHello   = "57454952 01 01 01 00 05000000 66ad7d3c 68656c6c6f 86a61036"
	trackHello  = "57454952 01 06 01 00 05000000 e893daf9 68656c6c6f 86a61036"
	ackHex      = "57454952 01 02 01 00 00000000 c9474b3a 00000000"
	nackTooBig  = "57454952 01 03 01 00 01000000 182b8024 04 942b6fd5"
	segment7    = "shard_00/seg_00000001.wab.sealed"
	trackedHead = "57454952 01 07 01 00 4b000000 52b76624 01 0700000000000000 ce1ed3cfba2bd8f4"
	trackedTail = "7b44b9cb"
)

func TestWorkedExamples(t *testing.T) {
	hello := []byte("hello")
	tests := []struct {
		name string
		got  []byte
		want string
	}{
		{"push", Append(nil, Push, record.Durable, hello), pushHello},
		{"push tracked", Append(nil, PushTracked, record.Durable, hello), trackHello},
		{"ack", AppendAck(nil), ackHex},
		{"ack built from its parts", Append(nil, Ack, record.Durable, nil), ackHex},
		{"nack", AppendNack(nil, PayloadTooLarge), nackTooBig},
		{"health response", AppendHealthCheckResponse(nil), hex.EncodeToString(Append(nil, HealthCheckResponse, record.Durable, nil))},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if want := unhex(t, tt.want); !bytes.Equal(tt.got, want) {
				t.Errorf("got  %x\nwant %x", tt.got, want)
			}
		})
	}
}

func TestWorkedAckTracked(t *testing.T) {
	c := record.Coordinate{Segment: segment7, Index: 7, ID: record.ComputeID(segment7, 7, []byte("hello"))}
	got := AppendAckTracked(nil, c)
	if len(got) != 95 || !bytes.HasPrefix(got, unhex(t, trackedHead)) || !bytes.HasSuffix(got, unhex(t, trackedTail)) {
		t.Errorf("got %x", got)
	}
	h, payload, err := Parse(got, 0)
	if err != nil || h.Type != AckTracked {
		t.Fatalf("Parse = %+v, %v", h, err)
	}
	if back, err := ParseCoordinate(payload); err != nil || back != c {
		t.Errorf("ParseCoordinate = %+v, %v, want %+v", back, err, c)
	}
}

// edit returns a copy of a frame with byte i set to v, and the header CRC made right again.
func edit(f []byte, i int, v byte) []byte {
	f = bytes.Clone(f)
	f[i] = v
	binary.LittleEndian.PutUint32(f[headerCrcAt:], checksum(f[:headerCrcAt]))
	return f
}

func withLength(f []byte, n uint32) []byte {
	f = bytes.Clone(f)
	binary.LittleEndian.PutUint32(f[lengthAt:], n)
	binary.LittleEndian.PutUint32(f[headerCrcAt:], checksum(f[:headerCrcAt]))
	return f
}

func flip(f []byte, i int) []byte {
	f = bytes.Clone(f)
	f[i] ^= 0x40
	return f
}

func TestParseVerdicts(t *testing.T) {
	push := Append(nil, Push, record.Buffered, []byte("hello"))
	tests := []struct {
		name string
		in   []byte
		max  int
		want Verdict
	}{
		{"nothing", nil, 0, ErrTruncatedFrame},
		{"fifteen bytes that are not weir", bytes.Repeat([]byte{'x'}, 15), 0, ErrTruncatedFrame},
		{"magic", flip(push, 0), 0, ErrBadMagic},
		{"magic before version", edit(flip(push, 3), versionAt, 9), 0, ErrBadMagic},
		{"version before header CRC", flip(push, versionAt), 0, ErrVersionMismatch},
		{"header CRC before type", flip(push, typeAt), 0, ErrHeaderCrcMismatch},
		{"header CRC itself", flip(push, headerCrcAt), 0, ErrHeaderCrcMismatch},
		{"type zero", edit(push, typeAt, 0), 0, ErrUnknownMessageType},
		{"type 0x0A", edit(push, typeAt, 0x0A), 0, ErrUnknownMessageType},
		{"type 0xFF", edit(push, typeAt, 0xFF), 0, ErrUnknownMessageType},
		{"type before durability", edit(edit(push, typeAt, 0x0A), durabilityAt, 9), 0, ErrUnknownMessageType},
		{"durability zero", edit(push, durabilityAt, 0), 0, ErrUnknownDurability},
		{"durability 4", edit(push, durabilityAt, 4), 0, ErrUnknownDurability},
		{"durability before flags", edit(edit(push, durabilityAt, 4), flagsAt, 1), 0, ErrUnknownDurability},
		{"flags", edit(push, flagsAt, 0x80), 0, ErrReservedFlagsSet},
		{"flags before cap", withLength(edit(push, flagsAt, 1), MaxPayloadBytes+1), 0, ErrReservedFlagsSet},
		{"one over the hard cap", withLength(push, MaxPayloadBytes+1), 0, ErrPayloadTooLarge},
		{"largest length", withLength(push, 0xFFFFFFFF), 0, ErrPayloadTooLarge},
		{"the hard cap holds above it", withLength(push, MaxPayloadBytes+1), MaxPayloadBytes * 4, ErrPayloadTooLarge},
		{"configured cap", push, 4, ErrPayloadTooLarge},
		{"at the hard cap, bytes missing", withLength(push, MaxPayloadBytes), 0, ErrTruncatedFrame},
		{"payload missing", push[:HeaderLen], 0, ErrTruncatedFrame},
		{"one byte missing", push[:len(push)-1], 0, ErrTruncatedFrame},
		{"one byte more", append(bytes.Clone(push), 0), 0, ErrTrailingBytes},
		{"two frames", append(bytes.Clone(push), push...), 0, ErrTrailingBytes},
		{"payload", flip(push, HeaderLen), 0, ErrPayloadCrcMismatch},
		{"payload CRC", flip(push, len(push)-1), 0, ErrPayloadCrcMismatch},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, payload, err := Parse(tt.in, tt.max)
			if err != tt.want || payload != nil {
				t.Errorf("Parse = %x, %v, want %v", payload, err, tt.want)
			}
		})
	}
}

func TestParseTakesEveryTypeAndTier(t *testing.T) {
	for typ := Push; typ <= AckBatch; typ++ {
		for wire, want := range map[byte]record.Durability{1: record.Durable, 2: record.Durable, 3: record.Buffered} {
			f := edit(Append(nil, typ, record.Durable, []byte("p")), durabilityAt, wire)
			h, payload, err := Parse(f, 1)
			if err != nil || h.Type != typ || h.Durability != want || string(payload) != "p" {
				t.Errorf("type %v, durability byte %d: %+v, %q, %v", typ, wire, h, payload, err)
			}
		}
	}
}

func TestParseAtTheConfiguredCap(t *testing.T) {
	f := Append(nil, Push, record.Durable, []byte("hello"))
	if _, payload, err := Parse(f, 5); err != nil || string(payload) != "hello" {
		t.Errorf("Parse = %q, %v", payload, err)
	}
}

func TestParseRequestHeader(t *testing.T) {
	empty := func(typ Type) []byte { return Append(nil, typ, record.Durable, nil) }
	full := func(typ Type) []byte { return Append(nil, typ, record.Durable, []byte("hello")) }
	tests := []struct {
		name string
		in   []byte
		want error
	}{
		{"push", full(Push), nil},
		{"tracked", full(PushTracked), nil},
		{"batch", full(PushBatch), nil},
		{"empty batch is judged by its body", empty(PushBatch), nil},
		{"health check", empty(HealthCheck), nil},
		{"health check with a payload", full(HealthCheck), nil},
		{"empty push", empty(Push), ErrEmptyPayload},
		{"empty tracked", empty(PushTracked), ErrEmptyPayload},
		{"ack from a client", empty(Ack), ErrUnknownMessageType},
		{"nack from a client", full(Nack), ErrUnknownMessageType},
		{"health check response from a client", empty(HealthCheckResponse), ErrUnknownMessageType},
		{"ack tracked from a client", full(AckTracked), ErrUnknownMessageType},
		{"ack batch from a client", full(AckBatch), ErrUnknownMessageType},
		{"flags before direction", edit(empty(Ack), flagsAt, 1), ErrReservedFlagsSet},
		{"cap before direction", withLength(empty(Ack), 1<<30), ErrPayloadTooLarge},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := ParseRequestHeader(tt.in, 0); err != tt.want {
				t.Errorf("err = %v, want %v", err, tt.want)
			}
		})
	}
}

func TestParseReplyHeader(t *testing.T) {
	reply := func(typ Type, n uint32) []byte { return withLength(Append(nil, typ, record.Durable, nil), n) }
	tests := []struct {
		name string
		sent Type
		in   []byte
		want error
	}{
		{"ack", Push, reply(Ack, 0), nil},
		{"ack with a payload", Push, reply(Ack, 1), ErrPayloadTooLarge},
		{"nack of two bytes", Push, reply(Nack, 2), nil},
		{"nack of three bytes", PushBatch, reply(Nack, 3), ErrPayloadTooLarge},
		{"nack to a health check", HealthCheck, reply(Nack, 1), nil},
		{"health", HealthCheck, reply(HealthCheckResponse, 0), nil},
		{"health with a payload", HealthCheck, reply(HealthCheckResponse, 1), ErrPayloadTooLarge},
		{"tracked at its cap", PushTracked, reply(AckTracked, 298), nil},
		{"tracked above its cap", PushTracked, reply(AckTracked, 299), ErrPayloadTooLarge},
		{"batch at its cap", PushBatch, reply(AckBatch, 259), nil},
		{"batch above its cap", PushBatch, reply(AckBatch, 260), ErrPayloadTooLarge},
		{"a stray type unlocks no bigger read", Push, reply(AckTracked, 298), ErrUnexpectedReply},
		{"ack to a batch", PushBatch, reply(Ack, 0), ErrUnexpectedReply},
		{"ack to a health check", HealthCheck, reply(Ack, 0), ErrUnexpectedReply},
		{"a request", Push, reply(Push, 0), ErrUnexpectedReply},
		{"bad header CRC", Push, flip(reply(Ack, 0), lengthAt), ErrHeaderCrcMismatch},
		{"filler durability is not looked at", Push, edit(reply(Ack, 0), durabilityAt, 3), nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := ParseReplyHeader(tt.in, tt.sent); err != tt.want {
				t.Errorf("err = %v, want %v", err, tt.want)
			}
		})
	}
}

func TestVersionMismatchNamesTheVersion(t *testing.T) {
	h, err := ParseHeader(edit(AppendAck(nil), versionAt, 2), 0)
	if err != ErrVersionMismatch || h.Version != 2 {
		t.Errorf("ParseHeader = %+v, %v", h, err)
	}
}

func TestNack(t *testing.T) {
	tests := []struct {
		name string
		in   []byte
		want NackBody
		err  error
	}{
		{"empty", nil, NackBody{}, ErrTruncated},
		{"reason", []byte{6}, NackBody{Reason: InternalError}, nil},
		{"reserved reason", []byte{0x0A}, NackBody{Reason: 0x0A}, nil},
		{"version mismatch", []byte{2, 7}, NackBody{Reason: VersionMismatch, Version: 7}, nil},
		{"version missing", []byte{2}, NackBody{}, ErrLengthMismatch},
		{"a byte too much", []byte{6, 1}, NackBody{}, ErrLengthMismatch},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got, err := ParseNack(tt.in); err != tt.err || got != tt.want {
				t.Errorf("ParseNack = %+v, %v, want %+v, %v", got, err, tt.want, tt.err)
			}
		})
	}
	_, payload, err := Parse(AppendNack(nil, VersionMismatch), 0)
	if want := []byte{2, Version}; err != nil || !bytes.Equal(payload, want) {
		t.Errorf("payload of Nack(VersionMismatch) = %x, %v, want %x", payload, err, want)
	}
}

func TestNames(t *testing.T) {
	if got := Type(0x0A).String(); got != "Type(0x0a)" {
		t.Errorf("Type(0x0A) = %s", got)
	}
	if got := Reason(0x0A).String(); got != "UnknownNack(0x0a)" {
		t.Errorf("Reason(0x0A) = %s", got)
	}
	for v := ErrTruncatedFrame; v <= ErrUnexpectedReply; v++ {
		if strings.Contains(v.Name(), "Verdict") {
			t.Errorf("verdict %d has no name", v)
		}
	}
	for r := range 256 {
		if known := Reason(r).Known(); known == strings.HasPrefix(Reason(r).String(), "UnknownNack(") {
			t.Errorf("reason %#x: Known = %v, String = %s", r, known, Reason(r))
		}
	}
}

func TestUpdateChecksumAgrees(t *testing.T) {
	b := []byte("123456789")
	if got := UpdateChecksum(UpdateChecksum(0, b[:4]), b[4:]); got != 0xCBF43926 || checksum(b) != got {
		t.Errorf("check value %#x, want 0xcbf43926", got)
	}
	if checksum(nil) != 0 {
		t.Error("the CRC of nothing is not zero")
	}
}
