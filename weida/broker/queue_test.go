package broker_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/weir-agent/weir/weida/broker"
	"github.com/weir-agent/weir/weida/wire"
)

// rig is a queue on a store that fails when it is told to, with what came out of it.
type rig struct {
	t     *testing.T
	q     *broker.Queue
	store broker.Memory
	fail  error
	out   broker.Effects
	ops   []broker.Op
}

func newRig(t *testing.T, c broker.Config, st broker.State) *rig {
	t.Helper()
	q, err := broker.NewQueue(c, st)
	if err != nil {
		t.Fatal(err)
	}
	return &rig{t: t, q: q}
}

func (r *rig) step() {
	ops := r.q.Step()
	r.ops = append(r.ops, ops...)
	errs := r.store.Append(ops)
	if r.fail != nil {
		errs = slices.Repeat([]error{r.fail}, len(ops))
	}
	e := r.q.Done(errs)
	r.out.Confirmed = append(r.out.Confirmed, e.Confirmed...)
	r.out.Refused = append(r.out.Refused, e.Refused...)
	r.out.Deliver = append(r.out.Deliver, e.Deliver...)
	r.out.Dead = append(r.out.Dead, e.Dead...)
}

// run goes on until nothing is left to do, and returns what came out since the last run.
func (r *rig) run() broker.Effects {
	for r.q.Work() {
		r.step()
	}
	out := r.out
	r.out = broker.Effects{}
	return out
}

func (r *rig) admit(topics ...string) {
	r.t.Helper()
	for _, topic := range topics {
		if _, repeat, err := r.q.Admit(&broker.Message{Topic: topic}); err != nil || repeat {
			r.t.Fatalf("Admit(%q): repeat %t, %v", topic, repeat, err)
		}
	}
}

func (r *rig) subscribe(c broker.ConsumerID, filter string, limit uint64) broker.Key {
	r.t.Helper()
	key := broker.Key{Consumer: c, Filter: filter}
	if err := r.q.Subscribe(key); err != nil {
		r.t.Fatalf("Subscribe: %v", err)
	}
	r.q.Grant(key, limit)
	return key
}

// want runs the queue and compares its deliveries, each as "consumer:seq/attempt".
func (r *rig) want(deliveries ...string) {
	r.t.Helper()
	var got []string
	for _, d := range r.run().Deliver {
		got = append(got, fmt.Sprintf("%d:%d/%d", d.Key.Consumer, d.Seq, d.Attempt))
	}
	if !slices.Equal(got, deliveries) {
		r.t.Fatalf("delivered %v, want %v", got, deliveries)
	}
}

func TestDelivery(t *testing.T) {
	for name, test := range map[string]func(r *rig){
		"nothing without credit": func(r *rig) {
			r.admit("a")
			r.subscribe(1, "", 0)
			r.want()
			r.q.Grant(broker.Key{Consumer: 1}, 1)
			r.want("1:1/1")
		},
		"credit is absolute and only rises": func(r *rig) {
			r.admit("a", "a", "a")
			key := r.subscribe(1, "", 2)
			r.want("1:1/1", "1:2/1")
			r.q.Grant(key, 2)
			r.q.Grant(key, 1)
			r.want()
			r.q.Grant(key, 3)
			r.want("1:3/1")
		},
		"subscribing again keeps credit and count": func(r *rig) {
			r.admit("a", "a", "a")
			r.subscribe(1, "", 2)
			r.want("1:1/1", "1:2/1")
			r.subscribe(1, "", 2)
			r.want()
		},
		"an early credit is held, the highest of them": func(r *rig) {
			r.admit("a", "a", "a")
			key := broker.Key{Consumer: 1}
			r.q.Grant(key, 2)
			r.q.Grant(key, 1)
			r.want()
			r.subscribe(1, "", 0)
			r.want("1:1/1", "1:2/1")
		},
		"held credits are bounded, the oldest goes": func(r *rig) {
			r.admit("a", "a")
			for c := range broker.HeldGrants + 1 {
				r.q.Grant(broker.Key{Consumer: broker.ConsumerID(c)}, 1)
			}
			r.subscribe(0, "", 0)
			r.want()
			r.subscribe(1, "", 0)
			r.want("1:1/1")
		},
		"held credits go with their connection": func(r *rig) {
			r.admit("a")
			r.q.Grant(broker.Key{Consumer: 1}, 1)
			r.q.Close(1)
			r.subscribe(1, "", 0)
			r.want()
		},
		"a new subscription starts without credit": func(r *rig) {
			r.admit("a", "a")
			key := r.subscribe(1, "", 1)
			r.want("1:1/1")
			r.q.Unsubscribe(key)
			r.subscribe(1, "", 0)
			r.want()
		},
		"the first message that somebody may take, not the head": func(r *rig) {
			r.admit("a", "b", "a", "b.c")
			r.subscribe(1, "b.#", 9)
			r.want("1:2/1", "1:4/1")
			r.subscribe(2, "a", 9)
			r.want("2:1/1", "2:3/1")
		},
		"a message without a topic is for the filters that match the empty one": func(r *rig) {
			r.admit("")
			r.subscribe(1, "a", 9)
			r.want()
			r.subscribe(2, "#", 9)
			r.want("2:1/1")
		},
		"round robin": func(r *rig) {
			r.subscribe(2, "", 9)
			r.subscribe(1, "", 9)
			r.subscribe(3, "", 1)
			r.admit("a", "a", "a", "a", "a")
			r.want("1:1/1", "2:2/1", "3:3/1", "1:4/1", "2:5/1")
		},
		"unsettled deliveries are bounded": func(r *rig) {
			r.admit("a", "a", "a", "a")
			r.subscribe(1, "", 9)
			r.want("1:1/1", "1:2/1", "1:3/1")
			r.q.Settle(2)
			r.want("1:4/1")
		},
		"what comes back keeps its place": func(r *rig) {
			r.admit("a", "a", "a")
			r.subscribe(1, "", 9)
			r.want("1:1/1", "1:2/1", "1:3/1")
			r.q.Requeue(2, 1)
			r.want("1:2/2")
			r.admit("a")
			r.q.Close(1)
			r.subscribe(2, "", 3)
			r.want("2:1/2", "2:2/3", "2:3/2")
		},
		"what an earlier attempt comes to does not touch a later one": func(r *rig) {
			r.admit("a")
			key := r.subscribe(1, "", 9)
			r.want("1:1/1")
			r.q.Unsubscribe(key)
			r.subscribe(2, "", 9)
			r.want("2:1/2")
			r.q.Requeue(1, 1)
			r.q.Failed(1, 1)
			r.want()
			if p := r.q.Peek(0, 9); len(p) != 1 || !p[0].Out || p[0].Attempts != 2 {
				r.t.Errorf("peeked %+v", p)
			}
		},
		"settled though it has come back, also while the next attempt is being stored": func(r *rig) {
			r.admit("a", "b", "c")
			key := r.subscribe(1, "", 2)
			r.want("1:1/1", "1:2/1")
			r.q.Unsubscribe(key)
			r.q.Settle(1)
			r.subscribe(2, "", 9)
			r.q.Step()
			r.q.Settle(2)
			if e := r.q.Done(nil); len(e.Deliver) != 1 || e.Deliver[0].Seq != 3 {
				r.t.Errorf("delivered %+v", e.Deliver)
			}
			if st := r.q.Stats(); st.Messages != 1 || st.Unsettled != 1 {
				r.t.Errorf("got %+v", st)
			}
		},
		"never handed out, never settled": func(r *rig) {
			r.admit("a")
			r.want()
			if r.q.Settle(1) {
				r.t.Error("settled")
			}
		},
		"settled once, settled for good": func(r *rig) {
			r.admit("a")
			key := r.subscribe(1, "", 9)
			r.want("1:1/1")
			r.q.Settle(1)
			r.q.Requeue(1, 1)
			r.q.Settle(1)
			r.q.Unsubscribe(key)
			r.subscribe(2, "", 9)
			r.want()
		},
		"a failed write is no attempt, costs no credit and goes elsewhere": func(r *rig) {
			r.admit("a")
			key := r.subscribe(1, "", 1)
			r.want("1:1/1")
			r.q.Failed(1, 1)
			r.want()
			if n, _ := r.q.Delivered(key); n != 0 {
				t.Errorf("delivered %d after a failed write", n)
			}
			r.subscribe(2, "", 1)
			r.want("2:1/1")
			r.admit("a")
			r.want("1:2/1")
		},
		"a subscription that goes while the attempt is being stored": func(r *rig) {
			r.admit("a")
			r.step()
			r.subscribe(1, "", 1)
			ops := r.q.Step()
			r.q.Close(1)
			if e := r.q.Done(r.store.Append(ops)); len(e.Deliver) != 0 {
				t.Errorf("delivered to nobody: %v", e.Deliver)
			}
			r.subscribe(2, "", 1)
			r.want("2:1/1")
		},
		"nothing goes out before the message is stored": func(r *rig) {
			r.subscribe(1, "", 1)
			r.admit("a")
			ops := r.q.Step()
			if len(ops) != 1 || ops[0].Kind != broker.OpAdmit || r.q.Step() != nil {
				t.Fatalf("step %v, then %v", ops, r.q.Step())
			}
			e := r.q.Done(nil)
			if len(e.Confirmed) != 1 || len(e.Deliver) != 0 {
				t.Fatalf("after the admission was stored: %+v", e)
			}
			if ops = r.q.Step(); len(ops) != 1 || ops[0] != (broker.Op{Kind: broker.OpAttempt, Seq: 1, Attempt: 1}) {
				t.Fatalf("step %v, want the attempt", ops)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, broker.Config{MaxUnsettled: 3}, broker.State{})
			r.t = t
			test(r)
		})
	}
}

func TestRoom(t *testing.T) {
	label := &broker.Message{Topic: "ab", ContentType: "c"}
	r := newRig(t, broker.Config{Bytes: 2*(broker.MessageCharge+3) + 10}, broker.State{})
	if got, want := r.q.Room(label), broker.MessageCharge+3+10; got != want {
		t.Fatalf("room %d, want %d", got, want)
	}
	full := *label
	full.Body = make([]byte, 11)
	r.q.Admit(label)
	if _, _, err := r.q.Admit(&full); !errors.Is(err, broker.ErrFull) {
		t.Fatalf("a body past the bound: %v", err)
	}
	full.Body = full.Body[:10]
	if _, _, err := r.q.Admit(&full); err != nil {
		t.Fatalf("a body that just fits: %v", err)
	}
	if got := r.q.Room(label); got >= 0 {
		t.Fatalf("room %d in a full queue", got)
	}
	r.subscribe(1, "", 1)
	r.run()
	if got := r.q.Room(label); got >= 0 {
		t.Fatal("an unsettled message is not charged")
	}
	r.q.Settle(1)
	if got := r.q.Room(label); got != 0 {
		t.Fatalf("room %d after a settlement, want 0: an empty body", got)
	}
}

func TestStoreRefuses(t *testing.T) {
	broken := errors.New("no space")
	id := broker.ID{1}
	r := newRig(t, broker.Config{}, broker.State{})
	r.admit("kept")
	r.run()
	r.fail = broken
	seq, _, _ := r.q.Admit(&broker.Message{ID: id, Body: []byte("x")})
	if again, repeat, err := r.q.Admit(&broker.Message{ID: id}); again != seq || !repeat || err != nil {
		t.Fatalf("repeat of a message that is being stored: %d, %t, %v", again, repeat, err)
	}
	out := r.run()
	if len(out.Confirmed) != 0 || len(out.Refused) != 1 || out.Refused[0].Seq != seq || !errors.Is(out.Refused[0].Err, broken) {
		t.Fatalf("effects %+v, want the refusal of %d", out, seq)
	}
	if st := r.q.Stats(); st.Messages != 1 || st.Bytes != broker.MessageCharge+len("kept") {
		t.Errorf("after the refusal: %+v", st)
	}
	r.subscribe(1, "", 9)
	r.want("1:1/1") // deliveries go on
	r.q.Settle(1)
	r.run()
	r.fail, r.ops = nil, nil
	seq, repeat, err := r.q.Admit(&broker.Message{ID: id})
	if repeat || err != nil {
		t.Fatalf("sent again: repeat %t, %v", repeat, err)
	}
	if out := r.run(); !slices.Equal(out.Confirmed, []broker.Seq{seq}) {
		t.Errorf("confirmed %v, want %d", out.Confirmed, seq)
	}
	if settle := (broker.Op{Kind: broker.OpSettle, Seq: 1}); r.ops[0] != settle {
		t.Errorf("first op %+v, want the settlement that failed", r.ops[0])
	}
}

func TestRepeats(t *testing.T) {
	ids := func(b byte) *broker.Message { return &broker.Message{ID: broker.ID{b}} }
	r := newRig(t, broker.Config{Window: 2}, broker.State{IDs: []broker.ID{{9}}, Next: 5})
	r.subscribe(1, "", 9)
	check := func(b byte, want bool) {
		t.Helper()
		if seq, repeat, err := r.q.Admit(ids(b)); repeat != want || err != nil || repeat && seq != 0 {
			t.Fatalf("id %d: seq %d, repeat %t, %v; want repeat %t", b, seq, repeat, err, want)
		}
		r.run()
	}
	check(9, true)
	check(1, false)
	check(1, true)
	r.q.Settle(5)
	check(1, true)
	check(2, false) // 9 goes
	check(9, false) // 1 goes
	check(2, true)
	check(1, false)
	for range 2 { // none is no id
		if _, repeat, _ := r.q.Admit(ids(0)); repeat {
			t.Fatal("a message without an id is a repeat")
		}
	}
}

func TestDeadLetters(t *testing.T) {
	r := newRig(t, broker.Config{MaxAttempts: 2}, broker.State{Next: 3, Messages: []broker.Stored{
		{Seq: 1, Message: &broker.Message{}, Attempts: 2}, {Seq: 2, Message: &broker.Message{}, Attempts: 1},
	}})
	if out := r.run(); len(out.Dead) != 1 || out.Dead[0].Seq != 1 {
		t.Fatalf("from the store: %+v", out)
	}
	r.subscribe(1, "", 9)
	r.want("1:2/2")
	r.q.Requeue(2, 2)
	if out := r.run(); len(out.Dead) != 1 || out.Dead[0].Seq != 2 || out.Dead[0].Attempt != 2 || len(out.Deliver) != 0 {
		t.Fatalf("after the last attempt: %+v", out)
	}
	if dead := r.q.Peek(0, 9); len(dead) != 2 || !dead[0].Dead || dead[1].Attempts != 2 || r.q.Stats().Dead != 2 {
		t.Fatalf("dead letters %v", dead)
	}
	r.q.Settle(1)
	r.q.Settle(2)
	r.run()
	if st := r.q.Stats(); st != (broker.Stats{Consumers: 1}) {
		t.Errorf("after they were taken: %+v", st)
	}
}

// An id that was settled here stands for no message that died elsewhere since; one that is still here does.
func TestDeadLetterOfAKnownID(t *testing.T) {
	r := newRig(t, broker.Config{}, broker.State{})
	m := &broker.Message{ID: broker.ID{1}}
	admit := func(wantSeq broker.Seq, wantRepeat bool) {
		t.Helper()
		if seq, repeat, err := r.q.AdmitDead(m); seq != wantSeq || repeat != wantRepeat || err != nil {
			t.Fatalf("AdmitDead = %d, %t, %v; want %d, %t", seq, repeat, err, wantSeq, wantRepeat)
		}
	}
	admit(1, false)
	admit(1, true)
	r.run()
	admit(0, true)
	r.subscribe(1, "", 9)
	r.want("1:1/1")
	r.q.Settle(1)
	r.run()
	if _, repeat, _ := r.q.Admit(m); !repeat {
		t.Fatal("a producer's repeat was taken in")
	}
	admit(2, false)
	r.want("1:2/1")
}

func TestPeek(t *testing.T) {
	r := newRig(t, broker.Config{}, broker.State{})
	r.admit("a", "b", "c", "d")
	if got := r.q.Peek(0, 9); len(got) != 0 {
		t.Errorf("before the store took them: %+v", got)
	}
	r.run()
	topics := func(after broker.Seq, limit int) (all string) {
		for _, p := range r.q.Peek(after, limit) {
			all += p.Message.Topic
		}
		return all
	}
	if a, b, c := topics(0, 2), topics(2, 9), topics(r.q.Newest(3), 9); a != "ab" || b != "cd" || c != "bcd" || r.q.Newest(9) != 0 {
		t.Errorf("got %q, %q, %q, newest 9 from %d", a, b, c, r.q.Newest(9))
	}
}

func TestRetire(t *testing.T) {
	r := newRig(t, broker.Config{}, broker.State{})
	r.admit("a", "a", "a", "a")
	r.subscribe(1, "", 3)
	r.want("1:1/1", "1:2/1", "1:3/1")
	r.q.Retire()
	if _, _, err := r.q.Admit(&broker.Message{}); !errors.Is(err, broker.ErrRetired) || r.q.Room(&broker.Message{}) >= 0 {
		t.Fatalf("admitted while retiring: %v", err)
	}
	r.q.Settle(1)
	r.q.Requeue(2, 1)
	r.subscribe(1, "", 4)
	r.want("1:2/2")
	if got, want := r.q.EndRetire(), (broker.Retirement{Settled: 1, Unsettled: 2, Requeued: 1}); got != want {
		t.Errorf("retired %+v, want %+v", got, want)
	}
	r.subscribe(2, "", 9)
	r.want()
	if st := r.q.Stats(); st.Messages != 3 || st.Unsettled != 0 {
		t.Errorf("after it: %+v", st)
	}
}

func TestRefusals(t *testing.T) {
	if _, err := broker.NewQueue(broker.Config{Bytes: -1}, broker.State{}); !errors.Is(err, broker.ErrConfig) {
		t.Errorf("negative bound: %v", err)
	}
	if _, err := broker.NewQueue(broker.Config{}, broker.State{Next: 1, Messages: []broker.Stored{{Seq: 1, Message: &broker.Message{}}}}); !errors.Is(err, broker.ErrConfig) {
		t.Errorf("a seq that is not below Next: %v", err)
	}
	r := newRig(t, broker.Config{}, broker.State{})
	if err := r.q.Subscribe(broker.Key{Filter: "#.a"}); !errors.Is(err, wire.ErrFilter) {
		t.Errorf("bad filter: %v", err)
	}
	for c := range broker.MaxSubscriptions {
		r.subscribe(broker.ConsumerID(c), "", 0)
	}
	if err := r.q.Subscribe(broker.Key{Consumer: broker.MaxSubscriptions}); !errors.Is(err, broker.ErrSubscriptions) {
		t.Errorf("past the bound: %v", err)
	}
	var m broker.Memory
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if errs := m.Append(make([]broker.Op, 2)); len(errs) != 2 || !errors.Is(errs[1], broker.ErrStoreClosed) {
		t.Errorf("append to a closed store: %v", errs)
	}
}

// A dead letter that comes back to the queue where it died before that has let go of it is a message of its own: nobody else has it.
func TestDeadLetterThatReturns(t *testing.T) {
	r := newRig(t, broker.Config{MaxAttempts: 1}, broker.State{})
	m := &broker.Message{ID: broker.ID{1}}
	first, _, err := r.q.Admit(m)
	if err != nil {
		t.Fatal(err)
	}
	r.subscribe(1, "", 1)
	r.want("1:1/1")
	r.q.Requeue(first, 1)
	if dead := r.run().Dead; len(dead) != 1 {
		t.Fatalf("dead %v", dead)
	}
	second, repeat, err := r.q.AdmitDead(m)
	if err != nil || repeat || second == first {
		t.Fatalf("seq %d, repeat %t, %v", second, repeat, err)
	}
	r.q.Settle(first)
	r.run()
	if got := r.q.Peek(0, 9); len(got) != 1 || got[0].Seq != second {
		t.Errorf("left %v", got)
	}
}
