package io.github.weiragent;

import java.util.function.DoubleSupplier;

/** Pauses between tries to connect: doubling from least to most, each cut by up to half at random. */
final class Backoff {
	private final long leastNanos;
	private final long mostNanos;
	private final DoubleSupplier jitter;
	private int failures;

	Backoff(long leastNanos, long mostNanos, DoubleSupplier jitter) {
		this.leastNanos = leastNanos;
		this.mostNanos = mostNanos;
		this.jitter = jitter;
	}

	/** Returns how long to wait after a connection, or a try at one, came to its end: not at all after a useful one. */
	long nanosAfter(boolean useful) {
		if (useful) {
			failures = 0;
			return 0;
		}
		double pause = Math.min(mostNanos, leastNanos * Math.pow(2, failures));
		failures = Math.min(failures + 1, 62);
		return (long) (pause * (1 - jitter.getAsDouble() / 2));
	}
}
