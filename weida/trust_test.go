package weida

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/weir-agent/weir/weida/transport"
	"github.com/weir-agent/weir/weida/transport/quictransport"
	"github.com/weir-agent/weir/weida/transport/simnet"
)

// authority is a certificate authority for tests.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{key: key}
	a.cert = a.sign(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, nil, &key.PublicKey)
	return a
}

// sign fills in what every certificate has and signs it with the authority's key, by parent or by itself.
func (a *authority) sign(t *testing.T, c, parent *x509.Certificate, public *ecdsa.PublicKey) *x509.Certificate {
	t.Helper()
	c.SerialNumber = big.NewInt(1)
	if c.NotAfter.IsZero() {
		c.NotBefore, c.NotAfter = time.Date(1990, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	if parent == nil {
		parent = c
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, public, a.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func (a *authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

// issue makes an identity that the authority vouches for.
func (a *authority) issue(t *testing.T, c *x509.Certificate) *Identity {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert := a.sign(t, c, a.cert, &key.PublicKey)
	id, err := newIdentity(tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key})
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func anchors(t *testing.T, base Trust, pem []byte) Trust {
	t.Helper()
	trust, err := base.WithAnchors(pem)
	if err != nil {
		t.Fatal(err)
	}
	return trust
}

// outcome is what a dial came to, as seen by the dialling side.
type outcome uint8

const (
	accepted   outcome = iota
	untrusted          // the dialling side refused who answered
	noTrust            // nothing was sent
	refused            // the accepting side refused the client
	tlsFailure         // the handshake failed otherwise
)

// handshake dials a binding under both sides' terms and returns the outcome and the link's end at the binding, if there is one.
func handshake(t *testing.T, server ServerTLS, client ClientTLS, to Address) (outcome, transport.Identity) {
	t.Helper()
	network := simnet.New(1, simnet.Conditions{})
	serverConf, err := server.config()
	if err != nil {
		t.Fatal(err)
	}
	listener, err := quictransport.Listen(network.Listen(), serverConf, quictransport.ListenConfig{})
	if err != nil {
		t.Fatal(err)
	}
	dialler, err := quictransport.NewDialler(network.Listen(), quictransport.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		_, _ = dialler.Close(), listener.Close()
		_, _ = dialler.Wait(ended), listener.Wait(ended)
	}()
	conf, err := client.config(to)
	if errors.Is(err, ErrNoTrust) {
		return noTrust, transport.Identity{}
	} else if err != nil {
		t.Fatal(err)
	}
	link, err := dialler.Dial(t.Context(), listener.Addr(), conf)
	if err != nil {
		return failed(t, err, server), transport.Identity{}
	}
	// A client is refused only after its own handshake is complete, so either side may speak first.
	got, err := listener.Accept(contextUntil(t, link.Done()))
	if err != nil {
		<-link.Done()
		if e, ok := errors.AsType[*transport.CloseError](link.Err()); ok && e.Cause == transport.CauseTLS && e.Remote {
			return refused, transport.Identity{}
		}
		t.Fatalf("the link ended: %v", link.Err())
	}
	if want := transport.KeyIdentity(must(server.Identity.Current()).Fingerprint()); link.Info().Peer != want {
		t.Errorf("the client knows its peer as %v, want %v", link.Info().Peer, want)
	}
	return accepted, got.Info().Peer
}

func must(id *Identity, err error) *Identity {
	if err != nil {
		panic(err)
	}
	return id
}

func contextUntil(t *testing.T, done <-chan struct{}) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()
		select {
		case <-done:
		case <-ctx.Done():
		}
	}()
	t.Cleanup(cancel)
	return ctx
}

func failed(t *testing.T, err error, server ServerTLS) outcome {
	t.Helper()
	if e, ok := errors.AsType[*UntrustedError](err); ok {
		if want := must(server.Identity.Current()).Fingerprint(); e.Fingerprint != want {
			t.Errorf("the error names %s, but %s answered", e.Fingerprint, want)
		}
		return untrusted
	}
	if e, ok := errors.AsType[*transport.CloseError](err); ok && e.Cause == transport.CauseTLS {
		return tlsFailure
	}
	t.Fatalf("dial: %v", err)
	return 0
}

func TestVerification(t *testing.T) {
	ca, otherCA := newAuthority(t), newAuthority(t)
	self, other := generate(t), generate(t)
	named := generate(t, "host")
	issued := ca.issue(t, &x509.Certificate{DNSNames: []string{"host"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	byIP := ca.issue(t, &x509.Certificate{IPAddresses: generate(t, "::1", "10.0.0.1").cert.Leaf.IPAddresses})
	expired := ca.issue(t, &x509.Certificate{
		DNSNames: []string{"host"}, NotBefore: time.Date(1990, 1, 1, 0, 0, 0, 0, time.UTC), NotAfter: time.Date(1991, 1, 1, 0, 0, 0, 0, time.UTC),
	})
	clientOnly := ca.issue(t, &x509.Certificate{DNSNames: []string{"host"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	host := Address{Host: "host", Port: 1, Path: "/x"}
	at := func(h string) Address { a := host; a.Host = h; return a }

	tests := []struct {
		name   string
		server *Identity
		trust  Trust
		to     Address
		want   outcome
	}{
		{"pin of the trust", self, TrustPins(other.Fingerprint(), self.Fingerprint()), host, accepted},
		{"pin of another", self, TrustPins(other.Fingerprint()), host, untrusted},
		{"pin of the address", self, Trust{}, host.WithPin(self.Fingerprint()), accepted},
		{"pin of the address names another", self, Trust{}, host.WithPin(other.Fingerprint()), untrusted},
		{"the address outranks a pin", self, TrustPins(self.Fingerprint()), host.WithPin(other.Fingerprint()), untrusted},
		{"the address outranks an anchor", issued, anchors(t, Trust{}, ca.pem()), host.WithPin(other.Fingerprint()), untrusted},
		{"nobody is trusted", self, Trust{}, host, noTrust},
		{"anchor and name", issued, anchors(t, Trust{}, ca.pem()), host, accepted},
		{"anchor and another name", issued, anchors(t, Trust{}, ca.pem()), at("else"), untrusted},
		{"anchor and IPv4 address", byIP, anchors(t, Trust{}, ca.pem()), at("10.0.0.1"), accepted},
		{"anchor and IPv6 address", byIP, anchors(t, Trust{}, ca.pem()), at("::1"), accepted},
		{"anchor and another address", byIP, anchors(t, Trust{}, ca.pem()), at("10.0.0.2"), untrusted},
		{"another anchor", issued, anchors(t, Trust{}, otherCA.pem()), host, untrusted},
		{"one of two anchors", issued, anchors(t, Trust{}, append(otherCA.pem(), ca.pem()...)), host, accepted},
		{"anchor, and a pin of another", issued, anchors(t, TrustPins(other.Fingerprint()), ca.pem()), host, accepted},
		{"a pin asks for no name", issued, anchors(t, TrustPins(issued.Fingerprint()), otherCA.pem()), at("else"), accepted},
		{"expired, by anchor", expired, anchors(t, Trust{}, ca.pem()), host, untrusted},
		{"expired, by pin", expired, TrustPins(expired.Fingerprint()), host, accepted},
		{"a client's certificate", clientOnly, anchors(t, Trust{}, ca.pem()), host, untrusted},
		{"self-signed as its own anchor", named, anchors(t, Trust{}, named.CertificatePEM()), host, accepted},
		{"self-signed as its own anchor, another name", named, anchors(t, Trust{}, named.CertificatePEM()), at("else"), untrusted},
		{"no platform roots", issued, anchors(t, Trust{}, other.CertificatePEM()), host, untrusted},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, _ := handshake(t, ServerTLS{Identity: tt.server}, ClientTLS{Trust: tt.trust}, tt.to)
			if got != tt.want {
				t.Errorf("got outcome %d, want %d", got, tt.want)
			}
		})
	}
}

func TestClientIdentity(t *testing.T) {
	ca := newAuthority(t)
	server, client, other := generate(t), generate(t), generate(t)
	issued := ca.issue(t, &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	serverOnly := ca.issue(t, &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	pins, byCA := TrustPins(client.Fingerprint()), anchors(t, Trust{}, ca.pem())
	to := Address{Host: "host", Port: 1, Path: "/x"}.WithPin(server.Fingerprint())
	known := func(id *Identity) transport.Identity { return transport.KeyIdentity(id.Fingerprint()) }

	tests := []struct {
		name   string
		trust  *Trust
		client IdentitySource
		want   outcome
		peer   transport.Identity
	}{
		{"anonymous, nothing required", nil, nil, accepted, transport.Identity{}},
		{"proved, nothing required", nil, client, accepted, known(client)},
		{"pinned", &pins, client, accepted, known(client)},
		{"anonymous, but required", &pins, nil, refused, transport.Identity{}},
		{"not pinned", &pins, other, refused, transport.Identity{}},
		{"by anchor, no name asked", &byCA, issued, accepted, known(issued)},
		{"a server's certificate", &byCA, serverOnly, refused, transport.Identity{}},
		{"no anchor for it", &byCA, client, refused, transport.Identity{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, peer := handshake(t, ServerTLS{Identity: server, ClientTrust: tt.trust}, ClientTLS{Identity: tt.client}, to)
			if got == tlsFailure && tt.want == refused {
				got = refused // the alert can be here before the dial is done
			}
			if got != tt.want || peer != tt.peer {
				t.Errorf("got outcome %d and peer %v, want %d and %v", got, peer, tt.want, tt.peer)
			}
		})
	}
}

// TestTheKeyMustBeHeld shows the certificate of a pinned peer with another key.
func TestTheKeyMustBeHeld(t *testing.T) {
	pinned, thief := generate(t), generate(t)
	stolen := &Identity{
		cert:        tls.Certificate{Certificate: pinned.cert.Certificate, PrivateKey: thief.cert.PrivateKey},
		fingerprint: pinned.fingerprint,
	}
	to := Address{Host: "host", Port: 1, Path: "/x"}
	got, _ := handshake(t, ServerTLS{Identity: stolen}, ClientTLS{Trust: TrustPins(pinned.Fingerprint())}, to)
	if got != tlsFailure {
		t.Errorf("got outcome %d, want %d", got, tlsFailure)
	}
}

func TestBindingTermsAreChecked(t *testing.T) {
	id := generate(t)
	empty := Trust{}
	dir, err := OpenIdentityDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(dir.path); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name  string
		terms ServerTLS
		want  error
	}{
		{"no identity", ServerTLS{}, ErrNoIdentity},
		{"requires clients and trusts none", ServerTLS{Identity: id, ClientTrust: &empty}, ErrNoTrust},
		{"an identity that is gone", ServerTLS{Identity: dir}, os.ErrNotExist},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := tt.terms.config(); !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
		})
	}
}

func TestTrustByContent(t *testing.T) {
	a, b := generate(t), generate(t)
	ca := newAuthority(t)
	file := filepath.Join(t.TempDir(), "anchors.pem")
	writeFile(t, file, append([]byte("some words\n"), ca.pem()...), 0o644)
	fromFile, err := Trust{}.WithAnchorFile(file)
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		x, y Trust
		want bool
	}{
		{"empty", Trust{}, TrustPins(), true},
		{"order and repeats", TrustPins(a.Fingerprint(), b.Fingerprint(), a.Fingerprint()), TrustPins(b.Fingerprint()).WithPins(a.Fingerprint()), true},
		{"one more pin", TrustPins(a.Fingerprint()), TrustPins(a.Fingerprint(), b.Fingerprint()), false},
		{"anchor twice", anchors(t, fromFile, ca.pem()), fromFile, true},
		{"anchor or not", fromFile, Trust{}, false},
		{"pin or anchor", anchors(t, Trust{}, a.CertificatePEM()), TrustPins(a.Fingerprint()), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.x.Equal(tt.y); got != tt.want {
				t.Errorf("Equal: got %v, want %v", got, tt.want)
			}
			if got := tt.x.digest() == tt.y.digest(); got != tt.want {
				t.Errorf("equal digests: got %v, want %v", got, tt.want)
			}
		})
	}
	base := TrustPins(a.Fingerprint())
	if _ = base.WithPins(b.Fingerprint()); !base.Equal(TrustPins(a.Fingerprint())) {
		t.Error("WithPins changed the trust it was called on")
	}
	if !(Trust{}).IsEmpty() || base.IsEmpty() || fromFile.IsEmpty() {
		t.Error("IsEmpty is wrong")
	}
}

func TestAnchorsRefused(t *testing.T) {
	id := generate(t)
	tests := []struct{ name, pem string }{
		{"nothing", ""},
		{"a key alone", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: id.key}))},
		{"garbage", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if trust, err := (Trust{}).WithAnchors([]byte(tt.pem)); err == nil || !trust.IsEmpty() {
				t.Errorf("got %v, %v", trust, err)
			}
		})
	}
}
