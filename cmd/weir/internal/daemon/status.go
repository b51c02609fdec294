package daemon

import (
	"fmt"
	"runtime/debug"
	"time"

	"github.com/weir-agent/weir/cmd/weir/internal/admin"
	"github.com/weir-agent/weir/cmd/weir/internal/metrics"
	"github.com/weir-agent/weir/drain"
	"github.com/weir-agent/weir/wab"
)

// Version is the version that was built in.
func Version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return "unknown"
}

// Status puts together what the parts say at this moment.
func (d *Daemon) Status() admin.Status {
	st := admin.Status{
		Version: Version(), Started: d.started, Socket: d.cfg.Socket.Path, DataDir: d.cfg.WAB.Dir,
		Sink:      admin.Sink{Type: d.cfg.Sink.Type, Target: d.target()},
		UsedBytes: d.wab.UsedBytes(), MaxBytes: d.wab.MaxBytes(), LowSpace: d.wab.LowSpace(),
		Producers: d.producers(),
	}
	drained := d.drain.Stats()
	for i, s := range d.wab.Shards() {
		w := s.Stats()
		sh := shardStatus(w, drained.Shards[i])
		st.Shards = append(st.Shards, sh)
		st.BacklogRecords += sh.BacklogRecords
		st.BacklogBytes += sh.BacklogBytes
		st.OldestAgeSeconds = max(st.OldestAgeSeconds, sh.OldestAgeSeconds)
		st.Quarantine.Damaged += w.Damaged
		st.Quarantine.Lost += w.Lost
		st.Quarantine.Ignored += w.Ignored
		if w.Writable && !w.Accepting {
			st.NotReady = append(st.NotReady, fmt.Sprintf("shard %d cannot append", w.Shard))
		}
		if drained.Shards[i].State == drain.Failed {
			st.NotReady = append(st.NotReady, fmt.Sprintf("the delivery of shard %d has failed: %s", w.Shard, drained.Shards[i].LastError))
		}
	}
	if st.LowSpace {
		st.NotReady = append(st.NotReady, "free space is under min_free_bytes: pushes are refused")
	}
	if st.UsedBytes >= st.MaxBytes {
		st.NotReady = append(st.NotReady, "the byte cap is reached: pushes are refused until records are delivered")
	}
	st.Ready = len(st.NotReady) == 0
	dead := d.dead.Stats()
	st.DeadLetters = admin.DeadLetters{Records: dead.Letters, Bytes: dead.Bytes}
	return st
}

func shardStatus(w wab.Stats, dr drain.ShardStats) admin.Shard {
	sh := admin.Shard{
		Shard: w.Shard, Accepting: w.Accepting, Appended: admin.Position(w.Appended), Committed: admin.Position(w.Committed),
		Confirmed: admin.Position(w.Confirmed), Segments: w.Segments, BacklogRecords: w.BacklogRecords, BacklogBytes: w.BacklogBytes,
		AppendedRecords: w.AppendedRecords, RefusedRecords: w.RefusedRecords, Groups: w.Groups, Syncs: w.Syncs,
		SyncP50Seconds: w.SyncQuantile(0.5).Seconds(), SyncP99Seconds: w.SyncQuantile(0.99).Seconds(), Failures: w.Failures,
		Drain: admin.Drain{
			State: dr.State.String(), InFlight: dr.InFlight, LastError: dr.LastError, LastErrorTime: timeOrNil(dr.LastErrorAt), NextAttempt: timeOrNil(dr.NextAttempt),
			Delivered: dr.Delivered, Retried: dr.Retried, DeadLettered: dr.DeadLettered, Expired: dr.Expired, Batches: dr.Batches,
			Panics: dr.SinkPanics + dr.LoopPanics, BadOutcomes: dr.BadOutcomes, Timeouts: dr.Timeouts,
		},
	}
	if !w.Oldest.IsZero() {
		sh.OldestAgeSeconds = max(0, time.Since(w.Oldest).Seconds())
	}
	for _, f := range w.Faults {
		sh.Faults = append(sh.Faults, admin.Fault{Step: f.Step, Error: f.Err.Error(), Since: f.Since})
	}
	return sh
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
	return p
}

func (d *Daemon) syncTimes() []metrics.SyncTimes {
	var out []metrics.SyncTimes
	for _, s := range d.wab.Shards() {
		st := s.Stats()
		h := metrics.SyncTimes{Shard: st.Shard, Sum: st.SyncTotal}
		for _, b := range st.SyncTimes {
			h.Upto = append(h.Upto, b.Upto)
			h.Counts = append(h.Counts, b.Count)
		}
		out = append(out, h)
	}
	return out
}
