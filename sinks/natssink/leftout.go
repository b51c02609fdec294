//go:build nonats

package natssink

import (
	"errors"

	"github.com/weir-agent/weir/sinks"
)

// Built tells whether this build has the sink.
const Built = false

// New returns an error: this build has no client of NATS.
func New(Options) (sinks.Sink, error) {
	return nil, errors.New("sink.type: this build of weir was made without nats (build tag nonats)")
}
