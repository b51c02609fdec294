package weida

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
)

// UntrustedError says that the peer proved to be somebody whom this side does not accept. Nothing was sent to it.
type UntrustedError struct {
	// Fingerprint is who answered, so that an operator can decide whether to pin it.
	Fingerprint Fingerprint
	// Err is why an anchor did not accept it, nil where no anchor was asked.
	Err error
}

// Error names who answered.
func (e *UntrustedError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("untrusted peer %s: %v", e.Fingerprint, e.Err)
	}
	return fmt.Sprintf("untrusted peer %s", e.Fingerprint)
}

// Unwrap returns why an anchor did not accept the peer.
func (e *UntrustedError) Unwrap() error { return e.Err }

var (
	// ErrNoTrust is returned where nobody could be accepted: by a dial of an address without a fingerprint under an empty trust, before a
	// packet leaves, and by a binding that requires clients and trusts none.
	ErrNoTrust = errors.New("nobody is trusted: no pin, no anchor, and no fingerprint in the address")
	// ErrNoIdentity is returned by a binding that was given no identity.
	ErrNoIdentity = errors.New("a binding needs an identity")
)

// Trust is whom an endpoint accepts: pinned keys, and whoever an anchor vouches for. The zero value accepts nobody but whom
// addresses name. It does not change; With… methods return another one.
type Trust struct {
	pins    []Fingerprint       // ascending, each once
	anchors []*x509.Certificate // each once, in order of their bytes
}

// TrustPins accepts peers that prove one of these keys, whatever their certificates say.
func TrustPins(pins ...Fingerprint) Trust { return Trust{}.WithPins(pins...) }

// WithPins also accepts peers that prove one of these keys.
func (t Trust) WithPins(pins ...Fingerprint) Trust {
	all := append(slices.Clone(t.pins), pins...)
	slices.SortFunc(all, func(a, b Fingerprint) int { return slices.Compare(a[:], b[:]) })
	t.pins = slices.Compact(all)
	return t
}

// WithAnchors also accepts peers whose chain reaches one of the certificates in data and whose certificate is for the host that was dialled.
// data is PEM with at least one certificate; blocks of other kinds are passed over.
func (t Trust) WithAnchors(data []byte) (Trust, error) {
	all := slices.Clone(t.anchors)
	found := false
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return Trust{}, fmt.Errorf("read anchors: %w", err)
		}
		all, found = append(all, c), true
	}
	if !found {
		return Trust{}, errors.New("read anchors: no certificate in the PEM")
	}
	slices.SortFunc(all, func(a, b *x509.Certificate) int { return slices.Compare(a.Raw, b.Raw) })
	t.anchors = slices.CompactFunc(all, (*x509.Certificate).Equal)
	return t, nil
}

// WithAnchorFile reads WithAnchors' PEM from a file of at most 1 MiB.
func (t Trust) WithAnchorFile(path string) (Trust, error) {
	data, err := readPEMFile(path, false)
	if err != nil {
		return Trust{}, fmt.Errorf("read anchors: %w", err)
	}
	return t.WithAnchors(data)
}

// IsEmpty reports whether nobody is accepted but whom addresses name.
func (t Trust) IsEmpty() bool { return len(t.pins) == 0 && len(t.anchors) == 0 }

// Equal reports whether both accept the same peers for the same reasons.
func (t Trust) Equal(o Trust) bool {
	return slices.Equal(t.pins, o.pins) && slices.EqualFunc(t.anchors, o.anchors, (*x509.Certificate).Equal)
}

// digest names the content of a trust, for use as a map key.
func (t Trust) digest() [sha256.Size]byte {
	h := sha256.New()
	for _, p := range t.pins {
		h.Write(p[:])
	}
	for _, a := range t.anchors {
		sum := sha256.Sum256(a.Raw)
		h.Write([]byte{0}) // no pin is one byte longer
		h.Write(sum[:])
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// ClientTLS is on what terms an endpoint dials.
type ClientTLS struct {
	// Trust is whom it accepts.
	Trust Trust
	// Identity is who it proves to be; nil dials anonymously.
	Identity IdentitySource
}

// ServerTLS is on what terms a binding is dialled.
type ServerTLS struct {
	// Identity is who the binding proves to be. It is required.
	Identity IdentitySource
	// ClientTrust, if not nil, requires of every client that it proves to be somebody who is trusted. It may then not be empty. If it is nil,
	// anybody may connect, and a client that proves a key is known by it all the same.
	ClientTrust *Trust
}

// policy is the one rule by which peers are accepted, in both directions (weida-supplement §14).
type policy struct {
	pin   *Fingerprint // of the address: then nothing else counts
	trust Trust
	name  string // the host that was dialled; empty for clients, which have none
	usage x509.ExtKeyUsage
}

// verify decides on a peer that has proved the key of its first certificate. The handshake's signature was checked before.
func (p policy) verify(chain []*x509.Certificate) error {
	if len(chain) == 0 {
		return errors.New("the peer proved no identity")
	}
	leaf := chain[0]
	f := Fingerprint(sha256.Sum256(leaf.RawSubjectPublicKeyInfo))
	if p.pin != nil {
		if f == *p.pin {
			return nil
		}
		return &UntrustedError{Fingerprint: f}
	}
	if slices.Contains(p.trust.pins, f) {
		return nil
	}
	if len(p.trust.anchors) == 0 {
		return &UntrustedError{Fingerprint: f}
	}
	opts := x509.VerifyOptions{
		Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool(),
		DNSName: p.name, KeyUsages: []x509.ExtKeyUsage{p.usage},
	}
	for _, a := range p.trust.anchors {
		opts.Roots.AddCert(a)
	}
	for _, c := range chain[1:] {
		opts.Intermediates.AddCert(c)
	}
	if _, err := leaf.Verify(opts); err != nil {
		return &UntrustedError{Fingerprint: f, Err: err}
	}
	return nil
}

// config returns the TLS configuration for dialling a. It fails with ErrNoTrust where nobody could be accepted.
func (c ClientTLS) config(a Address) (*tls.Config, error) {
	p := policy{trust: c.Trust, name: a.Host, usage: x509.ExtKeyUsageServerAuth}
	if a.Pinned {
		p.pin = &a.Pin
	} else if c.Trust.IsEmpty() {
		return nil, ErrNoTrust
	}
	conf := &tls.Config{
		MinVersion: tls.VersionTLS13,
		ServerName: a.Host,
		// The policy takes the place of crypto/tls's own verification, which knows no pins.
		InsecureSkipVerify: true,
		VerifyConnection:   func(s tls.ConnectionState) error { return p.verify(s.PeerCertificates) },
	}
	if c.Identity != nil {
		conf.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			id, err := c.Identity.Current()
			if err != nil {
				return nil, err
			}
			return &id.cert, nil
		}
	}
	return conf, nil
}

// config returns the TLS configuration of a binding.
func (s ServerTLS) config() (*tls.Config, error) {
	if s.Identity == nil {
		return nil, ErrNoIdentity
	}
	if _, err := s.Identity.Current(); err != nil {
		return nil, err
	}
	conf := &tls.Config{
		MinVersion: tls.VersionTLS13,
		ClientAuth: tls.RequestClientCert,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			id, err := s.Identity.Current()
			if err != nil {
				return nil, err
			}
			return &id.cert, nil
		},
	}
	if s.ClientTrust == nil {
		return conf, nil
	}
	if s.ClientTrust.IsEmpty() {
		return nil, ErrNoTrust
	}
	p := policy{trust: *s.ClientTrust, usage: x509.ExtKeyUsageClientAuth}
	conf.ClientAuth = tls.RequireAnyClientCert
	conf.VerifyConnection = func(cs tls.ConnectionState) error { return p.verify(cs.PeerCertificates) }
	return conf, nil
}
