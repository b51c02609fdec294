// Package pgsink delivers records to a table of PostgreSQL: one INSERT a batch, one row a record, with the record's id under a
// unique constraint, so that a repeat changes nothing (ON CONFLICT DO NOTHING). A record is delivered when the server
// has said that the statement is committed: see docs/sinks/postgres.md.
//
// The whole statement is committed or nothing of it. What becomes of a batch, by SQLSTATE:
//
//	committed, also where rows were there already                                delivered
//	no server, a lost connection, no answer in time, TLS, DNS                    retry
//	08, 25, 40, 53, 55, 57, 58, XX and what is not below                         retry
//	28 login, 3D database, 3F schema, 42 table, column, type, permission, 0A     hold
//	23502 a column without a default that the sink does not fill                 hold
//	23514 of no constraint: no partition for the row                             hold
//	22 data, 23 any other constraint, 44 view, 54 too large, P0 raised           reject: drain looks for the row
//	not UTF-8, a NUL, or not JSON where the payload is text or jsonb             reject, isolated, and not sent
//	more than 256 MiB at once                                                    split
//
// A build with the tag nopostgres has no client of PostgreSQL, and New of it returns an error.
package pgsink

import (
	"net/url"
	"strings"
	"time"

	"github.com/weir-agent/weir/sinks/setup"
)

// The values of Options.PayloadType and, the first two, of Options.IDType.
const (
	TypeBytea = "bytea"
	TypeText  = "text"
	TypeJSONB = "jsonb"
)

const (
	defaultTable          = "weir_records"
	defaultIDColumn       = "record_id"
	defaultPayloadColumn  = "payload"
	defaultConnections    = 4
	maxConnections        = 64
	defaultConnectTimeout = 10 * time.Second
	defaultTimeout        = 30 * time.Second
	// maxNameBytes is what PostgreSQL keeps of a name.
	maxNameBytes = 63
)

// section is that of the configuration.
const section = "sink.postgres"

// Options says where and how to deliver. Only URL is required; the zero value of every other field means its default. The
// names in brackets are the keys below sink.postgres in the configuration.
type Options struct {
	// URL is postgres://user@host:port/database?sslmode=verify-full, as libpq has it, without a password [url].
	URL string `toml:"url"`
	// PasswordFile or PasswordEnv has the password; the file is read for each connection [password_file, password_env].
	PasswordFile string `toml:"password_file"`
	PasswordEnv  string `toml:"password_env"`
	// CertFile and KeyFile are the client certificate and its key, PEM, both or neither; CAFile has the authorities to trust, and
	// turns sslmode=verify-full on where the URL says nothing of it. They are read for each connection
	// [cert_file, key_file, ca_file].
	CertFile string `toml:"cert_file"`
	KeyFile  string `toml:"key_file"`
	CAFile   string `toml:"ca_file"`

	// Table is where rows go, as name or schema.name; default weir_records [table].
	Table string `toml:"table"`
	// IDColumn has the record's id, under a unique constraint of its own; default record_id [id_column].
	IDColumn string `toml:"id_column"`
	// IDType is text (default: sha256: and 64 digits) or bytea (32 bytes) [id_type].
	IDType string `toml:"id_type"`
	// PayloadColumn has the record; default payload [payload_column].
	PayloadColumn string `toml:"payload_column"`
	// PayloadType is bytea (default), text or jsonb [payload_type].
	PayloadType string `toml:"payload_type"`
	// SegmentColumn, IndexColumn and AppendedColumn, where they are set, have the record's place in weir's log (text and
	// bigint) and when it was appended (timestamptz) [segment_column, index_column, appended_column].
	SegmentColumn  string `toml:"segment_column"`
	IndexColumn    string `toml:"index_column"`
	AppendedColumn string `toml:"appended_column"`

	// Connections is how many there may be at once: 1 to 64, default 4 [connections].
	Connections int `toml:"connections"`
	// ConnectTimeout bounds connect and login at each host; default 10 s [connect_timeout].
	ConnectTimeout time.Duration `toml:"connect_timeout"`
	// Timeout bounds one batch, connecting included; default 30 s [timeout].
	Timeout time.Duration `toml:"timeout"`
}

// Default returns the defaults.
func Default() Options {
	return Options{
		Table: defaultTable, IDColumn: defaultIDColumn, IDType: TypeText, PayloadColumn: defaultPayloadColumn, PayloadType: TypeBytea,
		Connections: defaultConnections, ConnectTimeout: defaultConnectTimeout, Timeout: defaultTimeout,
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

// resolve fills the defaults of o and checks it.
func resolve(o Options) (Options, error) {
	f := setup.NewFaults(section)
	o.checkURL(f)
	o.password().Check(f, "password")
	setup.TLS{CertFile: o.CertFile, KeyFile: o.KeyFile, CAFile: o.CAFile}.Check(f)
	f.Choose("id_type", &o.IDType, TypeText, TypeBytea)
	f.Choose("payload_type", &o.PayloadType, TypeBytea, TypeText, TypeJSONB)
	if o.Table == "" {
		o.Table = defaultTable
	}
	if parts := strings.Split(o.Table, "."); len(parts) > 2 {
		f.Add("table", "%q is neither name nor schema.name", o.Table)
	} else {
		for _, part := range parts {
			checkName(f, "table", part)
		}
	}
	o.checkColumns(f)
	f.Number("connections", &o.Connections, defaultConnections, 1, maxConnections)
	f.Time("connect_timeout", &o.ConnectTimeout, defaultConnectTimeout)
	f.Time("timeout", &o.Timeout, defaultTimeout)
	return o, f.Err()
}

// checkURL never repeats the address, as it may hold a password.
func (o *Options) checkURL(f *setup.Faults) {
	if o.URL == "" {
		f.Add("url", "is required")
		return
	}
	u, err := parseURL(o.URL)
	if err != nil {
		f.Add("url", "is not a URL")
		return
	}
	if u.Scheme != "postgres" && u.Scheme != "postgresql" {
		f.Add("url", "begins with neither postgres:// nor postgresql://")
	}
	if u.Fragment != "" {
		f.Add("url", "has a fragment (#)")
	}
	_, inUser := u.User.Password()
	if inUser || u.Query().Has("password") || u.Query().Has("sslpassword") {
		f.Add("url", "holds a password: use sink.postgres.password_file")
	}
	for key, own := range map[string]string{"sslrootcert": "ca_file", "sslcert": "cert_file", "sslkey": "key_file", "connect_timeout": "connect_timeout"} {
		if u.Query().Has(key) {
			f.Add("url", "holds %s: use sink.postgres.%s", key, own)
		}
	}
}

// parseURL parses a URL that may have several hosts, with commas between them, which net/url reads in some cases only.
func parseURL(text string) (*url.URL, error) {
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok {
		return url.Parse(text)
	}
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	user, hosts := "", rest[:end]
	if at := strings.LastIndex(hosts, "@"); at >= 0 {
		user, hosts = hosts[:at+1], hosts[at+1:]
	}
	first, _, _ := strings.Cut(hosts, ",")
	return url.Parse(scheme + "://" + user + first + rest[end:])
}

func (o *Options) checkColumns(f *setup.Faults) {
	if o.IDColumn == "" {
		o.IDColumn = defaultIDColumn
	}
	if o.PayloadColumn == "" {
		o.PayloadColumn = defaultPayloadColumn
	}
	seen := map[string]string{}
	for _, c := range []struct{ key, name string }{
		{"id_column", o.IDColumn},
		{"payload_column", o.PayloadColumn},
		{"segment_column", o.SegmentColumn},
		{"index_column", o.IndexColumn},
		{"appended_column", o.AppendedColumn},
	} {
		if c.name == "" {
			continue
		}
		checkName(f, c.key, c.name)
		if other := seen[c.name]; other != "" {
			f.Add(c.key, "%q is %s already", c.name, other)
		}
		seen[c.name] = c.key
	}
}

// checkName checks a name of PostgreSQL. Any character but NUL may be in it, as it is quoted.
func checkName(f *setup.Faults, key, name string) {
	if name == "" || len(name) > maxNameBytes || strings.Contains(name, "\x00") {
		f.Add(key, "%q is not a name of 1 to %d bytes", name, maxNameBytes)
	}
}
