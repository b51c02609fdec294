package weidasink

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/weir-agent/weir/sinks"
	"github.com/weir-agent/weir/sinks/sinktest"
	"github.com/weir-agent/weir/wab"
	"github.com/weir-agent/weir/weida"
	queues "github.com/weir-agent/weir/weida/broker"
	"github.com/weir-agent/weir/weida/broker/wabstore"
)

// newQueue starts a broker with one queue of so many bytes, stored in dir, and returns it with its address. What it returns last ends it.
func newQueue(t *testing.T, dir string, size int, id *weida.Identity) (*queues.Broker, string, func()) {
	t.Helper()
	fail := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	store, err := wabstore.Open(dir, wabstore.Options{Log: wab.Options{SegmentBytes: 1 << 20}})
	fail(err)
	rt, err := weida.NewRuntime(weida.Options{Offered: weida.Guarantees{Acknowledgement: weida.AckStored, Durability: weida.Flushed}})
	fail(err)
	l := rt.Listener()
	b, err := queues.New(l, queues.Options{Queues: []queues.QueueOptions{{Path: path, Config: queues.Config{Bytes: size}, Store: store}}})
	fail(err)
	binding, err := l.BindQUIC("127.0.0.1:0", weida.ServerTLS{Identity: id})
	fail(err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- b.Serve(ctx) }()
	return b, fmt.Sprintf("weida://%v@%v%s", id.Fingerprint(), binding.Addr(), path), func() {
		t.Helper()
		cancel()
		fail(<-ended)
		fail(rt.Shutdown())
		fail(store.Close())
	}
}

func statsOf(t *testing.T, b *queues.Broker) queues.QueueStats {
	t.Helper()
	st, ok := b.Stats(path)
	if !ok {
		t.Fatal("no such queue")
	}
	return st
}

// TestRepeatsAtAQueue: what was delivered is on the broker's disk, and what is sent again is delivered and not stored again, also after both were started anew.
func TestRepeatsAtAQueue(t *testing.T) {
	id, err := weida.GenerateIdentity()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	batch := sinktest.BatchOf("one", "two", strings.Repeat("large", 600_000)) // the last one takes several records of the store
	for round, repeats := range []uint64{0, 3} {
		b, url, end := newQueue(t, dir, 64<<20, id)
		s := sinktest.Open(t, New, Options{URL: url})
		want{sinks.Delivered, nil}.check(t, s.Deliver(t.Context(), batch), 3)
		want{sinks.Delivered, nil}.check(t, s.Deliver(t.Context(), batch), 3)
		if st := statsOf(t, b); st.Messages != 3 || st.Repeats != repeats+3 {
			t.Errorf("round %d: %+v", round, st)
		}
		end()
	}
	store, err := wabstore.Open(dir, wabstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	st, err := store.Load()
	if err != nil || len(st.Messages) != 3 {
		t.Fatalf("%d messages on disk, %v", len(st.Messages), err)
	}
	for _, m := range st.Messages {
		found := false
		for _, r := range batch.Records {
			found = found || bytes.Equal(r.Payload, m.Message.Body) && queues.ID(r.ID) == m.Message.ID
		}
		if !found {
			t.Errorf("message %d is none of the batch", m.Seq)
		}
	}
}

// TestFullQueue: what a queue has no room for is tried again, and arrives when there is room.
func TestFullQueue(t *testing.T) {
	id, err := weida.GenerateIdentity()
	if err != nil {
		t.Fatal(err)
	}
	const room = 8
	b, url, end := newQueue(t, t.TempDir(), room*(queues.MessageCharge+len(DefaultContentType)+1000), id)
	defer end()
	s := sinktest.Open(t, New, Options{URL: url})
	batch := sinktest.BatchOf(strings.Split(strings.TrimSuffix(strings.Repeat(strings.Repeat("x", 1000)+" ", 2*room), " "), " ")...)
	left := batch
	left.Records = nil
	for i, o := range s.Deliver(t.Context(), batch) {
		switch {
		case o.Verdict == sinks.Delivered:
		case o.Verdict == sinks.Retry && strings.Contains(o.Reason, "full"):
			left.Records = append(left.Records, batch.Records[i])
		default:
			t.Errorf("record %d: %+v", i, o)
		}
	}
	if st := statsOf(t, b); len(left.Records) != room || st.Messages != room {
		t.Fatalf("%d records are left, the queue has %d", len(left.Records), st.Messages)
	}

	consumer, err := weida.NewRuntime(weida.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := consumer.Shutdown(); err != nil {
			t.Error(err)
		}
	}()
	sub := consumer.Subscriber(weida.ClientTLS{})
	for _, err := range []error{sub.Subscribe(""), sub.Connect(t.Context(), url), sub.Grant("", room)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for range room {
		in, err := sub.Recv(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		body, err := in.Collect(1000)
		if err != nil {
			t.Fatal(err)
		}
		in.Reporter().Report(weida.LevelProcessed, uint64(len(body)))
		in.Reporter().Finish()
	}
	for statsOf(t, b).Messages > 0 {
	}
	want{sinks.Delivered, nil}.check(t, s.Deliver(t.Context(), left), room)
}
