package httpsink

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/weir-agent/weir/sinks/setup"
)

// files are the bytes of the files that hold credentials; those that are not
// configured are empty.
type files struct {
	token, password, cert, key, ca []byte
}

func (a *files) equal(b *files) bool {
	return bytes.Equal(a.token, b.token) && bytes.Equal(a.password, b.password) && a.sameTLS(b)
}

func (a *files) sameTLS(b *files) bool {
	return bytes.Equal(a.cert, b.cert) && bytes.Equal(a.key, b.key) && bytes.Equal(a.ca, b.ca)
}

// credentials are what follows from files. They never change once built.
type credentials struct {
	files   files
	header  http.Header // of every request, with Authorization
	tls     *tls.Config // nil for http
	secrets []string    // what no text may show
}

// readFiles reads every configured file; all that fail are in the error.
func (s *settings) readFiles() (files, error) {
	var f files
	var all []error
	for _, one := range []struct {
		key, path string
		dst       *[]byte
	}{
		{"token_file", s.TokenFile, &f.token},
		{"password_file", s.PasswordFile, &f.password},
		{"cert_file", s.CertFile, &f.cert},
		{"key_file", s.KeyFile, &f.key},
		{"ca_file", s.CAFile, &f.ca},
	} {
		if one.path == "" {
			continue
		}
		data, err := setup.ReadFile(one.path)
		if err != nil {
			all = append(all, fmt.Errorf("sink.http.%s: %w", one.key, err))
		}
		*one.dst = data
	}
	return f, errors.Join(all...)
}

// credentials builds what follows from f; every fault is in the error.
func (s *settings) credentials(f files) (*credentials, error) {
	c := &credentials{files: f, header: maps.Clone(s.fixed)}
	var all []error
	token, password := s.token, s.pass
	if s.TokenFile != "" {
		token = string(bytes.TrimSpace(f.token))
		if !validHeaderValue(token) {
			all = append(all, errors.New("sink.http.token_file: holds characters that a header cannot carry"))
		}
	}
	if s.PasswordFile != "" {
		password = string(bytes.TrimRight(f.password, "\r\n"))
	}
	switch {
	case token != "":
		c.header["Authorization"] = []string{"Bearer " + token}
	case s.Username != "":
		pair := base64.StdEncoding.EncodeToString([]byte(s.Username + ":" + password))
		c.header["Authorization"] = []string{"Basic " + pair}
		c.addSecrets(pair)
	}
	c.addSecrets(token, password)
	if s.url != nil {
		c.addQuerySecrets(s.url)
	}
	for name, value := range s.Headers {
		if !strings.EqualFold(name, "Host") {
			_, credential, _ := strings.Cut(value, " ") // "Bearer x"
			c.addSecrets(value, credential)
		}
	}
	c.addProxySecrets()
	if s.url != nil && s.url.Scheme == "https" {
		config, err := s.tlsConfig(f)
		if err != nil {
			all = append(all, err)
		}
		c.tls = config
	}
	return c, errors.Join(all...)
}

func (c *credentials) addSecrets(list ...string) {
	c.secrets = append(c.secrets, list...)
}

// addQuerySecrets takes every value of the query for a secret, as it is and as it
// is written in the URL.
func (c *credentials) addQuerySecrets(u *url.URL) {
	for pair := range strings.SplitSeq(u.RawQuery, "&") {
		_, value, _ := strings.Cut(pair, "=")
		c.addSecrets(value)
		if plain, err := url.QueryUnescape(value); err == nil && plain != value {
			c.addSecrets(plain)
		}
	}
}

// addProxySecrets adds the passwords of the proxies that http.ProxyFromEnvironment uses.
func (c *credentials) addProxySecrets() {
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"} {
		user, _, ok := strings.Cut(os.Getenv(name), "@")
		if !ok {
			continue
		}
		user = user[strings.LastIndex(user, "/")+1:]
		_, password, _ := strings.Cut(user, ":")
		c.addSecrets(password)
		if plain, err := url.PathUnescape(password); err == nil && plain != password {
			c.addSecrets(plain)
		}
	}
}

func (s *settings) tlsConfig(f files) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	var all []error
	if len(f.cert) > 0 && len(f.key) > 0 {
		pair, err := tls.X509KeyPair(f.cert, f.key)
		if err != nil {
			all = append(all, fmt.Errorf("sink.http.cert_file, sink.http.key_file: %w", err))
		}
		config.Certificates = []tls.Certificate{pair}
	}
	if len(f.ca) > 0 {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(f.ca) {
			all = append(all, errors.New("sink.http.ca_file: holds no certificate in PEM form"))
		}
	}
	return config, errors.Join(all...)
}
