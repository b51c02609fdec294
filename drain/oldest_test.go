package drain

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-agent/weir/sinks"
)

// TestOldestInFlight: the age of what waits counts from the append of the first record that is not done with.
func TestOldestInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		begun := time.Now()
		b.push(0, numbered(0, 5)...)
		s := scripted(takesAll)
		down := make(chan struct{})
		s.answer = func(ctx context.Context, batch sinks.Batch) []sinks.Outcome {
			select {
			case <-down:
				return takesAll(ctx, batch)
			default:
				return sinks.Same(len(batch.Records), sinks.Outcome{Verdict: sinks.Retry, Reason: "down"})
			}
		}
		b.run(s, Options{})
		after(10 * time.Second)
		b.push(0, numbered(5, 5)...)
		after(10 * time.Second)
		if got := b.shard(0).Oldest; got.Sub(begun).Abs() > time.Second {
			t.Errorf("oldest is of %v after the first push", got.Sub(begun))
		}
		close(down)
		after(2 * time.Minute)
		if got := b.shard(0).Oldest; !got.IsZero() {
			t.Errorf("with nothing in flight the oldest is %v", got)
		}
		b.close()
	})
}
