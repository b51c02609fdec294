package segment

import (
	"encoding/binary"
)

// Kind says what an Item is.
type Kind uint8

const (
	// End: the limit is reached, and all before it was accounted for.
	End Kind = iota
	// Record: one record that verifies.
	Record
	// Damage: bytes that were written once and do not verify. Records before and
	// after them are still found.
	Damage
	// Complete: the footer. Nothing follows.
	Complete
	// Tail: from here to the limit nothing verifies: space that was never
	// written, a torn group, or damage that nothing later can bear witness to.
	Tail
)

// Item is what a Scanner found next.
type Item struct {
	Kind   Kind
	Off    int64  // file offset of the first byte concerned
	Len    int64  // bytes concerned
	Index  uint64 // Record: its index; Damage: the first index that is missing
	Lost   uint64 // Damage: how many indexes are missing; may be 0
	Reason string // Damage, in words
	// Durable, with Damage: a later group bears witness that these bytes were on stable storage.
	Durable bool
	// Begun, with Tail: a group of this segment was begun here.
	Begun   bool
	Payload []byte // Record: part of the bytes given to Next
	Time    int64  // Record: append time of its group, Unix nanoseconds
	Footer  Footer // Complete
}

const (
	// searchBytes bounds how far a reader looks for the next record behind a damaged length.
	searchBytes = 1 << 20
	// searchSumBytes bounds the bytes that it checksums while it looks.
	searchSumBytes = 32 << 20
	// searchIndexes bounds how many records it looks past.
	searchIndexes = 256
)

type scanState uint8

const (
	between scanState = iota // at the end of a group
	inGroup                  // in a group whose header verifies
	salvage                  // behind a group header that does not verify, while records do
	resync                   // looking for the next group
)

// Scanner walks the bytes of one segment in order. It does no I/O: its caller
// hands it windows. The zero value is not usable.
type Scanner struct {
	nonce uint64
	seed  uint32
	limit int64

	state scanState
	off   int64  // of the next byte to look at
	next  uint64 // the index that the next record must have

	end  int64 // inGroup: end of the body
	last uint64
	time int64

	from  int64 // resync: where it began
	begun bool
}

// NewScanner starts at off, a group boundary, where the next record has index next. Nothing at
// or past limit is looked at.
func NewScanner(nonce uint64, off int64, next uint64, limit int64) *Scanner {
	return &Scanner{nonce: nonce, seed: seedOf(nonce), off: off, next: next, limit: limit}
}

// Offset is where the bytes given to the next call of Next must begin.
func (s *Scanner) Offset() int64 { return s.off }

// Index is the index that the next record must have.
func (s *Scanner) Index() uint64 { return s.next }

// Limit is where the scan ends.
func (s *Scanner) Limit() int64 { return s.limit }

// SetLimit moves the limit up. Only group boundaries are limits of a file that is being written.
func (s *Scanner) SetLimit(limit int64) { s.limit = max(s.limit, limit) }

// Skip leaves everything before off unseen; the next record there has index next.
func (s *Scanner) Skip(off int64, next uint64) {
	s.off, s.next, s.state = off, next, between
}

// Next looks at b, the bytes at Offset, as many as the caller has. It returns an Item, or the
// number of bytes (more than b has, never past the limit) that it must see.
func (s *Scanner) Next(b []byte) (Item, int) {
	for {
		if room := max(0, s.limit-s.off); int64(len(b)) > room { // a file may end within its header
			b = b[:room]
		}
		at := s.off
		var it Item
		var need int64
		var done bool
		switch s.state {
		case between:
			it, need, done = s.between(b)
		case inGroup:
			it, need, done = s.inGroup(b)
		case salvage:
			it, need, done = s.salvage(b)
		case resync:
			it, need, done = s.resync(b)
		}
		if need > 0 {
			return Item{}, int(need)
		}
		if done {
			return it, 0
		}
		b = b[min(int64(len(b)), s.off-at):]
	}
}

// Run takes whole records off the front of b, the bytes at Offset, as long as they stand in the group that the scan is in and verify: at
// most maxRecords, of at most maxBytes payload bytes in all. It returns how many, and how many bytes of b they are, from which NextPayload
// gets them one by one; the first has the index that Index returned before. None means that Next has to say what comes, or that the first is over maxBytes.
func (s *Scanner) Run(b []byte, maxRecords, maxBytes int) (records int, size int64) {
	if s.state != inGroup {
		return 0, 0
	}
	for records < maxRecords && s.next <= s.last {
		rest, room := b[size:], s.end-s.off
		if room <= recordOverhead || len(rest) < recordOverhead {
			break
		}
		n, ok := parseRecordLength(rest, room)
		if !ok || n > int64(maxBytes) || int64(len(rest)) < recordOverhead+n || !s.verifies(rest[:recordOverhead+n], s.next) {
			break
		}
		records++
		maxBytes -= int(n)
		size += recordOverhead + n
		s.off += recordOverhead + n
		s.next++
	}
	return records, size
}

// Time is the append time of the group that the scan is in, Unix nanoseconds.
func (s *Scanner) Time() int64 { return s.time }

// NextPayload returns the payload of the first record of a run, and what is behind it.
func NextPayload(run []byte) (payload, rest []byte) {
	end := recordOverhead + int(binary.LittleEndian.Uint32(run))
	return run[recordOverhead:end:end], run[end:]
}

// Each step returns an item (done), or how many bytes it needs, or neither when
// it moved on without a finding.

func (s *Scanner) between(b []byte) (Item, int64, bool) {
	room := s.limit - s.off
	if room <= 0 {
		return Item{Kind: End, Off: s.off}, 0, true
	}
	gap := SectorUp(s.off) - s.off
	if want := min(room, gap+FooterBytes); int64(len(b)) < want {
		return Item{}, want, false
	}
	starts := []int64{0, gap}
	if gap == 0 {
		starts = starts[:1]
	}
	if it, done, ok := s.following(b, starts, false); ok {
		return it, 0, done
	}
	for _, c := range starts {
		ok, need := s.headless(b, c)
		if need > 0 {
			return Item{}, need, false
		}
		if ok {
			it := Item{Kind: Damage, Off: s.off + c, Len: GroupHeaderBytes, Index: s.next, Reason: "a group header does not verify; its records do"}
			s.off += c + GroupHeaderBytes
			s.state = salvage
			return it, 0, true
		}
	}
	if it, done, ok := s.following(b, starts, true); ok {
		return it, 0, done
	}
	s.begun = false
	for _, c := range starts {
		s.begun = s.begun || s.looksBegun(b, c)
	}
	s.from, s.state = s.off, resync
	s.off += min(align, room)
	return Item{}, 0, false
}

// following goes into the group or to the footer that verifies at one of starts. One that says that records are missing before it counts only
// if missing is set: they may stand behind a header that does not verify.
func (s *Scanner) following(b []byte, starts []int64, missing bool) (it Item, done, ok bool) {
	for _, c := range starts {
		if c >= int64(len(b)) {
			break
		}
		if h, ok := parseGroupHeader(b[c:], s.nonce, s.seed, s.off+c, s.limit); ok && (h.first == s.next || missing && h.first > s.next) {
			it, done = s.enter(h, c)
			return it, done, true
		}
		if f, ok := ParseFooter(b[c:], s.nonce, s.off+c); ok && (f.Records+1 == s.next || missing && f.Records+1 > s.next) {
			it, done = s.complete(f, c)
			return it, done, true
		}
	}
	return Item{}, false, false
}

// enter goes into the group whose header stands c bytes ahead. Where indexes are missing
// before it, that is said first.
func (s *Scanner) enter(h groupHeader, c int64) (Item, bool) {
	it := Item{Kind: Damage, Off: s.off, Len: c, Index: s.next, Lost: h.first - s.next, Reason: "records are missing before a group", Durable: h.durable > s.off}
	s.off += c + GroupHeaderBytes
	s.next, s.last, s.time = h.first, h.last(), h.time
	s.end, s.state = s.off+h.body, inGroup
	return it, it.Lost > 0
}

func (s *Scanner) complete(f Footer, c int64) (Item, bool) {
	if lost := f.Records + 1 - s.next; lost > 0 {
		it := Item{Kind: Damage, Off: s.off, Len: c, Index: s.next, Lost: lost, Reason: "records are missing before the footer", Durable: true}
		s.next = f.Records + 1
		return it, true
	}
	it := Item{Kind: Complete, Off: s.off + c, Len: FooterBytes, Index: s.next, Footer: f}
	s.off, s.limit = s.off+c+FooterBytes, s.off+c+FooterBytes
	return it, true
}

// headless reports whether the next record stands where it would if the group
// header c bytes ahead were merely damaged.
func (s *Scanner) headless(b []byte, c int64) (ok bool, need int64) {
	at := c + GroupHeaderBytes
	if s.off+at+recordOverhead >= s.limit {
		return false, 0
	}
	if int64(len(b)) < at+recordOverhead {
		return false, at + recordOverhead
	}
	n, ok := parseRecordLength(b[at:], s.limit-s.off-at)
	if !ok {
		return false, 0
	}
	if want := at + recordOverhead + n; int64(len(b)) < want {
		return false, want
	}
	return s.verifies(b[at:at+recordOverhead+n], s.next), 0
}

func (s *Scanner) looksBegun(b []byte, c int64) bool {
	if c+16 > int64(len(b)) {
		return false
	}
	return binary.LittleEndian.Uint32(b[c:]) == groupMagic && binary.LittleEndian.Uint64(b[c+8:]) == s.nonce
}

func (s *Scanner) verifies(rec []byte, index uint64) bool {
	return binary.LittleEndian.Uint32(rec[4:]) == recordSum(rec, s.seed)^indexMask(s.seed, index)
}

func (s *Scanner) take(b []byte, n int64) (Item, int64, bool) {
	it := Item{Kind: Record, Off: s.off, Len: recordOverhead + n, Index: s.next, Payload: b[recordOverhead : recordOverhead+n], Time: s.time}
	s.off += recordOverhead + n
	s.next++
	return it, 0, true
}

func (s *Scanner) inGroup(b []byte) (Item, int64, bool) {
	room := s.end - s.off
	if s.next > s.last || room <= recordOverhead {
		return s.leave(room)
	}
	if int64(len(b)) < recordOverhead {
		return Item{}, recordOverhead, false
	}
	n, ok := parseRecordLength(b, room)
	if ok {
		if int64(len(b)) < recordOverhead+n {
			return Item{}, recordOverhead + n, false
		}
		if s.verifies(b[:recordOverhead+n], s.next) {
			return s.take(b, n)
		}
	}
	return s.bad(b, n, ok, room)
}

// leave ends a group; what it announced and did not hold is missing.
func (s *Scanner) leave(room int64) (Item, int64, bool) {
	it := Item{Kind: Damage, Off: s.off, Len: room, Index: s.next, Lost: s.last + 1 - s.next, Reason: "the end of a group does not verify"}
	s.next = s.last + 1
	s.off, s.state = min(alignUp(s.end, align), s.limit), between
	return it, 0, it.Lost > 0 || room > 0
}

// bad passes a record that does not verify, at the least loss that can be proved.
func (s *Scanner) bad(b []byte, n int64, lengthOK bool, room int64) (Item, int64, bool) {
	if lengthOK {
		after := recordOverhead + n
		ok, need := s.follows(b, after, s.next+1, room)
		if need > 0 {
			return Item{}, need, false
		}
		if ok {
			return s.pass(after, 1, "a record does not verify")
		}
	}
	if want := min(room, searchBytes); int64(len(b)) < want {
		return Item{}, want, false
	}
	if at, index := s.search(b, room); at > 0 {
		return s.pass(at, index-s.next, "a record's length or several records do not verify")
	}
	it := Item{Kind: Damage, Off: s.off, Len: room, Index: s.next, Lost: s.last + 1 - s.next, Reason: "the rest of a group does not verify"}
	s.next = s.last + 1
	s.off, s.state = min(alignUp(s.end, align), s.limit), between
	return it, 0, true
}

func (s *Scanner) pass(n int64, lost uint64, reason string) (Item, int64, bool) {
	it := Item{Kind: Damage, Off: s.off, Len: n, Index: s.next, Lost: lost, Reason: reason}
	s.off += n
	s.next += lost
	return it, 0, true
}

// follows reports whether what stands at bytes into the rest of the group is what must
// follow: the record with this index, or the end of the group.
func (s *Scanner) follows(b []byte, at int64, index uint64, room int64) (ok bool, need int64) {
	if at == room {
		return index == s.last+1, 0
	}
	if index > s.last || room-at <= recordOverhead {
		return false, 0
	}
	if int64(len(b)) < at+recordOverhead {
		return false, at + recordOverhead
	}
	n, ok := parseRecordLength(b[at:], room-at)
	if !ok {
		return false, 0
	}
	if want := at + recordOverhead + n; int64(len(b)) < want {
		return false, want
	}
	return s.verifies(b[at:at+recordOverhead+n], index), 0
}

// search looks for the nearest record that verifies and is followed by what must follow it,
// so that a chance match of one checksum convinces nobody.
func (s *Scanner) search(b []byte, room int64) (at int64, index uint64) {
	budget := int64(searchSumBytes)
	for at = 1; at+recordOverhead < min(int64(len(b)), searchBytes) && budget > 0; at++ {
		n, ok := parseRecordLength(b[at:], room-at)
		if !ok || at+recordOverhead+n > int64(len(b)) {
			continue
		}
		rec := b[at : at+recordOverhead+n]
		budget -= n
		mask := binary.LittleEndian.Uint32(rec[4:]) ^ recordSum(rec, s.seed)
		for index = s.next + 1; index <= min(s.last, s.next+searchIndexes); index++ {
			if indexMask(s.seed, index) != mask {
				continue
			}
			if ok, need := s.follows(b, at+recordOverhead+n, index+1, room); ok && need == 0 {
				return at, index
			}
		}
	}
	return 0, 0
}

func (s *Scanner) salvage(b []byte) (Item, int64, bool) {
	room := s.limit - s.off
	if room > recordOverhead {
		if int64(len(b)) < recordOverhead {
			return Item{}, recordOverhead, false
		}
		if n, ok := parseRecordLength(b, room); ok {
			if int64(len(b)) < recordOverhead+n {
				return Item{}, recordOverhead + n, false
			}
			if s.verifies(b[:recordOverhead+n], s.next) {
				return s.take(b, n)
			}
		}
	}
	s.off, s.state = min(alignUp(s.off, align), s.limit), between
	return Item{}, 0, false
}

func (s *Scanner) resync(b []byte) (Item, int64, bool) {
	at := int64(0)
	whole := s.off+int64(len(b)) >= s.limit
	for ; at+GroupHeaderBytes <= int64(len(b)) && (whole || at+FooterBytes <= int64(len(b))); at += align {
		switch binary.LittleEndian.Uint32(b[at:]) {
		case groupMagic:
			if h, ok := parseGroupHeader(b[at:], s.nonce, s.seed, s.off+at, s.limit); ok && h.first >= s.next {
				return s.found(at, h.first, h.durable > s.from)
			}
		case footerMagic:
			if f, ok := ParseFooter(b[at:], s.nonce, s.off+at); ok && f.Records+1 >= s.next {
				return s.found(at, f.Records+1, true)
			}
		}
	}
	if whole {
		it := Item{Kind: Tail, Off: s.from, Len: s.limit - s.from, Index: s.next, Begun: s.begun}
		s.off, s.state = s.limit, between
		return it, 0, true
	}
	s.off += at
	return Item{}, min(s.limit-s.off, scanBytes), false
}

// scanBytes is the window that a search for the next group asks for.
const scanBytes = 64 << 10

func (s *Scanner) found(at int64, index uint64, durable bool) (Item, int64, bool) {
	it := Item{
		Kind: Damage, Off: s.from, Len: s.off + at - s.from, Index: s.next, Lost: index - s.next,
		Reason: "bytes between two groups do not verify", Durable: durable,
	}
	s.off += at
	s.next, s.state = index, between
	return it, 0, true
}
