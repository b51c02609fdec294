package weida

import (
	"context"
	"errors"
	"io"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-agent/weir/weida/transport"
	"github.com/weir-agent/weir/weida/wire"
)

// ordered opens a transfer with an order, and returns both its ends.
func ordered(t *testing.T, order ReportOrder, body string) (*Cursors, *IncomingTransfer) {
	t.Helper()
	rig := newRig(t)
	s := rig.server(Options{})
	pull := must1(s.Puller("/p"))(t)
	push := rig.runtime(Options{}).Pusher(ClientTLS{})
	connect(t, push, s.url("/p"))
	out := must1(push.Open(t.Context(), Meta{Report: order}))(t)
	must1(io.WriteString(out, body))(t)
	must1(out.Finish())(t).Discard()
	return out.Cursors(), must1(pull.Recv(t.Context()))(t)
}

func TestReportOnAPush(t *testing.T) {
	const stage = FirstApplicationLevel + 1
	cursors, in := ordered(t, ReportOrder{Levels: []Level{LevelAccepted, LevelProcessed, stage}}, "0123456789")
	r := in.Reporter()
	if r == nil || r != in.Reporter() {
		t.Fatal("an order has one reporter")
	}
	if got := in.Meta().Report.Levels; len(got) != 3 || got[2] != stage || r.FinalOnly() || len(r.Levels()) != 3 {
		t.Errorf("got the order %+v", in.Meta().Report)
	}
	collect(t, in)
	r.Report(LevelAccepted, 10)
	check(t, cursors.Wait(deadline(t), LevelAccepted, 10))
	r.Report(stage, 7)
	r.Report(stage, 3) // behind what was said
	r.Report(LevelStored, 10)
	r.Finish()
	r.Report(LevelProcessed, 10) // too late
	r.Finish()
	for {
		if err := cursors.Changed(deadline(t)); err != nil {
			wantErr(t, err, ErrReportEnded)
			break
		}
	}
	want := map[Level]uint64{LevelAccepted: 10, stage: 7}
	if got := cursors.Snapshot(); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if _, ok := cursors.Offset(LevelProcessed); ok {
		t.Error("a level that nobody reported is there")
	}
	wantErr(t, cursors.Wait(deadline(t), LevelProcessed, 1), ErrReportEnded)
}

// A drain waits for a report that was finished before it, whatever had been written of it: until the peer's transport has it, and within a machine until it was read.
func TestDrainWaitsForReports(t *testing.T) {
	for name, finish := range map[string]func(*Reporter){
		"reported":               func(r *Reporter) { r.Report(LevelProcessed, 4) },
		"nothing to be reported": func(*Reporter) {},
	} {
		overEach(t, func(t *testing.T, rig *rig) {
			for range 20 {
				p := newPairOn(t, rig, Options{})
				out := must1(p.push.Open(t.Context(), Meta{Report: ReportOrder{Levels: []Level{LevelProcessed}}}))(t)
				must1(io.WriteString(out, "body"))(t)
				must1(out.Finish())(t).Discard()
				in := must1(p.pull.Recv(t.Context()))(t)
				collect(t, in)
				finish(in.Reporter())
				in.Reporter().Finish()
				if d := must1(p.s.rt.Drain(time.Minute))(t); d.Delivered < 1 || d.Outstanding != 0 {
					t.Fatalf("drained %+v", d)
				}
				<-out.Cursors().over
				if rig.over == OverQUIC {
					continue // the peer's transport has it; a link that ends may be faster than who reads it
				}
				if _, ok := out.Cursors().Offset(LevelProcessed); ok != (name == "reported") {
					t.Fatalf("%s: arrived: %t", name, ok)
				}
			}
		})
	}
}

// count is how many reports are being written, and how many wait.
func (p *reportPlaces) count() (taken, waiting int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.taken, len(p.waiting)
}

// Of more reports than may be written at a time none is forgotten: those that wait are written when others have ended.
func TestReportsWaitForTheirPlace(t *testing.T) {
	const most, n = 2, 9
	p := newPair(t, Options{Limits: Limits{MaxConcurrentUniStreams: most}})
	var cursors []*Cursors
	var reporters []*Reporter
	for range n {
		out := must1(p.push.Open(t.Context(), Meta{Report: ReportOrder{Levels: []Level{LevelProcessed}}}))(t)
		must1(io.WriteString(out, "body"))(t)
		must1(out.Finish())(t).Discard()
		in := must1(p.pull.Recv(t.Context()))(t)
		collect(t, in)
		in.Reporter().Report(LevelProcessed, 4)
		cursors, reporters = append(cursors, out.Cursors()), append(reporters, in.Reporter())
	}
	for _, r := range reporters {
		r.Finish()
	}
	for i, c := range cursors {
		if err := c.Wait(deadline(t), LevelProcessed, 4); err != nil {
			t.Fatalf("report %d: %v", i, err)
		}
	}
}

func TestReportFinalOnly(t *testing.T) {
	cursors, in := ordered(t, ReportOrder{Levels: []Level{LevelStored}, FinalOnly: true}, "0123456789")
	r := in.Reporter()
	for n := range uint64(10) {
		r.Report(LevelStored, n+1)
	}
	r.Finish()
	check(t, cursors.Changed(deadline(t)))
	if got, _ := cursors.Offset(LevelStored); got != 10 {
		t.Errorf("the first record is %d, want the last offset", got)
	}
	wantErr(t, cursors.Changed(deadline(t)), ErrReportEnded)
	collect(t, in)
}

// Progress is told at once, then each 100 ms or each MiB, whichever comes first.
func TestReportPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cursors, in := ordered(t, ReportOrder{Levels: []Level{LevelProcessed}}, "")
		collect(t, in)
		r := in.Reporter()
		said := func(offset uint64) {
			t.Helper()
			synctest.Wait()
			if got, _ := cursors.Offset(LevelProcessed); got != offset {
				t.Errorf("got %d, want %d", got, offset)
			}
		}
		r.Report(LevelProcessed, 1)
		time.Sleep(time.Millisecond)
		said(1)
		r.Report(LevelProcessed, 2)
		time.Sleep(90 * time.Millisecond)
		said(1)
		time.Sleep(20 * time.Millisecond)
		said(2)
		r.Report(LevelProcessed, 2+1<<20)
		time.Sleep(time.Millisecond)
		said(2 + 1<<20)
		r.Report(LevelProcessed, 3+1<<20)
		r.Finish()
		time.Sleep(time.Millisecond)
		said(3 + 1<<20)
	})
}

// Both directions of an exchange can order a report, and each has its own.
func TestReportsOfAnExchange(t *testing.T) {
	rig := newRig(t)
	s := rig.server(Options{})
	rep := must1(s.Replier("/r"))(t)
	req := rig.runtime(Options{}).Requester(ClientTLS{})
	connect(t, req, s.url("/r"))
	order := Meta{Report: ReportOrder{Levels: []Level{LevelProcessed}}}
	out, reply, err := req.Open(t.Context(), order)
	check(t, err)
	must1(io.WriteString(out, "question"))(t)
	must1(out.Finish())(t).Discard()
	in := must1(rep.Accept(t.Context()))(t)
	body := in.TakeBody()
	collect(t, body)
	answer := must1(in.Reply(t.Context(), order))(t)
	must1(io.WriteString(answer, "yes"))(t)
	must1(answer.Finish())(t).Discard()
	body.Reporter().Report(LevelProcessed, 8)
	body.Reporter().Finish()
	got := must1(reply.Recv())(t)
	collect(t, got)
	got.Reporter().Report(LevelProcessed, 3)
	got.Reporter().Finish()
	check(t, out.Cursors().Wait(deadline(t), LevelProcessed, 8))
	check(t, answer.Cursors().Wait(deadline(t), LevelProcessed, 3))
}

func TestNoReport(t *testing.T) {
	cursors, in := ordered(t, ReportOrder{}, "body")
	if cursors != nil || in.Reporter() != nil {
		t.Errorf("without an order there are %v and %v", cursors, in.Reporter())
	}
	collect(t, in)
}

// A report nobody wants any more is turned away, and one that never comes ends with the link.
func TestReportEnds(t *testing.T) {
	rig := newRig(t)
	s := rig.server(Options{})
	pull := must1(s.Puller("/p"))(t)
	push := rig.runtime(Options{}).Pusher(ClientTLS{})
	connect(t, push, s.url("/p"))
	meta := Meta{Report: ReportOrder{Levels: []Level{LevelAccepted}}}
	closed := must1(push.Open(t.Context(), meta))(t)
	waits := must1(push.Open(t.Context(), meta))(t)
	must1(closed.Finish())(t).Discard()
	must1(waits.Finish())(t).Discard()
	check(t, closed.Cursors().Close())
	check(t, closed.Cursors().Close())
	wantErr(t, closed.Cursors().Changed(t.Context()), ErrReportEnded)
	for range 2 {
		in := must1(pull.Recv(t.Context()))(t)
		in.Reporter().Report(LevelAccepted, 0)
	}
	check(t, waits.Cursors().Wait(deadline(t), LevelAccepted, 0))
	if _, ok := closed.Cursors().Offset(LevelAccepted); ok {
		t.Error("a report that was closed goes on")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	never := must1(push.Open(t.Context(), meta))(t)
	wantErr(t, never.Cursors().Changed(ctx), context.Canceled)
	check(t, push.Close())
	wantErr(t, waits.Cursors().Wait(deadline(t), LevelAccepted, 1), ErrReportEnded)
	wantErr(t, never.Cursors().Changed(deadline(t)), ErrReportEnded)
}

// The records of a report, as a peer may send them.
func TestCursorStreams(t *testing.T) {
	tests := []struct {
		name    string
		records []byte
		fin     bool
		want    uint64
		code    uint64 // with which the link is closed; 0 for none
	}{
		{"one by one", []byte{2, 1, 2, 2}, true, 2, 0},
		{"backwards", []byte{2, 9, 2, 3}, true, 9, 0},
		{"levels nobody ordered", []byte{3, 50, 2, 5, 17, 60}, true, 5, 0},
		{"long", make([]byte, 2000), true, 0, 0},
		{"cut", []byte{2, 5, 2}, true, 0, transport.CodeProtocolViolation},
		{"reserved level", []byte{2, 5, 6, 1}, false, 0, transport.CodeProtocolViolation},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			rig := newRig(t)
			s := rig.server(Options{})
			rep := must1(s.Replier("/r"))(t)
			link := rig.raw(s)
			sendUni(t, link, helloFrame(t, plainHello()), true)
			w, _, err := link.OpenBi(t.Context())
			check(t, err)
			must1(w.Write(dataFrame(t, "/r")))(t)
			in := must1(rep.Accept(t.Context()))(t)
			out := must1(in.Reply(t.Context(), Meta{Report: ReportOrder{Levels: []Level{2}}}))(t)
			defer out.Cancel()
			head := must1(wire.AppendCursor(nil, 1, 1024))(t)
			sendUni(t, link, append(head, tt.records...), tt.fin)
			if tt.code != 0 {
				wantClose(t, link, tt.code)
				return
			}
			for err == nil {
				err = out.Cursors().Changed(deadline(t))
			}
			wantErr(t, err, ErrReportEnded)
			if got, _ := out.Cursors().Offset(2); got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
			// It has had its stream: another is turned away.
			again := sendUni(t, link, head, false)
			<-again.Done()
			if e, ok := errors.AsType[*transport.StopError](again.Err()); !ok || e.Code != transport.CodeCanceled {
				t.Errorf("a second stream: got %v, want CANCELED", again.Err())
			}
		})
	}
}

// Reports without a place wait in their order, so many at most; one more is not made.
func TestReportsThatWaitAreBounded(t *testing.T) {
	p := reportPlaces{most: 1}
	if !p.enter(&Reporter{}) {
		t.Fatal("the first has no place")
	}
	first, last, beyond := &Reporter{}, &Reporter{}, &Reporter{}
	waiting := append(append([]*Reporter{first}, make([]*Reporter, maxWaitingReports-2)...), last)
	for i, r := range waiting {
		if r == nil {
			waiting[i] = &Reporter{}
		}
		if p.enter(waiting[i]) {
			t.Fatalf("number %d has a place", i)
		}
	}
	if p.enter(beyond) || !beyond.ended || last.ended {
		t.Errorf("beyond the bound: ended %v, and the last within it %v", beyond.ended, last.ended)
	}
	for i, want := range waiting {
		if got := p.leave(); got != want {
			t.Fatalf("the place goes to another than number %d", i)
		}
	}
	if p.leave() != nil || !p.enter(&Reporter{}) {
		t.Error("the place was not given back")
	}
}
