/* weir.h - the C client of the weir daemon, which keeps records safe on the local disk until they are delivered.
 *
 * C11 and POSIX; no dependency but libc (zlib's crc32 with WEIR_USE_ZLIB). Nothing is allocated: every handle and every buffer is
 * the caller's. A handle is for one thread at a time.
 *
 * An ack means kept, not delivered: WEIR_OK says that the record is as safe as it was asked to be. After WEIR_TRANSIENT and
 * WEIR_UNKNOWN it may or may not be stored: push it again, and expect that it may be delivered twice. After WEIR_REFUSED it is
 * not stored, and pushing the same again will not help.
 *
 * Wire: weir wire v1. */
#ifndef WEIR_H
#define WEIR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WEIR_WIRE_VERSION 1
#define WEIR_HEADER_LEN 16
#define WEIR_FRAME_OVERHEAD 20
#define WEIR_MAX_PAYLOAD (16u * 1024u * 1024u)
#define WEIR_MAX_BATCH_RECORDS 2048u
#define WEIR_MAX_SEGMENT 255u
#define WEIR_MAX_REPLY 298u /* of any payload that a daemon sends */

typedef enum { WEIR_DURABLE = 0x01, WEIR_BUFFERED = 0x03 } weir_durability;

typedef enum {
	WEIR_OK = 0,
	WEIR_INVALID,   /* the arguments are wrong; nothing was sent */
	WEIR_REFUSED,   /* the daemon will not take it; permanent */
	WEIR_TRANSIENT, /* the daemon could not store it now; its fate is unknown */
	WEIR_UNKNOWN    /* connection, timeout or protocol error; its fate is unknown */
} weir_status;

/* Why a daemon refuses a frame. Other values are possible and must be surfaced as they are. */
enum {
	WEIR_REASON_BAD_MAGIC = 0x01,
	WEIR_REASON_VERSION_MISMATCH = 0x02,
	WEIR_REASON_BAD_HEADER_CRC = 0x03,
	WEIR_REASON_PAYLOAD_TOO_LARGE = 0x04,
	WEIR_REASON_BAD_PAYLOAD_CRC = 0x05,
	WEIR_REASON_INTERNAL_ERROR = 0x06,
	WEIR_REASON_EMPTY_PAYLOAD = 0x07,
	WEIR_REASON_UNKNOWN_MESSAGE = 0x08,
	WEIR_REASON_RESERVED_FLAGS_SET = 0x09,
	WEIR_REASON_BAD_BATCH_FRAMING = 0x0b
};

/* weir_reason_name returns the name of a reason, or "Unassigned". */
const char *weir_reason_name(uint8_t reason);

/* What went wrong last on a handle. */
typedef struct {
	weir_status status;
	uint8_t reason;         /* of a Nack; 0: it was none */
	uint8_t daemon_version; /* with WEIR_REASON_VERSION_MISMATCH */
	int sys_errno;          /* of a system call; 0: none failed */
	char text[160];
} weir_error;

/* Where a record landed. */
typedef struct {
	char segment[WEIR_MAX_SEGMENT + 1]; /* NUL-terminated address */
	size_t segment_len;
	uint64_t index;  /* from 1 */
	uint8_t id[32];  /* the key that the sink gets with the record */
} weir_coordinate;

typedef struct {
	const void *data;
	size_t len;
} weir_slice;

/* ---- One frame at a time ---- */

typedef struct {
	int fd; /* -1: not connected */
	int timeout_ms;
	char path[108];
	weir_error error;
} weir_client;

/* weir_init prepares a handle; it connects with the first call. path NULL: WEIR_SOCKET of the environment, or weir-data/weir.sock.
 * timeout_ms bounds each call; 0: 30 seconds. WEIR_INVALID: the path does not fit a socket address. */
weir_status weir_init(weir_client *c, const char *path, int timeout_ms);

/* weir_close closes the connection. The handle may be used again. */
void weir_close(weir_client *c);

/* weir_push sends a record of 1 to WEIR_MAX_PAYLOAD bytes and waits for its ack. The connection is dropped after every
 * error but WEIR_TRANSIENT and WEIR_INVALID; the next call makes a new one. */
weir_status weir_push(weir_client *c, weir_durability d, const void *payload, size_t len);

/* weir_push_tracked is weir_push, and fills in where the record landed. */
weir_status weir_push_tracked(weir_client *c, weir_durability d, const void *payload, size_t len, weir_coordinate *out);

/* weir_push_batch sends 1 to WEIR_MAX_BATCH_RECORDS records in one frame of at most WEIR_MAX_PAYLOAD bytes (a daemon may take
 * fewer: 1024 by default). With WEIR_OK acked[i] is 1 where record i is as safe as it was asked to be, and 0 where its fate is
 * unknown. acked has n bytes. */
weir_status weir_push_batch(weir_client *c, weir_durability d, const weir_slice *records, size_t n, uint8_t *acked);

/* weir_health asks whether the daemon answers. */
weir_status weir_health(weir_client *c);

/* ---- Many frames in flight ---- */

/* weir_outcome_fn is told what became of each record, in the order of their sends. error is NULL with WEIR_OK. It must not use the producer. */
typedef void (*weir_outcome_fn)(void *context, void *tag, weir_status status, const weir_error *error);

/* A producer keeps up to window frames unanswered. After a connection error all of them are WEIR_UNKNOWN; it is the caller that
 * sends them again. The next send connects anew, after a pause that doubles up to max_backoff_ms. */
typedef struct {
	weir_client client;
	weir_durability durability;
	weir_outcome_fn outcome;
	void *context;
	void **tags; /* the ring of those in flight */
	size_t window, first, inflight;
	uint8_t *out; /* frames not yet written */
	size_t out_cap, out_len;
	uint8_t in[WEIR_FRAME_OVERHEAD * 256];
	size_t in_len;
	int backoff_ms, max_backoff_ms;
	uint64_t random;
} weir_producer;

typedef struct {
	const char *path;   /* as for weir_init */
	int timeout_ms;     /* for the answer to a frame; 0: 30 seconds */
	int max_backoff_ms; /* 0: 5 seconds */
	weir_durability durability;
	weir_outcome_fn outcome;
	void *context;
	void **tags; /* room for window tags */
	size_t window;
	void *buffer; /* room for frames that wait to be written: at least one largest record and WEIR_FRAME_OVERHEAD */
	size_t buffer_len;
} weir_producer_options;

/* weir_producer_init prepares a producer; tags and buffer stay the caller's and must live as long as it. */
weir_status weir_producer_init(weir_producer *p, const weir_producer_options *o);

/* weir_producer_send takes a record; payload is copied. While the window is full it waits for answers. A record that the arguments
 * rule out is WEIR_INVALID and gets no outcome; with any other result its outcome comes, or has come, by the callback. */
weir_status weir_producer_send(weir_producer *p, const void *payload, size_t len, void *tag);

/* weir_producer_flush writes what waits and returns when every record has its outcome. The result is that of the connection. */
weir_status weir_producer_flush(weir_producer *p);

/* weir_producer_close flushes and closes. */
weir_status weir_producer_close(weir_producer *p);

/* ---- The codec ---- */

typedef enum {
	WEIR_T_PUSH = 0x01,
	WEIR_T_ACK = 0x02,
	WEIR_T_NACK = 0x03,
	WEIR_T_HEALTH = 0x04,
	WEIR_T_HEALTH_OK = 0x05,
	WEIR_T_PUSH_TRACKED = 0x06,
	WEIR_T_ACK_TRACKED = 0x07,
	WEIR_T_PUSH_BATCH = 0x08,
	WEIR_T_ACK_BATCH = 0x09
} weir_type;

/* The verdicts of the decoders, by the names that the conformance vectors have for them. */
typedef enum {
	WEIR_V_OK = 0,
	WEIR_V_TRUNCATED_FRAME,
	WEIR_V_TRAILING_BYTES,
	WEIR_V_BAD_MAGIC,
	WEIR_V_VERSION_MISMATCH,
	WEIR_V_HEADER_CRC_MISMATCH,
	WEIR_V_UNKNOWN_MESSAGE_TYPE,
	WEIR_V_UNKNOWN_DURABILITY,
	WEIR_V_RESERVED_FLAGS_SET,
	WEIR_V_PAYLOAD_TOO_LARGE,
	WEIR_V_EMPTY_PAYLOAD,
	WEIR_V_PAYLOAD_CRC_MISMATCH,
	WEIR_V_TRUNCATED,
	WEIR_V_UNSUPPORTED_VERSION,
	WEIR_V_EMPTY_BATCH,
	WEIR_V_TOO_MANY_RECORDS,
	WEIR_V_TRUNCATED_RECORD,
	WEIR_V_EMPTY_RECORD,
	WEIR_V_RECORD_TOO_LARGE,
	WEIR_V_LENGTH_MISMATCH,
	WEIR_V_PADDING_NOT_ZERO,
	WEIR_V_SEGMENT_TOO_LONG,
	WEIR_V_SEGMENT_NOT_UTF8
} weir_verdict;

const char *weir_verdict_name(weir_verdict v);

typedef struct {
	weir_type type;
	weir_durability durability;
	uint32_t payload_len;
	uint8_t version; /* with WEIR_V_VERSION_MISMATCH: what the peer speaks */
} weir_header;

/* weir_crc32 continues a CRC-32 (zlib's) from crc, 0 at the start. */
uint32_t weir_crc32(uint32_t crc, const void *data, size_t len);

/* weir_encode_header writes the 16 bytes of a header. */
void weir_encode_header(uint8_t out[WEIR_HEADER_LEN], weir_type type, weir_durability d, uint32_t payload_len);

/* weir_decode_header reads 16 bytes; it checks everything up to the cap of the payload length, WEIR_MAX_PAYLOAD. */
weir_verdict weir_decode_header(const uint8_t in[WEIR_HEADER_LEN], weir_header *out);

/* weir_decode_frame reads a buffer that must be exactly one frame; payload points into it. */
weir_verdict weir_decode_frame(const uint8_t *in, size_t len, weir_header *out, const uint8_t **payload);

/* weir_next_record walks the body of a PushBatch. Start with *at = 0; each call gives one record and moves *at, until *at == len with
 * WEIR_V_OK. left is kept between calls. All of a body is only known to be right when the walk has ended. */
weir_verdict weir_next_record(const uint8_t *body, size_t len, size_t *at, uint32_t *left, weir_slice *record);

/* weir_decode_ack_batch checks an AckBatch payload against the number of records sent; bit i is bits[i / 8] >> (i % 8) & 1. */
weir_verdict weir_decode_ack_batch(const uint8_t *in, size_t len, size_t sent, const uint8_t **bits);

/* weir_decode_nack reads a Nack payload: the reason, and the daemon's version with WEIR_REASON_VERSION_MISMATCH. */
weir_verdict weir_decode_nack(const uint8_t *in, size_t len, uint8_t *reason, uint8_t *version);

/* weir_record_id computes the id of a record: SHA-256 over its place and its bytes. */
void weir_record_id(const char *segment, size_t segment_len, uint64_t index, const void *payload, size_t len, uint8_t out[32]);

/* weir_decode_coordinate reads an AckTracked payload. */
weir_verdict weir_decode_coordinate(const uint8_t *in, size_t len, weir_coordinate *out);

#ifdef __cplusplus
}
#endif

#endif
