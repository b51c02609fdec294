package io.github.weiragent;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.stream.Collectors;

/** The codec behind the line protocol of the conformance runner. */
final class CodecLines {
	private static final HexFormat HEX = HexFormat.of();

	private CodecLines() {}

	public static void main(String[] args) throws IOException {
		BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
		PrintStream out = new PrintStream(System.out, true, StandardCharsets.US_ASCII);
		for (String line = in.readLine(); line != null; line = in.readLine()) {
			out.println(answer(line));
		}
	}

	private static String answer(String line) {
		String[] words = line.split(" ");
		try {
			String out = answer(words[0], Arrays.copyOfRange(words, 1, words.length));
			return out == null ? "skip" : "ok " + out;
		} catch (DecodeException e) {
			return "err " + e.verdict();
		}
	}

	private static String answer(String op, String[] args) throws DecodeException {
		byte[] last = op.endsWith("ack_batch") || op.equals("encode-nack") ? null : bytes(args[args.length - 1]);
		switch (op) {
			case "decode-frame":
				Codec.Frame f = Codec.decodeFrame(last);
				return f.type().number() + " " + f.durability().number() + " " + hex(f.payload());
			case "decode-batch":
				return Codec.decodeBatch(last).stream().map(CodecLines::hex).collect(Collectors.joining(" "));
			case "decode-ack_batch":
				return bits(Codec.decodeAckBatch(bytes(args[1]), Integer.parseInt(args[0])));
			case "decode-coordinate":
				Coordinate c = Codec.decodeCoordinate(last);
				return Long.toUnsignedString(c.index()) + " " + c.id() + " " + hex(c.segment().getBytes(StandardCharsets.UTF_8));
			case "decode-nack":
				Codec.Nack n = Codec.decodeNack(last);
				return n.reason() + " " + n.version();
			case "encode-frame":
				Durability d = args[1].equals("3") ? Durability.BUFFERED : Durability.DURABLE;
				return hex(Codec.encodeFrame(MessageType.of(Integer.parseInt(args[0])), d, last));
			case "encode-batch":
				List<byte[]> records = Arrays.stream(args).map(CodecLines::bytes).toList();
				return hex(Codec.decodeFrame(Codec.encodeBatchFrame(Durability.DURABLE, records)).payload());
			case "encode-ack_batch":
				boolean[] acked = new boolean[args[0].length()];
				for (int i = 0; i < acked.length; i++) {
					acked[i] = args[0].charAt(i) == '1';
				}
				return hex(Codec.encodeAckBatch(acked));
			case "encode-coordinate":
				return hex(Codec.encodeCoordinate(new Coordinate(text(last), Long.parseUnsignedLong(args[0]), args[1])));
			case "encode-nack":
				return hex(Codec.encodeNack(new Codec.Nack(Integer.parseInt(args[0]), Integer.parseInt(args[1]))));
			case "record_id":
				return Codec.recordId(text(bytes(args[1])), Long.parseUnsignedLong(args[0]), last);
			default:
				return null;
		}
	}

	private static String bits(boolean[] acked) {
		StringBuilder out = new StringBuilder();
		for (boolean b : acked) {
			out.append(b ? '1' : '0');
		}
		return out.toString();
	}

	private static String text(byte[] b) {
		return new String(b, StandardCharsets.UTF_8);
	}

	private static byte[] bytes(String word) {
		return word.equals("-") ? new byte[0] : HEX.parseHex(word);
	}

	private static String hex(byte[] b) {
		return b.length == 0 ? "-" : HEX.formatHex(b);
	}
}
