package io.github.weiragent;

import java.util.List;

/** Checks and frames of what a user wants to push. */
final class Requests {
	private Requests() {}

	/** Returns the frame of one record. */
	static byte[] push(MessageType type, byte[] payload, Durability durability) throws WeirException.Refused {
		check(payload);
		return Codec.encodeFrame(type, durability, payload);
	}

	/** Returns the frame of a batch. */
	static byte[] batch(List<byte[]> payloads, Durability durability) throws WeirException.Refused {
		if (payloads.isEmpty()) {
			throw new WeirException.Refused(Reason.BAD_BATCH_FRAMING, "a batch without records");
		}
		if (payloads.size() > Codec.MAX_BATCH_RECORDS) {
			throw tooLarge("a batch", payloads.size(), "records", Codec.MAX_BATCH_RECORDS);
		}
		long n = Codec.BATCH_PREFIX_BYTES;
		for (byte[] p : payloads) {
			check(p);
			n += Codec.BATCH_RECORD_OVERHEAD_BYTES + p.length;
		}
		if (n > Codec.MAX_PAYLOAD_BYTES) {
			throw tooLarge("a batch", n, "bytes", Codec.MAX_PAYLOAD_BYTES);
		}
		return Codec.encodeBatchFrame(durability, payloads);
	}

	private static void check(byte[] payload) throws WeirException.Refused {
		if (payload.length == 0) {
			throw new WeirException.Refused(Reason.EMPTY_PAYLOAD, "a record has at least one byte");
		}
		if (payload.length > Codec.MAX_PAYLOAD_BYTES) {
			throw tooLarge("a record", payload.length, "bytes", Codec.MAX_PAYLOAD_BYTES);
		}
	}

	private static WeirException.Refused tooLarge(String what, long n, String unit, int most) {
		return new WeirException.Refused(Reason.PAYLOAD_TOO_LARGE, what + " of " + n + " " + unit + ", " + most + " are possible");
	}
}
