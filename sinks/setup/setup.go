// Package setup has what the sinks of the network share on the way from their options to a client: how faults
// are gathered, where secrets come from, and TLS. Files are read when they are needed, so that a new file counts from
// the next connection on.
package setup

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

// maxFileBytes bounds each file that holds a secret or a certificate.
const maxFileBytes = 1 << 20

// Faults gathers what is wrong with the options below one section of the configuration, like sink.nats.
type Faults struct {
	section string
	all     []error
}

// NewFaults returns no faults of section.
func NewFaults(section string) *Faults { return &Faults{section: section} }

// Add books a fault of key. The text never repeats a secret.
func (f *Faults) Add(key, format string, args ...any) {
	f.all = append(f.all, fmt.Errorf(f.section+"."+key+": "+format, args...))
}

// Err returns all faults, joined; nil for none.
func (f *Faults) Err() error { return errors.Join(f.all...) }

// Choose sets the first of allowed where *v is empty, and checks it otherwise.
func (f *Faults) Choose(key string, v *string, allowed ...string) {
	if *v == "" {
		*v = allowed[0]
	}
	if !slices.Contains(allowed, *v) {
		f.Add(key, "%q is none of %s", *v, strings.Join(allowed, ", "))
	}
}

// Time sets def where *v is 0, and checks it otherwise.
func (f *Faults) Time(key string, v *time.Duration, def time.Duration) {
	if *v == 0 {
		*v = def
	}
	if *v < 0 {
		f.Add(key, "%v is negative", *v)
	}
}

// Number sets def where *v is 0, and checks it against the bounds, both included.
func (f *Faults) Number(key string, v *int, def, least, most int) {
	if *v == 0 {
		*v = def
	}
	if *v < least || *v > most {
		f.Add(key, "%d is not between %d and %d", *v, least, most)
	}
}

// Unfit is a fault of the options below one section of the configuration, or of what they name, that is found when a connection is
// made: an operator must mend it.
type Unfit struct {
	Section string
	// Err begins with the key.
	Err error
}

func (e *Unfit) Error() string { return e.Section + "." + e.Err.Error() }

// Unwrap returns Err.
func (e *Unfit) Unwrap() error { return e.Err }

// Secret is where a password or token comes from: a file, a variable, or neither.
type Secret struct{ File, Env string }

// Set tells whether there is one.
func (s Secret) Set() bool { return s.File != "" || s.Env != "" }

// Check books what is wrong with the secret whose keys are NAME_file and NAME_env, without reading the file.
func (s Secret) Check(f *Faults, name string) {
	if s.File != "" && s.Env != "" {
		f.Add(name+"_file", "is set, and %s_env too: use one", name)
	}
	if s.Env != "" && os.Getenv(s.Env) == "" {
		f.Add(name+"_env", "the variable %s is empty or not set", s.Env)
	}
}

// Read returns the secret, without the line feed at the end of a file; empty where there is none.
func (s Secret) Read() (string, error) {
	if s.File == "" {
		return os.Getenv(s.Env), nil
	}
	data, err := ReadFile(s.File)
	return string(bytes.TrimRight(data, "\r\n")), err
}

// ReadFile reads a file of at most 1 MiB that is not empty. Its errors name the file and nothing that is in it.
func ReadFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFileBytes {
		return nil, fmt.Errorf("%s is larger than 1 MiB", path)
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, fmt.Errorf("%s is empty", path)
	}
	return data, nil
}

// TLS names the files of a TLS connection, PEM; each may be empty.
type TLS struct{ CertFile, KeyFile, CAFile string }

// Set tells whether any is named.
func (t TLS) Set() bool { return t != TLS{} }

// Check books what is wrong with the names, without reading a file.
func (t TLS) Check(f *Faults) {
	if (t.CertFile == "") != (t.KeyFile == "") {
		f.Add("cert_file", "needs key_file, and the other way round")
	}
}

// Config reads the files. The result trusts the authorities of CAFile, or the system's where there is none, and checks
// the name of the server where its user sets ServerName.
func (t TLS) Config() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.CertFile != "" {
		cert, err := ReadFile(t.CertFile)
		if err != nil {
			return nil, fmt.Errorf("cert_file: %w", err)
		}
		key, err := ReadFile(t.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("key_file: %w", err)
		}
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("cert_file, key_file: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	if t.CAFile != "" {
		ca, err := ReadFile(t.CAFile)
		if err != nil {
			return nil, fmt.Errorf("ca_file: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(ca) {
			return nil, errors.New("ca_file: holds no certificate in PEM form")
		}
	}
	return config, nil
}
