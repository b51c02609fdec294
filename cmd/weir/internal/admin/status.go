package admin

import "time"

// Status is what /api/v1/status answers. Names of the JSON fields are stable.
type Status struct {
	Version string    `json:"version"`
	Started time.Time `json:"started"`
	// Ready: pushes are accepted and no shard has failed. NotReady says why not.
	Ready    bool     `json:"ready"`
	NotReady []string `json:"not_ready,omitempty"`
	// Warnings say what is wrong though pushes are accepted, and what to do.
	Warnings []string `json:"warnings,omitempty"`
	Socket   string   `json:"socket"`
	DataDir  string   `json:"data_dir"`
	Sink     Sink     `json:"sink"`

	BacklogRecords   int64   `json:"backlog_records"`
	BacklogBytes     int64   `json:"backlog_bytes"`
	OldestAgeSeconds float64 `json:"oldest_age_seconds"`
	UsedBytes        int64   `json:"used_bytes"`
	MaxBytes         int64   `json:"max_bytes"`
	LowSpace         bool    `json:"low_space"`
	FreeBytes        int64   `json:"free_bytes"` // of the file system
	DiskBytes        int64   `json:"disk_bytes"` // its size
	Paused           bool    `json:"paused"`
	RefusedLately    uint64  `json:"refused_lately"` // records that were refused in the last ten seconds

	Shards      []Shard     `json:"shards"`
	Requeued    Drain       `json:"requeued"` // the delivery of letters that were requeued
	Producers   Producers   `json:"producers"`
	DeadLetters DeadLetters `json:"dead_letters"`
	Quarantine  Quarantine  `json:"quarantine"`
}

// Sink says where records go.
type Sink struct {
	Type   string `json:"type"`
	Target string `json:"target"` // without secrets
	// Identity is the fingerprint of the key by which the other end knows this weir; absent where it proves none.
	Identity string `json:"identity,omitempty"`
}

// Position is a place between records.
type Position struct {
	Segment uint64 `json:"segment"`
	Index   uint64 `json:"index"`
}

// Shard is one shard of the log and its drain.
type Shard struct {
	Shard     int      `json:"shard"`
	Writable  bool     `json:"writable"` // false: it was found on disk and is only delivered
	Accepting bool     `json:"accepting"`
	Appended  Position `json:"appended"`
	Committed Position `json:"committed"`
	Confirmed Position `json:"confirmed"`
	Segments  int      `json:"segments"`
	// Map has the newest segments, oldest first.
	Map []Segment `json:"segment_map"`

	BacklogRecords   int64   `json:"backlog_records"`
	BacklogBytes     int64   `json:"backlog_bytes"`
	OldestAgeSeconds float64 `json:"oldest_age_seconds"`

	AppendedRecords uint64            `json:"appended_records"`
	RefusedRecords  uint64            `json:"refused_records"`
	Groups          uint64            `json:"group_commits"`
	Syncs           uint64            `json:"syncs"`
	SyncP50Seconds  float64           `json:"sync_p50_seconds"`
	SyncP99Seconds  float64           `json:"sync_p99_seconds"`
	Failures        map[string]uint64 `json:"failures,omitempty"`
	Faults          []Fault           `json:"faults,omitempty"`

	Drain Drain `json:"drain"`
}

// Segment is one file of a shard.
type Segment struct {
	Number    uint64 `json:"number"`
	State     string `json:"state"` // active, closed (being sealed), sealed, or failed (never written again)
	Bytes     int64  `json:"bytes"`
	Size      int64  `json:"file_bytes"`
	Records   uint64 `json:"records"`
	Confirmed uint64 `json:"confirmed_records"`
}

// Fault is a step of the log that does not work now.
type Fault struct {
	Step  string    `json:"step"`
	Error string    `json:"error"`
	Since time.Time `json:"since"`
}

// Drain is the delivery of one shard.
type Drain struct {
	State         string     `json:"state"`
	Words         string     `json:"state_in_words"`
	InFlight      int        `json:"batches_in_flight"`
	LastError     string     `json:"last_error,omitempty"`
	LastErrorTime *time.Time `json:"last_error_time,omitempty"`
	NextAttempt   *time.Time `json:"next_attempt,omitempty"`
	Delivered     uint64     `json:"delivered_records"`
	Retried       uint64     `json:"retried_records"`
	DeadLettered  uint64     `json:"dead_lettered_records"`
	Expired       uint64     `json:"expired_records"`
	Batches       uint64     `json:"batches"`
	Panics        uint64     `json:"sink_panics"`
	BadOutcomes   uint64     `json:"bad_outcomes"`
	Timeouts      uint64     `json:"sink_timeouts"`
	Attempts      uint64     `json:"attempts"`
	Hung          int        `json:"hung_calls"`
	// Times from append to delivery, of all that was delivered since the start.
	DeliveryP50Seconds float64 `json:"delivery_p50_seconds"`
	DeliveryP99Seconds float64 `json:"delivery_p99_seconds"`
}

// Producers is the socket's side.
type Producers struct {
	Connections   int64             `json:"connections"`
	Accepted      uint64            `json:"accepted_connections"`
	RefusedPeer   uint64            `json:"refused_peer"`
	RefusedLimit  uint64            `json:"refused_limit"`
	FrameTimeouts uint64            `json:"frame_timeouts"`
	WriteTimeouts uint64            `json:"write_timeouts"`
	Frames        map[string]uint64 `json:"frames"`
	Nacks         map[string]uint64 `json:"nacks"`
	AckedRecords  uint64            `json:"acked_records"`
	FailedRecords uint64            `json:"failed_records"`
	MemoryBytes   int64             `json:"memory_bytes"`
	// Times from a frame's arrival to its reply, by record, since the start.
	AckP50Seconds float64 `json:"ack_p50_seconds"`
	AckP99Seconds float64 `json:"ack_p99_seconds"`
	// AckBuckets has the counts behind them, not cumulative, so that a reader can tell the times of an interval.
	AckBuckets []Bucket `json:"ack_buckets"`
}

// Bucket counts what took at most Upto, and longer than the bucket before (0: longer than all bounds).
type Bucket struct {
	Upto  float64 `json:"upto_seconds"`
	Count uint64  `json:"count"`
}

// DeadLetters is the dead-letter store.
type DeadLetters struct {
	Records  int64 `json:"records"`
	Requeued int64 `json:"requeued"` // of these, those that wait for delivery
	Bytes    int64 `json:"bytes"`
	MaxBytes int64 `json:"max_bytes"`
	Damages  int   `json:"damages"` // places of the store that do not verify
}

// Quarantine counts what was found damaged: since the start, and the reports that are kept on disk.
type Quarantine struct {
	Damaged uint64 `json:"damaged"`
	Lost    int64  `json:"lost_records"`
	Ignored uint64 `json:"ignored_files"`
	Reports int    `json:"reports"`
	Kept    int64  `json:"kept_bytes"`
}

// ReloadResult says what a reload did.
type ReloadResult struct {
	Changed     []string `json:"changed"`
	NeedRestart []string `json:"need_restart"`
}

// Letter is a dead letter as the page shows it: without its payload, which is for the daemon's own user alone.
type Letter struct {
	ID       string    `json:"id"`
	Shard    int       `json:"shard"`
	Bytes    int       `json:"bytes"`
	Status   int       `json:"status"`
	Reason   string    `json:"reason"`
	Attempts int       `json:"attempts"`
	Died     time.Time `json:"died"`
	Requeued bool      `json:"requeued"`
}

// Letters are the oldest dead letters.
type Letters struct {
	Records int64    `json:"records"` // in the store
	Letters []Letter `json:"letters"`
	Error   string   `json:"error,omitempty"`
}
