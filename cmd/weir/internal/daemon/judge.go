package daemon

import (
	"fmt"
	"sync"
	"time"

	"github.com/weir-agent/weir/cmd/weir/internal/admin"
	"github.com/weir-agent/weir/cmd/weir/internal/config"
	"github.com/weir-agent/weir/drain"
)

// nearlyFull is the part of the cap from which a warning is given, in percent.
const nearlyFull = 80

// fullShare: the log counts as full when less than this part of the cap is left, whether pushes come or not.
const fullShare = 100

// refusedWindow is how long refused records are told of.
const refusedWindow = 10 * time.Second

// refusals tells how many records were refused of late, as far as somebody asked.
type refusals struct {
	mu    sync.Mutex
	looks []refusedLook // those of the last window and the one before it; guarded by mu
}

type refusedLook struct {
	at    time.Time
	total uint64
}

// maxLooks bounds the memory for those who ask often.
const maxLooks = 64

// lately takes the total as it is now, and returns how much it grew within the window.
func (r *refusals) lately(total uint64, now time.Time) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.looks) > 1 && now.Sub(r.looks[1].at) >= refusedWindow {
		r.looks = r.looks[1:]
	}
	from := uint64(0) // of the start of the daemon, where nobody asked before
	if len(r.looks) > 0 {
		from = r.looks[0].total
	}
	if n := len(r.looks); n == 0 || n < maxLooks && total != r.looks[n-1].total || now.Sub(r.looks[n-1].at) >= refusedWindow/maxLooks {
		r.looks = append(r.looks, refusedLook{now, total})
	}
	return total - from
}

// inWords says what a shard's delivery does now, and what to do where something is to be done.
func inWords(s drain.ShardStats) string {
	next := ""
	if wait := time.Until(s.NextAttempt).Round(time.Second); !s.NextAttempt.IsZero() && wait > 0 {
		next = fmt.Sprintf("; the next attempt is in %v", wait)
	}
	switch s.State {
	case drain.Idle:
		return "up to date; what comes in waits for its batch for drain.linger at most"
	case drain.Delivering:
		return "delivering"
	case drain.Retrying:
		return "the last attempt failed, it is tried again" + next + ". Nothing is lost; look at the endpoint if it lasts"
	case drain.Held:
		return "the endpoint refuses every request (credentials, address or method), so it is tried slowly" + next +
			". Correct the sink's settings, then: weir reload"
	case drain.DeadLetterFull:
		return "a record was refused and the dead-letter store is full. Look: weir deadletter list; then drop or requeue letters, " +
			"or raise drain.deadletter_max_bytes and restart"
	case drain.Paused:
		return "paused by an operator. Go on: weir drain resume"
	case drain.Failed:
		return "the delivery is down and starts again by itself; the log has the reason"
	}
	return s.State.String()
}

// judge says whether pushes are accepted, why not, and what else an operator has to know. A frame has frameBytes at most: so much room
// may be left when one is refused.
func judge(st *admin.Status, frameBytes int64) {
	no := func(format string, args ...any) { st.NotReady = append(st.NotReady, fmt.Sprintf(format, args...)) }
	warn := func(format string, args ...any) { st.Warnings = append(st.Warnings, fmt.Sprintf(format, args...)) }
	for _, sh := range st.Shards {
		if sh.Writable && !sh.Accepting {
			no("shard %d cannot append: pushes to it are refused. It is tried again each second; see its faults", sh.Shard)
		}
		switch sh.Drain.State {
		case drain.Failed.String():
			no("the delivery of shard %d has failed: %s", sh.Shard, sh.Drain.LastError)
		case drain.Retrying.String(), drain.Held.String(), drain.DeadLetterFull.String():
			warn("shard %d: %s. Last error: %s", sh.Shard, sh.Drain.Words, sh.Drain.LastError)
		}
		for _, f := range sh.Faults {
			warn("shard %d: step %q fails since %s: %s", sh.Shard, f.Step, f.Since.Format(time.RFC3339), f.Error)
		}
		if sh.Drain.Hung > 0 {
			warn("shard %d: %d calls of the sink do not return; their batches are sent again", sh.Shard, sh.Drain.Hung)
		}
	}
	if st.RefusedLately > 0 {
		warn("%d records were refused in the last %v: a cap was reached, or the disk fails", st.RefusedLately, refusedWindow)
	}
	if st.Paused {
		warn("delivery is paused by an operator. Go on: weir drain resume")
	}
	switch {
	case st.LowSpace:
		no("the file system of %s has %s free, less than wab.min_free_bytes: pushes are refused until there is more. Delivery goes on", st.DataDir, config.Size(st.FreeBytes).Human())
	case st.UsedBytes >= st.MaxBytes-st.MaxBytes/fullShare || st.RefusedLately > 0 && st.UsedBytes+min(frameBytes, st.MaxBytes/4) >= st.MaxBytes:
		no("the log takes %s of the %s that wab.max_bytes allows: what does not fit is refused until records are delivered", config.Size(st.UsedBytes).Human(), config.Size(st.MaxBytes).Human())
	case st.UsedBytes >= st.MaxBytes/100*nearlyFull:
		warn("the log takes %s of the %s that wab.max_bytes allows; when they are full, pushes are refused", config.Size(st.UsedBytes).Human(), config.Size(st.MaxBytes).Human())
	}
	if n := st.DeadLetters.Records - st.DeadLetters.Requeued; n > 0 {
		warn("%d records were refused by the endpoint for good and are kept. Look: weir deadletter list", n)
	}
	if st.DeadLetters.Damages > 0 {
		warn("%d places of the dead-letter store do not verify; letters may be missing", st.DeadLetters.Damages)
	}
	if st.Quarantine.Reports > 0 {
		warn("damaged bytes were found; %d copies of them are kept. Look: weir quarantine list", st.Quarantine.Reports)
	}
	st.Ready = len(st.NotReady) == 0
}
