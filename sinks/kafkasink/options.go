// Package kafkasink delivers records to a topic of Apache Kafka: one Kafka record a record, with the record's id in the header
// weir-record-id, by an idempotent producer that waits for all in-sync replicas. A record is delivered when its partition's
// leader says so, and then as safe as the topic makes it: see docs/sinks/kafka.md.
//
// All batches share one client, which sends again by itself, and without a repeat, what a lost connection or a change of leaders
// left open. When the context of a batch ends, or AckTimeout, the client is given up with all that it has buffered, so
// that nothing of it is sent later; the next Deliver makes a new one. What becomes of a record:
//
//	acked by all in-sync replicas                                      delivered
//	no broker, a lost connection, no ack in time, TLS, DNS             retry
//	no leader, a change of leaders, too few in-sync replicas, a quota  retry
//	CORRUPT_MESSAGE, UNKNOWN_SERVER_ERROR, errors of the producer's id retry
//	login refused, no permission, a credential file that is missing    hold
//	no such topic, a bad name, a codec or version it does not support  hold
//	INVALID_RECORD without a key, as a compacted topic answers         hold
//	any other error that Kafka does not call retriable                 hold
//	larger than batch_max_bytes                                        reject, isolated
//	MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE                           split; reject when it was alone in its request
//	INVALID_RECORD with a key                                          reject; isolated when it was alone in its request
//
// A build with the tag nokafka has no client of Kafka, and New of it returns an error.
package kafkasink

import (
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/weir-agent/weir/sinks/setup"
)

// Values of Partition.
const (
	PartitionShard  = "shard"
	PartitionID     = "id"
	PartitionSticky = "sticky"
)

// Values of SASL.
const (
	SASLNone     = "none"
	SASLPlain    = "plain"
	SASLScram256 = "scram-sha-256"
	SASLScram512 = "scram-sha-512"
)

const (
	defaultConnectTimeout = 10 * time.Second
	defaultAckTimeout     = 30 * time.Second
	defaultMaxPending     = 10_000
	mostPending           = 1_000_000
	// defaultBatchMaxBytes is below what a broker takes by default, 1,048,588 bytes.
	defaultBatchMaxBytes = 1_000_012
	leastBatchMaxBytes   = 1024
	// mostBatchMaxBytes stays below what a broker reads of a request by default, 100 MiB.
	mostBatchMaxBytes = 96 << 20
	// mostTopicBytes is the longest name of a topic.
	mostTopicBytes = 249
)

// section is that of the configuration.
const section = "sink.kafka"

// Options says where and how to deliver. Brokers and Topic are required; the zero value of every other field means its
// default. The names in brackets are the keys below sink.kafka in the configuration.
type Options struct {
	// Brokers has the addresses, host:port, of one or more brokers to begin with, with commas between them; the cluster names
	// the others [brokers].
	Brokers string `toml:"brokers"`
	// Topic is what is produced to; {shard} in it stands for the number of the shard, {host} for the name of the machine. No topic
	// is made [topic].
	Topic string `toml:"topic"`
	// Partition chooses the partition of a record: "shard" (default) by machine and shard, so that the order of a shard is kept;
	// "id" by the record's id; "sticky" as the client does by itself, by the key where there is one and what fills a
	// request otherwise [partition].
	Partition string `toml:"partition"`
	// Key is the key of each Kafka record, none by default; {id} in it stands for the record's id, {shard} and {host} as in
	// Topic [key].
	Key string `toml:"key"`
	// Compression is "snappy" (default), "lz4", "zstd", "gzip" or "none" [compression].
	Compression string `toml:"compression"`

	// SASL is how to log in: "none" (default), "plain", "scram-sha-256" or "scram-sha-512" [sasl].
	SASL string `toml:"sasl"`
	// Username is the user, and PasswordFile or PasswordEnv has the password; the file is read for each connection
	// [username, password_file, password_env].
	Username     string `toml:"username"`
	PasswordFile string `toml:"password_file"`
	PasswordEnv  string `toml:"password_env"`

	// TLS makes TLS a must, as any of the files below does [tls].
	TLS bool `toml:"tls"`
	// CertFile and KeyFile are the client certificate and its key, PEM, both or neither; CAFile has the authorities to
	// trust instead of the system's. They are read for each connection [cert_file, key_file, ca_file].
	CertFile string `toml:"cert_file"`
	KeyFile  string `toml:"key_file"`
	CAFile   string `toml:"ca_file"`

	// BatchMaxBytes bounds the records of one partition in one request, before compression: 1024 to 96 MiB, default 1,000,012. It
	// should not be above max.message.bytes of the topic [batch_max_bytes].
	BatchMaxBytes int `toml:"batch_max_bytes"`
	// MaxPending bounds the records that wait for their ack, over all batches: 1 to 1,000,000, default 10,000 [max_pending].
	MaxPending int `toml:"max_pending"`
	// ConnectTimeout bounds look-up, connect and TLS at each broker; default 10 s [connect_timeout].
	ConnectTimeout time.Duration `toml:"connect_timeout"`
	// AckTimeout bounds the time from the start of a batch to its last ack; default 30 s [ack_timeout].
	AckTimeout time.Duration `toml:"ack_timeout"`
}

// Default returns the defaults.
func Default() Options {
	return Options{
		Partition: PartitionShard, Compression: "snappy", SASL: SASLNone, BatchMaxBytes: defaultBatchMaxBytes, MaxPending: defaultMaxPending,
		ConnectTimeout: defaultConnectTimeout, AckTimeout: defaultAckTimeout,
	}
}

// Check returns all faults of the options, joined, without reading a file or opening a connection.
func (o Options) Check() error {
	_, err := resolve(o)
	return err
}

func (o *Options) password() setup.Secret {
	return setup.Secret{File: o.PasswordFile, Env: o.PasswordEnv}
}

func (o *Options) files() setup.TLS {
	return setup.TLS{CertFile: o.CertFile, KeyFile: o.KeyFile, CAFile: o.CAFile}
}

// resolve fills the defaults of o and checks it.
func resolve(o Options) (Options, error) {
	f := setup.NewFaults(section)
	o.checkBrokers(f)
	if o.Topic == "" {
		f.Add("topic", "is required")
	} else if !validTopic(expand(o.Topic, 0, "host", "")) {
		f.Add("topic", "%q is not the name of a topic; {shard} and {host} may be in it", o.Topic)
	}
	f.Choose("partition", &o.Partition, PartitionShard, PartitionID, PartitionSticky)
	if strings.ContainsAny(expand(o.Key, 0, "", ""), "{}") {
		f.Add("key", "%q has braces around something other than id, shard or host", o.Key)
	}
	f.Choose("compression", &o.Compression, "snappy", "lz4", "zstd", "gzip", "none")
	f.Choose("sasl", &o.SASL, SASLNone, SASLPlain, SASLScram256, SASLScram512)
	o.checkLogin(f)
	o.files().Check(f)
	f.Number("batch_max_bytes", &o.BatchMaxBytes, defaultBatchMaxBytes, leastBatchMaxBytes, mostBatchMaxBytes)
	f.Number("max_pending", &o.MaxPending, defaultMaxPending, 1, mostPending)
	f.Time("connect_timeout", &o.ConnectTimeout, defaultConnectTimeout)
	f.Time("ack_timeout", &o.AckTimeout, defaultAckTimeout)
	return o, f.Err()
}

// checkBrokers never repeats an address, as one may hold a password by mistake.
func (o *Options) checkBrokers(f *setup.Faults) {
	if o.Brokers == "" {
		f.Add("brokers", "is required")
		return
	}
	for i, address := range o.seeds() {
		host, port, err := net.SplitHostPort(address)
		number, bad := strconv.ParseUint(port, 10, 16)
		if err != nil || bad != nil || number == 0 || host == "" || strings.ContainsAny(host, "/@ ") {
			f.Add("brokers", "address %d is not host:port", i+1)
		}
	}
}

// seeds returns the addresses.
func (o *Options) seeds() []string {
	var all []string
	for address := range strings.SplitSeq(o.Brokers, ",") {
		all = append(all, strings.TrimSpace(address))
	}
	return all
}

func (o *Options) checkLogin(f *setup.Faults) {
	o.password().Check(f, "password")
	switch {
	case o.SASL == SASLNone && (o.Username != "" || o.password().Set()):
		f.Add("sasl", "is required with a username or password: use plain, scram-sha-256 or scram-sha-512")
	case o.SASL != SASLNone && o.Username == "":
		f.Add("username", "is required with sasl")
	case o.SASL != SASLNone && !o.password().Set():
		f.Add("password_file", "or password_env is required with sasl")
	}
}

// expand replaces the words in braces.
func expand(text string, shard int, host, id string) string {
	if !strings.Contains(text, "{") {
		return text
	}
	return strings.NewReplacer("{shard}", strconv.Itoa(shard), "{host}", host, "{id}", id).Replace(text)
}

// validTopic reports whether name can be a topic's.
func validTopic(name string) bool {
	if name == "" || name == "." || name == ".." || len(name) > mostTopicBytes {
		return false
	}
	return strings.IndexFunc(name, badInTopic) < 0
}

func badInTopic(r rune) bool {
	ok := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '-'
	return !ok
}
