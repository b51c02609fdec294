package weida

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func generate(t testing.TB, names ...string) *Identity {
	t.Helper()
	id, err := GenerateIdentity(names...)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func writeFile(t *testing.T, path string, data []byte, mode fs.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, data, mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

func TestIdentityThroughPEM(t *testing.T) {
	id := generate(t, "host")
	again, err := IdentityFromPEM(id.PEM(), id.PEM())
	if err != nil {
		t.Fatal(err)
	}
	if again.Fingerprint() != id.Fingerprint() || !bytes.Equal(again.PEM(), id.PEM()) {
		t.Error("the identity changed on its way through PEM")
	}
	if want := Fingerprint(sha256.Sum256(id.cert.Leaf.RawSubjectPublicKeyInfo)); id.Fingerprint() != want {
		t.Errorf("got fingerprint %s, want %s", id.Fingerprint(), want)
	}
	if generate(t).Fingerprint() == id.Fingerprint() {
		t.Error("two identities share a key")
	}
	if bytes.Contains(id.CertificatePEM(), []byte("PRIVATE")) {
		t.Error("the certificate's PEM holds the key")
	}
}

func TestIdentityFromPEMRefuses(t *testing.T) {
	a, b := generate(t), generate(t)
	tests := []struct {
		name       string
		chain, key []byte
	}{
		{"nothing", nil, nil},
		{"no key", a.CertificatePEM(), a.CertificatePEM()},
		{"another's key", a.CertificatePEM(), b.PEM()},
		{"cut key", a.CertificatePEM(), a.PEM()[:len(a.PEM())-60]},
		{"garbage certificate", []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), a.PEM()},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if id, err := IdentityFromPEM(tt.chain, tt.key); err == nil {
				t.Errorf("got the identity %s", id)
			}
		})
	}
}

func TestNoFormatShowsTheKey(t *testing.T) {
	id := generate(t)
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("identity", "id", id)
	for _, got := range []string{
		fmt.Sprintf("%v %+v %#v %s %q", id, id, id, id, id), fmt.Sprint(id), log.String(),
	} {
		if !strings.Contains(got, id.Fingerprint().String()) || len(got) > 600 || strings.Contains(got, "PRIVATE") {
			t.Errorf("got %s", got)
		}
	}
}

func TestIdentityFromFiles(t *testing.T) {
	id := generate(t)
	dir := t.TempDir()
	cert, key, exposed, huge := filepath.Join(dir, "cert"), filepath.Join(dir, "key"), filepath.Join(dir, "exposed"), filepath.Join(dir, "huge")
	writeFile(t, cert, id.CertificatePEM(), 0o644)
	writeFile(t, key, id.PEM(), 0o600)
	writeFile(t, exposed, id.PEM(), 0o640)
	writeFile(t, huge, append(id.PEM(), make([]byte, maxPEMBytes)...), 0o600)
	tests := []struct {
		name, cert, key string
		ok              bool
		err             error
	}{
		{"two files", cert, key, true, nil},
		{"one file", key, key, true, nil},
		{"a key that others can read", cert, exposed, false, errExposedKey},
		{"a directory for a key", cert, dir, false, errExposedKey},
		{"no file", filepath.Join(dir, "none"), key, false, fs.ErrNotExist},
		{"too large", cert, huge, false, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := IdentityFromFiles(tt.cert, tt.key)
			if tt.ok {
				if err != nil || got.Fingerprint() != id.Fingerprint() {
					t.Errorf("got %v, %v", got, err)
				}
				return
			}
			if err == nil || tt.err != nil && !errors.Is(err, tt.err) {
				t.Errorf("got %v, want %v", err, tt.err)
			}
		})
	}
}

func TestIdentityDirBootstraps(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "id")
	var wg sync.WaitGroup
	prints := make([]Fingerprint, 8)
	for i := range prints {
		wg.Go(func() {
			d, err := OpenIdentityDir(dir, "host")
			if err != nil {
				t.Error(err)
				return
			}
			id, err := d.Current()
			if err != nil {
				t.Error(err)
				return
			}
			prints[i] = id.Fingerprint()
		})
	}
	wg.Wait()
	for _, p := range prints {
		if p != prints[0] {
			t.Errorf("two openers have %s and %s", p, prints[0])
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Fatalf("got %v, %v, want one file", entries, err)
	}
	info, err := os.Stat(filepath.Join(dir, entries[0].Name()))
	if err != nil || info.Mode() != identityMode {
		t.Errorf("the file has mode %v, %v", info.Mode(), err)
	}
	if info, err = os.Stat(dir); err != nil || info.Mode().Perm() != identityDir {
		t.Errorf("the directory has mode %v, %v", info.Mode(), err)
	}
}

func TestIdentityDirFollowsItsFile(t *testing.T) {
	dir := t.TempDir()
	d, err := OpenIdentityDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	first, err := d.Current()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := d.Current(); again != first || err != nil {
		t.Errorf("an unchanged file was read again: %v", err)
	}
	replace := func(data []byte) {
		writeFile(t, filepath.Join(dir, "new"), data, 0o600)
		if err := os.Rename(filepath.Join(dir, "new"), d.path); err != nil {
			t.Fatal(err)
		}
	}
	next := generate(t)
	replace(next.PEM())
	if got, err := d.Current(); err != nil || got.Fingerprint() != next.Fingerprint() {
		t.Errorf("after a new file: got %v, %v, want %s", got, err, next)
	}
	replace([]byte("no identity"))
	if got, err := d.Current(); err == nil {
		t.Errorf("after garbage: got %s", got)
	}
	replace(first.PEM())
	if got, err := d.Current(); err != nil || got.Fingerprint() != first.Fingerprint() {
		t.Errorf("after it was mended: got %v, %v, want %s", got, err, first)
	}
}

func TestIdentityDirRefuses(t *testing.T) {
	id := generate(t)
	tests := []struct {
		name string
		make func(dir string)
	}{
		{"others may write to the directory", func(dir string) {
			if err := os.Chmod(dir, 0o777); err != nil {
				t.Fatal(err)
			}
		}},
		{"others may read the file", func(dir string) { writeFile(t, filepath.Join(dir, identityFile), id.PEM(), 0o644) }},
		{"the file is a link", func(dir string) {
			writeFile(t, filepath.Join(dir, "elsewhere"), id.PEM(), 0o600)
			if err := os.Symlink("elsewhere", filepath.Join(dir, identityFile)); err != nil {
				t.Fatal(err)
			}
		}},
		{"the file is empty", func(dir string) { writeFile(t, filepath.Join(dir, identityFile), nil, 0o600) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			tt.make(dir)
			if _, err := OpenIdentityDir(dir); err == nil {
				t.Error("it was opened")
			}
		})
	}
}

func TestResetKeyFollowsTheKey(t *testing.T) {
	a, b := generate(t), generate(t)
	again, err := IdentityFromPEM(a.PEM(), a.PEM())
	if err != nil {
		t.Fatal(err)
	}
	var keys []*[32]byte
	for _, id := range []*Identity{a, again, b} {
		k, err := id.resetKey()
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, k)
	}
	if *keys[0] != *keys[1] || *keys[0] == *keys[2] {
		t.Error("the reset key is not one for each private key")
	}
}
