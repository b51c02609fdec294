// Package s3sink delivers records to a bucket of S3, or of a server that speaks its protocol: one object a batch, whose
// name follows from the batch, so that a repeat writes the same bytes over itself. A record is delivered when the server has
// said that it keeps the whole object: see docs/sinks/s3.md.
//
// The name of an object is PREFIX SEGMENT "-" INDEX "-" KEY ".jsonl" or ".length", and ".zst" or ".gz" where it is compressed:
// the place of the batch's first record in weir's log (the index with ten digits, so that names sort as the log does), and
// the batch's key, 64 hexadecimal digits. What is in it, in the order of the batch:
//
//	jsonl    a line of JSON a record, as package filesink has them: id, segment, index, appended, payload or payload_base64
//	length   the length of the record in 4 bytes, the most significant first, then the record
//
// The whole object is there or nothing of it. What becomes of a batch:
//
//	the object is written, also over itself                          delivered
//	no server, a lost connection, no answer in time, TLS, DNS        retry
//	5xx, 408, 409, 421, 423, 425, 429, a request that was damaged    retry
//	SlowDown and its like, whatever their status                     retry, as a 503
//	EntityTooLarge, 413                                              split
//	any other 3xx and 4xx, and 501: bucket, key, permission, region  hold
//	no credentials, a file that is missing, options that do not fit  hold
//
// No record is refused for its own sake but by its size. A build with the tag nos3 has no client of S3, and New of it
// returns an error.
package s3sink

import (
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/weir-agent/weir/sinks/setup"
)

// The values of Options.Format.
const (
	FormatJSONL  = "jsonl"
	FormatLength = "length"
)

// The values of Options.Compression.
const (
	CompressionZstd = "zstd"
	CompressionGzip = "gzip"
	CompressionNone = "none"
)

// The values of Options.Checksum.
const (
	ChecksumCRC32  = "crc32"
	ChecksumSHA256 = "sha256"
	ChecksumNone   = "none"
)

const (
	defaultPrefix         = "{yyyy}/{mm}/{dd}/{hh}/"
	defaultMultipartBytes = 16 << 20
	// minMultipartBytes is the least that S3 takes as a part that is not the last one.
	minMultipartBytes     = 5 << 20
	maxMultipartBytes     = 1 << 30
	defaultConnectTimeout = 10 * time.Second
	defaultTimeout        = time.Minute
	// maxPrefixBytes leaves room for the rest of a name, which S3 bounds to 1024 bytes.
	maxPrefixBytes = 512
	// maxPlaceBytes bounds what of a segment's name gets into that of an object; the key tells objects apart all the same.
	maxPlaceBytes = 200
)

// section is that of the configuration.
const section = "sink.s3"

// Options says where and how to deliver. Only Bucket is required; the zero value of every other field means its default. The
// names in brackets are the keys below sink.s3 in the configuration.
type Options struct {
	// Bucket is the bucket's name, or the ARN of an access point [bucket].
	Bucket string `toml:"bucket"`
	// Endpoint is http:// or https:// and host and port of a server that speaks S3; empty: AWS [endpoint].
	Endpoint string `toml:"endpoint"`
	// Region is that of the bucket; empty: the one of the environment or the profile, and us-east-1 with Endpoint where they have none [region].
	Region string `toml:"region"`
	// PathStyle puts the bucket into the path instead of the host name, as most servers but AWS want it [path_style].
	PathStyle bool `toml:"path_style"`

	// Prefix is what names begin with. {yyyy}, {mm}, {dd} and {hh} in it stand for the UTC time at which the batch's first record
	// was appended, {host} for the name of the machine, {shard} for the number of the shard; default {yyyy}/{mm}/{dd}/{hh}/ [prefix].
	Prefix string `toml:"prefix"`
	// Format is jsonl (default) or length [format].
	Format string `toml:"format"`
	// Compression is zstd (default), gzip or none [compression].
	Compression string `toml:"compression"`
	// MultipartBytes is the size above which an object is sent in parts of that size, 5 MiB to 1 GiB; default 16 MiB [multipart_bytes].
	MultipartBytes int64 `toml:"multipart_bytes"`
	// Checksum is what the server checks each body against: crc32 (default), sha256, or none for servers that know neither [checksum].
	Checksum string `toml:"checksum"`
	// StorageClass is a storage class of the server, like STANDARD_IA; empty: the bucket's [storage_class].
	StorageClass string `toml:"storage_class"`
	// Encryption at the server is AES256, aws:kms or aws:kms:dsse; empty: the bucket's. KMSKey names the key of the latter two;
	// empty: the account's [encryption, kms_key].
	Encryption string `toml:"encryption"`
	KMSKey     string `toml:"kms_key"`

	// AccessKey is the id of an access key; empty: the standard chain of AWS (variables, profile, web identity, role of the
	// container or the machine), gone through again after a refusal [access_key].
	AccessKey string `toml:"access_key"`
	// SecretKeyFile or SecretKeyEnv has the secret of AccessKey, SessionTokenFile or SessionTokenEnv the token of temporary ones. The
	// files are read for each batch [secret_key_file, secret_key_env, session_token_file, session_token_env].
	SecretKeyFile    string `toml:"secret_key_file"`
	SecretKeyEnv     string `toml:"secret_key_env"`
	SessionTokenFile string `toml:"session_token_file"`
	SessionTokenEnv  string `toml:"session_token_env"`
	// CAFile has the authorities to trust instead of the system's, PEM; it is read for each batch [ca_file].
	CAFile string `toml:"ca_file"`

	// ConnectTimeout bounds look-up and connect, and then the TLS handshake; default 10 s [connect_timeout].
	ConnectTimeout time.Duration `toml:"connect_timeout"`
	// Timeout bounds one batch, all its requests included; default 1 min [timeout].
	Timeout time.Duration `toml:"timeout"`
}

// Default returns the defaults.
func Default() Options {
	return Options{
		Prefix: defaultPrefix, Format: FormatJSONL, Compression: CompressionZstd, MultipartBytes: defaultMultipartBytes, Checksum: ChecksumCRC32,
		ConnectTimeout: defaultConnectTimeout, Timeout: defaultTimeout,
	}
}

// Check returns all faults of the options, joined, without reading a file or opening a connection.
func (o Options) Check() error {
	_, err := resolve(o)
	return err
}

func (o *Options) secretKey() setup.Secret {
	return setup.Secret{File: o.SecretKeyFile, Env: o.SecretKeyEnv}
}

func (o *Options) sessionToken() setup.Secret {
	return setup.Secret{File: o.SessionTokenFile, Env: o.SessionTokenEnv}
}

// resolve fills the defaults of o and checks it.
func resolve(o Options) (Options, error) {
	f := setup.NewFaults(section)
	if o.Bucket == "" {
		f.Add("bucket", "is required")
	} else if !isToken(o.Bucket) || strings.Contains(o.Bucket, "/") && !strings.HasPrefix(o.Bucket, "arn:") {
		f.Add("bucket", "%q is not the name of a bucket", o.Bucket)
	}
	o.checkEndpoint(f)
	o.checkPrefix(f)
	f.Choose("format", &o.Format, FormatJSONL, FormatLength)
	f.Choose("compression", &o.Compression, CompressionZstd, CompressionGzip, CompressionNone)
	f.Choose("checksum", &o.Checksum, ChecksumCRC32, ChecksumSHA256, ChecksumNone)
	if o.Encryption != "" {
		f.Choose("encryption", &o.Encryption, "AES256", "aws:kms", "aws:kms:dsse")
	}
	if o.KMSKey != "" && !strings.HasPrefix(o.Encryption, "aws:kms") {
		f.Add("kms_key", "needs encryption = \"aws:kms\"")
	}
	for _, c := range []struct{ key, value string }{
		{"region", o.Region},
		{"storage_class", o.StorageClass},
		{"kms_key", o.KMSKey},
		{"access_key", o.AccessKey},
	} {
		if c.value != "" && !isToken(c.value) {
			f.Add(c.key, "%q has spaces or characters that cannot be printed", c.value)
		}
	}
	if o.MultipartBytes == 0 {
		o.MultipartBytes = defaultMultipartBytes
	}
	if o.MultipartBytes < minMultipartBytes || o.MultipartBytes > maxMultipartBytes {
		f.Add("multipart_bytes", "%d is not between 5 MiB and 1 GiB", o.MultipartBytes)
	}
	o.checkCredentials(f)
	f.Time("connect_timeout", &o.ConnectTimeout, defaultConnectTimeout)
	f.Time("timeout", &o.Timeout, defaultTimeout)
	return o, f.Err()
}

// checkEndpoint never repeats the address, as it may hold a password.
func (o *Options) checkEndpoint(f *setup.Faults) {
	if o.Endpoint == "" {
		return
	}
	u, err := url.Parse(o.Endpoint)
	switch {
	case err != nil:
		f.Add("endpoint", "is not a URL")
	case u.Scheme != "http" && u.Scheme != "https":
		f.Add("endpoint", "begins with neither http:// nor https://")
	case u.Hostname() == "":
		f.Add("endpoint", "names no host")
	case u.User != nil:
		f.Add("endpoint", "holds a user or password: use sink.s3.access_key and sink.s3.secret_key_file")
	case u.RawQuery != "" || u.Fragment != "":
		f.Add("endpoint", "has a query (?) or fragment (#)")
	}
}

func (o *Options) checkPrefix(f *setup.Faults) {
	if o.Prefix == "" {
		o.Prefix = defaultPrefix
	}
	// Elements that are empty or dots are names to S3, and something else to servers that keep objects as files.
	bad := len(o.Prefix) > maxPrefixBytes || strings.ContainsAny(o.prefix(0, "host", time.Time{}), "{}\\") || strings.ContainsFunc(o.Prefix, unicode.IsControl)
	for i, element := range strings.Split(o.Prefix, "/") {
		last := i == strings.Count(o.Prefix, "/")
		bad = bad || element == "." || element == ".." || element == "" && !last
	}
	if bad {
		f.Add("prefix", "%q is not the beginning of a name of at most %d bytes without empty elements; {yyyy}, {mm}, {dd}, {hh}, {host} and {shard} may be in it", o.Prefix, maxPrefixBytes)
	}
}

func (o *Options) checkCredentials(f *setup.Faults) {
	o.secretKey().Check(f, "secret_key")
	o.sessionToken().Check(f, "session_token")
	if o.AccessKey != "" && !o.secretKey().Set() {
		f.Add("secret_key_file", "or secret_key_env is required with access_key")
	}
	if o.AccessKey == "" && (o.secretKey().Set() || o.sessionToken().Set()) {
		f.Add("access_key", "is required with a secret key or a session token")
	}
}

// prefix returns what the names of a shard's objects begin with at a time.
func (o *Options) prefix(shard int, host string, at time.Time) string {
	at = at.UTC()
	return strings.NewReplacer(
		"{yyyy}", at.Format("2006"), "{mm}", at.Format("01"), "{dd}", at.Format("02"), "{hh}", at.Format("15"),
		"{host}", host, "{shard}", strconv.Itoa(shard),
	).Replace(o.Prefix)
}

// isToken reports whether s is printable ASCII without spaces, as fits into a header.
func isToken(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}
