// Package sinktest is the behaviour suite that every sink passes, and what the tests of sinks share besides: batches, servers that can be
// killed, what stands before them, load while they are killed, and the check of what they have in the end.
package sinktest

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/weir-agent/weir/sinks"
)

// Fixture is a sink that was just opened, and what the suite may ask of its other end.
type Fixture struct {
	Sink sinks.Sink
	// Got returns the payloads that arrived, repeats included, in order of arrival. It is nil where the end
	// keeps nothing.
	Got func() [][]byte
	// Unordered says that the records of one batch may arrive in any order.
	Unordered bool
	// Once says that the end keeps each record once, whatever comes: it knows a repeat by the record's id.
	Once bool
	// Stall makes the end hold everything that arrives from now on: reached is closed when something is held, and
	// release lets it go on, for good. It is nil where the end cannot be held.
	Stall func() (reached <-chan struct{}, release func())
}

// Run runs the suite on the sinks that open makes. What open starts, it ends by t.Cleanup;
// closing the sink is the suite's.
func Run(t *testing.T, open func(t *testing.T) Fixture) {
	for _, tc := range []struct {
		name string
		test func(t *testing.T, f Fixture)
	}{
		{"one outcome for each record", testAccounting},
		{"batches arrive in order", testOrder},
		{"the same batch again", testAgain},
		{"nothing of the batch is kept", testKeepsNothing},
		{"ctx has ended", testEnded},
		{"ctx ends while the end holds", testCancel},
		{"close while the end holds", testCloseHeld},
		{"many at once", testConcurrent},
		{"close twice", testCloseTwice},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := goleak.IgnoreCurrent() // of a server that all of them share
			t.Cleanup(func() { goleak.VerifyNone(t, before) })
			f := open(t)
			t.Cleanup(func() {
				if err := f.Sink.Close(); err != nil {
					t.Errorf("Close: %v", err)
				}
			})
			tc.test(t, f)
		})
	}
}

func wantAll(t *testing.T, out []sinks.Outcome, b sinks.Batch, want sinks.Verdict) {
	t.Helper()
	if len(out) != len(b.Records) {
		t.Errorf("%d outcomes for %d records", len(out), len(b.Records))
	}
	for i, o := range out {
		if o.Verdict != want {
			t.Errorf("record %d: %+v, want %v", i, o, want)
		}
		if (o.Reason == "") != (o.Verdict == sinks.Delivered) || len(o.Reason) > 256 {
			t.Errorf("record %d: %v with reason %q", i, o.Verdict, o.Reason)
		}
	}
}

func deliver(t *testing.T, f Fixture, b sinks.Batch) {
	t.Helper()
	wantAll(t, f.Sink.Deliver(t.Context(), b), b, sinks.Delivered)
}

// wantGot compares what arrived with want, as sets where sorted is set.
func wantGot(t *testing.T, f Fixture, want [][]byte, sorted bool) {
	t.Helper()
	if f.Got == nil {
		return
	}
	got := f.Got()
	if sorted {
		slices.SortFunc(got, bytes.Compare)
		slices.SortFunc(want, bytes.Compare)
	}
	if !slices.EqualFunc(got, want, bytes.Equal) {
		t.Errorf("got %d payloads %.200q, want %d payloads %.200q", len(got), got, len(want), want)
	}
}

func testAccounting(t *testing.T, f Fixture) {
	var all []sinks.Batch
	for _, n := range []int{0, 1, 2, 100} {
		b := Batch(fmt.Sprint("size ", n), n)
		deliver(t, f, b)
		all = append(all, b)
	}
	wantGot(t, f, payloads(all...), true)
}

func testOrder(t *testing.T, f Fixture) {
	var want [][]byte
	for i := range 20 {
		b := Batch(fmt.Sprint(i), 5)
		deliver(t, f, b)
		want = append(want, payloads(b)...)
		if f.Unordered {
			wantGot(t, f, slices.Clone(want), true)
		} else {
			wantGot(t, f, want, false)
		}
	}
}

func testAgain(t *testing.T, f Fixture) {
	b := Batch("again", 3)
	before := payloads(b)
	deliver(t, f, b)
	b.Attempt++
	deliver(t, f, b)
	if !slices.EqualFunc(before, payloads(b), bytes.Equal) {
		t.Error("Deliver changed the batch")
	}
	want := before
	if !f.Once {
		want = append(want, before...)
	}
	wantGot(t, f, want, true)
}

func testKeepsNothing(t *testing.T, f Fixture) {
	b := Batch("kept", 3)
	want := payloads(b)
	deliver(t, f, b)
	for i := range b.Records {
		clear(b.Records[i].Payload)
	}
	deliver(t, f, Batch("next", 1))
	wantGot(t, f, append(want, payloads(Batch("next", 1))...), true)
}

func testEnded(t *testing.T, f Fixture) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	b := Batch("late", 10)
	wantAll(t, f.Sink.Deliver(ctx, b), b, sinks.Retry)
	deliver(t, f, b)
}

func testCancel(t *testing.T, f Fixture) {
	if f.Stall == nil {
		t.Skip("the end cannot be held")
	}
	reached, release := f.Stall()
	defer release()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	held, waiting := Batch("held", 10), Batch("waiting", 10)
	var wg sync.WaitGroup
	for _, b := range []sinks.Batch{held, waiting} {
		wg.Go(func() {
			wantAll(t, f.Sink.Deliver(ctx, b), b, sinks.Retry)
			for i := range b.Records { // what arrives later must not be this
				clear(b.Records[i].Payload)
			}
		})
	}
	<-reached
	cancel()
	wg.Wait() // while the end still holds
	release()
	held, waiting = Batch("held", 10), Batch("waiting", 10)
	deliver(t, f, held)
	deliver(t, f, waiting)
	if f.Got == nil {
		return
	}
	sent := payloads(held, waiting)
	for _, p := range f.Got() {
		if !slices.ContainsFunc(sent, func(want []byte) bool { return bytes.Equal(want, p) }) {
			t.Errorf("%q arrived and was never sent", p)
		}
	}
}

func testCloseHeld(t *testing.T, f Fixture) {
	if f.Stall == nil {
		t.Skip("the end cannot be held")
	}
	reached, release := f.Stall()
	defer release()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	b := Batch("held", 3)
	done := make(chan struct{})
	go func() {
		defer close(done)
		wantAll(t, f.Sink.Deliver(ctx, b), b, sinks.Retry)
	}()
	<-reached
	cancel()
	<-done
	release()
	if err := f.Sink.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

func testConcurrent(t *testing.T, f Fixture) {
	const callers, rounds = 8, 10
	var wg sync.WaitGroup
	var want []sinks.Batch
	for c := range callers {
		var mine []sinks.Batch
		for r := range rounds {
			mine = append(mine, Batch(fmt.Sprint(c, "-", r), 1+r))
		}
		want = append(want, mine...)
		wg.Go(func() {
			for _, b := range mine {
				wantAll(t, f.Sink.Deliver(t.Context(), b), b, sinks.Delivered)
			}
		})
	}
	wg.Wait()
	wantGot(t, f, payloads(want...), true)
}

func testCloseTwice(t *testing.T, f Fixture) {
	deliver(t, f, Batch("one", 1))
	for range 2 {
		if err := f.Sink.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
}
