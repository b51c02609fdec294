// Package framing tells messages apart on standard input and standard output.
//
//	line      each message, then a newline
//	nul       each message, then a NUL byte
//	length    the length of each message, 4 bytes, most significant first, then the message
//	raw       no framing: the input is one message, and messages are put out one behind the other
package framing

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
)

// Framing is a way of telling messages apart.
type Framing uint8

// The framings.
const (
	Line Framing = iota
	Nul
	Length
	Raw
)

var names = [...]string{Line: "line", Nul: "nul", Length: "length", Raw: "raw"}

// Names is what Parse takes, for help texts.
const Names = "line, nul, length or raw"

// ErrTooLong says that a message is longer than what was allowed, or than what the framing can say.
var ErrTooLong = errors.New("the message is too long")

// Parse returns the framing of a name.
func Parse(name string) (Framing, error) {
	for f, n := range names {
		if n == name {
			return Framing(f), nil
		}
	}
	return 0, fmt.Errorf("%q is no framing: use %s", name, Names)
}

// String returns the name.
func (f Framing) String() string { return names[f] }

const lengthBytes = 4

// Reader reads messages.
type Reader struct {
	in       *bufio.Reader
	framing  Framing
	maxBytes int
	over     bool // of a raw input
}

// NewReader returns a reader of messages of at most maxBytes bytes.
func NewReader(in io.Reader, f Framing, maxBytes int) *Reader {
	return &Reader{in: bufio.NewReaderSize(in, 64<<10), framing: f, maxBytes: maxBytes}
}

// Next returns the next message, which is the caller's; it may be empty. It fails with io.EOF behind the last one, with ErrTooLong, with
// io.ErrUnexpectedEOF where the input ends within a message of a length, or as the input does. A last line that has no end is a message, too.
func (r *Reader) Next() ([]byte, error) {
	switch r.framing {
	case Line:
		return r.until('\n')
	case Nul:
		return r.until(0)
	case Length:
		return r.counted()
	case Raw:
	}
	if r.over {
		return nil, io.EOF
	}
	r.over = true
	return r.rest()
}

// until returns what stands before the next end.
func (r *Reader) until(end byte) ([]byte, error) {
	var message []byte
	for {
		part, err := r.in.ReadSlice(end)
		last := err == nil
		if last {
			part = part[:len(part)-1]
		}
		if len(message)+len(part) > r.maxBytes {
			return nil, ErrTooLong
		}
		message = append(message, part...)
		switch {
		case last:
			return message, nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(message) > 0:
			return message, nil
		default:
			return nil, err
		}
	}
}

// counted reads a length and as much. Memory is taken as the bytes come, not as the length says.
func (r *Reader) counted() ([]byte, error) {
	var head [lengthBytes]byte
	if _, err := io.ReadFull(r.in, head[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if uint64(n) > uint64(r.maxBytes) {
		return nil, ErrTooLong
	}
	var b bytes.Buffer
	if _, err := io.CopyN(&b, r.in, int64(n)); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	return b.Bytes(), nil
}

// rest reads all there is.
func (r *Reader) rest() ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r.in, int64(r.maxBytes)+1))
	if err == nil && len(b) > r.maxBytes {
		err = ErrTooLong
	}
	return b, err
}

// Writer writes messages.
type Writer struct {
	out     *bufio.Writer
	framing Framing
	torn    int
}

// NewWriter returns a writer of messages. Nothing is written for certain before Flush.
func NewWriter(out io.Writer, f Framing) *Writer {
	return &Writer{out: bufio.NewWriterSize(out, 64<<10), framing: f}
}

// Write writes a message. Its errors are the output's, and ErrTooLong for one that is longer than a length can say.
func (w *Writer) Write(message []byte) error {
	switch w.framing {
	case Line:
		return w.ended(message, '\n')
	case Nul:
		return w.ended(message, 0)
	case Length:
		if uint64(len(message)) > math.MaxUint32 {
			return ErrTooLong
		}
		if _, err := w.out.Write(binary.BigEndian.AppendUint32(nil, uint32(len(message)))); err != nil {
			return err
		}
	case Raw:
	}
	_, err := w.out.Write(message)
	return err
}

func (w *Writer) ended(message []byte, end byte) error {
	if bytes.IndexByte(message, end) >= 0 {
		w.torn++
	}
	if _, err := w.out.Write(message); err != nil {
		return err
	}
	return w.out.WriteByte(end)
}

// Torn is how many messages held the byte that ends a message, so that a reader takes each for several. It is 0 for length and raw.
func (w *Writer) Torn() int { return w.torn }

// Copy writes a message of any length as it comes, which only Raw can. It is on its way at once.
func (w *Writer) Copy(r io.Reader) (int64, error) {
	n, err := io.Copy(flusher{w.out}, r)
	return n, err
}

// flusher writes through a buffer without keeping anything.
type flusher struct{ out *bufio.Writer }

func (f flusher) Write(p []byte) (int, error) {
	n, err := f.out.Write(p)
	if err == nil {
		err = f.out.Flush()
	}
	return n, err
}

// Flush writes what was kept.
func (w *Writer) Flush() error { return w.out.Flush() }

// Describe explains the framings, for help texts.
func Describe() string {
	return strings.TrimSpace(`
Messages are told apart by --framing: line (each ends with a newline), nul (with a NUL byte), length (each begins with its length, 4 bytes, most significant
first; for any bytes), raw (the input is one message of any length; output has nothing between messages).`)
}
