package weida_test

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-agent/weir/weida"
	"github.com/weir-agent/weir/weida/transport"
	"github.com/weir-agent/weir/weida/transport/simnet"
	"github.com/weir-agent/weir/weida/wire"
)

// This file holds the behaviour towards peers that do not speak the protocol: they drive the transport by hand, below the library.

// raw is such a peer.
type raw struct {
	t    *testing.T
	link transport.Link
}

// hello returns a HELLO frame, changed by change if that is not nil.
func hello(t *testing.T, change func(*wire.Hello)) []byte {
	t.Helper()
	h := wire.Hello{Versions: []uint64{wire.Version}, MaxHeaderBytes: 16384, MaxTransfers: 1024}
	if change != nil {
		change(&h)
	}
	frame, err := wire.AppendHello(nil, &h)
	if err != nil {
		t.Fatal(err)
	}
	return frame
}

// data returns a DATA frame for a path.
func data(t *testing.T, path string) []byte {
	t.Helper()
	frame, err := wire.AppendData(nil, &wire.Data{Endpoint: wire.Some(path)}, 16384)
	if err != nil {
		t.Fatal(err)
	}
	return frame
}

// frame puts a preamble before a header that no encoder would write.
func frame(kind byte, header ...byte) []byte {
	b, err := wire.AppendVarint([]byte{0x57, kind}, uint64(len(header)))
	if err != nil {
		panic(err)
	}
	return append(b, header...)
}

// uni sends bytes on a new one-way stream, which is finished if fin is set. That the host has closed the link meanwhile is no fault.
func (r *raw) uni(b []byte, fin bool) transport.SendStream {
	r.t.Helper()
	w, err := r.link.OpenUni(r.t.Context())
	if err != nil {
		r.excuse(err)
		return nil
	}
	r.send(w, b, fin)
	return w
}

// bi does the same on a new exchange.
func (r *raw) bi(b []byte, fin bool) (transport.SendStream, transport.ReceiveStream) {
	r.t.Helper()
	w, s, err := r.link.OpenBi(r.t.Context())
	if err != nil {
		r.excuse(err)
		return nil, nil
	}
	r.send(w, b, fin)
	return w, s
}

func (r *raw) send(w transport.SendStream, b []byte, fin bool) {
	r.t.Helper()
	if _, err := w.Write(b); err != nil {
		r.excuse(err)
		return
	}
	if fin {
		if err := w.CloseWrite(); err != nil {
			r.excuse(err)
		}
	}
}

// excuse accepts what a host does that has had enough, and nothing else.
func (r *raw) excuse(err error) {
	r.t.Helper()
	_, stopped := errors.AsType[*transport.StopError](err)
	_, closed := errors.AsType[*transport.CloseError](err)
	if !stopped && !closed {
		r.t.Error(err)
	}
}

// echo asks the host by hand, after a HELLO, and reports what came back.
func (r *raw) echo(body string) (string, error) {
	r.t.Helper()
	w, s, err := r.link.OpenBi(r.t.Context())
	if err != nil {
		return "", err
	}
	if _, err := w.Write(append(data(r.t, echoPath), body...)); err != nil {
		return "", err
	}
	if err := w.CloseWrite(); err != nil {
		return "", err
	}
	reply, err := io.ReadAll(s)
	if err != nil {
		return "", err
	}
	rest, ok := strings.CutPrefix(string(reply), "\x57\x01\x01\xa0")
	if !ok {
		return "", fmt.Errorf("the reply begins otherwise: %x", reply)
	}
	return rest, nil
}

// hostileCase is what a peer does and what the host does about it.
type hostileCase struct {
	name string
	// do drives the link, on which nothing was sent yet unless greeted is set.
	do      func(t *testing.T, r *raw)
	greeted bool
	// code is the one with which the host closes the link; if alive is set, it does not, and the link echoes afterwards.
	code  uint64
	alive bool
}

// sends is a case of bytes on a one-way stream after a HELLO, for which the link is closed as a violation.
func sends(name string, b []byte) hostileCase {
	return hostileCase{name: name, greeted: true, code: transport.CodeProtocolViolation, do: func(_ *testing.T, r *raw) { r.uni(b, true) }}
}

// asks is the same on an exchange.
func asks(name string, b []byte) hostileCase {
	return hostileCase{name: name, greeted: true, code: transport.CodeProtocolViolation, do: func(_ *testing.T, r *raw) { r.bi(b, true) }}
}

// greets is a case of a HELLO, and the code with which the link is closed for it.
func greets(name string, b []byte, code uint64) hostileCase {
	return hostileCase{name: name, code: code, do: func(_ *testing.T, r *raw) { r.uni(b, true) }}
}

// deep returns an array of arrays, so many deep.
func deep(n int) []byte { return append(slices.Repeat([]byte{0x81}, n-1), 0x80) }

// longList returns an array of n zeros.
func longList(n byte) []byte { return append([]byte{0x98, n}, make([]byte, n)...) }

func text(s string) []byte {
	if len(s) < 256 {
		return append([]byte{0x78, byte(len(s))}, s...)
	}
	return append([]byte{0x79, byte(len(s) >> 8), byte(len(s))}, s...)
}

func cat(parts ...[]byte) []byte { return slices.Concat(parts...) }

func framingCases() []hostileCase {
	const d = byte(wire.KindData)
	t0 := []byte{0x00, 0x62, '/', 't'} // key 0: "/t"
	return []hostileCase{
		sends("garbage", []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n")),
		sends("another magic byte", []byte{0x58, 1, 5, 0xa1, 0, 0x62, '/', 't'}),
		sends("the first unknown kind", frame(7, 0xa0)),
		sends("the last unknown kind", frame(255, 0xa0)),
		sends("a header of one byte too many", []byte{0x57, d, 0x80, 0, 0x40, 1}),
		sends("a header of 4 exbibytes", []byte{0x57, d, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}),
		sends("a stream that ends in the preamble", []byte{0x57}),
		sends("a stream that ends in the header", []byte{0x57, d, 5, 0xa1, 0}),
		sends("a stream without a byte", nil),
		sends("no map", frame(d, 0x80)),
		sends("an empty header", frame(d)),
		sends("a map of indefinite length", frame(d, 0xbf, 0xff)),
		sends("a map that is cut", frame(d, 0xa2, 0, 0x62, '/', 't')),
		sends("a map of 4 exbi pairs", frame(d, 0xbb, 0x3f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff)),
		sends("bytes behind the map", frame(d, cat([]byte{0xa1}, t0, []byte{0})...)),
		sends("a key twice", frame(d, cat([]byte{0xa2}, t0, t0)...)),
		sends("keys that descend", frame(d, cat([]byte{0xa2, 1, 0}, t0)...)),
		sends("an extension key twice", frame(d, cat([]byte{0xa3}, t0, []byte{0x18, 70, 0, 0x18, 70, 0})...)),
		sends("a text key", frame(d, 0xa1, 0x61, 'x', 0)),
		sends("a negative key", frame(d, 0xa1, 0x20, 0)),
		sends("an endpoint that is a number", frame(d, 0xa1, 0, 1)),
		sends("an endpoint that is too long", frame(d, cat([]byte{0xa1, 0}, text("/"+strings.Repeat("x", 512)))...)),
		sends("an endpoint that is not UTF-8", frame(d, 0xa1, 0, 0x62, '/', 0xff)),
		sends("a text of indefinite length", frame(d, 0xa1, 0, 0x7f, 0x61, '/', 0xff)),
		sends("a tag in what is skipped", frame(d, cat([]byte{0xa2}, t0, []byte{0x18, 70, 0xc0, 0})...)),
		sends("a half float in what is skipped", frame(d, cat([]byte{0xa2}, t0, []byte{0x18, 70, 0xf9, 0, 0})...)),
		sends("an indefinite array in what is skipped", frame(d, cat([]byte{0xa2}, t0, []byte{0x18, 70, 0x9f, 0xff})...)),
		sends("nine arrays deep", frame(d, cat([]byte{0xa2}, t0, []byte{0x18, 70}, deep(9))...)),
		sends("sixteen thousand arrays deep", frame(d, cat([]byte{0xa2}, t0, []byte{0x18, 70}, deep(16_000))...)),
		sends("DATA without an endpoint", frame(d, 0xa0)),
		sends("a producer of 31 bytes", frame(d, cat([]byte{0xa2}, t0, []byte{7, 0x58, 31}, make([]byte, 31))...)),
		sends("a report without an id", frame(d, cat([]byte{0xa2}, t0, []byte{10, 0x81, 2})...)),
		sends("an id without a report", frame(d, cat([]byte{0xa2}, t0, []byte{9, 1})...)),
		sends("report levels that descend", frame(d, cat([]byte{0xa3}, t0, []byte{9, 1, 10, 0x82, 3, 2})...)),
		sends("an undefined report level", frame(d, cat([]byte{0xa3}, t0, []byte{9, 1, 10, 0x81, 15})...)),
		sends("an undefined level achieved", frame(d, cat([]byte{0xa2}, t0, []byte{8, 15})...)),
		sends("ERROR on a one-way stream", frame(byte(wire.KindError), 0xa1, 0, 1)),
		sends("a filter with a star inside a segment", frame(byte(wire.KindSubscribe), cat([]byte{0xa2}, t0, []byte{1}, text("a*b"))...)),
		sends("a filter with a hash before the end", frame(byte(wire.KindSubscribe), cat([]byte{0xa2}, t0, []byte{1}, text("a.#.b"))...)),
		sends("a filter with a hash inside a segment", frame(byte(wire.KindUnsubscribe), cat([]byte{0xa2}, t0, []byte{1}, text("a#"))...)),
		sends("a filter that is too long", frame(byte(wire.KindSubscribe), cat([]byte{0xa2}, t0, []byte{1}, text(strings.Repeat("x", 257)))...)),
		sends("SUBSCRIBE without a filter", frame(byte(wire.KindSubscribe), cat([]byte{0xa1}, t0)...)),
		sends("CREDIT without a limit", frame(byte(wire.KindCredit), cat([]byte{0xa2}, t0, []byte{1, 0x60})...)),
		sends("CREDIT with a bad filter", frame(byte(wire.KindCredit), cat([]byte{0xa3}, t0, []byte{1, 0x62, '#', 'a', 2, 1})...)),
		sends("CURSOR without an id", frame(byte(wire.KindCursor), 0xa0)),

		asks("garbage in an exchange", []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")),
		asks("HELLO in an exchange", hello0),
		asks("ERROR in an exchange", frame(byte(wire.KindError), 0xa1, 0, 1)),
		asks("SUBSCRIBE in an exchange", frame(byte(wire.KindSubscribe), cat([]byte{0xa2}, t0, []byte{1, 0x60})...)),
		asks("CURSOR in an exchange", frame(byte(wire.KindCursor), 0xa1, 0, 1)),
		asks("an exchange without an endpoint", frame(d, 0xa0)),
		asks("an exchange that ends in the header", []byte{0x57, d, 5, 0xa1, 0}),
	}
}

// hello0 is the golden HELLO of weida-protocol §8.
var hello0 = []byte{0x57, 0, 0x10, 0xa5, 0, 0x81, 0, 1, 0x19, 0x40, 0, 2, 0x19, 4, 0, 3, 0x80, 4, 0x80}

func helloCases(t *testing.T) []hostileCase {
	ordered := wire.Guarantees{Ordering: 1}
	h := byte(wire.KindHello)
	return []hostileCase{
		greets("HELLO with keys missing", frame(h, 0xa1, 0, 0x81, 0), transport.CodeProtocolViolation),
		greets("HELLO with 65 versions", frame(h, cat([]byte{0xa5, 0}, longList(65), hello0[7:])...), transport.CodeProtocolViolation),
		greets("HELLO that announces 4 exbi versions", frame(h, 0xa5, 0, 0x9b, 0x3f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff), transport.CodeProtocolViolation),
		greets("HELLO that requires what it does not offer", frame(h, cat([]byte{0xa6}, hello0[4:], []byte{6, 0xa1, 4, 1})...), transport.CodeProtocolViolation),
		greets("HELLO of another version", hello(t, func(h *wire.Hello) { h.Versions = []uint64{1, 2} }), transport.CodeNegotiationFailed),
		greets("HELLO of no version", hello(t, func(h *wire.Hello) { h.Versions = nil }), transport.CodeNegotiationFailed),
		greets("HELLO that requires a capability", hello(t, func(h *wire.Hello) { h.RequiredCapabilities = []uint64{1} }), transport.CodeNegotiationFailed),
		greets("HELLO that requires a guarantee", hello(t, func(h *wire.Hello) { h.Offered, h.Required = ordered, ordered }), transport.CodeNegotiationFailed),
		{
			name: "HELLO twice", code: transport.CodeProtocolViolation, greeted: true,
			do: func(_ *testing.T, r *raw) { r.uni(hello0, true) },
		},
		{
			name: "silence", code: transport.CodeNegotiationFailed,
			do: func(*testing.T, *raw) {},
		},
		{
			name: "silence beside streams that wait for HELLO", code: transport.CodeNegotiationFailed,
			do: func(t *testing.T, r *raw) {
				for range 100 {
					r.uni(data(t, pullPath), false)
					r.bi(data(t, echoPath), false)
				}
			},
		},
		{
			name: "HELLO a byte a second", code: transport.CodeNegotiationFailed,
			do: func(t *testing.T, r *raw) {
				w := r.uni(hello0[:1], false)
				for _, b := range hello0[1:] {
					time.Sleep(time.Second) // of the bubble's clock
					if _, err := w.Write([]byte{b}); err != nil {
						r.excuse(err)
						return
					}
				}
			},
		},
	}
}

// harmlessCases are what a peer may do, strange as it is.
func harmlessCases() []hostileCase {
	return []hostileCase{
		{name: "streams before HELLO", alive: true, do: func(t *testing.T, r *raw) {
			w, s := r.bi(append(data(t, echoPath), "early"...), true)
			r.uni(append(data(t, pullPath), "early"...), true)
			synctest.Wait()
			if w.Err() != nil || r.link.Err() != nil {
				t.Errorf("an early stream was not parked: %v, %v", w.Err(), r.link.Err())
			}
			r.uni(hello0, true)
			if reply, err := io.ReadAll(s); err != nil || !strings.HasSuffix(string(reply), "early") {
				t.Errorf("an early request came to %q, %v", reply, err)
			}
		}},
		{name: "a newer HELLO", alive: true, do: func(_ *testing.T, r *raw) {
			r.uni(frame(0, cat([]byte{0xa6}, []byte{0, 0x82, 0, 1}, hello0[7:], []byte{0x18, 99, 0x81, 0x61, 'x'})...), true)
		}},
		{name: "a reset inside a header", greeted: true, alive: true, do: func(_ *testing.T, r *raw) {
			r.uni([]byte{0x57, 1, 5, 0xa1}, false).Reset(transport.CodeCanceled)
		}},
		{name: "a reset instead of a first byte", greeted: true, alive: true, do: func(t *testing.T, r *raw) {
			w, err := r.link.OpenUni(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			w.Reset(1 << 61)
		}},
		{name: "bytes behind a header-only frame", greeted: true, alive: true, do: func(_ *testing.T, r *raw) {
			r.uni(append(frame(byte(wire.KindSubscribe), 0xa2, 0, 0x62, '/', 't', 1, 0x60), make([]byte, 1000)...), true)
		}},
		{name: "CREDIT where there is no queue", greeted: true, alive: true, do: func(_ *testing.T, r *raw) {
			r.uni(frame(byte(wire.KindCredit), 0xa3, 0, 0x62, '/', 't', 1, 0x60, 2, 5), true)
		}},
		{name: "CURSOR for an id that nobody gave out", greeted: true, alive: true, do: func(t *testing.T, r *raw) {
			w := r.uni(frame(byte(wire.KindCursor), 0xa1, 0, 7), false)
			within(t, w.Done())
			if e, ok := errors.AsType[*transport.StopError](w.Err()); !ok || e.Code != transport.CodeCanceled {
				t.Errorf("got %v, want a stop with CANCELED", w.Err())
			}
		}},
		{name: "an unknown path", greeted: true, alive: true, do: func(t *testing.T, r *raw) {
			w := r.uni(data(t, "/nobody"), false)
			within(t, w.Done())
			if e, ok := errors.AsType[*transport.StopError](w.Err()); !ok || e.Code != transport.CodeUnknownEndpoint {
				t.Errorf("got %v, want a stop with UNKNOWN_ENDPOINT", w.Err())
			}
			w, s := r.bi(data(t, "/nobody"), false)
			if reply, err := io.ReadAll(s); err != nil || string(reply) != "\x57\x02\x03\xa1\x00\x01" {
				t.Errorf("got %x, %v, want ERROR {UNKNOWN_ENDPOINT}", reply, err)
			}
			within(t, w.Done())
			if e, ok := errors.AsType[*transport.StopError](w.Err()); !ok || e.Code != transport.CodeUnknownEndpoint {
				t.Errorf("got %v, want a stop with UNKNOWN_ENDPOINT", w.Err())
			}
		}},
		{name: "the other kind of stream", greeted: true, alive: true, do: func(t *testing.T, r *raw) {
			w := r.uni(data(t, echoPath), false)
			within(t, w.Done())
			if e, ok := errors.AsType[*transport.StopError](w.Err()); !ok || e.Code != transport.CodeUnsupported {
				t.Errorf("got %v, want a stop with UNSUPPORTED", w.Err())
			}
			_, s := r.bi(data(t, pullPath), false)
			if reply, err := io.ReadAll(s); err != nil || string(reply) != "\x57\x02\x03\xa1\x00\x03" {
				t.Errorf("got %x, %v, want ERROR {UNSUPPORTED}", reply, err)
			}
		}},
		{name: "unknown keys", greeted: true, alive: true, do: func(t *testing.T, r *raw) {
			_, s := r.bi(frame(1, cat([]byte{0xa3, 0}, text(echoPath), []byte{13, 0x81, 0, 0x18, 70, 0xa1, 0x61, 'x', 0xf6})...), true)
			if reply, err := io.ReadAll(s); err != nil || string(reply) != "\x57\x01\x01\xa0" {
				t.Errorf("got %x, %v, want an empty reply", reply, err)
			}
		}},
		{name: "a header length in eight bytes", greeted: true, alive: true, do: func(t *testing.T, r *raw) {
			header := cat([]byte{0xa1, 0}, text(echoPath))
			_, s := r.bi(cat([]byte{0x57, 1, 0xc0, 0, 0, 0, 0, 0, 0, byte(len(header))}, header), true)
			if reply, err := io.ReadAll(s); err != nil || string(reply) != "\x57\x01\x01\xa0" {
				t.Errorf("got %x, %v, want an empty reply", reply, err)
			}
		}},
	}
}

func TestHostilePeers(t *testing.T) {
	for _, tt := range slices.Concat(framingCases(), helloCases(t), harmlessCases()) {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHost(t, simnet.Conditions{Delay: time.Millisecond})
				r := &raw{t, h.rawDial(t)}
				if tt.greeted {
					r.uni(hello0, true)
				}
				tt.do(t, r)
				if tt.alive {
					if got, err := r.echo("after"); got != "after" || err != nil {
						t.Errorf("after it an echo came to %q, %v", got, err)
					}
				} else {
					within(t, r.link.Done())
					if e, ok := errors.AsType[*transport.CloseError](r.link.Err()); !ok || e.Cause != transport.CausePeerClosed || e.Code != tt.code {
						t.Errorf("got %v, want closed by the host with %s", r.link.Err(), transport.CodeName(tt.code))
					}
				}
				h.wantServing(t)
			})
		})
	}
}

// TestPeersThatVanish cuts a peer off after each step, without a word, and wants everything freed that it had.
func TestPeersThatVanish(t *testing.T) {
	steps := []struct {
		name string
		do   func(t *testing.T, r *raw)
	}{
		{"before HELLO", func(*testing.T, *raw) {}},
		{"inside HELLO", func(_ *testing.T, r *raw) { r.uni(hello0[:5], false) }},
		{"after HELLO", func(_ *testing.T, r *raw) { r.uni(hello0, true) }},
		{"with streams that wait for HELLO", func(t *testing.T, r *raw) {
			r.uni(data(t, pullPath), false)
			r.bi(data(t, echoPath), false)
		}},
		{"inside a preamble", func(_ *testing.T, r *raw) {
			r.uni(hello0, true)
			r.uni([]byte{0x57}, false)
		}},
		{"inside a header", func(_ *testing.T, r *raw) {
			r.uni(hello0, true)
			r.bi([]byte{0x57, 1, 5, 0xa1, 0}, false)
		}},
		{"inside a one-way payload", func(t *testing.T, r *raw) {
			r.uni(hello0, true)
			r.uni(append(data(t, pullPath), "half"...), false)
		}},
		{"inside a request", func(t *testing.T, r *raw) {
			r.uni(hello0, true)
			r.bi(append(data(t, echoPath), "half"...), false)
		}},
		{"without reading a reply", func(t *testing.T, r *raw) {
			r.uni(hello0, true)
			r.bi(append(data(t, echoPath), make([]byte, 3<<19)...), true) // more than the window of the reply
		}},
	}
	for _, how := range []string{"cut off", "closed"} {
		for _, tt := range steps {
			t.Run(how+" "+tt.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					n := simnet.New(7, simnet.Conditions{Delay: time.Millisecond})
					// There is one place for a connection, so another peer is served only once this one's is free.
					h := startHost(t, n, n.Listen(), identity(t), weida.Options{MaxConnections: 1})
					t.Cleanup(func() { h.stop(t) })
					r := &raw{t, h.rawDial(t)}
					tt.do(t, r)
					synctest.Wait()
					if how == "closed" {
						r.link.Close(transport.CodeNoError, "")
					} else {
						h.network.Set(simnet.Conditions{Cut: true})
						time.Sleep(2 * time.Minute) // of the bubble's clock: longer than every timeout
						h.network.Set(simnet.Conditions{Delay: time.Millisecond})
						within(t, r.link.Done())
					}
					synctest.Wait()
					h.wantServing(t)
				})
			})
		}
	}
}
