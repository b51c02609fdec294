package io.github.weiragent;

import java.time.Duration;

/** Durations as nanoseconds. */
final class Times {
	static final Duration DEFAULT_TIMEOUT = Duration.ofSeconds(30);
	/** Long enough to be for ever, and short enough to be added to a time. */
	static final long FOREVER_NANOS = Long.MAX_VALUE / 2;

	private static final Duration FOREVER = Duration.ofNanos(FOREVER_NANOS);

	private Times() {}

	static long nanos(Duration d) {
		return d.compareTo(FOREVER) > 0 ? FOREVER_NANOS : d.toNanos();
	}

	static long positiveNanos(Duration d, String what) {
		if (d.isNegative() || d.isZero()) {
			throw new IllegalArgumentException("weir: " + what + " has to be above zero");
		}
		return nanos(d);
	}
}
