// Package natssink delivers records to a stream of NATS JetStream: one message a record, with the record's id as
// Nats-Msg-Id, so that the stream drops a repeat that comes within its duplicate window. A record is delivered when the
// stream has acked it, and then as safe as the stream makes it: see docs/sinks/nats.md.
//
// The sink makes one connection, which all batches share, and makes it anew when it was lost, in the next Deliver. What
// becomes of a record:
//
//	an ack of a stream, also one that calls it a duplicate            delivered
//	no server, a lost connection, no ack in time, TLS, DNS            retry
//	no stream takes the subject, but one is meant to (no leader now)  retry
//	a full stream or account, 408, 409, 429, 5xx of JetStream         retry
//	login refused, no permission, a credential file that is missing   hold
//	no stream takes the subject, JetStream is off, the wrong stream   hold
//	nobody says whether a stream should take it                       hold; retry after a first ack
//	any other 4xx of JetStream                                        hold
//	larger than the server or the stream allows                       reject, isolated
//
// A build with the tag nonats has no client of NATS, and New of it returns an error.
package natssink

import (
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/weir-agent/weir/sinks/setup"
)

const (
	defaultConnectTimeout = 10 * time.Second
	defaultAckTimeout     = 30 * time.Second
	defaultMaxPending     = 4096
	// mostPending keeps the acks that wait within what the client queues without dropping any.
	mostPending = 65536
)

// section is that of the configuration.
const section = "sink.nats"

// Options says where and how to deliver. URL and Subject are required; the zero value of every other field means its
// default. The names in brackets are the keys below sink.nats in the configuration.
type Options struct {
	// URL has the addresses of one or more servers of a cluster, nats://host:port or tls://host:port, with commas
	// between them. They hold no user and no password [url].
	URL string `toml:"url"`
	// Subject is what is published to; {shard} in it stands for the number of the shard, {host} for the name of the
	// machine with _ for each dot [subject].
	Subject string `toml:"subject"`
	// Stream, where it is set, is the stream that must take the records: any other refuses them [stream].
	Stream string `toml:"stream"`

	// CredentialsFile has a JWT and its seed, as `nsc` writes them; it is read for each connection [credentials_file].
	CredentialsFile string `toml:"credentials_file"`
	// NkeyFile has the seed of an nkey; it is read for each connection [nkey_file].
	NkeyFile string `toml:"nkey_file"`
	// TokenFile or TokenEnv has a token; the file is read for each connection [token_file, token_env].
	TokenFile string `toml:"token_file"`
	TokenEnv  string `toml:"token_env"`
	// Username turns the login by name on, and PasswordFile or PasswordEnv has the password; the file is read for
	// each connection [username, password_file, password_env].
	Username     string `toml:"username"`
	PasswordFile string `toml:"password_file"`
	PasswordEnv  string `toml:"password_env"`

	// CertFile and KeyFile are the client certificate and its key, PEM, both or neither; CAFile has the authorities to
	// trust instead of the system's. They are read for each connection, and any of them makes TLS a must
	// [cert_file, key_file, ca_file].
	CertFile string `toml:"cert_file"`
	KeyFile  string `toml:"key_file"`
	CAFile   string `toml:"ca_file"`
	// TLSFirst makes the handshake before the server says anything, as servers with handshake_first want it [tls_first].
	TLSFirst bool `toml:"tls_first"`

	// InboxPrefix is what the subjects of acks begin with, for accounts that may not use _INBOX [inbox_prefix].
	InboxPrefix string `toml:"inbox_prefix"`
	// MaxPending bounds the records that wait for their ack, over all batches: 1 to 65536, default 4096 [max_pending].
	MaxPending int `toml:"max_pending"`
	// ConnectTimeout bounds look-up, connect, TLS and login at each server; default 10 s [connect_timeout].
	ConnectTimeout time.Duration `toml:"connect_timeout"`
	// AckTimeout bounds the time from the start of a batch to its last ack; default 30 s [ack_timeout].
	AckTimeout time.Duration `toml:"ack_timeout"`
}

// Default returns the defaults.
func Default() Options {
	return Options{MaxPending: defaultMaxPending, ConnectTimeout: defaultConnectTimeout, AckTimeout: defaultAckTimeout}
}

// Check returns all faults of the options, joined, without reading a file or opening a connection.
func (o Options) Check() error {
	_, err := resolve(o)
	return err
}

func (o *Options) token() setup.Secret { return setup.Secret{File: o.TokenFile, Env: o.TokenEnv} }
func (o *Options) password() setup.Secret {
	return setup.Secret{File: o.PasswordFile, Env: o.PasswordEnv}
}

func (o *Options) tls() setup.TLS {
	return setup.TLS{CertFile: o.CertFile, KeyFile: o.KeyFile, CAFile: o.CAFile}
}

// resolve fills the defaults of o and checks it.
func resolve(o Options) (Options, error) {
	f := setup.NewFaults(section)
	o.checkURL(f)
	o.checkSubject(f)
	o.checkLogin(f)
	o.tls().Check(f)
	if strings.ContainsAny(o.Stream, " \t\r\n.*>/\\") {
		f.Add("stream", "%q is not the name of a stream", o.Stream)
	}
	if o.InboxPrefix != "" && !validSubject(o.InboxPrefix) {
		f.Add("inbox_prefix", "%q is not a subject without wildcards", o.InboxPrefix)
	}
	f.Number("max_pending", &o.MaxPending, defaultMaxPending, 1, mostPending)
	f.Time("connect_timeout", &o.ConnectTimeout, defaultConnectTimeout)
	f.Time("ack_timeout", &o.AckTimeout, defaultAckTimeout)
	return o, f.Err()
}

// checkURL never repeats an address, as one may hold a password.
func (o *Options) checkURL(f *setup.Faults) {
	if o.URL == "" {
		f.Add("url", "is required")
		return
	}
	for i, text := range strings.Split(o.URL, ",") {
		u, err := url.Parse(strings.TrimSpace(text))
		switch {
		case err != nil:
			f.Add("url", "address %d is not a URL", i+1)
		case u.Scheme != "nats" && u.Scheme != "tls":
			f.Add("url", "address %d begins with neither nats:// nor tls://", i+1)
		case u.Hostname() == "":
			f.Add("url", "address %d names no host", i+1)
		case u.User != nil:
			f.Add("url", "address %d holds a user or password: use sink.nats.username and sink.nats.password_file", i+1)
		case u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "":
			f.Add("url", "address %d has more than host and port", i+1)
		}
	}
}

func (o *Options) checkSubject(f *setup.Faults) {
	if o.Subject == "" {
		f.Add("subject", "is required")
		return
	}
	if s := o.subject(0, "host"); !validSubject(s) || strings.ContainsAny(s, "{}") {
		f.Add("subject", "%q is not a subject without wildcards; {shard} and {host} may be in it", o.Subject)
	}
}

// subject returns the subject for a shard.
func (o *Options) subject(shard int, host string) string {
	return strings.NewReplacer("{shard}", strconv.Itoa(shard), "{host}", host).Replace(o.Subject)
}

// validSubject reports whether s is a subject that can be published to.
func validSubject(s string) bool {
	for token := range strings.SplitSeq(s, ".") {
		if token == "" || token == "*" || token == ">" || strings.ContainsAny(token, " \t\r\n\x00") {
			return false
		}
	}
	return true
}

func (o *Options) checkLogin(f *setup.Faults) {
	o.token().Check(f, "token")
	o.password().Check(f, "password")
	if o.password().Set() && o.Username == "" {
		f.Add("username", "is required with a password")
	}
	n := 0
	for _, set := range []bool{o.CredentialsFile != "", o.NkeyFile != "", o.token().Set(), o.Username != ""} {
		if set {
			n++
		}
	}
	if n > 1 {
		f.Add("credentials_file", "is one of four ways to log in (credentials_file, nkey_file, token, username): use one")
	}
}
