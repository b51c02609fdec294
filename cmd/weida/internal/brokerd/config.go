// Package brokerd is the broker of weida as a daemon: its configuration, its life, and what it says of itself over HTTP.
package brokerd

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/BurntSushi/toml"

	"github.com/weir-agent/weir/internal/units"
	"github.com/weir-agent/weir/weida"
)

// The values of Queue.Durability.
const (
	Flushed = "flushed" // confirmed when it would survive a power cut
	Written = "written" // confirmed when it would survive the death of the process
	Memory  = "memory"  // confirmed when it is in memory
)

// safety is how safe a durability is.
func safety(durability string) int {
	return slices.Index([]string{Memory, Written, Flushed}, durability)
}

// size and duration are read as people write them.
type (
	size     int64
	duration time.Duration
)

func (s *size) UnmarshalTOML(v any) error {
	switch v := v.(type) {
	case int64:
		*s = size(v)
		return nil
	case string:
		n, err := units.ParseSize(v)
		*s = size(n)
		return err
	}
	return fmt.Errorf(`%v is not a size: write it like 4096 or "64MiB"`, v)
}

func (d *duration) UnmarshalText(text []byte) error {
	v, err := units.ParseDuration(string(text))
	*d = duration(v)
	return err
}

// Config is the configuration of a broker.
type Config struct {
	Broker Broker  `toml:"broker"`
	Trust  Trust   `toml:"trust"`
	Queues []Queue `toml:"queue"`
	Admin  Admin   `toml:"admin"`
	Log    Log     `toml:"log"`

	file string
}

// Broker is where the broker is and how it is reached.
type Broker struct {
	// DataDir holds the identity and the queues; it is made if it is not there.
	DataDir string `toml:"data_dir"`
	// Listen are UDP addresses.
	Listen []string `toml:"listen"`
	// Socket is the path of a Unix socket that programs of the same user dial, by default broker.sock in the data folder; "none" is none.
	Socket string `toml:"socket"`
	// MaxConnections bounds the links of an address, and MaxConnectionsPerPeer those of one key.
	MaxConnections        int `toml:"max_connections"`
	MaxConnectionsPerPeer int `toml:"max_connections_per_peer"`
	// IdleTimeout ends a link on which nothing was heard.
	IdleTimeout duration `toml:"idle_timeout"`
	// MinFreeBytes is the free space of the file system under which messages are rejected.
	MinFreeBytes size `toml:"min_free_bytes"`
	// ShutdownTimeout is how long a stop waits for deliveries that are out.
	ShutdownTimeout duration `toml:"shutdown_timeout"`
}

// Trust is who may connect over QUIC.
type Trust struct {
	Clients []string `toml:"clients"` // fingerprints
	CAFile  string   `toml:"ca_file"`
	// Anybody lets everybody connect who reaches an address. It must be said.
	Anybody bool `toml:"anybody"`
}

// Queue is one queue.
type Queue struct {
	Path         string `toml:"path"`
	Durability   string `toml:"durability"`
	MaxBytes     size   `toml:"max_bytes"`
	MaxUnsettled int    `toml:"max_unsettled"`
	MaxAttempts  uint64 `toml:"max_attempts"`
	DeadLetter   string `toml:"dead_letter"`
	// KnownIDs is of how many messages the ids are known, so that repeats are not stored again; -1: of none.
	KnownIDs int `toml:"known_ids"`
	// MaxDiskBytes bounds the log of the queue; 0 is 6 times MaxBytes and 128 MiB.
	MaxDiskBytes size `toml:"max_disk_bytes"`
}

// Admin is where the broker says how it is.
type Admin struct {
	Listen string `toml:"listen"` // host:port; empty: not on TCP
	Socket string `toml:"socket"` // default: admin.sock in the data folder
}

// Log is how the broker logs.
type Log struct {
	Level  string `toml:"level"`
	Format string `toml:"format"`
}

const (
	defaultQueueBytes   = 64 << 20
	defaultMaxUnsettled = 256
	defaultKnownIDs     = 65536
	maxFolderName       = 200 // bytes of an escaped path
)

func defaults() Config {
	return Config{
		Broker: Broker{
			DataDir: "weida-data", Listen: []string{"127.0.0.1:7443"},
			MaxConnections: 1024, MaxConnectionsPerPeer: 64, IdleTimeout: duration(30 * time.Second), MinFreeBytes: 64 << 20, ShutdownTimeout: duration(10 * time.Second),
		},
		Admin: Admin{Listen: "127.0.0.1:9186"},
		Log:   Log{Level: "info", Format: "text"},
	}
}

// Load reads a configuration from a file, if there is one, lets override change it, and checks it. All faults are in the one error, each on a line of its own with the
// file and, where it is known, the line.
func Load(file string, override func(*Config)) (Config, error) {
	c := defaults()
	c.file = file
	var text []byte
	if file != "" {
		var err error
		if text, err = os.ReadFile(file); err != nil {
			return c, fmt.Errorf("configuration: %w", err)
		}
	}
	meta, err := toml.Decode(string(text), &c)
	if err != nil {
		if perr, ok := errors.AsType[toml.ParseError](err); ok {
			err = fmt.Errorf("%s:%d: %s", file, perr.Position.Line, perr.Message)
		} else {
			err = fmt.Errorf("%s: %w", file, err)
		}
		return c, err
	}
	lines := locate(string(text))
	var faults []error
	for _, key := range meta.Undecoded() {
		faults = append(faults, c.at(lines, key.String(), errors.New("unknown key: `weida broker config` prints all that there are")))
	}
	override(&c)
	c.fill()
	for _, f := range c.check() {
		faults = append(faults, c.at(lines, f.key, f.err))
	}
	return c, errors.Join(faults...)
}

// at says where a fault is.
func (c *Config) at(lines map[string]int, key string, err error) error {
	for k := key; ; {
		if line := lines[k]; line > 0 {
			return fmt.Errorf("%s:%d: %s: %w", c.file, line, key, err)
		}
		i := strings.LastIndexByte(k, '.')
		if i < 0 && c.file == "" {
			return fmt.Errorf("%s: %w", key, err)
		}
		if i < 0 {
			return fmt.Errorf("%s: %s: %w", c.file, key, err)
		}
		k = k[:i]
	}
}

// locate returns the line of each key of a TOML text that parses. The keys of the n-th [[queue]] are queue[n].NAME; without a number, those of the first one.
func locate(text string) map[string]int {
	lines := map[string]int{}
	count := map[string]int{}
	sections := []string{""}
	note := func(name string, line int) {
		for _, s := range sections {
			if key := s + name; lines[key] == 0 {
				lines[key] = line
			}
		}
	}
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, "["); ok {
			array := strings.HasPrefix(name, "[")
			name, _, _ = strings.Cut(strings.TrimPrefix(name, "["), "]")
			sections = []string{""}
			if array {
				note(fmt.Sprintf("%s[%d]", name, count[name]), i+1)
				sections = []string{fmt.Sprintf("%s[%d].", name, count[name]), name + "."}
				count[name]++
				continue
			}
			note(name, i+1)
			sections = []string{name + "."}
			continue
		}
		if name, _, ok := strings.Cut(line, "="); ok && !strings.HasPrefix(line, "#") {
			note(strings.TrimSpace(name), i+1)
		}
	}
	return lines
}

// fill puts defaults where nothing was said.
func (c *Config) fill() {
	for i := range c.Queues {
		q := &c.Queues[i]
		if q.Durability == "" {
			q.Durability = Flushed
		}
		if q.MaxBytes == 0 {
			q.MaxBytes = defaultQueueBytes
		}
		if q.MaxUnsettled == 0 {
			q.MaxUnsettled = defaultMaxUnsettled
		}
		if q.KnownIDs == 0 {
			q.KnownIDs = defaultKnownIDs
		}
		if q.MaxDiskBytes == 0 {
			q.MaxDiskBytes = 6*q.MaxBytes + 128<<20
		}
	}
	switch c.Broker.Socket {
	case "":
		c.Broker.Socket = filepath.Join(c.Broker.DataDir, "broker.sock")
	case "none":
		c.Broker.Socket = ""
	}
	if c.Admin.Socket == "" {
		c.Admin.Socket = filepath.Join(c.Broker.DataDir, "admin.sock")
	}
}

// fault is what is wrong with a key.
type fault struct {
	key string
	err error
}

func (c *Config) check() []fault {
	var faults []fault
	bad := func(is bool, key, format string, args ...any) {
		if is {
			faults = append(faults, fault{key, fmt.Errorf(format, args...)})
		}
	}
	b := &c.Broker
	bad(b.DataDir == "", "broker.data_dir", "is empty: name a folder")
	bad(len(b.Listen) == 0 && b.Socket == "", "broker.listen", "is empty, and so is broker.socket: nobody could connect")
	for _, addr := range b.Listen {
		_, port, err := net.SplitHostPort(addr)
		bad(err != nil || port == "", "broker.listen", `%q is not host:port, like "0.0.0.0:7443"`, addr)
	}
	bad(b.MaxConnections < 1, "broker.max_connections", "must be at least 1")
	bad(b.MaxConnectionsPerPeer < 1, "broker.max_connections_per_peer", "must be at least 1")
	bad(b.IdleTimeout < duration(time.Second), "broker.idle_timeout", "must be at least 1s")
	bad(b.MinFreeBytes < 0, "broker.min_free_bytes", "must not be negative")
	bad(b.ShutdownTimeout <= 0, "broker.shutdown_timeout", "must be more than 0")
	faults = append(faults, c.checkTrust()...)
	bad(len(c.Queues) == 0, "queue", "there is none: write [[queue]] and below it path = \"/NAME\" (--queue /NAME)")
	for i := range c.Queues {
		faults = append(faults, c.checkQueue(i)...)
	}
	bad(!slices.Contains([]string{"debug", "info", "warn", "error"}, c.Log.Level), "log.level", "%q is not debug, info, warn or error", c.Log.Level)
	bad(c.Log.Format != "text" && c.Log.Format != "json", "log.format", "%q is not text or json", c.Log.Format)
	return faults
}

func (c *Config) checkTrust() []fault {
	t := &c.Trust
	switch {
	case len(c.Broker.Listen) == 0:
		return nil
	case !t.Anybody && len(t.Clients) == 0 && t.CAFile == "":
		return []fault{{"trust", errors.New("say who may connect: clients = [\"sha256:…\"] (--allow) with the fingerprints that `weida identity` and the log of weir print, or ca_file, or anybody = true (--anybody)")}}
	case t.Anybody && (len(t.Clients) > 0 || t.CAFile != ""):
		return []fault{{"trust.anybody", errors.New("lets everybody in, so that clients and ca_file mean nothing: leave one or the other out")}}
	}
	if _, err := t.trust(); err != nil {
		return []fault{{"trust", err}}
	}
	return nil
}

// trust returns whom the section names; nil is everybody.
func (t *Trust) trust() (*weida.Trust, error) {
	if t.Anybody {
		return nil, nil
	}
	var trust weida.Trust
	for _, text := range t.Clients {
		f, err := weida.ParseFingerprint(text)
		if err != nil {
			return nil, fmt.Errorf("clients: %q: %w", text, err)
		}
		trust = trust.WithPins(f)
	}
	if t.CAFile == "" {
		return &trust, nil
	}
	trust, err := trust.WithAnchorFile(t.CAFile)
	return &trust, err
}

func (c *Config) checkQueue(i int) []fault {
	q := &c.Queues[i]
	var faults []fault
	bad := func(is bool, key, format string, args ...any) {
		if is {
			faults = append(faults, fault{fmt.Sprintf("queue[%d].%s", i, key), fmt.Errorf(format, args...)})
		}
	}
	named := func(path string) bool {
		return slices.ContainsFunc(c.Queues, func(o Queue) bool { return o.Path == path })
	}
	if err := weida.CheckPath(q.Path); err != nil {
		bad(true, "path", "%w: it begins with a slash, like \"/logs\"", err)
	} else {
		bad(len(q.folder()) > maxFolderName, "path", "is too long for the name of a folder")
	}
	bad(slices.ContainsFunc(c.Queues[:i], func(o Queue) bool { return o.Path == q.Path }), "path", "%s is there twice", q.Path)
	bad(!slices.Contains([]string{Flushed, Written, Memory}, q.Durability), "durability", "%q is not %s, %s or %s", q.Durability, Flushed, Written, Memory)
	bad(q.MaxBytes < 4096, "max_bytes", "%d is less than 4096", q.MaxBytes)
	bad(q.MaxUnsettled < 1, "max_unsettled", "must be at least 1")
	bad(q.KnownIDs < -1, "known_ids", "must be at least -1, which is none")
	bad(q.MaxDiskBytes < 6*q.MaxBytes, "max_disk_bytes", "must be at least 6 times max_bytes: messages that stay are moved within the log, and small ones take more there than they count")
	bad(q.MaxAttempts > 0 && q.DeadLetter == "", "max_attempts", "needs dead_letter, the path of the queue for what has failed so often")
	bad(q.DeadLetter != "" && q.MaxAttempts == 0, "dead_letter", "needs max_attempts")
	bad(q.DeadLetter != "" && (q.DeadLetter == q.Path || !named(q.DeadLetter)), "dead_letter", "%q is not another queue of this file", q.DeadLetter)
	for _, o := range c.Queues {
		bad(q.DeadLetter != "" && o.Path == q.DeadLetter && safety(o.Durability) < safety(q.Durability), "dead_letter",
			"%q is %q and this queue is %q: what was confirmed must be as safe there", o.Path, o.Durability, q.Durability)
	}
	return faults
}

// folder is the name of the folder of a queue.
func (q *Queue) folder() string { return url.PathEscape(q.Path) }
