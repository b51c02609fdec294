package weida

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-agent/weir/weida/wire"
)

func TestPairBothWays(t *testing.T) { overEach(t, testPairBothWays) }

func testPairBothWays(t *testing.T, rig *rig) {
	s := rig.server(ordering(wire.OrderDetect))
	bound := must1(s.Pair("/pair"))(t)
	// The first send of the bound half waits for somebody, who need not have sent anything.
	sent := make(chan error, 1)
	go func() { sent <- bound.Send(context.Background(), Meta{}, []byte("first")) }()
	dialled := rig.runtime(ordering(wire.OrderDetect)).Pair(ClientTLS{})
	connect(t, dialled, s.url("/pair"))
	wantErr(t, dialled.Connect(t.Context(), s.url("/pair")), ErrLimitExceeded)
	wantErr(t, dialled.Connect(t.Context(), s.url("/other")), ErrLimitExceeded)
	check(t, <-sent)
	if got := received(t, dialled); got != "=first" {
		t.Errorf("got %q", got)
	}
	for i := range 3 {
		for from, to := range map[interface {
			Send(ctx context.Context, meta Meta, body []byte) error
		}]interface {
			Recv(ctx context.Context) (*IncomingTransfer, error)
		}{bound: dialled, dialled: bound} {
			check(t, from.Send(t.Context(), Meta{Topic: fmt.Sprint(i)}, []byte("x")))
			in := must1(to.Recv(deadline(t)))(t)
			want := uint64(i + 1)
			if to == any(dialled) {
				want++ // behind the first
			}
			if m := in.Meta(); m.Sequence.Value != want || m.Gap != (Gap{}) || m.Endpoint != "/pair" {
				t.Errorf("got %+v, want number %d", m, want)
			}
			collect(t, in)
		}
	}
	check(t, bound.Close())
	_, err := bound.Recv(t.Context())
	wantErr(t, err, ErrClosed)
	wantErr(t, bound.Send(t.Context(), Meta{}, nil), ErrClosed)
	check(t, dialled.Close())
	_, err = dialled.Recv(t.Context())
	wantErr(t, err, ErrClosed)
}

// A second peer is refused while the first lives, and has its place afterwards.
func TestPairKeepsItsFirstPeer(t *testing.T) { overEach(t, testPairKeepsItsFirstPeer) }

func testPairKeepsItsFirstPeer(t *testing.T, rig *rig) {
	s := rig.server(Options{})
	bound := must1(s.Pair("/pair"))(t)
	first := rig.runtime(Options{}).Pair(ClientTLS{})
	connect(t, first, s.url("/pair"))
	s.subscribers(t, "/pair", 1, 1)
	second := rig.runtime(Options{}).Pair(ClientTLS{})
	connect(t, second, s.url("/pair"))
	s.subscribers(t, "/pair", 2, 2)
	// So much that the refusal is certain to be seen.
	out := must1(second.Open(t.Context(), Meta{}))(t)
	var err error
	for i := 0; i < 64 && err == nil; i++ {
		_, err = out.Write(make([]byte, 1<<20))
	}
	want := ErrLimitExceeded
	if rig.over == OverUnix {
		want = ErrCanceled // a refusal has no code there
	}
	wantErr(t, err, want)
	out.Cancel()
	check(t, bound.Send(t.Context(), Meta{}, []byte("to the first")))
	if got := received(t, first); got != "=to the first" {
		t.Errorf("got %q", got)
	}
	check(t, first.Close())
	s.subscribers(t, "/pair", 1, 1)
	check(t, bound.Send(t.Context(), Meta{}, []byte("to the second")))
	if got := received(t, second); got != "=to the second" {
		t.Errorf("got %q", got)
	}
	check(t, second.Send(t.Context(), Meta{}, []byte("welcome")))
	if got := received(t, bound); got != "=welcome" {
		t.Errorf("got %q", got)
	}
	if second.PeerCount() != 1 || second.Dropped() != 0 || second.Queued() != 0 {
		t.Error("the second has lost something")
	}
}

func TestSurvey(t *testing.T) { overEach(t, testSurvey) }

func testSurvey(t *testing.T, rig *rig) {
	surveyor := rig.runtime(Options{}).Surveyor(ClientTLS{})
	empty := must1(surveyor.Survey(t.Context(), Meta{}, nil, time.Hour))(t)
	_, err := empty.Next(t.Context())
	wantErr(t, err, io.EOF)
	check(t, empty.Close())

	body := bytes.Repeat([]byte{'q'}, 2*inlineRequest)
	var want []string
	for range 3 {
		s := rig.server(Options{})
		echo(t, must1(s.Replier("/q"))(t))
		connect(t, surveyor, s.url("/q"))
		want = append(want, s.url("/q"))
	}
	silent := rig.server(Options{})
	connect(t, surveyor, silent.url("/q"))
	run := must1(surveyor.Survey(t.Context(), Meta{}, body, time.Hour))(t)
	defer run.Close()
	var got []string
	failures := 0
	for {
		a, err := run.Next(deadline(t))
		if err == io.EOF {
			break
		}
		check(t, err)
		if a.Err != nil {
			wantErr(t, a.Err, ErrUnknownEndpoint)
			failures++
			continue
		}
		if text := collect(t, a.Reply); text != string(body) {
			t.Errorf("got %d bytes", len(text))
		}
		if _, ok := a.Peer.Fingerprint(); ok != (rig.over == OverQUIC) {
			t.Errorf("an answer is of %v", a.Peer)
		}
		got = append(got, a.URL)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) || failures != 1 || run.Late() != 0 {
		t.Errorf("got answers of %v, %d failures, %d late", got, failures, run.Late())
	}
	check(t, surveyor.Close())
	_, err = surveyor.Survey(t.Context(), Meta{}, nil, time.Hour)
	wantErr(t, err, ErrClosed)
}

// What comes in time is returned however late it is asked for; what comes late is counted; and the end of the run ends the exchanges.
func TestSurveyDeadline(t *testing.T) {
	for _, over := range []Carrier{OverQUIC, OverInproc} { // a real socket hangs in a bubble
		t.Run(over.scheme(), func(t *testing.T) { testSurveyDeadline(t, over) })
	}
}

func testSurveyDeadline(t *testing.T, over Carrier) {
	synctest.Test(t, func(t *testing.T) {
		rig := newRig(t)
		rig.over = over
		surveyor := rig.runtime(Options{}).Surveyor(ClientTLS{})
		var repliers []*Replier
		for range 3 {
			s := rig.server(Options{})
			repliers = append(repliers, must1(s.Replier("/q"))(t))
			connect(t, surveyor, s.url("/q"))
		}
		run := must1(surveyor.Survey(t.Context(), Meta{}, nil, time.Minute))(t)
		inTime := must1(repliers[0].Accept(t.Context()))(t)
		check(t, inTime.Respond(t.Context(), Meta{}, []byte("in time")))
		time.Sleep(2 * time.Minute) // of the bubble's clock
		a := must1(run.Next(t.Context()))(t)
		if got := collect(t, a.Reply); got != "in time" {
			t.Errorf("got %q", got)
		}
		_, err := run.Next(t.Context())
		wantErr(t, err, io.EOF)
		// Nobody wants it, which it may learn before it is written whole.
		if err := must1(repliers[1].Accept(t.Context()))(t).Respond(t.Context(), Meta{}, nil); err != nil {
			wantErr(t, err, ErrRejected)
		}
		synctest.Wait()
		time.Sleep(time.Second)
		if got := run.Late(); got != 1 {
			t.Errorf("%d were late, want 1", got)
		}
		never := must1(repliers[2].Accept(t.Context()))(t)
		check(t, run.Close())
		check(t, run.Close())
		<-never.Canceled()
		check(t, never.Close())
		check(t, surveyor.Close())
	})
}

// bus makes members that have all dialled each other.
func (r *rig) bus(o Options, n int) (members []*BusMember) {
	r.t.Helper()
	var urls []string
	for i := range n {
		s := r.server(o)
		path := fmt.Sprintf("/member/%d", i)
		members = append(members, must1(s.Bus(path, ClientTLS{}))(r.t))
		urls = append(urls, s.url(path))
	}
	for i, m := range members {
		for j, url := range urls {
			if i != j {
				connect(r.t, m, url)
			}
		}
	}
	return members
}

func TestBus(t *testing.T) { overEach(t, testBus) }

func testBus(t *testing.T, rig *rig) {
	alone := must1(rig.server(Options{}).Bus("/alone", ClientTLS{}))(t)
	if n, err := alone.Send(Meta{}, nil); n != 0 || err != nil {
		t.Errorf("got %d, %v", n, err)
	}
	members := rig.bus(ordering(wire.OrderDetect), 3)
	for i, m := range members {
		for k, body := range []string{"short", string(bytes.Repeat([]byte{'x'}, 2*joinedBytes))} {
			ours := []byte(body)
			if n := must1(m.Send(Meta{Topic: m.Path()}, ours))(t); n != 2 {
				t.Errorf("queued for %d, want 2", n)
			}
			clear(ours) // it is ours again
			for j, other := range members {
				if i == j {
					continue
				}
				in := must1(other.Recv(deadline(t)))(t)
				if mt := in.Meta(); mt.Topic.Value != m.Path() || mt.Endpoint != other.Path() || mt.Sequence.Value != uint64(k+1) || mt.Gap != (Gap{}) {
					t.Errorf("got %+v", mt)
				}
				if got := collect(t, in); got != body {
					t.Errorf("got %d bytes, want %d", len(got), len(body))
				}
			}
		}
	}
	report := Meta{Report: ReportOrder{Levels: []Level{LevelProcessed}}}
	_, err := members[0].Send(report, nil)
	wantErr(t, err, ErrUnsupported)
	check(t, members[2].Close())
	_, err = members[2].Send(Meta{}, nil)
	wantErr(t, err, ErrClosed)
	_, err = members[2].Recv(t.Context())
	wantErr(t, err, ErrClosed)
}

// A member that is away, or does not keep up, loses copies that are counted, and nobody else does.
func TestBusDrops(t *testing.T) { overEach(t, testBusDrops) }

func testBusDrops(t *testing.T, rig *rig) {
	const room = 3 << 20
	o := Options{EndpointQueue: 4, Limits: Limits{SubscriberBufferBytes: room}, Reconnect: ReconnectPolicy{Never: true}}
	members := rig.bus(o, 3)
	m, slow, quick := members[0], members[1], members[2]
	_, err := m.Send(Meta{}, make([]byte, room+1))
	wantErr(t, err, ErrLimitExceeded)
	// The slow one's window holds one; one is being written to it, and one more waits.
	sent := 0
	for range 8 {
		n := must1(m.Send(Meta{}, make([]byte, windowful)))(t)
		sent += n - 1
		if got := len(received(t, quick)); got != windowful+1 {
			t.Fatalf("got %d bytes", got)
		}
	}
	if d := m.Dropped(); sent == 8 || d.OverBytes != uint64(8-sent) || d.Failed != 0 {
		t.Errorf("queued %d of 8 for the slow one, dropped %+v", sent, d)
	}
	// Its end loses what waited for it, and every copy from then on.
	waited := m.Dropped().Total()
	check(t, slow.set.rt.Shutdown())
	for ctx := deadline(t); m.PeerCount() != 1 && ctx.Err() == nil; {
		breathe()
	}
	if n := must1(m.Send(Meta{}, nil))(t); n != 1 {
		t.Errorf("queued for %d, want 1", n)
	}
	received(t, quick)
	if d := m.Dropped(); d.Total() <= waited || d.Failed == 0 {
		t.Errorf("dropped %+v, want the copies of the one that is away, too", d)
	}
}
