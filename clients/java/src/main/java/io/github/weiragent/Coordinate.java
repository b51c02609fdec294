package io.github.weiragent;

/**
 * Where a record landed: an address, not a receipt of its delivery. Addresses of one producer's records have gaps.
 *
 * @param segment the segment's address, at most 255 bytes of UTF-8, opaque
 * @param index the record's place in the segment, from 1; an unsigned 64-bit number
 * @param id the SHA-256 over the address and the record, 64 hex digits in lower case
 */
public record Coordinate(String segment, long index, String id) {
	/** Returns the key that the sink gets with the record, {@code sha256:} and the id. */
	public String key() {
		return "sha256:" + id;
	}
}
