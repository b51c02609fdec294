package httpsink

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weir-agent/weir/sinks"
	"github.com/weir-agent/weir/sinks/sinktest"
)

// table is DESIGN section 8 in the form of its exceptions.
func wantVerdict(status int) sinks.Verdict {
	switch status {
	case 408, 409, 421, 423, 425, 429:
		return sinks.Retry
	case 401, 402, 403, 404, 405, 407, 410:
		return sinks.Hold
	case 413:
		return sinks.Split
	}
	return []sinks.Verdict{sinks.Delivered, sinks.Hold, sinks.Reject, sinks.Retry}[status/100-2]
}

func TestEveryStatus(t *testing.T) {
	next := 200
	e := newEndpoint(t, func(_ int, w http.ResponseWriter, _ *request) {
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(next)
	})
	for _, format := range []string{FormatRaw, FormatNDJSON, FormatJSON} {
		s := sinktest.Open(t, New, Options{URL: e.URL, Format: format})
		for status := 200; status <= 599; status++ {
			next = status
			out := s.Deliver(t.Context(), sinktest.BatchOf("a"))
			if len(out) != 1 || out[0].Verdict != wantVerdict(status) || out[0].Status != status {
				t.Errorf("%s, status %d: %+v, want %v", format, status, out, wantVerdict(status))
			}
			if out[0].Isolated != (out[0].Verdict == sinks.Reject) {
				t.Errorf("%s, status %d: isolated = %v for a record sent alone", format, status, out[0].Isolated)
			}
		}
	}
	for _, r := range e.all() {
		if r.path != "/" || r.method != "POST" {
			t.Fatalf("a redirect was followed: %s %s", r.method, r.path)
		}
	}
}

func TestABatchIsNotIsolated(t *testing.T) {
	e := newEndpoint(t, func(_ int, w http.ResponseWriter, _ *request) { http.Error(w, "bad", http.StatusBadRequest) })
	s := sinktest.Open(t, New, Options{URL: e.URL, Format: FormatNDJSON})
	wantWords(t, s.Deliver(t.Context(), sinktest.BatchOf("a", "b")), "reject 400, reject 400")
	wantWords(t, s.Deliver(t.Context(), sinktest.BatchOf("a", "\n")), "reject 400 isolated, reject isolated")
}

func TestStatusOverride(t *testing.T) {
	next := 0
	e := newEndpoint(t, func(_ int, w http.ResponseWriter, _ *request) { w.WriteHeader(next) })
	s := sinktest.Open(t, New, Options{URL: e.URL, Status: map[string]string{
		"409": "delivered", "4xx": "retry", "404": "reject", "202": "retry", "500": "hold", "422": "split",
	}})
	for status, want := range map[int]string{
		409: "delivered", 404: "reject 404 isolated", 400: "retry 400", 413: "retry 413", 202: "retry 202", 200: "delivered",
		500: "hold 500", 502: "retry 502", 422: "split 422", 301: "hold 301",
	} {
		next = status
		wantWords(t, s.Deliver(t.Context(), sinktest.BatchOf("a")), want)
	}
}

// F21: a redirect is never followed, its target's 200 never counts.
func TestF21RedirectIsHeld(t *testing.T) {
	target := newEndpoint(t, nil)
	for _, status := range []int{301, 302, 303, 307, 308} {
		e := newEndpoint(t, func(_ int, w http.ResponseWriter, _ *request) {
			w.Header().Set("Location", target.URL)
			w.WriteHeader(status)
		})
		s := sinktest.Open(t, New, Options{URL: e.URL})
		wantWords(t, s.Deliver(t.Context(), sinktest.BatchOf("a")), "hold "+strconv.Itoa(status))
	}
	if n := len(target.all()); n != 0 {
		t.Errorf("%d redirects were followed", n)
	}
}

// F35: whatever Retry-After says, the wait is one that makes sense.
func TestF35RetryAfter(t *testing.T) {
	now := time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC)
	const limit = 10 * time.Minute
	for text, want := range map[string]time.Duration{
		"":                        0,
		"0":                       0,
		"7":                       7 * time.Second,
		" 7 ":                     7 * time.Second,
		"600":                     limit,
		"601":                     limit,
		"86400000":                limit,
		"9223372036854775808":     limit,
		strings.Repeat("9", 5000): limit,
		"-5":                      0,
		"1.5":                     0,
		"soon":                    0,
		"7 seconds":               0,
		"0x10":                    0,
		"\x00":                    0,
		now.Add(90 * time.Second).Format(http.TimeFormat): 90 * time.Second,
		now.Add(-time.Hour).Format(http.TimeFormat):       0,
		now.Add(24 * time.Hour).Format(http.TimeFormat):   limit,
		"Fri, 31 Dec 9999 23:59:59 GMT":                   limit,
		"Mon, 01 Jan 0001 00:00:00 GMT":                   0,
		"Wednesday, 06-May-26 07:09:09 GMT":               time.Minute,
		"Wed May  6 07:09:09 2026":                        time.Minute,
	} {
		if got := retryAfter(http.Header{"Retry-After": {text}}, now, limit); got != want {
			t.Errorf("Retry-After %.60q: %v, want %v", text, got, want)
		}
	}
	if got := retryAfter(http.Header{}, now, limit); got != 0 {
		t.Errorf("no Retry-After: %v", got)
	}
}

func TestRetryAfterReachesTheOutcome(t *testing.T) {
	e := newEndpoint(t, func(_ int, w http.ResponseWriter, _ *request) {
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	for _, format := range []string{FormatRaw, FormatNDJSON} {
		s := sinktest.Open(t, New, Options{URL: e.URL, Format: format, RetryAfterMax: time.Minute})
		if o := s.Deliver(t.Context(), sinktest.BatchOf("a"))[0]; o.RetryAfter != time.Minute {
			t.Errorf("%s: %+v, want a wait of 1 minute", format, o)
		}
	}
}
