package httpsink

import (
	"errors"
	"maps"
	"net/http"
	"net/textproto"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/weir-agent/weir/sinks"
	"github.com/weir-agent/weir/sinks/setup"
)

// The values of Options.Format, Options.Compression, Options.Partial and
// Options.BulkAction.
const (
	FormatRaw    = "raw"
	FormatNDJSON = "ndjson"
	FormatJSON   = "json"

	CompressionNone = "none"
	CompressionGzip = "gzip"
	CompressionZstd = "zstd"

	PartialNone        = "none"
	PartialBulk        = "bulk"
	PartialMultiStatus = "multistatus"

	BulkActionNone   = "none"
	BulkActionCreate = "create"
	BulkActionIndex  = "index"
)

const (
	defaultConcurrency      = 64
	maxConcurrency          = 1024
	defaultConnectTimeout   = 10 * time.Second
	defaultTLSTimeout       = 10 * time.Second
	defaultTimeout          = 30 * time.Second
	defaultAnswerTimeout    = 10 * time.Second
	defaultIdleTimeout      = 60 * time.Second
	defaultMaxConnectionAge = 5 * time.Minute
	defaultRetryAfterMax    = 10 * time.Minute
)

// Options says where and how to deliver. Only URL is required; the zero value of
// every other field means its default. The names in brackets are the keys
// below sink.http in the configuration.
type Options struct {
	// URL is the address that is posted to, http or https [url].
	URL string `toml:"url"`
	// Method is POST (default) or PUT [method].
	Method string `toml:"method"`
	// Format is raw (default: one record a request), ndjson or json (one batch a request) [format].
	Format string `toml:"format"`
	// ContentType replaces the Content-Type that goes with the format [content_type].
	ContentType string `toml:"content_type"`
	// Headers are sent with every request; Host sets the host name that is asked for [headers].
	// Names that the sink sets itself are refused.
	Headers map[string]string `toml:"headers"`

	// TokenFile holds a bearer token; it is read again for each Deliver [token_file].
	TokenFile string `toml:"token_file"`
	// TokenEnv names the environment variable that holds a bearer token [token_env].
	TokenEnv string `toml:"token_env"`
	// Username turns basic authentication on [username].
	Username string `toml:"username"`
	// PasswordFile holds the password of Username; it is read again for each Deliver [password_file].
	PasswordFile string `toml:"password_file"`
	// PasswordEnv names the environment variable that holds the password [password_env].
	PasswordEnv string `toml:"password_env"`

	// CertFile and KeyFile are the client certificate and its key, PEM; both or
	// neither. They are read again when they change [cert_file, key_file].
	CertFile string `toml:"cert_file"`
	KeyFile  string `toml:"key_file"`
	// CAFile holds the authorities to trust instead of the system's, PEM; it is
	// read again when it changes [ca_file].
	CAFile string `toml:"ca_file"`

	// Compression of the request body: none (default), gzip or zstd [compression].
	Compression string `toml:"compression"`
	// Concurrency is how many raw requests may be under way at once, over all
	// batches: 1 to 1024, default 64 [concurrency].
	Concurrency int `toml:"concurrency"`
	// DisableHTTP2 keeps to HTTP/1.1 where the server offers HTTP/2 [disable_http2].
	DisableHTTP2 bool `toml:"disable_http2"`

	// ConnectTimeout bounds name look-up and connect; default 10 s [connect_timeout].
	ConnectTimeout time.Duration `toml:"connect_timeout"`
	// TLSTimeout bounds the TLS handshake; default 10 s [tls_timeout].
	TLSTimeout time.Duration `toml:"tls_timeout"`
	// Timeout bounds a request from its start to the header of its answer; default 30 s [timeout].
	Timeout time.Duration `toml:"timeout"`
	// AnswerTimeout bounds the reading of an answer's body; default 10 s [answer_timeout].
	AnswerTimeout time.Duration `toml:"answer_timeout"`
	// IdleTimeout closes a connection that was not used for so long; default 60 s [idle_timeout].
	IdleTimeout time.Duration `toml:"idle_timeout"`
	// MaxConnectionAge replaces connections that are older, so that a change of
	// address is followed however busy they are; default 5 min [max_connection_age].
	MaxConnectionAge time.Duration `toml:"max_connection_age"`
	// RetryAfterMax bounds what an endpoint may ask for in Retry-After; default 10 min [retry_after_max].
	RetryAfterMax time.Duration `toml:"retry_after_max"`

	// Status overrides the table of answers: the key is a status ("409") or a
	// class ("4xx"), the value delivered, retry, hold, split or reject [status].
	Status map[string]string `toml:"status"`
	// Partial says how an answer tells records apart, in ndjson and json: none (default), bulk
	// (Elasticsearch _bulk) or multistatus (207 with an array of statuses). An answer that should and
	// cannot be read delivers nothing. With none, a 207 that can be read as multistatus
	// counts as such, and any other as every 2xx does [partial].
	Partial string `toml:"partial"`
	// BulkAction, with ndjson and bulk, puts an action line that names the record's id
	// before each record: none (default), create or index. With create a
	// conflict (409) on an item counts as delivered: the document is there [bulk_action].
	BulkAction string `toml:"bulk_action"`
}

// settings are Options after filling and validation.
type settings struct {
	Options
	url    *url.URL
	host   string      // the Host header, empty for the URL's
	fixed  http.Header // headers of every request but the credentials
	token  string      // from TokenEnv
	pass   string      // from PasswordEnv or the URL
	status statusTable
}

// resolve fills the defaults of o and checks it, without reading any file.
func resolve(o Options) (settings, *setup.Faults) {
	f := setup.NewFaults("sink.http")
	s := settings{Options: o}
	s.fill(f)
	s.checkURL(f)
	s.checkCredentials(f)
	s.checkHeaders(f)
	s.checkPartial(f)
	s.status = parseStatusTable(o.Status, f)
	return s, f
}

func (s *settings) fill(f *setup.Faults) {
	f.Choose("method", &s.Method, http.MethodPost, http.MethodPut)
	f.Choose("format", &s.Format, FormatRaw, FormatNDJSON, FormatJSON)
	f.Choose("compression", &s.Compression, CompressionNone, CompressionGzip, CompressionZstd)
	f.Choose("partial", &s.Partial, PartialNone, PartialBulk, PartialMultiStatus)
	f.Choose("bulk_action", &s.BulkAction, BulkActionNone, BulkActionCreate, BulkActionIndex)
	f.Number("concurrency", &s.Concurrency, defaultConcurrency, 1, maxConcurrency)
	f.Time("connect_timeout", &s.ConnectTimeout, defaultConnectTimeout)
	f.Time("tls_timeout", &s.TLSTimeout, defaultTLSTimeout)
	f.Time("timeout", &s.Timeout, defaultTimeout)
	f.Time("answer_timeout", &s.AnswerTimeout, defaultAnswerTimeout)
	f.Time("idle_timeout", &s.IdleTimeout, defaultIdleTimeout)
	f.Time("max_connection_age", &s.MaxConnectionAge, defaultMaxConnectionAge)
	f.Time("retry_after_max", &s.RetryAfterMax, defaultRetryAfterMax)
}

// checkURL parses the URL. Its words never repeat the URL, which may hold secrets.
func (s *settings) checkURL(f *setup.Faults) {
	if s.URL == "" {
		f.Add("url", "is required")
		return
	}
	u, err := url.Parse(s.URL)
	if err != nil {
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err
		}
		f.Add("url", "is not a URL: %w", err)
		return
	}
	if u.Scheme != "http" && u.Scheme != "https" {
		f.Add("url", "begins with neither http:// nor https://")
	}
	if u.Hostname() == "" {
		f.Add("url", "names no host")
	}
	if p := u.Port(); p != "" {
		if n, err := strconv.ParseUint(p, 10, 16); err != nil || n == 0 {
			f.Add("url", "port %q is not between 1 and 65535", p)
		}
	}
	if u.Fragment != "" {
		f.Add("url", "has a fragment (#), which is never sent")
	}
	if u.User != nil {
		if s.Username != "" {
			f.Add("url", "holds a user name, and sink.http.username is set too")
		}
		s.Username = u.User.Username()
		s.pass, _ = u.User.Password()
		u.User = nil
	}
	s.url = u
}

func (s *settings) checkCredentials(f *setup.Faults) {
	if s.TokenFile != "" && s.TokenEnv != "" {
		f.Add("token_file", "is set, and sink.http.token_env too: use one")
	}
	if s.PasswordFile != "" && s.PasswordEnv != "" {
		f.Add("password_file", "is set, and sink.http.password_env too: use one")
	}
	hasToken := s.TokenFile != "" || s.TokenEnv != ""
	if hasToken && s.Username != "" {
		f.Add("username", "is set, and a bearer token too: use one")
	}
	if (s.PasswordFile != "" || s.PasswordEnv != "") && s.Username == "" {
		f.Add("username", "is required with a password")
	}
	if strings.Contains(s.Username, ":") {
		f.Add("username", "holds a colon, which basic authentication cannot carry")
	}
	setup.TLS{CertFile: s.CertFile, KeyFile: s.KeyFile}.Check(f)
	if s.url != nil && s.url.Scheme == "http" && (s.CertFile != "" || s.CAFile != "") {
		f.Add("url", "is http, so cert_file and ca_file have no meaning")
	}
	s.token = fromEnv(f, "token_env", s.TokenEnv)
	if s.token != "" && !validHeaderValue(s.token) {
		f.Add("token_env", "the variable %s holds characters that a header cannot carry", s.TokenEnv)
	}
	if s.PasswordEnv != "" {
		s.pass = fromEnv(f, "password_env", s.PasswordEnv)
	}
}

func fromEnv(f *setup.Faults, key, name string) string {
	if name == "" {
		return ""
	}
	v := strings.TrimSpace(os.Getenv(name))
	if v == "" {
		f.Add(key, "the variable %s is empty or not set", name)
	}
	return v
}

// ownHeader tells whether the sink or HTTP itself sets the header of this canonical name.
func ownHeader(name string) bool {
	switch name {
	case "Content-Length", "Transfer-Encoding", "Content-Encoding", "Connection", "Trailer", "Te", "Upgrade", "Expect",
		"Keep-Alive", "Proxy-Connection", "Idempotency-Key", "Weir-Segment", "Weir-Index", "Weir-Record-Count", "Content-Type",
		"Accept-Encoding":
		return true
	}
	return false
}

func (s *settings) checkHeaders(f *setup.Faults) {
	if s.ContentType == "" {
		s.ContentType = map[string]string{
			FormatRaw:    "application/octet-stream",
			FormatNDJSON: "application/x-ndjson",
			FormatJSON:   "application/json",
		}[s.Format]
	}
	if !validHeaderValue(s.ContentType) {
		f.Add("content_type", "holds characters that a header cannot carry")
	}
	s.fixed = http.Header{"Content-Type": {s.ContentType}, "User-Agent": {"weir"}}
	if s.Compression != CompressionNone {
		s.fixed["Content-Encoding"] = []string{s.Compression}
	}
	for name, value := range s.Headers {
		canonical := textproto.CanonicalMIMEHeaderKey(name)
		switch {
		case !validHeaderName(name):
			f.Add("headers", "%q is not a header name", name)
		case !validHeaderValue(value):
			f.Add("headers", "the value of %s holds characters that a header cannot carry", name)
		case ownHeader(canonical):
			f.Add("headers", "%s is set by the sink itself", name)
		case canonical == "Authorization" && (s.Username != "" || s.TokenFile != "" || s.TokenEnv != ""):
			f.Add("headers", "%s is set, and a token or user name too: use one", name)
		case canonical == "Host":
			s.host = value
		default:
			s.fixed[canonical] = []string{value}
		}
	}
}

func (s *settings) checkPartial(f *setup.Faults) {
	if s.Partial != PartialNone && s.Format == FormatRaw {
		f.Add("partial", "has no meaning with format raw")
	}
	if s.BulkAction != BulkActionNone && (s.Format != FormatNDJSON || s.Partial != PartialBulk) {
		f.Add("bulk_action", `needs format = "ndjson" and partial = "bulk"`)
	}
}

// validHeaderName reports whether s is a token of RFC 9110, section 5.6.2.
func validHeaderName(s string) bool {
	for _, c := range []byte(s) {
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !letter && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return false
		}
	}
	return s != ""
}

// validHeaderValue reports whether s is free of control characters other than tab.
func validHeaderValue(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f })
}

// statusTable maps a status to the verdict that the configuration sets for it.
type statusTable map[int]sinks.Verdict

func parseStatusTable(in map[string]string, f *setup.Faults) statusTable {
	t := statusTable{}
	exact := statusTable{}
	for key, value := range in {
		v := parseVerdict(value)
		if v == sinks.Invalid {
			f.Add("status", "%q = %q: use delivered, retry, hold, split or reject", key, value)
			continue
		}
		if class, ok := strings.CutSuffix(key, "xx"); ok && len(class) == 1 && class >= "2" && class <= "5" {
			first := int(class[0]-'0') * 100
			for code := first; code < first+100; code++ {
				t[code] = v
			}
			continue
		}
		code, err := strconv.Atoi(key)
		if err != nil || code < 200 || code > 599 {
			f.Add("status", "%q is neither a status from 200 to 599 nor a class such as 4xx", key)
			continue
		}
		exact[code] = v
	}
	maps.Copy(t, exact)
	return t
}

func parseVerdict(s string) sinks.Verdict {
	for _, v := range []sinks.Verdict{sinks.Delivered, sinks.Retry, sinks.Hold, sinks.Split, sinks.Reject} {
		if v.String() == s {
			return v
		}
	}
	return sinks.Invalid
}
