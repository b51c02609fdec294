//go:build !nopostgres

package pgsink

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/weir-agent/weir/sinks"
	"github.com/weir-agent/weir/sinks/setup"
)

// SQLSTATEs that are told apart from the others of their class.
const (
	notNullViolation = "23502"
	checkViolation   = "23514"
)

// login reads the files and returns the client's configuration for one connection.
func (s *Sink) login() (*pgx.ConnConfig, error) {
	o := &s.opts
	password, err := o.password().Read()
	if err != nil {
		return nil, &setup.Unfit{Section: section, Err: fmt.Errorf("password_file: %w", err)}
	}
	address, sep := o.URL, "?"
	if strings.Contains(address, "?") {
		sep = "&"
	}
	for _, p := range []struct{ key, value string }{
		{"sslrootcert", o.CAFile},
		{"sslcert", o.CertFile},
		{"sslkey", o.KeyFile},
		{"sslmode", o.mode()},
	} {
		if p.value != "" {
			address += sep + p.key + "=" + strings.ReplaceAll(url.QueryEscape(p.value), "+", "%20")
			sep = "&"
		}
	}
	config, err := pgx.ParseConfig(address)
	if err != nil {
		if e, ok := errors.AsType[*pgconn.ParseConfigError](err); ok && e.Unwrap() != nil {
			err = e.Unwrap() // without the address
		}
		return nil, &setup.Unfit{Section: section, Err: fmt.Errorf("url or TLS files: %w", err)}
	}
	if o.password().Set() {
		config.Password = password
	}
	config.ConnectTimeout = o.ConnectTimeout
	config.DialFunc = s.conns.Dial
	// Nothing of the statement stays with a connection of the server, so a pooler between them does no harm.
	config.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "weir"
	}
	return config, nil
}

// mode is the sslmode that is added to the address: none where it has one, or where nothing asks for TLS.
func (o *Options) mode() string {
	if u, err := parseURL(o.URL); err != nil || o.CAFile == "" || u.Query().Has("sslmode") {
		return ""
	}
	return "verify-full"
}

// outcomeOf returns what the end of a statement means for each of its rows.
func outcomeOf(err error) sinks.Outcome {
	if err == nil {
		return sinks.Outcome{Verdict: sinks.Delivered}
	}
	o := sinks.Outcome{Verdict: sinks.Retry, Reason: sinks.CleanReason(err.Error())}
	if _, ok := errors.AsType[*setup.Unfit](err); ok {
		o.Verdict = sinks.Hold
	} else if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		o.Verdict = verdictOf(e)
		// The message alone: Detail of the error may have the row in it.
		o.Reason = sinks.CleanReason("SQLSTATE " + e.Code + ": " + e.Message)
	}
	return o
}

// verdictOf is the table of the package comment.
func verdictOf(e *pgconn.PgError) sinks.Verdict {
	switch e.Code {
	case notNullViolation:
		return sinks.Hold // each record fills all columns of the sink
	case checkViolation:
		if e.ConstraintName == "" {
			return sinks.Hold // no partition takes the row
		}
	}
	switch e.Code[:min(2, len(e.Code))] {
	case "0A", "28", "3D", "3F", "42":
		return sinks.Hold
	case "22", "23", "44", "54", "P0":
		return sinks.Reject
	}
	return sinks.Retry
}
