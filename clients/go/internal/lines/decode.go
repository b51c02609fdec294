package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	weir "github.com/weir-agent/weir/clients/go"
	"github.com/weir-agent/weir/ingest/frame"
	"github.com/weir-agent/weir/wab/record"
)

// typeAt is where the type is in a header.
const typeAt = 5

// decodeFrame answers with what the client makes of a whole reply. A valid frame of
// another type is not for a client, which is answered by skip.
func (s *server) decodeFrame(args []string) (string, error) {
	raw, err := bytesOf(args[0])
	if err != nil {
		return "", err
	}
	reply := func([]byte) []byte { return raw }
	typ := frame.Ack
	if len(raw) > typeAt {
		typ = frame.Type(raw[typeAt])
	}
	h, payload, _ := frame.Parse(raw, 0) // to know which request it may answer; the client reads it for itself
	ctx := context.Background()
	switch typ {
	case frame.AckTracked:
		at, err := s.pushTracked(reply)
		return fmt.Sprintf("%d %d %s", typ, record.Durable, hexOf(frame.AppendCoordinate(nil, at))), err
	case frame.AckBatch:
		if len(payload) < frame.BatchPrefixBytes {
			return "", errLine
		}
		bits, err := s.bits(int(payload[1])|int(payload[2])<<8, reply)
		return fmt.Sprintf("%d %d %s", typ, record.Durable, hexOf(body(bits))), err
	case frame.HealthCheckResponse:
		_, err = s.ask(reply, func(c *weir.Client) error { return c.Health(ctx) })
	default:
		_, err = s.ask(reply, func(c *weir.Client) error { return c.Push(ctx, record.Durable, sample) })
	}
	var nack *weir.NackError
	if errors.As(err, &nack) {
		f := frame.AppendNack(nil, nack.Reason)
		return fmt.Sprintf("%d %d %s", typ, h.Durability, hexOf(f[frame.HeaderLen:len(f)-frame.TrailerLen])), nil
	}
	return fmt.Sprintf("%d %d %s", typ, h.Durability, "-"), err
}

func body(bits string) []byte {
	return frame.AppendAckBatchBody(nil, len(bits), func(i int) bool { return bits[i] == '1' })
}

// bits lets the client push n records in a batch, and returns which are acked.
func (s *server) bits(n int, reply func([]byte) []byte) (string, error) {
	var acked []bool
	_, err := s.ask(reply, func(c *weir.Client) error {
		var err error
		acked, err = c.PushBatch(context.Background(), record.Durable, slices.Repeat([][]byte{sample}, n))
		return err
	})
	var out strings.Builder
	for _, ok := range acked {
		if ok {
			out.WriteByte('1')
		} else {
			out.WriteByte('0')
		}
	}
	return out.String(), err
}

func (s *server) decodeAckBatch(args []string) (string, error) {
	if len(args) != 2 {
		return "", errLine
	}
	sent, err := strconv.Atoi(args[0])
	if err != nil {
		return "", errLine
	}
	raw, err := bytesOf(args[1])
	if err != nil {
		return "", err
	}
	return s.bits(sent, func([]byte) []byte { return frame.Append(nil, frame.AckBatch, record.Durable, raw) })
}

// samples are the payloads of the records that the vectors tell the coordinates of. The client
// takes a coordinate for a record only with the record's own id.
func samples() [][]byte { return [][]byte{sample, []byte("x")} }

// pushTracked lets the client push each sample, and returns the coordinate that it takes.
func (s *server) pushTracked(reply func([]byte) []byte) (at record.Coordinate, err error) {
	for _, payload := range samples() {
		_, err = s.ask(reply, func(c *weir.Client) error {
			var err error
			at, err = c.PushTracked(context.Background(), record.Durable, payload)
			return err
		})
		if err == nil {
			return at, nil
		}
	}
	return at, err
}

func (s *server) decodeCoordinate(args []string) (string, error) {
	raw, err := bytesOf(args[0])
	if err != nil {
		return "", err
	}
	if len(raw) > frame.MaxCoordinateBytes {
		return "", errLine // the client refuses the frame for its length
	}
	at, err := s.pushTracked(func([]byte) []byte { return frame.Append(nil, frame.AckTracked, record.Durable, raw) })
	return fmt.Sprintf("%d %x %s", at.Index, at.ID[:], hexOf([]byte(at.Segment))), err
}

func (s *server) decodeNack(args []string) (string, error) {
	raw, err := bytesOf(args[0])
	if err != nil {
		return "", err
	}
	_, err = s.ask(func([]byte) []byte { return frame.Append(nil, frame.Nack, record.Durable, raw) },
		func(c *weir.Client) error { return c.Push(context.Background(), record.Durable, sample) })
	var nack *weir.NackError
	if errors.As(err, &nack) {
		return fmt.Sprintf("%d %d", nack.Reason, nack.Version), nil
	}
	return "", err
}

// recordID answers with the id if the client takes it for that of its record.
func (s *server) recordID(args []string) (string, error) {
	n, err := numbers(args, 1)
	if err != nil || len(args) != 3 {
		return "", errLine
	}
	segment, err := bytesOf(args[1])
	if err != nil {
		return "", err
	}
	payload, err := bytesOf(args[2])
	if err != nil {
		return "", err
	}
	at := record.Coordinate{Segment: string(segment), Index: n[0], ID: record.ComputeID(string(segment), n[0], payload)}
	_, err = s.ask(func([]byte) []byte { return frame.AppendAckTracked(nil, at) }, func(c *weir.Client) error {
		at, err = c.PushTracked(context.Background(), record.Durable, payload)
		return err
	})
	return hexOf(at.ID[:]), err
}
