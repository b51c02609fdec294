package io.github.weiragent;

/** Bytes that do not decode. */
final class DecodeException extends Exception {
	private static final long serialVersionUID = 1;

	private final Verdict verdict;
	private final int version;

	DecodeException(Verdict verdict) {
		this(verdict, 0);
	}

	DecodeException(Verdict verdict, int version) {
		super(verdict.toString());
		this.verdict = verdict;
		this.version = version;
	}

	Verdict verdict() {
		return verdict;
	}

	/** Returns the peer's version with VERSION_MISMATCH. */
	int version() {
		return version;
	}
}
