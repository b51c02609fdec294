package io.github.weiragent;

import java.io.IOException;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;

/**
 * Sends one frame at a time over one connection, which it makes when it is needed. Threads may share it: they take turns. A method
 * that returns says that weir keeps the record, as safely as it was asked to, not that the record was delivered.
 *
 * <p>After any error but {@link WeirException.Transient} the connection is dropped, since what it would carry next could be taken
 * for the answer to something else. An interrupt of the thread ends its call with an error.
 */
public final class Client implements AutoCloseable {
	private final Path path;
	private final ReentrantLock turn = new ReentrantLock();
	private Selector selector; // of the thread whose turn it is
	private volatile Connection connection; // as well; close only aborts it
	private volatile boolean closed;
	volatile long timeoutNanos;

	/** Makes a client of the socket that WEIR_SOCKET names, or else weir-data/weir.sock, with 30 s for each call. */
	public Client() {
		this(null);
	}

	/** Makes a client of a socket, with 30 s for each call. It connects with its first call. */
	public Client(Path path) {
		this(path, Times.DEFAULT_TIMEOUT);
	}

	/**
	 * Makes a client of a socket.
	 *
	 * @param path the daemon's socket; null: as for {@link #Client()}
	 * @param timeout bounds each call, the wait for the turn included
	 */
	public Client(Path path, Duration timeout) {
		this.path = Connection.path(path, System.getenv());
		this.timeoutNanos = Times.positiveNanos(timeout, "timeout");
	}

	/** Pushes a record of 1 byte to 16 MiB, and returns once it is on stable storage. */
	public void push(byte[] payload) throws WeirException {
		push(payload, Durability.DURABLE);
	}

	/** Pushes a record of 1 byte to 16 MiB, and returns once it is as safe as durability says. */
	public void push(byte[] payload, Durability durability) throws WeirException {
		call(MessageType.PUSH, Requests.push(MessageType.PUSH, payload, durability), reply -> null);
	}

	/** Pushes a record as {@link #push(byte[])} does, and returns where it landed. */
	public Coordinate pushTracked(byte[] payload) throws WeirException {
		return pushTracked(payload, Durability.DURABLE);
	}

	/**
	 * Pushes a record as {@link #push(byte[], Durability)} does, and returns where it landed; the id was checked against the record. A
	 * daemon that is too old for it refuses with {@link Reason#UNKNOWN_MESSAGE}.
	 */
	public Coordinate pushTracked(byte[] payload, Durability durability) throws WeirException {
		byte[] frame = Requests.push(MessageType.PUSH_TRACKED, payload, durability);
		return call(MessageType.PUSH_TRACKED, frame, reply -> {
			Coordinate at = Codec.decodeCoordinate(reply);
			if (!at.id().equals(Codec.recordId(at.segment(), at.index(), payload))) {
				throw new WeirException.BadReply(Verdict.UNEXPECTED_REPLY, "the record id is that of another record");
			}
			return at;
		});
	}

	/** Pushes records as {@link #pushBatch(List, Durability)} does, durably. */
	public boolean[] pushBatch(List<byte[]> payloads) throws WeirException {
		return pushBatch(payloads, Durability.DURABLE);
	}

	/**
	 * Pushes 1 to 2,048 records in one frame of at most 16 MiB. Element i of the result tells whether record i is as safe as durability
	 * says; where it is false the record may be stored or not, as after {@link WeirException.Transient}. An error is about all records.
	 * A daemon may take fewer (1,024 by default) and refuses then with {@link Reason#PAYLOAD_TOO_LARGE}; one that is too old for
	 * batches refuses with {@link Reason#UNKNOWN_MESSAGE}.
	 */
	public boolean[] pushBatch(List<byte[]> payloads, Durability durability) throws WeirException {
		byte[] frame = Requests.batch(payloads, durability);
		int sent = payloads.size();
		return call(MessageType.PUSH_BATCH, frame, reply -> Codec.decodeAckBatch(reply, sent));
	}

	/** Returns if the daemon answers. */
	public void health() throws WeirException {
		byte[] frame = Codec.encodeFrame(MessageType.HEALTH_CHECK, Durability.DURABLE, new byte[0]);
		call(MessageType.HEALTH_CHECK, frame, reply -> null);
	}

	/** Ends a call that runs, and the connection. A second call does nothing. */
	@Override
	public void close() {
		closed = true;
		Connection c = connection;
		if (c != null) {
			c.abort();
		}
		turn.lock();
		try {
			drop();
			if (selector != null) {
				selector.close();
				selector = null;
			}
		} catch (IOException e) {
			// The connection is closed, and nothing was promised of the selector.
			selector = null;
		} finally {
			turn.unlock();
		}
	}

	private interface Parser<T> {
		T parse(byte[] payload) throws WeirException, DecodeException;
	}

	/** Sends a frame and returns what parser makes of its answer. */
	private <T> T call(MessageType sent, byte[] frame, Parser<T> parser) throws WeirException {
		long deadline = System.nanoTime() + timeoutNanos;
		takeTurn();
		try {
			Connection c = connected();
			boolean fit = false;
			try {
				T result = exchange(c, sent, frame, parser, deadline);
				fit = true;
				return result;
			} catch (WeirException.Transient e) {
				fit = true;
				throw e;
			} finally {
				if (!fit) {
					drop();
				}
			}
		} finally {
			turn.unlock();
		}
	}

	private void takeTurn() throws WeirException {
		try {
			if (!turn.tryLock(timeoutNanos, TimeUnit.NANOSECONDS)) {
				throw new WeirException.Transient("other calls took all the time; nothing was sent", null);
			}
		} catch (InterruptedException e) {
			Thread.currentThread().interrupt();
			throw new WeirException.Transient("interrupted before its turn; nothing was sent", e);
		}
	}

	/** Returns a connection on which nothing came unasked: that would be taken for the next answer. */
	private Connection connected() throws WeirException {
		if (connection != null && !quiet(connection)) {
			drop();
		}
		if (connection == null && !closed) {
			connection = new Connection(path, selector());
		}
		if (closed) {
			drop();
			throw new WeirException.Closed("the client is closed");
		}
		return connection;
	}

	private Selector selector() throws WeirException {
		try {
			if (selector == null) {
				selector = Selector.open();
			}
			return selector;
		} catch (IOException e) {
			throw new WeirException.ConnectFailed("open a selector: " + Connection.describe(e), e);
		}
	}

	private static boolean quiet(Connection c) {
		try {
			return !c.hasInput() && c.read() && !c.hasInput();
		} catch (IOException e) {
			return false; // nothing was sent on it, so a new one does
		}
	}

	private void drop() {
		if (connection != null) {
			connection.close();
			connection = null;
		}
	}

	private static <T> T exchange(Connection c, MessageType sent, byte[] frame, Parser<T> parser, long deadline) throws WeirException {
		try {
			write(c, frame, deadline);
		} catch (WeirException e) {
			throw e;
		} catch (IOException e) {
			refusal(c, sent, deadline);
			throw new WeirException.UnknownOutcome("write: " + Connection.describe(e), e);
		}
		try {
			return parser.parse(read(c, sent, deadline));
		} catch (DecodeException e) {
			throw new WeirException.BadReply(e);
		}
	}

	private static void write(Connection c, byte[] frame, long deadline) throws IOException {
		for (int at = 0; at < frame.length || c.pending();) {
			at += c.put(frame, at);
			if (c.flush() == 0) {
				c.await(SelectionKey.OP_WRITE, left(deadline));
			}
		}
	}

	private static byte[] read(Connection c, MessageType sent, long deadline) throws WeirException {
		try {
			for (;;) {
				if (!c.read()) {
					throw new WeirException.UnknownOutcome("the daemon closed the connection", null);
				}
				byte[] payload = c.reply(sent);
				if (payload != null) {
					return payload;
				}
				c.await(SelectionKey.OP_READ, left(deadline));
			}
		} catch (WeirException e) {
			throw e;
		} catch (IOException e) {
			throw new WeirException.UnknownOutcome("read: " + Connection.describe(e), e);
		}
	}

	/**
	 * Throws why the daemon refused a frame that could not be written to its end: it may have done so by the header, and closed.
	 * Nothing else can be an answer to such a frame.
	 */
	private static void refusal(Connection c, MessageType sent, long deadline) throws WeirException {
		try {
			read(c, sent, deadline);
		} catch (WeirException.Refused | WeirException.UnknownReason e) {
			throw e;
		} catch (WeirException e) {
			return; // the failed write says more
		}
	}

	/** Returns the nanoseconds until the deadline, for a wait; throws if there are none, or if the thread is to wait no more. */
	private static long left(long deadline) throws WeirException.UnknownOutcome {
		if (Thread.currentThread().isInterrupted()) {
			throw new WeirException.UnknownOutcome("the thread was interrupted", null);
		}
		long nanos = deadline - System.nanoTime();
		if (nanos <= 0) {
			throw new WeirException.TimedOut("no answer in time");
		}
		return nanos;
	}
}
