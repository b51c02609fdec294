package io.github.weiragent;

import java.io.IOException;
import java.nio.channels.SelectionKey;
import java.util.ArrayDeque;
import java.util.function.Consumer;

/**
 * One connection of a producer: moves records from a pipeline to the socket, and answers from the socket to the reports. It is for one
 * thread. Once a method returned an error the session must be ended with it.
 */
final class Session {
	private static final System.Logger LOG = System.getLogger("io.github.weiragent");

	private final Connection connection;
	private final Pipeline pipeline;
	private final long timeoutNanos;

	private final ArrayDeque<Pipeline.Entry> flying = new ArrayDeque<>(); // handed to the connection and not settled
	private Pipeline.Entry current; // the one of which the connection has not all; it is the last in flying
	private int currentAt;
	private long handed; // bytes of the frames in flying and before
	private long wrote; // bytes that the socket took
	private boolean writing = true; // the writing side works
	private boolean useful; // a record was acked or refused
	private long overdue; // when the first in flying is
	private int settledRecords; // reported, and not yet told to the pipeline
	private long settledBytes;

	Session(Connection connection, Pipeline pipeline, long timeoutNanos) {
		this.connection = connection;
		this.pipeline = pipeline;
		this.timeoutNanos = timeoutNanos;
	}

	/** Writes and reads what is possible without waiting; returns the error that ends the session, or null. */
	WeirException turn() {
		WeirException error = null;
		if (flying.isEmpty() && pipeline.hasWaiting()) {
			error = read(); // what came unasked would be taken for the next answer; it may also be the end
		}
		if (error == null) {
			error = write();
		}
		if (error == null) {
			error = read();
		}
		if (error == null && !flying.isEmpty() && System.nanoTime() - overdue >= 0) {
			error = new WeirException.TimedOut("no answer in time");
		}
		return error;
	}

	/** Reports whether a turn makes use of records that are added. */
	boolean heedsWaiting() {
		return writing && !connection.pending();
	}

	/** Waits until there is something for a turn to do. */
	void await() throws IOException {
		int ops = writing && connection.pending() ? SelectionKey.OP_READ | SelectionKey.OP_WRITE : SelectionKey.OP_READ;
		connection.await(ops, flying.isEmpty() ? Times.FOREVER_NANOS : overdue - System.nanoTime());
	}

	/** Closes the connection and settles what is in flight; what was not begun waits again. Returns whether the session was useful. */
	boolean end(WeirException error) {
		connection.close();
		while (!flying.isEmpty() && flying.peekLast().start >= wrote) {
			pipeline.putBack(flying.pollLast());
		}
		while (!flying.isEmpty()) {
			settle(Outcome.of(error));
		}
		makeRoom();
		return useful;
	}

	private WeirException write() {
		try {
			while (writing) {
				fill();
				if (!connection.pending()) {
					return null;
				}
				int n = connection.flush();
				if (n == 0) {
					return null;
				}
				wrote += n;
			}
			return null;
		} catch (IOException e) {
			if (wrote == 0) {
				return new WeirException.UnknownOutcome("write: " + Connection.describe(e), e);
			}
			// There may be answers to be read, among them the Nack that tells why.
			writing = false;
			return null;
		}
	}

	/** Hands frames to the connection until it has no room. */
	private void fill() {
		for (;;) {
			if (current == null) {
				current = pipeline.take();
				if (current == null) {
					return;
				}
				if (flying.isEmpty()) {
					overdue = System.nanoTime() + timeoutNanos;
				}
				currentAt = 0;
				current.start = handed;
				handed = current.end();
				flying.add(current);
			}
			currentAt += connection.put(current.frame, currentAt);
			if (currentAt < current.frame.length) {
				return;
			}
			current = null;
		}
	}

	private WeirException read() {
		try {
			if (!connection.read()) {
				return new WeirException.UnknownOutcome("the daemon closed the connection", null);
			}
		} catch (IOException e) {
			return new WeirException.UnknownOutcome("read: " + Connection.describe(e), e);
		}
		WeirException error = answers();
		if (settledRecords > 0) {
			overdue = System.nanoTime() + timeoutNanos;
			makeRoom();
		}
		return error;
	}

	/** Settles what the bytes that came answer. */
	private WeirException answers() {
		while (!flying.isEmpty()) {
			Pipeline.Entry first = flying.peek();
			try {
				if (connection.reply(MessageType.PUSH) == null) {
					return null;
				}
				if (first.end() > wrote) {
					return unwritten();
				}
				useful = true;
				settle(Outcome.ACKED);
			} catch (WeirException.Transient e) {
				if (first.end() > wrote) {
					return unwritten();
				}
				settle(Outcome.of(e));
			} catch (WeirException.Refused | WeirException.UnknownReason e) {
				if (first.start >= wrote) {
					return unwritten();
				}
				useful |= e.state() == State.REFUSED;
				settle(Outcome.of(e));
				return new WeirException.UnknownOutcome("the connection ended with an earlier record: " + e.getMessage(), e);
			} catch (WeirException e) {
				return e;
			}
		}
		return connection.hasInput() ? new WeirException.BadReply(Verdict.UNEXPECTED_REPLY, "nothing was asked") : null;
	}

	private static WeirException unwritten() {
		return new WeirException.BadReply(Verdict.UNEXPECTED_REPLY, "an answer to a frame that is not written");
	}

	private void settle(Outcome outcome) {
		Pipeline.Entry e = flying.poll();
		tell(e.report, outcome);
		settledRecords++;
		settledBytes += e.frame.length;
	}

	private void makeRoom() {
		pipeline.settled(settledRecords, settledBytes);
		settledRecords = 0;
		settledBytes = 0;
	}

	/** Calls a report. A fault in it must not change what becomes of other records. */
	static void tell(Consumer<Outcome> report, Outcome outcome) {
		try {
			report.accept(outcome);
		} catch (Throwable t) {
			LOG.log(System.Logger.Level.ERROR, "weir: a report failed", t);
		}
	}
}
