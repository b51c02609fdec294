package natssink

import (
	"strings"
	"testing"
	"time"

	"github.com/weir-agent/weir/sinks/sinktest"
)

func TestOptionsCheck(t *testing.T) {
	t.Setenv("NATSSINK_TEST_SET", "x")
	good := Options{URL: "nats://a:4222,tls://b", Subject: "s.{shard}.{host}", Username: "u", PasswordEnv: "NATSSINK_TEST_SET"}
	sinktest.Faults(t, good, map[string]struct {
		Change func(o *Options)
		Want   string
	}{
		"no url":             {func(o *Options) { o.URL = "" }, "sink.nats.url: is required"},
		"scheme":             {func(o *Options) { o.URL = "nats://a,http://b" }, "sink.nats.url: address 2 begins with neither nats:// nor tls://"},
		"no host":            {func(o *Options) { o.URL = "nats://:4222" }, "sink.nats.url: address 1 names no host"},
		"password in url":    {func(o *Options) { o.URL = "nats://u:p@a" }, "sink.nats.url: address 1 holds a user or password: use sink.nats.username and sink.nats.password_file"},
		"path in url":        {func(o *Options) { o.URL = "nats://a/b" }, "sink.nats.url: address 1 has more than host and port"},
		"not a url":          {func(o *Options) { o.URL = "nats://a:b" }, "sink.nats.url: address 1 is not a URL"},
		"no subject":         {func(o *Options) { o.Subject = "" }, "sink.nats.subject: is required"},
		"wildcard":           {func(o *Options) { o.Subject = "s.>" }, `sink.nats.subject: "s.>" is not a subject without wildcards; {shard} and {host} may be in it`},
		"empty token":        {func(o *Options) { o.Subject = "s..x" }, `sink.nats.subject: "s..x" is not a subject without wildcards; {shard} and {host} may be in it`},
		"unknown word":       {func(o *Options) { o.Subject = "s.{id}" }, `sink.nats.subject: "s.{id}" is not a subject without wildcards; {shard} and {host} may be in it`},
		"stream":             {func(o *Options) { o.Stream = "a b" }, `sink.nats.stream: "a b" is not the name of a stream`},
		"inbox":              {func(o *Options) { o.InboxPrefix = "_IN.*" }, `sink.nats.inbox_prefix: "_IN.*" is not a subject without wildcards`},
		"two logins":         {func(o *Options) { o.NkeyFile = "f" }, "sink.nats.credentials_file: is one of four ways to log in (credentials_file, nkey_file, token, username): use one"},
		"password of nobody": {func(o *Options) { o.Username = "" }, "sink.nats.username: is required with a password"},
		"two passwords":      {func(o *Options) { o.PasswordFile = "f" }, "sink.nats.password_file: is set, and password_env too: use one"},
		"empty variable":     {func(o *Options) { o.PasswordEnv = "NATSSINK_TEST_UNSET" }, "sink.nats.password_env: the variable NATSSINK_TEST_UNSET is empty or not set"},
		"key without cert":   {func(o *Options) { o.KeyFile = "f" }, "sink.nats.cert_file: needs key_file, and the other way round"},
		"pending":            {func(o *Options) { o.MaxPending = -1 }, "sink.nats.max_pending: -1 is not between 1 and 65536"},
		"timeout":            {func(o *Options) { o.AckTimeout = -time.Second }, "sink.nats.ack_timeout: -1s is negative"},
	})
	if err := (Options{}).Check(); err == nil || strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("of two faults: %v", err)
	}
}

// TestDefault: the defaults that are shown are those that are filled in.
func TestDefault(t *testing.T) {
	want := Default()
	want.URL, want.Subject = "nats://a", "s"
	if got, err := resolve(Options{URL: "nats://a", Subject: "s"}); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
}
