package wire

import (
	"encoding/binary"
	"math"
	"unicode/utf8"
)

// Major types of CBOR (RFC 8949 §3.1).
const (
	majorUint   = 0
	majorNegint = 1
	majorBytes  = 2
	majorText   = 3
	majorArray  = 4
	majorMap    = 5
	majorTag    = 6
	majorSimple = 7

	majorShift = 5
	infoMask   = 1<<majorShift - 1
)

// Additional information of an initial byte.
const (
	infoUint8      = 24
	infoUint16     = 25
	infoUint32     = 26
	infoUint64     = 27
	infoIndefinite = 31

	simpleFalse     = 20
	simpleUndefined = 23
)

// appendHead appends an initial byte with the shortest form of its argument.
func appendHead(b []byte, major byte, v uint64) []byte {
	m := major << majorShift
	switch {
	case v < infoUint8:
		return append(b, m|byte(v))
	case v <= math.MaxUint8:
		return append(b, m|infoUint8, byte(v))
	case v <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(b, m|infoUint16), uint16(v))
	case v <= math.MaxUint32:
		return binary.BigEndian.AppendUint32(append(b, m|infoUint32), uint32(v))
	}
	return binary.BigEndian.AppendUint64(append(b, m|infoUint64), v)
}

// mapWriter appends a header map whose keys are written in ascending order. The number of pairs is filled in at the end.
type mapWriter struct {
	b     []byte
	at    int // of the map's initial byte
	pairs byte
	err   error // the first fault
}

// maxPairs is how many pairs an initial byte of one byte can announce; only a DATA header with extensions may have more.
const maxPairs = infoUint8 - 1

func beginMap(b []byte) mapWriter {
	return mapWriter{b: append(b, majorMap<<majorShift), at: len(b)}
}

// end returns the map, or the first fault.
func (w *mapWriter) end() ([]byte, error) {
	if w.err != nil {
		return nil, w.err
	}
	if w.pairs <= maxPairs {
		w.b[w.at] |= w.pairs
		return w.b, nil
	}
	w.b = append(w.b, 0) // room for a second byte
	copy(w.b[w.at+2:], w.b[w.at+1:len(w.b)-1])
	w.b[w.at], w.b[w.at+1] = majorMap<<majorShift|infoUint8, w.pairs
	return w.b, nil
}

func (w *mapWriter) key(k uint64) {
	w.pairs++
	w.b = appendHead(w.b, majorUint, k)
}

func (w *mapWriter) uint(k, v uint64) {
	w.key(k)
	w.b = appendHead(w.b, majorUint, v)
}

func (w *mapWriter) text(k uint64, s string, maxBytes int) {
	if len(s) > maxBytes {
		w.fail(ErrTooLong)
	} else if !utf8.ValidString(s) {
		w.fail(ErrNotUTF8)
	}
	w.key(k)
	w.b = append(appendHead(w.b, majorText, uint64(len(s))), s...)
}

func (w *mapWriter) bytes(k uint64, s string) {
	w.key(k)
	w.b = append(appendHead(w.b, majorBytes, uint64(len(s))), s...)
}

func (w *mapWriter) list(k uint64, items []uint64, maxItems int) {
	if len(items) > maxItems {
		w.fail(ErrTooMany)
	}
	w.key(k)
	w.b = appendHead(w.b, majorArray, uint64(len(items)))
	for _, v := range items {
		w.b = appendHead(w.b, majorUint, v)
	}
}

func (w *mapWriter) fail(err error) {
	if w.err == nil {
		w.err = err
	}
}

// reader reads the items of a header. It never reads beyond b, and what it returns aliases b.
type reader struct{ b []byte }

// head reads an initial byte with its argument. Reserved and indefinite forms are refused, and so are tags and the
// simple values and floats that a header may not hold; for a float the argument is its bits.
func (r *reader) head() (major byte, v uint64, err error) {
	if len(r.b) == 0 {
		return 0, 0, ErrMalformed
	}
	first := r.b[0]
	major, info := first>>majorShift, first&infoMask
	if info == infoIndefinite {
		return 0, 0, ErrIndefinite
	}
	if major == majorTag || major == majorSimple && !plain(info) {
		return 0, 0, ErrForbidden
	}
	if info < infoUint8 {
		r.b = r.b[1:]
		return major, uint64(info), nil
	}
	if info > infoUint64 {
		return 0, 0, ErrMalformed
	}
	n := 1 << (info - infoUint8)
	if len(r.b) < 1+n {
		return 0, 0, ErrMalformed
	}
	for _, c := range r.b[1 : 1+n] {
		v = v<<8 | uint64(c)
	}
	r.b = r.b[1+n:]
	return major, v, nil
}

// plain reports whether major type 7 with this information may stand in a header: false, true, null, undefined, and floats
// of 32 and 64 bits.
func plain(info byte) bool {
	return info >= simpleFalse && info <= simpleUndefined || info == infoUint32 || info == infoUint64
}

// typed reads an initial byte that must be of one major type.
func (r *reader) typed(want byte) (uint64, error) {
	major, v, err := r.head()
	if err == nil && major != want {
		err = ErrValueType
	}
	return v, err
}

func (r *reader) uint() (uint64, error) { return r.typed(majorUint) }

// str reads a string of at most maxBytes bytes.
func (r *reader) str(major byte, maxBytes int) ([]byte, error) {
	n, err := r.typed(major)
	if err != nil {
		return nil, err
	}
	if n > uint64(maxBytes) {
		return nil, ErrTooLong
	}
	return r.take(major, n)
}

// take takes the n bytes of a string, whose length was not yet checked against what is there.
func (r *reader) take(major byte, n uint64) ([]byte, error) {
	if n > uint64(len(r.b)) {
		return nil, ErrMalformed
	}
	s := r.b[:n]
	r.b = r.b[n:]
	if major == majorText && !utf8.Valid(s) {
		return nil, ErrNotUTF8
	}
	return s, nil
}

// list reads an array of at most maxItems unsigned integers.
func (r *reader) list(maxItems int) ([]uint64, error) {
	n, err := r.typed(majorArray)
	if err != nil {
		return nil, err
	}
	if n > uint64(maxItems) {
		return nil, ErrTooMany
	}
	if n > uint64(len(r.b)) {
		return nil, ErrMalformed
	}
	items := make([]uint64, n)
	for i := range items {
		if items[i], err = r.uint(); err != nil {
			return nil, err
		}
	}
	return items, nil
}

// mapReader walks the pairs of a map.
type mapReader struct {
	*reader
	left uint64
	last uint64
	any  bool
}

// pairs begins a map. other is the verdict where something else stands.
func (r *reader) pairs(other Verdict) (mapReader, error) {
	major, n, err := r.head()
	if err != nil {
		return mapReader{}, err
	}
	if major != majorMap {
		return mapReader{}, other
	}
	return mapReader{reader: r, left: n}, nil
}

// next reads the next key, which must be greater than the one before. ok is false behind the last pair.
func (m *mapReader) next() (key uint64, ok bool, err error) {
	if m.left == 0 {
		return 0, false, nil
	}
	major, key, err := m.head()
	switch {
	case err != nil:
		return 0, false, err
	case major != majorUint:
		return 0, false, ErrKeyType
	case m.any && key <= m.last:
		return 0, false, ErrKeyOrder
	}
	m.left--
	m.last, m.any = key, true
	return key, true, nil
}

// skip passes over one item of any type. It keeps a count for each level of nesting instead of calling itself, and refuses a ninth level.
func (r *reader) skip() error {
	var left [maxSkipDepth]uint64 // items still to come in each open array or map
	depth := 0
	for {
		major, n, err := r.head()
		if err != nil {
			return err
		}
		items := uint64(0)
		switch major {
		case majorBytes, majorText:
			if _, err := r.take(major, n); err != nil {
				return err
			}
		case majorArray, majorMap:
			if n > uint64(len(r.b)) { // every item takes a byte or more
				return ErrMalformed
			}
			if items = n; major == majorMap {
				items *= 2
			}
			if depth == maxSkipDepth {
				return ErrTooDeep
			}
			left[depth] = items
			depth++
		}
		if items > 0 {
			continue
		}
		if major == majorArray || major == majorMap {
			depth-- // it was empty
		}
		for depth > 0 {
			if left[depth-1]--; left[depth-1] > 0 {
				break
			}
			depth--
		}
		if depth == 0 {
			return nil
		}
	}
}

// end refuses bytes behind the header map.
func (r *reader) end() error {
	if len(r.b) > 0 {
		return ErrTrailing
	}
	return nil
}
