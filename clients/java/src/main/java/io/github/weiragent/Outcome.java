package io.github.weiragent;

/**
 * What became of one record of a a producer.
 *
 * @param state what is known of the record
 * @param error why it is not ACKED; null if it is
 */
public record Outcome(State state, WeirException error) {
	static final Outcome ACKED = new Outcome(State.ACKED, null);

	static Outcome of(WeirException error) {
		return new Outcome(error.state(), error);
	}
}
