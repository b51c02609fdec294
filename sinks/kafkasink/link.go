//go:build !nokafka

package kafkasink

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/weir-agent/weir/sinks/setup"
)

const (
	// recordTries is how often the client sends a record that a broker answers with a passing error, before the drain decides.
	recordTries = 8
	// unknownTries is how often a topic that was there may be unknown, as it is for a moment on a broker that just started.
	unknownTries = 2
	// leastBackoff doubles with each failure, up to mostBackoff.
	leastBackoff = 50 * time.Millisecond
	mostBackoff  = time.Second
	// metadataMinAge is how soon the client asks again who leads a partition.
	metadataMinAge = 250 * time.Millisecond
	// maxBufferedBytes bounds keys, payloads and headers that wait for their ack, over all batches. It has room for the largest record.
	maxBufferedBytes = 2 * mostBatchMaxBytes
)

var (
	errNoPartitions = errors.New("the topic has no partition")
	errGivenUp      = errors.New("the connection was given up")
)

// link is one client: its connections, its producer's id and what it has buffered. Once cut it is of no more use.
type link struct {
	opts    *Options
	client  *kgo.Client
	conns   *setup.Conns
	cutting sync.Once
	gone    chan struct{} // closed when the client has ended and buffers nothing

	mu    sync.Mutex
	known map[string]bool // topics that the cluster has; guarded by mu
	fault error           // why the newest connection could not be made, nil when it could; guarded by mu
}

var _ kgo.HookBrokerConnect = (*link)(nil)

// open makes a client, which connects when it has to.
func (s *Sink) open() (*link, error) {
	l := &link{opts: &s.opts, conns: setup.NewConns(s.opts.ConnectTimeout), gone: make(chan struct{}), known: map[string]bool{}}
	opts := []kgo.Opt{
		kgo.ClientID("weir"), kgo.SeedBrokers(s.opts.seeds()...), kgo.Dialer(l.dial), kgo.WithHooks(l), kgo.DisableClientMetrics(),
		kgo.MetadataMinAge(metadataMinAge), kgo.RetryBackoffFn(backoff),
		kgo.RequiredAcks(kgo.AllISRAcks()), kgo.RecordRetries(recordTries), kgo.UnknownTopicRetries(unknownTries), kgo.ProducerLinger(0),
		kgo.ProducerBatchMaxBytes(int32(s.opts.BatchMaxBytes)), kgo.MaxBufferedRecords(s.opts.MaxPending), kgo.MaxBufferedBytes(maxBufferedBytes),
		kgo.ProducerBatchCompression(codec(s.opts.Compression)),
	}
	if s.opts.Partition != PartitionSticky {
		opts = append(opts, kgo.RecordPartitioner(kgo.BasicConsistentPartitioner(func(string) func(*kgo.Record, int) int {
			return func(r *kgo.Record, n int) int { return int(r.Partition) % n }
		})))
	}
	if s.opts.SASL != SASLNone {
		opts = append(opts, kgo.SASL(s.opts.mechanism()))
	}
	var err error
	if l.client, err = kgo.NewClient(opts...); err != nil {
		return nil, fmt.Errorf("kafkasink: %w", err)
	}
	return l, nil
}

func backoff(failures int) time.Duration {
	return min(leastBackoff<<min(failures, 10), mostBackoff)
}

func codec(name string) kgo.CompressionCodec {
	switch name {
	case "lz4":
		return kgo.Lz4Compression()
	case "zstd":
		return kgo.ZstdCompression()
	case "gzip":
		return kgo.GzipCompression()
	case "none":
		return kgo.NoCompression()
	}
	return kgo.SnappyCompression()
}

// mechanism returns the login, which reads the password for each connection.
func (o *Options) mechanism() sasl.Mechanism {
	password := func() (string, error) {
		p, err := o.password().Read()
		if err != nil {
			return "", &setup.Unfit{Section: section, Err: fmt.Errorf("password_file: %w", err)}
		}
		return p, nil
	}
	if o.SASL == SASLPlain {
		return plain.Plain(func(context.Context) (plain.Auth, error) {
			p, err := password()
			return plain.Auth{User: o.Username, Pass: p}, err
		})
	}
	auth := func(context.Context) (scram.Auth, error) {
		p, err := password()
		return scram.Auth{User: o.Username, Pass: p}, err
	}
	if o.SASL == SASLScram256 {
		return scram.Sha256(auth)
	}
	return scram.Sha512(auth)
}

// login reads the files, to see whether they are good.
func (o *Options) login() error {
	if _, err := o.password().Read(); err != nil {
		return &setup.Unfit{Section: section, Err: fmt.Errorf("password_file: %w", err)}
	}
	if _, err := o.files().Config(); err != nil {
		return &setup.Unfit{Section: section, Err: err}
	}
	return nil
}

// dial makes a connection of the client.
func (l *link) dial(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, l.opts.ConnectTimeout)
	defer cancel()
	conn, err := l.conns.Dial(ctx, network, address)
	if err != nil || !l.opts.TLS && !l.opts.files().Set() {
		return conn, err
	}
	config, err := l.opts.files().Config()
	if err != nil {
		return nil, errors.Join(&setup.Unfit{Section: section, Err: err}, conn.Close())
	}
	if config.ServerName, _, err = net.SplitHostPort(address); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	secure := tls.Client(conn, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close() // the handshake's error tells why
		return nil, err
	}
	return secure, nil
}

// OnBrokerConnect implements kgo.HookBrokerConnect.
func (l *link) OnBrokerConnect(_ kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	l.mu.Lock()
	l.fault = err
	l.mu.Unlock()
}

// cut ends the client and drops what it has buffered, whatever is under way. It returns when nothing of it is left to be sent.
func (l *link) cut() {
	l.cutting.Do(func() {
		l.conns.Close()
		l.client.Close()
		close(l.gone)
	})
	<-l.gone
}

// over tells that the link was cut.
func (l *link) over() bool {
	select {
	case <-l.gone:
		return true
	default:
		return false
	}
}

// why returns the cause of an error that followed from the end of ctx, of the link or of the client's patience, with the reason
// why there is no connection where there is none, and err itself otherwise.
func (l *link) why(ctx context.Context, err error) error {
	cause := err
	switch {
	case ctx.Err() != nil:
		cause = context.Cause(ctx)
	case errors.Is(err, kgo.ErrClientClosed), errors.Is(err, errGivenUp):
		cause = errGivenUp
	case !errors.Is(err, kgo.ErrRecordRetries):
		return err
	}
	l.mu.Lock()
	fault := l.fault
	l.mu.Unlock()
	if fault == nil || isAny(fault, setup.ErrClosed, kgo.ErrClientClosed, net.ErrClosed, context.Canceled) {
		return cause
	}
	return fmt.Errorf("%w: %w", cause, fault)
}

// find makes sure that the cluster has the topic, as the client would wait for one that is missing. It is asked once.
func (l *link) find(ctx context.Context, topic string) error {
	l.mu.Lock()
	known := l.known[topic]
	l.mu.Unlock()
	if known {
		return nil
	}
	one := kmsg.NewMetadataRequestTopic()
	one.Topic = kmsg.StringPtr(topic)
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = append(req.Topics, one)
	req.AllowAutoTopicCreation = false
	resp, err := req.RequestWith(ctx, l.client)
	if err != nil {
		return err
	}
	if len(resp.Topics) != 1 {
		return errNoPartitions
	}
	if err := kerr.ErrorForCode(resp.Topics[0].ErrorCode); err != nil {
		return err
	}
	if len(resp.Topics[0].Partitions) == 0 {
		return errNoPartitions
	}
	l.mu.Lock()
	l.known[topic] = true
	l.mu.Unlock()
	return nil
}

// forget makes the client ask anew about a topic, and drops what it has buffered of it.
func (l *link) forget(topic string) {
	l.mu.Lock()
	delete(l.known, topic)
	l.mu.Unlock()
	l.client.PurgeTopicsFromProducing(topic)
}
