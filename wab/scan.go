package wab

import (
	"errors"
	"fmt"
	"io"

	"github.com/weir-agent/weir/wab/segment"
	"github.com/weir-agent/weir/wab/vfs"
)

// windowBytes is how much of a segment a reader has in memory; a record
// that is larger makes the window larger for as long as it is read.
const windowBytes = 256 << 10

// window feeds a scanner from a file.
type window struct {
	file  vfs.File
	sc    *segment.Scanner
	buf   []byte
	from  int64 // file offset of buf[0]
	patch bool  // read what the disk cannot read as zeros
	// hot fills b with the bytes at off if they are in memory; nil where they never are.
	hot func(b []byte, off int64) bool
}

// next returns the scanner's next item. Its payload is valid until the call after it.
func (w *window) next() (segment.Item, error) {
	for {
		have := w.from + int64(len(w.buf)) - w.sc.Offset()
		if have < 0 || w.sc.Offset() < w.from {
			w.from, w.buf, have = w.sc.Offset(), w.buf[:0], 0
		}
		it, need := w.sc.Next(w.buf[int64(len(w.buf))-have:])
		if need == 0 {
			return it, nil
		}
		if err := w.fill(int64(need)); err != nil {
			return segment.Item{}, err
		}
	}
}

// run returns the bytes of the records that the scanner's Run takes off what is in memory, and their number. They are valid until the next call.
func (w *window) run(maxRecords, maxBytes int) (n int, run []byte) {
	at := w.sc.Offset() - w.from
	if at < 0 || at > int64(len(w.buf)) {
		return 0, nil
	}
	b := w.buf[at:]
	n, size := w.sc.Run(b, maxRecords, maxBytes)
	return n, b[:size]
}

// fill makes at least need bytes at the scanner's offset available.
func (w *window) fill(need int64) error {
	off := w.sc.Offset()
	kept := max(0, w.from+int64(len(w.buf))-off)
	want := min(max(need, windowBytes), w.sc.Limit()-off)
	buf := w.buf[:0]
	if int64(cap(buf)) < want || int64(cap(buf)) > 4*max(want, windowBytes) {
		buf = make([]byte, 0, max(want, min(windowBytes, w.sc.Limit()-off)))
	}
	buf = append(buf, w.buf[int64(len(w.buf))-kept:]...)
	n, err := w.read(buf[kept:want], off+kept)
	w.buf, w.from = buf[:kept+int64(n)], off
	if kept+int64(n) >= need {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return fmt.Errorf("wab: the file ends at offset %d, before %d: %w", w.from+int64(len(w.buf)), off+need, io.ErrUnexpectedEOF)
	}
	return err
}

func (w *window) read(b []byte, off int64) (int, error) {
	if w.hot != nil && w.hot(b, off) {
		return len(b), nil
	}
	if w.patch {
		n, _ := readPatched(w.file, b, off)
		clear(b[n:]) // the file is shorter than it was
		return len(b), nil
	}
	return w.file.ReadAt(b, off)
}
