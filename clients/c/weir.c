/* weir.c - see weir.h. In this order: checksums, the codec, one connection, the client, the producer. */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include "weir.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#ifdef WEIR_USE_ZLIB
#include <zlib.h>
#endif

#define DEFAULT_TIMEOUT_MS 30000
#define FIRST_BACKOFF_MS 50
#define DEFAULT_MAX_BACKOFF_MS 5000
#define COORDINATE_FIXED 43u
#define BATCH_PREFIX 3u
#define DEFAULT_SOCKET "weir-data/weir.sock"

static uint32_t get32(const uint8_t *p) { return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24; }

static uint64_t get64(const uint8_t *p) { return (uint64_t)get32(p) | (uint64_t)get32(p + 4) << 32; }

static void put32(uint8_t *p, uint32_t v) {
	for (int i = 0; i < 4; i++)
		p[i] = (uint8_t)(v >> (8 * i));
}

static void put64(uint8_t *p, uint64_t v) {
	for (int i = 0; i < 8; i++)
		p[i] = (uint8_t)(v >> (8 * i));
}

/* ---- Checksums ---- */

#ifdef WEIR_USE_ZLIB
uint32_t weir_crc32(uint32_t crc, const void *data, size_t len) {
	return (uint32_t)crc32_z(crc, data, len);
}
#else
/* The table of the reflected polynomial 0x04c11db7, half a byte at a time: 64 bytes that need no set-up. */
static const uint32_t crc_nibbles[16] = {
	0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4, 0x4db26158, 0x5005713c,
	0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c, 0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c,
};

uint32_t weir_crc32(uint32_t crc, const void *data, size_t len) {
	const uint8_t *p = data;
	crc = ~crc;
	while (len-- > 0) {
		crc ^= *p++;
		crc = crc >> 4 ^ crc_nibbles[crc & 15];
		crc = crc >> 4 ^ crc_nibbles[crc & 15];
	}
	return ~crc;
}
#endif

/* SHA-256 (FIPS 180-4), for record ids. */
typedef struct {
	uint32_t state[8];
	uint64_t total;
	uint8_t block[64];
} sha256;

static const uint32_t sha_k[64] = {
	0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be,
	0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa,
	0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85,
	0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3,
	0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f,
	0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t ror(uint32_t v, int n) { return v >> n | v << (32 - n); }

static void sha_block(sha256 *h, const uint8_t *p) {
	uint32_t w[64], s[8];
	for (int i = 0; i < 16; i++)
		w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 | (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
	for (int i = 16; i < 64; i++)
		w[i] = (ror(w[i - 2], 17) ^ ror(w[i - 2], 19) ^ w[i - 2] >> 10) + w[i - 7] + (ror(w[i - 15], 7) ^ ror(w[i - 15], 18) ^ w[i - 15] >> 3) + w[i - 16];
	memcpy(s, h->state, sizeof s);
	for (int i = 0; i < 64; i++) {
		uint32_t t1 = s[7] + (ror(s[4], 6) ^ ror(s[4], 11) ^ ror(s[4], 25)) + ((s[4] & s[5]) ^ (~s[4] & s[6])) + sha_k[i] + w[i];
		uint32_t t2 = (ror(s[0], 2) ^ ror(s[0], 13) ^ ror(s[0], 22)) + ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
		memmove(s + 1, s, 7 * sizeof *s);
		s[4] += t1;
		s[0] = t1 + t2;
	}
	for (int i = 0; i < 8; i++)
		h->state[i] += s[i];
}

static void sha_add(sha256 *h, const void *data, size_t len) {
	const uint8_t *p = data;
	size_t have = (size_t)(h->total % 64);
	h->total += len;
	while (len > 0) {
		size_t n = 64 - have < len ? 64 - have : len;
		memcpy(h->block + have, p, n);
		p += n, len -= n, have += n;
		if (have == 64) {
			sha_block(h, h->block);
			have = 0;
		}
	}
}

static void sha_add64(sha256 *h, uint64_t v) {
	uint8_t b[8];
	put64(b, v);
	sha_add(h, b, sizeof b);
}

void weir_record_id(const char *segment, size_t segment_len, uint64_t index, const void *payload, size_t len, uint8_t out[32]) {
	sha256 h = {{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19}, 0, {0}};
	sha_add64(&h, segment_len);
	sha_add(&h, segment, segment_len);
	sha_add64(&h, index);
	sha_add64(&h, len);
	sha_add(&h, payload, len);
	uint64_t bits = h.total * 8;
	uint8_t pad[72] = {0x80};
	size_t zeros = (size_t)((119 - h.total % 64) % 64);
	for (int i = 0; i < 8; i++)
		pad[1 + zeros + (size_t)i] = (uint8_t)(bits >> (56 - 8 * i));
	sha_add(&h, pad, 1 + zeros + 8);
	for (int i = 0; i < 32; i++)
		out[i] = (uint8_t)(h.state[i / 4] >> (24 - 8 * (i % 4)));
}

/* ---- The codec ---- */

const char *weir_reason_name(uint8_t reason) {
	switch (reason) {
	case WEIR_REASON_BAD_MAGIC: return "BadMagic";
	case WEIR_REASON_VERSION_MISMATCH: return "VersionMismatch";
	case WEIR_REASON_BAD_HEADER_CRC: return "BadHeaderCrc";
	case WEIR_REASON_PAYLOAD_TOO_LARGE: return "PayloadTooLarge";
	case WEIR_REASON_BAD_PAYLOAD_CRC: return "BadPayloadCrc";
	case WEIR_REASON_INTERNAL_ERROR: return "InternalError";
	case WEIR_REASON_EMPTY_PAYLOAD: return "EmptyPayload";
	case WEIR_REASON_UNKNOWN_MESSAGE: return "UnknownMessage";
	case WEIR_REASON_RESERVED_FLAGS_SET: return "ReservedFlagsSet";
	case WEIR_REASON_BAD_BATCH_FRAMING: return "BadBatchFraming";
	}
	return "Unassigned";
}

const char *weir_verdict_name(weir_verdict v) {
	static const char *const names[] = {
		"ok", "TruncatedFrame", "TrailingBytes", "BadMagic", "VersionMismatch", "HeaderCrcMismatch", "UnknownMessageType", "UnknownDurability",
		"ReservedFlagsSet", "PayloadTooLarge", "EmptyPayload", "PayloadCrcMismatch", "Truncated", "UnsupportedVersion", "EmptyBatch", "TooManyRecords",
		"TruncatedRecord", "EmptyRecord", "RecordTooLarge", "LengthMismatch", "PaddingNotZero", "SegmentTooLong", "SegmentNotUtf8",
	};
	return (size_t)v < sizeof names / sizeof *names ? names[v] : "?";
}

void weir_encode_header(uint8_t out[WEIR_HEADER_LEN], weir_type type, weir_durability d, uint32_t payload_len) {
	memcpy(out, "WEIR", 4);
	out[4] = WEIR_WIRE_VERSION;
	out[5] = (uint8_t)type;
	out[6] = (uint8_t)d;
	out[7] = 0;
	put32(out + 8, payload_len);
	put32(out + 12, weir_crc32(0, out, 12));
}

weir_verdict weir_decode_header(const uint8_t in[WEIR_HEADER_LEN], weir_header *out) {
	if (memcmp(in, "WEIR", 4) != 0)
		return WEIR_V_BAD_MAGIC;
	out->version = in[4];
	if (in[4] != WEIR_WIRE_VERSION)
		return WEIR_V_VERSION_MISMATCH;
	if (get32(in + 12) != weir_crc32(0, in, 12))
		return WEIR_V_HEADER_CRC_MISMATCH;
	if (in[5] < WEIR_T_PUSH || in[5] > WEIR_T_ACK_BATCH)
		return WEIR_V_UNKNOWN_MESSAGE_TYPE;
	if (in[6] < 0x01 || in[6] > 0x03)
		return WEIR_V_UNKNOWN_DURABILITY;
	if (in[7] != 0)
		return WEIR_V_RESERVED_FLAGS_SET;
	out->type = (weir_type)in[5];
	out->durability = in[6] == WEIR_BUFFERED ? WEIR_BUFFERED : WEIR_DURABLE; /* 0x02 is retired and reads as durable */
	out->payload_len = get32(in + 8);
	return out->payload_len > WEIR_MAX_PAYLOAD ? WEIR_V_PAYLOAD_TOO_LARGE : WEIR_V_OK;
}

weir_verdict weir_decode_frame(const uint8_t *in, size_t len, weir_header *out, const uint8_t **payload) {
	if (len < WEIR_HEADER_LEN)
		return WEIR_V_TRUNCATED_FRAME;
	weir_verdict v = weir_decode_header(in, out);
	if (v != WEIR_V_OK)
		return v;
	size_t want = WEIR_FRAME_OVERHEAD + (size_t)out->payload_len;
	if (len != want)
		return len < want ? WEIR_V_TRUNCATED_FRAME : WEIR_V_TRAILING_BYTES;
	*payload = in + WEIR_HEADER_LEN;
	return get32(in + want - 4) == weir_crc32(0, *payload, out->payload_len) ? WEIR_V_OK : WEIR_V_PAYLOAD_CRC_MISMATCH;
}

weir_verdict weir_next_record(const uint8_t *body, size_t len, size_t *at, uint32_t *left, weir_slice *record) {
	if (*at == 0) {
		if (len < BATCH_PREFIX)
			return WEIR_V_TRUNCATED;
		if (body[0] != 1)
			return WEIR_V_UNSUPPORTED_VERSION;
		*left = (uint32_t)body[1] | (uint32_t)body[2] << 8;
		if (*left == 0)
			return WEIR_V_EMPTY_BATCH;
		if (*left > WEIR_MAX_BATCH_RECORDS)
			return WEIR_V_TOO_MANY_RECORDS;
		*at = BATCH_PREFIX;
	}
	if (*left == 0)
		return WEIR_V_LENGTH_MISMATCH; /* bytes behind the last record */
	if (len - *at < 4)
		return WEIR_V_TRUNCATED_RECORD;
	uint32_t n = get32(body + *at);
	if (n == 0)
		return WEIR_V_EMPTY_RECORD;
	if (n > WEIR_MAX_PAYLOAD)
		return WEIR_V_RECORD_TOO_LARGE;
	if (len - *at - 4 < n)
		return WEIR_V_TRUNCATED_RECORD;
	record->data = body + *at + 4;
	record->len = n;
	*at += 4 + (size_t)n;
	--*left;
	return *left > 0 && *at == len ? WEIR_V_TRUNCATED_RECORD : WEIR_V_OK;
}

weir_verdict weir_decode_ack_batch(const uint8_t *in, size_t len, size_t sent, const uint8_t **bits) {
	if (len < BATCH_PREFIX)
		return WEIR_V_TRUNCATED;
	if (in[0] != 1)
		return WEIR_V_UNSUPPORTED_VERSION;
	size_t n = (size_t)in[1] | (size_t)in[2] << 8;
	if (n == 0)
		return WEIR_V_EMPTY_BATCH;
	if (n != sent || len != BATCH_PREFIX + (n + 7) / 8)
		return WEIR_V_LENGTH_MISMATCH;
	if (n % 8 != 0 && in[len - 1] >> (n % 8) != 0)
		return WEIR_V_PADDING_NOT_ZERO;
	*bits = in + BATCH_PREFIX;
	return WEIR_V_OK;
}

weir_verdict weir_decode_nack(const uint8_t *in, size_t len, uint8_t *reason, uint8_t *version) {
	if (len < 1)
		return WEIR_V_TRUNCATED;
	*reason = in[0];
	*version = 0;
	if (len != (in[0] == WEIR_REASON_VERSION_MISMATCH ? 2u : 1u))
		return WEIR_V_LENGTH_MISMATCH;
	if (len == 2)
		*version = in[1];
	return WEIR_V_OK;
}

/* utf8 reports whether bytes are well-formed UTF-8: no overlong form, no surrogate, nothing above U+10FFFF. */
static int utf8(const uint8_t *p, size_t len) {
	for (size_t i = 0; i < len;) {
		uint8_t c = p[i];
		size_t n = c < 0x80 ? 1 : c >= 0xc2 && c <= 0xdf ? 2 : c >= 0xe0 && c <= 0xef ? 3 : c >= 0xf0 && c <= 0xf4 ? 4 : 0;
		if (n == 0 || len - i < n)
			return 0;
		for (size_t k = 1; k < n; k++)
			if ((p[i + k] & 0xc0) != 0x80)
				return 0;
		if (n > 2) {
			uint8_t d = p[i + 1];
			if ((c == 0xe0 && d < 0xa0) || (c == 0xed && d > 0x9f) || (c == 0xf0 && d < 0x90) || (c == 0xf4 && d > 0x8f))
				return 0;
		}
		i += n;
	}
	return 1;
}

weir_verdict weir_decode_coordinate(const uint8_t *in, size_t len, weir_coordinate *out) {
	if (len < COORDINATE_FIXED)
		return WEIR_V_TRUNCATED;
	if (in[0] != 1)
		return WEIR_V_UNSUPPORTED_VERSION;
	size_t n = (size_t)in[41] | (size_t)in[42] << 8;
	if (n > WEIR_MAX_SEGMENT)
		return WEIR_V_SEGMENT_TOO_LONG;
	if (len != COORDINATE_FIXED + n)
		return WEIR_V_LENGTH_MISMATCH;
	if (!utf8(in + COORDINATE_FIXED, n))
		return WEIR_V_SEGMENT_NOT_UTF8;
	out->index = get64(in + 1);
	memcpy(out->id, in + 9, 32);
	memcpy(out->segment, in + COORDINATE_FIXED, n);
	out->segment[n] = 0;
	out->segment_len = n;
	return WEIR_V_OK;
}

/* ---- One connection ---- */

static int64_t now_ms(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

__attribute__((format(printf, 4, 5))) static weir_status fail(weir_client *c, weir_status s, int sys, const char *format, ...) {
	va_list args;
	c->error = (weir_error){.status = s, .sys_errno = sys};
	va_start(args, format);
	vsnprintf(c->error.text, sizeof c->error.text, format, args);
	va_end(args);
	return s;
}

static void drop(weir_client *c) {
	if (c->fd >= 0)
		close(c->fd);
	c->fd = -1;
}

/* broken drops the connection, which nothing can be read from any more, and says why. */
static weir_status broken(weir_client *c, const char *what, int sys) {
	drop(c);
	if (sys != 0)
		return fail(c, WEIR_UNKNOWN, sys, "%s: %s", what, strerror(sys));
	return fail(c, WEIR_UNKNOWN, 0, "%s", what);
}

/* ready waits until the socket can be read (POLLIN) or written (POLLOUT). */
static weir_status ready(weir_client *c, short events, int64_t deadline) {
	for (;;) {
		int64_t left = deadline - now_ms();
		if (left <= 0)
			return broken(c, "timeout", ETIMEDOUT);
		struct pollfd p = {.fd = c->fd, .events = events};
		int n = poll(&p, 1, (int)left);
		if (n > 0)
			return WEIR_OK;
		if (n < 0 && errno != EINTR)
			return broken(c, "poll", errno);
	}
}

static weir_status connect_to(weir_client *c) {
	if (c->fd >= 0)
		return WEIR_OK;
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	memcpy(a.sun_path, c->path, strlen(c->path) + 1);
	c->fd = socket(AF_UNIX, SOCK_STREAM, 0);
	if (c->fd < 0)
		return broken(c, "socket", errno);
	fcntl(c->fd, F_SETFD, FD_CLOEXEC);
	fcntl(c->fd, F_SETFL, O_NONBLOCK);
	if (connect(c->fd, (struct sockaddr *)&a, sizeof a) != 0) /* a Unix socket connects at once, or not */
		return broken(c, c->path, errno);
	return WEIR_OK;
}

static weir_status write_all(weir_client *c, struct iovec *v, int n, int64_t deadline) {
	while (n > 0) {
		struct msghdr m = {.msg_iov = v, .msg_iovlen = (size_t)n};
		ssize_t wrote = sendmsg(c->fd, &m, MSG_NOSIGNAL);
		if (wrote < 0) {
			if (errno == EINTR)
				continue;
			if (errno == EPIPE || errno == ECONNRESET)
				return WEIR_OK; /* the daemon hung up; what it said before that is still to be read */
			if (errno != EAGAIN && errno != EWOULDBLOCK)
				return broken(c, "write", errno);
			weir_status s = ready(c, POLLOUT, deadline);
			if (s != WEIR_OK)
				return s;
			continue;
		}
		size_t rest = (size_t)wrote;
		for (; n > 0 && rest >= v->iov_len; v++, n--)
			rest -= v->iov_len;
		if (n > 0) {
			v->iov_base = (uint8_t *)v->iov_base + rest;
			v->iov_len -= rest;
		}
	}
	return WEIR_OK;
}

static weir_status read_all(weir_client *c, uint8_t *b, size_t n, int64_t deadline) {
	while (n > 0) {
		ssize_t got = recv(c->fd, b, n, 0);
		if (got == 0)
			return broken(c, "the daemon closed the connection", 0);
		if (got < 0) {
			if (errno == EINTR)
				continue;
			if (errno != EAGAIN && errno != EWOULDBLOCK)
				return broken(c, "read", errno);
			weir_status s = ready(c, POLLIN, deadline);
			if (s != WEIR_OK)
				return s;
			continue;
		}
		b += got;
		n -= (size_t)got;
	}
	return WEIR_OK;
}

/* reply_cap is the largest payload of a reply of this type to what was asked; -1: not a reply to it. */
static int reply_cap(weir_type asked, weir_type got) {
	if (got == WEIR_T_NACK)
		return 2;
	if ((int)got != (int)asked + 1)
		return -1;
	return got == WEIR_T_ACK_TRACKED ? (int)WEIR_MAX_REPLY : got == WEIR_T_ACK_BATCH ? (int)(BATCH_PREFIX + WEIR_MAX_BATCH_RECORDS / 8) : 0;
}

/* check_reply judges the header of a reply before anything behind it is read. */
static weir_status check_reply(weir_client *c, const uint8_t *head, weir_type asked, weir_header *h) {
	weir_verdict v = weir_decode_header(head, h);
	if (v == WEIR_V_VERSION_MISMATCH) {
		drop(c);
		return fail(c, WEIR_UNKNOWN, 0, "the reply is in wire version %d; this client speaks %d", h->version, WEIR_WIRE_VERSION);
	}
	if (v != WEIR_V_OK) {
		drop(c);
		return fail(c, WEIR_UNKNOWN, 0, "the reply does not decode: %s", weir_verdict_name(v));
	}
	int cap = reply_cap(asked, h->type);
	if (cap < 0 || h->payload_len > (uint32_t)cap) {
		drop(c);
		return fail(c, WEIR_UNKNOWN, 0, "a reply of type %d and %u bytes does not answer a request of type %d", (int)h->type, h->payload_len, (int)asked);
	}
	return WEIR_OK;
}

/* nacked turns a Nack into a status. All but InternalError end the connection. */
static weir_status nacked(weir_client *c, const uint8_t *payload, size_t len) {
	uint8_t reason, version;
	if (weir_decode_nack(payload, len, &reason, &version) != WEIR_V_OK)
		return broken(c, "a Nack does not decode", 0);
	weir_status s = WEIR_REFUSED;
	if (reason == WEIR_REASON_INTERNAL_ERROR) {
		s = WEIR_TRANSIENT;
		fail(c, s, 0, "the daemon could not store it now");
	} else if (reason == WEIR_REASON_VERSION_MISMATCH) {
		fail(c, s, 0, "the daemon is on wire version %d; this client is built for version %d: upgrade the daemon or downgrade the client", version, WEIR_WIRE_VERSION);
	} else {
		fail(c, s, 0, "refused: %s (0x%02x)", weir_reason_name(reason), reason);
	}
	c->error.reason = reason;
	c->error.daemon_version = version;
	if (s == WEIR_REFUSED)
		drop(c);
	return s;
}

/* ask sends a frame in parts and reads its reply into body. */
static weir_status ask(weir_client *c, weir_type type, struct iovec *parts, int n, uint8_t body[WEIR_MAX_REPLY + 4], size_t *len) {
	int64_t deadline = now_ms() + c->timeout_ms;
	uint8_t head[WEIR_HEADER_LEN];
	weir_header h;
	weir_status s = connect_to(c);
	if (s != WEIR_OK)
		return s;
	if ((s = write_all(c, parts, n, deadline)) != WEIR_OK)
		return s;
	if ((s = read_all(c, head, sizeof head, deadline)) != WEIR_OK)
		return s;
	if ((s = check_reply(c, head, type, &h)) != WEIR_OK)
		return s;
	if ((s = read_all(c, body, (size_t)h.payload_len + 4, deadline)) != WEIR_OK)
		return s;
	if (get32(body + h.payload_len) != weir_crc32(0, body, h.payload_len))
		return broken(c, "the checksum of a reply does not match", 0);
	*len = h.payload_len;
	return h.type == WEIR_T_NACK ? nacked(c, body, h.payload_len) : WEIR_OK;
}

/* ---- The client ---- */

weir_status weir_init(weir_client *c, const char *path, int timeout_ms) {
	memset(c, 0, sizeof *c);
	c->fd = -1;
	c->timeout_ms = timeout_ms > 0 ? timeout_ms : DEFAULT_TIMEOUT_MS;
	if (path == NULL)
		path = getenv("WEIR_SOCKET");
	if (path == NULL || *path == 0)
		path = DEFAULT_SOCKET;
	if (strlen(path) >= sizeof c->path)
		return fail(c, WEIR_INVALID, ENAMETOOLONG, "the socket path has %zu bytes, %zu are possible", strlen(path), sizeof c->path - 1);
	memcpy(c->path, path, strlen(path) + 1);
	return WEIR_OK;
}

void weir_close(weir_client *c) { drop(c); }

static weir_status check_record(weir_client *c, const void *payload, size_t len) {
	if (payload == NULL || len == 0)
		return fail(c, WEIR_INVALID, 0, "a record has at least one byte");
	if (len > WEIR_MAX_PAYLOAD)
		return fail(c, WEIR_INVALID, 0, "a record of %zu bytes: %u are the most", len, WEIR_MAX_PAYLOAD);
	return WEIR_OK;
}

static weir_status push(weir_client *c, weir_type type, weir_durability d, const void *payload, size_t len, uint8_t *body, size_t *n) {
	uint8_t head[WEIR_HEADER_LEN], tail[4];
	weir_status s = check_record(c, payload, len);
	if (s != WEIR_OK)
		return s;
	weir_encode_header(head, type, d, (uint32_t)len);
	put32(tail, weir_crc32(0, payload, len));
	struct iovec parts[] = {{head, sizeof head}, {(void *)(uintptr_t)payload, len}, {tail, sizeof tail}};
	return ask(c, type, parts, 3, body, n);
}

weir_status weir_push(weir_client *c, weir_durability d, const void *payload, size_t len) {
	uint8_t body[WEIR_MAX_REPLY + 4];
	size_t n;
	return push(c, WEIR_T_PUSH, d, payload, len, body, &n);
}

weir_status weir_push_tracked(weir_client *c, weir_durability d, const void *payload, size_t len, weir_coordinate *out) {
	uint8_t body[WEIR_MAX_REPLY + 4], id[32];
	size_t n;
	weir_status s = push(c, WEIR_T_PUSH_TRACKED, d, payload, len, body, &n);
	if (s != WEIR_OK)
		return s;
	weir_verdict v = weir_decode_coordinate(body, n, out);
	if (v != WEIR_V_OK) {
		drop(c);
		return fail(c, WEIR_UNKNOWN, 0, "the coordinate does not decode: %s", weir_verdict_name(v));
	}
	weir_record_id(out->segment, out->segment_len, out->index, payload, len, id);
	if (memcmp(id, out->id, sizeof id) != 0)
		return broken(c, "the coordinate is of another record", 0);
	return WEIR_OK;
}

/* send_batch writes the frame of a batch. Its records are gathered in small runs of parts, so that nothing has to be copied or allocated. */
static weir_status send_batch(weir_client *c, weir_durability d, const weir_slice *records, size_t n, size_t size, int64_t deadline) {
	enum { RUN = 64 };
	uint8_t head[WEIR_HEADER_LEN + BATCH_PREFIX], lengths[RUN][4], tail[4];
	struct iovec parts[2 * RUN];
	weir_encode_header(head, WEIR_T_PUSH_BATCH, d, (uint32_t)size);
	head[WEIR_HEADER_LEN] = 1;
	head[WEIR_HEADER_LEN + 1] = (uint8_t)n;
	head[WEIR_HEADER_LEN + 2] = (uint8_t)(n >> 8);
	uint32_t crc = weir_crc32(0, head + WEIR_HEADER_LEN, BATCH_PREFIX);
	parts[0] = (struct iovec){head, sizeof head};
	weir_status s = write_all(c, parts, 1, deadline);
	for (size_t i = 0; s == WEIR_OK && i < n; i += RUN) {
		int k = 0;
		for (size_t j = i; j < n && j < i + RUN; j++) {
			put32(lengths[j - i], (uint32_t)records[j].len);
			crc = weir_crc32(crc, lengths[j - i], 4);
			crc = weir_crc32(crc, records[j].data, records[j].len);
			parts[k++] = (struct iovec){lengths[j - i], 4};
			parts[k++] = (struct iovec){(void *)(uintptr_t)records[j].data, records[j].len};
		}
		s = write_all(c, parts, k, deadline);
	}
	if (s != WEIR_OK)
		return s;
	put32(tail, crc);
	parts[0] = (struct iovec){tail, sizeof tail};
	return write_all(c, parts, 1, deadline);
}

weir_status weir_push_batch(weir_client *c, weir_durability d, const weir_slice *records, size_t n, uint8_t *acked) {
	if (n == 0 || n > WEIR_MAX_BATCH_RECORDS)
		return fail(c, WEIR_INVALID, 0, "a batch of %zu records: 1 to %u are possible", n, WEIR_MAX_BATCH_RECORDS);
	size_t size = BATCH_PREFIX;
	for (size_t i = 0; i < n; i++) {
		weir_status s = check_record(c, records[i].data, records[i].len);
		if (s != WEIR_OK)
			return s;
		size += 4 + records[i].len;
		if (size > WEIR_MAX_PAYLOAD)
			return fail(c, WEIR_INVALID, 0, "the batch is larger than %u bytes", WEIR_MAX_PAYLOAD);
	}
	weir_status s = connect_to(c);
	if (s == WEIR_OK)
		s = send_batch(c, d, records, n, size, now_ms() + c->timeout_ms);
	uint8_t body[WEIR_MAX_REPLY + 4];
	size_t len;
	if (s == WEIR_OK)
		s = ask(c, WEIR_T_PUSH_BATCH, NULL, 0, body, &len);
	if (s != WEIR_OK)
		return s;
	const uint8_t *bits;
	weir_verdict v = weir_decode_ack_batch(body, len, n, &bits);
	if (v != WEIR_V_OK) {
		drop(c);
		return fail(c, WEIR_UNKNOWN, 0, "the answer to the batch does not decode: %s", weir_verdict_name(v));
	}
	for (size_t i = 0; i < n; i++)
		acked[i] = bits[i / 8] >> (i % 8) & 1;
	return WEIR_OK;
}

weir_status weir_health(weir_client *c) {
	uint8_t head[WEIR_FRAME_OVERHEAD] = {0}, body[WEIR_MAX_REPLY + 4];
	size_t n;
	weir_encode_header(head, WEIR_T_HEALTH, WEIR_DURABLE, 0);
	struct iovec parts[] = {{head, sizeof head}};
	return ask(c, WEIR_T_HEALTH, parts, 1, body, &n);
}

/* ---- The producer ---- */

weir_status weir_producer_init(weir_producer *p, const weir_producer_options *o) {
	memset(p, 0, sizeof *p);
	weir_status s = weir_init(&p->client, o->path, o->timeout_ms);
	if (s != WEIR_OK)
		return s;
	if (o->window == 0 || o->tags == NULL || o->outcome == NULL || o->buffer == NULL || o->buffer_len <= WEIR_FRAME_OVERHEAD)
		return fail(&p->client, WEIR_INVALID, 0, "a producer needs a callback, a window of tags and a buffer");
	p->durability = o->durability == WEIR_BUFFERED ? WEIR_BUFFERED : WEIR_DURABLE;
	p->outcome = o->outcome;
	p->context = o->context;
	p->tags = o->tags;
	p->window = o->window;
	p->out = o->buffer;
	p->out_cap = o->buffer_len;
	p->max_backoff_ms = o->max_backoff_ms > 0 ? o->max_backoff_ms : DEFAULT_MAX_BACKOFF_MS;
	p->random = (uint64_t)now_ms() * 0x9e3779b97f4a7c15u ^ (uint64_t)(uintptr_t)p;
	return WEIR_OK;
}

/* settle gives the oldest record in flight its outcome. */
static void settle(weir_producer *p, weir_status s) {
	void *tag = p->tags[p->first];
	p->first = (p->first + 1) % p->window;
	p->inflight--;
	p->outcome(p->context, tag, s, s == WEIR_OK ? NULL : &p->client.error);
}

/* lose is what a dead connection means: everything in flight is unknown. */
static weir_status lose(weir_producer *p) {
	drop(&p->client);
	p->out_len = p->in_len = 0;
	p->client.error.status = WEIR_UNKNOWN;
	while (p->inflight > 0)
		settle(p, WEIR_UNKNOWN);
	return WEIR_UNKNOWN;
}

/* pause_before_connect sleeps for a random part of a back-off that doubles. */
static void pause_before_connect(weir_producer *p) {
	if (p->backoff_ms == 0) {
		p->backoff_ms = FIRST_BACKOFF_MS;
		return; /* the first try is at once */
	}
	p->random ^= p->random << 13;
	p->random ^= p->random >> 7;
	p->random ^= p->random << 17;
	int64_t ms = p->backoff_ms / 2 + (int64_t)(p->random % (uint64_t)(p->backoff_ms / 2 + 1));
	struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
	nanosleep(&t, NULL);
	p->backoff_ms = p->backoff_ms * 2 > p->max_backoff_ms ? p->max_backoff_ms : p->backoff_ms * 2;
}

/* take handles the replies that are whole in the buffer. It returns WEIR_UNKNOWN after the connection is lost. */
static weir_status take(weir_producer *p) {
	size_t at = 0;
	while (p->in_len - at >= WEIR_HEADER_LEN) {
		weir_header h;
		if (p->inflight == 0) {
			fail(&p->client, WEIR_UNKNOWN, 0, "a reply to nothing");
			return lose(p);
		}
		if (check_reply(&p->client, p->in + at, WEIR_T_PUSH, &h) != WEIR_OK)
			return lose(p);
		size_t n = WEIR_FRAME_OVERHEAD + (size_t)h.payload_len;
		if (p->in_len - at < n)
			break;
		const uint8_t *body = p->in + at + WEIR_HEADER_LEN;
		if (get32(body + h.payload_len) != weir_crc32(0, body, h.payload_len)) {
			fail(&p->client, WEIR_UNKNOWN, 0, "the checksum of a reply does not match");
			return lose(p);
		}
		at += n;
		p->backoff_ms = 0;
		weir_status s = h.type == WEIR_T_NACK ? nacked(&p->client, body, h.payload_len) : WEIR_OK;
		if (s == WEIR_UNKNOWN)
			return lose(p);
		settle(p, s);
		if (s == WEIR_REFUSED) { /* the daemon has closed the connection */
			fail(&p->client, WEIR_UNKNOWN, 0, "the daemon closed the connection after a refusal");
			return lose(p);
		}
	}
	memmove(p->in, p->in + at, p->in_len - at);
	p->in_len -= at;
	return WEIR_OK;
}

/* advance writes and reads until what is asked for is done: all written, and at most so many in flight. */
static weir_status advance(weir_producer *p, size_t inflight) {
	int64_t deadline = now_ms() + p->client.timeout_ms;
	size_t wrote = 0;
	while (wrote < p->out_len || p->inflight > inflight) {
		int64_t left = deadline - now_ms();
		struct pollfd f = {.fd = p->client.fd, .events = (short)(POLLIN | (wrote < p->out_len ? POLLOUT : 0))};
		int n = left > 0 ? poll(&f, 1, (int)left) : 0;
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			fail(&p->client, WEIR_UNKNOWN, n < 0 ? errno : ETIMEDOUT, n < 0 ? "poll: %s" : "timeout: %s", strerror(n < 0 ? errno : ETIMEDOUT));
			return lose(p);
		}
		if (f.revents & POLLOUT) {
			ssize_t k = send(p->client.fd, p->out + wrote, p->out_len - wrote, MSG_NOSIGNAL);
			if (k > 0)
				wrote += (size_t)k;
		}
		if (f.revents & (POLLIN | POLLHUP | POLLERR)) {
			ssize_t k = recv(p->client.fd, p->in + p->in_len, sizeof p->in - p->in_len, 0);
			if (k < 0 && (errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK))
				continue;
			if (k <= 0) {
				int sys = k < 0 ? errno : ECONNRESET;
				fail(&p->client, WEIR_UNKNOWN, sys, "the daemon closed the connection: %s", strerror(sys));
				return lose(p);
			}
			p->in_len += (size_t)k;
			deadline = now_ms() + p->client.timeout_ms;
			if (take(p) != WEIR_OK)
				return WEIR_UNKNOWN;
		}
	}
	p->out_len = 0;
	return WEIR_OK;
}

weir_status weir_producer_send(weir_producer *p, const void *payload, size_t len, void *tag) {
	weir_status s = check_record(&p->client, payload, len);
	if (s != WEIR_OK)
		return s;
	if (len > p->out_cap - WEIR_FRAME_OVERHEAD)
		return fail(&p->client, WEIR_INVALID, 0, "a record of %zu bytes does not fit the buffer of %zu", len, p->out_cap);
	if (p->inflight == p->window || p->out_cap - p->out_len < len + WEIR_FRAME_OVERHEAD)
		(void)advance(p, p->window / 2); /* a lost connection has told its outcomes */
	p->tags[(p->first + p->inflight) % p->window] = tag;
	p->inflight++;
	if (p->client.fd < 0) {
		pause_before_connect(p);
		if (connect_to(&p->client) != WEIR_OK)
			return lose(p);
	}
	uint8_t *at = p->out + p->out_len;
	weir_encode_header(at, WEIR_T_PUSH, p->durability, (uint32_t)len);
	memcpy(at + WEIR_HEADER_LEN, payload, len);
	put32(at + WEIR_HEADER_LEN + len, weir_crc32(0, payload, len));
	p->out_len += len + WEIR_FRAME_OVERHEAD;
	return WEIR_OK;
}

weir_status weir_producer_flush(weir_producer *p) { return p->inflight == 0 ? WEIR_OK : advance(p, 0); }

weir_status weir_producer_close(weir_producer *p) {
	weir_status s = weir_producer_flush(p);
	weir_close(&p->client);
	return s;
}
