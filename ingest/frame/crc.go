package frame

import "github.com/klauspost/crc32"

// checksum returns the CRC-32 of weir wire v1 ("CRC32 algorithm"): the IEEE
// polynomial, as zlib, PNG and Ethernet use it. Of no bytes it is zero.
func checksum(b []byte) uint32 { return crc32.ChecksumIEEE(b) }

// UpdateChecksum continues the CRC-32 of a payload that arrives in parts: start
// with zero, pass each part in order.
func UpdateChecksum(crc uint32, b []byte) uint32 {
	return crc32.Update(crc, crc32.IEEETable, b)
}
