package io.github.weiragent;

import static io.github.weiragent.FakeServer.ACK;
import static io.github.weiragent.FakeServer.HEALTHY;
import static io.github.weiragent.FakeServer.ending;
import static io.github.weiragent.FakeServer.frame;
import static io.github.weiragent.FakeServer.nack;
import static io.github.weiragent.FakeServer.replying;
import static io.github.weiragent.State.ACKED;
import static io.github.weiragent.State.REFUSED;
import static io.github.weiragent.State.UNKNOWN;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.channels.Selector;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Consumer;
import java.util.logging.Logger;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;

@Timeout(60)
class ProducerTest {
	private static final Duration WATCHDOG = Duration.ofSeconds(FakeServer.WATCHDOG_SECONDS);
	private static final int LARGE = 4 << 20; // more than a socket takes at once

	/** The outcomes of records, each with its number, in the order in which they came. */
	private static final class Tally {
		final List<Integer> numbers = Collections.synchronizedList(new ArrayList<>());
		final List<Outcome> outcomes = Collections.synchronizedList(new ArrayList<>());
		private int next;

		Consumer<Outcome> report() {
			int number = next++;
			return o -> {
				numbers.add(number);
				outcomes.add(o);
			};
		}

		void send(Producer p, int n) throws WeirException, InterruptedException {
			for (int i = 0; i < n; i++) {
				p.send(payload(next), report());
			}
		}

		/** Returns the states; fails if an outcome came twice or out of order. */
		List<State> states() {
			assertEquals(IntStream.range(0, numbers.size()).boxed().toList(), numbers);
			return outcomes.stream().map(Outcome::state).toList();
		}

		WeirException error(int i) {
			return outcomes.get(i).error();
		}
	}

	private static byte[] payload(int i) {
		return ("record " + i).getBytes(StandardCharsets.UTF_8);
	}

	private static Producer.Options options(FakeServer server) {
		return new Producer.Options().path(server.path).backoff(Duration.ofMillis(1), Duration.ofMillis(1));
	}

	private static void flush(Producer p) throws InterruptedException {
		assertTrue(p.flush(WATCHDOG), "no outcome");
	}

	@ParameterizedTest
	@ValueSource(ints = {1, 7, 256})
	void allAreAckedInOrder(int inFlight) throws Exception {
		List<Codec.Frame> seen = Collections.synchronizedList(new ArrayList<>());
		FakeServer.Handler handler = peer -> {
			for (Codec.Frame f = peer.frame(); f != null; f = peer.frame()) {
				seen.add(f);
				peer.send(ACK);
			}
		};
		Tally tally = new Tally();
		try (FakeServer server = new FakeServer(handler); Producer p = new Producer(options(server).inFlight(inFlight))) {
			tally.send(p, 1000);
			p.send(payload(1000), Durability.BUFFERED, tally.report());
			flush(p);
			assertEquals(Collections.nCopies(1001, ACKED), tally.states());
			assertEquals(1, server.connections.get());
		}
		for (int i = 0; i <= 1000; i++) {
			assertEquals(new String(payload(i), StandardCharsets.UTF_8), new String(seen.get(i).payload(), StandardCharsets.UTF_8));
			assertEquals(i == 1000 ? Durability.BUFFERED : Durability.DURABLE, seen.get(i).durability());
		}
	}

	@Test
	void framesInFlightAreBounded() throws Exception {
		CountDownLatch go = new CountDownLatch(1);
		FakeServer.Handler handler = peer -> {
			peer.frames(4);
			FakeServer.await(go);
			assertTrue(peer.quiet(), "more frames than in flight");
			peer.send(ACK, ACK, ACK, ACK);
			FakeServer.acking(peer);
		};
		Tally tally = new Tally();
		try (FakeServer server = new FakeServer(handler); Producer p = new Producer(options(server).inFlight(4))) {
			tally.send(p, 4);
			assertFalse(p.send(payload(9), Durability.DURABLE, o -> tally.numbers.add(99), Duration.ofMillis(20)));
			assertFalse(p.flush(Duration.ofMillis(1)));
			go.countDown();
			tally.send(p, 4);
			flush(p);
			assertEquals(Collections.nCopies(8, ACKED), tally.states());
		}
	}

	@Test
	void bytesInFlightAreBounded() throws Exception {
		Pipeline pipeline = new Pipeline(100, 1000, () -> {});
		assertTrue(pipeline.add(new Pipeline.Entry(new byte[5000], o -> {}), 0)); // alone
		assertFalse(pipeline.add(new Pipeline.Entry(new byte[1], o -> {}), 0));
		pipeline.take();
		assertFalse(pipeline.add(new Pipeline.Entry(new byte[1], o -> {}), 0)); // in flight counts, too
		pipeline.settled(1, 5000);
		assertTrue(pipeline.add(new Pipeline.Entry(new byte[600], o -> {}), 0));
		assertFalse(pipeline.add(new Pipeline.Entry(new byte[401], o -> {}), 0));
		assertTrue(pipeline.add(new Pipeline.Entry(new byte[400], o -> {}), 0));
	}

	@Test
	void aRefusalEndsTheConnection() throws Exception {
		FakeServer.Handler handler = peer -> {
			peer.frames(5);
			peer.send(ACK, nack(Reason.PAYLOAD_TOO_LARGE), ACK); // the last one belongs to nothing
		};
		Tally tally = new Tally();
		try (FakeServer server = new FakeServer(handler, FakeServer::acking); Producer p = new Producer(options(server))) {
			tally.send(p, 5);
			flush(p);
			assertEquals(List.of(ACKED, REFUSED, UNKNOWN, UNKNOWN, UNKNOWN), tally.states());
			assertEquals(4, assertInstanceOf(WeirException.Refused.class, tally.error(1)).reason());
			tally.send(p, 5);
			flush(p);
			assertEquals(Collections.nCopies(5, ACKED), tally.states().subList(5, 10));
			assertEquals(2, server.connections.get());
		}
	}

	@ParameterizedTest
	@ValueSource(ints = {0x0A, 0xFF})
	void anUnknownReasonIsUnknown(int reason) throws Exception {
		Tally tally = new Tally();
		try (FakeServer server = new FakeServer(ending(frame(MessageType.NACK, reason)), FakeServer::acking);
				Producer p = new Producer(options(server))) {
			tally.send(p, 1);
			flush(p);
			assertEquals(List.of(UNKNOWN), tally.states());
			assertEquals(reason, assertInstanceOf(WeirException.UnknownReason.class, tally.error(0)).reason());
		}
	}

	@Test
	void aTransientNackKeepsTheConnection() throws Exception {
		Tally tally = new Tally();
		try (FakeServer server = new FakeServer(replying(ACK, nack(Reason.INTERNAL_ERROR), ACK)); Producer p = new Producer(options(server))) {
			tally.send(p, 3);
			flush(p);
			assertEquals(List.of(ACKED, UNKNOWN, ACKED), tally.states());
			assertEquals(1, server.connections.get());
		}
	}

	static Stream<Arguments> brokenReplies() {
		byte[] flipped = ACK.clone();
		flipped[19] ^= 1;
		byte[] overlong = Arrays.copyOf(Codec.encodeFrame(MessageType.ACK, Durability.DURABLE, new byte[1 << 20]), Codec.HEADER_BYTES);
		return Stream.of(Arguments.of("half a reply", Arrays.copyOf(ACK, 11), false), Arguments.of("nothing", new byte[0], false),
				Arguments.of("garbage", new byte[40], true), Arguments.of("wrong type", HEALTHY, true), Arguments.of("flipped", flipped, true),
				Arguments.of("overlong", overlong, true));
	}

	@ParameterizedTest(name = "{0}")
	@MethodSource("brokenReplies")
	void aBrokenReplyEndsTheConnection(String name, byte[] reply, boolean acksFollow) throws Exception {
		FakeServer.Handler handler = peer -> {
			peer.frames(3);
			peer.send(ACK, reply, acksFollow ? ACK : new byte[0], acksFollow ? ACK : new byte[0]);
		};
		Tally tally = new Tally();
		try (FakeServer server = new FakeServer(handler, FakeServer::acking); Producer p = new Producer(options(server))) {
			tally.send(p, 3);
			flush(p);
			assertEquals(List.of(ACKED, UNKNOWN, UNKNOWN), tally.states(), name);
			tally.send(p, 3);
			flush(p);
			assertEquals(Collections.nCopies(3, ACKED), tally.states().subList(3, 6));
		}
	}

	/** Returns a producer that gives up its first connection soon, and is patient with those that follow. */
	private static Producer hasty(FakeServer server, Duration first) {
		AtomicReference<Producer> self = new AtomicReference<>();
		Producer p = new Producer(options(server).timeout(first).jitter(() -> {
			self.get().timeoutNanos = WATCHDOG.toNanos(); // called when a connection ends without an ack
			return 0;
		}));
		self.set(p);
		return p;
	}

	@Test
	void aLateReplyIsNotTheNextOne() throws Exception {
		CountDownLatch givenUp = new CountDownLatch(1);
		FakeServer.Handler late = peer -> {
			peer.frame();
			FakeServer.await(givenUp);
			peer.send(ACK);
		};
		Tally tally = new Tally();
		try (FakeServer server = new FakeServer(late, ending(nack(Reason.EMPTY_PAYLOAD))); Producer p = hasty(server, Duration.ofMillis(20))) {
			tally.send(p, 1);
			flush(p);
			assertInstanceOf(WeirException.TimedOut.class, tally.error(0));
			givenUp.countDown();
			tally.send(p, 1);
			flush(p);
			assertEquals(List.of(UNKNOWN, REFUSED), tally.states());
		}
	}

	@Test
	void onlyWhatWasBegunIsUnknown() throws Exception {
		int records = 1000;
		byte[] kilobyte = new byte[1024]; // so all are more than a socket takes, and many wait in the connection's buffer
		int frameBytes = Codec.OVERHEAD_BYTES + kilobyte.length;
		CountDownLatch givenUp = new CountDownLatch(1);
		AtomicLong begun = new AtomicLong();
		FakeServer.Handler unread = peer -> {
			FakeServer.await(givenUp);
			while (peer.bytes(1) != null) {
				begun.incrementAndGet();
			}
		};
		Tally tally = new Tally();
		FakeServer.Handler second = peer -> {
			givenUp.countDown();
			FakeServer.acking(peer);
		};
		try (FakeServer server = new FakeServer(unread, second)) {
			try (Producer p = hasty(server, Duration.ofMillis(300))) {
				for (int i = 0; i < records; i++) {
					p.send(kilobyte, tally.report());
				}
				flush(p);
			}
			server.untilEnded(1);
			int unknown = (int) ((begun.get() + frameBytes - 1) / frameBytes);
			List<State> want = new ArrayList<>(Collections.nCopies(unknown, UNKNOWN));
			want.addAll(Collections.nCopies(records - unknown, ACKED));
			assertEquals(want, tally.states());
		}
	}

	@Test
	void whatCameUnaskedIsNoAnswer() throws Exception {
		CountDownLatch sent = new CountDownLatch(1);
		FakeServer.Handler handler = peer -> {
			peer.send(ACK);
			sent.countDown();
			peer.untilClosed();
		};
		Tally tally = new Tally();
		Pipeline pipeline = new Pipeline(10, 1000, () -> {});
		try (FakeServer server = new FakeServer(handler); Selector selector = Selector.open()) {
			Session session = new Session(new Connection(server.path, selector), pipeline, WATCHDOG.toNanos());
			FakeServer.await(sent);
			pipeline.add(new Pipeline.Entry(Requests.push(MessageType.PUSH, payload(0), Durability.DURABLE), tally.report()), 0);
			WeirException e = assertInstanceOf(WeirException.BadReply.class, session.turn());
			assertFalse(session.end(e));
			assertEquals(List.of(), tally.states());
			assertTrue(pipeline.hasWaiting());
		}
	}

	@Test
	void aReplyThatNobodyAskedForIsNotTheNextOne() throws Exception {
		FakeServer.Handler twice = peer -> {
			peer.frame();
			peer.send(ACK, ACK);
			peer.untilClosed();
		};
		Tally tally = new Tally();
		try (FakeServer server = new FakeServer(twice, ending(nack(Reason.EMPTY_PAYLOAD))); Producer p = new Producer(options(server))) {
			tally.send(p, 1);
			flush(p);
			tally.send(p, 1);
			flush(p);
			assertEquals(List.of(ACKED, REFUSED), tally.states());
		}
	}

	@ParameterizedTest
	@ValueSource(booleans = {false, true})
	void anAnswerToAFrameThatWasNotWrittenIsNone(boolean isTransient) throws Exception {
		FakeServer.Handler early = peer -> {
			peer.bytes(Codec.HEADER_BYTES);
			peer.send(isTransient ? nack(Reason.INTERNAL_ERROR) : ACK);
			peer.untilClosed();
		};
		Tally tally = new Tally();
		try (FakeServer server = new FakeServer(early, FakeServer::acking); Producer p = new Producer(options(server))) {
			// Much of it may be in the socket before the answer is read, never all.
			p.send(new byte[LARGE], tally.report());
			flush(p);
			assertEquals(List.of(UNKNOWN), tally.states());
			assertEquals(Verdict.UNEXPECTED_REPLY, assertInstanceOf(WeirException.BadReply.class, tally.error(0)).verdict());
		}
	}

	@Test
	void aLargeFrameRefusedByItsHeader() throws Exception {
		FakeServer.Handler refuse = peer -> {
			peer.bytes(Codec.HEADER_BYTES);
			peer.send(nack(Reason.PAYLOAD_TOO_LARGE));
		};
		Tally tally = new Tally();
		try (FakeServer server = new FakeServer(refuse, FakeServer::acking); Producer p = new Producer(options(server))) {
			p.send(new byte[LARGE], tally.report());
			tally.send(p, 1); // nothing of it is written before the refusal, so it goes to the next connection
			flush(p);
			assertEquals(List.of(REFUSED, ACKED), tally.states());
		}
	}

	@Test
	void aConnectionThatEndedWhileIdleCostsNothing() throws Exception {
		CountDownLatch ended = new CountDownLatch(1);
		FakeServer.Handler once = peer -> {
			peer.frame();
			peer.send(ACK);
			peer.shut();
			ended.countDown();
		};
		Tally tally = new Tally();
		try (FakeServer server = new FakeServer(once, FakeServer::acking); Producer p = new Producer(options(server))) {
			tally.send(p, 1);
			flush(p);
			FakeServer.await(ended);
			tally.send(p, 1);
			flush(p);
			assertEquals(List.of(ACKED, ACKED), tally.states());
		}
	}

	@Test
	void recordsWaitForADaemon(@TempDir Path dir) throws Exception {
		CountDownLatch tries = new CountDownLatch(5);
		Tally tally = new Tally();
		Producer.Options o = new Producer.Options().path(dir.resolve("s")).backoff(Duration.ofMillis(1), Duration.ofMillis(1)).jitter(() -> {
			tries.countDown();
			return 0;
		});
		try (Producer p = new Producer(o)) {
			tally.send(p, 3);
			FakeServer.await(tries);
			assertEquals(List.of(), tally.states());
			try (FakeServer server = new FakeServer(FakeServer::acking)) {
				Files.createSymbolicLink(dir.resolve("s"), server.path);
				flush(p);
				assertEquals(Collections.nCopies(3, ACKED), tally.states());
			}
		}
	}

	@Test
	void closeLeavesNoRecordWithoutAnOutcome(@TempDir Path dir) throws Exception {
		CountDownLatch read = new CountDownLatch(2);
		FakeServer.Handler silent = peer -> {
			peer.frame();
			read.countDown();
			peer.frame();
			read.countDown();
			peer.untilClosed();
		};
		Tally sent = new Tally();
		try (FakeServer server = new FakeServer(silent)) {
			Producer p = new Producer(options(server));
			sent.send(p, 2);
			FakeServer.await(read);
			assertFalse(p.close(Duration.ZERO));
			assertEquals(List.of(UNKNOWN, UNKNOWN), sent.states());
			assertInstanceOf(WeirException.UnknownOutcome.class, sent.error(0));
			assertThrows(WeirException.Closed.class, () -> p.send(payload(0), o -> {}));
			p.close();
		}
		Tally waiting = new Tally();
		Producer p = new Producer(new Producer.Options().path(dir.resolve("none")).inFlight(2));
		waiting.send(p, 2);
		CompletableFuture<Throwable> blocked = new CompletableFuture<>();
		Thread sender = new Thread(() -> blocked.complete(assertThrows(WeirException.Closed.class, () -> p.send(payload(3), waiting.report()))));
		sender.start();
		assertFalse(p.close(Duration.ofMillis(1)));
		blocked.get(FakeServer.WATCHDOG_SECONDS, TimeUnit.SECONDS);
		sender.join();
		assertEquals(List.of(UNKNOWN, UNKNOWN), waiting.states());
		assertInstanceOf(WeirException.Closed.class, waiting.error(0));
	}

	@Test
	void checksBeforeItTakes(@TempDir Path dir) {
		try (Producer p = new Producer(new Producer.Options().path(dir.resolve("none")))) {
			assertEquals(7, assertThrows(WeirException.Refused.class, () -> p.send(new byte[0], o -> {})).reason());
			byte[] big = new byte[Codec.MAX_PAYLOAD_BYTES + 1];
			assertEquals(4, assertThrows(WeirException.Refused.class, () -> p.send(big, o -> {})).reason());
			assertThrows(NullPointerException.class, () -> p.send(payload(0), null));
		}
		assertThrows(IllegalArgumentException.class, () -> new Producer.Options().inFlight(0));
		assertThrows(IllegalArgumentException.class, () -> new Producer(new Producer.Options().timeout(Duration.ZERO)));
	}

	@Test
	void whatAReportDoesChangesNothing() throws Exception {
		Tally tally = new Tally();
		CompletableFuture<Throwable> caught = new CompletableFuture<>();
		CompletableFuture<Throwable> logged = new CompletableFuture<>();
		Logger logger = Logger.getLogger("io.github.weiragent");
		logger.setFilter(r -> {
			logged.complete(r.getThrown());
			return false;
		});
		try (FakeServer server = new FakeServer(FakeServer::acking); Producer p = new Producer(options(server))) {
			Consumer<Outcome> first = tally.report();
			p.send(payload(0), o -> {
				first.accept(o);
				Thread.currentThread().interrupt();
				caught.complete(assertThrows(IllegalStateException.class, () -> p.flush(Duration.ZERO)));
				throw new UnsupportedOperationException("a fault");
			});
			tally.send(p, 2);
			flush(p);
			assertEquals(List.of(ACKED, ACKED, ACKED), tally.states());
			assertEquals(1, server.connections.get());
			assertTrue(caught.isDone());
			assertInstanceOf(UnsupportedOperationException.class, logged.getNow(null));
		} finally {
			logger.setFilter(null);
		}
	}

	@Test
	void threadsShareAProducer() throws Exception {
		CompletableFuture<?>[] done = new CompletableFuture<?>[4];
		try (FakeServer server = new FakeServer(FakeServer::acking); Producer p = new Producer(options(server).inFlight(8))) {
			List<State> states = Collections.synchronizedList(new ArrayList<>());
			for (int t = 0; t < done.length; t++) {
				done[t] = CompletableFuture.runAsync(() -> {
					for (int i = 0; i < 500; i++) {
						try {
							p.send(payload(i), o -> states.add(o.state()));
						} catch (WeirException | InterruptedException e) {
							throw new AssertionError(e);
						}
					}
				});
			}
			CompletableFuture.allOf(done).get(FakeServer.WATCHDOG_SECONDS, TimeUnit.SECONDS);
			flush(p);
			assertEquals(Collections.nCopies(2000, ACKED), states);
		}
	}

	@Test
	void pausesDoubleAndAreCut() {
		Backoff b = new Backoff(100, 1000, () -> 0.5);
		List<Long> got = new ArrayList<>();
		for (int i = 0; i < 6; i++) {
			got.add(b.nanosAfter(false));
		}
		assertEquals(List.of(75L, 150L, 300L, 600L, 750L, 750L), got);
		assertEquals(0, b.nanosAfter(true));
		assertEquals(75, b.nanosAfter(false));
	}
}
