package conformance

import (
	"strconv"
	"strings"

	"github.com/weir-agent/weir/weida/wire"
)

// fields holds the words of a frame's line by name. The first one that does not read is kept in err.
type fields struct {
	by  map[string]string
	err error
}

func fieldsOf(args []string) *fields {
	f := &fields{by: make(map[string]string, len(args))}
	for _, a := range args {
		name, value, ok := strings.Cut(a, "=")
		if !ok {
			f.err = errLine
		}
		f.by[name] = value
	}
	return f
}

func (f *fields) text(name string) wire.Opt[string] {
	s, ok := f.by[name]
	if !ok {
		return wire.Opt[string]{}
	}
	b, err := bytesOf(s)
	if err != nil {
		f.err = err
	}
	return wire.Some(string(b))
}

func (f *fields) number(name string) wire.Opt[uint64] {
	s, ok := f.by[name]
	if !ok {
		return wire.Opt[uint64]{}
	}
	v, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		f.err = errLine
	}
	return wire.Some(v)
}

func listOf[T ~uint64](f *fields, name string) []T {
	s := f.by[name]
	if s == "" {
		return nil
	}
	var out []T
	for part := range strings.SplitSeq(s, ",") {
		v, err := strconv.ParseUint(part, 10, 64)
		if err != nil {
			f.err = errLine
		}
		out = append(out, T(v))
	}
	return out
}

// guarantees reads "4:1,5:2".
func (f *fields) guarantees(name string) wire.Guarantees {
	var g wire.Guarantees
	s := f.by[name]
	if s == "" {
		return g
	}
	for part := range strings.SplitSeq(s, ",") {
		key, value, _ := strings.Cut(part, ":")
		v, err := strconv.ParseUint(value, 10, 64)
		if err != nil {
			f.err = errLine
			return g
		}
		switch key {
		case "0":
			g.Delivery = wire.Delivery(v)
		case "1":
			g.Acknowledgement = wire.Acknowledgement(v) - 1
		case "2":
			g.Durability = wire.Durability(v) + 1
		case "3":
			g.Replicas = v
		case "4":
			g.Ordering = wire.Ordering(v)
		case "5":
			g.Deduplication = wire.Deduplication(v)
		case "6":
			g.DedupWindowMillis = v
		case "7":
			g.Backpressure = wire.Backpressure(v)
		case "8":
			g.ProducerNaming = wire.ProducerNaming(v)
		case "9":
			g.ControlIsolated = v == 1
		default:
			f.err = errLine
		}
	}
	return g
}

func (f *fields) hello() wire.Hello {
	return wire.Hello{
		Versions: listOf[uint64](f, "versions"), MaxHeaderBytes: f.number("max_header_bytes").Value, MaxTransfers: f.number("max_transfers").Value,
		Capabilities: listOf[uint64](f, "capabilities"), RequiredCapabilities: listOf[uint64](f, "required_capabilities"),
		Offered: f.guarantees("offered"), Required: f.guarantees("required"),
	}
}

func (f *fields) data(args []string) wire.Data {
	d := wire.Data{
		Endpoint: f.text("endpoint"), ContentLen: f.number("content_len"), ContentType: f.text("content_type"),
		Traceparent: f.text("traceparent"), Tracestate: f.text("tracestate"), Topic: f.text("topic"), Sequence: f.number("sequence"),
		DeliveryAttempt: f.number("delivery_attempt").Value,
	}
	if p := f.text("producer"); p.Set {
		if len(p.Value) != wire.ProducerBytes {
			f.err = errLine
			return d
		}
		d.Producer = wire.Some([wire.ProducerBytes]byte([]byte(p.Value)))
	}
	if l, ok := f.number("achieved").Get(); ok {
		d.Achieved = wire.Some(wire.Level(l))
	}
	if id, ok := f.number("report_id").Get(); ok {
		d.Report = wire.Some(wire.Report{ID: id, Levels: listOf[wire.Level](f, "report"), FinalOnly: f.by["report_mode"] == "1"})
	}
	for _, a := range args {
		name, _, _ := strings.Cut(a, "=")
		digits, ok := strings.CutPrefix(name, "x")
		if !ok {
			continue
		}
		key, err := strconv.ParseUint(digits, 10, 64)
		if err != nil {
			f.err = errLine
		}
		d.Extensions = append(d.Extensions, wire.Extension{Key: key, Value: f.text(name).Value})
	}
	return d
}

func (f *fields) subscription() wire.Subscription {
	return wire.Subscription{Endpoint: f.text("endpoint").Value, Filter: f.text("filter").Value}
}

func encodeWeidaFrame(kind string, args []string) (b []byte, err error) {
	const most = wire.DefaultMaxHeaderBytes
	f := fieldsOf(args)
	switch kind {
	case "hello":
		h := f.hello()
		b, err = wire.AppendHello(nil, &h)
	case "data":
		d := f.data(args)
		b, err = wire.AppendData(nil, &d, most)
	case "error":
		b, err = wire.AppendError(nil, wire.Error{Code: wire.ErrorCode(f.number("code").Value), Message: f.text("message")}, most)
	case "subscribe":
		b, err = wire.AppendSubscribe(nil, f.subscription(), most)
	case "unsubscribe":
		b, err = wire.AppendUnsubscribe(nil, f.subscription(), most)
	case "credit":
		b, err = wire.AppendCredit(nil, wire.Credit{Subscription: f.subscription(), Limit: f.number("limit").Value}, most)
	case "cursor":
		b, err = wire.AppendCursor(nil, f.number("report_id").Value, most)
	default:
		return nil, errLine
	}
	if f.err != nil {
		return nil, f.err
	}
	return b, err
}
