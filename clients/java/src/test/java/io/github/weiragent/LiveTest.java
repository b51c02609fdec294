package io.github.weiragent;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** The client against the daemon that was built. */
@Timeout(150)
class LiveTest {
	private static final int KILLS = 5;
	private static final int ACKS_A_ROUND = 4000;
	private static final double BENCH_SECONDS = 0.6;

	/** What was reported: the payloads that were acked, and the keys of the tracked ones. */
	private static final class Ledger {
		final Set<String> acked = ConcurrentHashMap.newKeySet();
		final Map<String, String> keys = new ConcurrentHashMap<>();
		final AtomicLong unknown = new AtomicLong();
		final AtomicLong refused = new AtomicLong();
		private final Path socket;
		private volatile boolean stop;

		Ledger(Path socket) {
			this.socket = socket;
		}

		private void book(String payload, State state) {
			switch (state) {
				case ACKED -> acked.add(payload);
				case REFUSED -> refused.incrementAndGet();
				default -> unknown.incrementAndGet();
			}
		}

		void produce() {
			try (Producer p = new Producer(new Producer.Options().path(socket).backoff(Duration.ofMillis(5), Duration.ofMillis(50)))) {
				for (int i = 0; !stop; i++) {
					String payload = "producer " + i;
					p.send(bytes(payload), i % 2 == 0 ? Durability.DURABLE : Durability.BUFFERED, o -> book(payload, o.state()));
				}
			} catch (WeirException | InterruptedException e) {
				throw new AssertionError(e);
			}
		}

		void call() {
			try (Client client = new Client(socket)) {
				for (int i = 0; !stop; i++) {
					round(client, "call " + i + "/");
				}
			}
		}

		private void round(Client client, String name) {
			try {
				Coordinate at = client.pushTracked(bytes(name + "tracked"));
				keys.put(name + "tracked", at.key());
				book(name + "tracked", State.ACKED);
				client.push(bytes(name + "single"));
				book(name + "single", State.ACKED);
				List<byte[]> batch = new ArrayList<>();
				for (int k = 0; k < 10; k++) {
					batch.add(bytes(name + k));
				}
				boolean[] ok = client.pushBatch(batch);
				for (int k = 0; k < 10; k++) {
					book(name + k, ok[k] ? State.ACKED : State.UNKNOWN);
				}
			} catch (WeirException e) {
				book(name, e.state());
			}
		}
	}

	private static byte[] bytes(String s) {
		return s.getBytes(StandardCharsets.UTF_8);
	}

	@Test
	void everyAckedRecordArrives() throws Exception {
		try (Daemon daemon = new Daemon("file")) {
			Ledger ledger = new Ledger(daemon.socket);
			CompletableFuture<Void> producing = CompletableFuture.runAsync(ledger::produce);
			CompletableFuture<Void> calling = CompletableFuture.runAsync(ledger::call);
			try {
				for (int kill = 0; kill < KILLS; kill++) {
					int enough = ledger.acked.size() + ACKS_A_ROUND;
					Daemon.until(() -> ledger.acked.size() >= enough);
					daemon.kill();
					daemon.start();
				}
				int enough = ledger.acked.size() + ACKS_A_ROUND;
				Daemon.until(() -> ledger.acked.size() >= enough);
			} finally {
				ledger.stop = true;
			}
			producing.get(Daemon.LIMIT_SECONDS, TimeUnit.SECONDS);
			calling.get(Daemon.LIMIT_SECONDS, TimeUnit.SECONDS);
			daemon.untilDrained();
			Map<String, Set<String>> delivered = daemon.delivered();
			List<String> lost = ledger.acked.stream().filter(p -> !delivered.containsKey(p)).toList();
			System.out.printf("ledger: %d kills, %d acked, %d unknown, %d delivered, %d lost%n", KILLS, ledger.acked.size(),
					ledger.unknown.get(), delivered.size(), lost.size());
			assertEquals(List.of(), lost);
			assertEquals(0, ledger.refused.get());
			assertTrue(ledger.acked.stream().anyMatch(p -> p.startsWith("producer")) && !ledger.keys.isEmpty(), "one of the kinds pushed nothing");
			ledger.keys.forEach((payload, key) -> assertTrue(delivered.get(payload).contains(key), "a key that was not delivered"));
		}
	}

	@Test
	void theExample(@TempDir Path dir) throws Exception {
		Path file = dir.resolve("lines");
		List<String> lines = new ArrayList<>();
		for (int i = 0; i < 1234; i++) {
			lines.add("line " + i);
		}
		Files.write(file, lines.subList(0, 1000));
		try (Daemon daemon = new Daemon("file")) {
			String java = Path.of(System.getProperty("java.home"), "bin", "java").toString();
			Process example = new ProcessBuilder(java, "-cp", "target/classes", "examples/TailFile.java", file.toString(), daemon.socket.toString())
					.inheritIO().start();
			try {
				Daemon.until(() -> daemon.delivered().keySet().containsAll(lines.subList(0, 1000)));
				Files.write(file, lines.subList(1000, 1234), StandardOpenOption.APPEND);
				Daemon.until(() -> daemon.delivered().keySet().containsAll(lines));
			} finally {
				example.destroyForcibly().waitFor();
			}
		}
	}

	private interface Work {
		int records() throws Exception;
	}

	private static double rate(Work work) throws Exception {
		long began = System.nanoTime();
		long n = 0;
		double seconds = 0;
		while (seconds < BENCH_SECONDS) {
			n += work.records();
			seconds = (System.nanoTime() - began) / 1e9;
		}
		return n / seconds;
	}

	@Test
	void speed() throws Exception {
		byte[] record = new byte[256];
		Arrays.fill(record, (byte) 'x');
		List<byte[]> batch = Collections.nCopies(1000, record);
		boolean[] all = new boolean[1000];
		Arrays.fill(all, true);
		try (Daemon daemon = new Daemon("discard"); Client client = new Client(daemon.socket)) {
			Work single = () -> {
				client.push(record);
				return 1;
			};
			Work batches = () -> {
				assertArrayEquals(all, client.pushBatch(batch));
				return 1000;
			};
			Work flights = () -> flight(daemon.socket, record);
			flights.records(); // so that what is measured is compiled
			System.out.printf("one at a time %.0f records/s, 256 in flight %.0f, batches of 1,000 %.0f%n", rate(single), rate(flights), rate(batches));
		}
	}

	/** Pushes records with 256 in flight, and returns how many were acked. */
	private static int flight(Path socket, byte[] record) throws Exception {
		AtomicLong acked = new AtomicLong();
		try (Producer p = new Producer(new Producer.Options().path(socket))) {
			for (int i = 0; i < 20_000; i++) {
				p.send(record, o -> {
					if (o.state() == State.ACKED) {
						acked.incrementAndGet();
					}
				});
			}
		}
		assertEquals(20_000, acked.get());
		return 20_000;
	}
}
