package io.github.weiragent;

import static io.github.weiragent.FakeServer.ACK;
import static io.github.weiragent.FakeServer.HEALTHY;
import static io.github.weiragent.FakeServer.ackBatch;
import static io.github.weiragent.FakeServer.ackTracked;
import static io.github.weiragent.FakeServer.ending;
import static io.github.weiragent.FakeServer.frame;
import static io.github.weiragent.FakeServer.nack;
import static io.github.weiragent.FakeServer.replying;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;

@Timeout(60)
class ClientTest {
	private static final byte[] HELLO = {'h', 'e', 'l', 'l', 'o'};

	@Test
	void everyCall() throws Exception {
		List<Codec.Frame> seen = Collections.synchronizedList(new ArrayList<>());
		FakeServer.Handler handler = peer -> {
			for (byte[] reply : List.of(ACK, ACK, ackTracked(HELLO), ackBatch(true, false), HEALTHY)) {
				seen.add(peer.frame());
				peer.send(reply);
			}
			peer.untilClosed();
		};
		try (FakeServer server = new FakeServer(handler); Client client = new Client(server.path)) {
			client.push(HELLO);
			client.push(HELLO, Durability.BUFFERED); // its ack says Durable, which means nothing
			Coordinate at = client.pushTracked(HELLO);
			assertEquals("shard_00/seg", at.segment());
			assertEquals(7, at.index());
			assertEquals("sha256:" + Codec.recordId("shard_00/seg", 7, HELLO), at.key());
			assertArrayEquals(new boolean[] {true, false}, client.pushBatch(List.of(HELLO, new byte[] {1})));
			client.health();
			assertEquals(1, server.connections.get());
		}
		List<MessageType> types = seen.stream().map(Codec.Frame::type).toList();
		assertEquals(List.of(MessageType.PUSH, MessageType.PUSH, MessageType.PUSH_TRACKED, MessageType.PUSH_BATCH, MessageType.HEALTH_CHECK), types);
		assertEquals(Durability.DURABLE, seen.get(0).durability());
		assertEquals(Durability.BUFFERED, seen.get(1).durability());
		assertArrayEquals(HELLO, seen.get(2).payload());
		assertEquals(2, Codec.decodeBatch(seen.get(3).payload()).size());
	}

	@Test
	void theBitsOfABatchAreInOrder() throws Exception {
		boolean[] want = {true, false, true, true, false, false, false, false, true};
		byte[] asymmetric = frame(MessageType.ACK_BATCH, 1, 9, 0, 0b00001101, 0b1);
		try (FakeServer server = new FakeServer(replying(asymmetric)); Client client = new Client(server.path)) {
			assertArrayEquals(want, client.pushBatch(Collections.nCopies(9, HELLO)));
		}
	}

	/** A reply that is none, the call it answers, and what is to be said of it. */
	record Wrong(String name, byte[] reply, MessageType sent, Verdict verdict) {
		@Override
		public String toString() {
			return name;
		}
	}

	static List<Wrong> wrongReplies() {
		byte[] flipped = ACK.clone();
		flipped[19] ^= 1;
		byte[] header = ACK.clone();
		header[13] ^= 1;
		byte[] version = ACK.clone();
		version[4] = 9;
		byte[] flags = Codec.encodeFrame(MessageType.ACK, Durability.DURABLE, new byte[0]);
		flags[7] = 1;
		return List.of(
				new Wrong("garbage", new byte[40], MessageType.PUSH, Verdict.BAD_MAGIC),
				new Wrong("payload crc", flipped, MessageType.PUSH, Verdict.PAYLOAD_CRC_MISMATCH),
				new Wrong("header crc", header, MessageType.PUSH, Verdict.HEADER_CRC_MISMATCH),
				new Wrong("flags under a crc for none", flags, MessageType.PUSH, Verdict.HEADER_CRC_MISMATCH),
				new Wrong("another version", version, MessageType.PUSH, Verdict.VERSION_MISMATCH),
				new Wrong("wrong type", HEALTHY, MessageType.PUSH, Verdict.UNEXPECTED_REPLY),
				new Wrong("ack to a health check", ACK, MessageType.HEALTH_CHECK, Verdict.UNEXPECTED_REPLY),
				new Wrong("ack to a batch", ACK, MessageType.PUSH_BATCH, Verdict.UNEXPECTED_REPLY),
				new Wrong("tracked ack to a push", ackTracked(HELLO), MessageType.PUSH, Verdict.UNEXPECTED_REPLY),
				new Wrong("ack with a payload", frame(MessageType.ACK, 0), MessageType.PUSH, Verdict.PAYLOAD_TOO_LARGE),
				new Wrong("nack of no bytes", frame(MessageType.NACK), MessageType.PUSH, Verdict.TRUNCATED),
				new Wrong("nack of two bytes", frame(MessageType.NACK, 6, 1), MessageType.PUSH, Verdict.LENGTH_MISMATCH),
				new Wrong("nack of three bytes", frame(MessageType.NACK, 2, 1, 1), MessageType.PUSH, Verdict.PAYLOAD_TOO_LARGE),
				new Wrong("wrong count", ackBatch(true, true, true), MessageType.PUSH_BATCH, Verdict.LENGTH_MISMATCH),
				new Wrong("padding", frame(MessageType.ACK_BATCH, 1, 2, 0, 0b111), MessageType.PUSH_BATCH, Verdict.PADDING_NOT_ZERO),
				new Wrong("batch layout 2", frame(MessageType.ACK_BATCH, 2, 2, 0, 0b11), MessageType.PUSH_BATCH, Verdict.UNSUPPORTED_VERSION),
				new Wrong("id of another record", ackTracked(new byte[] {1}), MessageType.PUSH_TRACKED, Verdict.UNEXPECTED_REPLY),
				new Wrong("half a coordinate", frame(MessageType.ACK_TRACKED, 1, 2), MessageType.PUSH_TRACKED, Verdict.TRUNCATED));
	}

	private static void call(Client client, MessageType sent) throws WeirException {
		switch (sent) {
			case PUSH -> client.push(HELLO);
			case PUSH_TRACKED -> client.pushTracked(HELLO);
			case PUSH_BATCH -> client.pushBatch(List.of(HELLO, HELLO));
			default -> client.health();
		}
	}

	@ParameterizedTest
	@MethodSource("wrongReplies")
	void aWrongReplyPoisonsTheConnection(Wrong wrong) throws Exception {
		FakeServer.Handler handler = peer -> {
			peer.frame();
			peer.send(wrong.reply(), ACK, ACK); // the acks belong to nothing
			peer.untilClosed();
		};
		try (FakeServer server = new FakeServer(handler, replying(nack(Reason.EMPTY_PAYLOAD))); Client client = new Client(server.path)) {
			WeirException.BadReply e = assertThrows(WeirException.BadReply.class, () -> call(client, wrong.sent()));
			assertEquals(wrong.verdict(), e.verdict());
			assertEquals(State.UNKNOWN, e.state());
			assertTrue(e.getMessage().contains(wrong.verdict().toString()), e.getMessage());
			assertThrows(WeirException.Refused.class, () -> client.push(HELLO));
			assertEquals(2, server.connections.get());
		}
	}

	@ParameterizedTest
	@EnumSource(value = MessageType.class, names = {"ACK", "NACK", "HEALTH_CHECK_RESPONSE", "ACK_TRACKED", "ACK_BATCH"})
	void anOverlongReplyIsRefusedByItsHeader(MessageType type) throws Exception {
		byte[] header = Arrays.copyOf(Codec.encodeFrame(type, Durability.DURABLE, new byte[Codec.MAX_PAYLOAD_BYTES]), Codec.HEADER_BYTES);
		MessageType sent = Arrays.stream(MessageType.values()).filter(t -> t.reply() == type).findFirst().orElse(MessageType.PUSH);
		// The payload never comes: who waits for it, waits until the watchdog.
		try (FakeServer server = new FakeServer(replying(header)); Client client = new Client(server.path)) {
			WeirException.BadReply e = assertThrows(WeirException.BadReply.class, () -> call(client, sent));
			assertEquals(Verdict.PAYLOAD_TOO_LARGE, e.verdict());
		}
	}

	@ParameterizedTest
	@ValueSource(ints = {0, 1, 15, 16, 19})
	void halfAReplyIsNone(int n) throws Exception {
		try (FakeServer server = new FakeServer(ending(Arrays.copyOf(ACK, n)), replying(ACK)); Client client = new Client(server.path)) {
			WeirException.UnknownOutcome e = assertThrows(WeirException.UnknownOutcome.class, () -> client.push(HELLO));
			assertEquals(State.UNKNOWN, e.state());
			client.push(HELLO);
		}
	}

	@Test
	void aReplyInManyPieces() throws Exception {
		FakeServer.Handler handler = peer -> {
			peer.frame();
			for (byte b : ackTracked(HELLO)) {
				peer.send(new byte[] {b});
			}
			peer.untilClosed();
		};
		try (FakeServer server = new FakeServer(handler); Client client = new Client(server.path)) {
			assertEquals(7, client.pushTracked(HELLO).index());
		}
	}

	@ParameterizedTest
	@EnumSource(Reason.class)
	void everyNack(Reason reason) throws Exception {
		byte[] reply = reason == Reason.VERSION_MISMATCH ? frame(MessageType.NACK, 2, 9) : nack(reason);
		FakeServer.Handler handler = reason == Reason.INTERNAL_ERROR ? replying(reply, ACK) : ending(reply);
		try (FakeServer server = new FakeServer(handler, replying(ACK)); Client client = new Client(server.path)) {
			WeirException e = assertThrows(WeirException.class, () -> client.push(HELLO));
			client.push(HELLO);
			assertTrue(e.getMessage().contains(reason.toString()), e.getMessage());
			if (reason == Reason.INTERNAL_ERROR) {
				assertEquals(WeirException.Transient.class, e.getClass());
				assertEquals(State.UNKNOWN, e.state());
				assertEquals(1, server.connections.get());
				return;
			}
			WeirException.Refused refused = assertInstanceOf(WeirException.Refused.class, e);
			assertEquals(State.REFUSED, e.state());
			assertEquals(reason.number(), refused.reason());
			assertEquals(reason.toString(), refused.reasonName());
			assertEquals(2, server.connections.get());
		}
	}

	@ParameterizedTest
	@ValueSource(ints = {0x0A, 0x0C, 0xFF, 0x00})
	void anUnknownReasonIsSurfacedAsItCame(int reason) throws Exception {
		try (FakeServer server = new FakeServer(ending(frame(MessageType.NACK, reason))); Client client = new Client(server.path)) {
			WeirException.UnknownReason e = assertThrows(WeirException.UnknownReason.class, () -> client.push(HELLO));
			assertEquals(reason, e.reason());
			assertEquals(State.UNKNOWN, e.state());
			assertTrue(e.getMessage().contains(String.format("0x%02X", reason)), e.getMessage());
		}
	}

	@Test
	void aVersionMismatchSaysBothVersions() throws Exception {
		try (FakeServer server = new FakeServer(ending(frame(MessageType.NACK, 2, 9))); Client client = new Client(server.path)) {
			WeirException.VersionMismatch e = assertThrows(WeirException.VersionMismatch.class, () -> client.push(HELLO));
			assertEquals(9, e.daemonVersion());
			assertEquals(1, e.clientVersion());
			assertTrue(e.getMessage().contains("v9") && e.getMessage().contains("v1"), e.getMessage());
		}
	}

	@Test
	void aLateReplyIsNotTheNextOne() throws Exception {
		CountDownLatch givenUp = new CountDownLatch(1);
		FakeServer.Handler late = peer -> {
			peer.frame();
			FakeServer.await(givenUp);
			peer.send(ACK);
		};
		try (FakeServer server = new FakeServer(late, replying(nack(Reason.EMPTY_PAYLOAD)));
				Client client = new Client(server.path, Duration.ofMillis(30))) {
			assertThrows(WeirException.TimedOut.class, () -> client.push(HELLO));
			givenUp.countDown();
			client.timeoutNanos = TimeUnit.SECONDS.toNanos(FakeServer.WATCHDOG_SECONDS);
			assertThrows(WeirException.Refused.class, () -> client.push(HELLO));
		}
	}

	@Test
	void aReplyThatNobodyAskedForIsNotTheNextOne() throws Exception {
		FakeServer.Handler twice = peer -> {
			peer.frame();
			peer.send(ackTracked(HELLO), ACK);
			peer.untilClosed();
		};
		try (FakeServer server = new FakeServer(twice, replying(nack(Reason.EMPTY_PAYLOAD))); Client client = new Client(server.path)) {
			client.pushTracked(HELLO);
			assertThrows(WeirException.Refused.class, () -> client.push(HELLO));
		}
	}

	@Test
	void aConnectionThatEndedWhileIdleIsReplaced() throws Exception {
		CountDownLatch ended = new CountDownLatch(1);
		FakeServer.Handler once = peer -> {
			peer.frame();
			peer.send(ACK);
			peer.shut();
			ended.countDown();
		};
		try (FakeServer server = new FakeServer(once, replying(ACK)); Client client = new Client(server.path)) {
			client.push(HELLO);
			FakeServer.await(ended);
			client.push(HELLO);
			assertEquals(2, server.connections.get());
		}
	}

	@Test
	void aLargeFrameRefusedByItsHeader() throws Exception {
		FakeServer.Handler refuse = peer -> {
			peer.bytes(Codec.HEADER_BYTES);
			peer.send(nack(Reason.PAYLOAD_TOO_LARGE));
		};
		try (FakeServer server = new FakeServer(refuse); Client client = new Client(server.path)) {
			WeirException.Refused e = assertThrows(WeirException.Refused.class, () -> client.push(new byte[4 << 20]));
			assertEquals(Reason.PAYLOAD_TOO_LARGE.number(), e.reason());
		}
	}

	@ParameterizedTest
	@ValueSource(booleans = {false, true})
	void anAnswerToAFrameThatWasNotWrittenIsNone(boolean isTransient) throws Exception {
		FakeServer.Handler early = peer -> {
			peer.bytes(Codec.HEADER_BYTES);
			peer.send(isTransient ? nack(Reason.INTERNAL_ERROR) : ACK);
		};
		try (FakeServer server = new FakeServer(early, replying(ACK)); Client client = new Client(server.path)) {
			assertThrows(WeirException.UnknownOutcome.class, () -> client.push(new byte[4 << 20]));
			client.push(HELLO); // on another connection
			assertEquals(2, server.connections.get());
		}
	}

	@Test
	void aPeerThatReadsNothingTimesOut() throws Exception {
		CountDownLatch done = new CountDownLatch(1);
		try (FakeServer server = new FakeServer(peer -> FakeServer.await(done)); Client client = new Client(server.path, Duration.ofMillis(30))) {
			assertThrows(WeirException.TimedOut.class, () -> client.push(new byte[4 << 20]));
			done.countDown();
		}
	}

	@Test
	void checksBeforeItSends() {
		try (Client client = new Client(Path.of("/nowhere"))) {
			byte[] big = new byte[Codec.MAX_PAYLOAD_BYTES + 1];
			byte[] half = new byte[Codec.MAX_PAYLOAD_BYTES / 2];
			refusedWith(Reason.EMPTY_PAYLOAD, () -> client.push(new byte[0]));
			refusedWith(Reason.EMPTY_PAYLOAD, () -> client.pushTracked(new byte[0]));
			refusedWith(Reason.EMPTY_PAYLOAD, () -> client.pushBatch(List.of(HELLO, new byte[0])));
			refusedWith(Reason.PAYLOAD_TOO_LARGE, () -> client.push(big));
			refusedWith(Reason.PAYLOAD_TOO_LARGE, () -> client.pushBatch(List.of(big)));
			refusedWith(Reason.PAYLOAD_TOO_LARGE, () -> client.pushBatch(List.of(half, half)));
			refusedWith(Reason.PAYLOAD_TOO_LARGE, () -> client.pushBatch(Collections.nCopies(2049, HELLO)));
			refusedWith(Reason.BAD_BATCH_FRAMING, () -> client.pushBatch(List.of()));
		}
	}

	private static void refusedWith(Reason want, org.junit.jupiter.api.function.Executable call) {
		assertEquals(want.number(), assertThrows(WeirException.Refused.class, call).reason());
	}

	@Test
	void theLargestRecordAndBatch() throws Exception {
		List<Integer> sizes = Collections.synchronizedList(new ArrayList<>());
		FakeServer.Handler handler = peer -> {
			sizes.add(peer.frame().payload().length);
			peer.send(ACK);
			sizes.add(Codec.decodeBatch(peer.frame().payload()).size());
			boolean[] all = new boolean[2048];
			Arrays.fill(all, true);
			peer.send(ackBatch(all));
			peer.untilClosed();
		};
		try (FakeServer server = new FakeServer(handler); Client client = new Client(server.path)) {
			client.push(new byte[Codec.MAX_PAYLOAD_BYTES]);
			assertEquals(2048, client.pushBatch(Collections.nCopies(2048, HELLO)).length);
		}
		assertEquals(List.of(Codec.MAX_PAYLOAD_BYTES, 2048), sizes);
	}

	@Test
	void nobodyListens(@TempDir Path dir) {
		for (Path path : List.of(dir.resolve("none"), dir.resolve("x".repeat(200)))) {
			try (Client client = new Client(path)) {
				WeirException.ConnectFailed e = assertThrows(WeirException.ConnectFailed.class, () -> client.push(HELLO));
				assertTrue(e.getMessage().contains(path.toString()), e.getMessage());
				assertEquals(State.UNKNOWN, e.state());
			}
		}
	}

	@Test
	void closeEndsACall() throws Exception {
		CountDownLatch asked = new CountDownLatch(1);
		FakeServer.Handler silent = peer -> {
			peer.frame();
			asked.countDown();
			peer.untilClosed();
		};
		try (FakeServer server = new FakeServer(silent)) {
			Client client = new Client(server.path);
			CompletableFuture<WeirException> ended = CompletableFuture.supplyAsync(() -> assertThrows(WeirException.class, () -> client.push(HELLO)));
			FakeServer.await(asked);
			client.close();
			assertInstanceOf(WeirException.UnknownOutcome.class, ended.get(FakeServer.WATCHDOG_SECONDS, TimeUnit.SECONDS));
			assertThrows(WeirException.Closed.class, () -> client.push(HELLO));
			client.close();
		}
	}

	@Test
	void anInterruptEndsACallAndItsConnection() throws Exception {
		CountDownLatch asked = new CountDownLatch(1);
		FakeServer.Handler silent = peer -> {
			peer.frame();
			asked.countDown();
			peer.untilClosed();
		};
		try (FakeServer server = new FakeServer(silent, replying(ACK)); Client client = new Client(server.path)) {
			CompletableFuture<WeirException> ended = new CompletableFuture<>();
			Thread caller = new Thread(() -> ended.complete(assertThrows(WeirException.class, () -> client.push(HELLO))));
			caller.start();
			FakeServer.await(asked);
			caller.interrupt();
			assertInstanceOf(WeirException.UnknownOutcome.class, ended.get(FakeServer.WATCHDOG_SECONDS, TimeUnit.SECONDS));
			caller.join();
			client.push(HELLO);
			assertEquals(2, server.connections.get());
		}
	}

	@Test
	void threadsTakeTurns() throws Exception {
		try (FakeServer server = new FakeServer(FakeServer::acking); Client client = new Client(server.path)) {
			List<CompletableFuture<Void>> all = new ArrayList<>();
			for (int t = 0; t < 4; t++) {
				all.add(CompletableFuture.runAsync(() -> {
					for (int i = 0; i < 100; i++) {
						try {
							client.push(HELLO);
						} catch (WeirException e) {
							throw new AssertionError(e);
						}
					}
				}));
			}
			CompletableFuture.allOf(all.toArray(CompletableFuture[]::new)).get(FakeServer.WATCHDOG_SECONDS, TimeUnit.SECONDS);
			assertEquals(1, server.connections.get());
		}
	}

	@Test
	void theDefaultPath() {
		assertEquals(Path.of("/run/w.sock"), Connection.path(null, Map.of("WEIR_SOCKET", "/run/w.sock")));
		assertEquals(Path.of("weir-data/weir.sock"), Connection.path(null, Map.of("WEIR_SOCKET", "")));
		assertEquals(Path.of("weir-data/weir.sock"), Connection.path(null, Map.of()));
		assertEquals(Path.of("/given"), Connection.path(Path.of("/given"), Map.of("WEIR_SOCKET", "/run/w.sock")));
	}
}
