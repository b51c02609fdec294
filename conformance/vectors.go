// Package conformance holds the conformance vectors of weir wire v1 and of weida wire version 0, and drives
// any codec or any daemon with them. The vectors are written by generate.py, a
// codec of its own; README.md describes their format and the line protocol.
package conformance

import (
	"embed"
	"encoding/json"
	"fmt"
)

//go:embed vectors/*.json
var files embed.FS

// Kinds of vectors: what the bytes are.
const (
	KindFrame      = "frame"
	KindBatch      = "batch"
	KindAckBatch   = "ack_batch"
	KindCoordinate = "coordinate"
	KindNack       = "nack"
	KindRecordID   = "record_id"

	KindWeidaFrame     = "weida_frame"
	KindWeidaRecord    = "weida_record"
	KindWeidaVarint    = "weida_varint"
	KindWeidaMatch     = "weida_match"
	KindWeidaNegotiate = "weida_negotiate"
)

// Vector is one case. All byte strings are lower-case hex.
type Vector struct {
	// Name is unique within its file.
	Name string `json:"name"`
	Note string `json:"note"`
	Kind string `json:"kind"`
	Hex  string `json:"hex"`
	// Verdict is "ok" or the name of the decoder's verdict.
	Verdict string `json:"verdict"`
	// Fields is what the bytes mean; it is set if Verdict is "ok".
	Fields *Fields `json:"fields"`
	// Reencoded is what an encoder makes of Fields, if that is not Hex.
	Reencoded string `json:"reencoded"`
	// Frame is the PushBatch frame around a batch body.
	Frame string `json:"frame"`
	// Sent is how many records the batch had that an AckBatch answers.
	Sent int `json:"sent"`
	// Daemon is what a daemon with default limits does with the frame; nil if
	// that cannot be said.
	Daemon *Daemon `json:"daemon"`
	// Line is what the bytes of a weida vector mean, as the line protocol writes it; it is set if Verdict is "ok".
	Line string `json:"line"`
	// Topic is what a weida filter is matched with.
	Topic string `json:"topic"`
	// Theirs is the other HELLO of a weida negotiation.
	Theirs string `json:"theirs"`
}

// Fields holds the fields of every kind; each kind uses its own.
type Fields struct {
	Type       int      `json:"type"`
	Durability int      `json:"durability"`
	Payload    string   `json:"payload"`
	Records    []string `json:"records"`
	Bits       string   `json:"bits"`
	Index      string   `json:"index"`
	RecordID   string   `json:"record_id"`
	Segment    string   `json:"segment"`
	Reason     int      `json:"reason"`
	Version    int      `json:"version"`
}

// Daemon is what a daemon answers.
type Daemon struct {
	// Reply is the whole reply frame; empty if only its type is known before.
	Reply     string `json:"reply"`
	ReplyType int    `json:"reply_type"`
	// Connection is "open" or "closed".
	Connection string `json:"connection"`
}

// Codes is codes.json: the numbers of the protocol as data.
type Codes struct {
	WireVersion int `json:"wire_version"`
	Types       []struct {
		Number                int
		Name, Sender, Meaning string
	} `json:"types"`
	Reasons []struct {
		Number                    int
		Name, Connection, Meaning string
	} `json:"reasons"`
	ReservedReasons []int `json:"reserved_reasons"`
	Durabilities    []struct {
		Number  int
		Name    string
		Written bool
		Meaning string
	} `json:"durabilities"`
	Verdicts []struct {
		Name string
		Nack *int
	} `json:"verdicts"`
	Caps map[string]int `json:"caps"`
}

// WeidaCodes is weida_codes.json: the numbers of weida's wire as data.
type WeidaCodes struct {
	WireVersion           int            `json:"wire_version"`
	Kinds                 []NamedNumber  `json:"kinds"`
	Codes                 []NamedNumber  `json:"codes"`
	Errors                []NamedNumber  `json:"errors"`
	Levels                []NamedNumber  `json:"levels"`
	FirstApplicationLevel int            `json:"first_application_level"`
	Caps                  map[string]int `json:"caps"`
}

// NamedNumber is a number of a protocol with its name.
type NamedNumber struct {
	Number int
	Name   string
}

// Load returns the vectors of one file of Names or WeidaNames.
func Load(name string) ([]Vector, error) {
	var f struct {
		Vectors []Vector `json:"vectors"`
	}
	if err := load(name, &f); err != nil {
		return nil, err
	}
	return f.Vectors, nil
}

// Names returns the names that Load takes, in the order in which they were added
// to the protocol.
func Names() []string { return []string{"frames", "tracked", "batch"} }

// WeidaNames returns the names of the files with weida's vectors.
func WeidaNames() []string {
	return []string{"weida_golden", "weida_accepted", "weida_refused", "weida_streams", "weida_filters", "weida_negotiations"}
}

// LoadWeidaCodes returns weida_codes.json.
func LoadWeidaCodes() (WeidaCodes, error) {
	var c WeidaCodes
	err := load("weida_codes", &c)
	return c, err
}

// LoadCodes returns codes.json.
func LoadCodes() (Codes, error) {
	var c Codes
	err := load("codes", &c)
	return c, err
}

func load(name string, into any) error {
	b, err := files.ReadFile("vectors/" + name + ".json")
	if err != nil {
		return fmt.Errorf("conformance: load: %w", err)
	}
	if err := json.Unmarshal(b, into); err != nil {
		return fmt.Errorf("conformance: load %s: %w", name, err)
	}
	return nil
}
