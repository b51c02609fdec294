package conformance

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/weir-agent/weir/ingest/frame"
	"github.com/weir-agent/weir/wab/record"
)

// Exchange is one line that a codec is given, and the line that it must answer.
type Exchange struct {
	Request, Want string
}

// Skip is the answer of a codec that does not have an operation.
const Skip = "skip"

// Exchanges returns the lines that test a codec with v: decoding, and encoding
// the other way where the bytes are valid.
func (v Vector) Exchanges() []Exchange {
	decode, encode := "decode-"+v.Kind+" ", "encode-"+v.Kind+" "
	switch v.Kind {
	case KindWeidaMatch:
		return []Exchange{{v.Kind + " " + dash(v.Hex) + " " + dash(v.Topic), "ok " + v.Line}}
	case KindWeidaNegotiate:
		want := "ok " + v.Line
		if v.Verdict != "ok" {
			want = "err " + v.Verdict
		}
		return []Exchange{{v.Kind + " " + v.Hex + " " + v.Theirs, want}}
	}
	if v.Kind == KindAckBatch {
		decode += strconv.Itoa(v.Sent) + " "
	}
	if v.Kind == KindRecordID {
		f := v.Fields
		return []Exchange{{"record_id " + f.Index + " " + dash(f.Segment) + " " + dash(f.Payload), "ok " + v.Hex}}
	}
	if v.Verdict != "ok" {
		return []Exchange{{decode + dash(v.Hex), "err " + v.Verdict}}
	}
	out := v.Hex
	if v.Reencoded != "" {
		out = v.Reencoded
	}
	fields := v.fieldLine()
	return []Exchange{
		{decode + dash(v.Hex), "ok " + fields},
		{encode + fields, "ok " + out},
	}
}

func (v Vector) fieldLine() string {
	f := v.Fields
	switch v.Kind {
	case KindWeidaFrame, KindWeidaRecord, KindWeidaVarint:
		return v.Line
	case KindFrame:
		return fmt.Sprintf("%d %d %s", f.Type, f.Durability, dash(f.Payload))
	case KindBatch:
		return strings.Join(f.Records, " ")
	case KindAckBatch:
		return f.Bits
	case KindCoordinate:
		return f.Index + " " + f.RecordID + " " + dash(f.Segment)
	}
	return fmt.Sprintf("%d %d", f.Reason, f.Version)
}

// dash stands in for the empty byte string, so that a line splits at its spaces.
func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

var errLine = errors.New("conformance: not a line of the protocol")

// Answer is the Go codec behind the line protocol: it returns the answer to one
// line. A line that is not of the protocol is answered with Skip.
func Answer(line string) string {
	op, rest, _ := strings.Cut(line, " ")
	if strings.Contains(op, "weida_") {
		return answerWeida(op, strings.Split(rest, " "))
	}
	args := strings.Split(rest, " ")
	out, err := answer(op, args)
	var verdict frame.Verdict
	switch {
	case errors.As(err, &verdict):
		return "err " + verdict.Name()
	case err != nil:
		return Skip
	}
	return "ok " + out
}

func answer(op string, args []string) (string, error) {
	name, kind, _ := strings.Cut(op, "-")
	switch name {
	case "decode":
		return decode(kind, args)
	case "encode":
		b, err := encode(kind, args)
		return hex.EncodeToString(b), err
	case KindRecordID:
		c, err := coordinateOf(args, 0, 1)
		if err != nil || len(args) != 3 {
			return "", errLine
		}
		payload, err := bytesOf(args[2])
		id := record.ComputeID(c.Segment, c.Index, payload)
		return hex.EncodeToString(id[:]), err
	}
	return "", errLine
}

func decode(kind string, args []string) (string, error) {
	b, err := bytesOf(args[len(args)-1])
	if err != nil {
		return "", err
	}
	switch kind {
	case KindFrame:
		h, payload, err := frame.Parse(b, 0)
		return fmt.Sprintf("%d %d %s", h.Type, h.Durability, dash(hex.EncodeToString(payload))), err
	case KindBatch:
		records, err := frame.ParseBatch(nil, b, 0, 0)
		out := make([]string, len(records))
		for i, r := range records {
			out[i] = hex.EncodeToString(r)
		}
		return strings.Join(out, " "), err
	case KindAckBatch:
		return decodeAckBatch(args[0], b)
	case KindCoordinate:
		c, err := frame.ParseCoordinate(b)
		return fmt.Sprintf("%d %x %s", c.Index, c.ID[:], dash(hex.EncodeToString([]byte(c.Segment)))), err
	case KindNack:
		n, err := frame.ParseNack(b)
		return fmt.Sprintf("%d %d", n.Reason, n.Version), err
	}
	return "", errLine
}

func decodeAckBatch(count string, b []byte) (string, error) {
	sent, err := strconv.Atoi(count)
	if err != nil {
		return "", errLine
	}
	bits, err := frame.ParseAckBatch(b, sent)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for i := range sent {
		if bits.Get(i) {
			out.WriteByte('1')
		} else {
			out.WriteByte('0')
		}
	}
	return out.String(), nil
}

func encode(kind string, args []string) ([]byte, error) {
	switch kind {
	case KindFrame:
		return encodeFrame(args)
	case KindBatch:
		records := make([][]byte, len(args))
		for i, a := range args {
			b, err := bytesOf(a)
			if err != nil {
				return nil, err
			}
			records[i] = b
		}
		return frame.AppendBatch(nil, records...), nil
	case KindAckBatch:
		bits := args[0]
		return frame.AppendAckBatchBody(nil, len(bits), func(i int) bool { return bits[i] == '1' }), nil
	case KindCoordinate:
		c, err := coordinateOf(args, 0, 2)
		if err != nil {
			return nil, err
		}
		id, err := bytesOf(args[1])
		if err != nil || len(id) != len(c.ID) {
			return nil, errLine
		}
		c.ID = record.ID(id)
		return frame.AppendCoordinate(nil, c), nil
	case KindNack:
		reason, err := strconv.ParseUint(args[0], 10, 8)
		if err != nil {
			return nil, errLine
		}
		f := frame.AppendNack(nil, frame.Reason(reason))
		return f[frame.HeaderLen : len(f)-frame.TrailerLen], nil
	}
	return nil, errLine
}

func encodeFrame(args []string) ([]byte, error) {
	if len(args) != 3 {
		return nil, errLine
	}
	typ, err := strconv.ParseUint(args[0], 10, 8)
	if err != nil {
		return nil, errLine
	}
	tier, err := strconv.ParseUint(args[1], 10, 8)
	if err != nil {
		return nil, errLine
	}
	payload, err := bytesOf(args[2])
	if err != nil {
		return nil, err
	}
	return frame.Append(nil, frame.Type(typ), record.Durability(tier), payload), nil
}

// coordinateOf reads the index at args[index] and the segment at args[segment].
func coordinateOf(args []string, index, segment int) (record.Coordinate, error) {
	if len(args) <= max(index, segment) {
		return record.Coordinate{}, errLine
	}
	n, err := strconv.ParseUint(args[index], 10, 64)
	if err != nil {
		return record.Coordinate{}, errLine
	}
	s, err := bytesOf(args[segment])
	return record.Coordinate{Segment: string(s), Index: n}, err
}

func bytesOf(s string) ([]byte, error) {
	if s == "-" {
		return nil, nil
	}
	b, err := hex.DecodeString(s)
	if err != nil {
		return nil, errLine
	}
	return b, nil
}
