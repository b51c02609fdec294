package sinktest

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-agent/weir/sinks"
	"github.com/weir-agent/weir/wab/record"
)

// DeliverAll does what the drain does: what has to be sent again is sent again, until all of b is delivered. It returns the number of
// attempts. Several goroutines of a test may call it.
func DeliverAll(t testing.TB, s sinks.Sink, b sinks.Batch) (attempts int) {
	t.Helper()
	for len(b.Records) > 0 && t.Context().Err() == nil {
		attempts++
		var left []record.Record
		for i, o := range s.Deliver(t.Context(), b) {
			switch o.Verdict {
			case sinks.Delivered:
			case sinks.Retry:
				left = append(left, b.Records[i])
			default:
				t.Errorf("record %d: %+v", i, o)
			}
		}
		b.Records, b.Key = left, record.BatchKey(left)
		b.Attempt++
	}
	return attempts
}

// The load of UnderKills: so many callers each have so many batches delivered before the server is killed.
const (
	killCallers = 3
	killBatches = 2
	killRecords = 100
)

// UnderKills delivers batches by several callers at once while the server is killed and started again, so often, and returns them
// once all are delivered.
func UnderKills(t *testing.T, s sinks.Sink, kills int, kill, start func()) []sinks.Batch {
	t.Helper()
	var mu sync.Mutex
	var all []sinks.Batch // guarded by mu
	attempts := 0         // guarded by mu
	next := func() sinks.Batch {
		mu.Lock()
		defer mu.Unlock()
		first := 1_000_000 + len(all)*killRecords // behind whatever the test delivers besides
		lines := make([]string, killRecords)
		for i := range lines {
			lines[i] = fmt.Sprintf(`{"n":%d}`, first+i)
		}
		all = append(all, BatchAt(first, lines...))
		return all[len(all)-1]
	}
	for range kills {
		killed := make(chan struct{})
		var under, done sync.WaitGroup
		under.Add(killCallers)
		for range killCallers {
			done.Go(func() {
				for i, last := 0, false; !last || i <= killBatches; i++ {
					if i == killBatches {
						under.Done()
					}
					select {
					case <-killed:
						last = true
					default:
					}
					n := DeliverAll(t, s, next())
					mu.Lock()
					attempts += n
					mu.Unlock()
				}
			})
		}
		under.Wait()
		kill()
		close(killed)
		start()
		done.Wait()
	}
	t.Logf("%d batches in %d attempts over %d kills", len(all), attempts, kills)
	return all
}

// Stored is a record as an engine has it.
type Stored struct{ ID, Payload string }

// WantStored checks that got has each record of the batches, whole, and nothing else. It returns how many repeats there are.
func WantStored(t testing.TB, got []Stored, batches ...sinks.Batch) (repeats int) {
	t.Helper()
	seen := map[Stored]int{}
	for _, r := range got {
		seen[r]++
	}
	for _, b := range batches {
		for _, r := range b.Records {
			want := Stored{r.ID.String(), string(r.Payload)}
			if seen[want] == 0 {
				t.Errorf("record %s, %.40q, is missing", r.ID, r.Payload)
				continue
			}
			repeats += seen[want] - 1
			delete(seen, want)
		}
	}
	if len(seen) > 0 {
		t.Errorf("%d records are there that nobody delivered", len(seen))
	}
	return repeats
}

// WantOnce is WantStored where the engine drops repeats by their id.
func WantOnce(t testing.TB, got []Stored, batches ...sinks.Batch) {
	t.Helper()
	if n := WantStored(t, got, batches...); n != 0 {
		t.Errorf("%d records are there more than once", n)
	}
}

// ReadAgain checks that the sink reads a file again when it needs it: the wrong content that it has holds, with a reason that has the
// word wrong, a missing file holds, with a reason that begins with missing, and right delivers. No reason may tell what is right.
func ReadAgain(t *testing.T, s sinks.Sink, file, wrong, missing, right string) {
	t.Helper()
	b := Batch("read again", 1)
	deliver := func(when string, want sinks.Verdict) (reason string) {
		t.Helper()
		o := s.Deliver(t.Context(), b)[0]
		if o.Verdict != want || strings.Contains(o.Reason, right) {
			t.Errorf("%s: %+v, want %v", when, o, want)
		}
		return o.Reason
	}
	if reason := deliver("with the wrong file", sinks.Hold); !strings.Contains(reason, wrong) {
		t.Errorf("with the wrong file: %s, want %s", reason, wrong)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if reason := deliver("without the file", sinks.Hold); !strings.HasPrefix(reason, missing) {
		t.Errorf("without the file: %s, want %s", reason, missing)
	}
	WriteFile(t, file, right+"\n")
	deliver("with the right file", sinks.Delivered)
}

// CloseInTime closes the sink and fails the test where that takes longer than limit, which is much.
func CloseInTime(t *testing.T, s sinks.Sink, limit time.Duration) {
	t.Helper()
	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	hang := time.NewTimer(limit)
	defer hang.Stop()
	select {
	case err := <-closed:
		if err != nil {
			t.Errorf("Close: %v", err)
		}
	case <-hang.C:
		t.Fatal("Close waits for the server")
	}
}

// Faults checks that good options pass their Check, and that each of changes gives the one fault it names.
func Faults[O interface{ Check() error }](t *testing.T, good O, changes map[string]struct {
	Change func(o *O)
	Want   string
},
) {
	t.Helper()
	if err := good.Check(); err != nil {
		t.Errorf("good options: %v", err)
	}
	for name, tc := range changes {
		t.Run(name, func(t *testing.T) {
			o := good
			tc.Change(&o)
			if err := o.Check(); err == nil || err.Error() != tc.Want {
				t.Errorf("got %v, want %s", err, tc.Want)
			}
		})
	}
}
