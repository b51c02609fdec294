package segment

import "encoding/binary"

// Salvage returns the stretches of damaged bytes that have the form of records: a possible length and as many bytes behind
// the checksum, or the rest where the length is impossible. b begins where the damage does, at a record or at a group. Nothing vouches for the contents. The results are parts of b.
func Salvage(b []byte) [][]byte {
	if len(b) >= GroupHeaderBytes && binary.LittleEndian.Uint32(b) == groupMagic {
		b = b[GroupHeaderBytes:]
	}
	var out [][]byte
	for len(b) > recordOverhead {
		n, ok := parseRecordLength(b, int64(len(b)))
		if !ok { // the length is what is damaged: the rest may be the payload
			return append(out, b[recordOverhead:])
		}
		out = append(out, b[recordOverhead:recordOverhead+n])
		b = b[recordOverhead+n:]
	}
	return out
}
