/* codec_lines - the codec behind the line protocol of the conformance runner (conformance/README.md). */
#include "../weir.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE = 1 << 26 };

static char *word(char **rest) { return strsep(rest, " "); }

static size_t unhex(const char *s, uint8_t *out) {
	size_t n = 0;
	if (strcmp(s, "-") == 0)
		return 0;
	for (; s[0] && s[1]; s += 2) {
		unsigned v;
		if (sscanf(s, "%2x", &v) != 1)
			exit(1);
		out[n++] = (uint8_t)v;
	}
	return n;
}

static void puthex(const uint8_t *b, size_t n) {
	if (n == 0)
		putchar('-');
	for (size_t i = 0; i < n; i++)
		printf("%02x", b[i]);
}

static void put16(uint8_t *p, size_t v) {
	p[0] = (uint8_t)v;
	p[1] = (uint8_t)(v >> 8);
}

static void put32(uint8_t *p, uint32_t v) {
	for (int i = 0; i < 4; i++)
		p[i] = (uint8_t)(v >> (8 * i));
}

static int verdict(weir_verdict v) {
	if (v == WEIR_V_OK)
		return 1;
	printf("err %s", weir_verdict_name(v));
	return 0;
}

static void decode_frame(const uint8_t *in, size_t n) {
	weir_header h;
	const uint8_t *payload;
	if (!verdict(weir_decode_frame(in, n, &h, &payload)))
		return;
	printf("ok %d %d ", (int)h.type, (int)h.durability);
	puthex(payload, h.payload_len);
}

static void decode_batch(const uint8_t *in, size_t n) {
	static weir_slice records[WEIR_MAX_BATCH_RECORDS];
	size_t at = 0, count = 0;
	uint32_t left = 0;
	do {
		weir_slice r;
		if (!verdict(weir_next_record(in, n, &at, &left, &r)))
			return;
		records[count++] = r;
	} while (at < n);
	printf("ok");
	for (size_t i = 0; i < count; i++) {
		putchar(' ');
		puthex(records[i].data, records[i].len);
	}
}

static void decode_ack_batch(const uint8_t *in, size_t n, size_t sent) {
	const uint8_t *bits;
	if (!verdict(weir_decode_ack_batch(in, n, sent, &bits)))
		return;
	printf("ok ");
	for (size_t i = 0; i < sent; i++)
		putchar('0' + (bits[i / 8] >> (i % 8) & 1));
}

static void decode_coordinate(const uint8_t *in, size_t n) {
	weir_coordinate c;
	if (!verdict(weir_decode_coordinate(in, n, &c)))
		return;
	printf("ok %" PRIu64 " ", c.index);
	puthex(c.id, sizeof c.id);
	putchar(' ');
	puthex((const uint8_t *)c.segment, c.segment_len);
}

static void decode_nack(const uint8_t *in, size_t n) {
	uint8_t reason, version;
	if (verdict(weir_decode_nack(in, n, &reason, &version)))
		printf("ok %d %d", reason, version);
}

static void encode_frame(char *rest, uint8_t *buf) {
	int type = atoi(word(&rest)), durability = atoi(word(&rest));
	size_t n = unhex(rest, buf + WEIR_HEADER_LEN);
	weir_encode_header(buf, (weir_type)type, (weir_durability)durability, (uint32_t)n);
	put32(buf + WEIR_HEADER_LEN + n, weir_crc32(0, buf + WEIR_HEADER_LEN, n));
	printf("ok ");
	puthex(buf, n + WEIR_FRAME_OVERHEAD);
}

static void encode_batch(char *rest, uint8_t *buf) {
	size_t n = 3, count = 0;
	for (char *w; (w = word(&rest)) != NULL; count++) {
		size_t len = unhex(w, buf + n + 4);
		put32(buf + n, (uint32_t)len);
		n += 4 + len;
	}
	buf[0] = 1;
	put16(buf + 1, count);
	printf("ok ");
	puthex(buf, n);
}

static void encode_ack_batch(const char *bits, uint8_t *buf) {
	size_t n = strlen(bits);
	memset(buf, 0, 3 + (n + 7) / 8);
	buf[0] = 1;
	put16(buf + 1, n);
	for (size_t i = 0; i < n; i++)
		if (bits[i] == '1')
			buf[3 + i / 8] |= (uint8_t)(1 << (i % 8));
	printf("ok ");
	puthex(buf, 3 + (n + 7) / 8);
}

static void encode_coordinate(char *rest, uint8_t *buf) {
	uint64_t index = strtoull(word(&rest), NULL, 10);
	buf[0] = 1;
	for (int i = 0; i < 8; i++)
		buf[1 + i] = (uint8_t)(index >> (8 * i));
	unhex(word(&rest), buf + 9);
	size_t n = unhex(rest, buf + 43);
	put16(buf + 41, n);
	printf("ok ");
	puthex(buf, 43 + n);
}

static void encode_nack(char *rest) {
	uint8_t b[2] = {(uint8_t)atoi(word(&rest)), 0};
	b[1] = (uint8_t)atoi(rest);
	printf("ok ");
	puthex(b, b[0] == WEIR_REASON_VERSION_MISMATCH ? 2 : 1);
}

static void record_id(char *rest, uint8_t *buf) {
	static uint8_t segment[WEIR_MAX_SEGMENT], id[32];
	uint64_t index = strtoull(word(&rest), NULL, 10);
	size_t k = unhex(word(&rest), segment), n = unhex(rest, buf);
	weir_record_id((const char *)segment, k, index, buf, n, id);
	printf("ok ");
	puthex(id, sizeof id);
}

int main(void) {
	char *line = malloc(LINE);
	uint8_t *buf = malloc(LINE / 2);
	if (line == NULL || buf == NULL)
		return 1;
	while (fgets(line, LINE, stdin) != NULL) {
		line[strcspn(line, "\n")] = 0;
		char *rest = line, *op = word(&rest);
		if (rest == NULL)
			printf("skip");
		else if (strcmp(op, "decode-frame") == 0)
			decode_frame(buf, unhex(rest, buf));
		else if (strcmp(op, "decode-batch") == 0)
			decode_batch(buf, unhex(rest, buf));
		else if (strcmp(op, "decode-ack_batch") == 0) {
			size_t sent = strtoul(word(&rest), NULL, 10);
			decode_ack_batch(buf, unhex(rest, buf), sent);
		} else if (strcmp(op, "decode-coordinate") == 0)
			decode_coordinate(buf, unhex(rest, buf));
		else if (strcmp(op, "decode-nack") == 0)
			decode_nack(buf, unhex(rest, buf));
		else if (strcmp(op, "encode-frame") == 0)
			encode_frame(rest, buf);
		else if (strcmp(op, "encode-batch") == 0)
			encode_batch(rest, buf);
		else if (strcmp(op, "encode-ack_batch") == 0)
			encode_ack_batch(rest, buf);
		else if (strcmp(op, "encode-coordinate") == 0)
			encode_coordinate(rest, buf);
		else if (strcmp(op, "encode-nack") == 0)
			encode_nack(rest);
		else if (strcmp(op, "record_id") == 0)
			record_id(rest, buf);
		else
			printf("skip");
		putchar('\n');
		fflush(stdout);
	}
	free(buf);
	free(line);
	return 0;
}
