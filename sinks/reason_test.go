package sinks_test

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/weir-agent/weir/sinks"
)

func TestCleanReason(t *testing.T) {
	for name, tc := range map[string]struct{ in, want string }{
		"plain":         {"bad request", "bad request"},
		"control":       {"a\x1b[31mb\r\nc\x00\x7fd", "a [31mb c d"},
		"space":         {"  a \t\n b  ", "a b"},
		"not UTF-8":     {"a\xffb", "a b"},
		"direction":     {"a\u202eb\u2028c", "a b c"},
		"secret":        {"no: s3cret-value!", "no: [redacted]!"},
		"secret split":  {strings.Repeat("x", 252) + "s3cret-value", strings.Repeat("x", 252) + "[red"},
		"256 bytes":     {strings.Repeat("x", 300), strings.Repeat("x", 256)},
		"whole runes":   {strings.Repeat("é", 200), strings.Repeat("é", 128)},
		"space at 256":  {strings.Repeat("x", 255) + " y", strings.Repeat("x", 255)},
		"only controls": {"\x00\x01", ""},
	} {
		got := sinks.CleanReason(tc.in, "s3cret-value", "", "a")
		if got != tc.want {
			t.Errorf("%s: CleanReason(%q) = %q, want %q", name, tc.in, got, tc.want)
		}
	}
}

func FuzzCleanReason(f *testing.F) {
	f.Add("a\x00b secret \xff")
	f.Fuzz(func(t *testing.T, in string) {
		got := sinks.CleanReason(in, "secret")
		if len(got) > 256 || !utf8.ValidString(got) || strings.ContainsFunc(got, unicode.IsControl) || strings.Contains(got, "secret") {
			t.Errorf("CleanReason(%q) = %q", in, got)
		}
	})
}
