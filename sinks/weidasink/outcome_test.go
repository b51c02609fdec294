package weidasink

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-agent/weir/sinks"
	"github.com/weir-agent/weir/sinks/sinktest"
	"github.com/weir-agent/weir/weida"
)

// want is the outcome of a record: its verdict, and words that its reason must have.
type want struct {
	verdict sinks.Verdict
	words   []string
}

func (w want) check(t *testing.T, out []sinks.Outcome, n int) {
	t.Helper()
	if len(out) != n {
		t.Fatalf("%d outcomes, want %d", len(out), n)
	}
	for i, o := range out {
		if o.Verdict != w.verdict {
			t.Errorf("record %d: %+v, want %v", i, o, w.verdict)
		}
		for _, word := range w.words {
			if !strings.Contains(o.Reason, word) {
				t.Errorf("record %d: reason %q lacks %q", i, o.Reason, word)
			}
		}
		if len(o.Reason) > 256 {
			t.Errorf("record %d: the reason has %d bytes", i, len(o.Reason))
		}
	}
}

// TestAnswers: what each answer of a broker means.
func TestAnswers(t *testing.T) {
	long := strings.Repeat("é\x00", 300)
	for _, tc := range []struct {
		name   string
		ack    string
		answer answer
		want   want
	}{
		{"stored", "", confirm(weida.LevelStored), want{sinks.Delivered, nil}},
		{"processed", "", confirm(weida.LevelProcessed), want{sinks.Delivered, nil}},
		{"replicated", "", confirm(weida.LevelReplicated), want{sinks.Delivered, nil}},
		{"accepted is less than stored", "", confirm(weida.LevelAccepted), want{sinks.Hold, []string{`"accepted"`, "required_ack", "store"}}},
		{"stored is written", AckWritten, confirm(weida.LevelStored), want{sinks.Delivered, nil}},
		{"accepted is enough", AckAccepted, confirm(weida.LevelAccepted), want{sinks.Delivered, nil}},
		{"stored is more than accepted", AckAccepted, confirm(weida.LevelStored), want{sinks.Delivered, nil}},
		{"a receipt is less than accepted", AckAccepted, confirm(weida.LevelTransportReceipt), want{sinks.Hold, nil}},
		{"a reply without a level", AckAccepted, func(_ int, r *weida.IncomingRequest, _ []byte) {
			_ = r.Respond(context.Background(), weida.Meta{}, nil) // the sink reads it
		}, want{sinks.Hold, []string{"no queue", "sink.weida.url"}}},
		{"a confirm with a payload", "", func(_ int, r *weida.IncomingRequest, _ []byte) {
			_ = r.Respond(context.Background(), weida.Meta{Achieved: weida.Some(weida.LevelStored)}, []byte("x")) // the sink refuses it
		}, want{sinks.Retry, nil}},
		{"a confirm that is taken back", "", func(_ int, r *weida.IncomingRequest, _ []byte) {
			if reply, err := r.Reply(context.Background(), weida.Meta{Achieved: weida.Some(weida.LevelStored)}); err == nil {
				reply.Cancel()
			}
		}, want{sinks.Retry, nil}},
		{"rejected", "", refuse(weida.CodeRejected, "the queue is full"), want{sinks.Retry, []string{"declines", "the queue is full"}}},
		{"a long and dirty message", "", refuse(weida.CodeRejected, long), want{sinks.Retry, []string{"declines", "é"}}},
		{"internal", "", refuse(weida.CodeInternal, "disk"), want{sinks.Retry, []string{"disk"}}},
		{"no reply", "", func(int, *weida.IncomingRequest, []byte) {}, want{sinks.Retry, []string{"no reply"}}},
		{"a code that nobody knows", "", refuse(77, ""), want{sinks.Retry, nil}},
		{"unknown endpoint", "", refuse(weida.CodeUnknownEndpoint, ""), want{sinks.Hold, []string{`no queue at "/queue"`}}},
		{"unsupported", "", refuse(weida.CodeUnsupported, ""), want{sinks.Hold, []string{`"/queue"`, "no queue"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBroker(t, brokerOptions{answer: tc.answer})
			s := sinktest.Open(t, New, Options{URL: b.url(), RequiredAck: tc.ack})
			tc.want.check(t, s.Deliver(t.Context(), sinktest.BatchOf("one")), 1)
			if n := len(b.all()); n != 1 {
				t.Errorf("%d requests arrived, want 1", n)
			}
		})
	}
}

// TestBrokers: what the broker at the address may be.
func TestBrokers(t *testing.T) {
	other, err := weida.GenerateIdentity()
	if err != nil {
		t.Fatal(err)
	}
	strangers := weida.TrustPins(other.Fingerprint())
	written := weida.Options{Offered: weida.Guarantees{Acknowledgement: weida.AckStored, Durability: weida.Written}}
	memory := weida.Options{Offered: weida.Guarantees{Acknowledgement: weida.AckAccepted}}
	flushed := weida.Options{Offered: weida.Guarantees{Acknowledgement: weida.AckStored, Durability: weida.Flushed}}
	unpromised := want{sinks.Hold, []string{"does not promise", `required_ack = "stored"`, "ask for less"}}
	for _, tc := range []struct {
		name    string
		ack     string
		broker  brokerOptions
		url     func(b *broker) string
		want    want
		named   bool // the reason names the sink's own key
		arrives bool // a record does, though it holds
	}{
		{name: "another path", broker: brokerOptions{path: "/other"}, want: want{sinks.Hold, []string{`no queue at "/queue"`}}},
		{
			name: "another key", want: want{sinks.Hold, []string{"another key", "sha256:", "sink.weida.url"}},
			url: func(b *broker) string {
				return fmt.Sprintf("weida://%v@%s%s", other.Fingerprint(), b.addr, path)
			},
		},
		{name: "clients are known by their keys", broker: brokerOptions{clients: &strangers}, want: want{sinks.Hold, []string{"handshake"}}, named: true},
		{name: "written and not flushed", broker: brokerOptions{runtime: written}, want: unpromised},
		{name: "one queue in memory", broker: brokerOptions{runtime: memory}, want: unpromised},
		{name: "no promise", broker: brokerOptions{core: true}, want: unpromised},
		{name: "flushed", broker: brokerOptions{runtime: flushed}, want: want{sinks.Delivered, nil}},
		{
			name: "written and not flushed is asked for", ack: AckWritten, want: want{sinks.Delivered, nil},
			broker: brokerOptions{runtime: written},
		},
		{name: "no promise is asked for", ack: AckWritten, broker: brokerOptions{core: true}, want: want{sinks.Delivered, nil}},
		{
			name: "in memory is not enough for written", ack: AckWritten, want: want{sinks.Hold, []string{`"accepted"`, `"written"`}}, arrives: true,
			broker: brokerOptions{core: true, answer: confirm(weida.LevelAccepted)},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBroker(t, tc.broker)
			o := Options{URL: b.url(), RequiredAck: tc.ack, IdentityDir: filepath.Join(t.TempDir(), "key")}
			if tc.url != nil {
				o.URL = tc.url(b)
			}
			s := sinktest.Open(t, New, o)
			if tc.named {
				tc.want.words = append(tc.want.words, s.Identity())
			}
			tc.want.check(t, s.Deliver(t.Context(), sinktest.BatchOf("one", "two")), 2)
			if tc.want.verdict != sinks.Delivered && !tc.arrives && len(b.all()) != 0 {
				t.Error("a record arrived")
			}
		})
	}
}

// TestQueueThatWasThere: a queue that has confirmed records and is gone will be back, unless it stays away.
func TestQueueThatWasThere(t *testing.T) {
	b := newBroker(t, brokerOptions{answer: func(n int, r *weida.IncomingRequest, body []byte) {
		if n == 0 {
			confirm(weida.LevelStored)(n, r, body)
			return
		}
		refuse(weida.CodeUnknownEndpoint, "")(n, r, body)
	}})
	s := sinktest.Open(t, New, Options{URL: b.url()})
	want{sinks.Delivered, nil}.check(t, s.Deliver(t.Context(), sinktest.BatchOf("one")), 1)
	want{sinks.Retry, []string{"no more", `"/queue"`}}.check(t, s.Deliver(t.Context(), sinktest.BatchOf("two")), 1)
	s.confirmed.Store(time.Now().Add(-vanished).UnixNano())
	want{sinks.Hold, []string{`no queue at "/queue"`}}.check(t, s.Deliver(t.Context(), sinktest.BatchOf("two")), 1)
}

// TestOneWayPath: a path that serves no exchanges is no queue.
func TestOneWayPath(t *testing.T) {
	b := newBroker(t, brokerOptions{path: "/other"})
	l := b.rt.Listener()
	if _, err := l.Puller(path); err != nil {
		t.Fatal(err)
	}
	binding, err := l.BindQUIC("127.0.0.1:0", weida.ServerTLS{Identity: b.id})
	if err != nil {
		t.Fatal(err)
	}
	b.addr = binding.Addr().String()
	s := sinktest.Open(t, New, Options{URL: b.url()})
	want{sinks.Hold, []string{"no queue", "sink.weida.url"}}.check(t, s.Deliver(t.Context(), sinktest.BatchOf("one")), 1)
}

// TestNobodyAnswers: the first dial is given up after its time, and all who waited for it are told.
func TestNobodyAnswers(t *testing.T) {
	id, err := weida.GenerateIdentity()
	if err != nil {
		t.Fatal(err)
	}
	b := &broker{id: id, addr: silent(t)}
	s := sinktest.Open(t, New, Options{URL: b.url(), ConnectTimeout: 50 * time.Millisecond})
	results := make(chan []sinks.Outcome)
	for range 3 {
		go func() { results <- s.Deliver(t.Context(), sinktest.BatchOf("one", "two")) }()
	}
	for range 3 {
		want{sinks.Retry, []string{"does not answer"}}.check(t, <-results, 2)
	}
}

// TestSilentBroker: a broker that takes records and says nothing is given up after its time.
func TestSilentBroker(t *testing.T) {
	release := make(chan struct{})
	b := newBroker(t, brokerOptions{answer: func(int, *weida.IncomingRequest, []byte) { <-release }})
	t.Cleanup(func() { close(release) })
	s := sinktest.Open(t, New, Options{URL: b.url(), Timeout: 50 * time.Millisecond, MaxInFlight: 2})
	want{sinks.Retry, []string{"confirms nothing"}}.check(t, s.Deliver(t.Context(), sinktest.BatchOf("one", "two", "three")), 3)
}

// TestLostBeforeTheConfirm: a link that ends when the broker has the record, and has not confirmed it, delivers nothing.
func TestLostBeforeTheConfirm(t *testing.T) {
	var b *broker
	ready := make(chan struct{})
	b = newBroker(t, brokerOptions{answer: func(int, *weida.IncomingRequest, []byte) {
		<-ready
		go func() { _ = b.rt.Shutdown() }() // it waits for this very goroutine
	}})
	close(ready)
	s := sinktest.Open(t, New, Options{URL: b.url()})
	want{sinks.Retry, nil}.check(t, s.Deliver(t.Context(), sinktest.BatchOf("one")), 1)
	if len(b.all()) != 1 {
		t.Error("the record did not arrive")
	}
}

// TestHoldEndsTheBatch: behind an answer that concerns all records the rest is not sent.
func TestHoldEndsTheBatch(t *testing.T) {
	b := newBroker(t, brokerOptions{answer: confirm(weida.LevelAccepted)})
	s := sinktest.Open(t, New, Options{URL: b.url(), MaxInFlight: 1})
	var payloads []string
	for i := range 100 {
		payloads = append(payloads, fmt.Sprint(i))
	}
	out := s.Deliver(t.Context(), sinktest.BatchOf(payloads...))
	want{sinks.Hold, nil}.check(t, out, 100)
	if n := len(b.all()); n > 3 {
		t.Errorf("%d records were sent", n)
	}
	if got := out[99].Reason; !strings.HasPrefix(got, "not sent: ") {
		t.Errorf("the last one's reason is %q", got)
	}
}

// TestTooLarge: a record above the bound is rejected by itself and never sent, wherever it stands.
func TestTooLarge(t *testing.T) {
	b := newBroker(t, brokerOptions{})
	s := sinktest.Open(t, New, Options{URL: b.url(), MaxRecordBytes: 4})
	out := s.Deliver(t.Context(), sinktest.BatchOf("12345", "1234", "123456", "1"))
	for i, verdict := range []sinks.Verdict{sinks.Reject, sinks.Delivered, sinks.Reject, sinks.Delivered} {
		if out[i].Verdict != verdict || out[i].Isolated != (verdict == sinks.Reject) {
			t.Errorf("record %d: %+v, want %v", i, out[i], verdict)
		}
	}
	if !strings.Contains(out[0].Reason, "5 bytes") || !strings.Contains(out[0].Reason, "max_record_bytes") {
		t.Errorf("reason %q", out[0].Reason)
	}
	if n := len(b.all()); n != 2 {
		t.Errorf("%d records arrived, want 2", n)
	}
}

// TestAnswerThatComesAfterTheEnd: a confirm that is read after the attempt has been ended is not believed, whether the broker gave it before or because of it.
func TestAnswerThatComesAfterTheEnd(t *testing.T) {
	const behind = 64
	var answered sync.WaitGroup
	begun, ended := make(chan struct{}), make(chan struct{})
	b := newBroker(t, brokerOptions{answer: func(n int, r *weida.IncomingRequest, body []byte) {
		if string(body) == "head" {
			begun <- struct{}{}
			<-ended
			confirm(weida.LevelStored)(n, r, body)
			return
		}
		confirm(weida.LevelStored)(n, r, body)
		answered.Done()
	}})
	s := sinktest.Open(t, New, Options{URL: b.url(), Timeout: long})
	payloads := append([]string{"head"}, slices.Repeat([]string{"x"}, behind)...)
	for range 50 {
		answered.Add(behind)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan []sinks.Outcome, 1)
		go func() { done <- s.Deliver(ctx, sinktest.BatchOf(payloads...)) }()
		<-begun
		answered.Wait() // they wait behind the head
		cancel()
		ended <- struct{}{}
		want{sinks.Retry, nil}.check(t, <-done, 1+behind)
	}
}
