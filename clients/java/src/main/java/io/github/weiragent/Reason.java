package io.github.weiragent;

/** Why a daemon refuses a frame. Other bytes are possible, and are surfaced as they came. */
public enum Reason {
	/** The frame does not begin with WEIR. */
	BAD_MAGIC(0x01),
	/** The version is not the daemon's. */
	VERSION_MISMATCH(0x02),
	/** The header does not match its CRC. */
	BAD_HEADER_CRC(0x03),
	/** A payload, a record or a record count is above the daemon's cap. */
	PAYLOAD_TOO_LARGE(0x04),
	/** The payload does not match its CRC. */
	BAD_PAYLOAD_CRC(0x05),
	/** The daemon could not store the record now; the one reason that is not permanent. */
	INTERNAL_ERROR(0x06),
	/** A record has at least one byte. */
	EMPTY_PAYLOAD(0x07),
	/** The daemon does not know the message type, as one that is too old for tracked pushes or batches. */
	UNKNOWN_MESSAGE(0x08),
	/** The flags byte is not zero. */
	RESERVED_FLAGS_SET(0x09),
	/** The body of a batch is malformed. */
	BAD_BATCH_FRAMING(0x0B);

	private final int number;

	Reason(int number) {
		this.number = number;
	}

	/** Returns the byte of the wire. */
	public int number() {
		return number;
	}

	/** Returns the reason of a byte, or null if it is unassigned. */
	public static Reason of(int number) {
		for (Reason r : values()) {
			if (r.number == number) {
				return r;
			}
		}
		return null;
	}

	/** Returns the name of a byte's reason, like PayloadTooLarge, or the byte itself, like 0x0A. */
	public static String nameOf(int number) {
		Reason r = of(number);
		return r == null ? String.format("0x%02X", number) : r.toString();
	}

	/** Returns the name that the specification uses, like PayloadTooLarge. */
	@Override
	public String toString() {
		return Verdict.wireName(name());
	}
}
