package drain_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-agent/weir/drain"
	"github.com/weir-agent/weir/drain/deadletter"
	"github.com/weir-agent/weir/sinks/httpsink"
	"github.com/weir-agent/weir/wab"
	"github.com/weir-agent/weir/wab/record"
	"github.com/weir-agent/weir/wab/vfs/vfstest"
)

// sweepEndpoint answers the first requests with one status, and 200 after that.
type sweepEndpoint struct {
	status   int
	times    atomic.Int64 // how many requests get the status
	requests atomic.Int64
	mu       sync.Mutex
	got      map[string]bool // payloads of requests that got 2xx
}

func (e *sweepEndpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	status := http.StatusOK
	if e.requests.Add(1) <= e.times.Load() {
		status = e.status
	}
	if status/100 == 2 {
		e.mu.Lock()
		for line := range strings.Lines(string(body)) {
			e.got[strings.TrimSuffix(line, "\n")] = true
		}
		e.mu.Unlock()
	}
	w.WriteHeader(status)
}

// sweepRecords are pushed in each run.
const sweepRecords = 4

// always is more requests than a run can make before the test lets the endpoint get well.
const always = 1 << 40

// TestStatusSweep sends records to an endpoint that answers with each status of 200 to 599, once and for as long as it takes to see what weir
// does about it: no record is ever lost, and only those that are the record's fault become dead letters.
func TestStatusSweep(t *testing.T) {
	type row struct{ outcome, sweep string }
	table := map[row][]int{}
	requests := map[row]int64{}
	var order []row
	for _, sweep := range []string{"once", "for ever"} {
		for status := 200; status < 600; status++ {
			outcome, n := sweepOne(t, status, sweep == "for ever")
			r := row{outcome, sweep}
			if len(table[r]) == 0 {
				order = append(order, r)
			}
			table[r] = append(table[r], status)
			requests[r] = max(requests[r], n)
		}
	}
	for _, r := range order {
		t.Logf("%-8s %-38s at most %2d requests, 0 lost: %s", r.sweep, r.outcome, requests[r], ranges(table[r]))
	}
}

// sweepOne makes one run and returns what became of the records, and how many requests that took.
func sweepOne(t *testing.T, status int, forEver bool) (string, int64) {
	t.Helper()
	e := &sweepEndpoint{status: status, got: map[string]bool{}}
	e.times.Store(1)
	if forEver {
		e.times.Store(always)
	}
	server := httptest.NewServer(e)
	defer server.Close()
	log, err := wab.Open("", wab.Options{FS: vfstest.NewDisk(), SegmentBytes: 64 << 10, MinFreeBytes: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	dead, err := deadletter.Open(vfstest.NewDisk(), deadletter.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer dead.Close()
	sink, err := httpsink.New(httpsink.Options{URL: server.URL, Format: httpsink.FormatNDJSON})
	if err != nil {
		t.Fatal(err)
	}
	defer sink.Close()
	var states sync.Map
	d, err := drain.New(log.Shards(), sink, dead, drain.Options{
		Linger: -1, BackoffMin: time.Microsecond, BackoffMax: time.Microsecond, HoldInterval: time.Microsecond,
		Observer: drain.Observer{Changed: func(_ int, to drain.State, _ string) { states.Store(to, true) }},
	})
	if err != nil {
		t.Fatal(err)
	}
	var payloads [][]byte
	for i := range sweepRecords {
		payloads = append(payloads, fmt.Appendf(nil, "record %d", i))
	}
	ticket, err := log.Shards()[0].Append(record.Durable, payloads...)
	if err == nil {
		err = ticket.Wait()
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- d.Run(ctx) }()
	e.awaitVerdict(t, log.Shards()[0], dead)
	cancel()
	if err := <-ran; err != nil {
		t.Fatal(err)
	}
	letters := int(dead.Stats().Letters)
	if len(e.got)+letters != sweepRecords {
		t.Errorf("status %d: %d records delivered and %d dead letters, want %d in all", status, len(e.got), letters, sweepRecords)
	}
	outcome := "delivered"
	if _, held := states.Load(drain.Held); held {
		outcome = "held, then delivered"
	} else if letters > 0 {
		outcome = fmt.Sprintf("%d of %d dead letters", letters, sweepRecords)
	} else if e.requests.Load() > 1 {
		outcome = "retried, then delivered"
	}
	return outcome, e.requests.Load()
}

// awaitVerdict waits until all records are delivered or dead, or the status was answered often enough to see that it is
// retried; then the endpoint gets well, and the rest is waited for.
func (e *sweepEndpoint) awaitVerdict(t *testing.T, s *wab.Shard, dead *deadletter.Store) {
	t.Helper()
	const seen = 12 // more than a bisection of the records takes
	well := false
	for {
		left := s.Stats().BacklogRecords
		if left == 0 {
			return
		}
		if !well && e.requests.Load() >= seen && dead.Stats().Letters == 0 {
			well = true
			e.times.Store(0)
		}
		if t.Context().Err() != nil {
			t.Fatal("no verdict")
		}
		runtime.Gosched()
	}
}

// ranges writes numbers in order as ranges.
func ranges(n []int) string {
	var out []string
	for i := 0; i < len(n); {
		j := i
		for j+1 < len(n) && n[j+1] == n[j]+1 {
			j++
		}
		if i == j {
			out = append(out, fmt.Sprint(n[i]))
		} else {
			out = append(out, fmt.Sprintf("%d-%d", n[i], n[j]))
		}
		i = j + 1
	}
	return strings.Join(out, " ")
}
