package io.github.weiragent;

import java.io.IOException;

/** The base of all errors of this package. {@link #state} tells what one means for the records of the call. */
public abstract sealed class WeirException extends IOException {
	private static final long serialVersionUID = 1;

	private WeirException(String text, Throwable cause) {
		super("weir: " + text, cause);
	}

	/** Returns what is known of the records of the call; it is never ACKED. */
	public State state() {
		return State.UNKNOWN;
	}

	/**
	 * The record, or the whole batch, is not stored and never will be: do not send it again as it is. A check before sending gives
	 * the reason that the daemon would give.
	 */
	public static sealed class Refused extends WeirException {
		private static final long serialVersionUID = 1;
		private final int reason;

		Refused(Reason reason, String text) {
			super(String.format("refused, %s (0x%02X): %s", reason, reason.number(), text), null);
			this.reason = reason.number();
		}

		@Override
		public State state() {
			return State.REFUSED;
		}

		/** Returns the byte of the protocol, that of a {@link Reason}. */
		public int reason() {
			return reason;
		}

		/** Returns the name of the reason, like PayloadTooLarge. */
		public String reasonName() {
			return Reason.nameOf(reason);
		}
	}

	/** The daemon speaks another version of the protocol. */
	public static final class VersionMismatch extends Refused {
		private static final long serialVersionUID = 1;
		private final int daemonVersion;

		VersionMismatch(int daemonVersion) {
			super(Reason.VERSION_MISMATCH, versions(daemonVersion));
			this.daemonVersion = daemonVersion;
		}

		/** Returns the daemon's version of the protocol. */
		public int daemonVersion() {
			return daemonVersion;
		}

		/** Returns this client's version of the protocol. */
		public int clientVersion() {
			return Codec.WIRE_VERSION;
		}
	}

	/** Not now: send it again after a pause. With the daemon's InternalError it may be stored all the same; the connection goes on. */
	public static sealed class Transient extends WeirException {
		private static final long serialVersionUID = 1;

		Transient(String text, Throwable cause) {
			super(text, cause);
		}
	}

	/** Nobody answers at the socket. Nothing was sent. */
	public static final class ConnectFailed extends Transient {
		private static final long serialVersionUID = 1;

		ConnectFailed(String text, Throwable cause) {
			super(text, cause);
		}
	}

	/** It was sent, in part at least, and there is no valid answer. The connection was dropped; the next call makes a new one. */
	public static sealed class UnknownOutcome extends WeirException {
		private static final long serialVersionUID = 1;

		UnknownOutcome(String text, Throwable cause) {
			super(text, cause);
		}
	}

	/** The answer did not come in time. */
	public static final class TimedOut extends UnknownOutcome {
		private static final long serialVersionUID = 1;

		TimedOut(String text) {
			super(text, null);
		}
	}

	/** The answer was not one. */
	public static final class BadReply extends UnknownOutcome {
		private static final long serialVersionUID = 1;
		private final Verdict verdict;

		BadReply(Verdict verdict, String text) {
			super("bad reply, " + verdict + ": " + text, null);
			this.verdict = verdict;
		}

		BadReply(DecodeException e) {
			this(e.verdict(), e.verdict() == Verdict.VERSION_MISMATCH ? versions(e.version()) : "the connection is of no more use");
		}

		/** Returns what was wrong. */
		public Verdict verdict() {
			return verdict;
		}
	}

	/** The daemon refused the frame for a reason that this client does not know, so nothing is assumed of it. */
	public static final class UnknownReason extends UnknownOutcome {
		private static final long serialVersionUID = 1;
		private final int reason;

		UnknownReason(int reason) {
			super("refused for an unknown reason, " + Reason.nameOf(reason), null);
			this.reason = reason;
		}

		/** Returns the byte as it came. */
		public int reason() {
			return reason;
		}

		/** Returns the byte in hex, like 0x0A. */
		public String reasonName() {
			return Reason.nameOf(reason);
		}
	}

	/** The client or producer is closed. The record was not sent. */
	public static final class Closed extends WeirException {
		private static final long serialVersionUID = 1;

		Closed(String text) {
			super(text, null);
		}
	}

	/** Returns the error that a Nack stands for. */
	static WeirException of(Codec.Nack nack) {
		Reason reason = Reason.of(nack.reason());
		if (reason == null) {
			return new UnknownReason(nack.reason());
		}
		return switch (reason) {
			case INTERNAL_ERROR -> new Transient("the daemon could not store it now, InternalError (0x06)", null);
			case VERSION_MISMATCH -> new VersionMismatch(nack.version());
			default -> new Refused(reason, "said the daemon");
		};
	}

	/** Says both sides of a version mismatch. */
	private static String versions(int daemon) {
		return "the daemon is on wire protocol v" + daemon + ", this client on v" + Codec.WIRE_VERSION + ": upgrade the older one";
	}
}
