package broker_test

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/weir-agent/weir/weida/broker"
	"github.com/weir-agent/weir/weida/wire"
)

// model is what a queue is held to: what of each message is known outside of it.
type model struct {
	config    broker.Config
	q         *broker.Queue
	messages  map[broker.Seq]*broker.Message // admitted, not refused, not settled
	confirmed map[broker.Seq]bool
	out       map[broker.Seq]broker.Delivery
	attempts  map[broker.Seq]uint64
	dead      map[broker.Seq]bool
	limits    map[broker.Key]uint64
	delivered map[broker.Key]uint64
	failed    bool // a write failed, and nothing that must begin a new round happened since: a subscription may wait
}

var errModel = errors.New("store")

func (m *model) step(t *rapid.T) {
	ops := m.q.Step()
	var errs []error
	if rapid.IntRange(0, 3).Draw(t, "store") == 0 {
		for range ops {
			var err error
			if rapid.Bool().Draw(t, "fails") {
				err = errModel
			}
			errs = append(errs, err)
		}
	}
	e := m.q.Done(errs)
	for _, r := range e.Refused {
		delete(m.messages, r.Seq)
	}
	for _, seq := range e.Confirmed {
		m.confirmed[seq] = true
	}
	for _, d := range e.Dead {
		if m.attempts[d.Seq] < m.config.MaxAttempts {
			t.Fatalf("%d is dead after %d attempts", d.Seq, m.attempts[d.Seq])
		}
		m.dead[d.Seq] = true
	}
	for _, d := range e.Deliver {
		m.deliver(t, d)
	}
}

func (m *model) deliver(t *rapid.T, d broker.Delivery) {
	m.attempts[d.Seq]++
	m.delivered[d.Key]++
	_, twice := m.out[d.Seq]
	limit, there := m.limits[d.Key]
	switch {
	case twice || m.dead[d.Seq] || !m.confirmed[d.Seq] || m.messages[d.Seq] != d.Message:
		t.Fatalf("%d handed out twice, or not in the queue: %+v", d.Seq, d)
	case !there || m.delivered[d.Key] > limit:
		t.Fatalf("delivery %d of %v with a credit of %d", m.delivered[d.Key], d.Key, limit)
	case d.Attempt != m.attempts[d.Seq]:
		t.Fatalf("%d has attempt %d, want %d", d.Seq, d.Attempt, m.attempts[d.Seq])
	case !wire.Match(d.Key.Filter, d.Message.Topic):
		t.Fatalf("%q does not match %q", d.Message.Topic, d.Key.Filter)
	}
	m.out[d.Seq] = d
}

// check holds the books of a queue that is at rest, and that nobody waits for a message that is there.
func (m *model) check(t *rapid.T) {
	bytes := 0
	unsettled := map[broker.Key]int{}
	for _, d := range m.out {
		unsettled[d.Key]++
	}
	for seq, msg := range m.messages {
		bytes += broker.MessageCharge + len(msg.Topic) + len(msg.Body)
		if _, out := m.out[seq]; out || m.dead[seq] || m.failed {
			continue
		}
		for key, limit := range m.limits {
			if m.delivered[key] < limit && unsettled[key] < m.config.MaxUnsettled && wire.Match(key.Filter, msg.Topic) {
				t.Fatalf("%d waits, and %v could have it", seq, key)
			}
		}
	}
	want := broker.Stats{Messages: len(m.messages), Unsettled: len(m.out), Dead: len(m.dead), Bytes: bytes, Consumers: len(m.limits)}
	if got := m.q.Stats(); got != want {
		t.Fatalf("stats %+v, want %+v", got, want)
	}
	for key, n := range unsettled {
		if n > m.config.MaxUnsettled {
			t.Fatalf("%v has %d unsettled deliveries", key, n)
		}
	}
}

func (m *model) end(key broker.Key) {
	delete(m.limits, key)
	delete(m.delivered, key)
	for seq, d := range m.out {
		if d.Key == key {
			delete(m.out, seq)
		}
	}
}

// event does one thing that a queue may see.
func (m *model) event(t *rapid.T) {
	key := broker.Key{Consumer: broker.ConsumerID(rapid.IntRange(1, 3).Draw(t, "consumer")), Filter: rapid.SampledFrom([]string{"", "a", "*.b"}).Draw(t, "filter")}
	_, subscribed := m.limits[key]
	seq := broker.Seq(rapid.IntRange(1, 30).Draw(t, "seq"))
	delivery, out := m.out[seq]
	switch rapid.IntRange(0, 9).Draw(t, "event") {
	case 0, 1, 2:
		msg := &broker.Message{Topic: rapid.SampledFrom([]string{"", "a", "a.b"}).Draw(t, "topic"), Body: make([]byte, rapid.IntRange(0, 600).Draw(t, "body"))}
		room := m.q.Room(msg)
		seq, _, err := m.q.Admit(msg)
		if (err == nil) != (room >= len(msg.Body)) {
			t.Fatalf("admitted %d bytes with room for %d: %v", len(msg.Body), room, err)
		}
		if err == nil {
			m.messages[seq], m.failed = msg, false
		}
	case 3:
		if err := m.q.Subscribe(key); err != nil {
			t.Fatal(err)
		}
		if !subscribed {
			m.limits[key] = 0
		}
	case 4, 5:
		if subscribed {
			limit := rapid.Uint64Range(0, 40).Draw(t, "limit")
			m.q.Grant(key, limit)
			m.limits[key] = max(m.limits[key], limit)
		}
	case 6:
		m.q.Unsubscribe(key)
		m.end(key)
	case 7:
		settled := m.q.Settle(seq)
		if want := m.messages[seq] != nil && m.attempts[seq] > 0; settled != want {
			t.Fatalf("Settle(%d) = %t after %d attempts, out: %t", seq, settled, m.attempts[seq], out)
		}
		if settled {
			delete(m.out, seq)
			delete(m.dead, seq)
			delete(m.messages, seq)
		}
	case 8:
		m.q.Requeue(seq, delivery.Attempt)
		delete(m.out, seq)
	case 9:
		m.q.Failed(seq, delivery.Attempt)
		if out {
			m.attempts[seq]--
			m.delivered[m.out[seq].Key]--
			delete(m.out, seq)
			m.failed = true
		}
	}
}

func TestQueueHoldsItsPromises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &model{
			config: broker.Config{
				Bytes: 4000, MaxUnsettled: rapid.IntRange(1, 3).Draw(t, "unsettled"), MaxAttempts: rapid.Uint64Range(0, 3).Draw(t, "attempts"),
			},
			messages: map[broker.Seq]*broker.Message{}, confirmed: map[broker.Seq]bool{}, out: map[broker.Seq]broker.Delivery{},
			attempts: map[broker.Seq]uint64{}, dead: map[broker.Seq]bool{}, limits: map[broker.Key]uint64{}, delivered: map[broker.Key]uint64{},
		}
		var err error
		if m.q, err = broker.NewQueue(m.config, broker.State{}); err != nil {
			t.Fatal(err)
		}
		for range rapid.IntRange(1, 80).Draw(t, "events") {
			m.event(t)
			for m.q.Work() {
				m.step(t)
			}
			m.check(t)
		}
	})
}
