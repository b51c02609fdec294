//go:build !nonats

package natssink

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"github.com/weir-agent/weir/sinks"
	"github.com/weir-agent/weir/sinks/setup"
)

// Codes of JetStream that its client has no name for.
const (
	codeHeaderTooLarge  jetstream.ErrorCode = 10097
	codeAccountResource jetstream.ErrorCode = 10002
)

// login reads the files and returns the client's options that follow from them.
func (o *Options) login() ([]nats.Option, error) {
	var opts []nats.Option
	fail := func(key string, err error) ([]nats.Option, error) {
		return nil, &setup.Unfit{Section: section, Err: fmt.Errorf("%s: %w", key, err)}
	}
	switch {
	case o.CredentialsFile != "":
		text, err := setup.ReadFile(o.CredentialsFile)
		if err == nil {
			_, err = nkeys.ParseDecoratedJWT(text)
		}
		if err == nil {
			_, err = nkeys.ParseDecoratedUserNKey(text)
		}
		if err != nil {
			return fail("credentials_file", err)
		}
		opts = append(opts, nats.UserCredentialBytes(text))
	case o.NkeyFile != "":
		opt, err := nats.NkeyOptionFromSeed(o.NkeyFile)
		if err != nil {
			return fail("nkey_file", err)
		}
		opts = append(opts, opt)
	case o.token().Set():
		token, err := o.token().Read()
		if err != nil {
			return fail("token_file", err)
		}
		opts = append(opts, nats.Token(token))
	case o.Username != "":
		password, err := o.password().Read()
		if err != nil {
			return fail("password_file", err)
		}
		opts = append(opts, nats.UserInfo(o.Username, password))
	}
	config, err := o.tls().Config()
	if err != nil {
		return nil, &setup.Unfit{Section: section, Err: err}
	}
	if o.tls().Set() {
		opts = append(opts, nats.Secure(config))
	}
	if o.TLSFirst {
		opts = append(opts, nats.Secure(config), nats.TLSHandshakeFirst())
	}
	return opts, nil
}

// outcomeOf returns what the end of an attempt at a record means; for jetstream.ErrNoStreamResponse the zero value, as
// that needs a question to the server.
func outcomeOf(err error) sinks.Outcome {
	if err == nil {
		return sinks.Outcome{Verdict: sinks.Delivered}
	}
	if errors.Is(err, jetstream.ErrNoStreamResponse) {
		return sinks.Outcome{}
	}
	o := sinks.Outcome{Verdict: sinks.Retry, Reason: sinks.CleanReason(err.Error())}
	_, badFiles := errors.AsType[*setup.Unfit](err)
	switch api, ok := errors.AsType[*jetstream.APIError](err); {
	case ok:
		o.Status = api.Code
		o.Verdict = verdictOf(api)
	case badFiles, refusesLogin(err), errors.Is(err, nats.ErrPermissionViolation), errors.Is(err, nats.ErrSecureConnRequired),
		errors.Is(err, nats.ErrSecureConnWanted), errors.Is(err, nats.ErrHeadersNotSupported), errors.Is(err, jetstream.ErrInvalidJSAck):
		o.Verdict = sinks.Hold
	case errors.Is(err, nats.ErrMaxPayload):
		o.Verdict = sinks.Reject
		o.Reason = "the record is larger than the server allows (max_payload)"
	}
	o.Isolated = o.Verdict == sinks.Reject
	return o
}

// verdictOf returns what an error of the stream means.
func verdictOf(e *jetstream.APIError) sinks.Verdict {
	switch e.ErrorCode {
	case jetstream.JSErrCodeStreamMessageExceedsMaximum, codeHeaderTooLarge:
		return sinks.Reject
	case codeAccountResource:
		return sinks.Retry // a full account: what it holds may be consumed or grow old
	case jetstream.JSErrCodeJetStreamNotEnabled, jetstream.JSErrCodeJetStreamNotEnabledForAccount:
		return sinks.Hold
	}
	switch e.Code {
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusTooManyRequests:
		return sinks.Retry
	}
	if e.Code/100 == 4 {
		return sinks.Hold // no record is at fault for its own sake but by its size
	}
	return sinks.Retry
}

// refusesLogin tells whether the server does not let this user in, or not any more.
func refusesLogin(err error) bool {
	for _, one := range []error{nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAuthRevoked, nats.ErrAccountAuthExpired} {
		if errors.Is(err, one) {
			return true
		}
	}
	return false
}
