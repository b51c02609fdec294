package admin

import "time"

// Status is what /api/v1/status answers. Names of the JSON fields are stable.
type Status struct {
	Version string    `json:"version"`
	Started time.Time `json:"started"`
	// Ready: pushes are accepted and no shard has failed. NotReady says why not.
	Ready    bool     `json:"ready"`
	NotReady []string `json:"not_ready,omitempty"`
	Socket   string   `json:"socket"`
	DataDir  string   `json:"data_dir"`
	Sink     Sink     `json:"sink"`

	BacklogRecords   int64   `json:"backlog_records"`
	BacklogBytes     int64   `json:"backlog_bytes"`
	OldestAgeSeconds float64 `json:"oldest_age_seconds"`
	UsedBytes        int64   `json:"used_bytes"`
	MaxBytes         int64   `json:"max_bytes"`
	LowSpace         bool    `json:"low_space"`

	Shards      []Shard     `json:"shards"`
	Producers   Producers   `json:"producers"`
	DeadLetters DeadLetters `json:"dead_letters"`
	Quarantine  Quarantine  `json:"quarantine"`
}

// Sink says where records go.
type Sink struct {
	Type   string `json:"type"`
	Target string `json:"target"` // without secrets
}

// Position is a place between records.
type Position struct {
	Segment uint64 `json:"segment"`
	Index   uint64 `json:"index"`
}

// Shard is one shard of the log and its drain.
type Shard struct {
	Shard     int      `json:"shard"`
	Accepting bool     `json:"accepting"`
	Appended  Position `json:"appended"`
	Committed Position `json:"committed"`
	Confirmed Position `json:"confirmed"`
	Segments  int      `json:"segments"`

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

// Fault is a step of the log that does not work now.
type Fault struct {
	Step  string    `json:"step"`
	Error string    `json:"error"`
	Since time.Time `json:"since"`
}

// Drain is the delivery of one shard.
type Drain struct {
	State         string     `json:"state"`
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
}

// DeadLetters is the dead-letter store.
type DeadLetters struct {
	Records int64 `json:"records"`
	Bytes   int64 `json:"bytes"`
}

// Quarantine counts what was found damaged: since the start, and what is kept on disk.
type Quarantine struct {
	Damaged uint64 `json:"damaged"`
	Lost    int64  `json:"lost_records"`
	Ignored uint64 `json:"ignored_files"`
}
