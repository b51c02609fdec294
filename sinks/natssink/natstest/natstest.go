// Package natstest runs real NATS servers for tests: with JetStream on file storage, alone or as a cluster on loopback, that
// can be killed and started again.
package natstest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Server is one nats-server.
type Server struct {
	// Address is host:port, the same after a restart.
	Address string
	// Dir is the folder of its configuration and its storage.
	Dir string

	t      testing.TB
	binary string
	cmd    *exec.Cmd
	ended  chan struct{} // closed once it was waited for
}

// Binary returns the path of nats-server. Where it is missing the test is left out, and fails with CI=true.
func Binary(t testing.TB) string {
	t.Helper()
	path, err := exec.LookPath("nats-server")
	if err == nil {
		return path
	}
	if os.Getenv("CI") == "true" {
		t.Fatal("missing: nats-server")
	}
	t.Skip("left out, for want of nats-server (go install github.com/nats-io/nats-server/v2@latest)")
	return ""
}

// Start runs a server with JetStream. more is put into its configuration; a line that begins with "listen" in it replaces the
// server's own choice of an address, and one that begins with "jetstream" its storage.
func Start(t testing.TB, more string) *Server {
	t.Helper()
	s := &Server{t: t, binary: Binary(t), Dir: t.TempDir(), Address: FreeAddress(t)}
	s.Configure(more)
	s.Run()
	s.AwaitReady()
	return s
}

// FreeAddress returns a loopback address that nobody uses.
func FreeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// Configure writes the configuration, which counts from the next start on.
func (s *Server) Configure(more string) {
	s.t.Helper()
	text := fmt.Sprintf("listen: %q\n", s.Address)
	if !strings.Contains("\n"+more, "\njetstream") {
		text += fmt.Sprintf("jetstream { store_dir: %q }\n", s.Dir)
	}
	if err := os.WriteFile(filepath.Join(s.Dir, "nats.conf"), []byte(text+more), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// Run starts the process and does not wait until it serves.
func (s *Server) Run() {
	s.t.Helper()
	log, err := os.OpenFile(filepath.Join(s.Dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		s.t.Fatal(err)
	}
	defer log.Close()
	cmd, ended := exec.Command(s.binary, "-c", filepath.Join(s.Dir, "nats.conf")), make(chan struct{})
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	go func() {
		_ = cmd.Wait() // it ends by being killed
		close(ended)
	}()
	s.cmd, s.ended = cmd, ended
	s.t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended already
		<-ended
	})
}

// Kill ends the process by SIGKILL.
func (s *Server) Kill() {
	s.t.Helper()
	if err := s.cmd.Process.Kill(); err != nil {
		s.t.Fatal(err)
	}
	<-s.ended
}

// AwaitReady returns once the server takes connections.
func (s *Server) AwaitReady() {
	s.t.Helper()
	for s.t.Context().Err() == nil {
		conn, err := net.Dial("tcp", s.Address)
		if err == nil {
			conn.Close()
			return
		}
		select {
		case <-s.ended:
			log, _ := os.ReadFile(filepath.Join(s.Dir, "log"))
			s.t.Fatalf("nats-server ended:\n%s", log)
		default:
		}
	}
	s.t.Fatal(s.t.Context().Err())
}

// URL is the address for clients.
func (s *Server) URL() string { return "nats://" + s.Address }

// Cluster runs n servers as one cluster and returns when it can make streams.
func Cluster(t testing.TB, n int) []*Server {
	t.Helper()
	var all []*Server
	var routes []string
	for range n {
		all = append(all, &Server{t: t, binary: Binary(t), Dir: t.TempDir(), Address: FreeAddress(t)})
		routes = append(routes, FreeAddress(t))
	}
	for i, s := range all {
		s.Configure(fmt.Sprintf("server_name: n%d\ncluster { name: c, listen: %q, routes: [ \"nats://%s\" ] }\n", i, routes[i], strings.Join(routes, `", "nats://`)))
		s.Run()
	}
	for _, s := range all {
		s.AwaitReady()
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
func Messages(t testing.TB, js jetstream.JetStream, stream string) []jetstream.Msg {
	t.Helper()
	want := Info(t, js, stream).State.Msgs
	var all []jetstream.Msg
	for uint64(len(all)) < want {
		all = all[:0] // a consumer that lost its server begins anew
		await(t, func(ctx context.Context) error {
			c, err := js.OrderedConsumer(ctx, stream, jetstream.OrderedConsumerConfig{})
			if err != nil {
				return err
			}
			for uint64(len(all)) < want {
				got, err := c.FetchNoWait(int(min(want-uint64(len(all)), 1000)))
				if err != nil {
					return err
				}
				for m := range got.Messages() {
					all = append(all, m)
				}
				if err := got.Error(); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return all
}
