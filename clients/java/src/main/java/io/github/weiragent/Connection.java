package io.github.weiragent;

import java.io.IOException;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.CancelledKeyException;
import java.nio.channels.ClosedChannelException;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.SocketChannel;
import java.nio.channels.UnsupportedAddressTypeException;
import java.nio.file.Path;
import java.util.Map;

/**
 * One connection: a socket that does not block, what waits to be written to it, and the answers that came. It is for one thread;
 * only {@link #abort} is for others.
 */
final class Connection {
	static final int OUT_BYTES = 64 << 10;

	private static final int IN_BYTES = 16 << 10; // many replies, and any single one
	private static final Path DEFAULT_SOCKET = Path.of("weir-data", "weir.sock");

	private final Selector selector;
	private final SocketChannel channel;
	private final SelectionKey key;
	private final ByteBuffer out = ByteBuffer.allocateDirect(OUT_BYTES); // ready to be filled
	private final ByteBuffer in = ByteBuffer.allocate(IN_BYTES).limit(0); // ready to be parsed

	/** Connects to a path, which never waits: where the daemon's queue of connections is full, it fails. */
	Connection(Path path, Selector selector) throws WeirException {
		this.selector = selector;
		SocketChannel made = null;
		try {
			made = SocketChannel.open(StandardProtocolFamily.UNIX);
			made.configureBlocking(false);
			if (!made.connect(UnixDomainSocketAddress.of(path))) {
				throw new IOException("the daemon's queue of connections is full");
			}
			channel = made;
			key = made.register(selector, SelectionKey.OP_READ);
		} catch (IOException | UnsupportedOperationException | UnsupportedAddressTypeException e) {
			discard(made);
			throw new WeirException.ConnectFailed("connect to " + path + ": " + describe(e), e);
		}
	}

	/** Returns the path, or else that of WEIR_SOCKET, or else the socket of a {@code weir run} in the same folder. */
	static Path path(Path given, Map<String, String> environment) {
		if (given != null) {
			return given;
		}
		String named = environment.getOrDefault("WEIR_SOCKET", "");
		return named.isEmpty() ? DEFAULT_SOCKET : Path.of(named);
	}

	/** Takes bytes of a frame to be written, as many as there is room for, and returns their number. */
	int put(byte[] frame, int from) {
		int n = Math.min(out.remaining(), frame.length - from);
		out.put(frame, from, n);
		return n;
	}

	/** Reports whether bytes wait to be written. */
	boolean pending() {
		return out.position() > 0;
	}

	/** Writes what the socket takes of the bytes that wait, and returns their number. */
	int flush() throws IOException {
		out.flip();
		try {
			return channel.write(out);
		} finally {
			out.compact();
		}
	}

	/** Reads once, without waiting. Returns false at the end of the stream. Every whole answer has to be taken before. */
	boolean read() throws IOException {
		in.compact();
		try {
			return channel.read(in) >= 0;
		} finally {
			in.flip();
		}
	}

	/** Reports whether bytes came that were not taken by {@link #reply}. */
	boolean hasInput() {
		return in.hasRemaining();
	}

	/**
	 * Returns the payload of the answer to a frame of type {@code sent}, or null if it is not all there. A Nack is thrown as what it
	 * stands for. The connection is of use only after an answer and after {@link WeirException.Transient}.
	 */
	byte[] reply(MessageType sent) throws WeirException {
		int at = in.position();
		int have = in.remaining();
		if (have < Codec.HEADER_BYTES) {
			return null;
		}
		try {
			Codec.Header h = Codec.decodeReplyHeader(in.array(), at, have, sent);
			if (have < h.frameBytes()) {
				return null;
			}
			byte[] payload = Codec.decodePayload(in.array(), at, have, h);
			in.position(at + h.frameBytes());
			if (h.type() == MessageType.NACK) {
				throw WeirException.of(Codec.decodeNack(payload));
			}
			return payload;
		} catch (DecodeException e) {
			throw new WeirException.BadReply(e);
		}
	}

	/** Waits until the socket is ready for one of ops, somebody wakes the selector, or the time is over. */
	void await(int ops, long nanos) throws IOException {
		try {
			key.interestOps(ops);
		} catch (CancelledKeyException e) {
			throw new ClosedChannelException();
		}
		select(selector, nanos);
	}

	/** Waits for what is registered, or for a wake-up, or until the time is over. */
	static void select(Selector selector, long nanos) throws IOException {
		if (nanos <= 0) {
			selector.selectNow(k -> {});
		} else {
			selector.select(k -> {}, Math.max(1, nanos / 1_000_000 + 1));
		}
	}

	/** Makes the calls of the thread that has the connection fail, now and later. */
	void abort() {
		discard(channel);
		selector.wakeup();
	}

	/** Closes the connection. */
	void close() {
		discard(channel);
		try {
			selector.selectNow(k -> {}); // a socket that is registered stays open until then
		} catch (IOException e) {
			// The channel is closed, which is all that its user can tell.
			return;
		}
	}

	private static void discard(SocketChannel channel) {
		if (channel == null) {
			return;
		}
		try {
			channel.close();
		} catch (IOException e) {
			// Nothing that was written or read depends on it.
			return;
		}
	}

	/** Says what an error is about. */
	static String describe(Exception e) {
		if (e instanceof ClosedChannelException) {
			return "closed by another thread";
		}
		return e.getMessage() == null ? e.getClass().getSimpleName() : e.getMessage();
	}
}
