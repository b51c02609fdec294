package filesink

import (
	"bytes"
	"encoding/base64"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/weir-agent/weir/wab/record"
)

// AppendLine appends r as one line of format jsonl: an object with id, segment, index, appended and the payload, as AppendPayload
// has it, then a line feed.
func AppendLine(dst []byte, r *record.Record, base64Only bool) []byte {
	dst = r.ID.AppendText(append(dst, `{"id":"`...))
	dst = appendString(append(dst, `","segment":`...), r.Segment)
	dst = strconv.AppendUint(append(dst, `,"index":`...), r.Index, 10)
	dst = r.Appended.UTC().AppendFormat(append(dst, `,"appended":"`...), time.RFC3339Nano)
	dst = AppendPayload(append(dst, `",`...), r.Payload, base64Only)
	return append(dst, "}\n"...)
}

// AppendPayload appends the member of a JSON object that holds p: "payload" with
// the text where p is valid UTF-8, else, or where base64Only is set,
// "payload_base64". The result holds no line feed.
func AppendPayload(dst, p []byte, base64Only bool) []byte {
	if !base64Only && utf8.Valid(p) {
		return appendString(append(dst, `"payload":`...), p)
	}
	dst = base64.StdEncoding.AppendEncode(append(dst, `"payload_base64":"`...), p)
	return append(dst, '"')
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
