package httpsink

import (
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/weir-agent/weir/sinks"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// request is one request as an endpoint got it.
type request struct {
	method, path, host, proto string
	header                    http.Header
	length                    int64
	encodings                 []string // Transfer-Encoding
	body                      []byte
}

// endpoint is an HTTP server that keeps what it gets and answers by script.
type endpoint struct {
	*httptest.Server

	mu       sync.Mutex
	requests []request
}

// newEndpoint starts a server whose n-th request (from 0) is answered by answer; nil
// answers 200 to all.
func newEndpoint(t *testing.T, answer func(n int, w http.ResponseWriter, r *request)) *endpoint {
	t.Helper()
	e := newUnstarted(answer)
	e.Start()
	t.Cleanup(e.Close)
	return e
}

func newUnstarted(answer func(n int, w http.ResponseWriter, r *request)) *endpoint {
	e := &endpoint{}
	e.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		got := request{
			method: r.Method, path: r.URL.RequestURI(), host: r.Host, proto: r.Proto,
			header: r.Header, length: r.ContentLength, encodings: r.TransferEncoding, body: body,
		}
		e.mu.Lock()
		n := len(e.requests)
		e.requests = append(e.requests, got)
		e.mu.Unlock()
		if answer != nil {
			answer(n, w, &got)
		}
	}))
	e.Config.ErrorLog = discardLog()
	return e
}

// all returns the requests so far.
func (e *endpoint) all() []request {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]request(nil), e.requests...)
}

// words shows outcomes as "delivered", "retry 503", "reject 400 isolated".
func words(out []sinks.Outcome) string {
	var all []string
	for _, o := range out {
		w := o.Verdict.String()
		if o.Status != 0 && o.Verdict != sinks.Delivered {
			w += fmt.Sprintf(" %d", o.Status)
		}
		if o.Isolated {
			w += " isolated"
		}
		all = append(all, w)
	}
	return strings.Join(all, ", ")
}

func wantWords(t *testing.T, out []sinks.Outcome, want string) {
	t.Helper()
	if got := words(out); got != want {
		t.Errorf("outcomes = %s, want %s", got, want)
		for i, o := range out {
			t.Logf("%d: %+v", i, o)
		}
	}
}

// caFileOf writes the certificate of a TLS server to a file.
func caFileOf(t *testing.T, e *endpoint) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ca.pem")
	block := &pem.Block{Type: "CERTIFICATE", Bytes: e.Certificate().Raw}
	if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
