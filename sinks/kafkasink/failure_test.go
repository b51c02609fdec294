//go:build !nokafka

package kafkasink

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-agent/weir/sinks"
	"github.com/weir-agent/weir/sinks/kafkasink/kafkatest"
	"github.com/weir-agent/weir/sinks/sinktest"
)

// broker is a server with all listeners, and what stands before one of them.
type broker struct {
	*kafkatest.Server
	proxy         *sinktest.Proxy
	ca, cert, key string
}

// TestBroker runs all that needs no kill against one real broker, as one takes seconds to start.
func TestBroker(t *testing.T) {
	b := broker{}
	b.ca, b.cert, b.key = sinktest.NewAuthority(t, "ours").Files(t, "server")
	b.Server = kafkatest.Start(t, kafkatest.Config{CA: b.ca, Cert: b.cert, Key: b.key, Proxy: func(address string) string {
		b.proxy = sinktest.NewProxy(t, "tcp", address)
		return b.proxy.Address
	}})
	for name, test := range map[string]func(*testing.T, broker){
		"outcomes": testOutcomes, "logins": testLogins, "TLS": testTLS, "partitions and keys": testPlaces, "topic made anew": testTopicMadeAnew,
		"files are read again": testFilesAreReadAgain, "no ack in time": testNoAckInTime, "cancel ends a write": testCancelEndsAWrite,
		"room is waited for": testRoomIsWaitedFor, "close ends a dial": testCloseEndsADial, "a large record among others": testLargeAmongOthers,
	} {
		t.Run(name, func(t *testing.T) { test(t, b) })
	}
}

// wantOutcomes checks the verdicts, the last of want being that of all that follow, and what the last reason begins with.
func wantOutcomes(t *testing.T, out []sinks.Outcome, n int, reason string, want ...sinks.Verdict) {
	t.Helper()
	if len(out) != n {
		t.Fatalf("%d outcomes for %d records", len(out), n)
	}
	for i, o := range out {
		v := want[min(i, len(want)-1)]
		if o.Verdict != v || o.Isolated != (v == sinks.Reject) {
			t.Errorf("record %d: %+v, want %v", i, o, v)
		}
		if strings.Contains(o.Reason, kafkatest.Password) {
			t.Errorf("the reason tells the password: %s", o.Reason)
		}
	}
	if last := out[n-1]; !strings.HasPrefix(last.Reason, reason) {
		t.Errorf("reason %q, want %q", last.Reason, reason)
	}
}

func testOutcomes(t *testing.T, b broker) {
	delivered, reject, retry, hold, split := sinks.Delivered, sinks.Reject, sinks.Retry, sinks.Hold, sinks.Split
	for i, tc := range []struct {
		name   string
		topic  []string // its configuration; nil: there is none
		opts   Options
		batch  sinks.Batch
		want   []sinks.Verdict
		reason string
	}{
		{"no such topic", nil, Options{}, sinktest.Batch("b", 3), []sinks.Verdict{hold}, "UNKNOWN_TOPIC_OR_PARTITION"},
		{"snappy", []string{}, Options{}, sinktest.Batch("b", 3), []sinks.Verdict{delivered}, ""},
		{"lz4", []string{}, Options{Compression: "lz4"}, sinktest.Batch("b", 3), []sinks.Verdict{delivered}, ""},
		{"zstd", []string{}, Options{Compression: "zstd"}, sinktest.Batch("b", 3), []sinks.Verdict{delivered}, ""},
		{"gzip", []string{}, Options{Compression: "gzip"}, sinktest.Batch("b", 3), []sinks.Verdict{delivered}, ""},
		{"none", []string{}, Options{Compression: "none"}, sinktest.Batch("b", 3), []sinks.Verdict{delivered}, ""},
		{
			"larger than the option allows",
			[]string{},
			Options{BatchMaxBytes: 2000},
			sinktest.Sized(10, 3000, 10, 1800),
			[]sinks.Verdict{delivered, reject, delivered, reject},
			"the record is larger than sink.kafka.batch_max_bytes",
		},
		{
			"a batch larger than the topic allows",
			[]string{"max.message.bytes", "1000"},
			Options{Compression: "none"},
			sinktest.Sized(2000, 2000),
			[]sinks.Verdict{split},
			"MESSAGE_TOO_LARGE",
		},
		{
			"a record larger than the topic allows",
			[]string{"max.message.bytes", "1000"},
			Options{Compression: "none"},
			sinktest.Sized(2000),
			[]sinks.Verdict{reject},
			"MESSAGE_TOO_LARGE",
		},
		{
			"a batch as large as the topic allows",
			[]string{"max.message.bytes", "1000"},
			Options{Compression: "none", BatchMaxBytes: 1024},
			sinktest.Sized(500, 500, 500, 500),
			[]sinks.Verdict{delivered},
			"",
		},
		{
			"a compacted topic without a key",
			[]string{"cleanup.policy", "compact"},
			Options{},
			sinktest.Batch("b", 2),
			[]sinks.Verdict{hold},
			"a compacted topic may want keys (sink.kafka.key): INVALID_RECORD",
		},
		{"a compacted topic with keys", []string{"cleanup.policy", "compact"}, Options{Key: "{id}"}, sinktest.Batch("b", 2), []sinks.Verdict{delivered}, ""},
		{"a stamp that the topic refuses", []string{"message.timestamp.after.max.ms", "0", "message.timestamp.before.max.ms", "0"}, Options{}, sinktest.Batch("b", 2), []sinks.Verdict{hold}, "INVALID_TIMESTAMP"},
		{"nobody listens", nil, Options{Brokers: "127.0.0.1:1"}, sinktest.Batch("b", 2), []sinks.Verdict{retry}, "unable to dial: dial tcp 127.0.0.1:1: connect: connection refused"},
		{"a login is wanted", nil, Options{Brokers: b.Login}, sinktest.Batch("b", 1), []sinks.Verdict{retry}, "broker closed the connection immediately"},
		{"a name that is too long", nil, Options{Topic: "{host}" + strings.Repeat("x", 245)}, sinktest.Batch("b", 1), []sinks.Verdict{hold}, "INVALID_TOPIC_EXCEPTION"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := tc.opts
			if o.Brokers == "" {
				o.Brokers = b.Address
			}
			if o.Topic == "" {
				o.Topic = fmt.Sprint("outcomes-", i)
			}
			if tc.topic != nil {
				b.AddTopic(o.Topic, 1, tc.topic...)
			}
			s := sinktest.Open(t, New, o)
			if strings.HasPrefix(o.Topic, "{host}") {
				s.host = strings.Repeat("h", 20)
			}
			wantOutcomes(t, s.Deliver(t.Context(), tc.batch), len(tc.batch.Records), tc.reason, tc.want...)
		})
	}
}

// testLargeAmongOthers: of what is refused together only what is too large itself is rejected, in the pieces that the drain makes.
func testLargeAmongOthers(t *testing.T, b broker) {
	b.AddTopic("among", 1, "max.message.bytes", "1000")
	s := sinktest.Open(t, New, Options{Brokers: b.Address, Topic: "among", Compression: "none"})
	all := sinktest.Sized(100, 2000, 100, 100)
	var good sinks.Batch
	for i := range all.Records {
		one := all
		one.Records = all.Records[i : i+1]
		want := sinks.Delivered
		if i == 1 {
			want = sinks.Reject
		} else {
			good.Records = append(good.Records, one.Records...)
		}
		wantOutcomes(t, s.Deliver(t.Context(), one), 1, "", want)
	}
	sinktest.WantStored(t, b.Stored("among"), good)
}

func testLogins(t *testing.T, b broker) {
	b.AddTopic("logins", 1)
	t.Setenv("KAFKASINK_TEST_PASSWORD", kafkatest.Password)
	right := sinktest.File(t, kafkatest.Password+"\n")
	for name, tc := range map[string]struct {
		opts   Options
		want   sinks.Verdict
		reason string
	}{
		"plain":                     {Options{SASL: SASLPlain, Username: kafkatest.Writer, PasswordFile: right}, sinks.Delivered, ""},
		"scram 256":                 {Options{SASL: SASLScram256, Username: kafkatest.Writer, PasswordFile: right}, sinks.Delivered, ""},
		"scram 512 from the env":    {Options{SASL: SASLScram512, Username: kafkatest.Writer, PasswordEnv: "KAFKASINK_TEST_PASSWORD"}, sinks.Delivered, ""},
		"plain, wrong password":     {Options{SASL: SASLPlain, Username: kafkatest.Writer, PasswordFile: sinktest.File(t, "wrong")}, sinks.Hold, "SASL_AUTHENTICATION_FAILED"},
		"scram, wrong password":     {Options{SASL: SASLScram512, Username: kafkatest.Writer, PasswordFile: sinktest.File(t, "wrong")}, sinks.Hold, "SASL_AUTHENTICATION_FAILED"},
		"scram, nobody":             {Options{SASL: SASLScram256, Username: "nobody", PasswordFile: right}, sinks.Hold, "SASL_AUTHENTICATION_FAILED"},
		"no permission to write":    {Options{SASL: SASLPlain, Username: kafkatest.Reader, PasswordFile: right}, sinks.Hold, "TOPIC_AUTHORIZATION_FAILED"},
		"login where there is none": {Options{SASL: SASLPlain, Username: kafkatest.Reader, PasswordFile: right, Brokers: b.Address}, sinks.Hold, "ILLEGAL_SASL_STATE"},
	} {
		t.Run(name, func(t *testing.T) {
			o := tc.opts
			if o.Brokers == "" {
				o.Brokers = b.Login
			}
			o.Topic = "logins"
			s := sinktest.Open(t, New, o)
			wantOutcomes(t, s.Deliver(t.Context(), sinktest.Batch("b", 2)), 2, tc.reason, tc.want)
		})
	}
}

func testTLS(t *testing.T, b broker) {
	b.AddTopic("tls", 1)
	otherCA, otherCert, otherKey := sinktest.NewAuthority(t, "other").Files(t, "stranger")
	for _, tc := range []struct {
		name, brokers string
		opts          Options
		want          sinks.Verdict
		reason        string
	}{
		{"authority", b.Secure, Options{CAFile: b.ca}, sinks.Delivered, ""},
		{"client certificate", b.Mutual, Options{CAFile: b.ca, CertFile: b.cert, KeyFile: b.key}, sinks.Delivered, ""},
		{"no client certificate", b.Mutual, Options{CAFile: b.ca}, sinks.Retry, "tls: "},
		{"client certificate of a stranger", b.Mutual, Options{CAFile: b.ca, CertFile: otherCert, KeyFile: otherKey}, sinks.Retry, "tls: "},
		{"unknown authority", b.Secure, Options{TLS: true}, sinks.Retry, "x509: certificate signed by unknown authority"},
		{"another authority", b.Secure, Options{CAFile: otherCA}, sinks.Retry, "x509: certificate signed by unknown authority"},
		{"TLS to a listener without", b.Address, Options{TLS: true}, sinks.Retry, ""},
		{"no TLS to a listener with it", b.Secure, Options{}, sinks.Retry, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := tc.opts
			o.Brokers, o.Topic = tc.brokers, "tls"
			s := sinktest.Open(t, New, o)
			got := s.Deliver(t.Context(), sinktest.Batch("b", 1))[0]
			if got.Verdict != tc.want || !strings.Contains(got.Reason, tc.reason) {
				t.Errorf("got %+v, want %v with %q", got, tc.want, tc.reason)
			}
		})
	}
}

// testPlaces: where records go, and in which order.
func testPlaces(t *testing.T, b broker) {
	for _, partition := range []string{PartitionShard, PartitionID, PartitionSticky} {
		b.AddTopic("places-"+partition, 4)
		s := sinktest.Open(t, New, Options{Brokers: b.Address, Topic: "places-" + partition, Partition: partition, Key: "{shard} of {host}: {id}"})
		var want []sinks.Batch
		for i := range 10 {
			batch := sinktest.Batch(fmt.Sprint(i), 10)
			batch.Shard = 7
			want = append(want, batch)
			sinktest.DeliverAll(t, s, batch)
		}
		sinktest.WantStored(t, b.Stored("places-"+partition), want...)
		places := map[int32][]string{}
		for _, r := range b.Records("places-" + partition) {
			places[r.Partition] = append(places[r.Partition], string(r.Value))
			if key := "7 of " + s.host + ": " + kafkatest.ID(r); string(r.Key) != key {
				t.Errorf("%s: key %q, want %q", partition, r.Key, key)
			}
		}
		if (len(places) == 1) != (partition == PartitionShard) {
			t.Errorf("%s: in %d partitions", partition, len(places))
		}
		if partition != PartitionShard {
			continue
		}
		var order []string
		for _, batch := range want {
			for _, r := range batch.Records {
				order = append(order, string(r.Payload))
			}
		}
		for _, got := range places {
			if fmt.Sprint(got) != fmt.Sprint(order) {
				t.Error("the order of the shard is not kept")
			}
		}
	}
	for shard := range 2 {
		topic := fmt.Sprint("shard-", shard)
		b.AddTopic(topic, 1)
		s := sinktest.Open(t, New, Options{Brokers: b.Address, Topic: "shard-{shard}"})
		batch := sinktest.Batch(topic, 1)
		batch.Shard = shard
		sinktest.DeliverAll(t, s, batch)
		sinktest.WantStored(t, b.Stored(topic), batch)
	}
}

// testTopicMadeAnew: a topic that is deleted holds its records, and one of its name that is made after that gets them.
func testTopicMadeAnew(t *testing.T, b broker) {
	b.AddTopic("anew", 1)
	b.AddTopic("beside", 1)
	s := sinktest.Open(t, New, Options{Brokers: b.Address, Topic: "anew"})
	sinktest.DeliverAll(t, s, sinktest.Batch("first", 2))
	first := s.current
	b.DeleteTopic("anew")
	batch := sinktest.Batch("second", 2)
	wantOutcomes(t, s.Deliver(t.Context(), batch), 2, "UNKNOWN_TOPIC", sinks.Hold)
	b.AddTopic("anew", 1)
	sinktest.DeliverAll(t, s, batch)
	sinktest.WantStored(t, b.Stored("anew"), batch)
	if s.current != first {
		t.Error("the fault of one topic cost the connections of all")
	}
}

// testFilesAreReadAgain: a password file that is gone holds, and a new one counts from the next connection on.
func testFilesAreReadAgain(t *testing.T, b broker) {
	b.AddTopic("files", 1)
	file := sinktest.File(t, "wrong password")
	s := sinktest.Open(t, New, Options{Brokers: b.Login, Topic: "files", SASL: SASLScram256, Username: kafkatest.Writer, PasswordFile: file})
	sinktest.ReadAgain(t, s, file, "SASL_AUTHENTICATION_FAILED", "sink.kafka.password_file: open ", kafkatest.Password)
}

// testNoAckInTime: what is not acked in time is sent again, over new connections.
func testNoAckInTime(t *testing.T, b broker) {
	b.AddTopic("late", 1)
	s := sinktest.Open(t, New, Options{Brokers: b.Proxied, Topic: "late", AckTimeout: time.Minute})
	before := sinktest.Batch("before", 1)
	sinktest.DeliverAll(t, s, before)
	s.opts.AckTimeout = time.Second
	_, release := b.proxy.Stall()
	defer release()
	batch := sinktest.Batch("late", 10)
	wantOutcomes(t, s.Deliver(t.Context(), batch), 10, "not every ack came in time", sinks.Retry)
	release()
	s.opts.AckTimeout = time.Minute
	sinktest.DeliverAll(t, s, batch)
	if n := s.current.client.BufferedProduceRecords(); n != 0 {
		t.Errorf("%d records are still buffered", n)
	}
	t.Logf("%d repeats", sinktest.WantStored(t, b.Stored("late"), before, batch))
}

// testCancelEndsAWrite: a write that blocks ends with the context, and what was buffered behind it is never produced.
func testCancelEndsAWrite(t *testing.T, b broker) {
	b.AddTopic("cancel", 1)
	s := sinktest.Open(t, New, Options{Brokers: b.Proxied, Topic: "cancel", Compression: "none", AckTimeout: time.Hour})
	before := sinktest.Batch("before", 1)
	sinktest.DeliverAll(t, s, before)
	reached, release := b.proxy.Stall()
	defer release()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	// Larger than all buffers on the way.
	sizes := make([]int, 40)
	for i := range sizes {
		sizes[i] = 900_000
	}
	large := sinktest.Sized(sizes...)
	go func() {
		<-reached
		cancel()
	}()
	wantOutcomes(t, s.Deliver(ctx, large), len(sizes), "context canceled", sinks.Retry)
	release()
	after := sinktest.Batch("after", 1)
	sinktest.DeliverAll(t, s, after)
	last := large.Records[len(sizes)-1].ID.String()
	for _, r := range b.Records("cancel") {
		if kafkatest.ID(r) == last {
			t.Error("a record was produced after its Deliver had returned")
		}
	}
	large.Attempt++
	sinktest.DeliverAll(t, s, large)
	sinktest.WantStored(t, b.Stored("cancel"), before, after, large)
}

// testRoomIsWaitedFor: a batch of more records than may wait for their acks goes on when there is room.
func testRoomIsWaitedFor(t *testing.T, b broker) {
	b.AddTopic("room", 1)
	s := sinktest.Open(t, New, Options{Brokers: b.Address, Topic: "room", MaxPending: 1})
	batch := sinktest.Batch("b", 50)
	wantOutcomes(t, s.Deliver(t.Context(), batch), 50, "", sinks.Delivered)
	if n := sinktest.WantStored(t, b.Stored("room"), batch); n != 0 {
		t.Errorf("%d repeats", n)
	}
}

// testCloseEndsADial: a broker that says nothing keeps neither Deliver nor Close.
func testCloseEndsADial(t *testing.T, b broker) {
	b.AddTopic("dial", 1)
	reached, release := b.proxy.Stall()
	defer release()
	s := sinktest.Open(t, New, Options{Brokers: b.Proxied, Topic: "dial", ConnectTimeout: time.Hour, AckTimeout: time.Hour})
	done := make(chan struct{})
	go func() {
		defer close(done)
		wantOutcomes(t, s.Deliver(t.Context(), sinktest.Batch("b", 1)), 1, "", sinks.Retry)
	}()
	<-reached
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	<-done
	wantOutcomes(t, s.Deliver(t.Context(), sinktest.Batch("b", 1)), 1, "the sink is closed", sinks.Retry)
}

// TestBrokerAway: the broker is not there, comes, is killed with records on their way, and comes again.
func TestBrokerAway(t *testing.T) {
	server := kafkatest.Start(t, kafkatest.Config{})
	server.AddTopic("away", 3)
	server.Kill()
	s := sinktest.Open(t, New, Options{Brokers: server.Address, Topic: "away", Partition: PartitionID})
	b := sinktest.Batch("first", 10)
	wantOutcomes(t, s.Deliver(t.Context(), b), 10, "unable to dial: dial tcp "+server.Address+": connect: connection refused", sinks.Retry)
	server.Restart()
	sinktest.DeliverAll(t, s, b)
	all := sinktest.UnderKills(t, s, 2, server.Kill, server.Run)
	t.Logf("%d repeats", sinktest.WantStored(t, server.Stored("away"), append(all, b)...))
	server.Kill()
	s.opts.AckTimeout = 3 * time.Second
	if o := s.Deliver(t.Context(), sinktest.Batch("last", 1))[0]; o.Verdict != sinks.Retry || !strings.Contains(o.Reason, "connection refused") {
		t.Errorf("with a broker that is gone: %+v", o)
	}
}
