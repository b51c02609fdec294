package filesink

import (
	"bytes"
	"encoding/base64"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/weir-agent/weir/wab/record"
)

// appendObject appends r as one line of format jsonl.
func appendObject(dst []byte, r *record.Record, base64Only bool) []byte {
	dst = r.ID.AppendText(append(dst, `{"id":"`...))
	dst = appendString(append(dst, `","segment":`...), r.Segment)
	dst = strconv.AppendUint(append(dst, `,"index":`...), r.Index, 10)
	dst = r.Appended.UTC().AppendFormat(append(dst, `,"appended":"`...), time.RFC3339Nano)
	if !base64Only && utf8.Valid(r.Payload) {
		dst = appendString(append(dst, `","payload":`...), r.Payload)
		return append(dst, "}\n"...)
	}
	dst = base64.StdEncoding.AppendEncode(append(dst, `","payload_base64":"`...), r.Payload)
	return append(dst, "\"}\n"...)
}

// appendString appends s, which is valid UTF-8, as a JSON string (RFC 8259, section 7).
func appendString[T string | []byte](dst []byte, s T) []byte {
	const hexDigits = "0123456789abcdef"
	dst = append(dst, '"')
	from := 0
	for i := range len(s) {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, s[from:i]...)
		from = i + 1
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, `\n`...)
		case '\r':
			dst = append(dst, `\r`...)
		case '\t':
			dst = append(dst, `\t`...)
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	return append(append(dst, s[from:]...), '"')
}

// isLine reports whether format lines can carry p.
func isLine(p []byte) bool {
	return bytes.IndexByte(p, '\n') < 0 && bytes.IndexByte(p, '\r') < 0
}
