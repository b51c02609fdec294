// Package kafkatest runs a real broker of Apache Kafka for tests: one node in KRaft mode with a data folder of its own, that can be
// killed and started again. Its jars are those of pom.xml.
package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-agent/weir/sinks/sinktest"
)

const (
	// Password is that of the users Writer and Reader.
	Password = "s3cret-passw0rd"
	// Writer may do all, Reader nothing.
	Writer = "writer"
	Reader = "reader"
)

// Server is one broker that is its own controller.
type Server struct {
	sinktest.Process
	// Address is host:port of the listener without TLS and login, the same after a restart.
	Address string
	// Login is that of the listener with SASL.
	Login string
	// Proxied, Secure and Mutual are those that Config asks for.
	Proxied, Secure, Mutual string
	// Dir is the folder of its configuration and its data.
	Dir string

	t    testing.TB
	jars string
}

// Config says what a server has besides its defaults.
type Config struct {
	// Proxy, where it is set, gets the address of a further listener and returns the one that clients are to use for it.
	Proxy func(address string) string
	// CA, Cert and Key, files in PEM form, make the listeners Secure, with TLS, and Mutual, which wants a client certificate.
	CA, Cert, Key string
	// More is put into its configuration.
	More string
}

// Jars returns the folder of the jars. Where it is missing the test is left out, and fails with CI=true.
func Jars(t testing.TB) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(cache, "weir", "kafka")
	_, err = exec.LookPath("java")
	found, _ := filepath.Glob(filepath.Join(dir, "kafka_*.jar")) // the pattern is a good one
	if err == nil && len(found) > 0 {
		return dir
	}
	sinktest.LeaveOut(t, "the jars of Kafka, or java", "make sinks-servers")
	return ""
}

// Start makes a data folder, runs a broker on it and returns when it serves.
func Start(t testing.TB, c Config) *Server {
	t.Helper()
	s := &Server{t: t, jars: Jars(t), Dir: t.TempDir(), Address: sinktest.FreeAddress(t), Login: sinktest.FreeAddress(t)}
	s.configure(c)
	format := s.java("kafka.tools.StorageTool", "format", "--cluster-id", "d2VpcndlaXJ3ZWlyd2Vpcg", "--config", s.config(),
		"--add-scram", "SCRAM-SHA-256=[name="+Writer+",password="+Password+"]", "--add-scram", "SCRAM-SHA-512=[name="+Writer+",password="+Password+"]")
	if out, err := format.CombinedOutput(); err != nil {
		t.Fatalf("format: %v\n%s", err, out)
	}
	s.Process = sinktest.Process{
		Command: func() *exec.Cmd { return s.java("kafka.Kafka", s.config()) },
		Log:     filepath.Join(s.Dir, "log"),
		Serves: func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			client := s.client()
			defer client.Close()
			return client.Ping(ctx) == nil
		},
	}
	s.Start(t)
	return s
}

// Program writes a script like the one of this name in a download of Kafka into the folder dir.
func Program(t testing.TB, dir, name string) {
	t.Helper()
	class := map[string]string{
		"kafka-server-start.sh": "kafka.Kafka", "kafka-storage.sh": "kafka.tools.StorageTool",
		"kafka-topics.sh": "org.apache.kafka.tools.TopicCommand", "kafka-console-consumer.sh": "org.apache.kafka.tools.consumer.ConsoleConsumer",
	}[name]
	if class == "" {
		t.Fatalf("%s is not known", name)
	}
	text := "#!/bin/sh\nexec java '" + strings.Join(arguments(Jars(t), class), "' '") + "' \"$@\"\n"
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
}

// At returns what asks a broker that somebody else runs at address.
func At(t testing.TB, address string) *Server { return &Server{t: t, Address: address} }

func (s *Server) config() string { return filepath.Join(s.Dir, "server.properties") }

func (s *Server) configure(c Config) {
	s.t.Helper()
	var listeners, advertised, protocols []string
	add := func(name, protocol, address, shown string) {
		listeners = append(listeners, name+"://"+address)
		protocols = append(protocols, name+":"+protocol)
		if shown != "" {
			advertised = append(advertised, name+"://"+shown)
		}
	}
	controller := sinktest.FreeAddress(s.t)
	add("DIRECT", "PLAINTEXT", s.Address, s.Address)
	add("LOGIN", "SASL_PLAINTEXT", s.Login, s.Login)
	add("CONTROLLER", "PLAINTEXT", controller, "")
	if c.Proxy != nil {
		address := sinktest.FreeAddress(s.t)
		s.Proxied = c.Proxy(address)
		add("PROXIED", "PLAINTEXT", address, s.Proxied)
	}
	if c.Cert != "" {
		s.Secure, s.Mutual = sinktest.FreeAddress(s.t), sinktest.FreeAddress(s.t)
		add("SECURE", "SSL", s.Secure, s.Secure)
		add("MUTUAL", "SSL", s.Mutual, s.Mutual)
		s.keystore(&c)
	}
	plain := fmt.Sprintf("org.apache.kafka.common.security.plain.PlainLoginModule required user_%s=%q user_%s=%q;", Writer, Password, Reader, Password)
	text := []string{
		"process.roles=broker,controller", "node.id=1", "controller.quorum.voters=1@" + controller, "controller.listener.names=CONTROLLER",
		"listeners=" + strings.Join(listeners, ","), "advertised.listeners=" + strings.Join(advertised, ","),
		"listener.security.protocol.map=" + strings.Join(protocols, ","), "inter.broker.listener.name=DIRECT",
		"broker.session.timeout.ms=2000", "broker.heartbeat.interval.ms=200", // one that was killed may come back when its session is over
		"log.dirs=" + filepath.Join(s.Dir, "data"), "auto.create.topics.enable=false",
		"offsets.topic.replication.factor=1", "transaction.state.log.replication.factor=1", "transaction.state.log.min.isr=1",
		"sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512", "listener.name.login.plain.sasl.jaas.config=" + plain,
		"listener.name.login.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;",
		"listener.name.login.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;",
		"authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
		"super.users=User:ANONYMOUS;User:" + Writer + ";User:CN=server", c.More,
	}
	s.write("server.properties", strings.Join(text, "\n")+"\n")
}

// keystore puts key and certificate into one file, as the broker wants them, and that into the configuration.
func (s *Server) keystore(c *Config) {
	s.t.Helper()
	var both []byte
	for _, file := range []string{c.Key, c.Cert} {
		text, err := os.ReadFile(file)
		if err != nil {
			s.t.Fatal(err)
		}
		both = append(both, text...)
	}
	store := s.write("keystore.pem", string(both))
	c.More += "\nssl.keystore.type=PEM\nssl.keystore.location=" + store + "\nssl.truststore.type=PEM\nssl.truststore.location=" + c.CA +
		"\nlistener.name.mutual.ssl.client.auth=required"
}

func (s *Server) write(name, text string) (path string) {
	s.t.Helper()
	path = filepath.Join(s.Dir, name)
	sinktest.WriteFile(s.t, path, text)
	return path
}

func (s *Server) java(class string, args ...string) *exec.Cmd {
	return exec.Command("java", append(arguments(s.jars, class), args...)...)
}

// arguments are those of java that run a class of the jars in a small heap.
func arguments(jars, class string) []string {
	return []string{"-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", filepath.Join(jars, "*"), class}
}

// Client returns a client that the end of the test closes.
func (s *Server) Client(opts ...kgo.Opt) *kgo.Client {
	s.t.Helper()
	c := s.client(opts...)
	s.t.Cleanup(c.Close)
	return c
}

func (s *Server) client(opts ...kgo.Opt) *kgo.Client {
	s.t.Helper()
	c, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(strings.Split(s.Address, ",")...), kgo.MetadataMinAge(50 * time.Millisecond), kgo.DisableClientMetrics()}, opts...)...)
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

// AddTopic makes a topic and returns when it can be produced to. configs are names and values in turn.
func (s *Server) AddTopic(name string, partitions int, configs ...string) {
	s.t.Helper()
	one := kmsg.NewCreateTopicsRequestTopic()
	one.Topic, one.NumPartitions, one.ReplicationFactor = name, int32(partitions), 1
	for i := 0; i < len(configs); i += 2 {
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = configs[i], kmsg.StringPtr(configs[i+1])
		one.Configs = append(one.Configs, c)
	}
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Topics, req.TimeoutMillis = append(req.Topics, one), 30_000
	client := s.client()
	defer client.Close()
	resp, err := req.RequestWith(s.t.Context(), client)
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
	}
	if err != nil {
		s.t.Fatalf("topic %s: %v", name, err)
	}
	s.await(name, false)
}

// DeleteTopic deletes a topic and returns when it is gone.
func (s *Server) DeleteTopic(name string) {
	s.t.Helper()
	one := kmsg.NewDeleteTopicsRequestTopic()
	one.Topic = kmsg.StringPtr(name)
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.TopicNames, req.Topics, req.TimeoutMillis = []string{name}, append(req.Topics, one), 30_000
	client := s.client()
	defer client.Close()
	resp, err := req.RequestWith(s.t.Context(), client)
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
	}
	if err != nil {
		s.t.Fatalf("topic %s: %v", name, err)
	}
	s.await(name, true)
}

// Records returns all that is in a topic, each partition in its order.
func (s *Server) Records(topic string) []*kgo.Record {
	s.t.Helper()
	ends := s.ends(topic)
	start := map[int32]kgo.Offset{}
	left := 0
	for p, end := range ends {
		start[p] = kgo.NewOffset().At(0)
		left += int(end)
	}
	client := s.client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: start}))
	defer client.Close()
	var all []*kgo.Record
	for left > 0 {
		fetches := client.PollFetches(s.t.Context())
		if err := fetches.Err(); err != nil {
			s.t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if r.Offset < ends[r.Partition] {
				all = append(all, r)
				left--
			}
		})
	}
	return all
}

// Stored returns what a topic has of each record, each partition in its order.
func (s *Server) Stored(topic string) (all []sinktest.Stored) {
	s.t.Helper()
	for _, r := range s.Records(topic) {
		all = append(all, sinktest.Stored{ID: ID(r), Payload: string(r.Value)})
	}
	return all
}

// ends returns the end of each partition of a topic.
func (s *Server) ends(topic string) map[int32]int64 {
	s.t.Helper()
	client := s.client()
	defer client.Close()
	ends, err := ends(s.t.Context(), client, topic)
	if err != nil {
		s.t.Fatalf("%s: %v", topic, err)
	}
	return ends
}

func ends(ctx context.Context, client *kgo.Client, topic string) (map[int32]int64, error) {
	ask := kmsg.NewMetadataRequestTopic()
	ask.Topic = kmsg.StringPtr(topic)
	meta := kmsg.NewPtrMetadataRequest()
	meta.Topics = append(meta.Topics, ask)
	found, err := meta.RequestWith(ctx, client)
	if err != nil {
		return nil, err
	}
	if err := kerr.ErrorForCode(found.Topics[0].ErrorCode); err != nil {
		return nil, err
	}
	one := kmsg.NewListOffsetsRequestTopic()
	one.Topic = topic
	for _, p := range found.Topics[0].Partitions {
		part := kmsg.NewListOffsetsRequestTopicPartition()
		part.Partition, part.Timestamp = p.Partition, -1
		one.Partitions = append(one.Partitions, part)
	}
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID, req.Topics = -1, append(req.Topics, one)
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return nil, err
	}
	all := map[int32]int64{}
	for _, p := range resp.Topics[0].Partitions {
		if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
			return nil, err
		}
		all[p.Partition] = p.Offset
	}
	return all, nil
}

// await returns when a topic is there and has leaders, or, with gone, when it is not there any more: the broker answers a change
// before it has made it.
func (s *Server) await(topic string, gone bool) {
	s.t.Helper()
	for s.t.Context().Err() == nil {
		client := s.client() // one that has not asked before
		_, err := ends(s.t.Context(), client, topic)
		client.Close()
		if gone && errors.Is(err, kerr.UnknownTopicOrPartition) || !gone && err == nil {
			return
		}
	}
	s.t.Fatal(s.t.Context().Err())
}

// ID returns the header with the record's id.
func ID(r *kgo.Record) string {
	for _, h := range r.Headers {
		if h.Key == "weir-record-id" {
			return string(h.Value)
		}
	}
	return ""
}
