/* live - pushes numbered records through a daemon that is killed now and then, and prints the number of each that was acked.
 *
 *   live SOCKET ledger N     until N records are acked, in turns one at a time, tracked, in batches and with many in flight
 *   live SOCKET bench SECONDS   prints records a second: one at a time, 256 in flight, batches of 1,000 */
#include "../weir.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WINDOW = 256, BATCH = 100, PAYLOAD = 256 };

static long acked;

static void note(void *context, void *tag, weir_status s, const weir_error *e) {
	(void)context, (void)e;
	if (s != WEIR_OK)
		return;
	acked++;
	if (tag != NULL)
		printf("%ld\n", (long)(intptr_t)tag);
}

static size_t payload(char *out, long n) { return (size_t)snprintf(out, PAYLOAD, "c record %ld", n); }

static void nap(void) {
	struct timespec t = {.tv_nsec = 2000000};
	nanosleep(&t, NULL);
}

static void batch(weir_client *c, long *next) {
	static char text[BATCH][PAYLOAD];
	weir_slice records[BATCH];
	uint8_t ok[BATCH];
	long first = *next;
	for (int i = 0; i < BATCH; i++)
		records[i] = (weir_slice){text[i], payload(text[i], (*next)++)};
	if (weir_push_batch(c, WEIR_DURABLE, records, BATCH, ok) != WEIR_OK) {
		nap();
		return;
	}
	for (int i = 0; i < BATCH; i++)
		if (ok[i])
			note(NULL, (void *)(intptr_t)(first + i), WEIR_OK, NULL);
}

static int ledger(const char *path, long want) {
	static void *tags[WINDOW];
	static uint8_t buffer[64 * 1024];
	char text[PAYLOAD];
	weir_client c;
	weir_producer p;
	weir_coordinate at;
	weir_producer_options o = {.path = path, .timeout_ms = 5000, .max_backoff_ms = 100, .outcome = note, .tags = tags, .window = WINDOW, .buffer = buffer, .buffer_len = sizeof buffer};
	if (weir_init(&c, path, 5000) != WEIR_OK || weir_producer_init(&p, &o) != WEIR_OK)
		return 1;
	for (long next = 1; acked < want;) {
		size_t n = payload(text, next);
		long number = next++;
		switch (number % 4) {
		case 0:
		case 1: {
			weir_status s = number % 4 ? weir_push(&c, WEIR_BUFFERED, text, n) : weir_push_tracked(&c, WEIR_DURABLE, text, n, &at);
			note(NULL, (void *)(intptr_t)number, s, NULL);
			if (s != WEIR_OK)
				nap();
			break;
		}
		case 2:
			batch(&c, &next);
			break;
		default:
			for (int i = 0; i < 50; i++) {
				n = payload(text, next);
				weir_producer_send(&p, text, n, (void *)(intptr_t)next);
				next++;
			}
		}
		fflush(stdout);
	}
	weir_producer_close(&p);
	weir_close(&c);
	return 0;
}

static double now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int bench(const char *path, double seconds) {
	static void *tags[WINDOW];
	static uint8_t buffer[64 * 1024], ok[1000];
	static weir_slice records[1000];
	char text[PAYLOAD];
	weir_client c;
	weir_producer p;
	weir_producer_options o = {.path = path, .outcome = note, .tags = tags, .window = WINDOW, .buffer = buffer, .buffer_len = sizeof buffer};
	memset(text, 'x', sizeof text);
	for (int i = 0; i < 1000; i++)
		records[i] = (weir_slice){text, sizeof text};
	if (weir_init(&c, path, 0) != WEIR_OK || weir_producer_init(&p, &o) != WEIR_OK)
		return 1;
	long n = 0;
	double began = now();
	for (; now() - began < seconds; n++)
		if (weir_push(&c, WEIR_DURABLE, text, sizeof text) != WEIR_OK)
			return 1;
	printf("one at a time %.0f records/s", (double)n / (now() - began));
	acked = 0;
	for (began = now(); now() - began < seconds;)
		if (weir_producer_send(&p, text, sizeof text, NULL) != WEIR_OK)
			return 1;
	if (weir_producer_close(&p) != WEIR_OK)
		return 1;
	printf(", 256 in flight %.0f", (double)acked / (now() - began));
	n = 0;
	for (began = now(); now() - began < seconds; n += 1000)
		if (weir_push_batch(&c, WEIR_DURABLE, records, 1000, ok) != WEIR_OK)
			return 1;
	printf(", batches of 1,000 %.0f\n", (double)n / (now() - began));
	weir_close(&c);
	return 0;
}

int main(int argc, char **argv) {
	if (argc != 4)
		return 2;
	if (strcmp(argv[2], "bench") == 0)
		return bench(argv[1], atof(argv[3]));
	return ledger(argv[1], atol(argv[3]));
}
