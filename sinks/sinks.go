// Package sinks holds the contract between the drain and the places records
// are delivered to. A sink makes one attempt and says what became of each
// record; whether and when to try again is the drain's alone.
package sinks

import (
	"context"
	"time"

	"github.com/weir-agent/weir/wab/record"
)

// Sink delivers batches. Deliver may be called by several goroutines at once,
// with different batches.
type Sink interface {
	// Deliver makes one attempt and returns exactly one outcome for each
	// record of the batch, in its order. It returns by the time that ctx ends,
	// and it keeps nothing of b afterwards. The same batch may come again, byte for byte,
	// after an outcome that was not Delivered, and after a restart.
	Deliver(ctx context.Context, b Batch) []Outcome
	// Close waits for nothing that ctx of a running Deliver bounds, and frees what
	// the sink holds. No Deliver is called after it.
	Close() error
}

// Batch is what one call delivers: consecutive records of one shard.
type Batch struct {
	Shard   int
	Records []record.Record
	// Key is record.BatchKey(Records): equal at each attempt and after a restart.
	Key record.ID
	// Attempt counts from 1 for this batch in this run of the daemon.
	Attempt int
}

// Verdict is what a sink says of one record.
type Verdict uint8

const (
	// Invalid is the zero value and never a sink's answer.
	Invalid Verdict = iota
	// Delivered: the sink's end has the record, as safe as the sink was asked to make it.
	Delivered
	// Retry: the attempt failed in a way that may pass.
	Retry
	// Hold: the endpoint is at fault, not the record: credentials, address, redirect.
	Hold
	// Split: the request was too large; smaller ones may go.
	Split
	// Reject: the endpoint refuses this record, or this batch for one of its records.
	Reject
)

// String returns the verdict as the status and the metrics name it.
func (v Verdict) String() string {
	switch v {
	case Delivered:
		return "delivered"
	case Retry:
		return "retry"
	case Hold:
		return "hold"
	case Split:
		return "split"
	case Reject:
		return "reject"
	}
	return "invalid"
}

// Outcome is the answer for one record.
type Outcome struct {
	Verdict Verdict
	// Isolated tells, with Reject, that the endpoint named this very record, so that
	// the drain need not bisect the batch to find it.
	Isolated bool
	// Status is the endpoint's number for the answer (an HTTP status), 0 where there is none.
	Status int
	// Reason says why in words, at most 256 bytes, without control characters or secrets.
	// Empty for Delivered.
	Reason string
	// RetryAfter is the least wait that the endpoint asked for; 0 for none.
	RetryAfter time.Duration
}

// Same returns n equal outcomes, for an answer that covers the whole batch.
func Same(n int, o Outcome) []Outcome {
	all := make([]Outcome, n)
	for i := range all {
		all[i] = o
	}
	return all
}
