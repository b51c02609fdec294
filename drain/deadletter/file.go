package deadletter

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/weir-agent/weir/wab/record"
	"github.com/weir-agent/weir/wab/segment"
	"github.com/weir-agent/weir/wab/vfs"
)

const (
	filePrefix    = "letters_"
	fileSuffix    = ".log"
	damagedSuffix = ".damaged"
)

// file is one file of the log.
type file struct {
	number uint64
	name   string
	handle vfs.File // open for reading; only in a store that is read only

	// Guarded by Store.mu:
	size    int64 // of what is readable
	live    int   // letters that count
	bytes   int64 // what these take
	marked  int   // of these, those that are requeued
	damaged bool
}

func fileName(number uint64) string { return fmt.Sprintf("%s%08d%s", filePrefix, number, fileSuffix) }

// parseFileName reads the number of any name that begins as a file's does; whole tells that it is the name of a file.
func parseFileName(name string) (number uint64, whole bool) {
	digits, ok := strings.CutPrefix(name, filePrefix)
	if !ok {
		return 0, false
	}
	digits, _, _ = strings.Cut(digits, ".")
	number, err := strconv.ParseUint(digits, 10, 62)
	if err != nil || number == 0 {
		return 0, false
	}
	return number, name == fileName(number)
}

// item is what a walk finds: a letter, marks, or damage.
type item struct {
	at     uint32 // index of the first record
	letter *Letter
	what   byte   // of marks
	ids    []byte // of marks, 32 bytes each
	damage *CorruptError
	tail   bool // the damage is the end of the file
}

// walker reads the items of one file in order. Memory: one window, and one letter.
type walker struct {
	name   string
	handle vfs.File
	sc     *segment.Scanner
	buf    []byte
	from   int64 // offset of buf[0]
	failed error // what could not be read, and counts as zeros

	held *segment.Item // a record that was read, but is not of the item before it
}

// windowBytes is how much of a file is read at once.
const windowBytes = 256 << 10

// openWalker reads the header of a file of size bytes. empty, with an error: the file is too short to hold a letter.
func openWalker(name string, handle vfs.File, size int64) (w *walker, empty bool, err error) {
	if size <= segment.HeaderBytes {
		return nil, true, &CorruptError{File: name, Reason: "it ends in its header"}
	}
	head := make([]byte, segment.HeaderBytes+segment.GroupHeaderBytes)
	n, err := handle.ReadAt(head[:min(int64(len(head)), size)], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, false, fmt.Errorf("deadletter: read %s: %w", name, err)
	}
	head = head[:n]
	h, _, err := segment.ParseHeader(head[:min(n, segment.HeaderBytes)])
	switch {
	case errors.Is(err, segment.ErrVersion):
		return nil, false, fmt.Errorf("deadletter: %s: %w", name, err)
	case err != nil:
		nonce, ok := segment.FindNonce(head[min(n, segment.HeaderBytes):], nil, size)
		if !ok {
			return nil, false, &CorruptError{File: name, Reason: "neither the header nor a group verifies"}
		}
		h.Nonce = nonce
	}
	return &walker{name: name, handle: handle, sc: segment.NewScanner(h.Nonce, segment.HeaderBytes, 1, size)}, false, nil
}

// scan returns the next item of the scanner. What the disk cannot read counts as zeros, which never verify.
func (w *walker) scan() segment.Item {
	if it := w.held; it != nil {
		w.held = nil
		return *it
	}
	for {
		have := w.from + int64(len(w.buf)) - w.sc.Offset()
		if have < 0 || w.sc.Offset() < w.from {
			w.from, w.buf, have = w.sc.Offset(), w.buf[:0], 0
		}
		it, need := w.sc.Next(w.buf[int64(len(w.buf))-have:])
		if need == 0 {
			return it
		}
		w.fill(int64(need))
	}
}

// fill makes at least need bytes at the scanner's offset available.
func (w *walker) fill(need int64) {
	off := w.sc.Offset()
	kept := max(0, w.from+int64(len(w.buf))-off)
	want := min(max(need, windowBytes), w.sc.Limit()-off)
	buf := make([]byte, 0, want)
	buf = append(buf, w.buf[int64(len(w.buf))-kept:]...)
	buf = buf[:want]
	n, err := w.handle.ReadAt(buf[kept:], off+kept)
	clear(buf[kept+int64(n):])
	if err != nil && !errors.Is(err, io.EOF) {
		w.failed = err
	}
	w.buf, w.from = buf, off
}

// next returns the next item; false at the end of the file. Its letter is the caller's to keep.
func (w *walker) next() (item, bool) {
	it := w.scan()
	switch it.Kind {
	case segment.Record:
		return w.entry(it), true
	case segment.Damage:
		return w.bad(it, it.Reason), true
	case segment.Tail:
		if it.Begun || w.failed != nil {
			out := w.bad(it, "the end does not verify")
			out.tail = true
			return out, true
		}
	}
	return item{}, false
}

func (w *walker) bad(it segment.Item, reason string) item {
	if w.failed != nil {
		reason += ": " + w.failed.Error()
	}
	return item{damage: &CorruptError{File: w.name, Offset: it.Off, Reason: reason}}
}

// entry reads one entry and, where it is a letter, the parts that belong to it.
func (w *walker) entry(it segment.Item) item {
	out := item{at: uint32(it.Index)}
	switch it.Payload[0] {
	case kindLetter:
		l, total, err := parseLetter(it.Payload)
		if err != nil {
			return w.bad(it, err.Error())
		}
		l.Payload = append(make([]byte, 0, total), l.Payload...)
		for len(l.Payload) < total {
			if !w.part(&l) {
				return w.bad(it, "the rest of a letter's payload is missing: "+l.ID.String())
			}
		}
		out.letter = &l
	case kindMarks:
		what, ids, err := parseMarks(it.Payload)
		if err != nil {
			return w.bad(it, err.Error())
		}
		out.what, out.ids = what, ids
	default:
		return w.bad(it, "a part of a letter without its beginning")
	}
	return out
}

// part adds the next part to the payload of l.
func (w *walker) part(l *Letter) bool {
	it := w.scan()
	if it.Kind == segment.Record {
		id, off, b, err := parsePart(it.Payload)
		if err == nil && id == l.ID && off == len(l.Payload) && off+len(b) <= cap(l.Payload) {
			l.Payload = append(l.Payload, b...)
			return true
		}
	}
	w.held = &it
	return false
}

// idAt returns the i-th of the ids of marks.
func idAt(ids []byte, i int) record.ID { return record.ID(ids[32*i:]) }
