package io.github.weiragent;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** The daemon that was built, WEIR_BIN or ../../bin/weir, on a folder of its own. */
final class Daemon implements AutoCloseable {
	static final long LIMIT_SECONDS = 60;

	private static final Pattern DELIVERED = Pattern.compile("\"id\":\"([^\"]+)\".*\"payload\":\"([^\"\\\\]*)\"");
	private static final Pattern BACKLOG = Pattern.compile("\"backlog_records\":\\s*(\\d+)");

	final Path dir = Files.createTempDirectory("weir");
	final Path socket = dir.resolve("weir.sock");
	private final String binary = System.getenv().getOrDefault("WEIR_BIN", "../../bin/weir");
	private final String sink;
	private Process process;

	interface Condition {
		boolean holds() throws IOException;
	}

	Daemon(String sink) throws IOException {
		this.sink = sink;
		start();
	}

	void start() throws IOException {
		process = new ProcessBuilder(binary, "run", "--data-dir", dir.toString(), "--admin", "", "--sink", sink)
				.redirectErrorStream(true).redirectOutput(ProcessBuilder.Redirect.appendTo(log())).start();
		until(this::answers);
	}

	private File log() {
		return dir.resolve("weir.log").toFile();
	}

	private boolean answers() throws IOException {
		assertTrue(process.isAlive(), () -> "the daemon ended, see " + log());
		try (Client client = new Client(socket)) {
			client.health();
			return true;
		} catch (WeirException e) {
			return false;
		}
	}

	/** Ends the daemon with SIGKILL. */
	void kill() {
		process.destroyForcibly();
		join();
	}

	private void join() {
		try {
			assertTrue(process.waitFor(LIMIT_SECONDS, TimeUnit.SECONDS), "the daemon does not end");
		} catch (InterruptedException e) {
			throw new AssertionError("nobody interrupts a test", e);
		}
	}

	/** Waits until everything is delivered. */
	void untilDrained() throws IOException {
		until(() -> backlog() == 0);
	}

	private long backlog() throws IOException {
		Process status = new ProcessBuilder(binary, "status", "--json", "--admin-socket", dir.resolve("admin.sock").toString()).start();
		Matcher m = BACKLOG.matcher(new String(status.getInputStream().readAllBytes()));
		assertTrue(m.find(), "no backlog in the status");
		return Long.parseLong(m.group(1));
	}

	/** Returns the ids under which each payload was delivered. */
	Map<String, Set<String>> delivered() throws IOException {
		Map<String, Set<String>> out = new HashMap<>();
		Path file = dir.resolve("delivered.jsonl");
		for (String line : Files.exists(file) ? Files.readAllLines(file) : List.<String>of()) {
			Matcher m = DELIVERED.matcher(line);
			if (m.find()) { // else it is being written
				out.computeIfAbsent(m.group(2), k -> new HashSet<>()).add(m.group(1));
			}
		}
		return out;
	}

	/** Polls until a condition holds. */
	static void until(Condition c) throws IOException {
		long limit = System.nanoTime() + TimeUnit.SECONDS.toNanos(LIMIT_SECONDS);
		CountDownLatch never = new CountDownLatch(1);
		while (!c.holds()) {
			assertTrue(System.nanoTime() - limit < 0, "it did not happen");
			try {
				never.await(10, TimeUnit.MILLISECONDS);
			} catch (InterruptedException e) {
				throw new AssertionError("nobody interrupts a test", e);
			}
		}
	}

	/** Ends the daemon, which has to end well, and removes its folder. */
	@Override
	public void close() throws IOException {
		process.destroy();
		try {
			join();
		} finally {
			process.destroyForcibly();
		}
		assertEquals(0, process.exitValue(), () -> "see " + log());
		try (var files = Files.walk(dir)) {
			for (Path p : files.sorted(Comparator.reverseOrder()).toList()) {
				Files.delete(p);
			}
		}
	}
}
