package pgsink

import (
	"strings"
	"testing"
	"time"

	"github.com/weir-agent/weir/sinks/sinktest"
)

func TestOptionsCheck(t *testing.T) {
	t.Setenv("PGSINK_TEST_SET", "x")
	good := Options{URL: "postgres://weir@a:5432,b:5433/records?sslmode=verify-full", PasswordEnv: "PGSINK_TEST_SET", Table: `s.t"`}
	if err := (Options{URL: "postgres://weir@/records?host=/run/postgresql"}).Check(); err != nil {
		t.Errorf("a Unix socket: %v", err)
	}
	sinktest.Faults(t, good, map[string]struct {
		Change func(o *Options)
		Want   string
	}{
		"no url":            {func(o *Options) { o.URL = "" }, "sink.postgres.url: is required"},
		"scheme":            {func(o *Options) { o.URL = "mysql://a" }, "sink.postgres.url: begins with neither postgres:// nor postgresql://"},
		"keyword form":      {func(o *Options) { o.URL = "host=a password=b" }, "sink.postgres.url: begins with neither postgres:// nor postgresql://"},
		"not a url":         {func(o *Options) { o.URL = "postgres://[" }, "sink.postgres.url: is not a URL"},
		"password":          {func(o *Options) { o.URL = "postgres://u:p4ss@a,b/d" }, "sink.postgres.url: holds a password: use sink.postgres.password_file"},
		"password in query": {func(o *Options) { o.URL = "postgres://u@a/d?password=p4ss" }, "sink.postgres.url: holds a password: use sink.postgres.password_file"},
		"fragment":          {func(o *Options) { o.URL = "postgres://u@a/d#x" }, "sink.postgres.url: has a fragment (#)"},
		"certificate":       {func(o *Options) { o.URL = "postgres://u@a/d?sslcert=f" }, "sink.postgres.url: holds sslcert: use sink.postgres.cert_file"},
		"two passwords":     {func(o *Options) { o.PasswordFile = "f" }, "sink.postgres.password_file: is set, and password_env too: use one"},
		"empty variable":    {func(o *Options) { o.PasswordEnv = "PGSINK_TEST_UNSET" }, "sink.postgres.password_env: the variable PGSINK_TEST_UNSET is empty or not set"},
		"key without cert":  {func(o *Options) { o.KeyFile = "f" }, "sink.postgres.cert_file: needs key_file, and the other way round"},
		"table":             {func(o *Options) { o.Table = "a.b.c" }, `sink.postgres.table: "a.b.c" is neither name nor schema.name`},
		"empty schema":      {func(o *Options) { o.Table = ".t" }, `sink.postgres.table: "" is not a name of 1 to 63 bytes`},
		"long column":       {func(o *Options) { o.IDColumn = strings.Repeat("x", 64) }, `sink.postgres.id_column: "` + strings.Repeat("x", 64) + `" is not a name of 1 to 63 bytes`},
		"NUL in a column":   {func(o *Options) { o.IndexColumn = "a\x00" }, `sink.postgres.index_column: "a\x00" is not a name of 1 to 63 bytes`},
		"a column twice":    {func(o *Options) { o.SegmentColumn = "payload" }, `sink.postgres.segment_column: "payload" is payload_column already`},
		"id type":           {func(o *Options) { o.IDType = "uuid" }, `sink.postgres.id_type: "uuid" is none of text, bytea`},
		"payload type":      {func(o *Options) { o.PayloadType = "xml" }, `sink.postgres.payload_type: "xml" is none of bytea, text, jsonb`},
		"connections":       {func(o *Options) { o.Connections = 65 }, "sink.postgres.connections: 65 is not between 1 and 64"},
		"timeout":           {func(o *Options) { o.Timeout = -time.Second }, "sink.postgres.timeout: -1s is negative"},
	})
}

// TestDefault: the defaults that are shown are those that are filled in.
func TestDefault(t *testing.T) {
	want := Default()
	want.URL = "postgres://a/b"
	if got, err := resolve(Options{URL: "postgres://a/b"}); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
}
