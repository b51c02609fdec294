package cli

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// endpoint is a loopback HTTP/1.1 server that counts records. It is no more than that, since it runs on the processors of the daemon
// that is measured: net/http takes more for a request than the daemon does.
type endpoint struct {
	url      string
	records  atomic.Int64
	listener net.Listener
	mark     []byte // stands once in a body for each record; nil: a body is a record
	wg       sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn
}

func startEndpoint(format string) (*endpoint, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("endpoint: %w", err)
	}
	e := &endpoint{url: "http://" + l.Addr().String() + "/", listener: l}
	switch format {
	case "ndjson":
		e.mark = []byte{'\n'}
	case "json":
		e.mark = []byte(`"index":`)
	}
	e.wg.Go(e.accept)
	return e, nil
}

func (e *endpoint) close() {
	_ = e.listener.Close() // nothing is lost by it
	e.mu.Lock()
	for _, nc := range e.conns {
		_ = nc.Close()
	}
	e.mu.Unlock()
	e.wg.Wait()
}

func (e *endpoint) accept() {
	for {
		nc, err := e.listener.Accept()
		if err != nil {
			return
		}
		e.mu.Lock()
		e.conns = append(e.conns, nc)
		e.mu.Unlock()
		e.wg.Go(func() {
			defer nc.Close()
			_ = e.serve(nc) // the client tries again, and the count says what came
		})
	}
}

// serve answers requests until the connection ends.
func (e *endpoint) serve(nc net.Conn) error {
	r := bufio.NewReaderSize(nc, 64<<10)
	for {
		length, err := readHeader(r)
		if err != nil {
			return err
		}
		n, err := e.count(r, length)
		if err != nil {
			return err
		}
		e.records.Add(n)
		if _, err := io.WriteString(nc, "HTTP/1.1 204 No Content\r\n\r\n"); err != nil {
			return err
		}
	}
}

var errRequest = errors.New("endpoint: not a request with a Content-Length")

// readHeader reads a request up to its body and returns the length of that.
func readHeader(r *bufio.Reader) (length int, err error) {
	length = -1
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			break
		}
		if name, value, ok := bytes.Cut(line, []byte{':'}); ok && strings.EqualFold(string(name), "Content-Length") {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return 0, err
			}
		}
	}
	if length < 0 {
		return 0, errRequest
	}
	return length, nil
}

// count reads a body and returns how many records are in it.
func (e *endpoint) count(r *bufio.Reader, length int) (n int64, err error) {
	for length > 0 {
		b, err := r.Peek(min(length, max(1, r.Buffered())))
		if err != nil {
			return 0, err
		}
		n += int64(bytes.Count(b, e.mark)) * int64(min(1, len(e.mark)))
		keep := 0
		if len(b) < length {
			keep = min(len(b)-1, max(0, len(e.mark)-1)) // a mark may lie over two looks
		}
		if _, err := r.Discard(len(b) - keep); err != nil {
			return 0, err
		}
		length -= len(b) - keep
		if keep > 0 {
			if _, err := r.Peek(keep + 1); err != nil {
				return 0, err
			}
		}
	}
	if e.mark == nil {
		return 1, nil
	}
	return n, nil
}
