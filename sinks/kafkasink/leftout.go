//go:build nokafka

package kafkasink

import (
	"errors"

	"github.com/weir-agent/weir/sinks"
)

// Built tells whether this build has the sink.
const Built = false

// New returns an error: this build has no client of Kafka.
func New(Options) (sinks.Sink, error) {
	return nil, errors.New("sink.type: this build of weir was made without kafka (build tag nokafka)")
}
