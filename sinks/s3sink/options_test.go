package s3sink

import (
	"strings"
	"testing"
	"time"

	"github.com/weir-agent/weir/sinks/sinktest"
)

func TestOptionsCheck(t *testing.T) {
	t.Setenv("S3SINK_TEST_SET", "x")
	good := Options{Bucket: "records", Endpoint: "https://s3.example.com:9000/base", Prefix: "a/dt={yyyy}-{mm}-{dd}/hh={hh}/{host}-{shard}-", AccessKey: "A", SecretKeyEnv: "S3SINK_TEST_SET"}
	for name, o := range map[string]Options{
		"least": {Bucket: "records"}, "access point": {Bucket: "arn:aws:s3:eu-central-1:123456789012:accesspoint/a"},
		"encryption": {Bucket: "b", Encryption: "aws:kms", KMSKey: "arn:aws:kms:eu-central-1:123456789012:key/a"},
	} {
		if err := o.Check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	const notPrefix = " is not the beginning of a name of at most 512 bytes without empty elements; {yyyy}, {mm}, {dd}, {hh}, {host} and {shard} may be in it"
	sinktest.Faults(t, good, map[string]struct {
		Change func(o *Options)
		Want   string
	}{
		"no bucket":         {func(o *Options) { o.Bucket = "" }, "sink.s3.bucket: is required"},
		"bucket and prefix": {func(o *Options) { o.Bucket = "a/b" }, `sink.s3.bucket: "a/b" is not the name of a bucket`},
		"endpoint's scheme": {func(o *Options) { o.Endpoint = "s3://b" }, "sink.s3.endpoint: begins with neither http:// nor https://"},
		"endpoint":          {func(o *Options) { o.Endpoint = "http://[" }, "sink.s3.endpoint: is not a URL"},
		"no host":           {func(o *Options) { o.Endpoint = "http:///x" }, "sink.s3.endpoint: names no host"},
		"password":          {func(o *Options) { o.Endpoint = "http://u:p4ss@h" }, "sink.s3.endpoint: holds a user or password: use sink.s3.access_key and sink.s3.secret_key_file"},
		"query":             {func(o *Options) { o.Endpoint = "http://h/?a=b" }, "sink.s3.endpoint: has a query (?) or fragment (#)"},
		"unknown place":     {func(o *Options) { o.Prefix = "{day}/" }, `sink.s3.prefix: "{day}/"` + notPrefix},
		"empty element":     {func(o *Options) { o.Prefix = "a//b" }, `sink.s3.prefix: "a//b"` + notPrefix},
		"leading slash":     {func(o *Options) { o.Prefix = "/a" }, `sink.s3.prefix: "/a"` + notPrefix},
		"dots":              {func(o *Options) { o.Prefix = "a/../b" }, `sink.s3.prefix: "a/../b"` + notPrefix},
		"long prefix":       {func(o *Options) { o.Prefix = strings.Repeat("x", 513) }, `sink.s3.prefix: "` + strings.Repeat("x", 513) + `"` + notPrefix},
		"format":            {func(o *Options) { o.Format = "csv" }, `sink.s3.format: "csv" is none of jsonl, length`},
		"compression":       {func(o *Options) { o.Compression = "lz4" }, `sink.s3.compression: "lz4" is none of zstd, gzip, none`},
		"checksum":          {func(o *Options) { o.Checksum = "md5" }, `sink.s3.checksum: "md5" is none of crc32, sha256, none`},
		"encryption":        {func(o *Options) { o.Encryption = "rot13" }, `sink.s3.encryption: "rot13" is none of AES256, aws:kms, aws:kms:dsse`},
		"key of no use":     {func(o *Options) { o.KMSKey = "k" }, `sink.s3.kms_key: needs encryption = "aws:kms"`},
		"small parts":       {func(o *Options) { o.MultipartBytes = 5<<20 - 1 }, "sink.s3.multipart_bytes: 5242879 is not between 5 MiB and 1 GiB"},
		"large parts":       {func(o *Options) { o.MultipartBytes = 1<<30 + 1 }, "sink.s3.multipart_bytes: 1073741825 is not between 5 MiB and 1 GiB"},
		"storage class":     {func(o *Options) { o.StorageClass = "A\r\nB: c" }, `sink.s3.storage_class: "A\r\nB: c" has spaces or characters that cannot be printed`},
		"no secret":         {func(o *Options) { o.SecretKeyEnv = "" }, "sink.s3.secret_key_file: or secret_key_env is required with access_key"},
		"secret alone":      {func(o *Options) { o.AccessKey = "" }, "sink.s3.access_key: is required with a secret key or a session token"},
		"two secrets":       {func(o *Options) { o.SecretKeyFile = "f" }, "sink.s3.secret_key_file: is set, and secret_key_env too: use one"},
		"empty variable":    {func(o *Options) { o.SessionTokenEnv = "S3SINK_TEST_UNSET" }, "sink.s3.session_token_env: the variable S3SINK_TEST_UNSET is empty or not set"},
		"timeout":           {func(o *Options) { o.Timeout = -time.Second }, "sink.s3.timeout: -1s is negative"},
	})
}

// TestDefault: the defaults that are shown are those that are filled in.
func TestDefault(t *testing.T) {
	want := Default()
	want.Bucket = "b"
	if got, err := resolve(Options{Bucket: "b"}); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
}

func TestPrefix(t *testing.T) {
	at := time.Date(2026, 3, 4, 1, 2, 3, 0, time.FixedZone("east", 2*3600))
	for template, want := range map[string]string{
		defaultPrefix: "2026/03/03/23/", "dt={yyyy}-{mm}-{dd}/hh={hh}/{host}-{shard}-": "dt=2026-03-03/hh=23/h.example-7-", "a": "a",
	} {
		o := Options{Prefix: template}
		if got := o.prefix(7, "h.example", at); got != want {
			t.Errorf("%s: got %s, want %s", template, got, want)
		}
	}
}
