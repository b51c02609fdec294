package kafkasink

import (
	"strings"
	"testing"
	"time"

	"github.com/weir-agent/weir/sinks/sinktest"
)

func TestOptionsCheck(t *testing.T) {
	t.Setenv("KAFKASINK_TEST_SET", "x")
	good := Options{
		Brokers: "a:9092, [::1]:9093", Topic: "s.{shard}.{host}", Key: "{host}/{id}", SASL: SASLPlain, Username: "u", PasswordEnv: "KAFKASINK_TEST_SET",
	}
	sinktest.Faults(t, good, map[string]struct {
		Change func(o *Options)
		Want   string
	}{
		"no brokers":          {func(o *Options) { o.Brokers = "" }, "sink.kafka.brokers: is required"},
		"no port":             {func(o *Options) { o.Brokers = "a:1,b" }, "sink.kafka.brokers: address 2 is not host:port"},
		"port 0":              {func(o *Options) { o.Brokers = "a:0" }, "sink.kafka.brokers: address 1 is not host:port"},
		"no host":             {func(o *Options) { o.Brokers = ":9092" }, "sink.kafka.brokers: address 1 is not host:port"},
		"password in address": {func(o *Options) { o.Brokers = "u:secret@a:9092" }, "sink.kafka.brokers: address 1 is not host:port"},
		"no topic":            {func(o *Options) { o.Topic = "" }, "sink.kafka.topic: is required"},
		"topic":               {func(o *Options) { o.Topic = "a b" }, `sink.kafka.topic: "a b" is not the name of a topic; {shard} and {host} may be in it`},
		"topic by id":         {func(o *Options) { o.Topic = "{ids}" }, `sink.kafka.topic: "{ids}" is not the name of a topic; {shard} and {host} may be in it`},
		"topic .":             {func(o *Options) { o.Topic = "." }, `sink.kafka.topic: "." is not the name of a topic; {shard} and {host} may be in it`},
		"key":                 {func(o *Options) { o.Key = "{user}" }, `sink.kafka.key: "{user}" has braces around something other than id, shard or host`},
		"partition":           {func(o *Options) { o.Partition = "x" }, `sink.kafka.partition: "x" is none of shard, id, sticky`},
		"compression":         {func(o *Options) { o.Compression = "x" }, `sink.kafka.compression: "x" is none of snappy, lz4, zstd, gzip, none`},
		"sasl":                {func(o *Options) { o.SASL = "x" }, `sink.kafka.sasl: "x" is none of none, plain, scram-sha-256, scram-sha-512`},
		"login without sasl":  {func(o *Options) { o.SASL = "" }, "sink.kafka.sasl: is required with a username or password: use plain, scram-sha-256 or scram-sha-512"},
		"no user":             {func(o *Options) { o.Username = "" }, "sink.kafka.username: is required with sasl"},
		"no password":         {func(o *Options) { o.PasswordEnv = "" }, "sink.kafka.password_file: or password_env is required with sasl"},
		"two passwords":       {func(o *Options) { o.PasswordFile = "f" }, "sink.kafka.password_file: is set, and password_env too: use one"},
		"empty variable":      {func(o *Options) { o.PasswordEnv = "KAFKASINK_TEST_UNSET" }, "sink.kafka.password_env: the variable KAFKASINK_TEST_UNSET is empty or not set"},
		"key without cert":    {func(o *Options) { o.KeyFile = "f" }, "sink.kafka.cert_file: needs key_file, and the other way round"},
		"batch":               {func(o *Options) { o.BatchMaxBytes = 10 }, "sink.kafka.batch_max_bytes: 10 is not between 1024 and 100663296"},
		"pending":             {func(o *Options) { o.MaxPending = -1 }, "sink.kafka.max_pending: -1 is not between 1 and 1000000"},
		"timeout":             {func(o *Options) { o.AckTimeout = -time.Second }, "sink.kafka.ack_timeout: -1s is negative"},
		"connect timeout":     {func(o *Options) { o.ConnectTimeout = -time.Second }, "sink.kafka.connect_timeout: -1s is negative"},
	})
	if err := (Options{}).Check(); err == nil || strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("of two faults: %v", err)
	}
}

// TestDefault: the defaults that are shown are those that are filled in.
func TestDefault(t *testing.T) {
	want := Default()
	want.Brokers, want.Topic = "a:9092", "s"
	if got, err := resolve(Options{Brokers: "a:9092", Topic: "s"}); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
}
