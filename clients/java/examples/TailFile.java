import io.github.weiragent.Client;
import io.github.weiragent.State;
import io.github.weiragent.WeirException;
import java.io.ByteArrayOutputStream;
import java.io.FileInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ThreadLocalRandom;

/**
 * Follows a file and pushes each line that is added to it: TailFile FILE [SOCKET]. A line that got no ack is pushed again, so none is lost
 * while the program runs; it may be delivered twice. A line without an end is pushed when its end is written.
 *
 * <p>After mvn package: java -cp target/classes examples/TailFile.java FILE
 */
public final class TailFile {
	private static final int BATCH_RECORDS = 512;
	private static final int BATCH_BYTES = 1 << 20; // from there on a batch is pushed
	private static final int MAX_LINE_BYTES = 1 << 20; // a longer line is cut into records of this length

	public static void main(String[] args) throws IOException, InterruptedException {
		if (args.length < 1 || args.length > 2) {
			System.err.println("usage: TailFile FILE [SOCKET]");
			System.exit(2);
		}
		try (InputStream in = new FileInputStream(args[0]); Client client = new Client(args.length > 1 ? Path.of(args[1]) : null)) {
			follow(in, client);
		}
	}

	private static void follow(InputStream in, Client client) throws IOException, InterruptedException {
		byte[] chunk = new byte[64 << 10];
		ByteArrayOutputStream line = new ByteArrayOutputStream();
		List<byte[]> lines = new ArrayList<>();
		int bytes = 0; // in lines
		for (;;) {
			int n = in.read(chunk);
			for (int i = 0; i < n; i++) {
				boolean end = chunk[i] == '\n';
				if (!end) {
					line.write(chunk[i]);
				}
				if (line.size() > 0 && (end || line.size() == MAX_LINE_BYTES)) {
					lines.add(line.toByteArray());
					bytes += line.size();
					line.reset();
				}
				if (lines.size() == BATCH_RECORDS || bytes >= BATCH_BYTES) {
					push(client, lines);
					bytes = 0;
				}
			}
			push(client, lines);
			bytes = 0;
			if (n < 0) {
				Thread.sleep(200);
			}
		}
	}

	/** Pushes lines until each is acked, and empties the list. */
	private static void push(Client client, List<byte[]> lines) throws InterruptedException {
		for (long pause = 50; !lines.isEmpty(); pause = Math.min(2 * pause, 5000)) {
			try {
				boolean[] acked = client.pushBatch(lines);
				List<byte[]> rest = new ArrayList<>();
				for (int i = 0; i < acked.length; i++) {
					if (!acked[i]) {
						rest.add(lines.get(i));
					}
				}
				lines.clear();
				lines.addAll(rest);
				if (rest.isEmpty()) {
					return;
				}
			} catch (WeirException e) {
				System.err.println(e.getMessage());
				if (e.state() == State.REFUSED) {
					System.exit(1); // to leave lines out is for a person to decide
				}
			}
			Thread.sleep(pause / 2 + ThreadLocalRandom.current().nextLong(pause / 2));
		}
	}
}
