package deadletter

import (
	"bytes"
	"strings"
	"testing"

	"github.com/weir-agent/weir/wab/record"
)

func TestParseLetterRefuses(t *testing.T) {
	l := letter(3, 50)
	good := appendLetter(nil, &l)
	change := func(at int, b byte) []byte {
		c := bytes.Clone(good)
		c[at] = b
		return c
	}
	for name, b := range map[string][]byte{
		"nothing":            nil,
		"a part":             change(0, kindPart),
		"fixed part cut":     good[:letterFixed-1],
		"address cut":        good[:letterFixed+10],
		"reason length cut":  good[:letterFixed+len(l.Segment)+1],
		"reason cut":         good[:letterFixed+len(l.Segment)+5],
		"payload cut":        good[:len(good)-1],
		"payload too long":   append(bytes.Clone(good), 1),
		"no payload at all":  change(70, 0),
		"total over the cap": change(73, 2),
	} {
		if _, _, err := parseLetter(b); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	got, total, err := parseLetter(good)
	if err != nil || total != 50 || !same(got, l) {
		t.Errorf("parseLetter: %+v, %d, %v", got, total, err)
	}
}

func TestParseMarksRefuses(t *testing.T) {
	ids := []record.ID{{1}, {2}}
	good := appendMarks(nil, markGone, ids)
	what, b, err := parseMarks(good)
	if err != nil || what != markGone || idAt(b, 0) != ids[0] || idAt(b, 1) != ids[1] || len(b) != 64 {
		t.Errorf("parseMarks: %d, %d bytes, %v", what, len(b), err)
	}
	for name, b := range map[string][]byte{
		"nothing": nil, "no ids": good[:2], "half an id": good[:50], "unknown mark": append([]byte{kindMarks, 9}, good[2:]...), "a letter": append([]byte{kindLetter}, good[1:]...),
	} {
		if _, _, err := parseMarks(b); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func FuzzEntry(f *testing.F) {
	l := letter(1, 30)
	f.Add(appendLetter(nil, &l))
	f.Add(appendMarks(nil, markRequeued, []record.ID{{1}}))
	l.Reason = strings.Repeat("x", 300)
	f.Add(appendLetter(nil, &l))
	f.Fuzz(func(t *testing.T, b []byte) {
		if l, total, err := parseLetter(b); err == nil && total == len(l.Payload) && len(l.Reason) <= maxReasonBytes {
			b[1] &= flagRequeued
			if got := appendLetter(nil, &l); !bytes.Equal(got, b) {
				t.Errorf("letter %x becomes %x", b, got)
			}
		}
		if what, ids, err := parseMarks(b); err == nil {
			all := make([]record.ID, len(ids)/32)
			for i := range all {
				all[i] = idAt(ids, i)
			}
			if got := appendMarks(nil, what, all); !bytes.Equal(got, b) {
				t.Errorf("marks %x become %x", b, got)
			}
		}
		if id, off, part, err := parsePart(b); err == nil && (len(part) == 0 || off < 0 || id != record.ID(b[1:33])) {
			t.Errorf("part %x", b)
		}
	})
}
