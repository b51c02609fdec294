package weida

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"os"
	"time"

	"github.com/weir-agent/weir/weida/transport"
)

// Fingerprint is the SHA-256 of a key's DER SubjectPublicKeyInfo: the one value by which peers are pinned, named in addresses and
// reported. Its text is "sha256:" and 64 lower-case hexadecimal digits.
type Fingerprint = transport.Fingerprint

// ParseFingerprint reads the text of a fingerprint. Its error wraps ErrInvalidFingerprint.
func ParseFingerprint(s string) (Fingerprint, error) { return transport.ParseFingerprint(s) }

// maxPEMBytes bounds what is read of a file with certificates or keys.
const maxPEMBytes = 1 << 20

// IdentitySource gives the identity of an endpoint each time that a handshake needs it. An *Identity is one that never changes, an IdentityDir is one
// that follows its files.
type IdentitySource interface {
	// Current returns the identity to prove now.
	Current() (*Identity, error)
}

// Identity is who an endpoint is: a certificate chain and the private key of its first certificate. It does not change, and
// no method that formats it shows the key.
type Identity struct {
	cert        tls.Certificate
	key         []byte // PKCS #8
	fingerprint Fingerprint
}

var (
	_ IdentitySource = (*Identity)(nil)
	_ slog.LogValuer = (*Identity)(nil)
)

// GenerateIdentity makes a new key and a self-signed certificate for it, with the host names and IP addresses given, which are needed only
// where the certificate is to be an anchor. The certificate is valid from 1990 to 2100: a pin does not look at it, and a
// clock that is wrong must not lock anybody out.
func GenerateIdentity(names ...string) (*Identity, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate identity: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "weida"},
		NotBefore:    time.Date(1990, 1, 1, 0, 0, 0, 0, time.UTC),
		NotAfter:     time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("generate identity: %w", err)
	}
	return newIdentity(tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key})
}

// IdentityFromPEM reads a certificate chain, the leaf first, and the private key of the leaf. Both may be the same bytes: what is
// not of the kind sought is passed over.
func IdentityFromPEM(chain, key []byte) (*Identity, error) {
	cert, err := tls.X509KeyPair(chain, key)
	if err != nil {
		return nil, fmt.Errorf("read identity: %w", err)
	}
	return newIdentity(cert)
}

// IdentityFromFiles reads what IdentityFromPEM does from two files, which may be one and the same, of at most 1 MiB. The file of the key
// must be a regular file that nobody but its owner may read.
func IdentityFromFiles(chainFile, keyFile string) (*Identity, error) {
	chain, err := readPEMFile(chainFile, false)
	if err != nil {
		return nil, fmt.Errorf("read identity: %w", err)
	}
	key, err := readPEMFile(keyFile, true)
	if err != nil {
		return nil, fmt.Errorf("read identity: %w", err)
	}
	return IdentityFromPEM(chain, key)
}

func newIdentity(cert tls.Certificate) (*Identity, error) {
	leaf, err := x509.ParseCertificate(cert.Certificate[0])
	if err != nil {
		return nil, fmt.Errorf("read identity: %w", err)
	}
	cert.Leaf = leaf
	key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	if err != nil {
		return nil, fmt.Errorf("read identity: %w", err)
	}
	return &Identity{cert: cert, key: key, fingerprint: transport.CertificateFingerprint(leaf)}, nil
}

var errExposedKey = errors.New("a private key must be in a regular file that its owner alone can read (mode 0600)")

// readPEMFile reads a whole file of at most maxPEMBytes; secret refuses one that others than its owner may read.
func readPEMFile(path string, secret bool) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if secret && (!info.Mode().IsRegular() || info.Mode().Perm()&0o077 != 0) {
		return nil, fmt.Errorf("%s: %w", path, errExposedKey)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxPEMBytes+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxPEMBytes {
		return nil, fmt.Errorf("%s: more than %d bytes", path, maxPEMBytes)
	}
	return data, nil
}

// Current returns the identity itself.
func (i *Identity) Current() (*Identity, error) { return i, nil }

// Fingerprint is what peers pin.
func (i *Identity) Fingerprint() Fingerprint { return i.fingerprint }

// CertificatePEM returns the certificate chain, which may be given to anybody.
func (i *Identity) CertificatePEM() []byte {
	var b bytes.Buffer
	for _, der := range i.cert.Certificate {
		b.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	}
	return b.Bytes()
}

// PEM returns the certificate chain and the private key, as IdentityFromPEM reads them. It is a secret.
func (i *Identity) PEM() []byte {
	return append(i.CertificatePEM(), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: i.key})...)
}

// String returns the fingerprint.
func (i *Identity) String() string { return i.fingerprint.String() }

// GoString returns the fingerprint, so that no format shows the key.
func (i *Identity) GoString() string { return "weida.Identity(" + i.String() + ")" }

// LogValue returns the fingerprint.
func (i *Identity) LogValue() slog.Value { return slog.StringValue(i.String()) }

// resetKey returns the secret by which peers of an earlier process with the same key learn that their links are gone. It is derived
// from the private key and tells nothing about it.
func (i *Identity) resetKey() (*[32]byte, error) {
	derived, err := hkdf.Key(sha256.New, i.key, nil, "weida stateless reset", sha256.Size)
	if err != nil {
		return nil, fmt.Errorf("derive the reset key: %w", err)
	}
	return (*[32]byte)(derived), nil
}
