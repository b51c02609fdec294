/* tail_file - follows a file and pushes each line that is added to it: tail_file FILE [SOCKET]. A line that got no ack is pushed again, so none is lost
 * while the program runs; it may be delivered twice. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "weir.h"

static void nap(long ms) {
	struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
	nanosleep(&t, NULL);
}

int main(int argc, char **argv) {
	static char line[1 << 16];
	weir_client c;
	if (argc < 2 || weir_init(&c, argc > 2 ? argv[2] : NULL, 0) != WEIR_OK) {
		fprintf(stderr, "usage: tail_file FILE [SOCKET]\n");
		return 2;
	}
	FILE *f = fopen(argv[1], "r");
	if (f == NULL) {
		perror(argv[1]);
		return 1;
	}
	size_t have = 0;
	for (;;) {
		if (fgets(line + have, (int)(sizeof line - have), f) == NULL) {
			clearerr(f);
			nap(200);
			continue;
		}
		have += strlen(line + have);
		if (line[have - 1] != '\n' && have < sizeof line - 1)
			continue; /* the rest of the line is not there yet */
		size_t n = line[have - 1] == '\n' ? have - 1 : have;
		have = 0;
		weir_status s = n == 0 ? WEIR_OK : weir_push(&c, WEIR_DURABLE, line, n);
		for (; s == WEIR_TRANSIENT || s == WEIR_UNKNOWN; s = weir_push(&c, WEIR_DURABLE, line, n)) {
			fprintf(stderr, "%s; again in a second\n", c.error.text);
			nap(1000);
		}
		if (s != WEIR_OK)
			fprintf(stderr, "left out, since it is refused: %s\n", c.error.text);
	}
}
