package httpsink

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/weir-agent/weir/sinks"
)

// verdict returns what an answer with this status means.
func (t statusTable) verdict(status int) sinks.Verdict {
	if v, ok := t[status]; ok {
		return v
	}
	switch status {
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusMisdirectedRequest, http.StatusLocked,
		http.StatusTooEarly, http.StatusTooManyRequests:
		return sinks.Retry
	case http.StatusUnauthorized, http.StatusPaymentRequired, http.StatusForbidden, http.StatusNotFound,
		http.StatusMethodNotAllowed, http.StatusProxyAuthRequired, http.StatusGone:
		return sinks.Hold
	case http.StatusRequestEntityTooLarge:
		return sinks.Split
	}
	switch status / 100 {
	case 2:
		return sinks.Delivered
	case 3:
		return sinks.Hold
	case 4:
		return sinks.Reject
	}
	return sinks.Retry // 5xx, and numbers that HTTP does not know
}

// stops tells whether an answer to one record means that the others of its
// batch need not be tried now: the endpoint is at fault, or asks for less.
func stops(o sinks.Outcome) bool {
	switch o.Verdict {
	case sinks.Hold:
		return true
	case sinks.Retry:
		return o.Status == 0 || o.Status == http.StatusTooManyRequests || o.Status == http.StatusServiceUnavailable
	}
	return false
}

// retryAfter reads the first Retry-After of h (RFC 9110, section 10.2.3). The
// result is 0, where there is none or it makes no sense, to limit.
func retryAfter(h http.Header, now time.Time, limit time.Duration) time.Duration {
	text := strings.TrimSpace(h.Get("Retry-After"))
	if text == "" {
		return 0
	}
	if strings.Trim(text, "0123456789") == "" {
		seconds, err := strconv.ParseInt(text, 10, 64)
		if err != nil || seconds > int64(limit/time.Second) { // an error here is a number too large
			return limit
		}
		return time.Duration(seconds) * time.Second
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	return min(max(at.Sub(now), 0), limit)
}
