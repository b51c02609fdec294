package drain_test

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/weir-agent/weir/drain"
	"github.com/weir-agent/weir/sinks/httpsink"
)

// TestRowsOverHTTP runs each row of delivery (F21 to F41 of the list of faults) against a real server over a real
// socket, and ends each with the ledger.
func TestRowsOverHTTP(t *testing.T) {
	for _, row := range []struct {
		name  string
		wires []wire
		run   func(t *testing.T, over wire)
	}{
		{"F21 redirect", allWires(), rowF21},
		{"F22 fault of the endpoint", allWires(), rowF22},
		{"F23 408, 425 and resets", allWires(), rowF23},
		{"F24 idle connection ends", onlyHTTP1(), rowF24},
		{"F25 GOAWAY", onlyHTTP2(), rowF25},
		{"F26 answers in parts", allWires(), rowF26},
		{"F27 dead-letter store fails", allWires(), rowF27},
		{"F28 requeue", allWires(), rowF28},
		{"F29 stop in flight", allWires(), rowF29},
		{"F30 damaged record", allWires(), rowF30},
		{"F31 one bad record", allWires(), rowF31},
		{"F32 many segments", onlyPlain(), rowF32},
		{"F33 server hangs", allWires(), rowF33},
		{"F34 long outage", allWires(), rowF34},
		{"F35 Retry-After", append(onlyPlain(), onlyHTTP2()...), rowF35},
		{"F36 return from an outage", append(onlyPlain(), onlyHTTP2()...), rowF36},
		{"F37 large backlog", onlyPlain(), rowF37},
		{"F38 panic in the sink", allWires(), rowF38},
		{"F39 lone record", allWires(), rowF39},
		{"F40 trickle", allWires(), rowF40},
		{"F41 ack beside a hanging server", allWires(), rowF41},
	} {
		t.Run(row.name, func(t *testing.T) {
			for _, over := range row.wires {
				t.Run(over.name, func(t *testing.T) { row.run(t, over) })
			}
		})
	}
}

// some returns n payloads that begin with name.
func some(name string, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("%s-%05d", name, i)
	}
	return all
}

// rowF21: a redirect is not followed; it holds, and the records go to the address that was asked for.
func rowF21(t *testing.T, over wire) {
	statuses := []int{301, 302, 303, 307, 308}
	e := &endpoint{script: func(n int, w http.ResponseWriter, _ *request) bool {
		if n >= len(statuses) {
			return false
		}
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(statuses[n])
		return true
	}}
	e.start(t, over)
	r := newRig(t, nil, nil)
	r.push("one")
	r.deliver(e, setup{})
	r.ledger(e, 0)
	r.wantState(drain.Held)
	for _, q := range e.all() {
		if q.path != "POST /" {
			t.Errorf("a request %s", q.path)
		}
	}
	if n := len(e.all()); n != len(statuses)+1 {
		t.Errorf("%d requests, want %d", n, len(statuses)+1)
	}
}

// rowF22: credentials, an address and a load balancer that are at fault cost no record.
func rowF22(t *testing.T, over wire) {
	e := &endpoint{script: answers(401, 403, 404, 407, 410, 502, 503, 504)}
	e.start(t, over)
	r := newRig(t, nil, nil)
	r.push(some("r", 5)...)
	scheme, _, _ := strings.Cut(e.URL, ":")
	for _, address := range []string{"no-such-host.invalid", "127.0.0.1:1"} { // no name, and nobody there
		r.deliver(e, setup{http: httpsink.Options{URL: scheme + "://" + address}})
		r.until("three attempts", func() bool { return r.shard().Attempts >= 3 })
		r.endDrain()
	}
	r.deliver(e, setup{http: httpsink.Options{Format: httpsink.FormatNDJSON}})
	r.ledger(e, 0)
	r.wantState(drain.Held)
	r.wantState(drain.Retrying)
	r.wantOnce(e)
}

// rowF23: 408, 425 and connections that break in the middle of a body, or behind it, are tried again.
func rowF23(t *testing.T, over wire) {
	e := &endpoint{
		early: func(n int, _ http.ResponseWriter, r *http.Request) bool {
			if n%4 == 0 && n < 20 {
				_, _ = io.CopyN(io.Discard, r.Body, 100<<10)
				panic(http.ErrAbortHandler)
			}
			return false
		},
		script: func(n int, w http.ResponseWriter, _ *request) bool {
			if n >= 20 {
				return false
			}
			switch n % 4 {
			case 1:
				panic(http.ErrAbortHandler)
			case 2:
				w.WriteHeader(http.StatusRequestTimeout)
			case 3:
				w.WriteHeader(http.StatusTooEarly)
			}
			return true
		},
	}
	e.start(t, over)
	r := newRig(t, nil, nil)
	for _, p := range some("large", 3) {
		r.push(p + strings.Repeat("x", 256<<10))
	}
	r.deliver(e, setup{})
	r.ledger(e, 0)
	r.wantOnce(e)
}

// rowF24: connections end just as their second request goes out; nothing ever arrives without its body.
func rowF24(t *testing.T, over wire) {
	const connections = 8
	r := newRig(t, nil, nil)
	e := &endpoint{connections: connections}
	e.front = func(n int, c net.Conn) {
		in := bufio.NewReader(c)
		for i := 0; ; i++ {
			if i == 1 && n%2 == 0 { // before the request is read
				_, _ = in.ReadString('\n')
				return
			}
			q, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			body, err := io.ReadAll(q.Body)
			if err != nil {
				return
			}
			arrived := &request{e: e, path: q.Method + " " + q.URL.Path, key: q.Header.Get("Idempotency-Key"), records: []string{string(body)}}
			e.mu.Lock()
			e.requests = append(e.requests, arrived)
			e.mu.Unlock()
			if i == 1 { // after it was
				return
			}
			arrived.take(arrived.records...)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		}
	}
	e.start(t, over)
	r.push(some("r", 3*connections)...)
	r.deliver(e, setup{http: httpsink.Options{Concurrency: 1}, drain: drain.Options{MaxInFlight: 1}})
	r.ledger(e, 0)
	for _, q := range e.all() {
		if len(q.records[0]) != len("r-00000") {
			t.Errorf("a request with body %q", q.records[0])
		}
	}
	if e.begun.Load() == 0 {
		t.Error("the last connection was never used")
	}
}

// The frames of RFC 9113 that the script of rowF25 needs.
const (
	frameData, frameHeaders, frameReset, frameSettings, frameGoAway = 0, 1, 3, 4, 7

	flagEnd, flagAck = 1, 1

	clientPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
)

func writeFrame(c net.Conn, kind, flags byte, stream uint32, numbers ...uint32) {
	b := binary.BigEndian.AppendUint32([]byte{0, 0, byte(4 * len(numbers)), kind, flags}, stream)
	for _, n := range numbers {
		b = binary.BigEndian.AppendUint32(b, n)
	}
	_, _ = c.Write(b)
}

// readRequest reads frames up to the end of a request, and returns its stream.
func readRequest(c net.Conn) (uint32, error) {
	for {
		var h [9]byte
		if _, err := io.ReadFull(c, h[:]); err != nil {
			return 0, err
		}
		length := int64(h[0])<<16 | int64(h[1])<<8 | int64(h[2])
		if _, err := io.CopyN(io.Discard, c, length); err != nil {
			return 0, err
		}
		kind, flags := h[3], h[4]
		if kind == frameSettings && flags&flagAck == 0 {
			writeFrame(c, frameSettings, flagAck, 0)
		}
		if (kind == frameData || kind == frameHeaders) && flags&flagEnd != 0 {
			return binary.BigEndian.Uint32(h[5:]), nil
		}
	}
}

// rowF25: GOAWAY, a reset stream or the end of the connection behind a whole request, and a server that has taken
// the request before that: it comes again under its own key.
func rowF25(t *testing.T, over wire) {
	ends := []func(c net.Conn, stream uint32){
		func(c net.Conn, _ uint32) { writeFrame(c, frameGoAway, 0, 0, 0, 0) },           // not processed
		func(c net.Conn, stream uint32) { writeFrame(c, frameGoAway, 0, 0, stream, 0) }, // perhaps processed
		func(c net.Conn, stream uint32) { writeFrame(c, frameGoAway, 0, 0, stream, 2) }, // for an error of its own
		func(c net.Conn, stream uint32) { writeFrame(c, frameReset, 0, stream, 2) },
		func(net.Conn, uint32) {},
	}
	e := &endpoint{connections: len(ends)}
	seen := make(chan int, len(ends))
	e.front = func(n int, c net.Conn) {
		if _, err := io.CopyN(io.Discard, c, int64(len(clientPreface))); err != nil {
			return
		}
		writeFrame(c, frameSettings, 0, 0)
		stream, err := readRequest(c)
		if err != nil {
			return
		}
		seen <- n
		ends[n](c, stream)
	}
	e.script = func(n int, w http.ResponseWriter, q *request) bool {
		switch n {
		case 0: // the stream ends without an answer
			q.take(q.records...)
			panic(http.ErrAbortHandler)
		case 1: // GOAWAY behind an answer
			w.Header().Set("Connection", "close")
		}
		return false
	}
	e.start(t, over)
	r := newRig(t, nil, nil)
	r.push(some("r", 6)...)
	r.deliver(e, setup{http: httpsink.Options{Concurrency: 1}, drain: drain.Options{MaxInFlight: 1}})
	r.ledger(e, 0)
	if len(seen) != len(ends) {
		t.Errorf("%d requests met a connection that ends, want %d", len(seen), len(ends))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if first := e.requests[0]; e.times[first.records[0]] != 2 {
		t.Errorf("what was taken without an answer came %d times, want 2", e.times[first.records[0]])
	}
}

// rowF26: of what was answered in parts only the confirmed part moves on, and only the rest comes again.
func rowF26(t *testing.T, over wire) {
	mixed := func(status, bad int, head, form, tail string) func(int, http.ResponseWriter, *request) bool {
		return func(n int, w http.ResponseWriter, q *request) bool {
			if n > 0 {
				return false
			}
			var items []string
			for i, p := range q.records {
				item := bad
				if i%2 == 1 { // the last one is a success
					q.take(p)
					item = http.StatusOK
				}
				items = append(items, fmt.Sprintf(form, item))
			}
			w.WriteHeader(status)
			_, _ = io.WriteString(w, head+strings.Join(items, ",")+tail)
			return true
		}
	}
	for _, tc := range []struct {
		name   string
		http   httpsink.Options
		script func(int, http.ResponseWriter, *request) bool
		second int // records of the last request
	}{
		{
			"bulk",
			httpsink.Options{Format: httpsink.FormatNDJSON, Partial: httpsink.PartialBulk},
			mixed(200, 429, `{"errors":true,"items":[`, `{"index":{"status":%d}}`, `]}`), 5,
		},
		{
			"multi-status",
			httpsink.Options{Format: httpsink.FormatNDJSON},
			mixed(207, 500, `[`, `{"status":%d}`, `]`), 5,
		},
		{"one by one", httpsink.Options{}, func(n int, w http.ResponseWriter, _ *request) bool {
			if n < 10 && n%2 == 0 {
				w.WriteHeader(http.StatusInternalServerError)
			}
			return n < 10 && n%2 == 0
		}, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := (&endpoint{script: tc.script}).start(t, over)
			r := newRig(t, nil, nil)
			r.push(some("r", 10)...)
			r.deliver(e, setup{http: tc.http})
			r.ledger(e, 0)
			r.wantOnce(e)
			all := e.all()
			if n := len(all[len(all)-1].records); n != tc.second {
				t.Errorf("the last request has %d records, want %d", n, tc.second)
			}
		})
	}
}
