package transport

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// Fingerprint is the SHA-256 of a key's DER SubjectPublicKeyInfo (weida-supplement §14). Its text is "sha256:" and 64
// lower-case hexadecimal digits. It names the key and not the certificate, so it outlives a renewal.
type Fingerprint [sha256.Size]byte

const fingerprintPrefix = "sha256:"

// ErrFingerprint is wrapped by every error of ParseFingerprint.
var ErrFingerprint = errors.New("invalid fingerprint")

// CertificateFingerprint returns the fingerprint of the key of c.
func CertificateFingerprint(c *x509.Certificate) Fingerprint {
	return sha256.Sum256(c.RawSubjectPublicKeyInfo)
}

// ParseFingerprint reads the text of a fingerprint; capitals are refused, as is any other form.
func ParseFingerprint(s string) (Fingerprint, error) {
	var f Fingerprint
	digits, ok := strings.CutPrefix(s, fingerprintPrefix)
	if !ok {
		return f, fmt.Errorf("%w: it does not begin with %q", ErrFingerprint, fingerprintPrefix)
	}
	if len(digits) != hex.EncodedLen(len(f)) || strings.ToLower(digits) != digits {
		return f, fmt.Errorf("%w: want %d lower-case hexadecimal digits", ErrFingerprint, hex.EncodedLen(len(f)))
	}
	if _, err := hex.Decode(f[:], []byte(digits)); err != nil {
		return Fingerprint{}, fmt.Errorf("%w: %w", ErrFingerprint, err)
	}
	return f, nil
}

// String returns the text form.
func (f Fingerprint) String() string { return fingerprintPrefix + hex.EncodeToString(f[:]) }

// MarshalText returns the text form.
func (f Fingerprint) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// UnmarshalText reads the text form.
func (f *Fingerprint) UnmarshalText(text []byte) error {
	p, err := ParseFingerprint(string(text))
	if err != nil {
		return err
	}
	*f = p
	return nil
}

// IdentityKind is how a peer proved who it is.
type IdentityKind uint8

const (
	// IdentityNone: the peer proved nothing (an anonymous client, an in-process peer). Two such peers
	// are never known to be one.
	IdentityNone IdentityKind = iota
	// IdentityKey: the peer proved in the TLS handshake that it holds a key.
	IdentityKey
	// IdentityLocal: the kernel says which user runs the peer.
	IdentityLocal
)

// Identity is who a peer proved to be. It is comparable.
type Identity struct {
	Kind IdentityKind
	// Key is set for IdentityKey.
	Key Fingerprint
	// UID and GID are set for IdentityLocal. PID is then the peer's process where the kernel tells it,
	// otherwise 0; it is an observation, and nothing may be allowed because of it.
	UID, GID uint32
	PID      int32
}

// KeyIdentity returns the identity of a peer that proved it holds the key of f.
func KeyIdentity(f Fingerprint) Identity { return Identity{Kind: IdentityKey, Key: f} }

// Fingerprint returns the proved key's fingerprint, and whether there is one.
func (i Identity) Fingerprint() (Fingerprint, bool) { return i.Key, i.Kind == IdentityKey }

// String returns the fingerprint, "uid 1000" or "anonymous".
func (i Identity) String() string {
	switch i.Kind {
	case IdentityKey:
		return i.Key.String()
	case IdentityLocal:
		return fmt.Sprintf("uid %d", i.UID)
	case IdentityNone:
	}
	return "anonymous"
}
