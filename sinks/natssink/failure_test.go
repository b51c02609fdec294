//go:build !nonats

package natssink

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"github.com/weir-agent/weir/sinks"
	"github.com/weir-agent/weir/sinks/natssink/natstest"
	"github.com/weir-agent/weir/sinks/sinktest"
)

const password = "s3cret-passw0rd"

// users are an administrator, a writer that may publish to s.>, and one that may publish nothing.
const users = `
authorization { users [
	{ user: admin, password: "` + password + `" }
	{ user: writer, password: "` + password + `", permissions: { publish: "s.>", subscribe: "_INBOX.>" } }
	{ user: reader, password: "` + password + `", permissions: { publish: { deny: "s.>" } } }
	{ user: deaf, password: "` + password + `", permissions: { subscribe: { deny: "_INBOX.>" } } }
] }
`

func one(verdict sinks.Verdict) []sinks.Verdict { return []sinks.Verdict{verdict} }

// TestOutcomes: what a real server does to a batch, and what the sink makes of it.
func TestOutcomes(t *testing.T) {
	delivered, reject, retry, hold := sinks.Delivered, sinks.Reject, sinks.Retry, sinks.Hold
	for _, tc := range []struct {
		name, config string
		stream       *jetstream.StreamConfig
		opts         Options
		batch        sinks.Batch
		want         []sinks.Verdict // of the records, the last one of all that follow
		reason       string          // that the last one's begins with
	}{
		{
			name: "no stream takes the subject", batch: sinktest.Batch("b", 3), want: one(hold), reason: "no stream takes the subject s.x",
		},
		{
			name: "JetStream is off", config: "jetstream: disabled\n", batch: sinktest.Batch("b", 3), want: one(hold), reason: "the server has no JetStream",
		},
		{
			name: "another stream", stream: &jetstream.StreamConfig{}, opts: Options{Stream: "T"},
			batch: sinktest.Batch("b", 2), want: one(hold), reason: "nats: API error: code=400 err_code=10060 description=expected stream does not match",
		},
		{
			name: "the right stream", stream: &jetstream.StreamConfig{}, opts: Options{Stream: "S"}, batch: sinktest.Batch("b", 2), want: one(delivered),
		},
		{
			name: "one pending at a time", stream: &jetstream.StreamConfig{}, opts: Options{MaxPending: 1}, batch: sinktest.Batch("b", 20), want: one(delivered),
		},
		{
			name: "larger than the server allows", config: "max_payload: 1KB\n", stream: &jetstream.StreamConfig{},
			batch: sinktest.Sized(10, 2000, 10, 1000), want: []sinks.Verdict{delivered, reject, delivered, reject}, reason: "the record is larger than the server allows",
		},
		{
			name: "larger than the stream allows", stream: &jetstream.StreamConfig{MaxMsgSize: 500},
			batch: sinktest.Sized(10, 10, 2000), want: []sinks.Verdict{delivered, delivered, reject}, reason: "nats: API error: code=400 err_code=10054",
		},
		{
			name: "a full stream", stream: &jetstream.StreamConfig{MaxMsgs: 2, Discard: jetstream.DiscardNew},
			batch: sinktest.Batch("b", 5), want: []sinks.Verdict{delivered, delivered, retry}, reason: "nats: API error: code=503 err_code=10077 description=maximum messages exceeded",
		},
		{
			name: "a sealed stream", stream: &jetstream.StreamConfig{Sealed: true}, batch: sinktest.Batch("b", 2), want: one(hold), reason: "nats: API error: code=400 err_code=10109",
		},
		{
			name: "a wrong password", config: users, opts: Options{Username: "nobody"}, batch: sinktest.Batch("b", 3), want: one(hold), reason: "connect: nats: Authorization Violation",
		},
		{
			name: "no user", config: users, batch: sinktest.Batch("b", 1), want: one(hold), reason: "connect: nats: Authorization Violation",
		},
		{
			name: "no permission to publish", config: users, stream: &jetstream.StreamConfig{}, opts: Options{Username: "reader"},
			batch: sinktest.Batch("b", 3), want: one(hold), reason: `nats: permissions violation: Permissions Violation for Publish to "s.x"`,
		},
		{
			name: "no permission to hear acks", config: users, stream: &jetstream.StreamConfig{}, opts: Options{Username: "deaf"},
			batch: sinktest.Batch("b", 3), want: one(hold), reason: `nats: permissions violation: Permissions Violation for Subscription to "_INBOX.`,
		},
		{
			name: "enough permission", config: users, stream: &jetstream.StreamConfig{}, opts: Options{Username: "writer"}, batch: sinktest.Batch("b", 3), want: one(delivered),
		},
		{
			name: "TLS asked of a server that has none", opts: Options{URL: "tls://"}, batch: sinktest.Batch("b", 1), want: one(hold), reason: "connect: nats: secure connection not available",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			server := natstest.Start(t, tc.config)
			if tc.stream != nil {
				addStream(t, natstest.Connect(t, server.URL(), nats.UserInfo("admin", password)), *tc.stream)
			}
			o := tc.opts
			o.URL, o.Subject = strings.TrimSuffix(o.URL, "tls://")+server.URL(), "s.x"
			o.AckTimeout = time.Hour // nothing here needs it
			if tc.opts.URL != "" {
				o.URL = tc.opts.URL + server.Address
			}
			if o.Username != "" {
				o.PasswordFile = sinktest.File(t, password+"\n")
			}
			s := sinktest.Open(t, New, o)
			out := s.Deliver(t.Context(), tc.batch)
			for i, o := range out {
				want := tc.want[min(i, len(tc.want)-1)]
				if o.Verdict != want || o.Isolated != (want == reject) {
					t.Errorf("record %d: %+v, want %v", i, o, want)
				}
				if strings.Contains(o.Reason, password) {
					t.Errorf("the reason tells the password: %s", o.Reason)
				}
			}
			if last := out[len(out)-1]; !strings.HasPrefix(last.Reason, tc.reason) {
				t.Errorf("reason %q, want %q", last.Reason, tc.reason)
			}
			if len(out) != len(tc.batch.Records) {
				t.Errorf("%d outcomes", len(out))
			}
		})
	}
}

// addStream makes the stream S of s.>.
func addStream(t *testing.T, js jetstream.JetStream, c jetstream.StreamConfig) {
	t.Helper()
	c.Name, c.Subjects = "S", []string{"s.>"}
	sealed := c.Sealed
	c.Sealed = false // a stream cannot be made sealed
	natstest.AddStream(t, js, c)
	if c.Sealed = sealed; sealed {
		natstest.AddStream(t, js, c)
	}
}

// TestServerAway: the server is not there, comes, is killed with records on their way, and comes again.
func TestServerAway(t *testing.T) {
	server := natstest.Start(t, "")
	js := natstest.Connect(t, server.URL())
	addStream(t, js, jetstream.StreamConfig{})
	server.Kill()
	s := sinktest.Open(t, New, Options{URL: server.URL(), Subject: "s.x"})
	b := sinktest.Batch("first", 10)
	if o := s.Deliver(t.Context(), b)[9]; o.Verdict != sinks.Retry || !strings.Contains(o.Reason, "connection refused") {
		t.Errorf("without a server: %+v", o)
	}
	server.Run()
	sinktest.DeliverAll(t, s, b)
	all := sinktest.UnderKills(t, s, 3, server.Kill, server.Run)
	sinktest.WantOnce(t, natstest.Stored(t, js, "S"), append(all, b)...)
}

// TestClusterLosesANode: of three servers the leader of the stream is killed; deliveries go on with the two that are left.
func TestClusterLosesANode(t *testing.T) {
	nodes := natstest.Cluster(t, 3)
	var urls []string
	for _, n := range nodes {
		urls = append(urls, n.URL())
	}
	js := natstest.Connect(t, strings.Join(urls, ","))
	addStream(t, js, jetstream.StreamConfig{Replicas: 3})
	s := sinktest.Open(t, New, Options{URL: strings.Join(urls, ","), Subject: "s.x", Stream: "S", AckTimeout: time.Second})
	var all []sinks.Batch
	for i := range 20 {
		if i == 5 {
			nodes[leader(t, js)].Kill()
		}
		b := sinktest.Batch(fmt.Sprint("batch ", i), 100)
		all = append(all, b)
		if n := sinktest.DeliverAll(t, s, b); i == 5 {
			t.Logf("%d attempts for the batch after the kill", n)
		}
	}
	sinktest.WantOnce(t, natstest.Stored(t, js, "S"), all...)
}

// TestNobodyToAsk: a user who may not ask for streams is held before the first ack, and tries again after it, as the
// stream may be without a leader for a moment.
func TestNobodyToAsk(t *testing.T) {
	server := natstest.Start(t, users)
	js := natstest.Connect(t, server.URL(), nats.UserInfo("admin", password))
	s := sinktest.Open(t, New, Options{URL: server.URL(), Subject: "s.x", Username: "writer", PasswordFile: sinktest.File(t, password)})
	b := sinktest.Batch("b", 1)
	if o := s.Deliver(t.Context(), b)[0]; o.Verdict != sinks.Hold {
		t.Errorf("before the first ack: %+v", o)
	}
	first := s.current
	addStream(t, js, jetstream.StreamConfig{})
	sinktest.DeliverAll(t, s, b)
	if err := js.DeleteStream(t.Context(), "S"); err != nil {
		t.Fatal(err)
	}
	if o := s.Deliver(t.Context(), b)[0]; o.Verdict != sinks.Retry {
		t.Errorf("after it: %+v", o)
	}
	if s.current != first {
		t.Error("a question that was refused cost the connection")
	}
}

// leader returns the number of the server that leads the stream.
func leader(t *testing.T, js jetstream.JetStream) (n int) {
	t.Helper()
	info := natstest.Info(t, js, "S")
	if _, err := fmt.Sscanf(info.Cluster.Leader, "n%d", &n); err != nil {
		t.Fatalf("leader %q: %v", info.Cluster.Leader, err)
	}
	return n
}

// TestNoAckInTime: what is not acked in time is sent again, over a new connection, and kept once.
func TestNoAckInTime(t *testing.T) {
	server := natstest.Start(t, "")
	js := natstest.Connect(t, server.URL())
	addStream(t, js, jetstream.StreamConfig{})
	proxy := sinktest.NewProxy(t, "tcp", server.Address)
	s := sinktest.Open(t, New, Options{URL: "nats://" + proxy.Address, Subject: "s.x", AckTimeout: time.Second})
	sinktest.DeliverAll(t, s, sinktest.Batch("before", 1))
	_, release := proxy.Stall()
	defer release()
	// Larger than all buffers on the way, so that a write blocks.
	b := sinktest.Sized(slices.Repeat([]int{1_000_000}, 40)...)
	for i, o := range s.Deliver(t.Context(), b) {
		if o.Verdict != sinks.Retry || !strings.Contains(o.Reason, "ack") {
			t.Errorf("record %d: %+v", i, o)
		}
	}
	release()
	s.opts.AckTimeout = time.Minute
	sinktest.DeliverAll(t, s, b)
	sinktest.WantOnce(t, natstest.Stored(t, js, "S"), sinktest.Batch("before", 1), b)
}

// TestCancelEndsAWrite: a write that blocks ends with the context, and what was under way takes no room of what comes next.
func TestCancelEndsAWrite(t *testing.T) {
	server := natstest.Start(t, "")
	js := natstest.Connect(t, server.URL())
	addStream(t, js, jetstream.StreamConfig{})
	proxy := sinktest.NewProxy(t, "tcp", server.Address)
	s := sinktest.Open(t, New, Options{URL: "nats://" + proxy.Address, Subject: "s.x", AckTimeout: time.Hour, MaxPending: 40})
	sinktest.DeliverAll(t, s, sinktest.Batch("before", 1))
	reached, release := proxy.Stall()
	defer release()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	// Larger than all buffers on the way.
	large := sinktest.Sized(slices.Repeat([]int{1_000_000}, 40)...)
	go func() {
		<-reached
		cancel()
	}()
	for i, o := range s.Deliver(ctx, large) {
		if o.Verdict != sinks.Retry {
			t.Errorf("record %d: %+v", i, o)
		}
	}
	release()
	sinktest.DeliverAll(t, s, large)
	sinktest.WantOnce(t, natstest.Stored(t, js, "S"), sinktest.Batch("before", 1), large)
}

// TestRoomIsWaitedFor: a batch of more records than may wait for their acks goes on when there is room.
func TestRoomIsWaitedFor(t *testing.T) {
	server := natstest.Start(t, "")
	js := natstest.Connect(t, server.URL())
	addStream(t, js, jetstream.StreamConfig{})
	s := sinktest.Open(t, New, Options{URL: server.URL(), Subject: "s.x", MaxPending: 1})
	s.publishing = append(s.publishing, jetstream.WithStallWait(time.Nanosecond))
	b := sinktest.Batch("b", 50)
	for i, o := range s.Deliver(t.Context(), b) {
		if o.Verdict != sinks.Delivered {
			t.Errorf("record %d: %+v", i, o)
		}
	}
	sinktest.WantOnce(t, natstest.Stored(t, js, "S"), b)
}

// TestFilesAreReadAgain: a password file that is gone holds, and a new one counts from the next connection on.
func TestFilesAreReadAgain(t *testing.T) {
	server := natstest.Start(t, users)
	addStream(t, natstest.Connect(t, server.URL(), nats.UserInfo("admin", password)), jetstream.StreamConfig{})
	file := sinktest.File(t, "wrong password")
	s := sinktest.Open(t, New, Options{URL: server.URL(), Subject: "s.x", Username: "writer", PasswordFile: file})
	sinktest.ReadAgain(t, s, file, "Authorization Violation", "sink.nats.password_file: open ", password)
}

// TestLogins: each way to log in lets in.
func TestLogins(t *testing.T) {
	user := pair(t, nkeys.PrefixByteUser)
	t.Setenv("NATSSINK_TEST_TOKEN", password)
	for name, tc := range map[string]struct {
		config string
		opts   Options
		client nats.Option
	}{
		"token in a file":    {"authorization { token: \"" + password + "\" }\n", Options{TokenFile: sinktest.File(t, password+"\n")}, nats.Token(password)},
		"token in the env":   {"authorization { token: \"" + password + "\" }\n", Options{TokenEnv: "NATSSINK_TEST_TOKEN"}, nats.Token(password)},
		"password in a file": {users, Options{Username: "admin", PasswordFile: sinktest.File(t, password)}, nats.UserInfo("admin", password)},
		"nkey": {
			"authorization { users [ { nkey: " + public(t, user) + " } ] }\n",
			Options{NkeyFile: sinktest.File(t, seed(t, user))},
			nats.Nkey(public(t, user), func(nonce []byte) ([]byte, error) { return user.Sign(nonce) }),
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := natstest.Start(t, tc.config)
			addStream(t, natstest.Connect(t, server.URL(), tc.client), jetstream.StreamConfig{})
			o := tc.opts
			o.URL, o.Subject = server.URL(), "s.x"
			s := sinktest.Open(t, New, o)
			if o := s.Deliver(t.Context(), sinktest.Batch("b", 1))[0]; o.Verdict != sinks.Delivered {
				t.Errorf("%+v", o)
			}
		})
	}
}

// TestSubject: the number of the shard and the name of the machine come into the subject.
func TestSubject(t *testing.T) {
	server := natstest.Start(t, "")
	js := natstest.Connect(t, server.URL())
	addStream(t, js, jetstream.StreamConfig{})
	s := sinktest.Open(t, New, Options{URL: server.URL(), Subject: "s.{host}.{shard}"})
	for shard := range 2 {
		b := sinktest.Batch(fmt.Sprint(shard), 1)
		b.Shard = shard
		sinktest.DeliverAll(t, s, b)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for i, m := range natstest.Messages(t, js, "S") {
		if want := fmt.Sprintf("s.%s.%d", strings.ReplaceAll(host, ".", "_"), i); m.Subject() != want {
			t.Errorf("subject %q, want %q", m.Subject(), want)
		}
	}
}

// TestCloseEndsADial: a server that says nothing keeps neither Deliver nor Close.
func TestCloseEndsADial(t *testing.T) {
	server := natstest.Start(t, "")
	proxy := sinktest.NewProxy(t, "tcp", server.Address)
	reached, release := proxy.Stall()
	defer release()
	s := sinktest.Open(t, New, Options{URL: "nats://" + proxy.Address, Subject: "s.x", ConnectTimeout: time.Hour})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if o := s.Deliver(ctx, sinktest.Batch("b", 1))[0]; o.Verdict != sinks.Retry {
			t.Errorf("%+v", o)
		}
	}()
	<-reached
	cancel()
	<-done
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if o := s.Deliver(t.Context(), sinktest.Batch("b", 1))[0]; o.Verdict != sinks.Retry {
		t.Errorf("after Close: %+v", o)
	}
}
