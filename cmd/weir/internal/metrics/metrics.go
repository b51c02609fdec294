// Package metrics shows a status as Prometheus series. Nothing is counted here: counters and gauges are read from the
// parts of the daemon at each scrape, so that they cannot disagree with the status.
package metrics

import (
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/weir-agent/weir/cmd/weir/internal/admin"
)

// Source is what the series are read from.
type Source struct {
	Status func() admin.Status
	// SyncTimes and DeliveryTimes have one histogram for each shard.
	SyncTimes     func() []Times
	AnswerTimes   func() Times
	DeliveryTimes func() []Times
}

// Times is a histogram of times.
type Times struct {
	Shard  int
	Upto   []time.Duration // upper bounds; 0: above all bounds
	Counts []uint64        // not cumulative
	Sum    time.Duration
}

// Add appends a bucket.
func (t *Times) Add(upto time.Duration, count uint64) {
	t.Upto, t.Counts = append(t.Upto, upto), append(t.Counts, count)
}

// Handler returns the handler of /metrics.
func Handler(src Source) http.Handler {
	reg := prometheus.NewRegistry()
	reg.MustRegister(&collector{src: src, descs: describe()}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(reg, promhttp.HandlerOpts{})
}

type collector struct {
	src   Source
	descs map[string]*prometheus.Desc
}

// series are the names and help texts; the labels follow.
var series = []struct {
	name, help string
	labels     []string
}{
	{"weir_ready", "1 if pushes are accepted and no shard has failed.", nil},
	{"weir_build_info", "1; the version is the label.", []string{"version"}},
	{"weir_start_time_seconds", "Unix time of the start.", nil},
	{"weir_used_bytes", "Bytes of all segments that are not removed yet.", nil},
	{"weir_max_bytes", "The byte cap in force.", nil},
	{"weir_low_space", "1 if appends are refused because the file system has too little free space.", nil},
	{"weir_backlog_records", "Records that are not confirmed yet.", []string{"shard"}},
	{"weir_backlog_bytes", "Bytes on disk of records that are not confirmed yet.", []string{"shard"}},
	{"weir_backlog_oldest_age_seconds", "Age of about the oldest record that is not confirmed.", []string{"shard"}},
	{"weir_segments", "Segments of the shard.", []string{"shard"}},
	{"weir_appended_records_total", "Records that were written to the log.", []string{"shard"}},
	{"weir_refused_records_total", "Records that were refused because a cap was reached or no segment could be made.", []string{"shard"}},
	{"weir_group_commits_total", "Groups of records that were written in one write.", []string{"shard"}},
	{"weir_failures_total", "Failed steps of the log.", []string{"shard", "step"}},
	{"weir_fsync_seconds", "Time of one fdatasync of a group commit.", []string{"shard"}},
	{"weir_delivered_records_total", "Records that the sink confirmed.", []string{"shard"}},
	{"weir_retried_records_total", "Records that were sent again, once for each time.", []string{"shard"}},
	{"weir_dead_lettered_records_total", "Records that the sink refused for good; they are kept.", []string{"shard"}},
	{"weir_expired_records_total", "Records that were dropped because they were older than max_age.", []string{"shard"}},
	{"weir_batches_total", "Batches that were confirmed.", []string{"shard"}},
	{"weir_batches_in_flight", "Batches that are being delivered.", []string{"shard"}},
	{"weir_sink_panics_total", "Panics in the sink that were survived.", []string{"shard"}},
	{"weir_sink_bad_outcomes_total", "Answers of the sink that did not account for every record.", []string{"shard"}},
	{"weir_sink_timeouts_total", "Deliveries that were cut off by their deadline.", []string{"shard"}},
	{"weir_drain_state", "1 for the state that the shard's delivery is in, 0 for all others.", []string{"shard", "state"}},
	{"weir_connections", "Open connections of producers.", nil},
	{"weir_connections_total", "Connections that were let in.", nil},
	{"weir_connections_refused_total", "Connections that were refused.", []string{"reason"}},
	{"weir_connections_cut_total", "Connections that were cut off by a deadline.", []string{"reason"}},
	{"weir_frames_total", "Whole requests by type.", []string{"type"}},
	{"weir_nacks_total", "Nacks by reason.", []string{"reason"}},
	{"weir_acked_records_total", "Records that were acked to their producers.", nil},
	{"weir_failed_records_total", "Records of accepted frames that were not acked.", nil},
	{"weir_ingest_memory_bytes", "Memory that producers' frames take.", nil},
	{"weir_dead_letters", "Dead letters that are kept.", nil},
	{"weir_dead_letter_bytes", "Bytes that the dead letters take.", nil},
	{"weir_dead_letters_requeued", "Dead letters that wait for being delivered again.", nil},
	{"weir_dead_letter_max_bytes", "Most that the dead letters may take.", nil},
	{"weir_requeued_delivered_records_total", "Dead letters that were requeued and that the sink confirmed then.", nil},
	{"weir_quarantine_reports", "Copies of damaged bytes that are kept.", nil},
	{"weir_quarantine_bytes", "Bytes that these copies take.", nil},
	{"weir_file_system_free_bytes", "Free space of the file system of the data folder.", nil},
	{"weir_ack_seconds", "Time from the arrival of a frame to its reply, counted by record.", nil},
	{"weir_delivery_seconds", "Time from the append of a record to the sink's confirm.", []string{"shard"}},
	{"weir_sink_attempts_total", "Attempts to deliver a batch or a part of it.", []string{"shard"}},
	{"weir_sink_hung_calls", "Calls of the sink that have not returned by their deadline.", []string{"shard"}},
	{"weir_syncs_total", "Syncs of group commits, failed ones too.", []string{"shard"}},
	{"weir_fault", "1 for a step of the log that fails now, else 0.", []string{"shard", "step"}},
	{"weir_paused", "1 if an operator paused the delivery.", nil},
	{"weir_ignored_files", "Files of the data folder that are not understood and left alone.", nil},
	{"weir_damaged_total", "Pieces of damage that were found and quarantined since the start.", nil},
	{"weir_quarantined_records_total", "Records that this damage cost, as far as known.", nil},
}

func describe() map[string]*prometheus.Desc {
	out := map[string]*prometheus.Desc{}
	for _, s := range series {
		out[s.name] = prometheus.NewDesc(s.name, s.help, s.labels, nil)
	}
	return out
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, s := range series {
		ch <- c.descs[s.name]
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	st := c.src.Status()
	gauge := func(name string, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(c.descs[name], prometheus.GaugeValue, v, labels...)
	}
	count := func(name string, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(c.descs[name], prometheus.CounterValue, float64(v), labels...)
	}
	gauge("weir_ready", flag(st.Ready))
	gauge("weir_build_info", 1, st.Version)
	gauge("weir_start_time_seconds", float64(st.Started.UnixNano())/1e9)
	gauge("weir_used_bytes", float64(st.UsedBytes))
	gauge("weir_max_bytes", float64(st.MaxBytes))
	gauge("weir_low_space", flag(st.LowSpace))
	for i := range st.Shards {
		collectShard(&st.Shards[i], gauge, count)
	}
	collectProducers(&st.Producers, gauge, count)
	gauge("weir_dead_letters", float64(st.DeadLetters.Records))
	gauge("weir_dead_letter_bytes", float64(st.DeadLetters.Bytes))
	count("weir_damaged_total", st.Quarantine.Damaged)
	count("weir_quarantined_records_total", uint64(st.Quarantine.Lost))
	gauge("weir_ignored_files", float64(st.Quarantine.Ignored))
	gauge("weir_quarantine_reports", float64(st.Quarantine.Reports))
	gauge("weir_quarantine_bytes", float64(st.Quarantine.Kept))
	gauge("weir_dead_letters_requeued", float64(st.DeadLetters.Requeued))
	gauge("weir_dead_letter_max_bytes", float64(st.DeadLetters.MaxBytes))
	count("weir_requeued_delivered_records_total", st.Requeued.Delivered)
	gauge("weir_file_system_free_bytes", float64(st.FreeBytes))
	gauge("weir_paused", flag(st.Paused))
	for _, h := range c.src.SyncTimes() {
		ch <- c.histogram("weir_fsync_seconds", h, strconv.Itoa(h.Shard))
	}
	for _, h := range c.src.DeliveryTimes() {
		ch <- c.histogram("weir_delivery_seconds", h, strconv.Itoa(h.Shard))
	}
	ch <- c.histogram("weir_ack_seconds", c.src.AnswerTimes())
}

func collectShard(s *admin.Shard, gauge func(string, float64, ...string), count func(string, uint64, ...string)) {
	n := strconv.Itoa(s.Shard)
	gauge("weir_backlog_records", float64(s.BacklogRecords), n)
	gauge("weir_backlog_bytes", float64(s.BacklogBytes), n)
	gauge("weir_backlog_oldest_age_seconds", s.OldestAgeSeconds, n)
	gauge("weir_segments", float64(s.Segments), n)
	count("weir_appended_records_total", s.AppendedRecords, n)
	count("weir_refused_records_total", s.RefusedRecords, n)
	count("weir_group_commits_total", s.Groups, n)
	count("weir_syncs_total", s.Syncs, n)
	for _, step := range logSteps {
		wrong := slices.ContainsFunc(s.Faults, func(f admin.Fault) bool { return f.Step == step })
		gauge("weir_fault", flag(wrong), n, step)
		count("weir_failures_total", s.Failures[step], n, step)
	}
	d := &s.Drain
	count("weir_delivered_records_total", d.Delivered, n)
	count("weir_retried_records_total", d.Retried, n)
	count("weir_dead_lettered_records_total", d.DeadLettered, n)
	count("weir_expired_records_total", d.Expired, n)
	count("weir_batches_total", d.Batches, n)
	gauge("weir_batches_in_flight", float64(d.InFlight), n)
	count("weir_sink_panics_total", d.Panics, n)
	count("weir_sink_bad_outcomes_total", d.BadOutcomes, n)
	count("weir_sink_timeouts_total", d.Timeouts, n)
	count("weir_sink_attempts_total", d.Attempts, n)
	gauge("weir_sink_hung_calls", float64(d.Hung), n)
	for _, state := range drainStates {
		gauge("weir_drain_state", flag(d.State == state), n, state)
	}
}

func collectProducers(p *admin.Producers, gauge func(string, float64, ...string), count func(string, uint64, ...string)) {
	gauge("weir_connections", float64(p.Connections))
	count("weir_connections_total", p.Accepted)
	count("weir_connections_refused_total", p.RefusedPeer, "peer")
	count("weir_connections_refused_total", p.RefusedLimit, "limit")
	count("weir_connections_cut_total", p.FrameTimeouts, "frame_timeout")
	count("weir_connections_cut_total", p.WriteTimeouts, "write_timeout")
	for t, v := range p.Frames {
		count("weir_frames_total", v, t)
	}
	for r, v := range p.Nacks {
		count("weir_nacks_total", v, r)
	}
	count("weir_acked_records_total", p.AckedRecords)
	count("weir_failed_records_total", p.FailedRecords)
	gauge("weir_ingest_memory_bytes", float64(p.MemoryBytes))
}

// logSteps are the steps of the log that can fail.
var logSteps = []string{"write", "sync", "prepare", "seal", "cursor", "remove", "quarantine", "read"}

// drainStates are the states of a shard's delivery.
var drainStates = []string{"idle", "delivering", "retrying", "held", "deadletter_full", "paused", "failed"}

func (c *collector) histogram(name string, h Times, labels ...string) prometheus.Metric {
	buckets := map[float64]uint64{}
	total := uint64(0)
	for i, n := range h.Counts {
		total += n
		if h.Upto[i] > 0 {
			buckets[h.Upto[i].Seconds()] = total
		}
	}
	return prometheus.MustNewConstHistogram(c.descs[name], total, h.Sum.Seconds(), buckets, labels...)
}

func flag(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
