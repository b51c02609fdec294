package brokerd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// sound is a configuration without a fault; the queue /dead takes what fails in /q.
const sound = `[broker]
data_dir = "data"
listen = ["127.0.0.1:0"]
[trust]
anybody = true
[[queue]]
path = "/q"
max_attempts = 3
dead_letter = "/dead"
[[queue]]
path = "/dead"
`

// TestFaults: each fault is told with the file, the line, the key and what is wrong.
func TestFaults(t *testing.T) {
	file := filepath.Join(t.TempDir(), "b.toml")
	for name, c := range map[string]struct{ old, text, want string }{
		"no fault":                 {},
		"not TOML":                 {`anybody = true`, `anybody = `, `:5: `},
		"unknown key":              {`anybody = true`, "anybody = true\nnobody = true", `:6: trust.nobody: unknown key`},
		"no folder":                {`"data"`, `""`, `:2: broker.data_dir: is empty`},
		"no address and no socket": {`listen = ["127.0.0.1:0"]`, "listen = []\nsocket = \"none\"", `:3: broker.listen: is empty, and so is broker.socket`},
		"no port":                  {`"127.0.0.1:0"`, `"127.0.0.1"`, `:3: broker.listen: "127.0.0.1" is not host:port`},
		"no connections":           {`data_dir = "data"`, "data_dir = \"data\"\nmax_connections = 0", `:3: broker.max_connections: must be at least 1`},
		"no connections of a peer": {`data_dir = "data"`, "data_dir = \"data\"\nmax_connections_per_peer = 0", `:3: broker.max_connections_per_peer: must be at least 1`},
		"idle too soon":            {`data_dir = "data"`, "data_dir = \"data\"\nidle_timeout = \"1ms\"", `:3: broker.idle_timeout: must be at least 1s`},
		"not a duration":           {`data_dir = "data"`, "data_dir = \"data\"\nidle_timeout = \"soon\"", `"soon" is not a duration`},
		"not a size":               {`data_dir = "data"`, "data_dir = \"data\"\nmin_free_bytes = \"some\"", `"some" is not a size`},
		"less than nothing free":   {`data_dir = "data"`, "data_dir = \"data\"\nmin_free_bytes = -1", `:3: broker.min_free_bytes: must not be negative`},
		"no time to stop":          {`data_dir = "data"`, "data_dir = \"data\"\nshutdown_timeout = \"0s\"", `:3: broker.shutdown_timeout: must be more than 0`},
		"nobody may connect":       {`anybody = true`, ``, `:4: trust: say who may connect`},
		"anybody, and somebody":    {`anybody = true`, "anybody = true\nclients = [\"x\"]", `:5: trust.anybody: lets everybody in`},
		"not a fingerprint":        {`anybody = true`, `clients = ["x"]`, `:4: trust: clients: "x": `},
		"no such file":             {`anybody = true`, `ca_file = "/nowhere/ca.pem"`, `:4: trust: `},
		"path without a slash":     {`path = "/q"`, `path = "q"`, `:7: queue[0].path: invalid endpoint path`},
		"path that is no folder":   {`path = "/q"`, `path = "/` + strings.Repeat("q", maxFolderName) + `"`, `:7: queue[0].path: is too long`},
		"path twice":               {`path = "/q"`, `path = "/dead"`, `:11: queue[1].path: /dead is there twice`},
		"durability":               {`path = "/q"`, "path = \"/q\"\ndurability = \"some\"", `:8: queue[0].durability: "some" is not`},
		"too small":                {`path = "/q"`, "path = \"/q\"\nmax_bytes = 4095", `:8: queue[0].max_bytes: 4095 is less than 4096`},
		"unsettled":                {`path = "/q"`, "path = \"/q\"\nmax_unsettled = -1", `:8: queue[0].max_unsettled: must be at least 1`},
		"known ids":                {`path = "/q"`, "path = \"/q\"\nknown_ids = -2", `:8: queue[0].known_ids: must be at least -1`},
		"disk":                     {`path = "/q"`, "path = \"/q\"\nmax_disk_bytes = \"64MiB\"", `:8: queue[0].max_disk_bytes: must be at least 6 times`},
		"attempts for nothing":     {`dead_letter = "/dead"`, ``, `:8: queue[0].max_attempts: needs dead_letter`},
		"dead letters for nothing": {`max_attempts = 3`, ``, `:9: queue[0].dead_letter: needs max_attempts`},
		"dead letters to itself":   {`dead_letter = "/dead"`, `dead_letter = "/q"`, `:9: queue[0].dead_letter: "/q" is not another queue`},
		"dead letters to nobody":   {`dead_letter = "/dead"`, `dead_letter = "/n"`, `:9: queue[0].dead_letter: "/n" is not another queue`},
		"level":                    {`[broker]`, "[log]\nlevel = \"loud\"\n[broker]", `:2: log.level: "loud" is not`},
		"format":                   {`[broker]`, "[log]\nformat = \"xml\"\n[broker]", `:2: log.format: "xml" is not`},
	} {
		t.Run(name, func(t *testing.T) {
			if c.old != "" && strings.Count(sound, c.old) != 1 {
				t.Fatalf("%q stands %d times", c.old, strings.Count(sound, c.old))
			}
			if err := os.WriteFile(file, []byte(strings.Replace(sound, c.old, c.text, 1)), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := Load(file, func(*Config) {})
			switch {
			case c.want == "" && err != nil:
				t.Errorf("got %v", err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), c.want)):
				t.Errorf("got %v\nwant %s", err, c.want)
			}
		})
	}
}

func TestNoQueueIsAFault(t *testing.T) {
	if _, err := Load("", func(c *Config) { c.Trust.Anybody = true }); err == nil || !strings.Contains(err.Error(), "queue: there is none") {
		t.Errorf("got %v", err)
	}
}
