package units

import (
	"testing"
	"time"
)

func TestParseDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"0": 0, "200ms": 200 * time.Millisecond, "1h 30m": 90 * time.Minute, "7d": 168 * time.Hour, "1w2d": 216 * time.Hour, "1.5d12h": 48 * time.Hour, "-2s": -2 * time.Second,
	} {
		if got, err := ParseDuration(text); err != nil || got != want {
			t.Errorf("ParseDuration(%q) = %v, %v, want %v", text, got, err, want)
		}
	}
	for _, bad := range []string{"", "5", "d", "soon", "1x", "NaNd", "9999999d", "1e300d", "99999d2562047h"} {
		if got, err := ParseDuration(bad); err == nil {
			t.Errorf("ParseDuration(%q) = %v, want an error", bad, got)
		}
	}
}

func TestParseSize(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "4096": 4096, "64MiB": 64 << 20, "1.5 GB": 1_500_000_000, "10gib": 10 << 30, " 7 B ": 7, "-1": -1,
	} {
		if got, err := ParseSize(text); err != nil || got != want {
			t.Errorf("ParseSize(%q) = %d, %v, want %d", text, got, err, want)
		}
	}
	for _, bad := range []string{"", "MiB", "1 XB", "1..5", "99999999TiB", "1e9"} {
		if got, err := ParseSize(bad); err == nil {
			t.Errorf("ParseSize(%q) = %d, want an error", bad, got)
		}
	}
}
