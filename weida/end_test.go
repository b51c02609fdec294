package weida

import (
	"bytes"
	"context"
	"errors"
	"io"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-agent/weir/weida/transport"
	"github.com/weir-agent/weir/weida/transport/simnet"
)

// pair is a requester, a pusher and what they are connected to.
type pair struct {
	rep  *Replier
	pull *Puller
	req  *Requester
	push *Pusher
	s    *server
	c    *Runtime
	net  *simnet.Network
}

func newPair(t testing.TB, o Options) *pair {
	return newPairOn(t, newRig(t), o)
}

func newPairOn(t testing.TB, rig *rig, o Options) *pair {
	s := rig.server(o)
	c := rig.runtime(o)
	p := &pair{
		rep: must1(s.Replier("/r"))(t), pull: must1(s.Puller("/p"))(t),
		req: c.Requester(ClientTLS{}), push: c.Pusher(ClientTLS{}), s: s, c: c, net: rig.net,
	}
	connect(t, p.req, s.url("/r"))
	connect(t, p.push, s.url("/p"))
	return p
}

// A request that is closed, or that nobody holds any more, is answered with NO_REPLY.
func TestNoReply(t *testing.T) {
	drop := map[string]func(r *IncomingRequest){
		"closed":    func(r *IncomingRequest) { check(t, r.Close()); check(t, r.Close()) },
		"forgotten": func(*IncomingRequest) {},
	}
	for name, drop := range drop {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, Options{})
			failed := make(chan error, 1)
			go func() {
				_, err := p.req.Request(context.Background(), Meta{}, nil)
				failed <- err
			}()
			drop(must1(p.rep.Accept(t.Context()))(t))
			for {
				select {
				case err := <-failed:
					wantErr(t, err, ErrNoReply)
					if IsDefinite(err) {
						t.Error("NO_REPLY is not definite")
					}
					return
				default:
					runtime.GC() // a request that is forgotten is found by it
				}
			}
		})
	}
}

// Nothing that is interrupted ends in io.EOF, whoever interrupts it.
func TestInterruptedReads(t *testing.T) {
	tests := []struct {
		name string
		do   func(p *pair, out *OutgoingTransfer, cancel context.CancelFunc)
		want error
	}{
		{"canceled", func(_ *pair, out *OutgoingTransfer, _ context.CancelFunc) { out.Cancel() }, ErrCanceled},
		{"the sender's context ends", func(_ *pair, _ *OutgoingTransfer, cancel context.CancelFunc) { cancel() }, ErrCanceled},
		{"the sender closes", func(p *pair, _ *OutgoingTransfer, _ context.CancelFunc) { _ = p.push.Close() }, ErrConnectionLost},
		{"the sender shuts down", func(p *pair, _ *OutgoingTransfer, _ context.CancelFunc) { _ = p.c.Shutdown() }, ErrConnectionLost},
		{"the receiver closes the binding", func(p *pair, _ *OutgoingTransfer, _ context.CancelFunc) { _ = p.s.binding.Close() }, ErrConnectionLost},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := newPair(t, Options{})
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			out := must1(p.push.Open(ctx, Meta{}))(t)
			defer out.Cancel()
			must1(io.WriteString(out, "part"))(t)
			in := must1(p.pull.Recv(t.Context()))(t)
			must1(io.ReadFull(in, make([]byte, 4)))(t)
			tt.do(p, out, cancel)
			_, err := io.ReadAll(in)
			wantErr(t, err, tt.want)
			check(t, in.Close())
		})
	}
}

func TestContextOfASender(t *testing.T) {
	p := newPair(t, Options{})
	ctx, cancel := context.WithCancelCause(context.Background())
	out := must1(p.push.Open(ctx, Meta{}))(t)
	why := errors.New("enough")
	cancel(why)
	var err error
	for err == nil {
		_, err = out.Write(make([]byte, 1000))
	}
	wantErr(t, err, why)
	_, err = out.Finish()
	wantErr(t, err, why)
	_, err = out.Finish()
	wantErr(t, err, ErrClosed)
	// After Finish the context means nothing to what was sent.
	ctx, cancel = context.WithCancelCause(context.Background())
	in := make(chan string)
	go func() {
		for {
			got, err := must1(p.pull.Recv(context.Background()))(t).Collect(100)
			if err == nil {
				in <- string(got)
				return
			}
		}
	}()
	out = must1(p.push.Open(ctx, Meta{}))(t)
	must1(io.WriteString(out, "whole"))(t)
	d := must1(out.Finish())(t)
	cancel(why)
	check(t, d.Wait(deadline(t)))
	if got := <-in; got != "whole" {
		t.Errorf("got %q", got)
	}
}

func TestContextOfARequester(t *testing.T) {
	p := newPair(t, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := p.req.Request(ctx, Meta{}, nil)
		failed <- err
	}()
	in := must1(p.rep.Accept(t.Context()))(t)
	select {
	case <-in.Canceled():
		t.Error("canceled too early")
	default:
	}
	cancel()
	wantErr(t, <-failed, context.Canceled)
	<-in.Canceled()
	var err error
	out, err := in.Reply(t.Context(), Meta{})
	for err == nil {
		_, err = out.Write(make([]byte, 1000))
	}
	wantErr(t, err, ErrCanceled)
	if out != nil {
		out.Cancel()
	}
}

// The context of a request governs the reading of its reply.
func TestContextOfAReply(t *testing.T) {
	p := newPair(t, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	got := make(chan *IncomingTransfer, 1)
	go func() {
		in, err := p.req.Request(ctx, Meta{}, []byte("question"))
		if err != nil {
			t.Error(err)
		}
		got <- in
	}()
	out := must1(must1(p.rep.Accept(t.Context()))(t).Reply(t.Context(), Meta{}))(t)
	defer out.Cancel()
	must1(io.WriteString(out, "part"))(t)
	in := <-got
	must1(io.ReadFull(in, make([]byte, 4)))(t)
	cancel()
	_, err := in.Read(make([]byte, 1))
	wantErr(t, err, context.Canceled)
}

// A context that ends while the reply begins ends the reply, too, wherever its reading stands.
func TestContextThatEndsAsTheReplyBegins(t *testing.T) {
	p := newPair(t, Options{})
	for range 100 {
		ctx, cancel := context.WithCancel(t.Context())
		request, reply, err := p.req.Open(ctx, Meta{})
		check(t, err)
		must1(request.Finish())(t)
		in := must1(p.rep.Accept(t.Context()))(t)
		out := must1(in.Reply(t.Context(), Meta{}))(t)
		go cancel()
		got, err := reply.Recv()
		if err == nil {
			_, err = got.Read(make([]byte, 1))
		}
		wantErr(t, err, context.Canceled)
		out.Cancel()
	}
}

// A reply that is begun refuses what was not read of the request, and is a reply all the same.
func TestReplyRefusesTheRestOfTheRequest(t *testing.T) {
	for _, size := range []int{10, 60 << 10, 4 << 20} {
		p := newPair(t, Options{})
		go func() {
			in, err := p.rep.Accept(context.Background())
			if err != nil {
				t.Error(err)
				return
			}
			if err := in.Respond(context.Background(), Meta{}, []byte("enough")); err != nil {
				t.Error(err)
			}
		}()
		in := must1(p.req.Request(t.Context(), Meta{}, make([]byte, size)))(t)
		if got := collect(t, in); got != "enough" {
			t.Errorf("%d bytes: got %q", size, got)
		}
	}
}

// A receiver that closes a transfer that does not fit into its window is heard by the writer.
func TestClosedTransferStopsItsWriter(t *testing.T) {
	p := newPair(t, Options{})
	failed := make(chan error, 1)
	go func() { failed <- p.push.Send(context.Background(), Meta{}, make([]byte, 4<<20)) }()
	in := must1(p.pull.Recv(t.Context()))(t)
	must1(io.ReadFull(in, make([]byte, 1000)))(t)
	check(t, in.Close())
	wantErr(t, <-failed, ErrRejected)
	_, err := in.Read(make([]byte, 1))
	wantErr(t, err, ErrClosed)
}

func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, Options{})
		for range 10 {
			check(t, p.push.Send(t.Context(), Meta{}, []byte("message")))
		}
		unfinished := must1(p.push.Open(t.Context(), Meta{}))(t)
		defer unfinished.Cancel()
		got := must1(p.c.Drain(time.Minute))(t)
		if got != (Drained{Delivered: 10}) {
			t.Errorf("got %+v, want 10 delivered", got)
		}
		wantErr(t, p.push.Send(t.Context(), Meta{}, nil), ErrClosed)
		_, err := p.req.Request(t.Context(), Meta{}, nil)
		wantErr(t, err, ErrClosed)
		_, err = unfinished.Write([]byte("x"))
		wantErr(t, err, ErrConnectionLost)
		wantErr(t, p.req.Connect(t.Context(), p.s.url("/r")), ErrClosed)
	})
}

// A drain whose time runs out says so in a count, and does not wait longer.
func TestDrainExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, Options{})
		p.net.Set(simnet.Conditions{Cut: true})
		for range 3 {
			check(t, p.push.Send(t.Context(), Meta{}, []byte("message")))
		}
		begin := time.Now()
		got := must1(p.c.Drain(2 * time.Second))(t)
		if got != (Drained{Outstanding: 3}) {
			t.Errorf("got %+v, want 3 outstanding", got)
		}
		if took := time.Since(begin); took < 2*time.Second || took > 4*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// A server that drains takes no links any more, and says so at once.
func TestDrainRefusesLinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, Options{})
		never := transport.NewReceipt(nil)
		p.s.rt.snapshot()[0].parking.Park(never)
		drained := make(chan Drained)
		go func() {
			d, err := p.s.rt.Drain(time.Hour)
			if err != nil {
				t.Error(err)
			}
			drained <- d
		}()
		synctest.Wait()
		begin := time.Now()
		err := p.c.Peer(ClientTLS{}).Connect(t.Context(), p.s.url("/p"))
		e, ok := errors.AsType[*transport.CloseError](err)
		if !ok || e.Code != transport.CodeShutdown || time.Since(begin) > time.Second {
			t.Errorf("got %v after %v, want a close with SHUTDOWN at once", err, time.Since(begin))
		}
		never.Settle(nil)
		if d := <-drained; d.Delivered != 1 {
			t.Errorf("got %+v", d)
		}
	})
}

// A client that drains opens nothing any more, while it waits.
func TestDrainRefusesOpens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, Options{})
		never := transport.NewReceipt(nil)
		p.c.snapshot()[0].parking.Park(never)
		drained := make(chan Drained)
		go func() {
			d, err := p.c.Drain(time.Hour)
			if err != nil {
				t.Error(err)
			}
			drained <- d
		}()
		synctest.Wait()
		wantErr(t, p.push.Send(t.Context(), Meta{}, nil), ErrClosed)
		_, err := p.req.Request(t.Context(), Meta{}, nil)
		wantErr(t, err, ErrClosed)
		never.Settle(nil)
		<-drained
	})
}

// A request that is closed refuses its body, and a transfer that is canceled keeps nothing.
func TestClosedRequestStopsItsWriter(t *testing.T) {
	p := newPair(t, Options{})
	out, reply, err := p.req.Open(t.Context(), Meta{Report: ReportOrder{Levels: []Level{LevelAccepted}}})
	check(t, err)
	check(t, must1(p.rep.Accept(t.Context()))(t).Close())
	_, err = reply.Recv()
	wantErr(t, err, ErrNoReply)
	for err = nil; err == nil; {
		_, err = out.Write(make([]byte, 1000))
	}
	wantErr(t, err, ErrRejected)
	out.Cancel()
	if n := len(out.conn.reports.byID); n != 0 {
		t.Errorf("%d reports are still awaited", n)
	}
}

// A reply may be a confirm alone: the level that was reached, and no payload.
func TestConfirm(t *testing.T) {
	p := newPair(t, Options{})
	go func() {
		in, err := p.rep.Accept(context.Background())
		if err != nil {
			t.Error(err)
			return
		}
		if _, err := in.Body().Collect(100); err != nil {
			t.Error(err)
		}
		if err := in.Respond(context.Background(), Meta{Achieved: Some(LevelStored)}, nil); err != nil {
			t.Error(err)
		}
	}()
	in := must1(p.req.Request(t.Context(), Meta{Trace: NewTrace()}, []byte("record")))(t)
	if got := in.Meta(); got.Achieved != Some(LevelStored) || got.Trace.IsZero() {
		t.Errorf("got %+v, want a confirm with the trace of its request", got)
	}
	if got := collect(t, in); got != "" {
		t.Errorf("got the payload %q", got)
	}
}

// A server that drains refuses what is new and lets what has begun come to its end.
func TestServerDrains(t *testing.T) {
	p := newPair(t, Options{})
	reply := make(chan string, 1)
	go func() {
		in, err := p.req.Request(context.Background(), Meta{}, nil)
		if err != nil {
			t.Error(err)
			reply <- ""
			return
		}
		b, err := in.Collect(100)
		if err != nil {
			t.Error(err)
		}
		reply <- string(b)
	}()
	in := must1(p.rep.Accept(t.Context()))(t)
	p.s.rt.draining.Store(true) // as Drain does first
	_, err := p.req.Request(t.Context(), Meta{}, nil)
	if !errors.Is(err, ErrCanceled) && !errors.Is(err, ErrRejected) {
		t.Errorf("a new request: got %v, want it refused", err)
	}
	out := must1(p.push.Open(t.Context(), Meta{}))(t)
	for err = nil; err == nil; {
		_, err = out.Write(make([]byte, 1000))
	}
	wantErr(t, err, ErrRejected)
	if e, ok := errors.AsType[*transport.StopError](err); !ok || e.Code != transport.CodeShutdown {
		t.Errorf("a new transfer: got %v, want a stop with SHUTDOWN", err)
	}
	out.Cancel()
	check(t, in.Respond(t.Context(), Meta{}, []byte("late")))
	if got := <-reply; got != "late" {
		t.Errorf("got %q", got)
	}
}

func TestShutdownIsIdempotent(t *testing.T) {
	p := newPair(t, Options{})
	for range 2 {
		check(t, p.s.rt.Shutdown())
	}
	_, err := p.pull.Recv(t.Context())
	wantErr(t, err, ErrClosed)
	l := p.s.rt.Listener()
	_, err = l.Puller("/x")
	wantErr(t, err, ErrClosed)
	_, err = l.BindQUIC("127.0.0.1:0", ServerTLS{Identity: p.s.id})
	wantErr(t, err, ErrClosed)
	wantErr(t, p.s.rt.Pusher(ClientTLS{}).Connect(t.Context(), p.s.url("/p")), ErrClosed)
	for range 2 {
		check(t, p.req.Close())
	}
	_, err = p.req.Request(t.Context(), Meta{}, nil)
	wantErr(t, err, ErrClosed)
}

// Nobody reads what waits at a full endpoint, so a sender comes to a halt and goes on when somebody does.
func TestFullEndpointHoldsTheSender(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, Options{EndpointQueue: 1, Limits: Limits{MaxConcurrentUniStreams: 4}})
		sent := make(chan int, 100)
		go func() {
			for i := range 20 {
				if err := p.push.Send(context.Background(), Meta{}, []byte{byte(i)}); err != nil {
					t.Error(err)
				}
				sent <- i
			}
		}()
		time.Sleep(time.Minute)
		// HELLO has ended, so the streams are four transfers: one in the queue, three before it.
		if n := len(sent); n < 4 || n > 5 {
			t.Errorf("%d were sent while nobody took any", n)
		}
		seen := map[string]bool{}
		for range 20 {
			seen[collect(t, must1(p.pull.Recv(deadline(t)))(t))] = true
		}
		if len(seen) != 20 {
			t.Errorf("%d of 20 arrived", len(seen))
		}
	})
}

func TestTooManyConnections(t *testing.T) {
	rig := newRig(t)
	s := rig.server(Options{MaxConnections: 2})
	c := rig.runtime(Options{})
	for range 2 {
		connect(t, c.Peer(ClientTLS{}), s.url("/p"))
	}
	err := c.Peer(ClientTLS{}).Connect(t.Context(), s.url("/p"))
	wantErr(t, err, ErrLimitExceeded)
}

// Under the same terms an authority is one peer, as long as a link to it lives.
func TestPeerBook(t *testing.T) {
	b := peerBook{live: make(map[bookKey]*bookEntry)}
	key, other := bookKey{authority: "a:1"}, bookKey{authority: "b:1"}
	one, two := Fingerprint{1}, Fingerprint{2}
	check(t, b.admit(key, one))
	check(t, b.admit(key, one))
	check(t, b.admit(other, two))
	err := b.admit(key, two)
	if e, ok := errors.AsType[*UntrustedError](err); !ok || e.Fingerprint != two {
		t.Errorf("got %v, want that %v is untrusted", err, two)
	}
	b.release(key)
	if b.admit(key, two) == nil {
		t.Error("another peer was taken while a link lives")
	}
	b.release(key)
	check(t, b.admit(key, two))
}

func TestTraceparent(t *testing.T) {
	good := "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	tr := must1(ParseTraceparent(good))(t)
	if tr.Traceparent() != good {
		t.Errorf("got %s back", tr.Traceparent())
	}
	must1(ParseTraceparent("01" + good[2:] + "-more"))(t)
	for name, s := range map[string]string{
		"empty": "", "short": good[:54], "long": good + "0", "version ff": "ff" + good[2:], "capitals": "00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		"no trace": "00-00000000000000000000000000000000-b7ad6b7169203331-01", "no span": "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
		"not hex": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333x-01", "separator": good[:35] + "_" + good[36:], "later version without separator": "01" + good[2:] + "x",
	} {
		if _, err := ParseTraceparent(s); !errors.Is(err, ErrTraceparent) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if n := NewTrace(); n.IsZero() || bytes.Equal(n.TraceID[:], tr.TraceID[:]) || (Trace{}).Traceparent() != "" {
		t.Errorf("got %+v", n)
	}
}
