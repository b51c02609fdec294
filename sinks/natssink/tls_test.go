//go:build !nonats

package natssink

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-agent/weir/sinks"
	"github.com/weir-agent/weir/sinks/natssink/natstest"
	"github.com/weir-agent/weir/sinks/sinktest"
)

func TestTLS(t *testing.T) {
	ours, other := sinktest.NewAuthority(t, "ours"), sinktest.NewAuthority(t, "other")
	ca, cert, key := ours.Files(t, "server")
	otherCA, otherCert, otherKey := other.Files(t, "stranger")
	for _, tc := range []struct {
		name, server string // what the server's tls block has besides its files
		scheme       string
		opts         Options
		want         sinks.Verdict
		reason       string
	}{
		{"the server asks for it", "", "nats://", Options{CAFile: ca}, sinks.Delivered, ""},
		{"tls:// asks for it", "", "tls://", Options{CAFile: ca}, sinks.Delivered, ""},
		{"handshake first", "handshake_first: true", "tls://", Options{CAFile: ca, TLSFirst: true}, sinks.Delivered, ""},
		{"client certificate", "verify: true", "tls://", Options{CAFile: ca, CertFile: cert, KeyFile: key}, sinks.Delivered, ""},
		{"no client certificate", "verify: true", "tls://", Options{CAFile: ca}, sinks.Retry, "tls"},
		{"client certificate of a stranger", "verify: true", "tls://", Options{CAFile: ca, CertFile: otherCert, KeyFile: otherKey}, sinks.Retry, "tls"},
		{"unknown authority", "", "tls://", Options{}, sinks.Retry, "certificate signed by unknown authority"},
		{"another authority, and the server asks", "", "nats://", Options{CAFile: otherCA}, sinks.Retry, "certificate signed by unknown authority"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			server := natstest.Start(t, fmt.Sprintf("tls { cert_file: %q, key_file: %q, ca_file: %q, %s }\n", cert, key, ca, tc.server))
			client := []nats.Option{nats.RootCAs(ca), nats.ClientCert(cert, key)}
			if tc.opts.TLSFirst {
				client = append(client, nats.TLSHandshakeFirst())
			}
			addStream(t, natstest.Connect(t, "tls://"+server.Address, client...), jetstream.StreamConfig{})
			o := tc.opts
			o.URL, o.Subject = tc.scheme+server.Address, "s.x"
			s := sinktest.Open(t, New, o)
			got := s.Deliver(t.Context(), sinktest.Batch("b", 1))[0]
			if got.Verdict != tc.want || !strings.Contains(got.Reason, tc.reason) {
				t.Errorf("got %+v, want %v with %q", got, tc.want, tc.reason)
			}
		})
	}
}

// TestFilesMustBeThere: a sink whose files are missing, or hold something else, is not made.
func TestFilesMustBeThere(t *testing.T) {
	text := sinktest.File(t, "nothing of the kind")
	for key, o := range map[string]Options{
		"credentials_file: nkeys": {CredentialsFile: text}, "nkey_file: nkeys": {NkeyFile: text}, "ca_file: holds no certificate": {CAFile: text},
		"ca_file": {CAFile: "none"}, "cert_file": {CertFile: "none", KeyFile: "none"}, "credentials_file": {CredentialsFile: "none"},
		"nkey_file": {NkeyFile: "none"}, "token_file": {TokenFile: "none"}, "password_file": {Username: "u", PasswordFile: "none"},
	} {
		o.URL, o.Subject = "nats://127.0.0.1:1", "s"
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), "sink.nats."+key) {
			t.Errorf("%s: %v", key, err)
		}
	}
}
