package io.github.weiragent;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.function.Function;
import java.util.function.ToIntFunction;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.MethodSource;

class CodecTest {
	private static final Path CODES = Path.of("..", "..", "conformance", "vectors", "codes.json");

	/** Returns the text of one array or object of the code table. */
	private static String section(String name) throws IOException {
		Matcher m = Pattern.compile("\"" + name + "\": [\\[{](.*?)\n [\\]}]", Pattern.DOTALL).matcher(Files.readString(CODES));
		assertEquals(true, m.find(), name);
		return m.group(1);
	}

	private static <T> Map<Integer, String> table(T[] all, ToIntFunction<T> number, Function<T, String> name) {
		return Arrays.stream(all).collect(Collectors.toMap(number::applyAsInt, name, (a, b) -> a, TreeMap::new));
	}

	private static Map<Integer, String> table(String section) throws IOException {
		Map<Integer, String> out = new TreeMap<>();
		Matcher m = Pattern.compile("\"number\": (\\d+),\\s+\"name\": \"(\\w+)\"").matcher(section(section));
		while (m.find()) {
			out.put(Integer.parseInt(m.group(1)), m.group(2));
		}
		return out;
	}

	@Test
	void codesAreThoseOfTheTable() throws IOException {
		assertEquals(table("types"), table(MessageType.values(), MessageType::number, t -> Verdict.wireName(t.name())));
		assertEquals(table("reasons"), table(Reason.values(), Reason::number, Reason::toString));
		Map<Integer, String> tiers = table("durabilities");
		assertEquals("Durable", tiers.remove(2)); // read, never written
		assertEquals(tiers, table(Durability.values(), Durability::number, d -> Verdict.wireName(d.name())));
		String verdicts = section("verdicts");
		for (Verdict v : Verdict.values()) {
			assertEquals(true, verdicts.contains("\"" + v + "\""), v.name());
		}
	}

	@Test
	void capsAreThoseOfTheTable() throws IOException {
		Map<String, Integer> want = new TreeMap<>();
		Matcher m = Pattern.compile("\"(\\w+)\": (\\d+)").matcher(section("caps"));
		while (m.find()) {
			want.put(m.group(1), Integer.parseInt(m.group(2)));
		}
		assertEquals(want, new TreeMap<>(Map.of("header_bytes", Codec.HEADER_BYTES, "trailer_bytes", Codec.TRAILER_BYTES, "payload_bytes",
				Codec.MAX_PAYLOAD_BYTES, "batch_records", Codec.MAX_BATCH_RECORDS, "segment_bytes", Codec.MAX_SEGMENT_BYTES, "nack_bytes",
				Codec.MAX_NACK_BYTES, "ack_tracked_bytes", Codec.MAX_COORDINATE_BYTES, "ack_batch_bytes", Codec.MAX_ACK_BATCH_BYTES)));
	}

	@Test
	void reasonNames() {
		assertEquals("PayloadTooLarge", Reason.nameOf(4));
		assertEquals("0x0A", Reason.nameOf(0x0A));
		assertEquals("0xFF", Reason.nameOf(0xFF));
	}

	@Test
	void thePublishedPushOfHello() {
		byte[] got = Codec.encodeFrame(MessageType.PUSH, Durability.DURABLE, "hello".getBytes(StandardCharsets.UTF_8));
		assertEquals("57454952010101000500000066ad7d3c68656c6c6f86a61036", HexFormat.of().formatHex(got));
	}

	@Test
	void bitsOfAnAsymmetricAckBatch() throws DecodeException {
		boolean[] want = {true, false, true, true, false, false, false, false, true};
		byte[] payload = {1, 9, 0, 0b00001101, 0b1};
		assertArrayEquals(payload, Codec.encodeAckBatch(want));
		assertArrayEquals(want, Codec.decodeAckBatch(payload, 9));
	}

	static Stream<List<MessageType>> pairs() {
		List<MessageType> requests = List.of(MessageType.PUSH, MessageType.HEALTH_CHECK, MessageType.PUSH_TRACKED, MessageType.PUSH_BATCH);
		return requests.stream().flatMap(sent -> Arrays.stream(MessageType.values()).map(reply -> List.of(sent, reply)));
	}

	@ParameterizedTest
	@MethodSource("pairs")
	void aReplyHasTheCapOfItsType(List<MessageType> pair) throws DecodeException {
		MessageType sent = pair.get(0);
		MessageType reply = pair.get(1);
		int most = reply.mostReplyBytes();
		if (reply != MessageType.NACK && reply != sent.reply()) {
			assertEquals(Verdict.UNEXPECTED_REPLY, verdict(sent, reply, most));
			return;
		}
		byte[] fits = Codec.encodeFrame(reply, Durability.BUFFERED, new byte[most]);
		assertEquals(most, Codec.decodeReplyHeader(fits, 0, fits.length, sent).payloadBytes());
		assertEquals(Verdict.PAYLOAD_TOO_LARGE, verdict(sent, reply, most + 1));
	}

	private static Verdict verdict(MessageType sent, MessageType reply, int payloadBytes) {
		byte[] b = Codec.encodeFrame(reply, Durability.DURABLE, new byte[payloadBytes]);
		return assertThrows(DecodeException.class, () -> Codec.decodeReplyHeader(b, 0, Codec.HEADER_BYTES, sent)).verdict();
	}

	@ParameterizedTest
	@EnumSource(MessageType.class)
	void everyFlippedBitOfAFrameIsSeen(MessageType type) {
		byte[] good = Codec.encodeFrame(type, Durability.DURABLE, new byte[] {1, 2, 3});
		for (int bit = 0; bit < good.length * 8; bit++) {
			byte[] bad = good.clone();
			bad[bit / 8] ^= (byte) (1 << bit % 8);
			assertThrows(DecodeException.class, () -> Codec.decodeFrame(bad));
		}
	}

	private interface Decoder {
		Object decode(byte[] b) throws DecodeException;
	}

	@Test
	void noBytesMakeADecoderFailInAnotherWay() {
		List<Decoder> all = List.of(Codec::decodeFrame, Codec::decodeBatch, Codec::decodeNack, Codec::decodeCoordinate, b -> Codec.decodeAckBatch(b, 9),
				b -> Codec.decodeReplyHeader(b, 0, b.length, MessageType.PUSH_TRACKED));
		Random random = new Random(1);
		int refused = 0;
		for (int i = 0; i < 50_000; i++) {
			byte[] b = new byte[random.nextInt(80)];
			random.nextBytes(b);
			if (b.length > 4 && i % 2 == 0) { // get past the first checks
				System.arraycopy(new byte[] {1, 9, 0}, 0, b, 0, 3);
			}
			for (Decoder d : all) {
				try {
					d.decode(b);
				} catch (DecodeException e) {
					refused++;
				}
			}
		}
		assertEquals(true, refused > 0);
	}
}
