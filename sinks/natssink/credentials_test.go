//go:build !nonats

package natssink

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"github.com/weir-agent/weir/sinks"
	"github.com/weir-agent/weir/sinks/natssink/natstest"
	"github.com/weir-agent/weir/sinks/sinktest"
)

// signed returns a JWT of NATS for the holder of subject.
func signed(t *testing.T, issuer, subject nkeys.KeyPair, expires time.Time, claims map[string]any) string {
	t.Helper()
	claims["version"] = 2
	body := map[string]any{"jti": "x", "iat": time.Now().Unix(), "iss": public(t, issuer), "sub": public(t, subject), "name": "n", "nats": claims}
	if !expires.IsZero() {
		body["exp"] = expires.Unix()
	}
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	enc := base64.RawURLEncoding
	head := enc.EncodeToString([]byte(`{"typ":"JWT","alg":"ed25519-nkey"}`)) + "." + enc.EncodeToString(text)
	sig, err := issuer.Sign([]byte(head))
	if err != nil {
		t.Fatal(err)
	}
	return head + "." + enc.EncodeToString(sig)
}

func pair(t *testing.T, prefix nkeys.PrefixByte) nkeys.KeyPair {
	t.Helper()
	kp, err := nkeys.CreatePair(prefix)
	if err != nil {
		t.Fatal(err)
	}
	return kp
}

func public(t *testing.T, kp nkeys.KeyPair) string {
	t.Helper()
	text, err := kp.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func seed(t *testing.T, kp nkeys.KeyPair) string {
	t.Helper()
	text, err := kp.Seed()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestCredentialsFile: a file of nsc lets in, and one that has expired holds.
func TestCredentialsFile(t *testing.T) {
	system := pair(t, nkeys.PrefixByteAccount)
	operator, account, user := pair(t, nkeys.PrefixByteOperator), pair(t, nkeys.PrefixByteAccount), pair(t, nkeys.PrefixByteUser)
	unlimited := map[string]any{
		"type": "account", "limits": map[string]any{
			"subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true, "conn": -1, "leaf": -1,
			"mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1,
		},
	}
	accountID, systemID := public(t, account), public(t, system)
	server := natstest.Start(t, fmt.Sprintf("operator: %q\nsystem_account: %s\nresolver: MEMORY\nresolver_preload: { %s: %q, %s: %q }\n",
		signed(t, operator, operator, time.Time{}, map[string]any{"type": "operator"}), systemID,
		accountID, signed(t, operator, account, time.Time{}, unlimited), systemID, signed(t, operator, system, time.Time{}, map[string]any{"type": "account"})))
	credentials := func(expires time.Time) string {
		jwt := signed(t, account, user, expires, map[string]any{"type": "user", "subs": -1, "data": -1, "payload": -1})
		return sinktest.File(t, "-----BEGIN NATS USER JWT-----\n"+jwt+"\n------END NATS USER JWT------\n\n-----BEGIN USER NKEY SEED-----\n"+seed(t, user)+"\n------END USER NKEY SEED------\n")
	}
	good := credentials(time.Time{})
	addStream(t, natstest.Connect(t, server.URL(), nats.UserCredentials(good)), jetstream.StreamConfig{})
	for _, tc := range []struct {
		name, file string
		want       sinks.Verdict
	}{
		{"good", good, sinks.Delivered},
		{"expired", credentials(time.Now().Add(-time.Hour)), sinks.Hold},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := sinktest.Open(t, New, Options{URL: server.URL(), Subject: "s.x", CredentialsFile: tc.file})
			if o := s.Deliver(t.Context(), sinktest.Batch("b", 1))[0]; o.Verdict != tc.want {
				t.Errorf("%+v, want %v", o, tc.want)
			}
		})
	}
}
