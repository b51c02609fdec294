package segment

import (
	"encoding/binary"

	"github.com/weir-agent/weir/wab/record"
)

const (
	// GroupHeaderBytes is the size of the header in front of a group's records.
	GroupHeaderBytes = 56
	// FooterBytes is the size of a footer.
	FooterBytes = 64
	// MaxGroupBytes bounds a group with its header, for the writer and for each reader.
	MaxGroupBytes = 64 << 20
)

// RecordBytes is the space that a payload of n bytes takes in a group.
func RecordBytes(n int) int64 { return recordOverhead + int64(n) }

// Group gathers the records of one group commit in their final form.
// The zero value must be Reset before use.
type Group struct {
	buf   []byte
	nonce uint64
	seed  uint32
	first uint64
	count int
}

// Reset empties g and ties it to the segment with nonce; its first record gets index first.
// The buffer is kept.
func (g *Group) Reset(nonce, first uint64) {
	if cap(g.buf) < GroupHeaderBytes {
		g.buf = make([]byte, GroupHeaderBytes, 4096)
	}
	g.buf = g.buf[:GroupHeaderBytes]
	g.nonce, g.seed, g.first, g.count = nonce, seedOf(nonce), first, 0
}

// Add copies payload, of 1 to record.MaxBytes bytes, into the group. The caller keeps
// Bytes within MaxGroupBytes.
func (g *Group) Add(payload []byte) {
	at := len(g.buf)
	g.buf = binary.LittleEndian.AppendUint32(g.buf, uint32(len(payload)))
	g.buf = append(g.buf, 0, 0, 0, 0)
	g.buf = append(g.buf, payload...)
	sum := recordSum(g.buf[at:], g.seed) ^ indexMask(g.seed, g.first+uint64(g.count))
	binary.LittleEndian.PutUint32(g.buf[at+4:], sum)
	g.count++
}

// Rebind ties the records that g holds to another segment and first index.
func (g *Group) Rebind(nonce, first uint64) {
	g.nonce, g.seed, g.first = nonce, seedOf(nonce), first
	at, index := GroupHeaderBytes, first
	for at < len(g.buf) {
		n := recordOverhead + int(binary.LittleEndian.Uint32(g.buf[at:]))
		sum := recordSum(g.buf[at:at+n], g.seed) ^ indexMask(g.seed, index)
		binary.LittleEndian.PutUint32(g.buf[at+4:], sum)
		at += n
		index++
	}
}

// Count is the number of records, First the index of the first one.
func (g *Group) Count() int { return g.count }

// First is the index of the first record.
func (g *Group) First() uint64 { return g.first }

// Bytes is what Seal will return, in bytes.
func (g *Group) Bytes() int64 { return alignUp(int64(len(g.buf)), align) }

// BufferBytes is the memory that g keeps.
func (g *Group) BufferBytes() int { return cap(g.buf) }

// Seal completes the group for writing at offset off, a multiple of 8. Bytes
// of the file below durable are on stable storage. now is Unix time in nanoseconds. The result is
// valid until the next Reset.
func (g *Group) Seal(off, durable, now int64) []byte {
	body := len(g.buf) - GroupHeaderBytes
	out := g.buf
	for len(out)%align != 0 {
		out = append(out, 0)
	}
	g.buf = out[:GroupHeaderBytes+body]
	binary.LittleEndian.PutUint32(out[0:], groupMagic)
	binary.LittleEndian.PutUint64(out[8:], g.nonce)
	binary.LittleEndian.PutUint64(out[16:], uint64(off))
	binary.LittleEndian.PutUint64(out[24:], g.first)
	binary.LittleEndian.PutUint64(out[32:], uint64(durable))
	binary.LittleEndian.PutUint64(out[40:], uint64(now))
	binary.LittleEndian.PutUint32(out[48:], uint32(body))
	binary.LittleEndian.PutUint32(out[52:], uint32(g.count))
	binary.LittleEndian.PutUint32(out[4:], checksum(g.seed, out[8:GroupHeaderBytes]))
	return out
}

// recordSum is the checksum of an encoded record (length, checksum, payload)
// without its index mask: over the length and the payload.
func recordSum(rec []byte, seed uint32) uint32 {
	return checksum(checksum(seed, rec[:4]), rec[recordOverhead:])
}

type groupHeader struct {
	first   uint64
	durable int64
	time    int64
	body    int64
	count   uint64
}

func (h groupHeader) last() uint64 { return h.first + h.count - 1 }

// parseGroupHeader reads a group header that must stand at off, with everything
// that it announces ending at or before limit.
func parseGroupHeader(b []byte, nonce uint64, seed uint32, off, limit int64) (groupHeader, bool) {
	if len(b) < GroupHeaderBytes || binary.LittleEndian.Uint32(b) != groupMagic ||
		binary.LittleEndian.Uint64(b[8:]) != nonce || binary.LittleEndian.Uint64(b[16:]) != uint64(off) ||
		binary.LittleEndian.Uint32(b[4:]) != checksum(seed, b[8:GroupHeaderBytes]) {
		return groupHeader{}, false
	}
	h := groupHeader{
		first:   binary.LittleEndian.Uint64(b[24:]),
		durable: int64(binary.LittleEndian.Uint64(b[32:])),
		time:    int64(binary.LittleEndian.Uint64(b[40:])),
		body:    int64(binary.LittleEndian.Uint32(b[48:])),
		count:   uint64(binary.LittleEndian.Uint32(b[52:])),
	}
	ok := h.first > 0 && h.first < 1<<62 && h.count > 0 && h.durable >= 0 && h.durable <= off &&
		h.body >= int64(h.count)*(recordOverhead+1) && h.body <= MaxGroupBytes-GroupHeaderBytes &&
		off+GroupHeaderBytes+h.body <= limit
	return h, ok
}

// parseRecordLength returns the length that the record at b announces, if it is possible
// in room bytes.
func parseRecordLength(b []byte, room int64) (int64, bool) {
	n := int64(binary.LittleEndian.Uint32(b))
	return n, n >= 1 && n <= record.MaxBytes && recordOverhead+n <= room
}

// Footer closes a segment.
type Footer struct {
	Records uint64 // the index of the last record; 0 for none
	End     int64  // offset behind the last group
	First   int64  // append time of the first group, Unix nanoseconds
	Last    int64  // append time of the last group
	// Back is how much lower the number of the segment with records before this one is, and BackRecords the index of its last record.
	// They bear witness to it should it go missing. 0: none was there, or they do not fit.
	Back, BackRecords uint32
}

// AppendFooter appends the footer that stands at off, a multiple of 8, in the segment with nonce.
func AppendFooter(dst []byte, f Footer, nonce uint64, off int64) []byte {
	var b [FooterBytes]byte
	binary.LittleEndian.PutUint32(b[0:], footerMagic)
	binary.LittleEndian.PutUint64(b[8:], nonce)
	binary.LittleEndian.PutUint64(b[16:], uint64(off))
	binary.LittleEndian.PutUint64(b[24:], f.Records)
	binary.LittleEndian.PutUint64(b[32:], uint64(f.End))
	binary.LittleEndian.PutUint64(b[40:], uint64(f.First))
	binary.LittleEndian.PutUint64(b[48:], uint64(f.Last))
	binary.LittleEndian.PutUint32(b[56:], f.Back)
	binary.LittleEndian.PutUint32(b[60:], f.BackRecords)
	binary.LittleEndian.PutUint32(b[4:], checksum(seedOf(nonce), b[8:]))
	return append(dst, b[:]...)
}

// ParseFooter reads the footer that must stand at off.
func ParseFooter(b []byte, nonce uint64, off int64) (Footer, bool) {
	if len(b) < FooterBytes || binary.LittleEndian.Uint32(b) != footerMagic ||
		binary.LittleEndian.Uint64(b[8:]) != nonce || binary.LittleEndian.Uint64(b[16:]) != uint64(off) ||
		binary.LittleEndian.Uint32(b[4:]) != checksum(seedOf(nonce), b[8:FooterBytes]) {
		return Footer{}, false
	}
	f := Footer{
		Records: binary.LittleEndian.Uint64(b[24:]),
		End:     int64(binary.LittleEndian.Uint64(b[32:])),
		First:   int64(binary.LittleEndian.Uint64(b[40:])),
		Last:    int64(binary.LittleEndian.Uint64(b[48:])),

		Back:        binary.LittleEndian.Uint32(b[56:]),
		BackRecords: binary.LittleEndian.Uint32(b[60:]),
	}
	return f, f.End >= HeaderBytes && f.End <= off && f.Records < 1<<62
}
