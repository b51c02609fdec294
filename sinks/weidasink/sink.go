// Package weidasink delivers records to a queue of a weida broker: one record a message, as an exchange, whose reply confirms how safe the broker has made it.
// DESIGN section 9 is its contract, weida-supplement §11.2 the broker's side.
//
// A message is a DATA header with the content type, the topic, and the 32-byte record id under extension key 64, by which the broker knows repeats; then the payload.
// A record is delivered when its confirm reaches Options.RequiredAck, on a link whose broker promises as much, and in no other way. What was sent and has no confirm may be at the broker: it is sent again, and
// the id lets the broker drop the repeat.
//
// Each call of Deliver is one attempt. A link that is lost is dialled again by package weida; the first dial is an attempt of a Deliver.
package weidasink

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-agent/weir/sinks"
	"github.com/weir-agent/weir/weida"
)

// RecordIDExtension is the extension key under which the 32 bytes of the record id go (DESIGN section 9).
const RecordIDExtension = 64

// vanished is how long after a confirm it counts as passing that the queue is not there: a queue goes when its broker is about to end, and it may be a
// moment until the next one has it.
const vanished = time.Minute

// redialMax is the longest wait between two attempts to restore a lost link.
const redialMax = 5 * time.Second

// Sink is the weida sink. It is safe for use by several goroutines.
type Sink struct {
	set       settings
	rt        *weida.Runtime
	requester *weida.Requester
	key       string // the fingerprint of its own identity; empty where it has none
	slots     chan struct{}
	confirmed atomic.Int64 // when the queue confirmed something last, in nanoseconds; 0: not yet

	dialling chan struct{} // holds a token while somebody connects
	mu       sync.Mutex
	dials    int   // that have ended; guarded by mu
	dialErr  error // of the last one; guarded by mu
}

var _ sinks.Sink = (*Sink)(nil)

// New checks o, opens the identity or makes it, and returns the sink. No connection is made. Every fault of o is in the error (errors.Join), each named by
// its configuration key.
func New(o Options) (*Sink, error) {
	set, err := resolve(o)
	if err != nil {
		return nil, err
	}
	s := &Sink{set: set, slots: make(chan struct{}, set.MaxInFlight), dialling: make(chan struct{}, 1)}
	var terms weida.ClientTLS
	if set.IdentityDir != "" && set.addr.Carrier == weida.OverQUIC {
		dir, err := weida.OpenIdentityDir(set.IdentityDir)
		if err != nil {
			return nil, fmt.Errorf("sink.weida.identity_dir: %w", err)
		}
		id, err := dir.Current()
		if err != nil {
			return nil, fmt.Errorf("sink.weida.identity_dir: %w", err)
		}
		terms.Identity, s.key = dir, id.Fingerprint().String()
	}
	s.rt, err = weida.NewRuntime(weida.Options{
		Limits:      weida.Limits{NoReceipts: true}, // the confirm is worth more
		Offered:     set.promised,
		Required:    set.promised,
		Reconnect:   weida.ReconnectPolicy{Max: redialMax},
		SendTimeout: set.ConnectTimeout,
	})
	if err != nil {
		return nil, fmt.Errorf("weidasink: %w", err)
	}
	s.requester = s.rt.Requester(terms)
	return s, nil
}

// Identity is the fingerprint by which a broker knows this sink, for its list of those who may connect. It is empty where the sink proves none.
func (s *Sink) Identity() string { return s.key }

// Close ends the link; a Deliver that is under way then returns Retry. It may be called again.
func (s *Sink) Close() error { return s.rt.Shutdown() }

// connect makes sure that there is a link, or one that package weida is about to restore. Of several callers one dials, and its failure is that of all who waited
// for it.
func (s *Sink) connect(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	s.mu.Lock()
	seen := s.dials
	s.mu.Unlock()
	select {
	case s.dialling <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-s.dialling }()
	s.mu.Lock()
	failed := s.dialErr
	waited := s.dials != seen
	s.mu.Unlock()
	if waited && failed != nil {
		return failed
	}
	limit, cancel := context.WithTimeoutCause(ctx, s.set.ConnectTimeout, errNoAnswer)
	defer cancel()
	err := s.requester.Connect(limit, s.set.URL) // nothing where there is a link, or it is being restored
	if ctx.Err() != nil {
		return context.Cause(ctx) // that it failed says nothing to others
	}
	if err != nil && errors.Is(limit.Err(), context.DeadlineExceeded) {
		err = errNoAnswer
	}
	s.mu.Lock()
	s.dials++
	s.dialErr = err
	s.mu.Unlock()
	return err
}
