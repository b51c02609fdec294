//go:build !nokafka

package kafkasink

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-agent/weir/sinks"
	"github.com/weir-agent/weir/sinks/kafkasink/kafkatest"
	"github.com/weir-agent/weir/sinks/setup"
	"github.com/weir-agent/weir/sinks/sinktest"
)

// TestAnswers: each answer that a broker may give to a produce request.
func TestAnswers(t *testing.T) {
	for _, tc := range []struct {
		want sinks.Verdict
		errs []error
	}{
		{sinks.Retry, []error{
			kerr.NotLeaderForPartition, kerr.LeaderNotAvailable, kerr.ReplicaNotAvailable, kerr.RequestTimedOut, kerr.NetworkException, kerr.NotEnoughReplicas,
			kerr.NotEnoughReplicasAfterAppend, kerr.KafkaStorageError, kerr.CorruptMessage, kerr.UnknownServerError, kerr.BrokerNotAvailable,
			kerr.OutOfOrderSequenceNumber, kerr.UnknownProducerID, kerr.InvalidProducerEpoch, kerr.ThrottlingQuotaExceeded, kerr.FencedLeaderEpoch,
			errNoAck, errGivenUp, errors.New("dial tcp"), errNoPartitions,
		}},
		{sinks.Hold, []error{
			kerr.UnknownTopicOrPartition, kerr.UnknownTopicID, kerr.InvalidTopicException, kerr.TopicAuthorizationFailed, kerr.ClusterAuthorizationFailed,
			kerr.SaslAuthenticationFailed, kerr.UnsupportedSaslMechanism, kerr.IllegalSaslState, kerr.UnsupportedVersion, kerr.UnsupportedForMessageFormat,
			kerr.UnsupportedCompressionType, kerr.InvalidRequiredAcks, kerr.PolicyViolation, kerr.InvalidTimestamp, kerr.InvalidConfig, kerr.SecurityDisabled,
			&setup.Unfit{Section: section, Err: errors.New("password_file: no such file")},
		}},
		{sinks.Split, []error{kerr.MessageTooLarge, kerr.RecordListTooLarge}},
		{sinks.Reject, []error{kerr.InvalidRecord}},
		{sinks.Delivered, []error{nil}},
	} {
		for _, err := range tc.errs {
			wrapped := err
			if err != nil {
				wrapped = fmt.Errorf("produce: %w", err)
			}
			o := outcomeOf(wrapped, true)
			if o.Verdict != tc.want || (o.Reason == "") != (err == nil) || o.Isolated {
				t.Errorf("%v: %+v, want %v", err, o, tc.want)
			}
			if answer, ok := errors.AsType[*kerr.Error](err); ok && o.Status != int(answer.Code) {
				t.Errorf("%v: status %d", err, o.Status)
			}
		}
	}
	if o := outcomeOf(kerr.InvalidRecord, false); o.Verdict != sinks.Hold || !strings.Contains(o.Reason, "sink.kafka.key") {
		t.Errorf("without a key: %+v", o)
	}
}

// fake runs brokers in this process, with the topic s of one partition, that answer what a real one cannot be brought to.
func fake(t *testing.T, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(append(opts, kfake.SeedTopics(1, "s"))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func sinkOf(t *testing.T, c *kfake.Cluster, o Options) *Sink {
	t.Helper()
	o.Brokers, o.Topic, o.Compression = strings.Join(c.ListenAddrs(), ","), "s", "none"
	s := sinktest.Open(t, New, o)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// refuse is the answer code to a produce request, for each of its partitions.
func refuse(req kmsg.Request, code int16) kmsg.Response {
	in := req.(*kmsg.ProduceRequest)
	out := in.ResponseKind().(*kmsg.ProduceResponse)
	for _, topic := range in.Topics {
		one := kmsg.NewProduceResponseTopic()
		one.Topic, one.TopicID = topic.Topic, topic.TopicID
		for _, p := range topic.Partitions {
			part := kmsg.NewProduceResponseTopicPartition()
			part.Partition, part.ErrorCode = p.Partition, code
			one.Partitions = append(one.Partitions, part)
		}
		out.Topics = append(out.Topics, one)
	}
	return out
}

// holds tells whether a produce request has text in a record.
func holds(req kmsg.Request, text string) bool {
	for _, topic := range req.(*kmsg.ProduceRequest).Topics {
		for _, p := range topic.Partitions {
			if bytes.Contains(p.Records, []byte(text)) {
				return true
			}
		}
	}
	return false
}

// refuseThose makes c answer code to each request with text in a record. It returns how many it refused.
func refuseThose(c *kfake.Cluster, text string, code int16) *int {
	n := new(int)
	c.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if !holds(req, text) {
			return nil, nil, false
		}
		*n++
		return refuse(req, code), nil, true
	})
	return n
}

// TestOneRecordIsAtFault: what is wrong with one record is not laid on those of other batches in the same request.
func TestOneRecordIsAtFault(t *testing.T) {
	for _, answer := range []*kerr.Error{kerr.MessageTooLarge, kerr.RecordListTooLarge, kerr.InvalidRecord} {
		t.Run(answer.Message, func(t *testing.T) {
			c := fake(t)
			s := sinkOf(t, c, Options{Key: "k"})
			// The first request is held, so that all that comes meanwhile goes into the next.
			under, goOn := make(chan struct{}), make(chan struct{})
			c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
				c.DropControl()
				c.SleepControl(func() {
					close(under)
					<-goOn
				})
				return nil, nil, false
			})
			refused := refuseThose(c, `"bad"`, answer.Code)
			batches := []sinks.Batch{sinktest.Batch("first", 1), sinktest.Batch("bad", 1), sinktest.Batch("good", 1)}
			outs := make([][]sinks.Outcome, len(batches))
			var wg sync.WaitGroup
			for i, b := range batches {
				wg.Go(func() { outs[i] = s.Deliver(t.Context(), b) })
				if i == 0 {
					<-under
				}
			}
			for s.current.client.BufferedProduceRecords() < int64(len(batches)) && t.Context().Err() == nil {
				runtime.Gosched()
			}
			close(goOn)
			wg.Wait()
			wantOutcomes(t, outs[0], 1, "", sinks.Delivered)
			wantOutcomes(t, outs[1], 1, answer.Message, sinks.Reject)
			wantOutcomes(t, outs[2], 1, "", sinks.Delivered)
			if *refused < 2 {
				t.Errorf("%d requests were refused: the records did not share one", *refused)
			}
			sinktest.WantStored(t, kafkatest.At(t, c.ListenAddrs()[0]).Stored("s"), batches[0], batches[2])
		})
	}
}

// TestInvalidAmongOthers: a batch with a record that the broker refuses is rejected without its name, for the drain to find it.
func TestInvalidAmongOthers(t *testing.T) {
	c := fake(t)
	refuseThose(c, `"n":2`, kerr.InvalidRecord.Code)
	s := sinkOf(t, c, Options{Key: "k", BatchMaxBytes: 1 << 20})
	for _, o := range s.Deliver(t.Context(), sinktest.Batch("b", 4))[1:] {
		if o.Verdict != sinks.Reject && o.Verdict != sinks.Delivered || o.Isolated {
			t.Errorf("%+v", o)
		}
	}
}

// TestPassingAnswers: the client itself sends again what a broker refuses for now, and no record is stored twice.
func TestPassingAnswers(t *testing.T) {
	for _, answer := range []*kerr.Error{kerr.NotEnoughReplicas, kerr.RequestTimedOut, kerr.KafkaStorageError} {
		t.Run(answer.Message, func(t *testing.T) {
			c := fake(t)
			c.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) { return refuse(req, answer.Code), nil, true })
			s := sinkOf(t, c, Options{})
			b := sinktest.Batch("b", 10)
			wantOutcomes(t, s.Deliver(t.Context(), b), 10, "", sinks.Delivered)
			if n := sinktest.WantStored(t, kafkatest.At(t, c.ListenAddrs()[0]).Stored("s"), b); n != 0 {
				t.Errorf("%d repeats", n)
			}
		})
	}
}

// TestLastingAnswers: what does not pass is given back with the words of the broker, and goes through once it has passed.
func TestLastingAnswers(t *testing.T) {
	for _, tc := range []struct {
		answer *kerr.Error
		want   sinks.Verdict
	}{
		{kerr.NotEnoughReplicas, sinks.Retry},
		{kerr.UnknownServerError, sinks.Retry},
		{kerr.CorruptMessage, sinks.Retry},
		{kerr.TopicAuthorizationFailed, sinks.Hold},
		{kerr.UnsupportedCompressionType, sinks.Hold},
		{kerr.UnknownTopicID, sinks.Hold},
	} {
		t.Run(tc.answer.Message, func(t *testing.T) {
			t.Parallel() // most of it is back-off
			c := fake(t)
			var mu sync.Mutex
			mended := false
			c.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
				c.KeepControl()
				mu.Lock()
				defer mu.Unlock()
				if mended {
					return nil, nil, false
				}
				return refuse(req, tc.answer.Code), nil, true
			})
			s := sinkOf(t, c, Options{})
			b := sinktest.Batch("b", 3)
			wantOutcomes(t, s.Deliver(t.Context(), b), 3, tc.answer.Message, tc.want)
			mu.Lock()
			mended = true
			mu.Unlock()
			wantOutcomes(t, s.Deliver(t.Context(), b), 3, "", sinks.Delivered)
		})
	}
}

// TestLateAck: an ack that comes after the end of the context is not believed.
func TestLateAck(t *testing.T) {
	c := fake(t)
	s := sinkOf(t, c, Options{})
	var cancel context.CancelFunc
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		cancel()
		return nil, nil, false // it is carried out, and answered
	})
	ctx, end := context.WithCancel(t.Context())
	defer end()
	a := newAnswers(ctx, 2)
	a.set(0, nil)
	end()
	a.set(1, nil)
	if got := a.take(); got[0] != nil || !errors.Is(got[1], context.Canceled) {
		t.Errorf("one ack before the end and one after it: %v", got)
	}
	ctx, end = context.WithCancel(t.Context())
	defer end()
	cancel = end
	b := sinktest.Batch("b", 3)
	wantOutcomes(t, s.Deliver(ctx, b), 3, "context canceled", sinks.Retry)
	wantOutcomes(t, s.Deliver(t.Context(), b), 3, "", sinks.Delivered)
	if n := s.current.client.BufferedProduceRecords(); n != 0 {
		t.Errorf("%d records are buffered", n)
	}
}

// cuttable keeps the connections that it accepts, to end them.
type cuttable struct {
	net.Listener
	mu  sync.Mutex
	all []net.Conn // guarded by mu
}

func (l *cuttable) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, c)
	return c, err
}

func (l *cuttable) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.all {
		c.Close()
	}
	l.all = nil
}

// TestLostAnswer: a connection that ends before the answer leaves no repeat, as the client's number of the request tells the broker.
func TestLostAnswer(t *testing.T) {
	l := new(cuttable)
	c := fake(t, kfake.NumBrokers(1), kfake.ListenFn(func(network, address string) (net.Listener, error) {
		var err error
		l.Listener, err = net.Listen(network, address)
		return l, err
	}))
	s := sinkOf(t, c, Options{})
	first := sinktest.Batch("first", 1)
	wantOutcomes(t, s.Deliver(t.Context(), first), 1, "", sinks.Delivered)
	requests := 0
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if requests++; requests == 1 {
			l.cut() // and then the request is carried out
		}
		return nil, nil, false
	})
	b := sinktest.Batch("b", 10)
	wantOutcomes(t, s.Deliver(t.Context(), b), 10, "", sinks.Delivered)
	if requests < 2 {
		t.Errorf("%d requests: no answer was lost", requests)
	}
	if n := sinktest.WantStored(t, kafkatest.At(t, c.ListenAddrs()[0]).Stored("s"), first, b); n != 0 {
		t.Errorf("%d repeats", n)
	}
}

// TestLeaderMoves: deliveries follow the leader, in one attempt each, in order and without repeats.
func TestLeaderMoves(t *testing.T) {
	c := fake(t, kfake.NumBrokers(3))
	s := sinkOf(t, c, Options{})
	var all []sinks.Batch
	for i := range 12 {
		if err := c.MoveTopicPartition("s", 0, int32(i%3)); err != nil {
			t.Fatal(err)
		}
		b := sinktest.Batch(fmt.Sprint(i), 10)
		all = append(all, b)
		wantOutcomes(t, s.Deliver(t.Context(), b), 10, "", sinks.Delivered)
	}
	if n := sinktest.WantStored(t, kafkatest.At(t, strings.Join(c.ListenAddrs(), ",")).Stored("s"), all...); n != 0 {
		t.Errorf("%d repeats", n)
	}
}

// TestProducerIsRefused: a client that got no producer's id is not used again, as it would fail for ever.
func TestProducerIsRefused(t *testing.T) {
	c := fake(t)
	c.ControlKey(int16(kmsg.InitProducerID), func(req kmsg.Request) (kmsg.Response, error, bool) {
		resp := req.ResponseKind().(*kmsg.InitProducerIDResponse)
		resp.ErrorCode = kerr.ClusterAuthorizationFailed.Code
		return resp, nil, true
	})
	s := sinkOf(t, c, Options{})
	b := sinktest.Batch("b", 3)
	out := s.Deliver(t.Context(), b)
	wantOutcomes(t, out, 3, "", sinks.Hold)
	if !strings.Contains(out[0].Reason, "CLUSTER_AUTHORIZATION_FAILED") {
		t.Errorf("reason %q", out[0].Reason)
	}
	wantOutcomes(t, s.Deliver(t.Context(), b), 3, "", sinks.Delivered)
}

// TestMechanismIsUnknown: a way to log in that the brokers do not have is for the operator to mend.
func TestMechanismIsUnknown(t *testing.T) {
	c := fake(t, kfake.EnableSASL(), kfake.Superuser("PLAIN", "u", "pass-word"))
	c.ControlKey(int16(kmsg.SASLHandshake), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		resp := req.ResponseKind().(*kmsg.SASLHandshakeResponse)
		resp.ErrorCode, resp.SupportedMechanisms = kerr.UnsupportedSaslMechanism.Code, []string{"GSSAPI"}
		return resp, nil, true
	})
	s := sinkOf(t, c, Options{SASL: SASLPlain, Username: "u", PasswordFile: sinktest.File(t, "pass-word")})
	wantOutcomes(t, s.Deliver(t.Context(), sinktest.Batch("b", 1)), 1, "UNSUPPORTED_SASL_MECHANISM", sinks.Hold)
}
