package frame

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"github.com/weir-agent/weir/wab/record"
)

func entry(n uint32, b string) string {
	return string(binary.LittleEndian.AppendUint32(nil, n)) + b
}

func TestParseBatchVerdicts(t *testing.T) {
	tests := []struct {
		name       string
		body       string
		records    int
		recordSize int
		want       error
	}{
		{"nothing", "", 0, 0, ErrTruncated},
		{"two bytes", "\x01\x01", 0, 0, ErrTruncated},
		{"version", "\x02\x00\x00", 0, 0, ErrUnsupportedVersion},
		{"version zero", "\x00\x01\x00" + entry(1, "a"), 0, 0, ErrUnsupportedVersion},
		{"no records", "\x01\x00\x00", 0, 0, ErrEmptyBatch},
		{"no records but bytes", "\x01\x00\x00" + entry(1, "a"), 0, 0, ErrEmptyBatch},
		{"2049 records in three bytes", "\x01\x01\x08", 0, 0, ErrTooManyRecords},
		{"65535 records in three bytes", "\x01\xff\xff", 0, 0, ErrTooManyRecords},
		{"the hard cap holds above it", "\x01\xff\xff", 65535, 0, ErrTooManyRecords},
		{"configured cap", "\x01\x03\x00", 2, 0, ErrTooManyRecords},
		{"2048 records, none there", "\x01\x00\x08", 0, 0, ErrTruncatedRecord},
		{"length cut", "\x01\x01\x00\x01\x00\x00", 0, 0, ErrTruncatedRecord},
		{"bytes cut", "\x01\x01\x00" + entry(2, "a"), 0, 0, ErrTruncatedRecord},
		{"second entry missing", "\x01\x02\x00" + entry(1, "a"), 0, 0, ErrTruncatedRecord},
		{"empty record", "\x01\x01\x00" + entry(0, ""), 0, 0, ErrEmptyRecord},
		{"empty record behind a good one", "\x01\x02\x00" + entry(1, "a") + entry(0, ""), 0, 0, ErrEmptyRecord},
		{"record cap before its bytes are looked for", "\x01\x01\x00" + entry(record.MaxBytes+1, ""), 0, 0, ErrRecordTooLarge},
		{"largest length", "\x01\x01\x00" + entry(0xFFFFFFFF, "a"), 0, 0, ErrRecordTooLarge},
		{"configured record cap", "\x01\x01\x00" + entry(3, "abc"), 0, 2, ErrRecordTooLarge},
		{"at the cap but cut", "\x01\x01\x00" + entry(record.MaxBytes, "a"), 0, 0, ErrTruncatedRecord},
		{"a byte too much", "\x01\x01\x00" + entry(1, "a") + "x", 0, 0, ErrLengthMismatch},
		{"a record too much", "\x01\x01\x00" + entry(1, "a") + entry(1, "b"), 0, 0, ErrLengthMismatch},
		{"one", "\x01\x01\x00" + entry(1, "a"), 1, 1, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			keep := [][]byte{[]byte("before")}
			got, err := ParseBatch(keep, []byte(tt.body), tt.records, tt.recordSize)
			if err != tt.want {
				t.Fatalf("err = %v, want %v", err, tt.want)
			}
			if err != nil && len(got) != 1 {
				t.Errorf("dst has %d entries after an error, want the 1 it had", len(got))
			}
		})
	}
}

func TestBatchRoundTrip(t *testing.T) {
	for _, n := range []int{1, 2, 9, 1024, MaxBatchRecords} {
		want := make([][]byte, n)
		for i := range want {
			want[i] = bytes.Repeat([]byte{byte(i)}, 1+i%7)
		}
		h, body, err := Parse(AppendPushBatch(nil, record.Buffered, want...), 0)
		if err != nil || h.Type != PushBatch || h.Durability != record.Buffered {
			t.Fatalf("%d records: Parse = %+v, %v", n, h, err)
		}
		got, err := ParseBatch(nil, body, 0, 0)
		if err != nil || !slices.EqualFunc(got, want, bytes.Equal) {
			t.Errorf("%d records do not come back: %v", n, err)
		}
	}
}

func TestAckBatchBitOrder(t *testing.T) {
	set := map[int]bool{0: true, 2: true, 3: true, 8: true}
	got := AppendAckBatchBody(nil, 9, func(i int) bool { return set[i] })
	if want := []byte{1, 9, 0, 0b0000_1101, 0b0000_0001}; !bytes.Equal(got, want) {
		t.Fatalf("body = %x, want %x", got, want)
	}
	bits, err := ParseAckBatch(got, 9)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 9 {
		if bits.Get(i) != set[i] {
			t.Errorf("bit %d = %v, want %v", i, bits.Get(i), set[i])
		}
	}
}

func TestParseAckBatchVerdicts(t *testing.T) {
	tests := []struct {
		name string
		body string
		sent int
		want error
	}{
		{"nothing", "", 1, ErrTruncated},
		{"two bytes", "\x01\x01", 1, ErrTruncated},
		{"version", "\x02\x01\x00\x01", 1, ErrUnsupportedVersion},
		{"version before count", "\x00\x00\x00", 1, ErrUnsupportedVersion},
		{"no records", "\x01\x00\x00", 1, ErrEmptyBatch},
		{"1017 for 1024", "\x01\xf9\x03" + strings.Repeat("\x00", 128), 1024, ErrLengthMismatch},
		{"1024 for 1017", "\x01\x00\x04" + strings.Repeat("\x00", 128), 1017, ErrLengthMismatch},
		{"bitmap short", "\x01\x09\x00\x01", 9, ErrLengthMismatch},
		{"bitmap long", "\x01\x08\x00\x01\x00", 8, ErrLengthMismatch},
		{"padding", "\x01\x09\x00\x00\x02", 9, ErrPaddingNotZero},
		{"last padding bit", "\x01\x01\x00\x81", 1, ErrPaddingNotZero},
		{"eight have no padding", "\x01\x08\x00\xff", 8, nil},
		{"1017", "\x01\xf9\x03" + strings.Repeat("\xff", 127) + "\x01", 1017, nil},
		{"cap", "\x01\x00\x08" + strings.Repeat("\xff", 256), 2048, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := ParseAckBatch([]byte(tt.body), tt.sent); err != tt.want {
				t.Errorf("err = %v, want %v", err, tt.want)
			}
		})
	}
}

func TestAckBatchCapIsWithinTheTrackedOne(t *testing.T) {
	f := AppendAckBatch(nil, MaxBatchRecords, func(int) bool { return true })
	if got := len(f) - Overhead; got != 259 {
		t.Errorf("largest AckBatch payload %d, want 259", got)
	}
	if MaxAckBatchBytes != 259 || MaxCoordinateBytes != 298 {
		t.Errorf("caps %d and %d, want 259 and 298", MaxAckBatchBytes, MaxCoordinateBytes)
	}
}

func coordinateBody(version byte, declared int, segment string) string {
	b := append([]byte{version}, make([]byte, 40)...)
	b = binary.LittleEndian.AppendUint16(b, uint16(declared))
	return string(b) + segment
}

func TestParseCoordinateVerdicts(t *testing.T) {
	long := strings.Repeat("s", 256)
	tests := []struct {
		name string
		body string
		want error
	}{
		{"nothing", "", ErrTruncated},
		{"42 bytes", coordinateBody(1, 0, "")[:42], ErrTruncated},
		{"version", coordinateBody(2, 0, ""), ErrUnsupportedVersion},
		{"version before length", coordinateBody(0, 999, ""), ErrUnsupportedVersion},
		{"declared length above the cap", coordinateBody(1, 256, ""), ErrSegmentTooLong},
		{"declared and real length above the cap", coordinateBody(1, 256, long), ErrSegmentTooLong},
		{"short", coordinateBody(1, 3, "ab"), ErrLengthMismatch},
		{"a byte too much", coordinateBody(1, 1, "ab"), ErrLengthMismatch},
		{"not UTF-8", coordinateBody(1, 2, "a\xff"), ErrSegmentNotUtf8},
		{"empty segment", coordinateBody(1, 0, ""), nil},
		{"at the cap", coordinateBody(1, 255, long[:255]), nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := ParseCoordinate([]byte(tt.body)); err != tt.want {
				t.Errorf("err = %v, want %v", err, tt.want)
			}
		})
	}
}

func TestHotPathDoesNotAllocate(t *testing.T) {
	payload := bytes.Repeat([]byte{'x'}, 256)
	push := Append(nil, Push, record.Durable, payload)
	batch := AppendPushBatch(nil, record.Durable, payload, payload, payload)
	c := record.Coordinate{Segment: segment7, Index: 7}
	out := make([]byte, 0, 4096)
	entries := make([][]byte, 0, 8)
	tests := []struct {
		name string
		run  func()
	}{
		{"parse a push", func() {
			h, err := ParseRequestHeader(push, 0)
			if err == nil {
				_, err = ParsePayload(push, h)
			}
			if err != nil {
				t.Error(err)
			}
		}},
		{"refuse a frame", func() {
			if _, err := ParseHeader(push[1:], 0); err != ErrBadMagic {
				t.Error(err)
			}
		}},
		{"parse a batch", func() {
			if _, err := ParseBatch(entries, batch[HeaderLen:len(batch)-TrailerLen], 0, 0); err != nil {
				t.Error(err)
			}
		}},
		{"replies", func() {
			b := AppendAck(out)
			b = AppendNack(b, InternalError)
			b = AppendAckTracked(b, c)
			AppendAckBatch(b, 3, func(i int) bool { return i != 1 })
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if n := testing.AllocsPerRun(100, tt.run); n != 0 {
				t.Errorf("%v allocations, want 0", n)
			}
		})
	}
}
