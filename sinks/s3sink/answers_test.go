//go:build !nos3

package s3sink

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"pgregory.net/rapid"

	"github.com/weir-agent/weir/sinks"
	"github.com/weir-agent/weir/sinks/s3sink/s3test"
	"github.com/weir-agent/weir/sinks/sinktest"
	"github.com/weir-agent/weir/wab/record"
)

// scripted returns a sink that delivers to a handler.
func scripted(t *testing.T, o Options, answer http.HandlerFunc) *Sink {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	t.Setenv("S3SINK_TEST_SECRET", s3test.SecretKey)
	o.Bucket, o.Endpoint, o.PathStyle, o.Region = "records", server.URL, true, s3test.Region
	o.AccessKey, o.SecretKeyEnv = s3test.AccessKey, "S3SINK_TEST_SECRET"
	return sinktest.Open(t, New, o)
}

func fault(code, message string) string {
	return `<?xml version="1.0" encoding="UTF-8"?><Error><Code>` + code + `</Code><Message>` + message + `</Message></Error>`
}

// TestAnswers is the table of outcomes. Each answer is of one request: the client tries nothing again and follows nothing.
func TestAnswers(t *testing.T) {
	type header map[string]string
	for name, tc := range map[string]struct {
		status  int
		header  header
		body    string
		verdict sinks.Verdict
		shown   int // the status of the outcome
		reason  string
	}{
		"written":             {200, header{"ETag": `"e"`}, "", sinks.Delivered, 0, ""},
		"no server of S3":     {200, header{}, "<html>login</html>", sinks.Retry, 0, "the answer has no ETag: this is no server of S3"},
		"internal error":      {500, header{}, fault("InternalError", "We encountered an internal error."), sinks.Retry, 500, "500 InternalError: We encountered an internal error."},
		"bad gateway":         {502, header{}, "<html>bad", sinks.Retry, 502, "502"},
		"slow down":           {503, header{}, fault("SlowDown", "Please reduce your request rate."), sinks.Retry, 503, "503 SlowDown: Please reduce your request rate."},
		"slow down as a 400":  {400, header{}, fault("SlowDown", "slower"), sinks.Retry, 503, "400 SlowDown: slower"},
		"throttled":           {400, header{}, fault("ThrottlingException", "rate exceeded"), sinks.Retry, 503, "400 ThrottlingException"},
		"too many":            {429, header{}, "", sinks.Retry, 429, "429"},
		"no space":            {507, header{}, fault("XMinioStorageFull", "full"), sinks.Retry, 507, "507 XMinioStorageFull: full"},
		"request timeout":     {400, header{}, fault("RequestTimeout", "idle"), sinks.Retry, 400, "400 RequestTimeout: idle"},
		"408":                 {408, header{}, "", sinks.Retry, 408, "408"},
		"conflict":            {409, header{}, fault("OperationAborted", "another"), sinks.Retry, 409, "409 OperationAborted"},
		"damaged on the way":  {400, header{}, fault("BadDigest", "no match"), sinks.Retry, 400, "400 BadDigest"},
		"checksum":            {400, header{}, fault("XAmzContentChecksumMismatch", "no match"), sinks.Retry, 400, "400 XAmzContentChecksumMismatch"},
		"too large":           {400, header{}, fault("EntityTooLarge", "too large"), sinks.Split, 400, "400 EntityTooLarge: too large"},
		"413":                 {413, header{}, "", sinks.Split, 413, "413"},
		"no bucket":           {404, header{}, fault("NoSuchBucket", "none"), sinks.Hold, 404, "404 NoSuchBucket: none"},
		"access denied":       {403, header{}, fault("AccessDenied", "Access Denied"), sinks.Hold, 403, "403 AccessDenied: Access Denied"},
		"unknown key":         {403, header{}, fault("InvalidAccessKeyId", "none"), sinks.Hold, 403, "403 InvalidAccessKeyId"},
		"signature":           {403, header{}, fault("SignatureDoesNotMatch", "no match"), sinks.Hold, 403, "403 SignatureDoesNotMatch"},
		"expired token":       {400, header{}, fault("ExpiredToken", "expired"), sinks.Hold, 400, "400 ExpiredToken: expired"},
		"clock":               {403, header{}, fault("RequestTimeTooSkewed", "clock"), sinks.Hold, 403, "403 RequestTimeTooSkewed: clock"},
		"another region":      {301, header{"X-Amz-Bucket-Region": "eu-west-9"}, fault("PermanentRedirect", "go"), sinks.Hold, 301, "301 PermanentRedirect: the bucket is in the region eu-west-9, not in " + s3test.Region},
		"redirect":            {307, header{"Location": "/elsewhere"}, "", sinks.Hold, 307, "307"},
		"redirect of a GET":   {302, header{"Location": "/elsewhere"}, "", sinks.Hold, 302, "302"},
		"malformed":           {400, header{}, fault("AuthorizationHeaderMalformed", "region"), sinks.Hold, 400, "400 AuthorizationHeaderMalformed"},
		"storage class":       {400, header{}, fault("InvalidStorageClass", "no"), sinks.Hold, 400, "400 InvalidStorageClass"},
		"not implemented":     {501, header{}, fault("NotImplemented", "a header"), sinks.Hold, 501, "501 NotImplemented: a header"},
		"unknown 4xx":         {418, header{}, "", sinks.Hold, 418, "418"},
		"secret in the words": {403, header{}, fault("AccessDenied", "you said &#10; "+s3test.SecretKey+"!"), sinks.Hold, 403, "403 AccessDenied: you said [redacted]!"},
	} {
		t.Run(name, func(t *testing.T) {
			requests := 0
			s := scripted(t, Options{}, func(w http.ResponseWriter, r *http.Request) {
				requests++
				_, _ = io.Copy(io.Discard, r.Body) // the test is of the answer
				for k, v := range tc.header {
					w.Header().Set(k, v)
				}
				w.WriteHeader(tc.status)
				fmt.Fprint(w, tc.body)
			})
			b := sinktest.Batch("b", 3)
			out := s.Deliver(t.Context(), b)
			if len(out) != 3 || out[0] != out[2] {
				t.Fatalf("%+v", out)
			}
			got := out[0]
			if got.Verdict != tc.verdict || got.Status != tc.shown || !strings.HasPrefix(got.Reason, tc.reason) || got.Isolated {
				t.Errorf("got %+v, want %v, %d, %q", got, tc.verdict, tc.shown, tc.reason)
			}
			if requests != 1 || strings.Contains(got.Reason, s3test.SecretKey) {
				t.Errorf("%d requests, %q", requests, got.Reason)
			}
		})
	}
}

// TestRetryAfter: what a server asks for is passed on to the drain, which bounds it.
func TestRetryAfter(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"7": 7 * time.Second, "": 0, "0": 0, "-7": 0, "soon": 0, "2147483647": 2147483647 * time.Second, "99999999999999999999": 0,
	} {
		s := scripted(t, Options{}, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Retry-After", text)
			w.WriteHeader(http.StatusServiceUnavailable)
		})
		if o := s.Deliver(t.Context(), sinktest.Batch("b", 1))[0]; o.Verdict != sinks.Retry || o.RetryAfter != want {
			t.Errorf("%q: %+v, want %v", text, o, want)
		}
	}
}

// TestAnyAnswer: whatever a server says, each record has one outcome that is in bounds, and no object counts as written without a 2xx
// and an ETag for it.
func TestAnyAnswer(t *testing.T) {
	s := scripted(t, Options{MultipartBytes: minMultipartBytes, Format: FormatLength, Compression: CompressionNone}, nil)
	plain := s.current
	small, large := sinktest.Batch("small", 1), sinktest.Batch("large", 1)
	large.Records[0].Payload = make([]byte, minMultipartBytes+1)
	rapid.Check(t, func(rt *rapid.T) {
		batch := rapid.SampledFrom([]sinks.Batch{small, large}).Draw(rt, "batch")
		good := true // so far
		l := *plain
		l.api = s3.New(plain.api.Options(), func(o *s3.Options) {
			o.HTTPClient = answering(func(r *http.Request) *http.Response {
				answer := &http.Response{Header: http.Header{}, Request: r}
				answer.StatusCode = rapid.SampledFrom([]int{200, 200, 200, 204, 301, 400, 403, 404, 413, 500, 503, 199, 999}).Draw(rt, "status")
				for _, name := range []string{"Etag", "X-Amz-Bucket-Region", "Retry-After", "X-Amz-Checksum-Crc32", "Content-Type"} {
					if rapid.Bool().Draw(rt, name) {
						answer.Header.Set(name, rapid.SampledFrom([]string{"a", "7", "\x01\xff", strings.Repeat("x", 1000)}).Draw(rt, "value"))
					}
				}
				body := ""
				for _, piece := range rapid.SliceOfN(rapid.SampledFrom([]string{
					"<Error>", "</Error>", "<Code>", "</Code>", "AccessDenied", "InternalError", "<Message>", "</Message>", "\x00\xff", " ", "<?xml?>", "<!DOCTYPE a>", "&lt;", "&",
					"<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>", `<CompleteMultipartUploadResult><ETag>"e"</ETag></CompleteMultipartUploadResult>`,
				}), 0, 6).Draw(rt, "body") {
					body += piece
				}
				answer.Body = io.NopCloser(strings.NewReader(body))
				good = good && answer.StatusCode/100 == 2 && (answer.Header.Get("Etag") != "" || strings.Contains(body, "MultipartUploadResult"))
				return answer
			})
		})
		s.mu.Lock()
		s.current = &l
		s.mu.Unlock()
		out := s.Deliver(t.Context(), batch)
		if len(out) != len(batch.Records) {
			rt.Fatalf("%d outcomes", len(out))
		}
		o := out[0]
		if o.Verdict == sinks.Invalid || o.Verdict == sinks.Reject || len(o.Reason) > 256 || (o.Reason == "") != (o.Verdict == sinks.Delivered) {
			rt.Fatalf("%+v", o)
		}
		if o.Verdict == sinks.Delivered && !good {
			rt.Fatal("an object counts as written that the server did not take")
		}
	})
}

// answering is a client that gets its answers from a function.
type answering func(r *http.Request) *http.Response

func (a answering) Do(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		_, _ = io.Copy(io.Discard, r.Body) // the test is of the answer
	}
	if r.Method == http.MethodDelete { // the abort, which nobody waits for
		return &http.Response{StatusCode: http.StatusNoContent, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
	}
	return a(r), nil
}

// TestAnswerIsBounded: a server that never stops to say what is wrong is not listened to for longer than a megabyte.
func TestAnswerIsBounded(t *testing.T) {
	sent := make(chan int, 1)
	s := scripted(t, Options{}, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, "<Error><Code>AccessDenied</Code><Message>") // what can be read on and on
		n, chunk := 0, bytes.Repeat([]byte("x"), 1<<20)
		for n < 256<<20 {
			if _, err := w.Write(chunk); err != nil {
				break
			}
			n += len(chunk)
		}
		sent <- n
	})
	if o := s.Deliver(t.Context(), sinktest.Batch("b", 1))[0]; o.Verdict != sinks.Hold {
		t.Errorf("%+v", o)
	}
	if n := <-sent; n > 64<<20 {
		t.Errorf("%d bytes went over the wire", n)
	}
}

// TestAnswerHeaderIsBounded: the header of an answer is not kept beyond its bound, either.
func TestAnswerHeaderIsBounded(t *testing.T) {
	s := scripted(t, Options{}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("ETag", `"`+strings.Repeat("x", 2*maxAnswerHeaderBytes)+`"`)
	})
	if o := s.Deliver(t.Context(), sinktest.Batch("b", 1))[0]; o.Verdict != sinks.Retry || !strings.Contains(o.Reason, "headers exceeded") {
		t.Errorf("%+v", o)
	}
}

// TestLostAnswers: what cannot be known is tried again, and nobody but the drain is told of it.
func TestLostAnswers(t *testing.T) {
	said, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	stderr := os.Stderr
	os.Stderr = said
	defer func() { os.Stderr = stderr }()
	for name, end := range map[string]string{"at once": "", "in the header": "HTTP/1.1 200 OK\r\nETag", "in the body": "HTTP/1.1 500 no\r\nContent-Length: 100\r\n\r\n<Error>"} {
		t.Run(name, func(t *testing.T) {
			s := scripted(t, Options{}, func(w http.ResponseWriter, r *http.Request) {
				conn, _, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.WriteString(conn, end) // the sink may be gone
				conn.Close()
			})
			if o := s.Deliver(t.Context(), sinktest.Batch("b", 1))[0]; o.Verdict != sinks.Retry || o.Reason == "" {
				t.Errorf("%+v", o)
			}
		})
	}
	if text, err := os.ReadFile(said.Name()); err != nil || len(text) > 0 {
		t.Errorf("%v, the client wrote to standard error: %s", err, text)
	}
}

// late answers each request well, after the attempt has ended.
type late struct{ end context.CancelFunc }

func (l late) Do(r *http.Request) (*http.Response, error) {
	l.end()
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Etag": {`"e"`}}, Body: http.NoBody, Request: r}, nil
}

// TestLateAnswerIsNotBelieved: an answer counts only while somebody waits for it.
func TestLateAnswerIsNotBelieved(t *testing.T) {
	s := scripted(t, Options{}, nil)
	ctx, cancel := context.WithCancel(t.Context())
	s.current.api = s3.New(s.current.api.Options(), func(o *s3.Options) { o.HTTPClient = late{cancel} })
	if o := s.Deliver(ctx, sinktest.Batch("b", 1))[0]; o.Verdict != sinks.Retry || o.Reason != "context canceled" {
		t.Errorf("%+v", o)
	}
}

// TestRequest: what the options ask for is in the request.
func TestRequest(t *testing.T) {
	var got http.Header
	keep := func(w http.ResponseWriter, r *http.Request) {
		got = r.Header.Clone()
		_, _ = io.Copy(io.Discard, r.Body) // the test is of the header
		w.Header().Set("ETag", `"e"`)
	}
	t.Setenv("S3SINK_TEST_TOKEN", "t0ken")
	for _, tc := range []struct {
		opts Options
		want map[string]string
	}{
		{Options{}, map[string]string{
			"Content-Type": "application/zstd", "X-Amz-Storage-Class": "", "X-Amz-Server-Side-Encryption": "", "Content-Encoding": "",
			"X-Amz-Checksum-Sha256": "", "X-Amz-Security-Token": "",
		}},
		{
			Options{Compression: CompressionNone, StorageClass: "STANDARD_IA", Encryption: "aws:kms", KMSKey: "k", Checksum: ChecksumNone, SessionTokenEnv: "S3SINK_TEST_TOKEN"},
			map[string]string{
				"Content-Type": "application/x-ndjson", "X-Amz-Storage-Class": "STANDARD_IA", "X-Amz-Server-Side-Encryption": "aws:kms",
				"X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id": "k", "X-Amz-Checksum-Crc32": "", "X-Amz-Security-Token": "t0ken",
			},
		},
		{
			Options{Compression: CompressionNone, Format: FormatLength},
			map[string]string{"Content-Type": "application/octet-stream", "X-Amz-Checksum-Crc32": "RvbUhg=="},
		},
	} {
		s := scripted(t, tc.opts, keep)
		b := sinks.Batch{Records: []record.Record{{Payload: []byte("hello")}}, Attempt: 1}
		if o := s.Deliver(t.Context(), b)[0]; o.Verdict != sinks.Delivered {
			t.Fatalf("%+v", o)
		}
		for name, want := range tc.want {
			if got.Get(name) != want {
				t.Errorf("%+v: %s is %q, want %q", tc.opts, name, got.Get(name), want)
			}
		}
	}
}

// upload plays a server for one upload in parts. Each answer may be replaced by its step: "create", "part 1", "complete", "abort".
type upload struct {
	mu    sync.Mutex
	steps []string
	data  strings.Builder
	other map[string]func(w http.ResponseWriter)
}

func (u *upload) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body) // a request that was cut off has no answer
	q, step, text := r.URL.Query(), "", ""
	switch {
	case q.Has("uploads"):
		step, text = "create", "<InitiateMultipartUploadResult><UploadId>u1</UploadId></InitiateMultipartUploadResult>"
	case r.Method == http.MethodPut:
		step = "part " + q.Get("partNumber")
	case r.Method == http.MethodPost:
		step, text = "complete", `<CompleteMultipartUploadResult><ETag>"e"</ETag></CompleteMultipartUploadResult>`
	case r.Method == http.MethodDelete:
		step = "abort"
	}
	u.mu.Lock()
	u.steps = append(u.steps, step)
	other := u.other[step]
	if strings.HasPrefix(step, "part") {
		u.data.Write(body)
	}
	u.mu.Unlock()
	if other != nil {
		other(w)
		return
	}
	w.Header().Set("ETag", `"e"`)
	fmt.Fprint(w, text)
}

// TestParts: a large object goes in parts, and what failed on the way is forgotten by the server, also where the attempt has ended.
func TestParts(t *testing.T) {
	refuse := func(status int, code string) func(w http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			w.WriteHeader(status)
			fmt.Fprint(w, fault(code, "no"))
		}
	}
	empty := func(w http.ResponseWriter) {}
	ctx, cancel := context.WithCancel(t.Context())
	hold := func(w http.ResponseWriter) { cancel(); refuse(500, "InternalError")(w) }
	const whole = "create, part 1, part 2, part 3"
	for name, tc := range map[string]struct {
		other  map[string]func(w http.ResponseWriter)
		want   sinks.Verdict
		status int
		steps  string
	}{
		"well":                    {nil, sinks.Delivered, 0, whole + ", complete"},
		"not begun":               {map[string]func(w http.ResponseWriter){"create": refuse(403, "AccessDenied")}, sinks.Hold, 403, "create"},
		"no upload id":            {map[string]func(w http.ResponseWriter){"create": empty}, sinks.Retry, 0, "create"},
		"a part is refused":       {map[string]func(w http.ResponseWriter){"part 2": refuse(403, "AccessDenied")}, sinks.Hold, 403, "create, part 1, part 2, abort"},
		"a part is too large":     {map[string]func(w http.ResponseWriter){"part 1": refuse(400, "EntityTooLarge")}, sinks.Split, 400, "create, part 1, abort"},
		"a part without ETag":     {map[string]func(w http.ResponseWriter){"part 3": empty}, sinks.Retry, 0, whole + ", abort"},
		"the upload is forgotten": {map[string]func(w http.ResponseWriter){"part 2": refuse(404, "NoSuchUpload")}, sinks.Retry, 404, "create, part 1, part 2, abort"},
		"not completed":           {map[string]func(w http.ResponseWriter){"complete": refuse(500, "InternalError")}, sinks.Retry, 500, whole + ", complete, abort"},
		"failed after a 200":      {map[string]func(w http.ResponseWriter){"complete": refuse(200, "InternalError")}, sinks.Retry, 500, whole + ", complete, abort"},
		"completed by no server":  {map[string]func(w http.ResponseWriter){"complete": empty}, sinks.Retry, 0, whole + ", complete, abort"},
		"abort is refused":        {map[string]func(w http.ResponseWriter){"part 1": refuse(503, "SlowDown"), "abort": refuse(403, "AccessDenied")}, sinks.Retry, 503, "create, part 1, abort"},
		"the attempt ends":        {map[string]func(w http.ResponseWriter){"part 2": hold}, sinks.Retry, 0, "create, part 1, part 2, abort"},
	} {
		t.Run(name, func(t *testing.T) {
			u := &upload{other: tc.other}
			s := scripted(t, Options{MultipartBytes: minMultipartBytes, Format: FormatLength, Compression: CompressionNone}, u.ServeHTTP)
			b := sinktest.Batch("b", 2)
			b.Records[0].Payload, b.Records[1].Payload = make([]byte, 6<<20), make([]byte, 6<<20)
			b.Records[1].Payload[6<<20-1] = 'x'
			with := t.Context()
			if name == "the attempt ends" {
				with = ctx
			}
			o := s.Deliver(with, b)[0]
			if err := s.Close(); err != nil { // which waits for the abort
				t.Error(err)
			}
			if o.Verdict != tc.want || o.Status != tc.status {
				t.Errorf("got %+v, want %v with %d", o, tc.want, tc.status)
			}
			if got := strings.Join(u.steps, ", "); got != tc.steps {
				t.Errorf("got %s, want %s", got, tc.steps)
			}
			if o.Verdict == sinks.Delivered && u.data.String() != string(s.enc.object(&b)) {
				t.Errorf("%d bytes arrived that are not the object", u.data.Len())
			}
		})
	}
}
