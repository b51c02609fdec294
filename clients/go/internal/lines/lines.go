package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	weir "github.com/weir-agent/weir/clients/go"
	"github.com/weir-agent/weir/ingest/frame"
	"github.com/weir-agent/weir/wab/record"
)

// skip answers what a client never does: it sends no replies, and reads no requests.
const skip = "skip"

// sample is the record that is pushed where a line tells of a reply alone.
var sample = []byte("hello")

// server is a socket that answers the first frame of a connection with what reply
// makes of it, and each later one as a health check.
type server struct {
	dir      string
	listener net.Listener
	done     chan struct{}

	mu       sync.Mutex
	reply    func(request []byte) []byte
	requests [][]byte // the first frame of each connection since ask began
}

func newServer() (*server, error) {
	dir, err := os.MkdirTemp("", "weir-lines-")
	if err != nil {
		return nil, fmt.Errorf("lines: %w", err)
	}
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lines: %w", err), os.RemoveAll(dir))
	}
	s := &server{dir: dir, listener: l, done: make(chan struct{})}
	go s.run()
	return s, nil
}

func (s *server) run() {
	defer close(s.done)
	var conns sync.WaitGroup
	defer conns.Wait()
	for {
		nc, err := s.listener.Accept()
		if err != nil {
			return
		}
		conns.Go(func() {
			defer nc.Close()
			s.serve(nc)
		})
	}
}

// serve serves a connection until its client ends it, or ends it itself behind a reply
// that is cut short.
func (s *server) serve(nc net.Conn) {
	request := readFrame(nc)
	s.mu.Lock()
	s.requests = append(s.requests, request)
	reply := s.reply(request)
	s.mu.Unlock()
	for request != nil {
		if _, err := nc.Write(reply); err != nil {
			return
		}
		if _, _, err := frame.Parse(reply, 0); errors.Is(err, frame.ErrTruncatedFrame) {
			return
		}
		request, reply = readFrame(nc), frame.AppendHealthCheckResponse(nil)
	}
}

// readFrame returns the next whole frame, and nil at the end.
func readFrame(r io.Reader) []byte {
	b := make([]byte, frame.HeaderLen)
	if _, err := io.ReadFull(r, b); err != nil {
		return nil
	}
	h, err := frame.ParseHeader(b, 0)
	if err != nil {
		return nil
	}
	b = append(b, make([]byte, h.FrameLen()-len(b))...)
	if _, err := io.ReadFull(r, b[frame.HeaderLen:]); err != nil {
		return nil
	}
	return b
}

func (s *server) close() {
	_ = s.listener.Close() // nothing hangs on it
	<-s.done
	_ = os.RemoveAll(s.dir)
}

// ask lets a new client make one call, which the server answers with reply, and
// returns the frame that the client sent. A client that then leaves the connection for
// a health check has found bytes behind the answer.
func (s *server) ask(reply func(request []byte) []byte, call func(*weir.Client) error) (request []byte, err error) {
	s.mu.Lock()
	s.reply, s.requests = reply, nil
	s.mu.Unlock()
	c := weir.New(weir.Options{Path: filepath.Join(s.dir, "s")})
	defer c.Close()
	if err = call(c); err == nil {
		s.mu.Lock()
		s.reply = func([]byte) []byte { return frame.AppendHealthCheckResponse(nil) }
		s.mu.Unlock()
		err = c.Health(context.Background())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && len(s.requests) > 1 {
		err = frame.ErrTrailingBytes
	}
	if len(s.requests) > 0 {
		request = s.requests[0]
	}
	return request, err
}

// answer returns the answer to one line of the runner.
func (s *server) answer(line string) string {
	words := strings.Split(line, " ")
	op, args := words[0], words[1:]
	var out string
	var err error
	switch op {
	case "encode-frame":
		out, err = s.encodeFrame(args)
	case "encode-batch":
		out, err = s.encodeBatch(args)
	case "decode-frame":
		out, err = s.decodeFrame(args)
	case "decode-ack_batch":
		out, err = s.decodeAckBatch(args)
	case "decode-coordinate":
		out, err = s.decodeCoordinate(args)
	case "decode-nack":
		out, err = s.decodeNack(args)
	case "record_id":
		out, err = s.recordID(args)
	default:
		return skip
	}
	var verdict frame.Verdict
	switch {
	case err == nil:
		return "ok " + out
	case errors.As(err, &verdict) && verdict != frame.ErrUnexpectedReply:
		return "err " + verdict.Name()
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return "err " + frame.ErrTruncatedFrame.Name()
	}
	return skip
}

// numbers reads the first n words as numbers.
func numbers(args []string, n int) ([]uint64, error) {
	if len(args) < n {
		return nil, errLine
	}
	out := make([]uint64, n)
	for i := range out {
		var err error
		if out[i], err = strconv.ParseUint(args[i], 10, 64); err != nil {
			return nil, errLine
		}
	}
	return out, nil
}

var errLine = errors.New("lines: not a line of the protocol, or none that a client answers")

func bytesOf(word string) ([]byte, error) {
	if word == "-" {
		return nil, nil
	}
	b, err := hex.DecodeString(word)
	if err != nil {
		return nil, errLine
	}
	return b, nil
}

func hexOf(b []byte) string {
	if len(b) == 0 {
		return "-"
	}
	return hex.EncodeToString(b)
}

func ack([]byte) []byte { return frame.AppendAck(nil) }

// encodeFrame answers with the frame that the client sends for a request.
func (s *server) encodeFrame(args []string) (string, error) {
	n, err := numbers(args, 2)
	if err != nil || len(args) != 3 {
		return "", errLine
	}
	tier := record.Durability(n[1])
	payload, err := bytesOf(args[2])
	if err != nil {
		return "", err
	}
	ctx := context.Background()
	var request []byte
	switch frame.Type(n[0]) {
	case frame.Push:
		request, err = s.ask(ack, func(c *weir.Client) error { return c.Push(ctx, tier, payload) })
	case frame.PushTracked:
		request, err = s.ask(func([]byte) []byte {
			return frame.AppendAckTracked(nil, record.Coordinate{Segment: "s", Index: 1, ID: record.ComputeID("s", 1, payload)})
		}, func(c *weir.Client) error {
			_, err := c.PushTracked(ctx, tier, payload)
			return err
		})
	case frame.PushBatch:
		records, parseErr := frame.ParseBatch(nil, payload, 0, 0)
		if parseErr != nil {
			return "", errLine
		}
		request, err = s.pushBatch(tier, records)
	case frame.HealthCheck:
		if len(payload) > 0 || tier != record.Durable {
			return "", errLine // the client asks in one way only
		}
		request, err = s.ask(func([]byte) []byte { return frame.AppendHealthCheckResponse(nil) },
			func(c *weir.Client) error { return c.Health(ctx) })
	default:
		return "", errLine
	}
	return hexOf(request), err
}

func (s *server) pushBatch(tier record.Durability, records [][]byte) ([]byte, error) {
	return s.ask(func([]byte) []byte {
		return frame.AppendAckBatch(nil, len(records), func(int) bool { return true })
	}, func(c *weir.Client) error {
		_, err := c.PushBatch(context.Background(), tier, records)
		return err
	})
}

// encodeBatch answers with the body of the frame that the client sends for a batch.
func (s *server) encodeBatch(args []string) (string, error) {
	records := make([][]byte, len(args))
	for i := range args {
		var err error
		if records[i], err = bytesOf(args[i]); err != nil {
			return "", err
		}
	}
	request, err := s.pushBatch(record.Durable, records)
	if err != nil {
		return "", err
	}
	return hexOf(request[frame.HeaderLen : len(request)-frame.TrailerLen]), nil
}
