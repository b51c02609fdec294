package receive

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/weir-agent/weir/wab/record"
)

const (
	// maxPrefixBytes holds the key, line and of members of any line.
	maxPrefixBytes = 160
	readBytes      = 64 << 10
)

// readBack fills the set of keys from the file and cuts off what a crash left unfinished at its end: a line
// without line feed, a batch without its last line, and lines that hold zeros, which a power cut leaves where a part
// of a write is missing. Where whole lines follow such a one it is no end, and an error.
// It keeps no more than a prefix of each line in memory.
func (s *store) readBack() error {
	size, err := s.file.Size()
	if err != nil {
		return err
	}
	in := bufio.NewReaderSize(io.NewSectionReader(s.file, 0, size), readBytes)
	var b batchState
	var end, whole int64 // behind the last line; behind the last one that completes its batch
	torn := int64(0)     // the number of the first line with zeros
	for n := int64(1); ; n++ {
		line, err := readLine(in)
		if errors.Is(err, io.EOF) {
			break // a torn line, or none
		}
		if err != nil {
			return err
		}
		if line.zeros {
			torn = n
			continue
		}
		head, ok := parsePrefix(line.prefix)
		if torn > 0 && ok {
			return fmt.Errorf("line %d is damaged, and more follow", torn)
		}
		if torn > 0 {
			continue // the rest of a torn line that held a line feed by chance
		}
		if !ok || !b.follows(head) {
			return fmt.Errorf("line %d was not written by this program", n)
		}
		end += line.length
		b.last = head
		if b.complete() {
			if head.keyed {
				s.stored[head.key] = struct{}{}
			}
			s.counts.Stored += int64(max(head.of, 1))
			whole = end
		}
	}
	s.size = whole
	if whole == size {
		return nil
	}
	return s.file.Truncate(whole)
}

// rawLine is a line of which only the first bytes are kept, until the next one is read.
type rawLine struct {
	prefix []byte
	length int64 // with the line feed
	zeros  bool  // a zero byte is in it, which no line of ours holds
}

// readLine reads up to and with the next line feed. Without one it returns io.EOF.
func readLine(in *bufio.Reader) (rawLine, error) {
	var line rawLine
	for {
		part, err := in.ReadSlice('\n')
		line.length += int64(len(part))
		line.zeros = line.zeros || bytes.IndexByte(part, 0) >= 0
		switch {
		case err == nil && line.prefix == nil:
			line.prefix = part
			return line, nil
		case err == nil:
			return line, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return line, err
		case line.prefix == nil:
			line.prefix = bytes.Clone(part[:maxPrefixBytes])
		}
	}
}

// lineHead is what a line says before its payload.
type lineHead struct {
	key      record.ID
	keyed    bool
	line, of int // 0 where the line is no part of a batch
}

func parsePrefix(p []byte) (lineHead, bool) {
	if bytes.HasPrefix(p, []byte(`{"payload`)) {
		return lineHead{}, true
	}
	const textBytes = len("sha256:") + 2*len(record.ID{})
	p, ok := bytes.CutPrefix(p, []byte(keyMember))
	if !ok || len(p) < textBytes+1 {
		return lineHead{}, false
	}
	id, err := record.ParseID(string(p[:textBytes]))
	if err != nil {
		return lineHead{}, false
	}
	h := lineHead{key: id, keyed: true}
	p, ok = bytes.CutPrefix(p[textBytes:], []byte{'"'})
	if !ok {
		return lineHead{}, false
	}
	if rest, ok := bytes.CutPrefix(p, []byte(lineMember)); ok {
		var okLine, okOf bool
		h.line, p, okLine = parseNumber(rest)
		if rest, okOf = bytes.CutPrefix(p, []byte(ofMember)); okOf {
			h.of, p, okOf = parseNumber(rest)
		}
		if !okLine || !okOf || h.line > h.of {
			return lineHead{}, false
		}
	}
	return h, bytes.HasPrefix(p, []byte(`,"payload`))
}

// parseNumber reads a positive number and returns what follows it.
func parseNumber(p []byte) (int, []byte, bool) {
	digits := 0
	for digits < len(p) && '0' <= p[digits] && p[digits] <= '9' {
		digits++
	}
	n, err := strconv.Atoi(string(p[:digits]))
	return n, p[digits:], err == nil && n > 0
}

// batchState follows the lines of one batch.
type batchState struct{ last lineHead }

// follows tells whether h may come after the last line.
func (b *batchState) follows(h lineHead) bool {
	if b.complete() {
		return h.line <= 1
	}
	return h.key == b.last.key && h.of == b.last.of && h.line == b.last.line+1
}

// complete tells whether the last line ends its batch; before the first line nothing is open.
func (b *batchState) complete() bool { return b.last.line == b.last.of }
