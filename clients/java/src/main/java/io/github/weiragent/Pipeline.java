package io.github.weiragent;

import java.util.ArrayDeque;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Consumer;

/**
 * The records of a producer that wait for a connection, and the room for all that have no outcome. Many threads add, one takes.
 * Records are taken, and get their outcomes, in the order in which they were added.
 */
final class Pipeline {
	/** A record on its way. */
	static final class Entry {
		final byte[] frame;
		final Consumer<Outcome> report;
		long start; // of its frame in the stream of the connection; of the thread that took it

		Entry(byte[] frame, Consumer<Outcome> report) {
			this.frame = frame;
			this.report = report;
		}

		long end() {
			return start + frame.length;
		}
	}

	private final int mostRecords;
	private final long mostBytes;
	private final Runnable waker; // wakes the thread that takes

	private final ReentrantLock lock = new ReentrantLock();
	private final Condition changed = lock.newCondition();
	// All of this is under the lock.
	private final ArrayDeque<Entry> waiting = new ArrayDeque<>();
	private long added;
	private long settled;
	private long bytes; // of the frames that have no outcome
	private boolean parked; // the thread that takes sleeps until something is added
	private boolean shut; // nothing more is added
	private boolean ended; // what has no outcome is given up

	/** At most mostRecords of mostBytes of frames are in it; a frame above mostBytes has to be alone. */
	Pipeline(int mostRecords, long mostBytes, Runnable waker) {
		this.mostRecords = mostRecords;
		this.mostBytes = mostBytes;
		this.waker = waker;
	}

	/** Adds a record; false if there was no room in time. */
	boolean add(Entry e, long nanos) throws WeirException.Closed, InterruptedException {
		boolean wake;
		lock.lockInterruptibly();
		try {
			long left = nanos;
			while (!shut && !room(e.frame.length)) {
				if (left <= 0) {
					return false;
				}
				left = changed.awaitNanos(left);
			}
			if (shut) {
				throw new WeirException.Closed("the producer is closed");
			}
			waiting.add(e);
			added++;
			bytes += e.frame.length;
			wake = parked;
			parked = false;
		} finally {
			lock.unlock();
		}
		if (wake) {
			waker.run();
		}
		return true;
	}

	private boolean room(int frameBytes) {
		long count = added - settled;
		return count == 0 || count < mostRecords && bytes + frameBytes <= mostBytes;
	}

	/** Takes the next record; null if none waits. */
	Entry take() {
		lock.lock();
		try {
			return waiting.poll();
		} finally {
			lock.unlock();
		}
	}

	/** Puts a record back to the front; the last one that was taken comes first. */
	void putBack(Entry e) {
		lock.lock();
		try {
			waiting.addFirst(e);
		} finally {
			lock.unlock();
		}
	}

	boolean hasWaiting() {
		lock.lock();
		try {
			return !waiting.isEmpty();
		} finally {
			lock.unlock();
		}
	}

	/** Says that the outcomes of so many records, with frames of so many bytes, were reported. */
	void settled(int records, long frameBytes) {
		lock.lock();
		try {
			settled += records;
			bytes -= frameBytes;
			changed.signalAll();
		} finally {
			lock.unlock();
		}
	}

	/** Waits until all records that were added before have their outcomes; false if they have not in time. */
	boolean await(long nanos) throws InterruptedException {
		lock.lockInterruptibly();
		try {
			long goal = added;
			long left = nanos;
			while (settled < goal) {
				if (left <= 0) {
					return false;
				}
				left = changed.awaitNanos(left);
			}
			return true;
		} finally {
			lock.unlock();
		}
	}

	/** Lets nothing more be added. */
	void shut() {
		lock.lock();
		try {
			shut = true;
			changed.signalAll();
		} finally {
			lock.unlock();
		}
	}

	/** Tells the thread that takes to give up what has no outcome. */
	void end() {
		shut();
		lock.lock();
		try {
			ended = true;
		} finally {
			lock.unlock();
		}
		waker.run();
	}

	boolean ended() {
		lock.lock();
		try {
			return ended;
		} finally {
			lock.unlock();
		}
	}

	/**
	 * Announces that the thread that takes is about to sleep, and reports whether it may: not at the end, nor, if it heeds that, while
	 * records wait.
	 */
	boolean park(boolean heedsWaiting) {
		lock.lock();
		try {
			parked = heedsWaiting && waiting.isEmpty();
			return !ended && (parked || !heedsWaiting);
		} finally {
			lock.unlock();
		}
	}
}
