package io.github.weiragent;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.zip.CRC32;

/**
 * Frames and payloads of weir wire v1, without I/O. A frame is a header of 16 bytes, the payload, and the payload's CRC-32; numbers
 * are little-endian. Every decoder makes its checks in the order that the specification gives, and allocates nothing by a length
 * before that length was held against its cap and against the bytes that are there.
 */
final class Codec {
	static final int WIRE_VERSION = 1;
	static final int HEADER_BYTES = 16;
	static final int TRAILER_BYTES = 4;
	static final int OVERHEAD_BYTES = HEADER_BYTES + TRAILER_BYTES;
	static final int MAX_PAYLOAD_BYTES = 16 << 20;
	static final int MAX_BATCH_RECORDS = 2048;
	static final int BATCH_PREFIX_BYTES = 3;
	static final int BATCH_RECORD_OVERHEAD_BYTES = 4;
	static final int COORDINATE_FIXED_BYTES = 43;
	static final int MAX_SEGMENT_BYTES = 255;
	static final int MAX_NACK_BYTES = 2;
	static final int MAX_COORDINATE_BYTES = COORDINATE_FIXED_BYTES + MAX_SEGMENT_BYTES;
	static final int MAX_ACK_BATCH_BYTES = BATCH_PREFIX_BYTES + MAX_BATCH_RECORDS / 8;

	private static final int MAGIC = 'W' | 'E' << 8 | 'I' << 16 | 'R' << 24;
	private static final int HEADER_CRC_AT = 12;
	private static final int LAYOUT_VERSION = 1; // of a batch, an AckBatch and a coordinate
	private static final int RETIRED_DURABILITY = 0x02; // read as Durable, never written
	private static final int ID_BYTES = 32;

	private Codec() {}

	/** A checked header. */
	record Header(MessageType type, Durability durability, int payloadBytes) {
		int frameBytes() {
			return OVERHEAD_BYTES + payloadBytes;
		}
	}

	/** A checked frame. */
	record Frame(MessageType type, Durability durability, byte[] payload) {}

	/** The payload of a Nack; version is the daemon's with VersionMismatch, else 0. */
	record Nack(int reason, int version) {}

	static byte[] encodeFrame(MessageType type, Durability durability, byte[] payload) {
		ByteBuffer out = beginFrame(type, durability, payload.length);
		out.put(payload);
		return endFrame(out);
	}

	/** Returns the frame of a PushBatch. The records and their sum have to be within their caps. */
	static byte[] encodeBatchFrame(Durability durability, List<byte[]> records) {
		int n = BATCH_PREFIX_BYTES;
		for (byte[] r : records) {
			n += BATCH_RECORD_OVERHEAD_BYTES + r.length;
		}
		ByteBuffer out = beginFrame(MessageType.PUSH_BATCH, durability, n);
		out.put((byte) LAYOUT_VERSION).putShort((short) records.size());
		for (byte[] r : records) {
			out.putInt(r.length).put(r);
		}
		return endFrame(out);
	}

	private static ByteBuffer beginFrame(MessageType type, Durability durability, int payloadBytes) {
		ByteBuffer out = littleEndian(new byte[OVERHEAD_BYTES + payloadBytes]);
		out.putInt(MAGIC).put((byte) WIRE_VERSION).put((byte) type.number()).put((byte) durability.number()).put((byte) 0);
		out.putInt(payloadBytes);
		return out.putInt(crc(out.array(), 0, HEADER_CRC_AT));
	}

	private static byte[] endFrame(ByteBuffer out) {
		return out.putInt(crc(out.array(), HEADER_BYTES, out.position() - HEADER_BYTES)).array();
	}

	/** Reads a buffer that has to be exactly one frame. */
	static Frame decodeFrame(byte[] b) throws DecodeException {
		Header h = decodeHeader(b, 0, b.length);
		if (b.length > h.frameBytes()) {
			throw new DecodeException(Verdict.TRAILING_BYTES);
		}
		return new Frame(h.type(), h.durability(), decodePayload(b, 0, b.length, h));
	}

	/** Reads a header at {@code at}; {@code have} bytes are there. The payload need not be. */
	static Header decodeHeader(byte[] b, int at, int have) throws DecodeException {
		if (have < HEADER_BYTES) {
			throw new DecodeException(Verdict.TRUNCATED_FRAME);
		}
		ByteBuffer in = littleEndian(b);
		if (in.getInt(at) != MAGIC) {
			throw new DecodeException(Verdict.BAD_MAGIC);
		}
		int version = b[at + 4] & 0xFF;
		if (version != WIRE_VERSION) {
			throw new DecodeException(Verdict.VERSION_MISMATCH, version);
		}
		if (in.getInt(at + HEADER_CRC_AT) != crc(b, at, HEADER_CRC_AT)) {
			throw new DecodeException(Verdict.HEADER_CRC_MISMATCH);
		}
		MessageType type = MessageType.of(b[at + 5] & 0xFF);
		if (type == null) {
			throw new DecodeException(Verdict.UNKNOWN_MESSAGE_TYPE);
		}
		Durability durability = durability(b[at + 6] & 0xFF);
		if (b[at + 7] != 0) {
			throw new DecodeException(Verdict.RESERVED_FLAGS_SET);
		}
		int payloadBytes = in.getInt(at + 8);
		if (Integer.compareUnsigned(payloadBytes, MAX_PAYLOAD_BYTES) > 0) {
			throw new DecodeException(Verdict.PAYLOAD_TOO_LARGE);
		}
		return new Header(type, durability, payloadBytes);
	}

	private static Durability durability(int number) throws DecodeException {
		return switch (number) {
			case 0x01, RETIRED_DURABILITY -> Durability.DURABLE;
			case 0x03 -> Durability.BUFFERED;
			default -> throw new DecodeException(Verdict.UNKNOWN_DURABILITY);
		};
	}

	/** Reads the header of an answer to a request of type {@code sent}, and holds its length against the cap of its own type. */
	static Header decodeReplyHeader(byte[] b, int at, int have, MessageType sent) throws DecodeException {
		Header h = decodeHeader(b, at, have);
		if (h.type() != MessageType.NACK && h.type() != sent.reply()) {
			throw new DecodeException(Verdict.UNEXPECTED_REPLY);
		}
		if (h.payloadBytes() > h.type().mostReplyBytes()) {
			throw new DecodeException(Verdict.PAYLOAD_TOO_LARGE);
		}
		return h;
	}

	/** Returns the checked payload of the frame at {@code at}, whose header is {@code h}; {@code have} bytes are there. */
	static byte[] decodePayload(byte[] b, int at, int have, Header h) throws DecodeException {
		if (have < h.frameBytes()) {
			throw new DecodeException(Verdict.TRUNCATED_FRAME);
		}
		int from = at + HEADER_BYTES;
		int to = from + h.payloadBytes();
		if (littleEndian(b).getInt(to) != crc(b, from, h.payloadBytes())) {
			throw new DecodeException(Verdict.PAYLOAD_CRC_MISMATCH);
		}
		return Arrays.copyOfRange(b, from, to);
	}

	static List<byte[]> decodeBatch(byte[] body) throws DecodeException {
		ByteBuffer in = littleEndian(body);
		int count = decodeCount(in);
		if (count > MAX_BATCH_RECORDS) {
			throw new DecodeException(Verdict.TOO_MANY_RECORDS);
		}
		List<byte[]> records = new ArrayList<>(count);
		while (records.size() < count) {
			if (in.remaining() < BATCH_RECORD_OVERHEAD_BYTES) {
				throw new DecodeException(Verdict.TRUNCATED_RECORD);
			}
			int n = in.getInt();
			if (n == 0) {
				throw new DecodeException(Verdict.EMPTY_RECORD);
			}
			if (Integer.compareUnsigned(n, MAX_PAYLOAD_BYTES) > 0) {
				throw new DecodeException(Verdict.RECORD_TOO_LARGE);
			}
			if (in.remaining() < n) {
				throw new DecodeException(Verdict.TRUNCATED_RECORD);
			}
			byte[] r = new byte[n];
			in.get(r);
			records.add(r);
		}
		if (in.hasRemaining()) {
			throw new DecodeException(Verdict.LENGTH_MISMATCH);
		}
		return records;
	}

	/** Reads the prefix of a batch or of the answer to one, and returns its count. */
	private static int decodeCount(ByteBuffer in) throws DecodeException {
		if (in.remaining() < BATCH_PREFIX_BYTES) {
			throw new DecodeException(Verdict.TRUNCATED);
		}
		if (in.get() != LAYOUT_VERSION) {
			throw new DecodeException(Verdict.UNSUPPORTED_VERSION);
		}
		int count = in.getShort() & 0xFFFF;
		if (count == 0) {
			throw new DecodeException(Verdict.EMPTY_BATCH);
		}
		return count;
	}

	static byte[] encodeAckBatch(boolean[] acked) {
		ByteBuffer out = littleEndian(new byte[BATCH_PREFIX_BYTES + (acked.length + 7) / 8]);
		out.put((byte) LAYOUT_VERSION).putShort((short) acked.length);
		for (int i = 0; i < acked.length; i++) {
			if (acked[i]) {
				out.array()[BATCH_PREFIX_BYTES + i / 8] |= (byte) (1 << i % 8);
			}
		}
		return out.array();
	}

	/** Reads the answer to a batch of {@code sent} records. Bit i is byte i / 8, mask {@code 1 << i % 8}. */
	static boolean[] decodeAckBatch(byte[] payload, int sent) throws DecodeException {
		int count = decodeCount(littleEndian(payload));
		if (count != sent || payload.length != BATCH_PREFIX_BYTES + (count + 7) / 8) {
			throw new DecodeException(Verdict.LENGTH_MISMATCH);
		}
		if (count % 8 != 0 && (payload[payload.length - 1] & 0xFF) >> count % 8 != 0) {
			throw new DecodeException(Verdict.PADDING_NOT_ZERO);
		}
		boolean[] acked = new boolean[count];
		for (int i = 0; i < count; i++) {
			acked[i] = (payload[BATCH_PREFIX_BYTES + i / 8] >> i % 8 & 1) == 1;
		}
		return acked;
	}

	static byte[] encodeCoordinate(Coordinate at) {
		byte[] segment = at.segment().getBytes(StandardCharsets.UTF_8);
		ByteBuffer out = littleEndian(new byte[COORDINATE_FIXED_BYTES + segment.length]);
		out.put((byte) LAYOUT_VERSION).putLong(at.index()).put(HexFormat.of().parseHex(at.id()));
		return out.putShort((short) segment.length).put(segment).array();
	}

	static Coordinate decodeCoordinate(byte[] payload) throws DecodeException {
		if (payload.length < COORDINATE_FIXED_BYTES) {
			throw new DecodeException(Verdict.TRUNCATED);
		}
		ByteBuffer in = littleEndian(payload);
		if (in.get() != LAYOUT_VERSION) {
			throw new DecodeException(Verdict.UNSUPPORTED_VERSION);
		}
		long index = in.getLong();
		byte[] id = new byte[ID_BYTES];
		in.get(id);
		int n = in.getShort() & 0xFFFF;
		if (n > MAX_SEGMENT_BYTES) {
			throw new DecodeException(Verdict.SEGMENT_TOO_LONG);
		}
		if (in.remaining() != n) {
			throw new DecodeException(Verdict.LENGTH_MISMATCH);
		}
		try {
			// A decoder of its own reports what is malformed, where a String would replace it.
			String segment = StandardCharsets.UTF_8.newDecoder().decode(in).toString();
			return new Coordinate(segment, index, HexFormat.of().formatHex(id));
		} catch (CharacterCodingException e) {
			throw new DecodeException(Verdict.SEGMENT_NOT_UTF8);
		}
	}

	/** Returns the id of a record, in hex: SHA-256 over its place and its bytes, each with its length before it. */
	static String recordId(String segment, long index, byte[] payload) {
		byte[] name = segment.getBytes(StandardCharsets.UTF_8);
		ByteBuffer head = littleEndian(new byte[3 * Long.BYTES + name.length]);
		head.putLong(name.length).put(name).putLong(index).putLong(payload.length);
		try {
			MessageDigest sha = MessageDigest.getInstance("SHA-256");
			sha.update(head.array());
			return HexFormat.of().formatHex(sha.digest(payload));
		} catch (NoSuchAlgorithmException e) {
			throw new IllegalStateException("every Java platform has SHA-256", e);
		}
	}

	static byte[] encodeNack(Nack nack) {
		return nack.reason() == Reason.VERSION_MISMATCH.number()
				? new byte[] {(byte) nack.reason(), (byte) nack.version()}
				: new byte[] {(byte) nack.reason()};
	}

	static Nack decodeNack(byte[] payload) throws DecodeException {
		if (payload.length == 0) {
			throw new DecodeException(Verdict.TRUNCATED);
		}
		int reason = payload[0] & 0xFF;
		boolean versioned = reason == Reason.VERSION_MISMATCH.number();
		if (payload.length != (versioned ? 2 : 1)) {
			throw new DecodeException(Verdict.LENGTH_MISMATCH);
		}
		return new Nack(reason, versioned ? payload[1] & 0xFF : 0);
	}

	private static ByteBuffer littleEndian(byte[] b) {
		return ByteBuffer.wrap(b).order(ByteOrder.LITTLE_ENDIAN);
	}

	private static int crc(byte[] b, int at, int n) {
		CRC32 crc = new CRC32();
		crc.update(b, at, n);
		return (int) crc.getValue();
	}
}
