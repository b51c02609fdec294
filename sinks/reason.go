package sinks

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxReasonBytes bounds Outcome.Reason.
const maxReasonBytes = 256

// minSecretBytes is the length from which a secret is looked for in texts: what
// is shorter is a word that any text may hold.
const minSecretBytes = 4

const redacted = "[redacted]"

// CleanReason makes text from an endpoint, or from the network, fit to be Outcome.Reason: secrets
// replaced, control characters and runs of space made one space, at most 256 bytes. Secrets of
// fewer than four bytes are not looked for.
func CleanReason(text string, secrets ...string) string {
	for _, s := range secrets {
		if len(s) >= minSecretBytes {
			text = strings.ReplaceAll(text, s, redacted)
		}
	}
	var b strings.Builder
	space := false
	for _, r := range text {
		if !unicode.IsPrint(r) || r == ' ' || r == utf8.RuneError {
			space = b.Len() > 0
			continue
		}
		need := utf8.RuneLen(r)
		if space {
			need++
		}
		if b.Len()+need > maxReasonBytes {
			break
		}
		if space {
			b.WriteByte(' ')
			space = false
		}
		b.WriteRune(r)
	}
	return b.String()
}
