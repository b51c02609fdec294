package forward

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestThereAndBack: what is published is confirmed as stored, counted, kept over an end of the broker, and settled once it was consumed.
func TestThereAndBack(t *testing.T) {
	o := BrokerOptions{Dir: t.TempDir(), QueueBytes: 1 << 20}
	const messages = 100
	b := startInProcess(t, o)
	r, err := Publish(t.Context(), b.url(Orders), 8, 256, messages, time.Minute)
	if err != nil || r.Records != messages || r.Latency.TotalCount() != messages {
		t.Fatalf("published %d, %v", r.Records, err)
	}
	if st := b.ask(t); st.Orders.Admitted != messages || st.Orders.Messages != messages || st.Dead.Messages != 0 {
		t.Errorf("got %+v", st)
	}
	b.stop(t)

	b = startInProcess(t, o)
	if _, err := Publish(t.Context(), b.url(Orders), 8, 256, messages, time.Minute); err != nil {
		t.Fatal(err)
	}
	if st := b.ask(t); st.Orders.Repeats != messages || st.Orders.Messages != messages {
		t.Errorf("after the same messages again: %+v", st)
	}
	r, err = Consume(t.Context(), b.url(Orders), messages, func() error {
		for b.ask(t).Orders.Messages > 0 {
		}
		return nil
	})
	if err != nil || r.Records != messages {
		t.Errorf("consumed %d, %v", r.Records, err)
	}
	b.stop(t)
}

// inProcess is ServeProcess in a goroutine.
type inProcess struct {
	hello hello
	in    io.WriteCloser
	out   *bufio.Reader
	ended chan error
}

func startInProcess(t *testing.T, o BrokerOptions) *inProcess {
	t.Helper()
	in, ours := io.Pipe()
	theirs, out := io.Pipe()
	b := &inProcess{in: ours, out: bufio.NewReader(theirs), ended: make(chan error, 1)}
	go func() { b.ended <- ServeProcess(context.Background(), o, in, out) }()
	b.read(t, &b.hello)
	return b
}

func (b *inProcess) read(t *testing.T, v any) {
	t.Helper()
	line, err := b.out.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, v)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (b *inProcess) ask(t *testing.T) (st Stats) {
	t.Helper()
	if _, err := io.WriteString(b.in, freeMemory+"\n"); err != nil {
		t.Fatal(err)
	}
	b.read(t, &st)
	return st
}

func (b *inProcess) url(path string) string { return b.hello.url(path) }

func (b *inProcess) stop(t *testing.T) {
	t.Helper()
	if err := b.in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-b.ended; err != nil {
		t.Fatal(err)
	}
}
