package drain

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-agent/weir/sinks"
)

// bucket is an endpoint of a given capacity: it takes what its bucket holds, which fills at rate, and
// refuses the rest with status.
type bucket struct {
	rate, burst float64 // records a second, records
	delay       time.Duration
	status      int

	mu      sync.Mutex
	level   float64
	last    time.Time
	refused int
	taken   int
	records int
}

func (k *bucket) take(n int) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	k.level = min(k.burst, k.level+k.rate*now.Sub(k.last).Seconds())
	k.last = now
	if float64(n) > k.level {
		k.refused++
		return false
	}
	k.level -= float64(n)
	k.taken++
	k.records += n
	return true
}

// TestF36OverloadedEndpoint: above its capacity an endpoint answers 503. The drain finds the
// capacity, stays near it, and few of its requests are refused.
func TestF36OverloadedEndpoint(t *testing.T) {
	for _, tc := range []struct {
		name  string
		k     *bucket
		batch int
	}{
		{"1,000 a second, batches of 100", &bucket{rate: 1000, burst: 1000, delay: 20 * time.Millisecond, status: 503}, 100},
		{"1,000 a second, batches of 1,000", &bucket{rate: 1000, burst: 1000, delay: 20 * time.Millisecond, status: 503}, 1000},
		{"1,000 a second, no burst", &bucket{rate: 1000, burst: 100, delay: 20 * time.Millisecond, status: 429}, 100},
		{"1,000 a second, slow answers", &bucket{rate: 1000, burst: 500, delay: 300 * time.Millisecond, status: 503}, 100},
		{"5,000 a second", &bucket{rate: 5000, burst: 2000, delay: 5 * time.Millisecond, status: 503}, 1000},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				k := tc.k
				seconds := min(200, 400_000/k.rate) // of backlog, and a tenth more
				payloads := numbered(0, 1000)
				for range int(k.rate*seconds*1.1) / 1000 {
					b.push(0, payloads...)
				}
				k.level, k.last = k.burst, time.Now()
				s := sinkFunc(func(_ context.Context, batch sinks.Batch) []sinks.Outcome {
					ok := k.take(len(batch.Records))
					<-time.After(k.delay)
					if ok {
						return sinks.Same(len(batch.Records), delivered)
					}
					return sinks.Same(len(batch.Records), sinks.Outcome{Verdict: sinks.Retry, Status: k.status, Reason: "too many"})
				})
				b.run(s, Options{BatchRecords: tc.batch})
				after(time.Duration(seconds) * time.Second)
				goodput := float64(k.records) / (k.rate*seconds + k.burst)
				failed := float64(k.refused) / float64(k.refused+k.taken)
				t.Logf("goodput %.1f %% of the capacity, %.2f %% of %d requests refused", 100*goodput, 100*failed, k.refused+k.taken)
				if goodput < 0.85 {
					t.Errorf("goodput is %.1f %% of the capacity, want 85 at least", 100*goodput)
				}
				if failed > 0.1 {
					t.Errorf("%.1f %% of the requests were refused, want 10 at most", 100*failed)
				}
				b.close()
			})
		})
	}
}
