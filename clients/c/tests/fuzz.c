/* fuzz - the decoders on arbitrary bytes, under the sanitizers. With libFuzzer (clang -fsanitize=fuzzer) the first function is the target; without it
 * main makes inputs of its own from valid ones and random changes. */
#include "../weir.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
	weir_header h;
	const uint8_t *payload, *bits;
	uint8_t reason, version;
	weir_coordinate c;
	if (weir_decode_frame(data, size, &h, &payload) == WEIR_V_OK && payload + h.payload_len + 4 != data + size)
		abort();
	size_t at = 0, total = 0;
	uint32_t left = 0;
	weir_slice r;
	while (weir_next_record(data, size, &at, &left, &r) == WEIR_V_OK) {
		if (r.len == 0 || (const uint8_t *)r.data + r.len > data + size)
			abort();
		total += r.len;
		if (at == size)
			break;
	}
	for (size_t sent = 1; sent <= 17; sent += 8)
		if (weir_decode_ack_batch(data, size, sent, &bits) == WEIR_V_OK && bits + (sent + 7) / 8 != data + size)
			abort();
	if (weir_decode_coordinate(data, size, &c) == WEIR_V_OK && strlen(c.segment) > c.segment_len)
		abort();
	(void)weir_decode_nack(data, size, &reason, &version);
	return total > size;
}

#ifndef WEIR_LIBFUZZER
static uint64_t state = 88172645463325252u;

static uint32_t rnd(void) {
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (uint32_t)(state >> 32);
}

int main(int argc, char **argv) {
	long runs = argc > 1 ? atol(argv[1]) : 1000000;
	uint8_t seeds[4][128] = {{0}}, buf[128];
	size_t lens[4] = {WEIR_FRAME_OVERHEAD, 3 + 2 * 9, 5, 43 + 6};
	weir_encode_header(seeds[0], WEIR_T_ACK, WEIR_DURABLE, 0);
	memcpy(seeds[1], "\x01\x02\x00\x05\x00\x00\x00hello\x05\x00\x00\x00world", 21);
	memcpy(seeds[2], "\x01\x09\x00\x0d\x01", 5);
	seeds[3][0] = 1, seeds[3][41] = 6;
	memcpy(seeds[3] + 43, "seg\xc3\xa9x", 6);
	for (long i = 0; i < runs; i++) {
		uint32_t which = rnd() % 5;
		size_t n = which < 4 ? lens[which] : rnd() % sizeof buf;
		for (size_t k = 0; k < sizeof buf; k++)
			buf[k] = which < 4 ? seeds[which][k] : (uint8_t)rnd();
		for (uint32_t changes = rnd() % 4; changes > 0 && n > 0; changes--)
			buf[rnd() % n] = (uint8_t)rnd();
		if (rnd() % 4 == 0)
			n = rnd() % (n + 1);
		uint8_t *exact = malloc(n + 1); /* so that a read past the end is seen */
		if (exact == NULL)
			return 1;
		memcpy(exact + 1, buf, n);
		LLVMFuzzerTestOneInput(exact + 1, n);
		free(exact);
	}
	printf("%ld inputs, no finding\n", runs);
	return 0;
}
#endif
