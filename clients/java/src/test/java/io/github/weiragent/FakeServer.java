package io.github.weiragent;

import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;

/** A server that does on each connection what a test says: handler i has connection i, the last one all that follow. */
final class FakeServer implements AutoCloseable {
	static final long WATCHDOG_SECONDS = 20;
	static final byte[] ACK = frame(MessageType.ACK);
	static final byte[] HEALTHY = frame(MessageType.HEALTH_CHECK_RESPONSE);

	final Path path;
	final AtomicInteger connections = new AtomicInteger();

	private final Path dir;
	private final ServerSocketChannel listener;
	private final Handler[] handlers;
	private final List<Thread> threads = new ArrayList<>();
	private final List<SocketChannel> open = new ArrayList<>();
	private final AtomicReference<Throwable> fault = new AtomicReference<>();
	private final Thread accepting = new Thread(this::accept);

	interface Handler {
		void handle(Peer peer) throws Exception;
	}

	FakeServer(Handler... handlers) throws IOException {
		this.handlers = handlers;
		dir = Files.createTempDirectory("weir");
		path = dir.resolve("s");
		listener = ServerSocketChannel.open(StandardProtocolFamily.UNIX);
		listener.bind(UnixDomainSocketAddress.of(path));
		accepting.start();
	}

	/** One connection, as the server has it. */
	static final class Peer {
		private final SocketChannel channel;

		Peer(SocketChannel channel) {
			this.channel = channel;
		}

		/** Sends replies in one write. */
		void send(byte[]... replies) throws IOException {
			ByteArrayOutputStream all = new ByteArrayOutputStream();
			for (byte[] r : replies) {
				all.writeBytes(r);
			}
			ByteBuffer out = ByteBuffer.wrap(all.toByteArray());
			while (out.hasRemaining()) {
				channel.write(out);
			}
		}

		/** Reads so many bytes; null at the end of the stream. */
		byte[] bytes(int n) throws IOException {
			ByteBuffer in = ByteBuffer.allocate(n);
			while (in.hasRemaining()) {
				if (channel.read(in) < 0) {
					return null;
				}
			}
			return in.array();
		}

		/** Reads a frame; null at the end of the stream. */
		Codec.Frame frame() throws IOException, DecodeException {
			byte[] head = bytes(Codec.HEADER_BYTES);
			if (head == null) {
				return null;
			}
			Codec.Header h = Codec.decodeHeader(head, 0, head.length);
			byte[] whole = Arrays.copyOf(head, h.frameBytes());
			byte[] rest = bytes(h.payloadBytes() + Codec.TRAILER_BYTES);
			if (rest == null) {
				return null;
			}
			System.arraycopy(rest, 0, whole, head.length, rest.length);
			return Codec.decodeFrame(whole);
		}

		void frames(int n) throws IOException, DecodeException {
			for (int i = 0; i < n; i++) {
				frame();
			}
		}

		/** Reports whether nothing is there to be read. */
		boolean quiet() throws IOException {
			channel.configureBlocking(false);
			try {
				return channel.read(ByteBuffer.allocate(1)) == 0;
			} finally {
				channel.configureBlocking(true);
			}
		}

		/** Closes the connection. */
		void shut() throws IOException {
			channel.close();
		}

		/** Reads until the client closes. */
		void untilClosed() throws IOException {
			while (bytes(1) != null) {
				continue;
			}
		}
	}

	static byte[] frame(MessageType type, int... payload) {
		byte[] b = new byte[payload.length];
		for (int i = 0; i < b.length; i++) {
			b[i] = (byte) payload[i];
		}
		return Codec.encodeFrame(type, Durability.DURABLE, b);
	}

	static byte[] nack(Reason reason) {
		return frame(MessageType.NACK, reason.number());
	}

	static byte[] ackBatch(boolean... acked) {
		return Codec.encodeFrame(MessageType.ACK_BATCH, Durability.DURABLE, Codec.encodeAckBatch(acked));
	}

	static byte[] ackTracked(byte[] payload) {
		Coordinate at = new Coordinate("shard_00/seg", 7, Codec.recordId("shard_00/seg", 7, payload));
		return Codec.encodeFrame(MessageType.ACK_TRACKED, Durability.DURABLE, Codec.encodeCoordinate(at));
	}

	/** Answers one frame with each reply, and closes when the client does. */
	static Handler replying(byte[]... replies) {
		return peer -> {
			for (byte[] r : replies) {
				peer.frame();
				peer.send(r);
			}
			peer.untilClosed();
		};
	}

	/** Answers one frame with bytes, and closes. */
	static Handler ending(byte[] reply) {
		return peer -> {
			peer.frame();
			peer.send(reply);
		};
	}

	/** Answers every frame with an Ack. */
	static void acking(Peer peer) throws IOException, DecodeException {
		while (peer.frame() != null) {
			peer.send(ACK);
		}
	}

	/** Waits for a latch that a test will count down. */
	static void await(CountDownLatch latch) throws InterruptedException {
		assertTrue(latch.await(WATCHDOG_SECONDS, TimeUnit.SECONDS), "it did not happen");
	}

	private void accept() {
		for (;;) {
			SocketChannel channel;
			try {
				channel = listener.accept();
			} catch (IOException e) {
				return; // closed
			}
			Handler h = handlers[Math.min(connections.getAndIncrement(), handlers.length - 1)];
			Thread t = new Thread(() -> handle(h, channel));
			synchronized (this) {
				open.add(channel);
				threads.add(t);
			}
			t.start();
		}
	}

	private void handle(Handler h, SocketChannel channel) {
		try (channel) {
			h.handle(new Peer(channel));
		} catch (IOException e) {
			return; // the client went away
		} catch (Throwable t) {
			fault.compareAndSet(null, t);
		}
	}

	/** Waits until the first n connections, which were made, have ended. */
	void untilEnded(int n) {
		List<Thread> first;
		synchronized (this) {
			first = List.copyOf(threads.subList(0, n));
		}
		first.forEach(FakeServer::join);
	}

	private static void join(Thread t) {
		try {
			t.join();
		} catch (InterruptedException e) {
			throw new AssertionError("nobody interrupts a test", e);
		}
	}

	/** Ends all connections, and fails if a handler did. */
	@Override
	public void close() throws IOException {
		listener.close();
		join(accepting);
		for (SocketChannel c : open) {
			c.close();
		}
		threads.forEach(FakeServer::join);
		Files.delete(path);
		Files.delete(dir);
		if (fault.get() != null) {
			throw new AssertionError("a handler failed", fault.get());
		}
	}
}
