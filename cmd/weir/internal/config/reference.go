package config

import (
	"math"
	"strings"
	"time"
)

// Key is what there is to say of one key of the configuration.
type Key struct {
	Name string
	// Help says in full sentences what the key does.
	Help string
	// Min and Max bound a number, both included; where both are 0 there is no bound here.
	Min, Max int64
	// Reload: a reload puts a new value into force; all other keys need a restart.
	Reload bool
	// Flag and Variable are the short names that some keys have beside WEIR_SECTION_KEY; empty for none.
	Flag     string
	Variable string
}

// Section is a section of the file and what it is about.
type Section struct {
	Name string // empty for the keys before the first section
	Help string
}

const (
	long    = int64(100 * 365 * 24 * time.Hour) // a time that no key exceeds
	tick    = int64(time.Millisecond)
	anySize = math.MaxInt64 >> 1
)

// sections are in the order in which a file has them.
var sections = []Section{
	{"", "The whole daemon."},
	{"socket", "The Unix socket that producers push to."},
	{"wab", "The log on disk (write-ahead buffer)."},
	{"drain", "Delivery: how records are batched, tried again and given up."},
	{"sink", "Where records go."},
	{"sink.file", "The file sink: one line for each record, synced before it counts as delivered."},
	{"sink.http", "The HTTP sink."},
	{"sink.weida", "The weida sink: one message to a broker's queue for each record, which counts as delivered when the broker confirms it."},
	{"sink.kafka", "The Kafka sink: one Kafka record a record by an idempotent producer, with the record's id in the header weir-record-id."},
	{"sink.nats", "The NATS sink: one message a record to a stream of JetStream, with the record's id as Nats-Msg-Id."},
	{"sink.postgres", "The PostgreSQL sink: one INSERT a batch, one row a record, with the record's id under a unique constraint."},
	{"sink.s3", "The S3 sink: one object a batch, in a bucket of AWS or of a server that speaks its protocol, under a name that a repeat overwrites."},
	{"admin", "Status page, metrics and the socket of the commands that change something."},
	{"log", "The daemon's own log, on standard error."},
	{"runtime", "The process."},
}

// reference has every key once, in the order of the sections.
var reference = []Key{
	{Name: "shutdown_timeout", Min: int64(time.Second), Max: long, Reload: true, Help: "Time from SIGTERM to the exit, at most. Deliveries under way get half of it to end."},

	{Name: "socket.path", Flag: "socket", Variable: "WEIR_SOCKET", Help: "Path of the socket, mode 0600, at most 107 bytes. Empty: weir.sock in the data folder."},
	{Name: "socket.max_connections", Min: 1, Max: 1 << 20, Help: "Connections that may be open at once; more are closed as soon as they are made."},
	{Name: "socket.frame_timeout", Min: tick, Max: long, Help: "Time for one whole frame to arrive, from its first byte. A connection without a frame may wait for ever."},
	{Name: "socket.write_timeout", Min: tick, Max: long, Help: "Time that a producer may leave its replies unread before it is cut off."},
	{Name: "socket.max_payload_bytes", Min: 1, Max: 16 << 20, Help: "Largest payload of a frame."},
	{Name: "socket.max_batch_records", Min: 1, Max: 2048, Help: "Most records in one batch frame."},
	{Name: "socket.pipeline_records", Min: 1, Max: 1 << 20, Help: "Records of one connection that may wait for their acks; then it is read no further until some are answered."},
	{Name: "socket.pipeline_bytes", Min: 1, Max: 1 << 30, Help: "The same, in bytes of payload."},
	{Name: "socket.memory_bytes", Min: 1, Max: 1 << 40, Help: "Memory for the frames of all connections together."},
	{Name: "socket.peer_uids", Help: "User ids that may connect; the permissions of the path must let them, too. Empty: the daemon's own and root."},

	{Name: "wab.dir", Flag: "data-dir", Variable: "WEIR_DATA_DIR", Help: "The data folder; it is made if its parent exists. One daemon at a time may use it."},
	{Name: "wab.shards", Min: 1, Max: 64, Help: "Independent logs; a connection belongs to one. More shards use more cores and give up the order between connections."},
	{Name: "wab.segment_bytes", Min: 64 << 10, Max: 1 << 34, Help: "Size of one segment file, preallocated. Space is given back by whole segments."},
	{Name: "wab.group_records", Min: 1, Max: 1 << 20, Help: "Most records that share one fdatasync."},
	{Name: "wab.group_bytes", Min: 1, Max: 32 << 20, Help: "Most bytes that share one fdatasync."},
	{Name: "wab.max_bytes", Max: anySize, Help: "Hard cap on what the log takes on disk; over it pushes get a Nack and delivery goes on. 0: 10 GiB, or 80 % of the space that is free or held by the log at the start, if that is less."},
	{Name: "wab.min_free_bytes", Max: anySize, Help: "Free space of the file system under which pushes are refused. 0: none is kept free."},

	{Name: "drain.batch_records", Min: 1, Max: 1 << 20, Reload: true, Help: "Most records in one batch."},
	{Name: "drain.batch_bytes", Min: 1, Max: 1 << 30, Reload: true, Help: "Most bytes of payload in one batch; a larger record goes alone."},
	{Name: "drain.linger", Max: long, Reload: true, Help: "How long a batch that is not full waits for more, counted from its first record."},
	{Name: "drain.max_in_flight", Min: 1, Max: 64, Reload: true, Help: "Batches of a shard that may be under way at once. 1: strict order."},
	{Name: "drain.max_age", Max: long, Reload: true, Help: "Records older than this are dropped and counted as expired. 0: records never expire."},
	{Name: "drain.rate_limit", Max: 1 << 40, Reload: true, Help: "Records a second that are sent at most, over all shards. 0: no limit."},
	{Name: "drain.sink_timeout", Min: tick, Max: long, Reload: true, Help: "Time for one attempt to deliver a batch; then it is cut off and tried again."},
	{Name: "drain.backoff_min", Min: tick, Max: long, Reload: true, Help: "Longest wait after the first failed attempt. It doubles with each failure in a row; the wait itself is random below it."},
	{Name: "drain.backoff_max", Min: tick, Max: long, Reload: true, Help: "Where the doubling ends."},
	{Name: "drain.hold_interval", Min: tick, Max: long, Reload: true, Help: "How often an endpoint is tried that refuses the credentials, the address or the method."},
	{Name: "drain.deadletter_max_bytes", Min: 1, Max: anySize, Help: "Most that the dead letters may take. When they have it, a shard that meets a refused record holds until letters are dropped or requeued."},

	{Name: "sink.type", Flag: "sink", Variable: "WEIR_SINK", Help: "Where records go: file, http, weida, kafka, nats, postgres, s3, or discard (accepts all and keeps nothing, for measuring)."},
	{Name: "sink.file.path", Help: "The file. Empty: delivered.jsonl in the data folder."},
	{Name: "sink.file.format", Help: "jsonl (an object with id, segment, index, appended and payload) or lines (the record itself)."},
	{Name: "sink.file.base64", Help: "With jsonl: write every payload as payload_base64, not only those that are not UTF-8."},
	{Name: "sink.file.rotate_bytes", Max: anySize, Help: "Size at which the file is renamed to .1, .2 and so on, and a new one begun; none is removed. 0: never."},
	{Name: "sink.file.rotate_age", Max: long, Help: "The same, by the time since the first line. 0: never."},

	{Name: "sink.http.url", Flag: "sink-url", Variable: "WEIR_SINK_URL", Reload: true, Help: "Address to send to, http or https. Required with type http."},
	{Name: "sink.http.method", Reload: true, Help: "POST or PUT."},
	{Name: "sink.http.format", Reload: true, Help: "raw (one record a request), ndjson or json (one batch a request)."},
	{Name: "sink.http.content_type", Reload: true, Help: "Content-Type instead of the one that goes with the format."},
	{Name: "sink.http.headers", Reload: true, Help: "Headers of every request, as a table; Host sets the host name that is asked for. Values are never printed."},
	{Name: "sink.http.token_file", Reload: true, Help: "File with a bearer token; it is read again when it changes."},
	{Name: "sink.http.token_env", Reload: true, Help: "Name of the variable with a bearer token."},
	{Name: "sink.http.username", Reload: true, Help: "User name of basic authentication."},
	{Name: "sink.http.password_file", Reload: true, Help: "File with the password of the user; it is read again when it changes."},
	{Name: "sink.http.password_env", Reload: true, Help: "Name of the variable with the password."},
	{Name: "sink.http.cert_file", Reload: true, Help: "Client certificate, PEM; it is read again when it changes."},
	{Name: "sink.http.key_file", Reload: true, Help: "Key of the client certificate, PEM; it is read again when it changes."},
	{Name: "sink.http.ca_file", Reload: true, Help: "Authorities to trust instead of the system's, PEM; it is read again when it changes."},
	{Name: "sink.http.compression", Reload: true, Help: "Compression of the request body: none, gzip or zstd."},
	{Name: "sink.http.concurrency", Min: 1, Max: 1024, Reload: true, Help: "With raw: requests that may be under way at once."},
	{Name: "sink.http.disable_http2", Reload: true, Help: "Keep to HTTP/1.1 where the server offers HTTP/2."},
	{Name: "sink.http.connect_timeout", Max: long, Reload: true, Help: "Time for looking up the name and connecting."},
	{Name: "sink.http.tls_timeout", Max: long, Reload: true, Help: "Time for the TLS handshake."},
	{Name: "sink.http.timeout", Max: long, Reload: true, Help: "Time from the start of a request to the header of its answer."},
	{Name: "sink.http.answer_timeout", Max: long, Reload: true, Help: "Time for reading the body of an answer."},
	{Name: "sink.http.idle_timeout", Max: long, Reload: true, Help: "A connection that was not used for so long is closed."},
	{Name: "sink.http.max_connection_age", Max: long, Reload: true, Help: "Connections that are older are replaced, so that a change of address is followed."},
	{Name: "sink.http.retry_after_max", Max: long, Reload: true, Help: "Most that an endpoint may ask for in Retry-After."},
	{Name: "sink.http.status", Reload: true, Help: "What answers mean, as a table: a status (\"409\") or class (\"4xx\") and delivered, retry, hold, split or reject."},
	{Name: "sink.http.partial", Reload: true, Help: "How an answer tells the records of a batch apart: none, bulk (Elasticsearch _bulk) or multistatus (207 with an array)."},
	{Name: "sink.http.bulk_action", Reload: true, Help: "With ndjson and bulk: put an action line with the record's id before each record: none, create or index."},

	{Name: "sink.weida.url", Flag: "sink-url", Variable: "WEIR_SINK_URL", Reload: true, Help: "Address of the queue, as the broker prints it: weida://sha256:FINGERPRINT@host:7443/queue, or weida+unix://SOCKET/queue. Required with type weida."},
	{Name: "sink.weida.topic", Reload: true, Help: "Topic of every message, at most 256 bytes; consumers choose by it. Empty: none."},
	{Name: "sink.weida.content_type", Reload: true, Help: "Content type of every message, at most 256 bytes."},
	{Name: "sink.weida.required_ack", Reload: true, Help: "What the broker has to confirm before a record counts as delivered: stored (it is on its disk and flushed, which the broker must promise for all of its queues), written (on its disk, flushed or not) or accepted (in its memory)."},
	{Name: "sink.weida.max_in_flight", Min: 1, Max: 4096, Reload: true, Help: "Records that may be under way at once, over all batches. 1, with drain.max_in_flight = 1: strict order."},
	{Name: "sink.weida.max_record_bytes", Max: anySize, Reload: true, Help: "Largest record that is sent; a larger one becomes a dead letter. 0: no bound, and a record that the queue never has room for is tried for ever."},
	{Name: "sink.weida.identity_dir", Reload: true, Help: "Folder with the key by which a broker knows this weir; the key is made if there is none. Empty: identity in the data folder."},
	{Name: "sink.weida.connect_timeout", Max: long, Reload: true, Help: "Time for connecting, and for a lost connection to come back before a batch counts as failed."},
	{Name: "sink.weida.timeout", Max: long, Reload: true, Help: "Time in which a batch may get nothing done, neither sent nor confirmed, before it counts as failed."},

	{Name: "sink.kafka.brokers", Flag: "sink-url", Variable: "WEIR_SINK_URL", Reload: true, Help: "Addresses of brokers to begin with, host:port, with commas between them. Required with type kafka."},
	{Name: "sink.kafka.topic", Reload: true, Help: "What is produced to; {shard} in it becomes the number of the shard, {host} the name of the machine. It is not made. Required with type kafka."},
	{Name: "sink.kafka.partition", Reload: true, Help: "What chooses the partition: shard (with the machine; keeps the order of a shard), id (of the record) or sticky (the key where there is one, else what fills requests)."},
	{Name: "sink.kafka.key", Reload: true, Help: "Key of each Kafka record; {id} in it becomes the record's id, {shard} and {host} as in the topic. Empty: none."},
	{Name: "sink.kafka.compression", Reload: true, Help: "snappy, lz4, zstd, gzip or none."},
	{Name: "sink.kafka.sasl", Reload: true, Help: "How to log in: none, plain, scram-sha-256 or scram-sha-512."},
	{Name: "sink.kafka.username", Reload: true, Help: "User name."},
	{Name: "sink.kafka.password_file", Reload: true, Help: "File with the password of the user. All files are read again for each connection."},
	{Name: "sink.kafka.password_env", Reload: true, Help: "Name of the variable with the password."},
	{Name: "sink.kafka.tls", Reload: true, Help: "Use TLS. Any file of TLS does the same."},
	{Name: "sink.kafka.cert_file", Reload: true, Help: "Client certificate, PEM."},
	{Name: "sink.kafka.key_file", Reload: true, Help: "Key of the client certificate, PEM."},
	{Name: "sink.kafka.ca_file", Reload: true, Help: "Authorities to trust instead of the system's, PEM."},
	{Name: "sink.kafka.batch_max_bytes", Min: 1024, Max: 96 << 20, Reload: true, Help: "Most bytes of one partition in a request, before compression; not above max.message.bytes of the topic. A larger record becomes a dead letter."},
	{Name: "sink.kafka.max_pending", Min: 1, Max: 1_000_000, Reload: true, Help: "Records that may wait for their ack at once, over all batches."},
	{Name: "sink.kafka.connect_timeout", Max: long, Reload: true, Help: "Time for look-up, connect and TLS at each broker."},
	{Name: "sink.kafka.ack_timeout", Max: long, Reload: true, Help: "Time from the start of a batch to its last ack; then the connections are made anew and what has no ack is sent again."},

	{Name: "sink.nats.url", Flag: "sink-url", Variable: "WEIR_SINK_URL", Reload: true, Help: "Addresses of servers, nats://host:port or tls://host:port, with commas between them. Required with type nats."},
	{Name: "sink.nats.subject", Reload: true, Help: "What is published to; {shard} in it becomes the number of the shard, {host} the name of the machine with _ for each dot. Required with type nats."},
	{Name: "sink.nats.stream", Reload: true, Help: "The stream that must take the records; any other refuses them. Empty: any stream that takes the subject."},
	{Name: "sink.nats.credentials_file", Reload: true, Help: "File with a JWT and its seed, as nsc writes them. All files are read again for each connection."},
	{Name: "sink.nats.nkey_file", Reload: true, Help: "File with the seed of an nkey."},
	{Name: "sink.nats.token_file", Reload: true, Help: "File with a token."},
	{Name: "sink.nats.token_env", Reload: true, Help: "Name of the variable with a token."},
	{Name: "sink.nats.username", Reload: true, Help: "User name."},
	{Name: "sink.nats.password_file", Reload: true, Help: "File with the password of the user."},
	{Name: "sink.nats.password_env", Reload: true, Help: "Name of the variable with the password."},
	{Name: "sink.nats.cert_file", Reload: true, Help: "Client certificate, PEM. Any file of TLS makes TLS a must, as tls:// does."},
	{Name: "sink.nats.key_file", Reload: true, Help: "Key of the client certificate, PEM."},
	{Name: "sink.nats.ca_file", Reload: true, Help: "Authorities to trust instead of the system's, PEM."},
	{Name: "sink.nats.tls_first", Reload: true, Help: "Begin with the TLS handshake, for servers with handshake_first."},
	{Name: "sink.nats.inbox_prefix", Reload: true, Help: "What the subjects of acks begin with, for accounts that may not use _INBOX."},
	{Name: "sink.nats.max_pending", Min: 1, Max: 65536, Reload: true, Help: "Records that may wait for their ack at once, over all batches."},
	{Name: "sink.nats.connect_timeout", Max: long, Reload: true, Help: "Time for look-up, connect, TLS and login at each server."},
	{Name: "sink.nats.ack_timeout", Max: long, Reload: true, Help: "Time from the start of a batch to its last ack; then the connection is made anew and what has no ack is sent again."},

	{Name: "sink.postgres.url", Flag: "sink-url", Variable: "WEIR_SINK_URL", Reload: true, Help: "postgres://user@host:port/database?sslmode=verify-full, as libpq has it, without a password. Required with type postgres."},
	{Name: "sink.postgres.password_file", Reload: true, Help: "File with the password. All files are read again for each connection."},
	{Name: "sink.postgres.password_env", Reload: true, Help: "Name of the variable with the password."},
	{Name: "sink.postgres.cert_file", Reload: true, Help: "Client certificate, PEM."},
	{Name: "sink.postgres.key_file", Reload: true, Help: "Key of the client certificate, PEM."},
	{Name: "sink.postgres.ca_file", Reload: true, Help: "Authorities to trust, PEM; with it sslmode is verify-full unless the address says otherwise."},
	{Name: "sink.postgres.table", Reload: true, Help: "The table, as name or schema.name."},
	{Name: "sink.postgres.id_column", Reload: true, Help: "Column of the record's id; it needs a unique constraint of its own."},
	{Name: "sink.postgres.id_type", Reload: true, Help: "What the id is: text (sha256: and 64 digits) or bytea (32 bytes)."},
	{Name: "sink.postgres.payload_column", Reload: true, Help: "Column of the record."},
	{Name: "sink.postgres.payload_type", Reload: true, Help: "What the record is: bytea, text or jsonb. One that is not becomes a dead letter."},
	{Name: "sink.postgres.segment_column", Reload: true, Help: "Column, of type text, for the segment of weir's log. Empty: none."},
	{Name: "sink.postgres.index_column", Reload: true, Help: "Column, of type bigint, for the number in the segment. Empty: none."},
	{Name: "sink.postgres.appended_column", Reload: true, Help: "Column, of type timestamptz, for the time at which weir took the record. Empty: none."},
	{Name: "sink.postgres.connections", Min: 1, Max: 64, Reload: true, Help: "Connections that there may be at once."},
	{Name: "sink.postgres.connect_timeout", Max: long, Reload: true, Help: "Time for connect and login at each host."},
	{Name: "sink.postgres.timeout", Max: long, Reload: true, Help: "Time for one batch, connecting included."},

	{Name: "sink.s3.bucket", Reload: true, Help: "Name of the bucket, or ARN of an access point. Required with type s3."},
	{Name: "sink.s3.endpoint", Flag: "sink-url", Variable: "WEIR_SINK_URL", Reload: true, Help: "Address of a server that speaks S3, http or https. Empty: AWS."},
	{Name: "sink.s3.region", Reload: true, Help: "Region of the bucket. Empty: the one of the environment or the profile, and us-east-1 with an endpoint where they have none."},
	{Name: "sink.s3.path_style", Reload: true, Help: "Put the bucket into the path instead of the host name, as most servers but AWS want it."},
	{Name: "sink.s3.prefix", Reload: true, Help: "What names begin with; {yyyy}, {mm}, {dd} and {hh} in it become the UTC time at which the batch's first record was taken, {host} the name of the machine, {shard} the number of the shard."},
	{Name: "sink.s3.format", Reload: true, Help: "jsonl (an object with id, segment, index, appended and payload a line) or length (each record behind its length in 4 bytes, the most significant first)."},
	{Name: "sink.s3.compression", Reload: true, Help: "zstd, gzip or none."},
	{Name: "sink.s3.multipart_bytes", Min: 5 << 20, Max: 1 << 30, Reload: true, Help: "Size of an object above which it is sent in parts of that size."},
	{Name: "sink.s3.checksum", Reload: true, Help: "What the server checks each body against: crc32, sha256, or none for servers that know neither."},
	{Name: "sink.s3.storage_class", Reload: true, Help: "Storage class, like STANDARD_IA. Empty: the bucket's."},
	{Name: "sink.s3.encryption", Reload: true, Help: "Encryption at the server: AES256, aws:kms or aws:kms:dsse. Empty: the bucket's."},
	{Name: "sink.s3.kms_key", Reload: true, Help: "Key for aws:kms. Empty: the account's."},
	{Name: "sink.s3.access_key", Reload: true, Help: "Id of an access key. Empty: the standard chain of AWS: variables, profile, web identity, role of the container or the machine."},
	{Name: "sink.s3.secret_key_file", Reload: true, Help: "File with the secret of the access key. All files are read again for each batch."},
	{Name: "sink.s3.secret_key_env", Reload: true, Help: "Name of the variable with the secret."},
	{Name: "sink.s3.session_token_file", Reload: true, Help: "File with the token of temporary credentials."},
	{Name: "sink.s3.session_token_env", Reload: true, Help: "Name of the variable with the token."},
	{Name: "sink.s3.ca_file", Reload: true, Help: "Authorities to trust instead of the system's, PEM."},
	{Name: "sink.s3.connect_timeout", Max: long, Reload: true, Help: "Time for look-up and connect, and then for the TLS handshake."},
	{Name: "sink.s3.timeout", Max: long, Reload: true, Help: "Time for one batch, all requests included."},

	{Name: "admin.listen", Flag: "admin", Variable: "WEIR_ADMIN", Help: "host:port of the live page, metrics, health and status; it only reads. Empty: none."},
	{Name: "admin.socket", Help: "Path of the socket, mode 0600, over which commands change something. Empty: admin.sock in the data folder."},

	{Name: "log.level", Flag: "log-level", Reload: true, Help: "debug, info, warn or error."},
	{Name: "log.format", Help: "text or json."},

	{Name: "runtime.gogc", Min: -1, Max: 1 << 20, Reload: true, Help: "How far the heap may grow between collections, in percent. 0: as the variable GOGC says, 100 without it. -1: memory_limit alone decides."},
	{Name: "runtime.memory_limit", Max: anySize, Reload: true, Help: "Memory that the collector tries to stay under. 0: as the variable GOMEMLIMIT says, none without it."},
}

// Reference returns every key with what there is to say of it, in the order of a file.
func Reference() []Key { return append([]Key(nil), reference...) }

// Sections returns the sections in the order of a file.
func Sections() []Section { return append([]Section(nil), sections...) }

// ofSink tells the keys of a sink that checks its own, and only when it is the one in use.
func (k Key) ofSink() bool {
	return strings.HasPrefix(k.Name, "sink.") && strings.Count(k.Name, ".") == 2 && k.Section() != "sink.file"
}

// Section is the section that the key is in, empty for none.
func (k Key) Section() string { return sectionOf(k.Name) }

// flagOf returns the flag of a key, or the key where it has none.
func flagOf(key string) string {
	for _, k := range reference {
		if k.Name == key && k.Flag != "" {
			return k.Flag
		}
	}
	return key
}
