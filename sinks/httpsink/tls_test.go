package httpsink

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/weir-agent/weir/sinks"
	"github.com/weir-agent/weir/sinks/sinktest"
)

// replace puts data under path in one step, as tools that rotate files do.
func replace(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := errors.Join(os.WriteFile(path+".new", data, 0o600), os.Rename(path+".new", path)); err != nil {
		t.Fatal(err)
	}
}

func TestProtocolIsNegotiated(t *testing.T) {
	for _, disable := range []bool{false, true} {
		e := newUnstarted(nil)
		e.EnableHTTP2 = true
		e.StartTLS()
		t.Cleanup(e.Close)
		s := sinktest.Open(t, New, Options{URL: e.URL, CAFile: caFileOf(t, e), DisableHTTP2: disable})
		wantWords(t, s.Deliver(t.Context(), sinktest.BatchOf("a")), "delivered")
		want := "HTTP/2.0"
		if disable {
			want = "HTTP/1.1"
		}
		got := e.all()[0]
		if got.proto != want {
			t.Errorf("protocol = %s, want %s", got.proto, want)
		}
		wantSized(t, got)
	}
}

func TestUnknownAuthorityIsRetried(t *testing.T) {
	e := newUnstarted(nil)
	e.StartTLS()
	t.Cleanup(e.Close)
	s := sinktest.Open(t, New, Options{URL: e.URL})
	out := s.Deliver(t.Context(), sinktest.BatchOf("a"))
	wantWords(t, out, "retry")
	if !strings.Contains(out[0].Reason, "certificate") {
		t.Errorf("reason = %q", out[0].Reason)
	}
	if n := len(e.all()); n != 0 {
		t.Errorf("%d requests reached an endpoint that is not trusted", n)
	}
}

// F57: the client certificate and the authority are read again when their files change.
func TestF57CertificatesRotate(t *testing.T) {
	oldCA, newCA, clients := sinktest.NewAuthority(t, "old"), sinktest.NewAuthority(t, "new"), sinktest.NewAuthority(t, "clients")
	var mu sync.Mutex
	server := oldCA.Pair(t, "server") // guarded by mu
	var names []string                // of the clients, guarded by mu
	e := newUnstarted(nil)
	verify := func(s tls.ConnectionState) error {
		mu.Lock()
		defer mu.Unlock()
		names = append(names, s.PeerCertificates[0].Subject.CommonName)
		return nil
	}
	e.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		mu.Lock()
		defer mu.Unlock()
		return &tls.Config{
			Certificates: []tls.Certificate{server}, NextProtos: []string{"h2", "http/1.1"},
			ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients.Pool(), VerifyConnection: verify,
		}, nil
	}}
	e.EnableHTTP2 = true
	e.StartTLS()
	t.Cleanup(e.Close)

	dir := t.TempDir()
	ca, cert, key := filepath.Join(dir, "ca"), filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	rotateClient := func(name string) {
		c, k := clients.Issue(t, name)
		replace(t, cert, c)
		replace(t, key, k)
	}
	replace(t, ca, oldCA.PEM)
	rotateClient("first")
	s := sinktest.Open(t, New, Options{URL: e.URL, CAFile: ca, CertFile: cert, KeyFile: key})
	wantWords(t, s.Deliver(t.Context(), sinktest.BatchOf("a")), "delivered")
	wantWords(t, s.Deliver(t.Context(), sinktest.BatchOf("a")), "delivered")
	rotateClient("second")
	wantWords(t, s.Deliver(t.Context(), sinktest.BatchOf("a")), "delivered")
	mu.Lock()
	if got := strings.Join(names, " "); got != "first second" {
		t.Errorf("clients seen: %s, want first second", got)
	}
	server = newCA.Pair(t, "server")
	mu.Unlock()
	rotateClient("third") // new connections meet the new server certificate
	wantWords(t, s.Deliver(t.Context(), sinktest.BatchOf("a")), "retry")
	replace(t, ca, newCA.PEM)
	wantWords(t, s.Deliver(t.Context(), sinktest.BatchOf("a")), "delivered")

	// Half a rotation and nonsense keep what is good in use.
	c, _ := clients.Issue(t, "half")
	replace(t, cert, c)
	wantWords(t, s.Deliver(t.Context(), sinktest.BatchOf("a")), "delivered")
	replace(t, ca, []byte("no certificate"))
	wantWords(t, s.Deliver(t.Context(), sinktest.BatchOf("a")), "delivered")
	if err := os.Remove(key); err != nil {
		t.Fatal(err)
	}
	wantWords(t, s.Deliver(t.Context(), sinktest.BatchOf("a")), "delivered")
}

// F57: the token is read again when its file changes.
func TestF57TokenRotates(t *testing.T) {
	e := newEndpoint(t, func(_ int, w http.ResponseWriter, r *request) {
		if r.header.Get("Authorization") == "Bearer token-3" {
			http.Error(w, "no: token-3", http.StatusUnauthorized)
		}
	})
	path := filepath.Join(t.TempDir(), "token")
	replace(t, path, []byte("token-1\n"))
	s := sinktest.Open(t, New, Options{URL: e.URL, TokenFile: path})
	wantWords(t, s.Deliver(t.Context(), sinktest.BatchOf("a")), "delivered")
	replace(t, path, []byte("token-2\n"))
	wantWords(t, s.Deliver(t.Context(), sinktest.BatchOf("a")), "delivered")
	for _, bad := range []string{"", " \n", "to\x01ken", strings.Repeat("x", 1<<20+1)} {
		replace(t, path, []byte(bad))
		wantWords(t, s.Deliver(t.Context(), sinktest.BatchOf("a")), "delivered")
	}
	replace(t, path, []byte("token-3"))
	out := s.Deliver(t.Context(), sinktest.BatchOf("a"))
	wantWords(t, out, "hold 401")
	if out[0].Reason != "HTTP 401: no: [redacted]" {
		t.Errorf("reason = %q", out[0].Reason)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	out = s.Deliver(t.Context(), sinktest.BatchOf("a"))
	if out[0].Verdict != sinks.Hold || !strings.Contains(out[0].Reason, "old credentials are in use (sink.http.token_file: ") {
		t.Errorf("outcome without the file = %+v", out[0])
	}
	var got []string
	for _, r := range e.all() {
		got = append(got, strings.TrimPrefix(r.header.Get("Authorization"), "Bearer token-"))
	}
	if all := strings.Join(got, " "); all != "1 2 2 2 2 2 3 3" {
		t.Errorf("tokens used: %s", all)
	}
}

func TestBasicAuthentication(t *testing.T) {
	e := newEndpoint(t, nil)
	path := filepath.Join(t.TempDir(), "password")
	replace(t, path, []byte("first word\n"))
	t.Setenv("WEIR_TEST_PASSWORD", "from env")
	withUser := strings.Replace(e.URL, "http://", "http://me:p%40ss@", 1)
	for _, tc := range []struct {
		o    Options
		want string
	}{
		{Options{URL: e.URL, Username: "me", PasswordFile: path}, "me:first word"},
		{Options{URL: e.URL, Username: "me", PasswordEnv: "WEIR_TEST_PASSWORD"}, "me:from env"},
		{Options{URL: withUser}, "me:p@ss"},
		{Options{URL: e.URL, Username: "me"}, "me:"},
	} {
		s := sinktest.Open(t, New, tc.o)
		wantWords(t, s.Deliver(t.Context(), sinktest.BatchOf("a")), "delivered")
		all := e.all()
		r := http.Request{Header: all[len(all)-1].header}
		user, password, _ := r.BasicAuth()
		if user+":"+password != tc.want {
			t.Errorf("credentials = %s:%s, want %s", user, password, tc.want)
		}
	}
	s := sinktest.Open(t, New, Options{URL: e.URL, Username: "me", PasswordFile: path})
	wantWords(t, s.Deliver(t.Context(), sinktest.BatchOf("a")), "delivered")
	replace(t, path, []byte("second"))
	wantWords(t, s.Deliver(t.Context(), sinktest.BatchOf("a")), "delivered")
	all := e.all()
	r := http.Request{Header: all[len(all)-1].header}
	if _, password, _ := r.BasicAuth(); password != "second" {
		t.Errorf("password = %q after the file changed, want second", password)
	}
}

func TestTokenFromTheEnvironment(t *testing.T) {
	e := newEndpoint(t, nil)
	t.Setenv("WEIR_TEST_TOKEN", "abcd")
	s := sinktest.Open(t, New, Options{URL: e.URL, TokenEnv: "WEIR_TEST_TOKEN"})
	wantWords(t, s.Deliver(t.Context(), sinktest.BatchOf("a")), "delivered")
	wantHeader(t, e.all()[0], "Authorization", "Bearer abcd")
}

func TestSecretsStayOutOfReasons(t *testing.T) {
	e := newEndpoint(t, func(_ int, w http.ResponseWriter, r *request) {
		http.Error(w, r.path+" "+r.header.Get("Authorization")+" "+r.header.Get("X-Api-Key"), http.StatusBadRequest)
	})
	t.Setenv("WEIR_TEST_TOKEN", "hidden-token")
	secrets := []string{"hidden-token", "hidden-key", "hidden%20query", "hidden query", "hidden-password", "aGlkZGVu"}
	check := func(text string) {
		t.Helper()
		for _, secret := range secrets {
			if strings.Contains(text, secret) {
				t.Errorf("%q shows %q", text, secret)
			}
		}
	}
	query := "/x?sig=hidden%20query&a=1"
	for _, o := range []Options{
		{URL: e.URL + query, TokenEnv: "WEIR_TEST_TOKEN", Headers: map[string]string{"X-Api-Key": "hidden-key"}},
		{URL: strings.Replace(e.URL, "http://", "http://hidden:hidden-password@", 1) + query},
		{URL: "http://no-such-host.invalid" + query, TokenEnv: "WEIR_TEST_TOKEN"},
		{URL: "http://hidden:hidden-password@127.0.0.1:1" + query},
	} {
		for _, format := range []string{FormatRaw, FormatNDJSON} {
			o.Format = format
			out := sinktest.Open(t, New, o).Deliver(t.Context(), sinktest.BatchOf("a", "b"))
			if out[0].Verdict == sinks.Delivered || out[0].Reason == "" {
				t.Errorf("outcome = %+v, want a reason", out[0])
			}
			check(out[0].Reason)
		}
	}
	for _, bad := range []string{"http://hidden:hidden-password@host:port/", "ftp://x/?k=hidden%20query", "http://hidden-key\x7f/", "http://[hidden-token/"} {
		_, err := New(Options{URL: bad})
		if err == nil {
			t.Fatalf("%q was accepted", bad)
		}
		check(err.Error())
	}
}

// TestAnswerThatComesAfterTheEnd: a handler that returns because its client has gone answers 200, which may still arrive: a client that
// ends a TLS connection says so before it closes it. Such an answer delivers nothing.
func TestAnswerThatComesAfterTheEnd(t *testing.T) {
	for range 8 { // together, so that each is interrupted at many places
		t.Run("", func(t *testing.T) {
			t.Parallel()
			begun := make(chan struct{})
			server := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if _, err := io.Copy(io.Discard, r.Body); err != nil {
					return
				}
				begun <- struct{}{}
				<-r.Context().Done()
			}))
			t.Cleanup(server.Close)
			ca := filepath.Join(t.TempDir(), "ca.pem")
			replace(t, ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
			s := sinktest.Open(t, New, Options{URL: server.URL, Format: FormatNDJSON, CAFile: ca, Timeout: long})
			for range 150 {
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan []sinks.Outcome, 1)
				go func() { done <- s.Deliver(ctx, sinktest.BatchOf("x")) }()
				<-begun
				cancel()
				if got := <-done; len(got) != 1 || got[0].Verdict != sinks.Retry {
					t.Fatalf("outcomes = %+v, want a retry", got)
				}
			}
		})
	}
}
