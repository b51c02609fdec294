package httpsink

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/weir-agent/weir/sinks/sinktest"
)

func TestBulkAnswers(t *testing.T) {
	for name, tc := range map[string]struct{ body, want string }{
		"all created":       {`{"took":3,"errors":false,"items":[{"create":{"status":201}},{"create":{"status":201}},{"index":{"status":200}}]}`, "delivered, delivered, delivered"},
		"mixed":             {`{"errors":true,"items":[{"index":{"status":201}},{"index":{"status":400,"error":{"reason":"bad"}}},{"index":{"status":429}}]}`, "delivered, reject 400 isolated, retry 429"},
		"others":            {`{"errors":true,"items":[{"index":{"status":404}},{"index":{"status":413}},{"index":{"status":503}}]}`, "hold 404, reject 413 isolated, retry 503"},
		"errors is a lie":   {`{"errors":false,"items":[{"index":{"status":201}},{"index":{"status":500}},{"index":{"status":201}}]}`, "delivered, retry 500, delivered"},
		"items left out":    {`{"errors":false}`, "delivered, delivered, delivered"},
		"errors, no items":  {`{"errors":true}`, "retry 200, retry 200, retry 200"},
		"items null":        {`{"errors":true,"items":null}`, "retry 200, retry 200, retry 200"},
		"items empty":       {`{"errors":false,"items":[]}`, "retry 200, retry 200, retry 200"},
		"too few":           {`{"errors":false,"items":[{"index":{"status":201}}]}`, "retry 200, retry 200, retry 200"},
		"too many":          {`{"errors":false,"items":[{"index":{"status":201}},{"index":{"status":201}},{"index":{"status":201}},{"index":{"status":201}}]}`, "retry 200, retry 200, retry 200"},
		"two actions":       {`{"items":[{"index":{"status":201},"create":{"status":400}},{"index":{"status":201}},{"index":{"status":201}}]}`, "retry 200, retry 200, retry 200"},
		"no action":         {`{"items":[{},{"index":{"status":201}},{"index":{"status":201}}]}`, "retry 200, retry 200, retry 200"},
		"no status":         {`{"items":[{"index":{}},{"index":{"status":201}},{"index":{"status":201}}]}`, "retry 200, retry 200, retry 200"},
		"status out":        {`{"items":[{"index":{"status":20100}},{"index":{"status":201}},{"index":{"status":201}}]}`, "retry 200, retry 200, retry 200"},
		"empty":             {``, "retry 200, retry 200, retry 200"},
		"empty object":      {`{}`, "retry 200, retry 200, retry 200"},
		"not JSON":          {`<html>`, "retry 200, retry 200, retry 200"},
		"cut":               {`{"errors":false,"items":[{"index":{"status":201}},{"ind`, "retry 200, retry 200, retry 200"},
		"more behind":       {`{"errors":false} {"errors":true}`, "retry 200, retry 200, retry 200"},
		"null":              {`null`, "retry 200, retry 200, retry 200"},
		"409 is no success": {`{"items":[{"index":{"status":409}},{"index":{"status":201}},{"index":{"status":201}}]}`, "retry 409, delivered, delivered"},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEndpoint(t, func(_ int, w http.ResponseWriter, _ *request) { fmt.Fprint(w, tc.body) })
			s := sinktest.Open(t, New, Options{URL: e.URL, Format: FormatNDJSON, Partial: PartialBulk})
			wantWords(t, s.Deliver(t.Context(), sinktest.BatchOf("a", "b", "c")), tc.want)
		})
	}
}

func TestBulkSkipsWhatWasNotSent(t *testing.T) {
	e := newEndpoint(t, func(_ int, w http.ResponseWriter, _ *request) {
		fmt.Fprint(w, `{"errors":true,"items":[{"index":{"status":400,"error":{"type":"x","reason":"no \u0000 good"}}},{"index":{"status":201}}]}`)
	})
	s := sinktest.Open(t, New, Options{URL: e.URL, Format: FormatNDJSON, Partial: PartialBulk})
	out := s.Deliver(t.Context(), sinktest.BatchOf("no\nline", "bad", "good"))
	wantWords(t, out, "reject isolated, reject 400 isolated, delivered")
	if !strings.HasPrefix(out[1].Reason, `item status 400: {"type":"x","reason":"no`) {
		t.Errorf("reason = %q", out[1].Reason)
	}
}

// F26: one answer says 429 for some and 200 for others; each record gets its own.
func TestF26EachRecordGetsItsOwnAnswer(t *testing.T) {
	e := newEndpoint(t, func(n int, w http.ResponseWriter, _ *request) {
		fmt.Fprint(w, `{"errors":true,"items":[{"index":{"status":429}},{"index":{"status":200}}]}`)
	})
	s := sinktest.Open(t, New, Options{URL: e.URL, Format: FormatNDJSON, Partial: PartialBulk})
	for range 2 {
		wantWords(t, s.Deliver(t.Context(), sinktest.BatchOf("a", "b")), "retry 429, delivered")
	}
}

func TestBulkStatusOfTheWholeAnswer(t *testing.T) {
	for status, want := range map[int]string{429: "retry 429, retry 429", 413: "split 413, split 413", 401: "hold 401, hold 401", 400: "reject 400, reject 400"} {
		e := newEndpoint(t, func(_ int, w http.ResponseWriter, _ *request) {
			w.WriteHeader(status)
			fmt.Fprint(w, `{"errors":false}`)
		})
		s := sinktest.Open(t, New, Options{URL: e.URL, Format: FormatNDJSON, Partial: PartialBulk})
		wantWords(t, s.Deliver(t.Context(), sinktest.BatchOf("a", "b")), want)
	}
}

func TestBulkActions(t *testing.T) {
	for action, conflict := range map[string]string{BulkActionCreate: "delivered", BulkActionIndex: "retry 409"} {
		e := newEndpoint(t, func(_ int, w http.ResponseWriter, _ *request) {
			fmt.Fprintf(w, `{"errors":true,"items":[{%q:{"status":409}},{%q:{"status":201}}]}`, action, action)
		})
		s := sinktest.Open(t, New, Options{URL: e.URL, Format: FormatNDJSON, Partial: PartialBulk, BulkAction: action})
		b := sinktest.BatchOf(`{"a":1}`, `{"b":2}`)
		wantWords(t, s.Deliver(t.Context(), b), conflict+", delivered")
		want := fmt.Sprintf("{\"%[1]s\":{\"_id\":\"%[2]s\"}}\n{\"a\":1}\n{\"%[1]s\":{\"_id\":\"%[3]s\"}}\n{\"b\":2}\n", action, b.Records[0].ID, b.Records[1].ID)
		if got := string(e.all()[0].body); got != want {
			t.Errorf("body = %q, want %q", got, want)
		}
		wantHeader(t, e.all()[0], "Weir-Record-Count", "2")
	}
	e := newEndpoint(t, func(_ int, w http.ResponseWriter, _ *request) {
		fmt.Fprint(w, `{"items":[{"create":{"status":409}}]}`)
	})
	s := sinktest.Open(t, New, Options{
		URL: e.URL, Format: FormatNDJSON, Partial: PartialBulk, BulkAction: BulkActionCreate, Status: map[string]string{"409": "reject"},
	})
	wantWords(t, s.Deliver(t.Context(), sinktest.BatchOf("a")), "reject 409 isolated")
}

func TestMultiStatus(t *testing.T) {
	const good, mixed = `[{"status":200},{"status":201}]`, `[{"status":200},{"status":400,"message":"no","error":"x"}]`
	for name, tc := range map[string]struct {
		status  int
		partial string
		body    string
		want    string
	}{
		"array":                  {207, PartialMultiStatus, good, "delivered, delivered"},
		"mixed":                  {207, PartialMultiStatus, mixed, "delivered, reject 400 isolated"},
		"items":                  {207, PartialMultiStatus, `{"items":` + mixed + `}`, "delivered, reject 400 isolated"},
		"results":                {207, PartialMultiStatus, `{"results":` + mixed + `}`, "delivered, reject 400 isolated"},
		"responses":              {207, PartialMultiStatus, `{"responses":` + mixed + `}`, "delivered, reject 400 isolated"},
		"records":                {207, PartialMultiStatus, `{"records":` + mixed + `}`, "delivered, reject 400 isolated"},
		"two lists":              {207, PartialMultiStatus, `{"items":` + good + `,"results":` + good + `}`, "retry 207, retry 207"},
		"too few":                {207, PartialMultiStatus, `[{"status":200}]`, "retry 207, retry 207"},
		"none":                   {207, PartialMultiStatus, ``, "retry 207, retry 207"},
		"no list":                {207, PartialMultiStatus, `{}`, "retry 207, retry 207"},
		"bad status":             {207, PartialMultiStatus, `[{"status":200},{"status":1}]`, "retry 207, retry 207"},
		"XML":                    {207, PartialMultiStatus, `<multistatus/>`, "retry 207, retry 207"},
		"another 2xx":            {200, PartialMultiStatus, mixed, "delivered, delivered"},
		"not asked for, read":    {207, PartialNone, mixed, "delivered, reject 400 isolated"},
		"not asked for, no list": {207, PartialNone, `<multistatus/>`, "delivered, delivered"},
		"not asked for, 200":     {200, PartialNone, mixed, "delivered, delivered"},
	} {
		for _, format := range []string{FormatNDJSON, FormatJSON} {
			e := newEndpoint(t, func(_ int, w http.ResponseWriter, _ *request) {
				w.WriteHeader(tc.status)
				fmt.Fprint(w, tc.body)
			})
			s := sinktest.Open(t, New, Options{URL: e.URL, Format: format, Partial: tc.partial})
			out := s.Deliver(t.Context(), sinktest.BatchOf("a", "b"))
			if got := words(out); got != tc.want {
				t.Errorf("%s, %s: outcomes = %s, want %s", name, format, got, tc.want)
			}
			if strings.Contains(tc.want, "reject") && out[1].Reason != `item status 400: no "x"` {
				t.Errorf("%s: reason = %q", name, out[1].Reason)
			}
		}
	}
}

func FuzzPartial(f *testing.F) {
	f.Add([]byte(`{"errors":true,"items":[{"index":{"status":201}},{"index":{"status":400,"error":{"reason":"bad"}}}]}`), 2)
	f.Add([]byte(`{"errors":false}`), 3)
	f.Add([]byte(`[{"status":200},{"status":409,"message":"x"}]`), 2)
	f.Add([]byte(`{"results":[{"status":200}]}`), 1)
	f.Fuzz(func(t *testing.T, body []byte, n int) {
		n &= 1023
		for name, parse := range map[string]func([]byte, int) ([]itemAnswer, error){"bulk": parseBulk, "multi-status": parseMultiStatus} {
			items, err := parse(body, n)
			if err != nil {
				if items != nil {
					t.Errorf("%s(%q, %d): items and the error %v", name, body, n, err)
				}
				continue
			}
			if len(items) != n || !json.Valid(body) {
				t.Errorf("%s(%q, %d): %d items", name, body, n, len(items))
			}
			for _, it := range items {
				if it.status < 200 || it.status > 599 {
					t.Errorf("%s(%q, %d): status %d", name, body, n, it.status)
				}
			}
		}
	})
}
