package weida

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

const (
	identityFile = "identity.pem"
	identityMode = 0o600
	identityDir  = 0o700
)

// IdentityDir is an identity that lives in a directory, in the file identity.pem: the certificate chain and the private key. It follows the
// file: when that is replaced, the next handshake proves the new one. A new certificate for the same key changes nothing for peers
// that pin the key; a new key is a new peer. Its methods may be called by several goroutines at once.
type IdentityDir struct {
	path string

	mu      sync.Mutex
	current *Identity
	read    fs.FileInfo // of the file that current was read from
}

var _ IdentitySource = (*IdentityDir)(nil)

// OpenIdentityDir opens the identity in dir. If there is none, it makes dir (0700) and an identity with the given names in it (0600); when several
// processes do so at once, one of them wins and all have the same identity. It refuses a directory that others may write to and a
// file that others may read.
func OpenIdentityDir(dir string, names ...string) (*IdentityDir, error) {
	d := &IdentityDir{path: filepath.Join(dir, identityFile)}
	if err := os.MkdirAll(dir, identityDir); err != nil {
		return nil, fmt.Errorf("open identity directory: %w", err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return nil, fmt.Errorf("open identity directory: %w", err)
	}
	if info.Mode().Perm()&0o022 != 0 {
		return nil, fmt.Errorf("open identity directory: %s: others may write to it (want mode 0700)", dir)
	}
	if _, err := os.Lstat(d.path); errors.Is(err, fs.ErrNotExist) {
		if err := bootstrapIdentity(dir, names); err != nil {
			return nil, fmt.Errorf("open identity directory: %w", err)
		}
	}
	if _, err := d.Current(); err != nil {
		return nil, err
	}
	return d, nil
}

// bootstrapIdentity makes an identity and puts it into dir, unless somebody else was faster. It is on stable storage, name
// included, before anybody can pin it.
func bootstrapIdentity(dir string, names []string) (err error) {
	id, err := GenerateIdentity(names...)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, identityFile+".*") // 0600
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(f.Name())) }()
	_, err = f.Write(id.PEM())
	err = errors.Join(err, f.Chmod(identityMode), f.Sync(), f.Close())
	if err != nil {
		return err
	}
	// A link, unlike a rename, never replaces what is there.
	if err := os.Link(f.Name(), filepath.Join(dir, identityFile)); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Current returns the identity that the file holds now. When the file was replaced by something that is no identity, it
// fails, and goes on failing until that is mended.
func (d *IdentityDir) Current() (*Identity, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	info, err := os.Lstat(d.path)
	if err != nil {
		return nil, fmt.Errorf("read identity: %w", err)
	}
	if d.current != nil && os.SameFile(info, d.read) && info.ModTime().Equal(d.read.ModTime()) && info.Size() == d.read.Size() {
		return d.current, nil
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("read identity: %s: %w", d.path, errExposedKey)
	}
	id, err := IdentityFromFiles(d.path, d.path)
	if err != nil {
		return nil, err
	}
	d.current, d.read = id, info
	return id, nil
}
