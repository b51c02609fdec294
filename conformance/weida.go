package conformance

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/weir-agent/weir/weida/wire"
)

// answerWeida is the Go codec of weida's wire behind the line protocol.
func answerWeida(op string, args []string) string {
	out, err := weidaLine(op, args)
	if verdict, ok := errors.AsType[wire.Verdict](err); ok {
		return "err " + verdict.Name()
	}
	if failed, ok := errors.AsType[*wire.NegotiateError](err); ok {
		return "err " + failed.Reason.Name()
	}
	if err != nil {
		return Skip
	}
	return "ok " + out
}

func weidaLine(op string, args []string) (string, error) {
	switch op {
	case "decode-" + KindWeidaFrame:
		return withBytes(args, decodeWeidaFrame)
	case "encode-" + KindWeidaFrame:
		b, err := encodeWeidaFrame(args[0], args[1:])
		return hex.EncodeToString(b), err
	case "decode-" + KindWeidaRecord:
		return withBytes(args, func(b []byte) (string, error) {
			r, _, err := wire.ParseRecord(b)
			return fmt.Sprintf("%d %d", r.Level, r.Offset), err
		})
	case "encode-" + KindWeidaRecord:
		n, err := numbersOf(args, 2)
		if err != nil {
			return "", err
		}
		b, err := wire.AppendRecord(nil, wire.Record{Level: wire.Level(n[0]), Offset: n[1]})
		return hex.EncodeToString(b), err
	case "decode-" + KindWeidaVarint:
		return withBytes(args, func(b []byte) (string, error) {
			v, _, err := wire.ParseVarint(b)
			return strconv.FormatUint(v, 10), err
		})
	case "encode-" + KindWeidaVarint:
		n, err := numbersOf(args, 1)
		if err != nil {
			return "", err
		}
		b, err := wire.AppendVarint(nil, n[0])
		return hex.EncodeToString(b), err
	case KindWeidaMatch:
		return weidaMatch(args)
	case KindWeidaNegotiate:
		return weidaNegotiate(args)
	}
	return "", errLine
}

func withBytes(args []string, decode func([]byte) (string, error)) (string, error) {
	if len(args) != 1 {
		return "", errLine
	}
	b, err := bytesOf(args[0])
	if err != nil {
		return "", err
	}
	return decode(b)
}

func numbersOf(args []string, n int) ([]uint64, error) {
	if len(args) != n {
		return nil, errLine
	}
	out := make([]uint64, n)
	for i, a := range args {
		v, err := strconv.ParseUint(a, 10, 64)
		if err != nil {
			return nil, errLine
		}
		out[i] = v
	}
	return out, nil
}

func weidaMatch(args []string) (string, error) {
	if len(args) != 2 {
		return "", errLine
	}
	filter, err := bytesOf(args[0])
	if err != nil {
		return "", err
	}
	topic, err := bytesOf(args[1])
	if err != nil {
		return "", err
	}
	if err := wire.CheckFilter(string(filter)); err != nil {
		return "", err
	}
	if wire.Match(string(filter), string(topic)) {
		return "yes", nil
	}
	return "no", nil
}

func weidaNegotiate(args []string) (string, error) {
	if len(args) != 2 {
		return "", errLine
	}
	var hellos [2]wire.Hello
	for i, a := range args {
		b, err := bytesOf(a)
		if err != nil {
			return "", err
		}
		_, header, err := weidaHeader(b)
		if err != nil {
			return "", err
		}
		if hellos[i], err = wire.ParseHello(header); err != nil {
			return "", err
		}
	}
	a, err := wire.Negotiate(&hellos[0], &hellos[1])
	return fmt.Sprintf("%d %d %v", a.Version, a.SendMaxHeaderBytes, a.Guarantees), err
}

// weidaHeader takes the header out of a whole frame.
func weidaHeader(b []byte) (wire.Kind, []byte, error) {
	p, n, err := wire.ParsePreamble(b, wire.DefaultMaxHeaderBytes)
	if err != nil {
		return 0, nil, err
	}
	if len(b) < n+p.HeaderBytes {
		return 0, nil, wire.ErrIncomplete
	}
	return p.Kind, b[n : n+p.HeaderBytes], nil
}

// words collects the fields of a frame.
type words []string

func (w *words) add(name string, value any) { *w = append(*w, fmt.Sprintf("%s=%v", name, value)) }

func (w *words) text(name string, s wire.Opt[string]) {
	if s.Set {
		w.add(name, hex.EncodeToString([]byte(s.Value)))
	}
}

func (w *words) number(name string, v wire.Opt[uint64]) {
	if v.Set {
		w.add(name, v.Value)
	}
}

func decodeWeidaFrame(b []byte) (string, error) {
	kind, header, err := weidaHeader(b)
	if err != nil {
		return "", err
	}
	w := words{strings.ToLower(kind.String())}
	switch kind {
	case wire.KindHello:
		var h wire.Hello
		h, err = wire.ParseHello(header)
		w.hello(&h)
	case wire.KindData:
		var d wire.Data
		d, err = wire.ParseData(header)
		w.data(&d)
	case wire.KindError:
		var e wire.Error
		e, err = wire.ParseError(header)
		w.add("code", uint64(e.Code))
		w.text("message", e.Message)
	case wire.KindSubscribe, wire.KindUnsubscribe:
		var s wire.Subscription
		s, err = wire.ParseSubscription(header)
		w.subscription(s)
	case wire.KindCredit:
		var c wire.Credit
		c, err = wire.ParseCredit(header)
		w.subscription(c.Subscription)
		w.add("limit", c.Limit)
	case wire.KindCursor:
		var id uint64
		id, err = wire.ParseCursor(header)
		w.add("report_id", id)
	}
	return strings.Join(w, " "), err
}

func (w *words) hello(h *wire.Hello) {
	w.add("versions", commas(h.Versions))
	w.add("max_header_bytes", h.MaxHeaderBytes)
	w.add("max_transfers", h.MaxTransfers)
	w.add("capabilities", commas(h.Capabilities))
	w.add("required_capabilities", commas(h.RequiredCapabilities))
	for _, set := range []struct {
		name string
		g    wire.Guarantees
	}{{"offered", h.Offered}, {"required", h.Required}} {
		if set.g != (wire.Guarantees{}) {
			w.add(set.name, strings.ReplaceAll(set.g.String(), " ", ","))
		}
	}
}

func (w *words) data(d *wire.Data) {
	w.text("endpoint", d.Endpoint)
	w.number("content_len", d.ContentLen)
	w.text("content_type", d.ContentType)
	w.text("traceparent", d.Traceparent)
	w.text("tracestate", d.Tracestate)
	w.text("topic", d.Topic)
	w.number("sequence", d.Sequence)
	if p, ok := d.Producer.Get(); ok {
		w.add("producer", hex.EncodeToString(p[:]))
	}
	if l, ok := d.Achieved.Get(); ok {
		w.add("achieved", uint64(l))
	}
	if r, ok := d.Report.Get(); ok {
		w.add("report_id", r.ID)
		w.add("report", commas(r.Levels))
		if r.FinalOnly {
			w.add("report_mode", 1)
		}
	}
	if d.DeliveryAttempt != 0 {
		w.add("delivery_attempt", d.DeliveryAttempt)
	}
	for _, e := range d.Extensions {
		w.add(fmt.Sprintf("x%d", e.Key), hex.EncodeToString([]byte(e.Value)))
	}
}

func (w *words) subscription(s wire.Subscription) {
	w.add("endpoint", hex.EncodeToString([]byte(s.Endpoint)))
	w.add("filter", hex.EncodeToString([]byte(s.Filter)))
}

func commas[T ~uint64](list []T) string {
	var b strings.Builder
	for i, v := range list {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.FormatUint(uint64(v), 10))
	}
	return b.String()
}
