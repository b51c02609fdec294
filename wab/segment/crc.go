package segment

import (
	"encoding/binary"
	"hash/crc32"
)

// The checksum of the format is CRC-32C (Castagnoli), which the processor
// computes. It is not the checksum of the wire.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum returns the CRC-32C of b continued from seed.
func checksum(seed uint32, b []byte) uint32 { return crc32.Update(seed, castagnoli, b) }

// seedOf returns the seed that ties checksums to one segment.
func seedOf(nonce uint64) uint32 {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], nonce)
	return checksum(0, b[:])
}

// indexMask ties a record's checksum to its segment and its index. It is
// combined by exclusive or, so that a reader that lost its place can tell the index from
// a record that verifies. It must not be linear as the checksum is: two checksums with one seed
// over the same number of bytes, combined by exclusive or, do not depend on the seed.
func indexMask(seed uint32, index uint64) uint32 {
	x := index ^ uint64(seed)<<32 ^ uint64(seed)*0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return uint32(x ^ x>>31)
}
