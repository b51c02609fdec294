package weir

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/weir-agent/weir/ingest"
	"github.com/weir-agent/weir/ingest/frame"
	"github.com/weir-agent/weir/wab/record"
	"github.com/weir-agent/weir/wab/vfs/vfstest"
)

func newClient(t testing.TB, path string) *Client {
	c := New(Options{Path: path, Timeout: watchdog})
	t.Cleanup(func() { c.Close() })
	return c
}

func TestClientAgainstTheServer(t *testing.T) {
	d := startDaemon(t, ingest.Config{})
	c := newClient(t, d.path)
	ctx := t.Context()
	if err := c.Health(ctx); err != nil {
		t.Fatal(err)
	}
	if err := c.Push(ctx, Durable, []byte("one")); err != nil {
		t.Fatal(err)
	}
	if err := c.Push(ctx, Buffered, []byte("two")); err != nil {
		t.Fatal(err)
	}
	at, err := c.PushTracked(ctx, Durable, []byte("three"))
	if err != nil {
		t.Fatal(err)
	}
	if at.Index != 3 || at.ID != record.ComputeID(at.Segment, 3, []byte("three")) {
		t.Errorf("coordinate %+v", at)
	}
	acked, err := c.PushBatch(ctx, Durable, [][]byte{[]byte("four"), []byte("five")})
	if err != nil || len(acked) != 2 || !acked[0] || !acked[1] {
		t.Errorf("PushBatch = %v, %v", acked, err)
	}
	for _, want := range []string{"one", "two", "three", "four", "five"} {
		if got := d.records(t)[want]; got != 1 {
			t.Errorf("%q is there %d times", want, got)
		}
	}
}

func TestClientChecksBeforeItSends(t *testing.T) {
	c := newClient(t, "/nowhere")
	big := make([]byte, frame.MaxPayloadBytes+1)
	tests := []struct {
		name string
		err  error
		want error
	}{
		{"empty", c.Push(t.Context(), Durable, nil), ErrEmpty},
		{"too large", c.Push(t.Context(), Durable, big), ErrTooLarge},
		{"empty tracked", second(c.PushTracked(t.Context(), Durable, nil)), ErrEmpty},
		{"empty batch", second(c.PushBatch(t.Context(), Durable, nil)), ErrEmpty},
		{"empty record", second(c.PushBatch(t.Context(), Durable, [][]byte{{1}, {}})), ErrEmpty},
		{"many records", second(c.PushBatch(t.Context(), Durable, make([][]byte, 2049))), ErrTooLarge},
		{"large batch", second(c.PushBatch(t.Context(), Durable, [][]byte{big[:1<<23], big[:1<<23]})), ErrTooLarge},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if !errors.Is(tt.err, tt.want) || StateOf(tt.err) != Refused {
				t.Errorf("err = %v, state %v", tt.err, StateOf(tt.err))
			}
		})
	}
}

func second[T any](_ T, err error) error { return err }

// A refusal is permanent for its record and for its connection, not for the
// client.
func TestClientAfterARefusal(t *testing.T) {
	d := startDaemon(t, ingest.Config{MaxPayloadBytes: 100, MaxBatchRecords: 2})
	c := newClient(t, d.path)
	ctx := t.Context()
	var nack *NackError
	err := c.Push(ctx, Durable, make([]byte, 1<<20))
	if !errors.As(err, &nack) || nack.Reason != frame.PayloadTooLarge || StateOf(err) != Refused {
		t.Errorf("err = %v", err)
	}
	if err := c.Push(ctx, Durable, []byte("x")); err != nil {
		t.Errorf("after a refusal: %v", err)
	}
	_, err = c.PushBatch(ctx, Durable, [][]byte{{1}, {2}, {3}})
	if !errors.As(err, &nack) || nack.Reason != frame.PayloadTooLarge {
		t.Errorf("err = %v", err)
	}
	if err := c.Health(ctx); err != nil {
		t.Errorf("after a refused batch: %v", err)
	}
}

func TestTransientNackKeepsTheConnection(t *testing.T) {
	push := len(frame.Append(nil, frame.Push, record.Durable, []byte("x")))
	path := script(t, func(n int, nc net.Conn) {
		if n > 0 {
			t.Error("a second connection was made")
			return
		}
		for _, b := range [][]byte{frame.AppendNack(nil, frame.InternalError), frame.AppendAck(nil)} {
			if err := answer(nc, push, b); err != nil {
				t.Error(err)
			}
		}
	})
	c := newClient(t, path)
	if err := c.Push(t.Context(), Durable, []byte("x")); StateOf(err) != Unknown || err == nil {
		t.Errorf("err = %v", err)
	}
	if err := c.Push(t.Context(), Durable, []byte("x")); err != nil {
		t.Error(err)
	}
}

// Whatever is wrong with a reply, the record is Unknown, and the connection is used
// no more: the good replies that follow must not be taken for the answer to the next push.
func TestWrongRepliesPoisonTheConnection(t *testing.T) {
	x := []byte("x")
	push := len(frame.Append(nil, frame.Push, record.Durable, x))
	ack := frame.AppendAck(nil)
	flip := func(b []byte, i int) []byte {
		b = bytes.Clone(b)
		b[i] ^= 1
		return b
	}
	other := frame.AppendAckTracked(nil, Coordinate{Segment: "s", Index: 1, ID: record.ComputeID("s", 1, []byte("another"))})
	trackedCall := func(c *Client) error { return second(c.PushTracked(t.Context(), Durable, x)) }
	pushCall := func(c *Client) error { return c.Push(t.Context(), Durable, x) }
	tests := []struct {
		name  string
		reply []byte
		call  func(*Client) error
	}{
		{"nothing", nil, pushCall},
		{"half a header", ack[:9], pushCall},
		{"magic", flip(ack, 0), pushCall},
		{"version", flip(ack, 4), pushCall},
		{"header CRC", flip(ack, 12), pushCall},
		{"payload CRC", flip(ack, 19), pushCall},
		{"ack of a batch", frame.AppendAckBatch(nil, 1, func(int) bool { return true }), pushCall},
		{"health response", frame.AppendHealthCheckResponse(nil), pushCall},
		{"a push", frame.Append(nil, frame.Push, record.Durable, x), pushCall},
		{"ack with a payload", frame.Append(nil, frame.Ack, record.Durable, x), pushCall},
		{"nack without a reason", frame.Append(nil, frame.Nack, record.Durable, nil), pushCall},
		{"nack of a reserved reason", frame.AppendNack(nil, 0x0A), pushCall},
		{"ack to a tracked push", ack, trackedCall},
		{"coordinate of another record", other, trackedCall},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := script(t, func(n int, nc net.Conn) {
				if n > 0 {
					answer(nc, push, frame.AppendNack(nil, frame.EmptyPayload))
					return
				}
				answer(nc, push, append(bytes.Clone(tt.reply), ack...)[:len(tt.reply)+min(len(tt.reply), 20)])
			})
			c := newClient(t, path)
			if err := tt.call(c); err == nil || StateOf(err) != Unknown {
				t.Errorf("err = %v, state %v, want unknown", err, StateOf(err))
			}
			if err := pushCall(c); StateOf(err) != Refused {
				t.Errorf("the second push got %v, want the answer of a second connection", err)
			}
		})
	}
}

func TestContextEndsACall(t *testing.T) {
	asked := make(chan struct{}, 2)
	hold := make(chan struct{})
	defer close(hold)
	path := script(t, func(n int, nc net.Conn) {
		if n > 0 {
			answer(nc, 20, frame.AppendHealthCheckResponse(nil))
			return
		}
		answer(nc, 21, nil)
		asked <- struct{}{}
	})
	c := newClient(t, path)
	ctx, cancel := context.WithCancel(t.Context())
	_ = hold
	go func() {
		<-asked
		cancel()
	}()
	if err := c.Push(ctx, Durable, []byte("x")); err == nil || StateOf(err) != Unknown {
		t.Errorf("err = %v", err)
	}
	if err := c.Health(t.Context()); err != nil {
		t.Errorf("the client after that: %v", err)
	}
}

func TestTimeoutEndsACall(t *testing.T) {
	d := startDaemon(t, ingest.Config{})
	c := New(Options{Path: d.path, Timeout: 20 * time.Millisecond})
	defer c.Close()
	gate := vfstest.NewGate()
	defer gate.Release()
	d.disk.Add(vfstest.Fault{Kinds: vfstest.SyncData, Sticky: true, Gate: gate})
	err := c.Push(t.Context(), Durable, []byte("x"))
	if !errors.Is(err, context.DeadlineExceeded) || StateOf(err) != Unknown {
		t.Errorf("err = %v", err)
	}
}

func TestClosedClient(t *testing.T) {
	d := startDaemon(t, ingest.Config{})
	c := New(Options{Path: d.path})
	if err := c.Health(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.Close()
	c.Close()
	if err := c.Health(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("err = %v", err)
	}
}

func TestNackErrorSaysBothVersions(t *testing.T) {
	err := &NackError{Reason: frame.VersionMismatch, Version: 2}
	if !strings.Contains(err.Error(), "v2") || !strings.Contains(err.Error(), "v1") {
		t.Error(err)
	}
	if got := (&NackError{Reason: 0x0A}).Error(); !strings.Contains(got, "0x0a") {
		t.Errorf("the raw byte is not shown: %s", got)
	}
}

// TestClientLeavesALinkThatIsNotIdle: bytes that nobody asked for are never taken for an
// answer, and a connection that the daemon closed between two calls costs no call.
func TestClientLeavesALinkThatIsNotIdle(t *testing.T) {
	tests := []struct {
		name  string
		extra []byte
	}{
		{"closed", nil},
		{"an ack too many", frame.AppendAck(nil)},
		{"half a frame too many", frame.AppendAck(nil)[:7]},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ack := frame.AppendAck(nil)
			served := make(chan int, 3)
			path := script(t, func(n int, nc net.Conn) {
				_ = answer(nc, frame.Overhead+1, append(ack[:len(ack):len(ack)], tt.extra...))
				if tt.extra == nil {
					nc.Close()
					served <- n
					return
				}
				served <- n
				_, _ = nc.Read(make([]byte, 1)) // until the client leaves
			})
			c := newClient(t, path)
			for want := range 3 {
				if err := c.Push(t.Context(), Durable, []byte("x")); err != nil {
					t.Fatalf("push %d: %v", want, err)
				}
				if n := <-served; n != want {
					t.Fatalf("push %d was answered on connection %d", want, n)
				}
			}
		})
	}
}
