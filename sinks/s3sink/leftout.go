//go:build nos3

package s3sink

import (
	"errors"

	"github.com/weir-agent/weir/sinks"
)

// Built tells whether this build has the sink.
const Built = false

// New returns an error: this build has no client of S3.
func New(Options) (sinks.Sink, error) {
	return nil, errors.New("sink.type: this build of weir was made without s3 (build tag nos3)")
}
