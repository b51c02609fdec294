package httpsink

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weir-agent/weir/sinks"
	"github.com/weir-agent/weir/sinks/sinktest"
)

func TestFaultsOfOptions(t *testing.T) {
	dir := t.TempDir()
	empty, text := filepath.Join(dir, "empty"), filepath.Join(dir, "text")
	for path, data := range map[string]string{empty: " \n", text: "no certificate"} {
		if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("WEIR_TEST_BAD", "a\x01b")
	const url = "https://127.0.0.1/"
	for name, tc := range map[string]struct {
		o    Options
		want string
	}{
		"no url":            {Options{}, "sink.http.url: is required"},
		"no scheme":         {Options{URL: "//127.0.0.1/x"}, "sink.http.url: begins with neither"},
		"scheme":            {Options{URL: "ftp://x/"}, "sink.http.url: begins with neither"},
		"no host":           {Options{URL: "http:///x"}, "sink.http.url: names no host"},
		"port":              {Options{URL: "http://x:70000/"}, "sink.http.url: port"},
		"fragment":          {Options{URL: "http://x/#y"}, "sink.http.url: has a fragment"},
		"not parsed":        {Options{URL: "http://x\x7f/"}, "sink.http.url: is not a URL"},
		"method":            {Options{URL: url, Method: "GET"}, "sink.http.method: "},
		"format":            {Options{URL: url, Format: "xml"}, "sink.http.format: "},
		"compression":       {Options{URL: url, Compression: "br"}, "sink.http.compression: "},
		"partial":           {Options{URL: url, Partial: "x", Format: FormatJSON}, "sink.http.partial: "},
		"partial raw":       {Options{URL: url, Partial: PartialBulk}, "sink.http.partial: has no meaning"},
		"bulk action":       {Options{URL: url, Format: FormatNDJSON, Partial: PartialBulk, BulkAction: "delete"}, "sink.http.bulk_action: "},
		"action alone":      {Options{URL: url, Format: FormatNDJSON, BulkAction: BulkActionIndex}, "sink.http.bulk_action: needs"},
		"concurrency":       {Options{URL: url, Concurrency: -1}, "sink.http.concurrency: "},
		"much concurrency":  {Options{URL: url, Concurrency: maxConcurrency + 1}, "sink.http.concurrency: "},
		"connect":           {Options{URL: url, ConnectTimeout: -1}, "sink.http.connect_timeout: "},
		"tls":               {Options{URL: url, TLSTimeout: -1}, "sink.http.tls_timeout: "},
		"timeout":           {Options{URL: url, Timeout: -1}, "sink.http.timeout: "},
		"answer":            {Options{URL: url, AnswerTimeout: -1}, "sink.http.answer_timeout: "},
		"idle":              {Options{URL: url, IdleTimeout: -1}, "sink.http.idle_timeout: "},
		"age":               {Options{URL: url, MaxConnectionAge: -1}, "sink.http.max_connection_age: "},
		"retry after":       {Options{URL: url, RetryAfterMax: -1}, "sink.http.retry_after_max: "},
		"token twice":       {Options{URL: url, TokenFile: text, TokenEnv: "HOME"}, "sink.http.token_file: "},
		"password twice":    {Options{URL: url, Username: "x", PasswordFile: text, PasswordEnv: "HOME"}, "sink.http.password_file: "},
		"token and user":    {Options{URL: url, TokenFile: text, Username: "x"}, "sink.http.username: "},
		"password alone":    {Options{URL: url, PasswordFile: text}, "sink.http.username: is required"},
		"colon":             {Options{URL: url, Username: "a:b"}, "sink.http.username: holds a colon"},
		"user twice":        {Options{URL: "http://me@x/", Username: "x"}, "sink.http.url: holds a user name"},
		"unset variable":    {Options{URL: url, TokenEnv: "WEIR_TEST_UNSET"}, "sink.http.token_env: the variable WEIR_TEST_UNSET"},
		"unset password":    {Options{URL: url, Username: "x", PasswordEnv: "WEIR_TEST_UNSET"}, "sink.http.password_env: "},
		"bad token":         {Options{URL: url, TokenEnv: "WEIR_TEST_BAD"}, "sink.http.token_env: the variable WEIR_TEST_BAD holds"},
		"no token file":     {Options{URL: url, TokenFile: dir + "/none"}, "sink.http.token_file: "},
		"empty token file":  {Options{URL: url, TokenFile: empty}, "sink.http.token_file: "},
		"folder":            {Options{URL: url, TokenFile: dir}, "sink.http.token_file: "},
		"cert alone":        {Options{URL: url, CertFile: text}, "sink.http.cert_file: needs"},
		"bad pair":          {Options{URL: url, CertFile: text, KeyFile: text}, "sink.http.cert_file, sink.http.key_file: "},
		"bad ca":            {Options{URL: url, CAFile: text}, "sink.http.ca_file: "},
		"ca of http":        {Options{URL: "http://x/", CAFile: text}, "sink.http.url: is http"},
		"header name":       {Options{URL: url, Headers: map[string]string{"a b": "x"}}, "sink.http.headers: "},
		"no header name":    {Options{URL: url, Headers: map[string]string{"": "x"}}, "sink.http.headers: "},
		"header value":      {Options{URL: url, Headers: map[string]string{"A": "x\r\nB: y"}}, "sink.http.headers: "},
		"own header":        {Options{URL: url, Headers: map[string]string{"content-length": "1"}}, "sink.http.headers: content-length is set"},
		"authorization":     {Options{URL: url, Username: "x", Headers: map[string]string{"authorization": "x"}}, "sink.http.headers: "},
		"content type":      {Options{URL: url, ContentType: "a\nb"}, "sink.http.content_type: "},
		"status":            {Options{URL: url, Status: map[string]string{"99": "retry"}}, "sink.http.status: "},
		"status class":      {Options{URL: url, Status: map[string]string{"1xx": "retry"}}, "sink.http.status: "},
		"status word":       {Options{URL: url, Status: map[string]string{"x": "retry"}}, "sink.http.status: "},
		"status verdict":    {Options{URL: url, Status: map[string]string{"409": "ok"}}, "sink.http.status: "},
		"status no verdict": {Options{URL: url, Status: map[string]string{"409": "invalid"}}, "sink.http.status: "},
	} {
		s, err := New(tc.o)
		if err == nil {
			t.Errorf("%s: accepted", name)
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			continue
		}
		if !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %q, want %q in it", name, err, tc.want)
		}
		if n := strings.Count(err.Error(), "\n"); n > 0 {
			t.Errorf("%s: more than one fault: %q", name, err)
		}
	}
}

func TestAllFaultsAreReportedAtOnce(t *testing.T) {
	_, err := New(Options{URL: "ftp://", Method: "GET", Concurrency: -1, TokenFile: "/none/such", Status: map[string]string{"1": "x"}})
	for _, want := range []string{"begins with", "names no host", "method", "concurrency", "token_file", "status"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %q, want %q in it", err, want)
		}
	}
}

// The age limit replaces connections under traffic, and none in the middle of a request.
func TestMaxConnectionAge(t *testing.T) {
	held, release := make(chan struct{}), make(chan struct{})
	url := serveRaw(t, func(p *peer) {
		for n := 0; ; n++ {
			_, body, err := p.request()
			if err != nil {
				return
			}
			if string(body) == "hold" {
				close(held)
				<-release
			}
			p.say(fmt.Sprintf("HTTP/1.1 400 No\r\nContent-Length: 5\r\n\r\n%d %03d", p.n, n))
		}
	})
	// The answer's text tells the connection and its request.
	reason := func(s *Sink) string { return s.Deliver(t.Context(), sinktest.BatchOf("a"))[0].Reason }
	s := sinktest.Open(t, New, Options{URL: url})
	for i := range 3 {
		if got, want := reason(s), fmt.Sprintf("HTTP 400: 0 %03d", i); got != want {
			t.Errorf("within the age: %q, want %q", got, want)
		}
	}
	s.set.MaxConnectionAge = 1 // older than that at once
	first := make(chan []sinks.Outcome)
	go func() { first <- s.Deliver(t.Context(), sinktest.BatchOf("hold")) }()
	<-held
	for i := range 3 {
		if got, want := reason(s), fmt.Sprintf("HTTP 400: %d 000", i+2); got != want {
			t.Errorf("over the age: %q, want %q", got, want)
		}
	}
	close(release)
	wantWords(t, <-first, "reject 400 isolated")
	s.mu.Lock()
	users := s.current.users
	s.mu.Unlock()
	if users != 0 {
		t.Errorf("%d users of the connections are counted when none is there", users)
	}
	open := s.conns.Open()
	if open > 1 {
		t.Errorf("%d connections are open, want those of one age only", open)
	}
}

// A proxy is taken from the environment, which net/http reads once a process: the test
// runs itself again.
func TestProxyFromTheEnvironment(t *testing.T) {
	if url := os.Getenv("WEIR_TEST_PROXIED"); url != "" {
		s := sinktest.Open(t, New, Options{URL: url})
		out := s.Deliver(t.Context(), sinktest.BatchOf("a"))
		fmt.Printf("outcome: %s %s\n", words(out), out[0].Reason)
		return
	}
	var status atomic.Int64
	proxy := newEndpoint(t, func(_ int, w http.ResponseWriter, r *request) {
		if !strings.HasPrefix(r.host, "endpoint.invalid") || r.header.Get("Proxy-Authorization") == "" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		http.Error(w, "hidden-word", int(status.Load()))
	})
	proxyURL := strings.Replace(proxy.URL, "http://", "http://me:hidden-word@", 1)
	for _, tc := range []struct {
		status    int64
		url, want string
	}{
		{200, "http://endpoint.invalid/in", "outcome: delivered \n"},
		{407, "http://endpoint.invalid/in", "outcome: hold 407 HTTP 407: [redacted]\n"},
		{407, "https://endpoint.invalid/in", "outcome: hold 407 the proxy answered 407\n"},
		{502, "https://endpoint.invalid/in", "outcome: retry 502 the proxy answered 502\n"},
		{422, "https://endpoint.invalid/in", "outcome: retry 422 the proxy answered 422\n"},
		{204, "https://endpoint.invalid/in", "outcome: retry 204 the proxy answered 204\n"},
	} {
		status.Store(tc.status)
		got := runSelf(t, "TestProxyFromTheEnvironment", "WEIR_TEST_PROXIED="+tc.url, "HTTP_PROXY="+proxyURL, "HTTPS_PROXY="+proxyURL)
		if !strings.Contains(got, tc.want) {
			t.Errorf("%s, status %d: %q, want %q in it", tc.url, tc.status, got, tc.want)
		}
	}
}

// runSelf runs one test of this binary in a process of its own and returns what it prints.
func runSelf(t *testing.T, test string, env ...string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^"+test+"$")
	cmd.Env = append(os.Environ(), append(env, "GORACE=atexit_sleep_ms=0")...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}
