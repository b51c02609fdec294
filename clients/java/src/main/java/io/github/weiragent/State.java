package io.github.weiragent;

/** What is known of a record. */
public enum State {
	/** It is as safe as it was asked to be. */
	ACKED,
	/** It is not stored, and sending it again will not help. */
	REFUSED,
	/** It may be stored or not: send it again, and expect that it may arrive twice. */
	UNKNOWN
}
