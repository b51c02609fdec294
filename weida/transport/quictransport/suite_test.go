package quictransport

import (
	"context"
	"crypto/tls"
	"net"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/weir-agent/weir/weida/transport"
	"github.com/weir-agent/weir/weida/transport/simnet"
	"github.com/weir-agent/weir/weida/transport/transporttest"
)

func TestMain(m *testing.M) {
	// quic-go would say for each run that a simulated network has no socket buffers.
	if err := os.Setenv("QUIC_GO_DISABLE_RECEIVE_BUFFER_WARNING", "true"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// testWindow is the stream window of these tests, in bytes.
const testWindow = 64 << 10

var testConfig = Config{StreamReceiveWindow: testWindow, ConnectionReceiveWindow: 4 * testWindow}

// serverTLS and clientTLS take part in a handshake without looking at who the other side is: verification is the caller's.
func serverTLS(t testing.TB) *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{transporttest.Certificate(t)}, ClientAuth: tls.RequestClientCert}
}

func clientTLS(cert ...tls.Certificate) *tls.Config {
	return &tls.Config{Certificates: cert, InsecureSkipVerify: true, VerifyConnection: func(tls.ConnectionState) error { return nil }}
}

// rig is a listener and a dialler, freed when the test ends.
type rig struct {
	listener *Listener
	dialler  *Dialler
}

func newRig(t *testing.T, server, client net.PacketConn, listen ListenConfig, dial Config) *rig {
	t.Helper()
	l, err := Listen(server, serverTLS(t), listen)
	if err != nil {
		t.Fatal(err)
	}
	d, err := NewDialler(client, dial)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// Whatever a test left open is cut off.
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		for _, err := range []error{d.Close(), l.Close()} {
			if err != nil {
				t.Error(err)
			}
		}
		_ = d.Wait(ended)
		_ = l.Wait(ended)
	})
	return &rig{l, d}
}

// pair makes a link between the two.
func (r *rig) pair(t *testing.T, cert ...tls.Certificate) (dialled, accepted transport.Link) {
	t.Helper()
	dialled, err := r.dialler.Dial(t.Context(), r.listener.Addr(), clientTLS(cert...))
	if err != nil {
		t.Fatal(err)
	}
	accepted, err = r.listener.Accept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return dialled, accepted
}

// loopback opens a UDP socket on the loopback address.
func loopback(t testing.TB) *net.UDPConn {
	t.Helper()
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

func TestSuiteOverUDP(t *testing.T) {
	transporttest.Run(t, transporttest.Harness{
		Window: testWindow,
		Pair: func(t *testing.T) (transport.Link, transport.Link) {
			return newRig(t, loopback(t), loopback(t), ListenConfig{Config: testConfig}, testConfig).pair(t)
		},
	})
}

func TestSuiteOverSimulatedNetwork(t *testing.T) {
	transporttest.Run(t, transporttest.Harness{
		Window: testWindow,
		Pair: func(t *testing.T) (transport.Link, transport.Link) {
			n := simnet.New(1, simnet.Conditions{})
			return newRig(t, n.Listen(), n.Listen(), ListenConfig{Config: testConfig}, testConfig).pair(t)
		},
	})
}
