package io.github.weiragent;

import java.util.Locale;

/** What a decoder finds wrong with bytes. The names are those of the conformance vectors. */
public enum Verdict {
	/** The buffer ends before the frame. */
	TRUNCATED_FRAME,
	/** The buffer goes on behind the frame. */
	TRAILING_BYTES,
	/** The frame does not begin with WEIR. */
	BAD_MAGIC,
	/** The frame is of another version of the protocol. */
	VERSION_MISMATCH,
	/** The header does not match its CRC. */
	HEADER_CRC_MISMATCH,
	/** The type byte is unassigned. */
	UNKNOWN_MESSAGE_TYPE,
	/** The durability byte is unassigned. */
	UNKNOWN_DURABILITY,
	/** The flags byte is not zero. */
	RESERVED_FLAGS_SET,
	/** The declared length is above its cap. */
	PAYLOAD_TOO_LARGE,
	/** The payload does not match its CRC. */
	PAYLOAD_CRC_MISMATCH,
	/** The payload ends before its fixed part. */
	TRUNCATED,
	/** The payload's layout has another version. */
	UNSUPPORTED_VERSION,
	/** A batch of no records. */
	EMPTY_BATCH,
	/** A batch of more records than are possible. */
	TOO_MANY_RECORDS,
	/** A batch ends within a record. */
	TRUNCATED_RECORD,
	/** A batch has a record of no bytes. */
	EMPTY_RECORD,
	/** A batch has a record above the cap. */
	RECORD_TOO_LARGE,
	/** The length or count is not what it has to be. */
	LENGTH_MISMATCH,
	/** A bit behind the last record's is set. */
	PADDING_NOT_ZERO,
	/** The declared length of a segment's name is above its cap. */
	SEGMENT_TOO_LONG,
	/** The name of a segment is not UTF-8. */
	SEGMENT_NOT_UTF8,
	/** The frame is valid, and no answer to what was asked. */
	UNEXPECTED_REPLY;

	/** Returns the name that the conformance vectors use, like BadMagic. */
	@Override
	public String toString() {
		return wireName(name());
	}

	/** Turns BAD_MAGIC into BadMagic. */
	static String wireName(String constant) {
		StringBuilder out = new StringBuilder();
		for (String word : constant.split("_")) {
			out.append(word.charAt(0)).append(word.substring(1).toLowerCase(Locale.ROOT));
		}
		return out.toString();
	}
}
