package setup_test

import (
	"bytes"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/weir-agent/weir/sinks/setup"
	"github.com/weir-agent/weir/sinks/sinktest"
)

func TestSecret(t *testing.T) {
	t.Setenv("SETUP_TEST", "from the env ")
	for name, tc := range map[string]struct {
		secret setup.Secret
		want   string
		fails  bool
	}{
		"none":                 {setup.Secret{}, "", false},
		"variable":             {setup.Secret{Env: "SETUP_TEST"}, "from the env ", false},
		"file":                 {setup.Secret{File: sinktest.File(t, " a b \r\n")}, " a b ", false},
		"file without an end":  {setup.Secret{File: sinktest.File(t, "x")}, "x", false},
		"empty file":           {setup.Secret{File: sinktest.File(t, " \n")}, "", true},
		"no file":              {setup.Secret{File: filepath.Join(t.TempDir(), "none")}, "", true},
		"file that is too big": {setup.Secret{File: sinktest.File(t, string(bytes.Repeat([]byte("x"), 1<<20+1)))}, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := tc.secret.Read()
			if got != tc.want || (err != nil) != tc.fails {
				t.Errorf("got %q, %v, want %q", got, err, tc.want)
			}
			if tc.secret.Set() != (name != "none") {
				t.Errorf("Set: %v", tc.secret.Set())
			}
		})
	}
}

func TestTLSFaults(t *testing.T) {
	text := sinktest.File(t, "no PEM")
	for name, tc := range map[string]struct {
		files setup.TLS
		want  string
	}{
		"authorities": {setup.TLS{CAFile: text}, "ca_file: holds no certificate in PEM form"},
		"certificate": {setup.TLS{CertFile: text, KeyFile: text}, "cert_file, key_file: tls: failed to find any PEM data in certificate input"},
	} {
		if _, err := tc.files.Config(); err == nil || err.Error() != tc.want {
			t.Errorf("%s: got %v, want %s", name, err, tc.want)
		}
	}
	for name, files := range map[string]setup.TLS{
		"ca_file": {CAFile: text + "x"}, "cert_file": {CertFile: text + "x", KeyFile: text}, "key_file": {CertFile: text, KeyFile: text + "x"},
	} {
		if _, err := files.Config(); err == nil || !os.IsNotExist(unwrapped(err)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func unwrapped(err error) error {
	if w, ok := err.(interface{ Unwrap() error }); ok {
		return w.Unwrap()
	}
	return err
}

func TestConns(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := setup.NewConns(time.Minute)
	first, err := c.Dial(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	second, err := c.Dial(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Close(); err != nil || c.Open() != 1 {
		t.Errorf("after one of two was closed: %v, %d open", err, c.Open())
	}
	read := make(chan error)
	go func() {
		_, err := first.Read(make([]byte, 1))
		read <- err
	}()
	c.Close()
	if err := <-read; !errors.Is(err, net.ErrClosed) {
		t.Errorf("a read while Close: %v", err)
	}
	if _, err := c.Dial(t.Context(), "tcp", l.Addr().String()); err == nil {
		t.Error("Dial after Close gives a connection")
	}
	c.Close()
}
