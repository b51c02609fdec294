package segment_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
	"testing"

	"github.com/weir-agent/weir/wab/segment"
)

func smallGroups() [][]string {
	return [][]string{
		{"one"},
		{"two", "three", strings.Repeat("4", 40)},
		{strings.Repeat("five", 30), "6"},
		{"7", "8", "9", "10", "11"},
		{"twelve"},
	}
}

func TestGolden(t *testing.T) {
	golden(t, "header.bin", segment.AppendHeader(nil, testHeader(testNonce)))
	var g segment.Group
	g.Reset(testNonce, 5)
	g.Add([]byte("first"))
	g.Add([]byte{0})
	golden(t, "group.bin", g.Seal(4096, 2048, testTime))
	foot := segment.Footer{Records: 6, End: 4200, First: testTime, Last: testTime + 9, Back: 2, BackRecords: 44}
	golden(t, "footer.bin", segment.AppendFooter(nil, foot, testNonce, 4608))
	golden(t, "segment.bin", write(testNonce, true, smallGroups()...).bytes)
}

func TestHeader(t *testing.T) {
	h := testHeader(testNonce)
	whole := segment.AppendHeader(nil, h)
	if len(whole) != segment.HeaderBytes {
		t.Fatalf("%d bytes, want %d", len(whole), segment.HeaderBytes)
	}
	reseal := func(b []byte) {
		binary.LittleEndian.PutUint32(b[60:], crc32.Checksum(b[:60], crc32.MakeTable(crc32.Castagnoli)))
	}
	for _, test := range []struct {
		name    string
		change  func(b []byte) []byte
		damaged bool
		err     error
	}{
		{"whole", func(b []byte) []byte { return b }, false, nil},
		{"first copy lost", func(b []byte) []byte { clear(b[:512]); return b }, true, nil},
		{"second copy lost", func(b []byte) []byte { clear(b[512:]); return b }, true, nil},
		{"both lost", func(b []byte) []byte { clear(b); return b }, true, segment.ErrHeader},
		{"cut in the second copy", func(b []byte) []byte { return b[:560] }, true, nil},
		{"cut in the first copy", func(b []byte) []byte { return b[:63] }, true, segment.ErrHeader},
		{"empty", func([]byte) []byte { return nil }, true, segment.ErrHeader},
		{"newer version", func(b []byte) []byte { b[8] = 2; reseal(b); return b }, false, segment.ErrVersion},
		{"newer version in the second copy", func(b []byte) []byte { b[520] = 2; reseal(b[512:]); return b }, false, segment.ErrVersion},
		{"no nonce", func(b []byte) []byte { clear(b[32:40]); reseal(b); return b }, true, nil},
		{"no number", func(b []byte) []byte { clear(b[16:24]); reseal(b); clear(b[512:]); return b }, true, segment.ErrHeader},
		{"shard out of bounds", func(b []byte) []byte { b[14] = 1; reseal(b); clear(b[512:]); return b }, true, segment.ErrHeader},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, damaged, err := segment.ParseHeader(test.change(bytes.Clone(whole)))
			if !errors.Is(err, test.err) || damaged != test.damaged {
				t.Fatalf("got damaged %v, error %v, want %v, %v", damaged, err, test.damaged, test.err)
			}
			if err == nil && got != h {
				t.Errorf("got %+v, want %+v", got, h)
			}
		})
	}
}

func TestFooter(t *testing.T) {
	f := segment.Footer{Records: 12, End: 4000, First: 1, Last: 2, Back: 3, BackRecords: 4}
	whole := segment.AppendFooter(nil, f, testNonce, 4096)
	for _, test := range []struct {
		name  string
		b     []byte
		nonce uint64
		off   int64
		ok    bool
	}{
		{"whole", whole, testNonce, 4096, true},
		{"at another place", whole, testNonce, 4608, false},
		{"of another use of the file", whole, testNonce + 1, 4096, false},
		{"cut", whole[:63], testNonce, 4096, false},
		{"zeros", make([]byte, 64), testNonce, 4096, false},
		{"its end behind itself", segment.AppendFooter(nil, segment.Footer{Records: 1, End: 5000}, testNonce, 4096), testNonce, 4096, false},
		{"its end in the header", segment.AppendFooter(nil, segment.Footer{Records: 1, End: 100}, testNonce, 4096), testNonce, 4096, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, ok := segment.ParseFooter(test.b, test.nonce, test.off)
			if ok != test.ok || ok && got != f {
				t.Errorf("got %+v, %v, want %v", got, ok, test.ok)
			}
		})
	}
	for bit := range 8 * len(whole) {
		b := bytes.Clone(whole)
		b[bit/8] ^= 1 << (bit % 8)
		if _, ok := segment.ParseFooter(b, testNonce, 4096); ok {
			t.Errorf("bit %d is flipped, and the footer verifies", bit)
		}
	}
}

func TestScanReadsWhatWasWritten(t *testing.T) {
	for _, footer := range []bool{false, true} {
		w := write(testNonce, footer, smallGroups()...)
		items := scan(t, w.bytes, testNonce)
		if missing := w.hold(t, items); len(missing) > 0 || told(items) > 0 {
			t.Errorf("footer %v: records %v are missing, %d are said to be", footer, missing, told(items))
		}
		last := items[len(items)-1]
		if want := map[bool]segment.Kind{false: segment.End, true: segment.Complete}[footer]; last.Kind != want {
			t.Errorf("footer %v: the last item is %+v", footer, last)
		}
		for _, it := range items {
			if it.Kind == segment.Record && it.Time != testTime+int64(w.group[it.Index-1]) {
				t.Errorf("record %d: append time %d of group %d", it.Index, it.Time, w.group[it.Index-1])
			}
		}
	}
}

// TestEveryFlippedBit flips each bit behind the header in turn.
func TestEveryFlippedBit(t *testing.T) {
	for _, footer := range []bool{false, true} {
		w := write(testNonce, footer, smallGroups()...)
		most := 0
		for bit := 8 * segment.HeaderBytes; bit < 8*len(w.bytes); bit++ {
			b := bytes.Clone(w.bytes)
			b[bit/8] ^= 1 << (bit % 8)
			items := scan(t, b, testNonce)
			missing := w.hold(t, items)
			most = max(most, len(missing))
			if !w.oneGroup(missing) {
				t.Fatalf("footer %v, bit %d of byte %d: records %v are missing: of more than one group", footer, bit%8, bit/8, missing)
			}
			if tail := items[len(items)-1].Kind == segment.Tail; !tail && told(items) != uint64(len(missing)) {
				t.Fatalf("footer %v, bit %d of byte %d: records %v are missing, the scan says %d", footer, bit%8, bit/8, missing, told(items))
			}
		}
		if most > 1 {
			t.Errorf("footer %v: one flipped bit has cost %d records, want at most 1", footer, most)
		}
	}
}

func TestEveryZeroedSector(t *testing.T) {
	groups := smallGroups()
	for i := range 12 {
		groups = append(groups, []string{strings.Repeat(fmt.Sprint(i), 100+90*i), "small", strings.Repeat("x", 300)})
	}
	w := write(testNonce, true, groups...)
	for at := segment.HeaderBytes; at < len(w.bytes); at += segment.SectorBytes {
		b := bytes.Clone(w.bytes)
		clear(b[at:min(len(b), at+segment.SectorBytes)])
		items := scan(t, b, testNonce)
		missing := w.hold(t, items)
		for _, i := range missing {
			// A record may only be missing where its group has a byte in the sector.
			if from, to := w.place(w.group[i-1]); to <= int64(at) || from >= int64(at+segment.SectorBytes) {
				t.Errorf("the sector at %d is zero, and record %d of the group at %d..%d is missing", at, i, from, to)
			}
		}
		if items[len(items)-1].Kind == segment.Complete && told(items) != uint64(len(missing)) {
			t.Errorf("the sector at %d is zero: %d records are missing, the scan says %d", at, len(missing), told(items))
		}
	}
}

// place returns where group i is, found by its header.
func (w wrote) place(i int) (from, to int64) {
	at := int64(segment.HeaderBytes)
	for n := 0; ; n++ {
		if n%2 == 0 {
			at = segment.SectorUp(at)
		}
		body := int64(binary.LittleEndian.Uint32(w.bytes[at+48:]))
		end := (at + segment.GroupHeaderBytes + body + 7) / 8 * 8
		if n == i {
			return at, end
		}
		at = end
	}
}

func TestCutAnywhere(t *testing.T) {
	w := write(testNonce, true, smallGroups()...)
	for n := range w.bytes {
		missing := w.hold(t, scan(t, w.bytes[:n], testNonce))
		whole := 0
		for i := range w.records {
			if _, to := w.place(w.group[i]); to <= int64(n) {
				whole = i + 1
			}
		}
		if len(missing) > 0 && int(missing[0]) <= whole {
			t.Fatalf("cut at %d: record %d is missing, its group is whole", n, missing[0])
		}
	}
}

// TestStaleBytesNeverParse lays a short segment over a full one of an earlier use of the file, at every length.
func TestStaleBytesNeverParse(t *testing.T) {
	old := write(testNonce+1, true, append(smallGroups(), smallGroups()...)...)
	groups := smallGroups()
	for n := range len(groups) + 1 {
		w := write(testNonce, false, groups[:n]...)
		b := bytes.Clone(old.bytes)
		copy(b, w.bytes)
		items := scan(t, b, testNonce)
		if missing := w.hold(t, items); len(missing) > 0 || told(items) > 0 {
			t.Errorf("%d groups: records %v are missing", n, missing)
		}
		if last := items[len(items)-1]; last.Kind != segment.Tail || last.Begun {
			t.Errorf("%d groups: the end is %+v, want a tail that was not begun", n, last)
		}
	}
}

// TestStaleRecordsOfEveryLength has stale groups with one record right behind a new header, where the first group would be: also a record whose
// group header is of another segment must not verify.
func TestStaleRecordsOfEveryLength(t *testing.T) {
	for n := 1; n < 200; n++ {
		b := write(testNonce+uint64(n), true, []string{strings.Repeat("s", n)}).bytes
		copy(b, segment.AppendHeader(nil, testHeader(testNonce)))
		for _, it := range scan(t, b, testNonce) {
			if it.Kind == segment.Record {
				t.Errorf("a stale record of %d bytes is read", n)
			}
		}
	}
}

// TestPayloadThatLooksLikeAGroup stores the bytes of whole groups and footers as payloads, and damages what is around them.
func TestPayloadThatLooksLikeAGroup(t *testing.T) {
	var g segment.Group
	g.Reset(testNonce+1, 2)
	g.Add([]byte("a record of another segment"))
	inner := string(g.Seal(segment.HeaderBytes+segment.GroupHeaderBytes+8, segment.HeaderBytes, testTime))
	foot := string(segment.AppendFooter(nil, segment.Footer{Records: 9, End: segment.HeaderBytes}, testNonce+1, 1096))
	w := write(testNonce, true, []string{inner, "a", foot}, []string{"b"}, []string{inner + foot, inner})
	for bit := 8 * segment.HeaderBytes; bit < 8*len(w.bytes); bit++ {
		b := bytes.Clone(w.bytes)
		b[bit/8] ^= 1 << (bit % 8)
		if missing := w.hold(t, scan(t, b, testNonce)); len(missing) > 1 {
			t.Fatalf("bit %d: records %v are missing", bit, missing)
		}
	}
}

func TestRebindEqualsAFreshGroup(t *testing.T) {
	payloads := []string{"a", strings.Repeat("b", 5000), "c"}
	var moved, fresh segment.Group
	moved.Reset(testNonce, 44)
	fresh.Reset(testNonce+5, 1)
	for _, p := range payloads {
		moved.Add([]byte(p))
		fresh.Add([]byte(p))
	}
	moved.Rebind(testNonce+5, 1)
	if got, want := moved.Seal(1024, 1024, 9), fresh.Seal(1024, 1024, 9); !bytes.Equal(got, want) {
		t.Error("a group that moved to another segment differs from one that was made for it")
	}
	if moved.Count() != 3 || moved.First() != 1 {
		t.Errorf("got %d records from %d", moved.Count(), moved.First())
	}
}

func TestFindNonce(t *testing.T) {
	w := write(testNonce, true, smallGroups()...)
	size := int64(len(w.bytes))
	firstGroup := w.bytes[segment.HeaderBytes : segment.HeaderBytes+segment.GroupHeaderBytes]
	end := w.bytes[size-segment.FooterBytes:]
	damaged := bytes.Clone(end)
	damaged[63] ^= 1
	for _, test := range []struct {
		name       string
		group, end []byte
		ok         bool
	}{
		{"footer", nil, end, true},
		{"first group", firstGroup, nil, true},
		{"footer damaged", firstGroup, damaged, true},
		{"nothing", nil, nil, false},
		{"zeros", make([]byte, 56), make([]byte, 64), false},
	} {
		nonce, ok := segment.FindNonce(test.group, test.end, size)
		if ok != test.ok || ok && nonce != testNonce {
			t.Errorf("%s: got %#x, %v, want %v", test.name, nonce, ok, test.ok)
		}
	}
}

func TestSearchNonce(t *testing.T) {
	h := testHeader(0)
	nonce := segment.MakeNonce(99, h.Instance, h.Number)
	w := write(nonce, true, smallGroups()...)
	size := int64(len(w.bytes))
	for _, test := range []struct {
		name             string
		from, to         int64
		instance, number uint64
		ok               bool
	}{
		{"whole", segment.HeaderBytes, size, h.Instance, h.Number, true},
		{"only the last group", 2048, 2120, h.Instance, h.Number, true},
		{"only the footer", size - segment.FooterBytes, size, h.Instance, h.Number, true},
		{"between two groups", 1224, 1536, h.Instance, h.Number, false},
		{"cut in the footer", size - segment.FooterBytes, size - 1, h.Instance, h.Number, false},
		{"nothing", size, size, h.Instance, h.Number, false},
		{"of an earlier use", segment.HeaderBytes, size, h.Instance, h.Number + 1, false},
		{"of another folder", segment.HeaderBytes, size, h.Instance + 1, h.Number, false},
	} {
		got, ok := segment.SearchNonce(w.bytes[test.from:test.to], test.from, size, test.instance, test.number)
		if ok != test.ok || ok && got != nonce {
			t.Errorf("%s: got %#x, %v, want %v", test.name, got, ok, test.ok)
		}
	}
	seen := map[uint64]bool{}
	for random := range uint64(1000) {
		n := segment.MakeNonce(2*random, 0, 0)
		if n == 0 || seen[n] {
			t.Fatalf("nonce %#x is zero or there twice", n)
		}
		seen[n] = true
	}
}
