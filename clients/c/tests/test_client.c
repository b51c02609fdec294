/* test_client - the client against a server that misbehaves: what it says of each answer, and that a connection is
 * used no more after anything that leaves doubt. */
#include "../weir.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int failures, checks;

#define CHECK(cond, ...)                                         \
	do {                                                         \
		checks++;                                                \
		if (!(cond)) {                                           \
			failures++;                                          \
			printf("%s:%d: %s: ", __func__, __LINE__, #cond);    \
			printf(__VA_ARGS__);                                 \
			putchar('\n');                                       \
		}                                                        \
	} while (0)

/* A server answers the requests of each connection with the next of its answers, whole or a part, and may close then. */
typedef struct {
	uint8_t bytes[512];
	size_t len;
	int close;    /* after it */
	int hold;     /* sends it only when the next request comes: too late for the one that it answers */
} answer;

typedef struct {
	char path[64];
	int fd;
	pthread_t thread;
	const answer *answers;
	size_t n;
	int connections;
} server;

static size_t reply(uint8_t *out, weir_type type, const void *payload, size_t len) {
	weir_encode_header(out, type, WEIR_DURABLE, (uint32_t)len);
	if (len > 0)
		memcpy(out + WEIR_HEADER_LEN, payload, len);
	uint32_t crc = weir_crc32(0, payload, len);
	for (int i = 0; i < 4; i++)
		out[WEIR_HEADER_LEN + len + (size_t)i] = (uint8_t)(crc >> (8 * i));
	return len + WEIR_FRAME_OVERHEAD;
}

static answer frame_answer(weir_type type, const void *payload, size_t len) {
	answer a = {.close = 0};
	a.len = reply(a.bytes, type, payload, len);
	return a;
}

static answer nack_answer(uint8_t reason) {
	uint8_t payload[2] = {reason, 9};
	answer a = frame_answer(WEIR_T_NACK, payload, reason == WEIR_REASON_VERSION_MISMATCH ? 2 : 1);
	a.close = reason != WEIR_REASON_INTERNAL_ERROR;
	return a;
}

/* read_request reads one whole frame; 0 at the end of the connection. */
static int read_request(int fd) {
	uint8_t head[WEIR_HEADER_LEN], rest[4096];
	if (recv(fd, head, sizeof head, MSG_WAITALL) != sizeof head)
		return 0;
	weir_header h;
	if (weir_decode_header(head, &h) != WEIR_V_OK)
		return 0;
	for (size_t left = (size_t)h.payload_len + 4; left > 0;) {
		ssize_t k = recv(fd, rest, left < sizeof rest ? left : sizeof rest, 0);
		if (k <= 0)
			return 0;
		left -= (size_t)k;
	}
	return 1;
}

static void *serve(void *arg) {
	server *s = arg;
	size_t next = 0;
	while (next < s->n) {
		int fd = accept(s->fd, NULL, NULL);
		if (fd < 0)
			break;
		s->connections++;
		while (next < s->n && read_request(fd)) {
			const answer *a = &s->answers[next++];
			if (a->hold && !read_request(fd)) /* the client has gone meanwhile */
				break;
			if (a->len > 0 && send(fd, a->bytes, a->len, MSG_NOSIGNAL) < 0)
				break;
			if (a->close)
				break;
		}
		close(fd);
	}
	return NULL;
}

static void start(server *s, const answer *answers, size_t n) {
	static int number;
	memset(s, 0, sizeof *s);
	s->answers = answers;
	s->n = n;
	snprintf(s->path, sizeof s->path, "/tmp/weir-c-test-%d-%d.sock", (int)getpid(), number++);
	unlink(s->path);
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	memcpy(a.sun_path, s->path, strlen(s->path) + 1);
	s->fd = socket(AF_UNIX, SOCK_STREAM, 0);
	if (s->fd < 0 || bind(s->fd, (struct sockaddr *)&a, sizeof a) != 0 || listen(s->fd, 8) != 0 || pthread_create(&s->thread, NULL, serve, s) != 0) {
		perror("server");
		exit(1);
	}
}

static void stop(server *s) {
	shutdown(s->fd, SHUT_RDWR);
	pthread_join(s->thread, NULL);
	close(s->fd);
	unlink(s->path);
}

/* one pushes once against one answer, and once more against an Ack. */
static weir_status one(const answer *first, weir_error *error, int *connections) {
	answer answers[2] = {*first, frame_answer(WEIR_T_ACK, NULL, 0)};
	server s;
	start(&s, answers, 2);
	weir_client c;
	weir_init(&c, s.path, 300);
	weir_status got = weir_push(&c, WEIR_DURABLE, "x", 1);
	*error = c.error;
	weir_status again = weir_push(&c, WEIR_DURABLE, "y", 1);
	CHECK(again == WEIR_OK, "the push after it: %s", c.error.text);
	weir_close(&c);
	stop(&s);
	*connections = s.connections;
	return got;
}

static void test_nacks(void) {
	for (int reason = 1; reason < 256; reason++) {
		weir_error e;
		int connections;
		answer a = nack_answer((uint8_t)reason);
		weir_status s = one(&a, &e, &connections);
		int transient = reason == WEIR_REASON_INTERNAL_ERROR;
		CHECK(s == (transient ? WEIR_TRANSIENT : WEIR_REFUSED), "reason %d: status %d", reason, (int)s);
		CHECK(e.reason == reason, "reason %d surfaced as %d", reason, e.reason);
		CHECK(connections == (transient ? 1 : 2), "reason %d: %d connections", reason, connections);
		if (reason == WEIR_REASON_VERSION_MISMATCH)
			CHECK(e.daemon_version == 9 && strstr(e.text, "version 9") && strstr(e.text, "version 1"), "%s", e.text);
		if (reason > 0x0b || reason == 0x0a)
			CHECK(strstr(e.text, "Unassigned") != NULL, "reason %d: %s", reason, e.text);
	}
}

static void test_misbehaviour(void) {
	answer garbage = {.len = 40, .close = 1};
	memset(garbage.bytes, 'g', sizeof garbage.bytes);
	answer half = frame_answer(WEIR_T_ACK, NULL, 0);
	half.len = 7, half.close = 1;
	answer nothing = {.len = 0, .close = 1};
	answer silence = {.len = 0, .close = 0};
	answer health = frame_answer(WEIR_T_HEALTH_OK, NULL, 0);
	uint8_t big[400] = {0};
	answer tracked = frame_answer(WEIR_T_ACK_TRACKED, big, 60);
	answer fat_ack = frame_answer(WEIR_T_ACK, big, 1);
	answer fat_nack = frame_answer(WEIR_T_NACK, big, 3);
	answer empty_nack = frame_answer(WEIR_T_NACK, NULL, 0);
	answer request = frame_answer(WEIR_T_PUSH, "x", 1);
	answer bad_crc = frame_answer(WEIR_T_NACK, "\x06", 1);
	bad_crc.bytes[bad_crc.len - 1] ^= 1;
	answer version = frame_answer(WEIR_T_ACK, NULL, 0);
	version.bytes[4] = 2;
	answer huge = frame_answer(WEIR_T_ACK, NULL, 0); /* announces 16 MiB */
	weir_encode_header(huge.bytes, WEIR_T_ACK, WEIR_DURABLE, WEIR_MAX_PAYLOAD);
	struct {
		const char *name;
		answer *a;
	} cases[] = {
		{"garbage", &garbage}, {"half a reply", &half}, {"no reply", &nothing}, {"silence", &silence}, {"wrong type", &health},
		{"tracked ack to a push", &tracked}, {"ack with a payload", &fat_ack}, {"nack too long", &fat_nack}, {"nack without a reason", &empty_nack},
		{"a request", &request}, {"bad checksum", &bad_crc}, {"other version", &version}, {"announces 16 MiB", &huge},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		weir_error e;
		int connections;
		weir_status s = one(cases[i].a, &e, &connections);
		CHECK(s == WEIR_UNKNOWN, "%s: status %d, %s", cases[i].name, (int)s, e.text);
		CHECK(connections == 2, "%s: %d connections", cases[i].name, connections);
	}
}

/* An answer that comes after the timeout must not be taken for the answer to the next push. */
static void test_late_answer(void) {
	answer late = frame_answer(WEIR_T_ACK, NULL, 0);
	late.hold = 1;
	weir_error e;
	int connections;
	CHECK(one(&late, &e, &connections) == WEIR_UNKNOWN, "%s", e.text);
	CHECK(connections == 2, "%d connections", connections);
}

static void test_arguments(void) {
	weir_client c;
	char path[200];
	memset(path, 'p', sizeof path - 1);
	path[sizeof path - 1] = 0;
	CHECK(weir_init(&c, path, 0) == WEIR_INVALID, "a path that is too long");
	CHECK(weir_init(&c, "/nowhere/weir.sock", 100) == WEIR_OK, "%s", c.error.text);
	CHECK(weir_push(&c, WEIR_DURABLE, "", 0) == WEIR_INVALID, "an empty record");
	CHECK(weir_push(&c, WEIR_DURABLE, path, (size_t)WEIR_MAX_PAYLOAD + 1) == WEIR_INVALID, "a record that is too large");
	uint8_t acked[1];
	weir_slice empty[] = {{"", 0}};
	CHECK(weir_push_batch(&c, WEIR_DURABLE, empty, 1, acked) == WEIR_INVALID, "an empty record in a batch");
	CHECK(weir_push_batch(&c, WEIR_DURABLE, empty, 0, acked) == WEIR_INVALID, "an empty batch");
	CHECK(weir_push_batch(&c, WEIR_DURABLE, empty, WEIR_MAX_BATCH_RECORDS + 1, acked) == WEIR_INVALID, "a batch with too many records");
	CHECK(weir_push(&c, WEIR_DURABLE, "x", 1) == WEIR_UNKNOWN && c.error.sys_errno != 0, "no daemon: %s", c.error.text);
	setenv("WEIR_SOCKET", "/from/the/environment", 1);
	CHECK(weir_init(&c, NULL, 0) == WEIR_OK && strcmp(c.path, "/from/the/environment") == 0, "path %s", c.path);
	unsetenv("WEIR_SOCKET");
	CHECK(weir_init(&c, NULL, 0) == WEIR_OK && strcmp(c.path, "weir-data/weir.sock") == 0, "path %s", c.path);
}

static void test_batch(void) {
	/* Nine records, asymmetric: 1000_0001 0 would read as another set under the other order of bits. */
	uint8_t good[] = {1, 9, 0, 0x0d, 0x01}, count[] = {1, 8, 0, 0x0d}, padded[] = {1, 9, 0, 0x0d, 0x03}, shorter[] = {1, 9, 0, 0x0d}, version[] = {2, 9, 0, 0x0d, 0x01};
	answer answers[] = {
		frame_answer(WEIR_T_ACK_BATCH, good, sizeof good), frame_answer(WEIR_T_ACK_BATCH, count, sizeof count),
		frame_answer(WEIR_T_ACK_BATCH, padded, sizeof padded), frame_answer(WEIR_T_ACK_BATCH, shorter, sizeof shorter),
		frame_answer(WEIR_T_ACK_BATCH, version, sizeof version), nack_answer(WEIR_REASON_BAD_BATCH_FRAMING),
	};
	server s;
	start(&s, answers, sizeof answers / sizeof *answers);
	weir_client c;
	weir_init(&c, s.path, 1000);
	weir_slice records[9];
	for (int i = 0; i < 9; i++)
		records[i] = (weir_slice){"record", 6};
	uint8_t acked[9], want[9] = {1, 0, 1, 1, 0, 0, 0, 0, 1};
	CHECK(weir_push_batch(&c, WEIR_DURABLE, records, 9, acked) == WEIR_OK, "%s", c.error.text);
	CHECK(memcmp(acked, want, sizeof want) == 0, "bits %d%d%d%d%d%d%d%d%d", acked[0], acked[1], acked[2], acked[3], acked[4], acked[5], acked[6], acked[7], acked[8]);
	for (int i = 0; i < 4; i++)
		CHECK(weir_push_batch(&c, WEIR_DURABLE, records, 9, acked) == WEIR_UNKNOWN, "answer %d: %s", i, c.error.text);
	CHECK(weir_push_batch(&c, WEIR_DURABLE, records, 9, acked) == WEIR_REFUSED && c.error.reason == WEIR_REASON_BAD_BATCH_FRAMING, "%s", c.error.text);
	weir_close(&c);
	stop(&s);
}

static void test_tracked(void) {
	uint8_t coordinate[43 + 5] = {1, 7};
	memcpy(coordinate + 43, "seg/a", 5);
	coordinate[41] = 5;
	weir_record_id("seg/a", 5, 7, "hello", 5, coordinate + 9);
	answer good = frame_answer(WEIR_T_ACK_TRACKED, coordinate, sizeof coordinate);
	coordinate[9] ^= 1;
	answer other = frame_answer(WEIR_T_ACK_TRACKED, coordinate, sizeof coordinate);
	answer cut = frame_answer(WEIR_T_ACK_TRACKED, coordinate, 42);
	answer answers[] = {good, other, cut};
	server s;
	start(&s, answers, 3);
	weir_client c;
	weir_coordinate at;
	weir_init(&c, s.path, 1000);
	CHECK(weir_push_tracked(&c, WEIR_DURABLE, "hello", 5, &at) == WEIR_OK, "%s", c.error.text);
	CHECK(at.index == 7 && strcmp(at.segment, "seg/a") == 0, "at %s/%llu", at.segment, (unsigned long long)at.index);
	CHECK(weir_push_tracked(&c, WEIR_DURABLE, "hello", 5, &at) == WEIR_UNKNOWN, "an id of another record");
	CHECK(weir_push_tracked(&c, WEIR_DURABLE, "hello", 5, &at) == WEIR_UNKNOWN, "a coordinate that is cut");
	weir_close(&c);
	stop(&s);
}

/* outcomes notes what a producer reports. */
typedef struct {
	int n;
	intptr_t tags[64];
	weir_status statuses[64];
} outcomes;

static void note(void *context, void *tag, weir_status s, const weir_error *e) {
	outcomes *o = context;
	CHECK((s == WEIR_OK) == (e == NULL), "an error with status %d", (int)s);
	o->tags[o->n] = (intptr_t)tag;
	o->statuses[o->n++] = s;
}

static void test_producer(void) {
	answer ack = frame_answer(WEIR_T_ACK, NULL, 0), garbage = {.len = 16, .close = 1};
	memset(garbage.bytes, 'g', 16);
	answer answers[] = {ack, ack, nack_answer(WEIR_REASON_INTERNAL_ERROR), ack, nack_answer(WEIR_REASON_PAYLOAD_TOO_LARGE), ack, ack, garbage, ack};
	server s;
	start(&s, answers, sizeof answers / sizeof *answers);
	void *tags[4];
	uint8_t buffer[256];
	outcomes o = {0};
	weir_producer p;
	weir_producer_options options = {.path = s.path, .timeout_ms = 1000, .max_backoff_ms = 60, .outcome = note, .context = &o, .tags = tags, .window = 4, .buffer = buffer, .buffer_len = sizeof buffer};
	CHECK(weir_producer_init(&p, &options) == WEIR_OK, "%s", p.client.error.text);
	intptr_t sent = 0;
	weir_status want[] = {WEIR_OK, WEIR_OK, WEIR_TRANSIENT, WEIR_OK, WEIR_REFUSED, WEIR_OK, WEIR_OK, WEIR_UNKNOWN, WEIR_OK};
	for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
		CHECK(weir_producer_send(&p, "payload", 7, (void *)sent++) == WEIR_OK, "%s", p.client.error.text);
		if (i >= 3) /* one at a time, so that each answer belongs to one record */
			(void)weir_producer_flush(&p);
	}
	(void)weir_producer_close(&p);
	CHECK(o.n == (int)sent, "%d outcomes for %d records", o.n, (int)sent);
	for (int i = 0; i < o.n; i++) {
		CHECK(o.tags[i] == i, "outcome %d is of record %d", i, (int)o.tags[i]);
		CHECK(o.statuses[i] == want[i], "record %d: status %d, want %d", i, (int)o.statuses[i], (int)want[i]);
	}
	CHECK(weir_producer_send(&p, "", 0, NULL) == WEIR_INVALID, "an empty record");
	CHECK(weir_producer_send(&p, buffer, sizeof buffer, NULL) == WEIR_INVALID, "a record larger than the buffer");
	stop(&s);
	CHECK(s.connections == 3, "%d connections", s.connections);
}

/* Everything in flight on a connection that is lost is unknown, and nothing is told twice. */
static void test_producer_loses_its_window(void) {
	answer closing = frame_answer(WEIR_T_ACK, NULL, 0);
	closing.close = 1;
	server s;
	start(&s, &closing, 1);
	void *tags[32];
	uint8_t buffer[1024];
	outcomes o = {0};
	weir_producer p;
	weir_producer_options options = {.path = s.path, .timeout_ms = 1000, .max_backoff_ms = 50, .outcome = note, .context = &o, .tags = tags, .window = 32, .buffer = buffer, .buffer_len = sizeof buffer};
	weir_producer_init(&p, &options);
	for (intptr_t i = 0; i < 20; i++)
		weir_producer_send(&p, "payload", 7, (void *)i);
	CHECK(weir_producer_flush(&p) == WEIR_UNKNOWN, "the connection is lost");
	CHECK(o.n == 20 && o.statuses[0] == WEIR_OK, "%d outcomes, the first %d", o.n, (int)o.statuses[0]);
	for (int i = 1; i < o.n; i++)
		CHECK(o.statuses[i] == WEIR_UNKNOWN && o.tags[i] == i, "record %d: status %d", i, (int)o.statuses[i]);
	stop(&s);
	weir_producer_send(&p, "payload", 7, NULL);
	CHECK(o.n == 21 && o.statuses[20] == WEIR_UNKNOWN, "a send without a daemon: %d outcomes", o.n);
	weir_producer_close(&p);
}

int main(void) {
	test_arguments();
	test_nacks();
	test_misbehaviour();
	test_late_answer();
	test_batch();
	test_tracked();
	test_producer();
	test_producer_loses_its_window();
	printf("%d passed, %d failed\n", checks - failures, failures);
	return failures != 0;
}
