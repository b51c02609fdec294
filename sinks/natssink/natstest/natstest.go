// Package natstest runs real NATS servers for tests: with JetStream on file storage, alone or as a cluster on loopback, that
// can be killed and started again.
package natstest

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-agent/weir/sinks/sinktest"
)

// Server is one nats-server.
type Server struct {
	sinktest.Process
	// Address is host:port, the same after a restart.
	Address string
	// Dir is the folder of its configuration and its storage.
	Dir string

	t testing.TB
}

// Start runs a server with JetStream. more is put into its configuration; a line that begins with "listen" in it replaces the
// server's own choice of an address, and one that begins with "jetstream" its storage.
func Start(t testing.TB, more string) *Server {
	t.Helper()
	s := newServer(t)
	s.Configure(more)
	s.Start(t)
	return s
}

func newServer(t testing.TB) *Server {
	t.Helper()
	binary := sinktest.Program(t, "nats-server", "go install github.com/nats-io/nats-server/v2@latest")
	s := &Server{t: t, Dir: t.TempDir(), Address: sinktest.FreeAddress(t)}
	s.Process = sinktest.Process{
		Command: func() *exec.Cmd { return exec.Command(binary, "-c", s.config()) },
		Log:     filepath.Join(s.Dir, "log"),
		Serves:  func() bool { return sinktest.Listens(s.Address) },
	}
	return s
}

func (s *Server) config() string { return filepath.Join(s.Dir, "nats.conf") }

// Configure writes the configuration, which counts from the next start on.
func (s *Server) Configure(more string) {
	s.t.Helper()
	text := fmt.Sprintf("listen: %q\n", s.Address)
	if !strings.Contains("\n"+more, "\njetstream") {
		text += fmt.Sprintf("jetstream { store_dir: %q }\n", s.Dir)
	}
	sinktest.WriteFile(s.t, s.config(), text+more)
}

// URL is the address for clients.
func (s *Server) URL() string { return "nats://" + s.Address }

// Cluster runs n servers as one cluster and returns when it can make streams.
func Cluster(t testing.TB, n int) []*Server {
	t.Helper()
	var all []*Server
	var routes []string
	for range n {
		all = append(all, newServer(t))
		routes = append(routes, sinktest.FreeAddress(t))
	}
	for i, s := range all {
		s.Configure(fmt.Sprintf("server_name: n%d\ncluster { name: c, listen: %q, routes: [ \"nats://%s\" ] }\n", i, routes[i], strings.Join(routes, `", "nats://`)))
		s.Start(t)
	}
	return all
}

// Connect returns a client, which the end of the test closes.
func Connect(t testing.TB, url string, opts ...nats.Option) jetstream.JetStream {
	t.Helper()
	conn, err := nats.Connect(url, append(opts, nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond), nats.RetryOnFailedConnect(true))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// AddStream makes or changes a stream.
func AddStream(t testing.TB, js jetstream.JetStream, c jetstream.StreamConfig) {
	t.Helper()
	c.Storage = jetstream.FileStorage
	await(t, func(ctx context.Context) error {
		_, err := js.CreateOrUpdateStream(ctx, c)
		return err
	})
}

// Info returns what there is to know of a stream.
func Info(t testing.TB, js jetstream.JetStream, name string) *jetstream.StreamInfo {
	t.Helper()
	var info *jetstream.StreamInfo
	await(t, func(ctx context.Context) error {
		s, err := js.Stream(ctx, name)
		if err == nil {
			info, err = s.Info(ctx)
		}
		return err
	})
	return info
}

// await asks again as long as a cluster has no leader.
func await(t testing.TB, ask func(ctx context.Context) error) {
	t.Helper()
	for {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		err := ask(ctx)
		cancel()
		if err == nil {
			return
		}
		if t.Context().Err() != nil || !passes(err) {
			t.Fatal(err)
		}
	}
}

// passes tells the errors of a cluster that has no leader.
func passes(err error) bool {
	api, ok := errors.AsType[*jetstream.APIError](err)
	return ok && api.Code >= 500 || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrNoResponders) || errors.Is(err, nats.ErrTimeout) ||
		errors.Is(err, nats.ErrDisconnected)
}

// Messages returns all that is in a stream, in its order.
func Messages(t testing.TB, js jetstream.JetStream, stream string) (all []jetstream.Msg) {
	t.Helper()
	want := int(Info(t, js, stream).State.Msgs)
	await(t, func(ctx context.Context) error {
		all = nil // an ask that failed halfway is begun anew
		last := uint64(0)
		c, err := js.OrderedConsumer(ctx, stream, jetstream.OrderedConsumerConfig{})
		if err != nil {
			return err
		}
		for len(all) < want {
			got, err := c.FetchNoWait(min(want-len(all), 1000))
			if err != nil {
				return err
			}
			before := len(all)
			for m := range got.Messages() {
				all = append(all, m)
				at, err := m.Metadata()
				if err != nil {
					t.Fatal(err)
				}
				if at.Sequence.Stream <= last {
					t.Fatalf("message %d of the stream was read after message %d", at.Sequence.Stream, last)
				}
				last = at.Sequence.Stream
			}
			if err := got.Error(); err != nil {
				return err
			}
			if len(all) == before && ctx.Err() != nil {
				return ctx.Err()
			}
		}
		return nil
	})
	return all
}

// Stored returns the records in a stream, in its order.
func Stored(t testing.TB, js jetstream.JetStream, stream string) (all []sinktest.Stored) {
	t.Helper()
	for _, m := range Messages(t, js, stream) {
		all = append(all, sinktest.Stored{ID: m.Headers().Get(jetstream.MsgIDHeader), Payload: string(m.Data())})
	}
	return all
}
