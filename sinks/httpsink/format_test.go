package httpsink

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/weir-agent/weir/sinks"
	"github.com/weir-agent/weir/sinks/sinktest"
	"github.com/weir-agent/weir/wab/record"
)

func wantHeader(t *testing.T, r request, name, want string) {
	t.Helper()
	if got := strings.Join(r.header.Values(name), "|"); got != want {
		t.Errorf("%s = %q, want %q", name, got, want)
	}
}

func wantSized(t *testing.T, r request) {
	t.Helper()
	if r.length != int64(len(r.body)) || len(r.encodings) != 0 {
		t.Errorf("Content-Length = %d, Transfer-Encoding = %v, want %d bytes and none", r.length, r.encodings, len(r.body))
	}
}

func TestRawSendsEachRecordByItself(t *testing.T) {
	e := newEndpoint(t, nil)
	s := sinktest.Open(t, New, Options{URL: e.URL + "/in?x=1", Headers: map[string]string{"x-team": "a b", "Host": "other.example"}})
	b := sinktest.BatchOf("one", "two\n\x00", strings.Repeat("large", 1<<18))
	wantWords(t, s.Deliver(t.Context(), b), "delivered, delivered, delivered")
	got := e.all()
	if len(got) != len(b.Records) {
		t.Fatalf("%d requests, want %d", len(got), len(b.Records))
	}
	for _, r := range got {
		i := slices.IndexFunc(b.Records, func(want record.Record) bool { return bytes.Equal(want.Payload, r.body) })
		if i < 0 {
			t.Fatalf("a body of %d bytes is no record", len(r.body))
		}
		if r.method != "POST" || r.path != "/in?x=1" || r.host != "other.example" {
			t.Errorf("request = %s %s, host %s", r.method, r.path, r.host)
		}
		wantSized(t, r)
		wantHeader(t, r, "Content-Type", "application/octet-stream")
		wantHeader(t, r, "Idempotency-Key", b.Records[i].ID.String())
		wantHeader(t, r, "Weir-Segment", b.Records[i].Segment)
		wantHeader(t, r, "Weir-Index", string('1'+byte(i)))
		wantHeader(t, r, "X-Team", "a b")
		wantHeader(t, r, "Weir-Record-Count", "")
	}
}

func TestRawKeepsToItsConcurrency(t *testing.T) {
	const limit = 3
	inside := make(chan struct{}, limit)
	e := newEndpoint(t, func(_ int, w http.ResponseWriter, _ *request) {
		select {
		case inside <- struct{}{}:
		default:
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		<-inside
	})
	s := sinktest.Open(t, New, Options{URL: e.URL, Concurrency: limit})
	done := make(chan string)
	for range 4 {
		go func() { done <- words(s.Deliver(t.Context(), sinktest.BatchOf("a", "b", "c", "d", "e", "f"))) }()
	}
	for range 4 {
		if got := <-done; got != "delivered, delivered, delivered, delivered, delivered, delivered" {
			t.Errorf("outcomes = %s", got)
		}
	}
}

func TestRawStopsAfterAnAnswerThatConcernsAll(t *testing.T) {
	for _, tc := range []struct {
		status   int
		want     string
		requests int
	}{
		{429, "delivered, retry 429, retry 429, retry 429", 2},
		{503, "delivered, retry 503, retry 503, retry 503", 2},
		{401, "delivered, hold 401, hold 401, hold 401", 2},
		{302, "delivered, hold 302, hold 302, hold 302", 2},
		{500, "delivered, retry 500, delivered, delivered", 4},
		{400, "delivered, reject 400 isolated, delivered, delivered", 4},
		{413, "delivered, split 413, delivered, delivered", 4},
	} {
		e := newEndpoint(t, func(n int, w http.ResponseWriter, _ *request) {
			if n == 1 {
				w.Header().Set("Retry-After", "7")
				w.WriteHeader(tc.status)
			}
		})
		s := sinktest.Open(t, New, Options{URL: e.URL, Concurrency: 1})
		out := s.Deliver(t.Context(), sinktest.BatchOf("a", "b", "c", "d"))
		wantWords(t, out, tc.want)
		if got := len(e.all()); got != tc.requests {
			t.Errorf("status %d: %d requests, want %d", tc.status, got, tc.requests)
		}
		if out[3].Verdict != sinks.Delivered && (out[3].RetryAfter != out[1].RetryAfter || !strings.HasPrefix(out[3].Reason, "not sent: ")) {
			t.Errorf("status %d: a record that was not sent has %+v", tc.status, out[3])
		}
	}
}

func TestNDJSONSendsOneBatch(t *testing.T) {
	e := newEndpoint(t, nil)
	s := sinktest.Open(t, New, Options{URL: e.URL, Format: FormatNDJSON, Method: "PUT"})
	b := sinktest.BatchOf(`{"a":1}`, "anything", " ")
	wantWords(t, s.Deliver(t.Context(), b), "delivered, delivered, delivered")
	got := e.all()
	if len(got) != 1 {
		t.Fatalf("%d requests, want 1", len(got))
	}
	if want := "{\"a\":1}\nanything\n \n"; string(got[0].body) != want || got[0].method != "PUT" {
		t.Errorf("%s %q, want PUT %q", got[0].method, got[0].body, want)
	}
	wantSized(t, got[0])
	wantHeader(t, got[0], "Content-Type", "application/x-ndjson")
	wantHeader(t, got[0], "Idempotency-Key", b.Key.String())
	wantHeader(t, got[0], "Weir-Record-Count", "3")
	wantHeader(t, got[0], "Weir-Segment", "")
}

func TestNDJSONRejectsWhatIsNoLine(t *testing.T) {
	e := newEndpoint(t, nil)
	s := sinktest.Open(t, New, Options{URL: e.URL, Format: FormatNDJSON})
	b := sinktest.BatchOf("one", "t\nwo", "three", "four\r")
	wantWords(t, s.Deliver(t.Context(), b), "delivered, reject isolated, delivered, reject isolated")
	wantWords(t, s.Deliver(t.Context(), sinktest.BatchOf("\n", "\r")), "reject isolated, reject isolated")
	got := e.all()
	if len(got) != 1 || string(got[0].body) != "one\nthree\n" {
		t.Fatalf("requests = %+v, want one with two lines", got)
	}
	wantHeader(t, got[0], "Weir-Record-Count", "2")
	rest := []record.Record{b.Records[0], b.Records[2]}
	wantHeader(t, got[0], "Idempotency-Key", record.BatchKey(rest).String())
}

func TestJSONSendsOneDocument(t *testing.T) {
	e := newEndpoint(t, nil)
	s := sinktest.Open(t, New, Options{URL: e.URL, Format: FormatJSON, ContentType: "application/vnd.x+json"})
	b := sinktest.BatchOf("one", "\x00\xff\n")
	b.Records[1].Segment = "shard_01/\"odd\\"
	wantWords(t, s.Deliver(t.Context(), b), "delivered, delivered")
	got := e.all()
	if len(got) != 1 {
		t.Fatalf("%d requests, want 1", len(got))
	}
	var doc struct {
		Records []struct {
			ID      record.ID
			Segment string
			Index   uint64
			Payload []byte
		}
	}
	if err := json.Unmarshal(got[0].body, &doc); err != nil {
		t.Fatal(err)
	}
	if len(doc.Records) != 2 {
		t.Fatalf("%d records, want 2", len(doc.Records))
	}
	for i, r := range doc.Records {
		want := b.Records[i]
		if r.ID != want.ID || r.Segment != want.Segment || r.Index != want.Index || !bytes.Equal(r.Payload, want.Payload) {
			t.Errorf("record %d = %+v, want %+v", i, r, want)
		}
	}
	wantSized(t, got[0])
	wantHeader(t, got[0], "Content-Type", "application/vnd.x+json")
	wantHeader(t, got[0], "Idempotency-Key", b.Key.String())
	wantHeader(t, got[0], "Weir-Record-Count", "2")
}

func TestCompression(t *testing.T) {
	for compression, open := range map[string]func(io.Reader) (io.Reader, error){
		CompressionGzip: func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) },
		CompressionZstd: func(r io.Reader) (io.Reader, error) { return zstd.NewReader(r, zstd.WithDecoderConcurrency(1)) },
	} {
		for _, format := range []string{FormatRaw, FormatNDJSON, FormatJSON} {
			e := newEndpoint(t, nil)
			s := sinktest.Open(t, New, Options{URL: e.URL, Format: format, Compression: compression})
			payload := strings.Repeat("compress me ", 1000)
			b := sinktest.BatchOf(payload)
			for range 2 {
				wantWords(t, s.Deliver(t.Context(), b), "delivered")
			}
			got := e.all()
			if len(got) != 2 || !bytes.Equal(got[0].body, got[1].body) {
				t.Fatalf("%s %s: the second attempt sent other bytes", format, compression)
			}
			wantSized(t, got[0])
			wantHeader(t, got[0], "Content-Encoding", compression)
			r, err := open(bytes.NewReader(got[0].body))
			if err != nil {
				t.Fatal(err)
			}
			plain, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]string{
				FormatRaw:    payload,
				FormatNDJSON: payload + "\n",
				FormatJSON:   string(appendJSON(nil, b.Records)),
			}[format]
			if string(plain) != want || len(got[0].body) >= len(want) {
				t.Errorf("%s %s: %d bytes unfold to %d, want %d", format, compression, len(got[0].body), len(plain), len(want))
			}
		}
	}
}

// A transport may read a body after the request is over: it gets an error, not bytes that belong to
// something else by then.
func TestReleasedBodyIsNotRead(t *testing.T) {
	data := []byte("abcdef")
	b := newBody(data)
	first, err := b.reader()
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 3)
	if n, err := first.Read(got); n != 3 || err != nil {
		t.Fatalf("Read = %d, %v", n, err)
	}
	again, err := b.reader()
	if err != nil {
		t.Fatal(err)
	}
	if all, err := io.ReadAll(again); string(all) != "abcdef" || err != nil {
		t.Errorf("a second reader = %q, %v, want all from the start", all, err)
	}
	b.release()
	copy(data, "uvwxyz")
	late, err := b.reader()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []io.Reader{first, again, late} {
		if n, err := r.Read(got); n != 0 || !errors.Is(err, errReleased) {
			t.Errorf("Read after release = %d, %v, want %v", n, err, errReleased)
		}
	}
}
