package daemon

import (
	"sync"
	"time"

	"github.com/weir-agent/weir/cmd/weir/internal/admin"
	"github.com/weir-agent/weir/cmd/weir/internal/metrics"
	"github.com/weir-agent/weir/drain"
	"github.com/weir-agent/weir/wab"
	"github.com/weir-agent/weir/wab/vfs"
)

// mapSegments bounds the map of segments of one shard.
const mapSegments = 400

// Status puts together what the parts say at this moment.
func (d *Daemon) Status() admin.Status {
	cfg := d.config()
	st := admin.Status{
		Version: Version(), Started: d.started, Socket: cfg.Socket.Path, DataDir: cfg.WAB.Dir,
		Sink:      admin.Sink{Type: cfg.Sink.Type, Target: target(cfg), Identity: d.delivery.identity()},
		UsedBytes: d.wab.UsedBytes(), MaxBytes: d.wab.MaxBytes(), LowSpace: d.wab.LowSpace(),
		Producers: d.producers(),
	}
	// Where the file system does not tell, both stay 0.
	st.FreeBytes, st.DiskBytes, _ = d.data.Space()
	drained := d.delivery.stats()
	st.Paused = drained.Paused
	st.Requeued = drainStatus(drained.Requeued)
	for i, s := range d.wab.Shards() {
		w := s.Stats()
		sh := shardStatus(w, drained.Shards[i], cfg.Drain.Linger)
		for _, seg := range s.SegmentStates(mapSegments) {
			sh.Map = append(sh.Map, segmentStatus(seg))
		}
		st.Shards = append(st.Shards, sh)
		st.BacklogRecords += sh.BacklogRecords
		st.BacklogBytes += sh.BacklogBytes
		st.OldestAgeSeconds = max(st.OldestAgeSeconds, sh.OldestAgeSeconds)
		st.Quarantine.Damaged += w.Damaged
		st.Quarantine.Lost += w.Lost
		st.Quarantine.Ignored += w.Ignored
	}
	st.Quarantine.Reports, st.Quarantine.Kept = d.kept.get(d.data, st.Quarantine.Damaged)
	dead := d.dead.Stats()
	st.DeadLetters = admin.DeadLetters{Records: dead.Letters, Requeued: dead.Requeued, Bytes: dead.Bytes, MaxBytes: dead.MaxBytes, Damages: dead.Damages}
	refused := uint64(0)
	for i := range st.Shards {
		refused += st.Shards[i].RefusedRecords
	}
	st.RefusedLately = d.refused.lately(refused, time.Now())
	judge(&st, int64(cfg.Socket.MaxPayloadBytes))
	return st
}

// keptReports counts the reports of the quarantine folder, which is read again when new damage was found.
type keptReports struct {
	mu      sync.Mutex
	read    bool
	damaged uint64
	reports int
	bytes   int64
}

func (k *keptReports) get(data *vfs.Dir, damaged uint64) (reports int, bytes int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.read && damaged == k.damaged {
		return k.reports, k.bytes
	}
	all, err := wab.Quarantine(data)
	if err != nil {
		return k.reports, k.bytes // it is read again at the next time
	}
	k.read, k.damaged, k.reports, k.bytes = true, damaged, len(all), 0
	for _, q := range all {
		k.bytes += q.Kept
	}
	return k.reports, k.bytes
}

func segmentStatus(seg wab.SegmentState) admin.Segment {
	out := admin.Segment{Number: seg.Number, State: "closed", Bytes: seg.Bytes, Size: seg.Size, Records: seg.Records, Confirmed: seg.Confirmed}
	switch {
	case seg.Failed:
		out.State = "failed"
	case seg.Active:
		out.State = "active"
	case seg.Sealed:
		out.State = "sealed"
	}
	return out
}

// oldestAge is the age of the oldest record that is not delivered. The drain knows it of what it has taken up. What it has not
// taken up yet gathers for a batch, unless it cannot be read; then the log has an estimate.
func oldestAge(w wab.Stats, dr drain.ShardStats, linger time.Duration) time.Duration {
	if !dr.Oldest.IsZero() {
		return time.Since(dr.Oldest)
	}
	if dr.State != drain.Idle || len(w.Faults) > 0 {
		return time.Since(w.Oldest)
	}
	return min(time.Since(w.Oldest), linger)
}

func shardStatus(w wab.Stats, dr drain.ShardStats, linger time.Duration) admin.Shard {
	sh := admin.Shard{
		Shard: w.Shard, Writable: w.Writable, Accepting: w.Accepting, Appended: admin.Position(w.Appended), Committed: admin.Position(w.Committed), Confirmed: admin.Position(w.Confirmed),
		Segments: w.Segments, BacklogRecords: w.BacklogRecords, BacklogBytes: w.BacklogBytes,
		AppendedRecords: w.AppendedRecords, RefusedRecords: w.RefusedRecords, Groups: w.Groups, Syncs: w.Syncs,
		SyncP50Seconds: w.SyncQuantile(0.5).Seconds(), SyncP99Seconds: w.SyncQuantile(0.99).Seconds(), Failures: w.Failures,
		Drain: drainStatus(dr),
	}
	if w.BacklogRecords > 0 {
		sh.OldestAgeSeconds = max(0, oldestAge(w, dr, linger).Seconds())
	}
	for _, f := range w.Faults {
		sh.Faults = append(sh.Faults, admin.Fault{Step: f.Step, Error: f.Err.Error(), Since: f.Since})
	}
	return sh
}

func drainStatus(dr drain.ShardStats) admin.Drain {
	out := admin.Drain{
		State: dr.State.String(), InFlight: dr.InFlight, LastError: dr.LastError, LastErrorTime: timeOrNil(dr.LastErrorAt), NextAttempt: timeOrNil(dr.NextAttempt),
		Delivered: dr.Delivered, Retried: dr.Retried, DeadLettered: dr.DeadLettered, Expired: dr.Expired, Batches: dr.Batches,
		Panics: dr.SinkPanics + dr.LoopPanics, BadOutcomes: dr.BadOutcomes, Timeouts: dr.Timeouts, Attempts: dr.Attempts, Hung: dr.Hung,
		DeliveryP50Seconds: latencyQuantile(dr.Latency, 0.5), DeliveryP99Seconds: latencyQuantile(dr.Latency, 0.99),
	}
	out.Words = inWords(dr)
	return out
}

// latencyQuantile returns an upper bound of the quantile q, in seconds: the bound of its bucket, or the largest bound.
func latencyQuantile(buckets []drain.LatencyBucket, q float64) float64 {
	total, seen, last := uint64(0), uint64(0), time.Duration(0)
	for _, b := range buckets {
		total += b.Count
	}
	if total == 0 {
		return 0
	}
	for _, b := range buckets {
		seen += b.Count
		last = max(last, b.Upto)
		if b.Upto > 0 && float64(seen) >= q*float64(total) {
			return b.Upto.Seconds()
		}
	}
	return last.Seconds()
}

func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func (d *Daemon) producers() admin.Producers {
	in := d.ingest.Stats()
	p := admin.Producers{
		Connections: in.Open, Accepted: in.Accepted, RefusedPeer: in.RefusedPeer, RefusedLimit: in.RefusedLimit,
		FrameTimeouts: in.FrameTimeouts, WriteTimeouts: in.WriteTimeouts, AckedRecords: in.AckedRecords, FailedRecords: in.FailedRecords,
		MemoryBytes: in.MemoryBytes, Frames: map[string]uint64{}, Nacks: map[string]uint64{},
	}
	for t, n := range in.Frames {
		p.Frames[t.String()] = n
	}
	for r, n := range in.Nacks {
		p.Nacks[r.String()] = n
	}
	p.AckP50Seconds, p.AckP99Seconds = in.AnswerQuantile(0.5).Seconds(), in.AnswerQuantile(0.99).Seconds()
	for _, b := range in.AnswerTimes {
		p.AckBuckets = append(p.AckBuckets, admin.Bucket{Upto: b.Upto.Seconds(), Count: b.Count})
	}
	return p
}

func (d *Daemon) syncTimes() (out []metrics.Times) {
	for i, s := range d.wab.Shards() {
		st := s.Stats()
		h := metrics.Times{Shard: i, Sum: st.SyncTotal}
		for _, b := range st.SyncTimes {
			h.Add(b.Upto, b.Count)
		}
		out = append(out, h)
	}
	return out
}

func (d *Daemon) answerTimes() metrics.Times {
	st := d.ingest.Stats()
	h := metrics.Times{Sum: st.AnswerTotal}
	for _, b := range st.AnswerTimes {
		h.Add(b.Upto, b.Count)
	}
	return h
}

func (d *Daemon) deliveryTimes() (out []metrics.Times) {
	for i, s := range d.delivery.stats().Shards {
		h := metrics.Times{Shard: i, Sum: s.LatencySum}
		for _, b := range s.Latency {
			h.Add(b.Upto, b.Count)
		}
		out = append(out, h)
	}
	return out
}
