package sinktest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority issues certificates for tests, of servers on 127.0.0.1 and of clients.
type Authority struct {
	// PEM is the authority's own certificate.
	PEM []byte

	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority makes an authority of that name.
func NewAuthority(t testing.TB, name string) *Authority {
	t.Helper()
	a := &Authority{}
	a.cert, a.key, a.PEM, _ = issue(t, name, nil)
	return a
}

// Issue returns a certificate for name and its key, PEM.
func (a *Authority) Issue(t testing.TB, name string) (cert, key []byte) {
	t.Helper()
	_, _, cert, key = issue(t, name, a)
	return cert, key
}

// Pair is Issue for crypto/tls.
func (a *Authority) Pair(t testing.TB, name string) tls.Certificate {
	t.Helper()
	pair, err := tls.X509KeyPair(a.Issue(t, name))
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// Files is Issue into files of a temporary folder, and the authority's own certificate beside them.
func (a *Authority) Files(t testing.TB, name string) (ca, cert, key string) {
	t.Helper()
	dir := t.TempDir()
	c, k := a.Issue(t, name)
	paths := make([]string, 0, 3)
	for _, one := range []struct {
		name string
		data []byte
	}{{"ca.pem", a.PEM}, {"cert.pem", c}, {"key.pem", k}} {
		path := filepath.Join(dir, one.name)
		if err := os.WriteFile(path, one.data, 0o600); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	return paths[0], paths[1], paths[2]
}

// Pool has the authority.
func (a *Authority) Pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

// issue makes a certificate for 127.0.0.1, signed by ca or by itself.
func issue(t testing.TB, name string, ca *Authority) (*x509.Certificate, *ecdsa.PrivateKey, []byte, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Date(1990, 1, 1, 0, 0, 0, 0, time.UTC), NotAfter: time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, BasicConstraintsValid: true, IsCA: ca == nil,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	parent, signer := template, key
	if ca != nil {
		parent, signer = ca.cert, ca.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
}
