// Package discard is the sink that accepts every record and keeps none. It is
// for measuring what comes before a sink.
package discard

import (
	"context"

	"github.com/weir-agent/weir/sinks"
)

// Sink accepts all and keeps nothing. The zero value is ready.
type Sink struct{}

var _ sinks.Sink = (*Sink)(nil)

// Deliver returns Delivered for each record, or Retry for each where ctx has
// ended already.
func (*Sink) Deliver(ctx context.Context, b sinks.Batch) []sinks.Outcome {
	if err := ctx.Err(); err != nil {
		return sinks.Same(len(b.Records), sinks.Outcome{Verdict: sinks.Retry, Reason: err.Error()})
	}
	return sinks.Same(len(b.Records), sinks.Outcome{Verdict: sinks.Delivered})
}

// Close returns nil.
func (*Sink) Close() error { return nil }
