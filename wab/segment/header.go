// Package segment is the on-disk format of a segment file: slices in, slices
// out, no I/O. The byte diagrams and the reasons are in wab/README.md.
//
//	segment  = header, { gap, group }, [ gap, footer ], rest
//	header   = 2 equal copies of 512 bytes, so that one bad sector loses neither
//	group    = group header (56), records, padding to 8 bytes
//	record   = length u32, checksum u32, payload
//	footer   = 64 bytes; its presence says that the segment is complete
//	gap      = nothing, or what is left of a 512-byte sector
//	rest     = zeros, or what a recycled file held before; never parses
//
// All numbers are little-endian. A zero length, count or magic is invalid.
package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
)

const (
	// Version is the format version that this package writes and the newest that it reads.
	Version = 1
	// SectorBytes is the unit that a disk writes whole or not at all; see
	// the assumptions in wab/README.md.
	SectorBytes = 512
	// HeaderBytes is the space of the two copies of the header; groups begin behind it.
	HeaderBytes = 2 * SectorBytes

	align          = 8
	headerUsed     = 64
	headerMagic    = "weir-seg"
	maxShards      = 1 << 16
	groupMagic     = 0x70726757 // "Wgrp"
	footerMagic    = 0x646e6557 // "Wend"
	recordOverhead = 8
)

var (
	// ErrVersion is returned for a segment that a newer weir wrote.
	ErrVersion = errors.New("segment: written in a newer format version")
	// ErrHeader is returned where neither copy of a header verifies.
	ErrHeader = errors.New("segment: no copy of the header verifies")
)

// Header opens a segment.
type Header struct {
	Instance uint64 // of the data folder
	Shard    uint32 // below 65,536
	Number   uint64 // of the segment in its shard, from 1
	Nonce    uint64 // not 0, of this use of the file, see MakeNonce; in the seed of each checksum behind it
	Created  int64  // Unix time in nanoseconds
}

// AppendHeader appends both copies, HeaderBytes in all.
func AppendHeader(dst []byte, h Header) []byte {
	var b [SectorBytes]byte
	copy(b[:], headerMagic)
	binary.LittleEndian.PutUint16(b[8:], Version)
	binary.LittleEndian.PutUint32(b[12:], h.Shard)
	binary.LittleEndian.PutUint64(b[16:], h.Number)
	binary.LittleEndian.PutUint64(b[24:], h.Instance)
	binary.LittleEndian.PutUint64(b[32:], h.Nonce)
	binary.LittleEndian.PutUint64(b[40:], uint64(h.Created))
	binary.LittleEndian.PutUint32(b[headerUsed-4:], checksum(0, b[:headerUsed-4]))
	dst = append(dst, b[:]...)
	return append(dst, b[:]...)
}

// ParseHeader reads the first HeaderBytes of a segment. One good copy is enough;
// damaged tells that the other one does not verify. The errors wrap ErrVersion or ErrHeader.
func ParseHeader(b []byte) (h Header, damaged bool, err error) {
	bad := 0
	for i := range 2 {
		from := i * SectorBytes
		if len(b) < from+headerUsed {
			bad++
			continue
		}
		c, e := parseHeaderCopy(b[from : from+headerUsed])
		switch {
		case errors.Is(e, ErrVersion):
			return Header{}, false, e
		case e != nil:
			bad++
		default:
			h = c
		}
	}
	if bad == 2 {
		return Header{}, true, ErrHeader
	}
	return h, bad > 0, nil
}

func parseHeaderCopy(b []byte) (Header, error) {
	if string(b[:8]) != headerMagic || binary.LittleEndian.Uint32(b[headerUsed-4:]) != checksum(0, b[:headerUsed-4]) {
		return Header{}, ErrHeader
	}
	if v := binary.LittleEndian.Uint16(b[8:]); v != Version {
		return Header{}, fmt.Errorf("%w: %d, this weir reads up to %d: run the newer weir to drain it", ErrVersion, v, Version)
	}
	h := Header{
		Shard:    binary.LittleEndian.Uint32(b[12:]),
		Number:   binary.LittleEndian.Uint64(b[16:]),
		Instance: binary.LittleEndian.Uint64(b[24:]),
		Nonce:    binary.LittleEndian.Uint64(b[32:]),
		Created:  int64(binary.LittleEndian.Uint64(b[40:])),
	}
	if h.Nonce == 0 || h.Number == 0 || h.Shard >= maxShards {
		return Header{}, ErrHeader
	}
	return h, nil
}

func alignUp(n, to int64) int64 { return (n + to - 1) / to * to }

// SectorUp returns the first sector boundary at or after off.
func SectorUp(off int64) int64 { return alignUp(off, SectorBytes) }

// MakeNonce returns the nonce of the use of a file as this segment: its upper half is random, its lower half says what it belongs to, so
// that a nonce of an earlier use that still stands in the file is told from it.
func MakeNonce(random, instance, number uint64) uint64 {
	var b [20]byte
	upper := uint32(random) | 1
	binary.LittleEndian.PutUint32(b[0:], upper)
	binary.LittleEndian.PutUint64(b[4:], instance)
	binary.LittleEndian.PutUint64(b[12:], number)
	return uint64(upper)<<32 | uint64(checksum(0, b[:]))
}

// FindNonce looks for the nonce of a segment whose header is lost, in a file that had no earlier use: in a footer at the end
// of the file, or in the first group. A nonce counts only where the checksum it seeds verifies.
func FindNonce(firstGroup, end []byte, size int64) (uint64, bool) {
	if len(end) >= FooterBytes {
		b := end[len(end)-FooterBytes:]
		nonce := binary.LittleEndian.Uint64(b[8:])
		if _, ok := ParseFooter(b, nonce, size-FooterBytes); ok && nonce != 0 {
			return nonce, true
		}
	}
	if len(firstGroup) >= GroupHeaderBytes {
		nonce := binary.LittleEndian.Uint64(firstGroup[8:])
		if _, ok := parseGroupHeader(firstGroup, nonce, seedOf(nonce), HeaderBytes, size); ok && nonce != 0 {
			return nonce, true
		}
	}
	return 0, false
}

// SearchNonce looks for the nonce of a segment whose header is lost in b, the bytes at off, a multiple of 8, of a file of size bytes: in a group
// header or a footer. A nonce counts only where it belongs to the segment and the checksum that it seeds verifies.
func SearchNonce(b []byte, off, size int64, instance, number uint64) (uint64, bool) {
	for at := 0; at+GroupHeaderBytes <= len(b); at += align {
		magic := binary.LittleEndian.Uint32(b[at:])
		if magic != groupMagic && magic != footerMagic {
			continue
		}
		nonce := binary.LittleEndian.Uint64(b[at+8:])
		if nonce != MakeNonce(nonce>>32, instance, number) {
			continue
		}
		if _, ok := parseGroupHeader(b[at:], nonce, seedOf(nonce), off+int64(at), size); ok {
			return nonce, true
		}
		if _, ok := ParseFooter(b[at:], nonce, off+int64(at)); ok {
			return nonce, true
		}
	}
	return 0, false
}
