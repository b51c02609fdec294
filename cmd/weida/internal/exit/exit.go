// Package exit says with which status a command of weida ends.
package exit

import (
	"errors"

	"github.com/weir-agent/weir/weida"
)

// The exit statuses.
const (
	Done   = 0
	Failed = 1
	Misuse = 2
)

// usageError is an error of usage or configuration.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

// Usage marks an error as one of usage or configuration; nil stays nil.
func Usage(err error) error {
	if err == nil {
		return nil
	}
	return usageError{err}
}

// Status is the status for what a command returned. What the user has written that cannot be, such as an address or a filter, is misuse wherever it is found.
func Status(err error) int {
	if err == nil {
		return Done
	}
	if _, ok := errors.AsType[usageError](err); ok {
		return Misuse
	}
	for _, misuse := range []error{
		weida.ErrInvalidAddress, weida.ErrInvalidEndpointPath, weida.ErrInvalidFingerprint, weida.ErrInvalidFilter, weida.ErrNoTrust,
	} {
		if errors.Is(err, misuse) {
			return Misuse
		}
	}
	return Failed
}
