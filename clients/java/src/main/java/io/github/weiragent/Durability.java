package io.github.weiragent;

/** How safe a record has to be before it is acked. Each record has its own. */
public enum Durability {
	/** Acked once the record is on stable storage. */
	DURABLE(0x01),
	/** Acked once the operating system has the record: it survives the death of the daemon, not of the machine. */
	BUFFERED(0x03);

	private final int number;

	Durability(int number) {
		this.number = number;
	}

	/** Returns the byte of the wire. */
	public int number() {
		return number;
	}
}
