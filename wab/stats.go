package wab

import (
	"time"

	"github.com/weir-agent/weir/wab/vfs"
)

// health is what is wrong with a shard now, by step. Guarded by Shard.mu.
type health struct {
	wrong  map[string]Fault
	last   error
	bucket [len(syncBuckets) + 1]uint64
	took   time.Duration
}

// Fault is a step that fails, or that failed last.
type Fault struct {
	Step  string // write, sync, prepare, seal, cursor, remove, quarantine, read
	Err   error
	Since time.Time
}

// syncBuckets are the upper bounds of the buckets in which sync times are counted.
var syncBuckets = [...]time.Duration{
	20 * time.Microsecond, 50 * time.Microsecond, 100 * time.Microsecond, 200 * time.Microsecond, 500 * time.Microsecond,
	time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond, time.Second, 5 * time.Second,
}

func (h *health) degrade(step string, err error, now time.Time) {
	if h.wrong == nil {
		h.wrong = map[string]Fault{}
	}
	since := now
	if f, ok := h.wrong[step]; ok {
		since = f.Since
	}
	h.wrong[step] = Fault{Step: step, Err: err, Since: since}
	h.last = err
}

func (h *health) syncTime(d time.Duration) {
	i := 0
	for i < len(syncBuckets) && d > syncBuckets[i] {
		i++
	}
	h.bucket[i]++
	h.took += d
}

// counts are totals since the log was opened. Guarded by Shard.mu.
type counts struct {
	appended, synced, refused uint64
	groups, syncs, sealed     uint64
	damaged, ignored          uint64
	lost                      int64
	failures                  map[string]uint64
	events                    []func()
}

// Stats is a shard at one instant.
type Stats struct {
	Shard     int
	Writable  bool
	Accepting bool     // a segment is there to append to, or is on its way
	Appended  Position // behind the last record that was written
	Committed Position // behind the last record that can be read
	Confirmed Position
	Segments  int
	// BacklogRecords and BacklogBytes are what is not confirmed: records, and bytes on disk.
	BacklogRecords int64
	BacklogBytes   int64
	// Oldest is about when the oldest unconfirmed record was appended; zero without one.
	Oldest time.Time

	// Totals since the log was opened.
	AppendedRecords uint64 // written
	SyncedRecords   uint64 // Durable records whose sync returned nil, and what was synced with them
	RefusedRecords  uint64
	Groups          uint64
	Syncs           uint64
	Sealed          uint64
	Damaged         uint64 // pieces of damage that were new
	Lost            int64  // records that these pieces cost, as far as known
	Ignored         uint64 // files left alone
	Failures        map[string]uint64
	SyncTimes       []SyncBucket
	SyncTotal       time.Duration

	Faults []Fault // what is wrong now
}

// SyncBucket counts the syncs that took at most Upto (0: longer than all bounds).
type SyncBucket struct {
	Upto  time.Duration
	Count uint64
}

// Stats returns the state of the shard. It costs one pass over the list of segments.
func (s *Shard) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Stats{
		Shard: s.number, Writable: s.writable, Accepting: s.writable && !s.closed && s.prepareErr == nil,
		Confirmed: s.cursor, Segments: len(s.segs),
		AppendedRecords: s.counts.appended, SyncedRecords: s.counts.synced, RefusedRecords: s.counts.refused,
		Groups: s.counts.groups, Syncs: s.counts.syncs, Sealed: s.counts.sealed,
		Damaged: s.counts.damaged, Lost: s.counts.lost, Ignored: s.counts.ignored,
		Failures: map[string]uint64{}, SyncTotal: s.health.took,
	}
	for step, n := range s.counts.failures {
		st.Failures[step] = n
	}
	for _, f := range s.health.wrong {
		st.Faults = append(st.Faults, f)
	}
	for i, n := range s.health.bucket {
		b := SyncBucket{Count: n}
		if i < len(syncBuckets) {
			b.Upto = syncBuckets[i]
		}
		st.SyncTimes = append(st.SyncTimes, b)
	}
	for _, f := range s.segs {
		s.addBacklog(&st, f)
	}
	return st
}

func (s *Shard) addBacklog(st *Stats, f *segmentFile) {
	if f.index > 0 {
		st.Appended = Position{Segment: f.number, Index: f.index + 1}
	}
	if _, index, _ := s.limitLocked(f); index > 0 {
		st.Committed = Position{Segment: f.number, Index: index + 1}
	}
	done := uint64(0)
	switch {
	case f.number < s.cursor.Segment:
		return
	case f.number == s.cursor.Segment:
		done = min(s.cursor.Index-1, f.index)
	}
	left := int64(f.index - done)
	st.BacklogRecords += left
	if left > 0 {
		st.BacklogBytes += f.bytes() * left / int64(f.index)
		if st.Oldest.IsZero() {
			st.Oldest = time.Unix(0, f.first)
		}
	}
}

// SyncQuantile returns an upper bound of the sync times' quantile q: the bound of its bucket.
func (st *Stats) SyncQuantile(q float64) time.Duration {
	var total, seen uint64
	for _, b := range st.SyncTimes {
		total += b.Count
	}
	for _, b := range st.SyncTimes {
		seen += b.Count
		if total > 0 && float64(seen) >= q*float64(total) {
			if b.Upto == 0 {
				return syncBuckets[len(syncBuckets)-1]
			}
			return b.Upto
		}
	}
	return 0
}

// UsedBytes is what counts against MaxBytes.
func (l *Log) UsedBytes() int64 { return l.used.Load() }

// MaxBytes is the cap in force.
func (l *Log) MaxBytes() int64 { return l.opts.MaxBytes }

// LowSpace reports whether appends are refused for want of free space.
func (l *Log) LowSpace() bool { return l.lowSpace.Load() }

// failedLocked books the failure of a step. Called with mu held; the observer is told later, without it.
func (s *Shard) failedLocked(step string, err error) {
	if s.counts.failures == nil {
		s.counts.failures = map[string]uint64{}
	}
	s.counts.failures[step]++
	s.health.degrade(step, err, s.now())
	if f := s.log.opts.Observer.Failed; f != nil {
		s.counts.events = append(s.counts.events, func() { f(s.number, step, err) })
		signal(s.keep)
	}
}

// note books err, if it is one, as a failure of the step.
func (s *Shard) note(step string, err error) {
	if err == nil {
		return
	}
	s.mu.Lock()
	s.failedLocked(step, err)
	s.mu.Unlock()
}

// restored says that a step works.
func (s *Shard) restored(step string) {
	s.mu.Lock()
	s.restoredLocked(step)
	s.mu.Unlock()
}

func (s *Shard) restoredLocked(step string) {
	if _, ok := s.health.wrong[step]; !ok {
		return
	}
	delete(s.health.wrong, step)
	if f := s.log.opts.Observer.Recovered; f != nil {
		s.counts.events = append(s.counts.events, func() { f(s.number, step) })
		signal(s.keep)
	}
}

func (s *Shard) flushEvents() {
	s.mu.Lock()
	events := s.counts.events
	s.counts.events = nil
	s.mu.Unlock()
	for _, e := range events {
		e()
	}
}

func (s *Shard) degraded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.health.wrong) > 0
}

func (s *Shard) failures() (n uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.counts.failures {
		n += c
	}
	return n
}

func (s *Shard) lastError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.health.last
}

// quarantine keeps damage of f and counts it if it is new.
func (s *Shard) quarantine(f *segmentFile, src vfs.File, d Damage) error {
	fresh, err := quarantine(s.log.fs, src, d)
	if err != nil {
		s.note("quarantine", &CorruptError{Segment: f.addr, Offset: d.Offset, Reason: d.Reason, Err: err})
		return err
	}
	s.restored("quarantine")
	if !fresh {
		return nil
	}
	s.mu.Lock()
	s.counts.damaged++
	s.counts.lost += max(d.Lost, 0)
	if obs := s.log.opts.Observer.Damaged; obs != nil {
		s.counts.events = append(s.counts.events, func() { obs(s.number, d) })
		signal(s.keep)
	}
	s.mu.Unlock()
	return nil
}
