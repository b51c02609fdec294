package record

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"strings"
	"testing"
)

// The worked value of weir wire v1.
const (
	workedSegment = "shard_00/seg_00000001.wab.sealed"
	workedID      = "sha256:ce1ed3cfba2bd8f479aada1e16a60f784179ef1a1226b75b247c3624bf6c1fae"
)

func TestComputeIDWorkedValue(t *testing.T) {
	if got := ComputeID(workedSegment, 7, []byte("hello")).String(); got != workedID {
		t.Errorf("ComputeID = %s, want %s", got, workedID)
	}
}

func TestIDHasherLongAndShortPayloadsAgree(t *testing.T) {
	var h IDHasher
	seen := map[ID]int{}
	for _, n := range []int{1, 4095, 4096, 4097, 1 << 16} {
		p := bytes.Repeat([]byte{'x'}, n)
		id := h.ID("s", 1, p)
		if id != ComputeID("s", 1, p) {
			t.Errorf("payload of %d bytes: the reused hasher gives another id", n)
		}
		if other, ok := seen[id]; ok {
			t.Errorf("payloads of %d and %d bytes share an id", n, other)
		}
		seen[id] = n
	}
}

// TestIDHasherGoesFromSegmentToSegment: what the hasher keeps of one address is never in an id of another one.
func TestIDHasherGoesFromSegmentToSegment(t *testing.T) {
	var h IDHasher
	for i, segment := range []string{"", "", "s/1", "s/2", "s/2", "s/22", "s/2", "", "s/1"} {
		for _, n := range []int{1, 5000, 0, 100} {
			p := bytes.Repeat([]byte{'x'}, n)
			want := sha256.New()
			for _, b := range [][]byte{[]byte(segment), nil, p} {
				if b == nil {
					want.Write(binary.LittleEndian.AppendUint64(nil, uint64(i)))
					continue
				}
				want.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(b))))
				want.Write(b)
			}
			if got := h.ID(segment, uint64(i), p); got != ID(want.Sum(nil)) {
				t.Errorf("step %d, %d bytes in %q: the reused hasher gives another id", i, n, segment)
			}
		}
	}
}

func TestIDFramingKeepsSegmentAndPayloadApart(t *testing.T) {
	if ComputeID("ab", 1, []byte("c")) == ComputeID("a", 1, []byte("bc")) {
		t.Error("two different records share an id")
	}
}

func TestParseID(t *testing.T) {
	id, err := ParseID(workedID)
	if err != nil || id.String() != workedID {
		t.Fatalf("ParseID(%q) = %v, %v", workedID, id, err)
	}
	for _, bad := range []string{"", "sha256:", workedID[7:], workedID + "0", workedID[:len(workedID)-1] + "g", strings.Replace(workedID, "sha256", "SHA256", 1)} {
		if _, err := ParseID(bad); err == nil {
			t.Errorf("ParseID(%q) accepted", bad)
		}
	}
}

func TestDurabilityText(t *testing.T) {
	for _, d := range []Durability{Durable, Buffered} {
		got, err := ParseDurability(d.String())
		if err != nil || got != d {
			t.Errorf("ParseDurability(%q) = %v, %v", d.String(), got, err)
		}
	}
	if _, err := ParseDurability("durability(0x02)"); err == nil {
		t.Error("an unknown durability was accepted")
	}
}
