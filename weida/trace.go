package weida

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
)

// Trace is a W3C trace context. The zero value is none: nothing is sent, and nothing is made up.
type Trace struct {
	TraceID [16]byte
	SpanID  [8]byte
	Flags   byte
	// State is opaque and goes with the rest, at most 512 bytes.
	State string
}

const traceparentBytes = 55 // 00-<32 hex>-<16 hex>-<2 hex>

// ErrTraceparent is returned by ParseTraceparent.
var ErrTraceparent = errors.New("malformed traceparent")

// NewTrace begins a new trace. Nothing in this package calls it: a context is sent if the application has one.
func NewTrace() Trace {
	t := Trace{Flags: 1}
	_, _ = rand.Read(t.TraceID[:]) // it never fails
	_, _ = rand.Read(t.SpanID[:])
	return t
}

// IsZero reports whether there is no context.
func (t Trace) IsZero() bool { return t.TraceID == [16]byte{} || t.SpanID == [8]byte{} }

// Traceparent returns the W3C header value, and nothing for the zero value.
func (t Trace) Traceparent() string {
	if t.IsZero() {
		return ""
	}
	b := make([]byte, 0, traceparentBytes)
	b = hex.AppendEncode(append(b, "00-"...), t.TraceID[:])
	b = hex.AppendEncode(append(b, '-'), t.SpanID[:])
	b = hex.AppendEncode(append(b, '-'), []byte{t.Flags})
	return string(b)
}

// ParseTraceparent reads a W3C header value. Of a later version than 00 it reads the fields that it knows.
func ParseTraceparent(s string) (Trace, error) {
	if len(s) < traceparentBytes || s[2] != '-' || s[35] != '-' || s[52] != '-' || s[:2] == "ff" {
		return Trace{}, ErrTraceparent
	}
	if len(s) > traceparentBytes && (s[:2] == "00" || s[traceparentBytes] != '-') {
		return Trace{}, ErrTraceparent
	}
	var t Trace
	var version, flags [1]byte
	for _, f := range []struct {
		into []byte
		from string
	}{{version[:], s[:2]}, {t.TraceID[:], s[3:35]}, {t.SpanID[:], s[36:52]}, {flags[:], s[53:55]}} {
		for _, c := range []byte(f.from) {
			if c >= 'A' && c <= 'F' {
				return Trace{}, ErrTraceparent
			}
		}
		if _, err := hex.Decode(f.into, []byte(f.from)); err != nil {
			return Trace{}, ErrTraceparent
		}
	}
	if t.Flags = flags[0]; t.IsZero() {
		return Trace{}, ErrTraceparent
	}
	return t, nil
}
