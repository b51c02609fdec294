package weida

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
)

func TestRequestAndReplyOverUDP(t *testing.T) {
	rt := must1(NewRuntime(Options{}))(t)
	l := rt.Listener()
	id := generate(t)
	b := must1(l.BindQUIC("127.0.0.1:0", ServerTLS{Identity: id}))(t)
	t.Cleanup(func() { check(t, rt.Shutdown()) })
	echo(t, must1(l.Replier("/echo"))(t))
	r := rt.Requester(ClientTLS{})
	connect(t, r, fmt.Sprintf("weida://%v@%v/echo", id.Fingerprint(), b.Addr()))
	for _, body := range []string{"", "hello", strings.Repeat("x", 3<<20)} {
		in := must1(r.Request(t.Context(), Meta{ContentType: "text/plain"}, []byte(body)))(t)
		if in.Meta().ContentType != "text/plain" || in.Meta().Endpoint != "" {
			t.Errorf("got meta %+v", in.Meta())
		}
		if got := collect(t, in); got != body {
			t.Errorf("got %d bytes back, want %d", len(got), len(body))
		}
	}
}

func TestReplyBeginsBeforeTheRequestEnds(t *testing.T) {
	overEach(t, func(t *testing.T, rig *rig) {
		s := rig.server(Options{})
		echo(t, must1(s.Replier("/echo"))(t))
		r := rig.runtime(Options{}).Requester(ClientTLS{})
		connect(t, r, s.url("/echo"))
		out, reply, err := r.Open(t.Context(), Meta{})
		check(t, err)
		defer out.Cancel()
		in := must1(reply.Recv())(t)
		for _, part := range []string{"one", "two"} {
			must1(io.WriteString(out, part))(t)
			got := make([]byte, len(part))
			must1(io.ReadFull(in, got))(t)
			if string(got) != part {
				t.Errorf("got %q, want %q", got, part)
			}
		}
		d := must1(out.Finish())(t)
		check(t, d.Wait(t.Context()))
		if n, err := in.Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Errorf("got %d, %v, want io.EOF", n, err)
		}
	})
}

func TestPushAndPull(t *testing.T) {
	overEach(t, func(t *testing.T, rig *rig) {
		s := rig.server(Options{})
		pull := must1(s.Puller("/jobs"))(t)
		client := rig.runtime(Options{})
		id := generate(t)
		push := client.Pusher(ClientTLS{Identity: id})
		connect(t, push, s.url("/jobs"))
		meta := Meta{
			ContentType: "text/plain", ContentLen: 5, Topic: "a.b", Trace: NewTrace(),
			Extensions: []Extension{{Key: 64, Value: "id"}},
		}
		meta.Trace.State = "k=v"
		check(t, push.Send(t.Context(), meta, []byte("hello")))
		in := must1(pull.Recv(t.Context()))(t)
		m := in.Meta()
		if got := collect(t, in); got != "hello" {
			t.Errorf("got %q", got)
		}
		if m.Endpoint != "/jobs" || m.ContentType != "text/plain" || m.ContentLen.Value != 5 || m.Topic.Value != "a.b" || m.Trace != meta.Trace || m.DeliveryAttempt != 1 {
			t.Errorf("got %+v", m)
		}
		if v, ok := m.Extension(64); !ok || v != "id" {
			t.Errorf("got extension %q, %v", v, ok)
		}
		if f, ok := m.Peer.Fingerprint(); rig.over == OverQUIC && (!ok || f != id.Fingerprint()) || rig.over != OverQUIC && ok {
			t.Errorf("got peer %v, want %v", m.Peer, id.Fingerprint())
		}
		// With a receipt.
		out := must1(push.Open(t.Context(), Meta{}))(t)
		must1(out.Write([]byte("streamed")))(t)
		d := must1(out.Finish())(t)
		check(t, d.Wait(deadline(t)))
		out.Cancel() // too late to do anything
		in = must1(pull.Recv(t.Context()))(t)
		if got := collect(t, in); got != "streamed" {
			t.Errorf("got %q", got)
		}
		if in.Meta().Trace != (Trace{}) {
			t.Errorf("a trace was made up: %+v", in.Meta().Trace)
		}
	})
}

func TestRoundRobinOverLivePeers(t *testing.T) {
	overEach(t, func(t *testing.T, rig *rig) {
		p := rig.runtime(Options{}).Pusher(ClientTLS{})
		var pulls []*Puller
		var servers []*server
		for range 3 {
			s := rig.server(Options{})
			servers = append(servers, s)
			pulls = append(pulls, must1(s.Puller("/jobs"))(t))
			connect(t, p, s.url("/jobs"), s.url("/jobs")) // the second does nothing
		}
		if got := p.PeerCount(); got != 3 {
			t.Errorf("got %d peers, want 3", got)
		}
		send := func(n int) {
			t.Helper()
			for i := range n {
				check(t, p.Send(t.Context(), Meta{}, []byte{byte(i)}))
			}
		}
		receive := func(i, n int) {
			t.Helper()
			for range n {
				collect(t, must1(pulls[i].Recv(deadline(t)))(t))
			}
		}
		send(6)
		for i := range 3 {
			receive(i, 2)
		}
		check(t, p.Disconnect(servers[1].url("/jobs")))
		send(4)
		receive(0, 2)
		receive(2, 2)
		if got := p.PeerCount(); got != 2 {
			t.Errorf("got %d peers, want 2", got)
		}
		wantErr(t, p.Disconnect("weida://10.0.0.1:1/x"), ErrNotConnected)
	})
}

func TestAcceptorTakesBothKinds(t *testing.T) {
	overEach(t, func(t *testing.T, rig *rig) {
		s := rig.server(Options{})
		a := must1(s.Acceptor("/x"))(t)
		p := rig.runtime(Options{}).Peer(ClientTLS{})
		connect(t, p, s.url("/x"))
		out := must1(p.Open(t.Context(), Meta{}))(t)
		must1(out.Finish())(t).Discard()
		in := must1(a.Accept(t.Context()))(t)
		if rig.over == OverUnix { // where streams have no kind
			collect(t, in.Request.Body())
			check(t, in.Request.Close())
		} else if in.Transfer == nil || in.Request != nil {
			t.Fatalf("got %+v, want a transfer", in)
		} else {
			collect(t, in.Transfer)
		}
		q, reply, err := p.OpenBi(t.Context(), Meta{})
		check(t, err)
		must1(q.Finish())(t).Discard()
		in = must1(a.Accept(t.Context()))(t)
		if in.Transfer != nil || in.Request == nil {
			t.Fatalf("got %+v, want a request", in)
		}
		check(t, in.Request.Respond(t.Context(), Meta{}, []byte("yes")))
		wantErr(t, in.Request.Respond(t.Context(), Meta{}, []byte("no")), ErrReplied)
		wantErr(t, in.Request.Refuse(CodeRejected, ""), ErrReplied)
		if got := collect(t, must1(reply.Recv())(t)); got != "yes" {
			t.Errorf("got %q", got)
		}
	})
}

func TestNeverConnected(t *testing.T) {
	rt := newRig(t).runtime(Options{})
	_, err := rt.Requester(ClientTLS{}).Request(t.Context(), Meta{}, nil)
	wantErr(t, err, ErrNotConnected)
	wantErr(t, rt.Pusher(ClientTLS{}).Send(t.Context(), Meta{}, nil), ErrNotConnected)
	_, err = rt.Peer(ClientTLS{}).Open(t.Context(), Meta{})
	wantErr(t, err, ErrNotConnected)
	if !IsDefinite(err) {
		t.Error("not connected is definite")
	}
}

// Many requests at once share a link, and each gets its own reply.
func TestManyRequestsAtOnce(t *testing.T) {
	overEach(t, func(t *testing.T, rig *rig) {
		s := rig.server(Options{Limits: Limits{MaxConcurrentBidiStreams: 16}, EndpointQueue: 4})
		echo(t, must1(s.Replier("/echo"))(t))
		r := rig.runtime(Options{}).Requester(ClientTLS{})
		connect(t, r, s.url("/echo"))
		var wg sync.WaitGroup
		for i := range 64 {
			wg.Go(func() {
				body := bytes.Repeat([]byte{byte(i)}, 2000)
				in, err := r.Request(t.Context(), Meta{}, body)
				if err != nil {
					t.Error(err)
					return
				}
				if got, err := in.Collect(len(body)); err != nil || !bytes.Equal(got, body) {
					t.Errorf("request %d got another's reply, or %v", i, err)
				}
			})
		}
		wg.Wait()
	})
}

func TestCollectBounds(t *testing.T) {
	overEach(t, func(t *testing.T, rig *rig) {
		s := rig.server(Options{})
		pull := must1(s.Puller("/p"))(t)
		push := rig.runtime(Options{}).Pusher(ClientTLS{})
		connect(t, push, s.url("/p"))
		for _, size := range []int{0, 1, 511, 512, 513, 5000} {
			for _, most := range []int{0, 1, 512, 513, 5000} {
				check(t, push.Send(t.Context(), Meta{}, bytes.Repeat([]byte{1}, size)))
				got, err := must1(pull.Recv(t.Context()))(t).Collect(most)
				switch {
				case size <= most && (err != nil || len(got) != size):
					t.Errorf("%d of at most %d: got %d, %v", size, most, len(got), err)
				case size > most && !errors.Is(err, ErrLimitExceeded):
					t.Errorf("%d of at most %d: got %v, want ErrLimitExceeded", size, most, err)
				}
			}
		}
	})
}

func TestEndpointsOfAListener(t *testing.T) {
	overEach(t, func(t *testing.T, rig *rig) {
		s := rig.server(Options{})
		pull := must1(s.Puller("/p"))(t)
		_, err := s.Replier("/p")
		wantErr(t, err, ErrAlreadyRegistered)
		_, err = s.Acceptor("p")
		wantErr(t, err, ErrInvalidEndpointPath)
		check(t, pull.Close())
		check(t, pull.Close())
		_, err = pull.Recv(t.Context())
		wantErr(t, err, ErrClosed)
		again := must1(s.Puller("/p"))(t)
		if again.Path() != "/p" {
			t.Errorf("got path %q", again.Path())
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = again.Recv(ctx)
		wantErr(t, err, context.Canceled)
		check(t, s.Listener.Close())
		_, err = again.Recv(t.Context())
		wantErr(t, err, ErrClosed)
		_, err = s.Replier("/q")
		wantErr(t, err, ErrClosed)
	})
}

func TestTwoBindingsShareANamespace(t *testing.T) {
	overEach(t, func(t *testing.T, rig *rig) {
		s := rig.server(Options{})
		second := rig.bind(s)
		pull := must1(s.Puller("/p"))(t)
		push := rig.runtime(Options{}).Pusher(ClientTLS{})
		other := *s
		other.binding = second
		connect(t, push, s.url("/p"), other.url("/p"))
		var got []string
		for _, body := range []string{"a", "b"} {
			check(t, push.Send(t.Context(), Meta{}, []byte(body)))
			got = append(got, collect(t, must1(pull.Recv(t.Context()))(t)))
		}
		if !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("got %q", got)
		}
		check(t, second.Close())
		check(t, second.Close())
		check(t, push.Send(t.Context(), Meta{}, []byte("c")))
		if got := collect(t, must1(pull.Recv(t.Context()))(t)); got != "c" {
			t.Errorf("got %q through the binding that is left", got)
		}
	})
}
