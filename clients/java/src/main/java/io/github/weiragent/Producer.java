package io.github.weiragent;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.channels.Selector;
import java.nio.file.Path;
import java.time.Duration;
import java.util.concurrent.ThreadLocalRandom;
import java.util.function.Consumer;
import java.util.function.DoubleSupplier;

/**
 * Sends records with many in flight on one connection, reports what became of each in order, and reconnects with a growing pause.
 * Threads may share it. It must be closed.
 *
 * <p>Every record that a send took gets exactly one report, from the producer's own thread. When a connection ends, each record in
 * flight on it is {@link State#UNKNOWN}, and it is up to the caller to send it again; records that were not begun keep waiting for the
 * next connection. A report should be quick and must not call the producer; {@code future::complete} of a CompletableFuture will do.
 */
public final class Producer implements AutoCloseable {
	/** What a producer may be told. */
	public static final class Options {
		private Path path;
		private int inFlight = 256;
		private long inFlightBytes = 8 << 20;
		private Duration timeout = Times.DEFAULT_TIMEOUT;
		private Duration minBackoff = Duration.ofMillis(50);
		private Duration maxBackoff = Duration.ofSeconds(5);
		private DoubleSupplier jitter = () -> ThreadLocalRandom.current().nextDouble();

		/** Sets the daemon's socket; default as for {@link Client#Client()}. */
		public Options path(Path path) {
			this.path = path;
			return this;
		}

		/** Sets how many records may be without an outcome before a send waits; default 256. */
		public Options inFlight(int records) {
			if (records < 1) {
				throw new IllegalArgumentException("weir: inFlight has to be above zero");
			}
			this.inFlight = records;
			return this;
		}

		/** Sets how many bytes of frames may be without an outcome; default 8 MiB. A larger frame has to be alone. */
		public Options inFlightBytes(long bytes) {
			this.inFlightBytes = bytes;
			return this;
		}

		/** Sets how long the daemon may leave the first record in flight unanswered; default 30 s. */
		public Options timeout(Duration timeout) {
			this.timeout = timeout;
			return this;
		}

		/** Sets the first and the longest pause between tries to connect, each of which is cut by up to half at random; default 50 ms and 5 s. */
		public Options backoff(Duration least, Duration most) {
			this.minBackoff = least;
			this.maxBackoff = most;
			return this;
		}

		/** Sets the source of numbers in [0, 1) that cut the pauses; default random. */
		public Options jitter(DoubleSupplier jitter) {
			this.jitter = jitter;
			return this;
		}
	}

	private final Path path;
	private final Duration timeout;
	volatile long timeoutNanos; // of the sessions to come
	private final Pipeline pipeline;
	private final Selector selector;
	private final Thread thread;
	// Of the thread:
	private final Backoff backoff;
	private Session session;
	private long retryAt = System.nanoTime();

	/** Makes a producer with the default options. */
	public Producer() {
		this(new Options());
	}

	/** Makes a producer. It connects when there is a record to send. */
	public Producer(Options options) {
		path = Connection.path(options.path, System.getenv());
		timeout = options.timeout;
		timeoutNanos = Times.positiveNanos(options.timeout, "timeout");
		backoff = new Backoff(Times.positiveNanos(options.minBackoff, "backoff"), Times.positiveNanos(options.maxBackoff, "backoff"), options.jitter);
		try {
			selector = Selector.open();
		} catch (IOException e) {
			throw new UncheckedIOException("weir: open a selector", e);
		}
		pipeline = new Pipeline(options.inFlight, options.inFlightBytes, selector::wakeup);
		thread = new Thread(this::run, "weir-producer");
		thread.setDaemon(true);
		thread.start();
	}

	/** Takes a record as {@link #send(byte[], Durability, Consumer, Duration)} does, durably and however long it waits for room. */
	public void send(byte[] payload, Consumer<Outcome> report) throws WeirException, InterruptedException {
		send(payload, Durability.DURABLE, report);
	}

	/** Takes a record as {@link #send(byte[], Durability, Consumer, Duration)} does, however long it waits for room. */
	public void send(byte[] payload, Durability durability, Consumer<Outcome> report) throws WeirException, InterruptedException {
		add(payload, durability, report, Times.FOREVER_NANOS);
	}

	/**
	 * Takes a record of 1 byte to 16 MiB, which is copied; report is called once with its outcome. While there is no room it waits.
	 *
	 * @return false if there was no room in time: then the record was not taken, and report is never called; the same holds for an
	 *     exception
	 */
	public boolean send(byte[] payload, Durability durability, Consumer<Outcome> report, Duration wait) throws WeirException, InterruptedException {
		return add(payload, durability, report, Times.nanos(wait));
	}

	private boolean add(byte[] payload, Durability durability, Consumer<Outcome> report, long nanos) throws WeirException, InterruptedException {
		if (report == null) {
			throw new NullPointerException("weir: report");
		}
		notFromReport();
		return pipeline.add(new Pipeline.Entry(Requests.push(MessageType.PUSH, payload, durability), report), nanos);
	}

	/** Waits until every record that was taken before has its outcome; false if not in time. */
	public boolean flush(Duration wait) throws InterruptedException {
		notFromReport();
		return pipeline.await(Times.nanos(wait));
	}

	/** Closes as {@link #close(Duration)} does, with the timeout of the options; at once if the thread is interrupted. */
	@Override
	public void close() {
		close(timeout);
	}

	/**
	 * Takes no more records, waits until those that were taken have their outcomes, and ends the connection. Every report was called
	 * when this returns. What has no outcome in time, or when the thread is interrupted, is UNKNOWN; with {@link WeirException.Closed}
	 * it was not sent.
	 *
	 * @return whether every record got its outcome from the daemon or from the end of a connection, in time
	 */
	public boolean close(Duration wait) {
		notFromReport();
		pipeline.shut();
		boolean all = false;
		boolean interrupted = false;
		try {
			all = pipeline.await(Times.nanos(wait));
		} catch (InterruptedException e) {
			interrupted = true;
		}
		pipeline.end();
		while (thread.isAlive()) {
			try {
				thread.join();
			} catch (InterruptedException e) {
				interrupted = true;
			}
		}
		if (interrupted) {
			Thread.currentThread().interrupt();
		}
		return all;
	}

	private void notFromReport() {
		if (Thread.currentThread() == thread) {
			throw new IllegalStateException("weir: a report must not call its producer");
		}
	}

	private void run() {
		try {
			while (!pipeline.ended()) {
				step();
			}
		} catch (IOException e) {
			throw new UncheckedIOException("weir: wait for the socket", e);
		} finally {
			giveUp();
		}
	}

	/** Does what can be done, and waits until there is more to do. */
	private void step() throws IOException {
		Thread.interrupted(); // a report may have left an interrupt, with which no wait would be one
		if (session == null) {
			connectOrWait();
			return;
		}
		WeirException error = session.turn();
		if (error != null) {
			lose(error);
		} else if (pipeline.park(session.heedsWaiting())) {
			session.await();
		}
	}

	private void connectOrWait() throws IOException {
		if (!pipeline.hasWaiting()) {
			if (pipeline.park(true)) {
				Connection.select(selector, Times.FOREVER_NANOS);
			}
			return;
		}
		long pause = retryAt - System.nanoTime();
		if (pause > 0) {
			if (pipeline.park(false)) {
				Connection.select(selector, pause);
			}
			return;
		}
		try {
			session = new Session(new Connection(path, selector), pipeline, timeoutNanos);
		} catch (WeirException e) {
			// No record hears of this: what waits goes on waiting.
			retryAt = System.nanoTime() + backoff.nanosAfter(false);
		}
	}

	private void lose(WeirException error) {
		boolean useful = session.end(error);
		session = null;
		retryAt = System.nanoTime() + backoff.nanosAfter(useful);
	}

	private void giveUp() {
		pipeline.shut();
		if (session != null) {
			lose(new WeirException.UnknownOutcome("the producer was closed before the answer came", null));
		}
		for (Pipeline.Entry e = pipeline.take(); e != null; e = pipeline.take()) {
			Session.tell(e.report, Outcome.of(new WeirException.Closed("the producer was closed before the record was sent")));
			pipeline.settled(1, e.frame.length);
		}
		try {
			selector.close();
		} catch (IOException e) {
			throw new UncheckedIOException("weir: close the selector", e);
		}
	}
}
