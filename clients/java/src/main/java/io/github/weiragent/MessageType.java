package io.github.weiragent;

/** The message types of wire v1. */
enum MessageType {
	PUSH(0x01),
	ACK(0x02),
	NACK(0x03),
	HEALTH_CHECK(0x04),
	HEALTH_CHECK_RESPONSE(0x05),
	PUSH_TRACKED(0x06),
	ACK_TRACKED(0x07),
	PUSH_BATCH(0x08),
	ACK_BATCH(0x09);

	private static final MessageType[] ALL = values();

	private final int number;

	MessageType(int number) {
		this.number = number;
	}

	/** Returns the byte of the wire. */
	int number() {
		return number;
	}

	/** Returns the type of a byte, or null if none has it. */
	static MessageType of(int number) {
		return number >= 1 && number <= ALL.length ? ALL[number - 1] : null;
	}

	/** Returns the type that answers this request, a Nack aside; null if this is no request. */
	MessageType reply() {
		return switch (this) {
			case PUSH -> ACK;
			case HEALTH_CHECK -> HEALTH_CHECK_RESPONSE;
			case PUSH_TRACKED -> ACK_TRACKED;
			case PUSH_BATCH -> ACK_BATCH;
			default -> null;
		};
	}

	/** Returns how long a payload of this type may be in a reply. */
	int mostReplyBytes() {
		return switch (this) {
			case NACK -> Codec.MAX_NACK_BYTES;
			case ACK_TRACKED -> Codec.MAX_COORDINATE_BYTES;
			case ACK_BATCH -> Codec.MAX_ACK_BATCH_BYTES;
			default -> 0;
		};
	}
}
