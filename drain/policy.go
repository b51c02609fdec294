package drain

import (
	"context"
	"net/http"
	"time"

	"github.com/weir-agent/weir/drain/deadletter"
	"github.com/weir-agent/weir/sinks"
	"github.com/weir-agent/weir/wab"
	"github.com/weir-agent/weir/wab/record"
)

// slot is a batch in flight: it is done with when no piece of it is left.
type slot struct {
	end    wab.Position
	shard  int
	oldest time.Time // when its first record was appended
	pieces []*piece
}

// piece is a part of a batch that is on its way by itself, at first all of it: records to send, or a job.
type piece struct {
	slot    *slot
	records []record.Record
	key     record.ID // of records; computed by the first attempt
	tries   int       // attempts of just these records
	before  int       // attempts of larger pieces that held them
	fails   int       // attempts in a row that got nothing done
	due     time.Time
	busy    bool

	// job, where it is set, is what is to be done with records instead of sending them.
	job    jobKind
	graves []deadletter.Letter // of bury
	full   bool                // bury found no room
}

type jobKind uint8

const (
	noJob  jobKind = iota
	bury           // graves must become durable
	settle         // records were delivered, which has to be noted
	mark           // the end of the batch must be stored, and then the records are sent
)

// size is how many records p holds.
func (p *piece) size() int {
	if p.job == bury {
		return len(p.graves)
	}
	return len(p.records)
}

// verdicts is an attempt's outcomes, sorted.
type verdicts struct {
	delivered []record.Record
	again     []record.Record     // Retry, Hold
	halve     []record.Record     // Split, Reject that names no record
	graves    []deadletter.Letter // refused for good
	worst     sinks.Outcome       // the one that is to be told
	retried   bool
	held      bool
	overload  bool
	wait      time.Duration // the longest Retry-After
}

// sortOutcomes sorts the outcomes of an attempt at p. It reports false where they do not account for each record; then
// none of them is believed.
func sortOutcomes(p *piece, out []sinks.Outcome, now time.Time) (verdicts, bool) {
	var v verdicts
	if len(out) != len(p.records) {
		return v, false
	}
	same := 0
	for ; same < len(out) && out[same].Verdict == sinks.Delivered; same++ {
	}
	if same == len(out) {
		v.delivered = p.records
		return v, true
	}
	alone := len(p.records) == 1
	for i := range out {
		o, r := &out[i], p.records[i]
		switch o.Verdict {
		case sinks.Delivered:
			v.delivered = append(v.delivered, r)
			continue
		case sinks.Retry, sinks.Hold:
			v.again = append(v.again, r)
			v.retry(o)
		case sinks.Split, sinks.Reject:
			if alone || o.Verdict == sinks.Reject && o.Isolated {
				v.graves = append(v.graves, letterOf(p.slot.shard, r, *o, p.before+p.tries, now))
			} else {
				v.halve = append(v.halve, r)
			}
		default:
			return verdicts{}, false
		}
		if v.worst.Verdict == sinks.Invalid || o.Verdict == sinks.Hold {
			v.worst = *o
		}
	}
	return v, true
}

func (v *verdicts) retry(o *sinks.Outcome) {
	v.wait = max(v.wait, o.RetryAfter)
	if o.Verdict == sinks.Hold {
		v.held = true
		return
	}
	v.retried = true
	v.overload = v.overload || o.Status == http.StatusTooManyRequests || o.Status == http.StatusServiceUnavailable
}

// replace puts what is left of p after an attempt into its slot. It returns the piece that is to be sent
// again as it is, if there is one.
func (v *verdicts) replace(p *piece, settles bool) (again *piece) {
	child := func(records []record.Record) *piece {
		return &piece{slot: p.slot, records: records, before: p.before + p.tries}
	}
	var left []*piece
	switch {
	case len(v.again) == len(p.records):
		again = p
	case len(v.again) > 0:
		again = child(v.again)
	}
	if again != nil {
		again.fails++
		left = append(left, again)
	}
	if n := len(v.halve); n > 0 {
		left = append(left, child(v.halve[:(n+1)/2]))
		if n > 1 {
			left = append(left, child(v.halve[(n+1)/2:]))
		}
	}
	if len(v.graves) > 0 {
		left = append(left, &piece{slot: p.slot, job: bury, graves: v.graves})
	}
	if settles && len(v.delivered) > 0 {
		left = append(left, &piece{slot: p.slot, job: settle, records: v.delivered})
	}
	p.slot.swap(p, left...)
	return again
}

// swap puts others in the place of p.
func (s *slot) swap(p *piece, others ...*piece) {
	pieces := make([]*piece, 0, len(s.pieces)+len(others)-1)
	for _, q := range s.pieces {
		if q == p {
			pieces = append(pieces, others...)
		} else {
			pieces = append(pieces, q)
		}
	}
	s.pieces = pieces
}

// expire takes out of p what was appended before the time of limit, and returns how many that was.
func (p *piece) expire(limit time.Time) int {
	had := p.size()
	if p.job == bury {
		kept := p.graves[:0]
		for _, l := range p.graves {
			if !l.Appended.Before(limit) {
				kept = append(kept, l)
			}
		}
		p.graves = kept
		return had - len(kept)
	}
	n := 0
	for i := range p.records {
		if p.records[i].Appended.Before(limit) {
			n++
		}
	}
	if n == 0 {
		return 0
	}
	kept := make([]record.Record, 0, had-n)
	for i := range p.records {
		if !p.records[i].Appended.Before(limit) {
			kept = append(kept, p.records[i])
		}
	}
	p.before, p.tries = p.before+p.tries, 0
	p.records, p.key = kept, record.ID{}
	return n
}

// perform does the job of p.
func (p *piece) perform(ctx context.Context, o origin) error {
	switch p.job {
	case bury:
		return o.bury(ctx, p.graves)
	case mark:
		return o.mark()
	}
	return o.settle(ctx, p.records)
}
