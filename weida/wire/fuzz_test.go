package wire

import (
	"bytes"
	"testing"

	"github.com/fxamacker/cbor/v2"
)

// rewrite reads a whole frame and writes what was read.
func rewrite(b []byte) ([]byte, error) {
	p, n, err := ParsePreamble(b, DefaultMaxHeaderBytes)
	if err != nil {
		return nil, err
	}
	if len(b) < n+p.HeaderBytes {
		return nil, ErrIncomplete
	}
	header := b[n : n+p.HeaderBytes]
	const most = DefaultMaxHeaderBytes
	switch p.Kind {
	case KindHello:
		h, err := ParseHello(header)
		if err != nil {
			return nil, err
		}
		return AppendHello(nil, &h)
	case KindData:
		d, err := ParseData(header)
		if err != nil {
			return nil, err
		}
		return AppendData(nil, &d, most)
	case KindError:
		e, err := ParseError(header)
		if err != nil {
			return nil, err
		}
		return AppendError(nil, e, most)
	case KindSubscribe:
		s, err := ParseSubscription(header)
		if err != nil {
			return nil, err
		}
		return AppendSubscribe(nil, s, most)
	case KindUnsubscribe:
		s, err := ParseSubscription(header)
		if err != nil {
			return nil, err
		}
		return AppendUnsubscribe(nil, s, most)
	case KindCredit:
		c, err := ParseCredit(header)
		if err != nil {
			return nil, err
		}
		return AppendCredit(nil, c, most)
	}
	id, err := ParseCursor(header)
	if err != nil {
		return nil, err
	}
	return AppendCursor(nil, id, most)
}

// FuzzFrame: what is read can be written, in no more bytes than it took, and what was written reads as the same; and a
// reader that knows only CBOR agrees that it is a map.
func FuzzFrame(f *testing.F) {
	for _, seed := range []string{
		"570105a100622f74", "570101a0", "570010a5008100011940000219040003800480", "570018a700810001194000021904000380048005a1040106a10401",
		"570203a10005", "57030ba200632f6d64016370782e", "570512a300652f6a6f6273016670782e6575720205", "570603a10001",
		"57010da400622f7409010a8203110b01", "570106a11840430102ff", "57010aa10d818181818181818100",
	} {
		f.Add(unhex(f, seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		first, err := rewrite(b)
		if err != nil {
			if _, ok := err.(Verdict); !ok {
				t.Fatalf("%T is no verdict: %v", err, err)
			}
			return
		}
		if len(first) > len(b) {
			t.Errorf("%x became %x", b, first)
		}
		again, err := rewrite(first)
		if err != nil || !bytes.Equal(first, again) {
			t.Errorf("%x became %x and then %x, %v", b, first, again, err)
		}
		_, n, _ := ParsePreamble(first, DefaultMaxHeaderBytes)
		var m map[uint64]any
		if err := cbor.Unmarshal(first[n:], &m); err != nil {
			t.Errorf("cbor does not read %x: %v", first[n:], err)
		}
	})
}

// FuzzRecord: a record takes what it says it takes and is written back in no more bytes.
func FuzzRecord(f *testing.F) {
	f.Add([]byte{0x02, 0x40, 0x40})
	f.Add([]byte{0x03, 0x80, 0x0f, 0x42, 0x40})
	f.Fuzz(func(t *testing.T, b []byte) {
		r, n, err := ParseRecord(b)
		if err != nil {
			return
		}
		out, err := AppendRecord(nil, r)
		if err != nil || len(out) > n || n > len(b) || n > MaxRecordBytes {
			t.Fatalf("%x: %+v of %d bytes became %x, %v", b, r, n, out, err)
		}
		if again, m, err := ParseRecord(out); again != r || m != len(out) || err != nil {
			t.Errorf("%x reads as %+v, %d, %v", out, again, m, err)
		}
	})
}

// FuzzFilter: Match never fails, a filter that matches every topic does, and a literal filter matches itself alone.
func FuzzFilter(f *testing.F) {
	f.Add("a.*.c", "a.b.c")
	f.Add("a.#", "a")
	f.Add("", "..")
	f.Fuzz(func(t *testing.T, filter, topic string) {
		if CheckFilter(filter) != nil {
			return
		}
		got := Match(filter, topic)
		if filter == "" || filter == wildcardRest {
			if !got {
				t.Errorf("%q does not match %q", filter, topic)
			}
			return
		}
		if !bytes.ContainsAny([]byte(filter), "*#") && got != (filter == topic) {
			t.Errorf("the literal %q and %q: got %v", filter, topic, got)
		}
		if got && CheckFilter(filter+".#") == nil && !Match(filter+".#", topic+".x.y") {
			t.Errorf("%q matches %q, but not with more behind both", filter, topic)
		}
	})
}
