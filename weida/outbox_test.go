package weida

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-agent/weir/weida/transport/simnet"
)

// outage is a pusher whose one server is gone, and who comes back with restart.
type outage struct {
	rig  *rig
	old  *server
	push *Pusher
}

func newOutage(t *testing.T, o Options) *outage {
	t.Helper()
	rig := newRig(t)
	s := rig.server(Options{})
	push := rig.runtime(o).Pusher(ClientTLS{})
	connect(t, push, s.url("/p"))
	check(t, s.rt.Shutdown())
	for push.PeerCount() > 0 {
		time.Sleep(time.Millisecond) // of the bubble's clock
	}
	synctest.Wait() // until the loss was told
	return &outage{rig, s, push}
}

func (o *outage) restart(t *testing.T, id *Identity) *Puller {
	t.Helper()
	s := o.rig.serverAt(Options{}, must1(o.rig.net.ListenAt(o.old.binding.Addr()))(t), id)
	return must1(s.Puller("/p"))(t)
}

// What is sent while nobody is there arrives in order when the server is back with its key, and is told by the events.
func TestOutboxOverARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutage(t, Options{})
		events := o.push.Events()
		body := []byte{0}
		for i := range 100 {
			body[0] = byte(i) // the outbox has a copy of its own
			check(t, o.push.Send(t.Context(), Meta{Topic: "t"}, body))
		}
		if got := o.push.Queued(); got != 100 {
			t.Errorf("got %d queued, want 100", got)
		}
		time.Sleep(time.Minute)
		pull := o.restart(t, o.old.id)
		got := map[string]bool{}
		for range 100 {
			in := must1(pull.Recv(deadline(t)))(t)
			if in.Meta().Topic.Value != "t" {
				t.Errorf("got topic %v", in.Meta().Topic)
			}
			got[collect(t, in)] = true
		}
		if len(got) != 100 || o.push.Queued() != 0 || o.push.Dropped() != 0 {
			t.Errorf("got %d messages, %d queued and %d dropped", len(got), o.push.Queued(), o.push.Dropped())
		}
		last := 0
		for {
			event := must1(events.Next(deadline(t)))(t)
			if _, ok := event.(Lost); ok && last == 0 {
				continue // of the outage itself, which may be told after its messages wait
			}
			if r, ok := event.(Retrying); ok && (r.Attempt == last+1 || last == 0) {
				last = r.Attempt
				continue
			}
			if c, ok := event.(Connected); !ok || last == 0 || c.URL != o.old.url("/p") {
				t.Errorf("after %d attempts got %+v", last, event)
			}
			break
		}
		// From now on past the outbox.
		check(t, o.push.Send(t.Context(), Meta{}, []byte("after")))
		if in := must1(pull.Recv(deadline(t)))(t); collect(t, in) != "after" {
			t.Error("what was sent after it is lost")
		}
	})
}

func TestOutboxBounds(t *testing.T) {
	tests := []struct {
		name    string
		opts    Options
		want    error // of the third message
		queued  int
		dropped uint64
	}{
		{"messages, rejected", Options{OutboxMessages: 2, OutboxFull: OutboxReject}, ErrLimitExceeded, 2, 0},
		{"messages, dropped", Options{OutboxMessages: 2, OutboxFull: OutboxDrop}, nil, 2, 1},
		{"messages, blocked", Options{OutboxMessages: 2}, context.DeadlineExceeded, 2, 0},
		{"bytes, rejected", Options{OutboxBytes: 29, OutboxFull: OutboxReject}, ErrLimitExceeded, 2, 0},
		{"bytes fit", Options{OutboxBytes: 30, OutboxFull: OutboxReject}, nil, 3, 0},
		{"more than all of it", Options{OutboxBytes: 9}, ErrLimitExceeded, 0, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := newOutage(t, tt.opts)
				var err error
				for range 3 {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					err = o.push.Send(ctx, Meta{}, make([]byte, 10))
					cancel()
				}
				if tt.want == nil {
					check(t, err)
				} else {
					wantErr(t, err, tt.want)
				}
				if o.push.Queued() != tt.queued || o.push.Dropped() != tt.dropped {
					t.Errorf("got %d queued and %d dropped, want %d and %d", o.push.Queued(), o.push.Dropped(), tt.queued, tt.dropped)
				}
			})
		})
	}
}

// Who waits for room gets it when the outbox is emptied.
func TestOutboxBlocksUntilThereIsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutage(t, Options{OutboxMessages: 1})
		check(t, o.push.Send(t.Context(), Meta{}, []byte("first")))
		done := make(chan error, 3)
		for range 3 {
			go func() { done <- o.push.Send(context.Background(), Meta{}, []byte("later")) }()
		}
		synctest.Wait()
		pull := o.restart(t, o.old.id)
		for range 4 {
			collect(t, must1(pull.Recv(deadline(t)))(t))
		}
		for range 3 {
			check(t, <-done)
		}
	})
}

// Another key at the address ends the slot; what is queued waits for another address.
func TestAnotherKeyAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutage(t, Options{})
		check(t, o.push.Send(t.Context(), Meta{}, []byte("queued")))
		events := o.push.Events()
		other := generate(t)
		o.restart(t, other)
		for {
			event := must1(events.Next(deadline(t)))(t)
			if _, ok := event.(Retrying); ok {
				continue
			}
			g, ok := event.(GaveUp)
			if !ok || g.Reason != GaveUpPeerChanged || g.Presented == nil || *g.Presented != other.Fingerprint() {
				t.Errorf("got %+v, want that %v was given up", event, other.Fingerprint())
			}
			break
		}
		wantErr(t, o.push.Send(t.Context(), Meta{}, nil), ErrConnectionLost)
		_, err := o.push.Open(t.Context(), Meta{})
		wantErr(t, err, ErrConnectionLost)
		if got := o.push.Queued(); got != 1 {
			t.Errorf("got %d queued, want 1", got)
		}
		third := o.rig.server(Options{})
		pull := must1(third.Puller("/q"))(t)
		connect(t, o.push, third.url("/q"))
		if in := must1(pull.Recv(deadline(t)))(t); collect(t, in) != "queued" {
			t.Error("the queued message is another")
		}
	})
}

// A redial wants the key that answered first, though another is trusted as well.
func TestRedialPinsTheFirstKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := newRig(t)
		s, other := rig.server(Options{}), generate(t)
		p := rig.runtime(Options{}).Peer(ClientTLS{Trust: TrustPins(s.id.Fingerprint(), other.Fingerprint())})
		check(t, p.Connect(t.Context(), "weida://"+s.binding.Addr().String()+"/p"))
		events := p.Events()
		check(t, s.rt.Shutdown())
		rig.serverAt(Options{}, must1(rig.net.ListenAt(s.binding.Addr()))(t), other)
		for {
			switch e := must1(events.Next(deadline(t)))(t).(type) {
			case Lost, Retrying:
				continue
			case GaveUp:
				if e.Reason != GaveUpPeerChanged {
					t.Errorf("got %+v", e)
				}
			default:
				t.Errorf("got %+v, want that the peer was given up", e)
			}
			return
		}
	})
}

func TestReconnectPolicies(t *testing.T) {
	tests := []struct {
		name     string
		policy   ReconnectPolicy
		retries  int
		attempts int
	}{
		{"never", ReconnectPolicy{Never: true}, 0, 0},
		{"three times", ReconnectPolicy{MaxAttempts: 3}, 3, 3},
		{"not after the peer's close", ReconnectPolicy{StopOnPeerClosed: true}, 0, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rig := newRig(t)
				s := rig.server(Options{})
				p := rig.runtime(Options{Reconnect: tt.policy}).Peer(ClientTLS{})
				events := p.Events()
				connect(t, p, s.url("/p"))
				check(t, s.rt.Shutdown())
				if _, ok := must1(events.Next(deadline(t)))(t).(Connected); !ok {
					t.Error("the first event is no Connected")
				}
				if l, ok := must1(events.Next(deadline(t)))(t).(Lost); !ok || l.Err.Cause != CausePeerClosed {
					t.Errorf("got %+v, want Lost", l)
				}
				for i := range tt.retries {
					if r, ok := must1(events.Next(t.Context()))(t).(Retrying); !ok || r.Attempt != i+1 {
						t.Errorf("got %+v, want attempt %d", r, i+1)
					}
				}
				if g, ok := must1(events.Next(t.Context()))(t).(GaveUp); !ok || g.Reason != GaveUpPolicy || g.Attempts != tt.attempts {
					t.Errorf("got %+v, want GaveUp after %d", g, tt.attempts)
				}
				_, err := p.Open(t.Context(), Meta{})
				wantErr(t, err, ErrConnectionLost)
			})
		})
	}
}

func TestReconnectDelays(t *testing.T) {
	p := ReconnectPolicy{Initial: 100 * time.Millisecond, Max: 30 * time.Second}
	plain := p
	plain.NoJitter = true
	for attempt := 1; attempt < 100; attempt++ {
		want := 30 * time.Second
		if attempt <= 9 {
			want = min(want, 100*time.Millisecond<<(attempt-1))
		}
		if got := plain.delay(attempt); got != want {
			t.Errorf("attempt %d: got %v, want %v", attempt, got, want)
		}
		if got := p.delay(attempt); got < want/2 || got > want {
			t.Errorf("attempt %d: got %v, want the upper half of %v", attempt, got, want)
		}
	}
}

// A link that stays silent is noticed, and what was opened meanwhile goes out on the next one.
func TestOpenWaitsForTheNextLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := newRig(t)
		s := rig.server(Options{})
		pull := must1(s.Puller("/p"))(t)
		p := rig.runtime(Options{}).Peer(ClientTLS{})
		connect(t, p, s.url("/p"))
		rig.net.Set(simnet.Conditions{Cut: true})
		for p.PeerCount() > 0 {
			time.Sleep(time.Second)
		}
		opened := make(chan *OutgoingTransfer)
		go func() {
			out, err := p.Open(context.Background(), Meta{})
			if err != nil {
				t.Error(err)
			}
			opened <- out
		}()
		time.Sleep(time.Minute)
		rig.net.Set(simnet.Conditions{})
		out := <-opened
		must1(out.Write(bytes.Repeat([]byte{1}, 5000)))(t)
		must1(out.Finish())(t).Discard()
		if got := collect(t, must1(pull.Recv(deadline(t)))(t)); len(got) != 5000 {
			t.Errorf("got %d bytes", len(got))
		}
	})
}

func TestEventsForSlowReaders(t *testing.T) {
	var log eventLog
	slow, fast := log.reader(), log.reader()
	for i := range eventDepth + 10 {
		log.add(Retrying{Attempt: i})
		if e := must1(fast.Next(t.Context()))(t); e != (Retrying{Attempt: i}) {
			t.Errorf("got %+v, want attempt %d", e, i)
		}
	}
	if e := must1(slow.Next(t.Context()))(t); e != (Missed{10}) {
		t.Errorf("got %+v, want 10 missed", e)
	}
	for i := 10; i < eventDepth+10; i++ {
		if e := must1(slow.Next(t.Context()))(t); e != (Retrying{Attempt: i}) {
			t.Errorf("got %+v, want attempt %d", e, i)
		}
	}
	late := log.reader()
	log.close()
	_, err := late.Next(t.Context())
	wantErr(t, err, ErrClosed)
}
