package framing

import (
	"bytes"
	"errors"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// all reads every message of an input.
func all(t *testing.T, in string, f Framing, maxBytes int) ([]string, error) {
	t.Helper()
	r := NewReader(strings.NewReader(in), f, maxBytes)
	var got []string
	for {
		m, err := r.Next()
		if err != nil {
			return got, err
		}
		got = append(got, string(m))
	}
}

func TestReader(t *testing.T) {
	long := strings.Repeat("x", 100<<10) // more than the buffer
	for _, tt := range []struct {
		name    string
		in      string
		framing Framing
		max     int
		want    []string
		err     error
	}{
		{"nothing", "", Line, 9, nil, io.EOF},
		{"lines", "a\n\nb\n", Line, 9, []string{"a", "", "b"}, io.EOF},
		{"a last line without an end", "a\nb", Line, 9, []string{"a", "b"}, io.EOF},
		{"only one end is cut off", "a\r\n", Line, 9, []string{"a\r"}, io.EOF},
		{"a long line", long + "\n", Line, len(long), []string{long}, io.EOF},
		{"a line at the bound", "123456789\n", Line, 9, []string{"123456789"}, io.EOF},
		{"a line over the bound", "1234567890\n", Line, 9, nil, ErrTooLong},
		{"nul", "a\nb\x00\x00", Nul, 9, []string{"a\nb", ""}, io.EOF},
		{"lengths", "\x00\x00\x00\x02\n\x00\x00\x00\x00\x00", Length, 9, []string{"\n\x00", ""}, io.EOF},
		{"a length over the bound", "\x00\x00\x00\x0a", Length, 9, nil, ErrTooLong},
		{"cut within a length", "\x00\x00\x00", Length, 9, nil, io.ErrUnexpectedEOF},
		{"cut within a message", "\x00\x00\x00\x02x", Length, 9, nil, io.ErrUnexpectedEOF},
		{"cut before a message", "\x00\x00\x00\x02", Length, 9, nil, io.ErrUnexpectedEOF},
		{"raw", "a\nb\x00", Raw, 9, []string{"a\nb\x00"}, io.EOF},
		{"raw and empty", "", Raw, 9, []string{""}, io.EOF},
		{"raw over the bound", "1234567890", Raw, 9, nil, ErrTooLong},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := all(t, tt.in, tt.framing, tt.max)
			if !slices.Equal(got, tt.want) || !errors.Is(err, tt.err) {
				t.Errorf("got %q, %v, want %q, %v", got, err, tt.want, tt.err)
			}
		})
	}
}

// A length that announces what does not come takes no memory for it.
func TestLengthIsNotBelieved(t *testing.T) {
	r := NewReader(strings.NewReader("\x3f\xff\xff\xffx"), Length, 1<<30)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := r.Next(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %v", err)
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 1<<20 {
		t.Errorf("it took %d bytes", took)
	}
}

func TestParse(t *testing.T) {
	for f := Line; f <= Raw; f++ {
		if got, err := Parse(f.String()); got != f || err != nil {
			t.Errorf("%v: got %v, %v", f, got, err)
		}
	}
	if _, err := Parse("lines"); err == nil || !strings.Contains(err.Error(), Names) {
		t.Errorf("got %v, want the names", err)
	}
}

// What was written is read back, for any bytes where the framing allows them; otherwise the writer counts what reads as several.
func TestWriterIsReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := Framing(rapid.IntRange(int(Line), int(Length)).Draw(t, "framing"))
		want := rapid.SliceOf(rapid.SliceOf(rapid.Byte())).Draw(t, "messages")
		var b bytes.Buffer
		w := NewWriter(&b, f)
		torn := 0
		for _, m := range want {
			if f == Line && bytes.IndexByte(m, '\n') >= 0 || f == Nul && bytes.IndexByte(m, 0) >= 0 {
				torn++
			}
			if err := w.Write(m); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		if w.Torn() != torn {
			t.Fatalf("got %d torn, want %d", w.Torn(), torn)
		}
		if torn > 0 {
			return
		}
		r := NewReader(&b, f, 1<<20)
		for _, m := range want {
			if got, err := r.Next(); !bytes.Equal(got, m) || err != nil {
				t.Fatalf("got %q, %v, want %q", got, err, m)
			}
		}
		if m, err := r.Next(); !errors.Is(err, io.EOF) {
			t.Fatalf("got %q, %v behind the last", m, err)
		}
	})
}

// failing fails every write.
type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestWriterTellsFailures(t *testing.T) {
	w := NewWriter(failing{}, Raw)
	if err := w.Write(make([]byte, 100<<10)); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("got %v", err)
	}
	w = NewWriter(failing{}, Line)
	if err := errors.Join(w.Write([]byte("x")), w.Flush()); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("got %v", err)
	}
	if _, err := NewWriter(failing{}, Raw).Copy(strings.NewReader("x")); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("got %v", err)
	}
}
