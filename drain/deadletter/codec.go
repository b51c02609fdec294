package deadletter

import (
	"encoding/binary"
	"errors"
	"math"
	"time"

	"github.com/weir-agent/weir/wab/record"
)

// An entry is the payload of one record of the segment format. All numbers are little-endian.
//
//	letter        part          marks
//	 0  1  1       0  1  2       0  1  3
//	 1  1  flags   1 32  id      1  1  what: 1 gone, 2 requeued
//	 2 32  id     33  4  offset  2 32  id, for each letter
//	34  4  shard  37 ..  bytes
//	38  8  index
//	46  4  status
//	50  4  attempts
//	54  8  appended, Unix nanoseconds
//	62  8  died, Unix nanoseconds
//	70  4  payload bytes in all
//	74  1  bytes of the segment's address, then these
//	 .  2  bytes of the reason, then these
//	 .  .  the payload, or its first inlineBytes
//
// The rest of a payload that is longer follows in parts, in the same group. A letter is whole or it is none.
const (
	kindLetter byte = 1
	kindPart   byte = 2
	kindMarks  byte = 3

	flagRequeued byte = 1

	markGone     byte = 1
	markRequeued byte = 2

	letterFixed = 75
	partFixed   = 37
	marksFixed  = 2

	// inlineBytes is how much payload one entry holds, so that an entry stays under record.MaxBytes.
	inlineBytes = 8 << 20
	// maxMarkIDs bounds the ids of one entry.
	maxMarkIDs = 4096
	// maxReasonBytes bounds Letter.Reason; longer ones are cut.
	maxReasonBytes = 1024
)

var errEntry = errors.New("not an entry of a dead-letter file")

// appendLetter appends the first entry of l.
func appendLetter(b []byte, l *Letter) []byte {
	flags := byte(0)
	if l.Requeued {
		flags |= flagRequeued
	}
	b = append(b, kindLetter, flags)
	b = append(b, l.ID[:]...)
	b = binary.LittleEndian.AppendUint32(b, uint32(int32(l.Shard)))
	b = binary.LittleEndian.AppendUint64(b, l.Index)
	b = binary.LittleEndian.AppendUint32(b, uint32(int32(l.Status)))
	b = binary.LittleEndian.AppendUint32(b, uint32(min(max(l.Attempts, 0), math.MaxUint32)))
	b = binary.LittleEndian.AppendUint64(b, uint64(l.Appended.UnixNano()))
	b = binary.LittleEndian.AppendUint64(b, uint64(l.Died.UnixNano()))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(l.Payload)))
	b = append(b, byte(len(l.Segment)))
	b = append(b, l.Segment...)
	reason := l.Reason[:min(len(l.Reason), maxReasonBytes)]
	b = binary.LittleEndian.AppendUint16(b, uint16(len(reason)))
	b = append(b, reason...)
	return append(b, l.Payload[:min(len(l.Payload), inlineBytes)]...)
}

// parseLetter reads a letter's first entry. Payload holds what of it is there, and is part of b;
// total is how long it has to become.
func parseLetter(b []byte) (l Letter, total int, err error) {
	if len(b) < letterFixed || b[0] != kindLetter {
		return Letter{}, 0, errEntry
	}
	l.Requeued = b[1]&flagRequeued != 0
	l.ID = record.ID(b[2:34])
	l.Shard = int(int32(binary.LittleEndian.Uint32(b[34:])))
	l.Index = binary.LittleEndian.Uint64(b[38:])
	l.Status = int(int32(binary.LittleEndian.Uint32(b[46:])))
	l.Attempts = int(binary.LittleEndian.Uint32(b[50:]))
	l.Appended = time.Unix(0, int64(binary.LittleEndian.Uint64(b[54:])))
	l.Died = time.Unix(0, int64(binary.LittleEndian.Uint64(b[62:])))
	total = int(binary.LittleEndian.Uint32(b[70:]))
	n := int(b[74])
	b = b[letterFixed:]
	if len(b) < n+2 {
		return Letter{}, 0, errEntry
	}
	l.Segment = string(b[:n])
	b = b[n:]
	n = int(binary.LittleEndian.Uint16(b))
	if b = b[2:]; len(b) < n {
		return Letter{}, 0, errEntry
	}
	l.Reason = string(b[:n])
	l.Payload = b[n:]
	if total < 1 || total > record.MaxBytes || len(l.Payload) != min(total, inlineBytes) {
		return Letter{}, 0, errEntry
	}
	return l, total, nil
}

// appendPart appends the entry that continues the payload of l at off.
func appendPart(b []byte, l *Letter, off int) []byte {
	b = append(b, kindPart)
	b = append(b, l.ID[:]...)
	b = binary.LittleEndian.AppendUint32(b, uint32(off))
	return append(b, l.Payload[off:min(len(l.Payload), off+inlineBytes)]...)
}

func parsePart(b []byte) (id record.ID, off int, bytes []byte, err error) {
	if len(b) <= partFixed || b[0] != kindPart {
		return record.ID{}, 0, nil, errEntry
	}
	return record.ID(b[1:33]), int(binary.LittleEndian.Uint32(b[33:])), b[partFixed:], nil
}

func appendMarks(b []byte, what byte, ids []record.ID) []byte {
	b = append(b, kindMarks, what)
	for i := range ids {
		b = append(b, ids[i][:]...)
	}
	return b
}

// parseMarks returns the ids, 32 bytes each, as part of b.
func parseMarks(b []byte) (what byte, ids []byte, err error) {
	if len(b) <= marksFixed || b[0] != kindMarks || (len(b)-marksFixed)%len(record.ID{}) != 0 || b[1] != markGone && b[1] != markRequeued {
		return 0, nil, errEntry
	}
	return b[1], b[marksFixed:], nil
}
