package chaos

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// processed is a line of a consumer's log.
type processed struct {
	n       uint64
	attempt uint64
	at      time.Time
}

// ledger is what there is to know of all records at the end.
type ledger struct {
	acked     []uint64
	processed map[string][]processed // by record id
	queued    map[uint64]bool        // in the broker
	dead      map[uint64]bool        // in its queue for dead letters
}

// verdict is what the ledger comes to.
type verdict struct {
	acked, processed, queued, dead int
	lost                           []uint64
	marked                         int      // processed more than once, with an attempt above 1
	excused                        int      // processed again and not marked, as the store could not note the attempt on a full disk
	unmarked                       []uint64 // processed again, not marked, and without excuse
	twice                          int      // numbers under several ids: the producer pushed again what had no answer
	poisoned                       []uint64 // poison that was processed
}

// judge draws the ledger. wasFull tells whether the broker's disk was full at a time.
func (l *ledger) judge(wasFull func(time.Time) bool) verdict {
	v := verdict{acked: len(l.acked), queued: len(l.queued), dead: len(l.dead)}
	ids := map[uint64]int{}
	for _, times := range l.processed {
		slices.SortFunc(times, func(a, b processed) int { return a.at.Compare(b.at) })
		n := times[0].n
		ids[n]++
		if isPoison(n) {
			v.poisoned = append(v.poisoned, n)
		}
		// A consumer that was stalled may come to an earlier attempt after another one has had a later one. So what matters is that one alone could take it for the first.
		firsts := slices.DeleteFunc(slices.Clone(times), func(p processed) bool { return p.attempt > 1 })
		for i := 1; i < len(firsts); i++ {
			if wasFull(firsts[i-1].at) {
				v.excused++
			} else {
				v.unmarked = append(v.unmarked, n)
			}
		}
		v.marked += len(times) - max(1, len(firsts))
	}
	v.processed = len(ids)
	for _, count := range ids {
		v.twice += count - 1
	}
	for _, n := range l.acked {
		if ids[n] == 0 && !l.queued[n] && !l.dead[n] {
			v.lost = append(v.lost, n)
		}
	}
	return v
}

// read takes in the files of producers and consumers.
func (l *ledger) read(dir string) error {
	l.processed = map[string][]processed{}
	for _, kind := range []struct {
		pattern string
		line    func(text []byte) error
	}{{"acked-*", l.readAcked}, {"processed-*", l.readProcessed}} {
		files, err := filepath.Glob(filepath.Join(dir, kind.pattern))
		if err != nil {
			return fmt.Errorf("chaos: %w", err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				return fmt.Errorf("chaos: %w", err)
			}
			// Behind the last line feed may be a part of a line, of a process that was killed.
			for line := range bytes.Lines(text[:bytes.LastIndexByte(text, '\n')+1]) {
				if err := kind.line(line); err != nil {
					return fmt.Errorf("chaos: %s: %q: %w", file, line, err)
				}
			}
		}
	}
	return nil
}

func (l *ledger) readAcked(line []byte) error {
	var n uint64
	_, err := fmt.Sscanf(string(line), "%d\n", &n)
	l.acked = append(l.acked, n)
	return err
}

func (l *ledger) readProcessed(line []byte) error {
	var p processed
	var nano int64
	var id string
	_, err := fmt.Sscanf(string(line), "%d %d %d %s\n", &p.n, &p.attempt, &nano, &id)
	p.at = time.Unix(0, nano)
	l.processed[id] = append(l.processed[id], p)
	return err
}
