package main

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/weir-agent/weir"

// edges is the import table of the design: what each package may import of ours, and of others. A name ending in "/..." stands for
// everything below. A package that is not here fails the test, so that the table stays whole.
var edges = map[string][]string{
	"wab/record":      {},
	"wab/vfs":         {"golang.org/x/sys/unix"},
	"wab/vfs/vfstest": {"wab/vfs"},
	"wab/segment":     {"wab/record"},
	"wab":             {"wab/record", "wab/vfs", "wab/segment"},
	"wab/wabtest":     {"wab", "wab/record", "wab/vfs", "wab/vfs/vfstest", "wab/segment"},

	"internal/unixsocket": {"golang.org/x/sys/unix"},

	"ingest/frame": {"wab/record", "github.com/klauspost/crc32"},
	"ingest":       {"internal/unixsocket", "ingest/frame", "wab/record", "wab", "golang.org/x/sys/unix"},

	"sinks":          {"wab/record"},
	"sinks/discard":  {"sinks", "wab/record"},
	"sinks/filesink": {"sinks", "wab/record", "wab/vfs"},
	"sinks/httpsink": {
		"sinks", "sinks/setup", "wab/record", "github.com/hashicorp/go-retryablehttp",
		"github.com/klauspost/compress/gzip", "github.com/klauspost/compress/zstd",
	},
	"sinks/weidasink":         {"sinks", "wab/record", "weida"},
	"sinks/sinktest":          {"sinks", "wab/record", "go.uber.org/goleak"},
	"sinks/setup":             {},
	"sinks/natssink":          {"sinks", "sinks/setup", "wab/record", "github.com/nats-io/nats.go/...", "github.com/nats-io/nkeys"},
	"sinks/natssink/natstest": {"sinks/sinktest", "github.com/nats-io/nats.go/..."},
	"sinks/kafkasink": {
		"sinks", "sinks/setup", "wab/record", "github.com/twmb/franz-go/pkg/kerr", "github.com/twmb/franz-go/pkg/kgo",
		"github.com/twmb/franz-go/pkg/kmsg", "github.com/twmb/franz-go/pkg/sasl/...",
	},
	"sinks/kafkasink/kafkatest": {"sinks/sinktest", "github.com/twmb/franz-go/pkg/kerr", "github.com/twmb/franz-go/pkg/kgo", "github.com/twmb/franz-go/pkg/kmsg"},
	"sinks/pgsink":              {"sinks", "sinks/setup", "wab/record", "github.com/jackc/pgx/v5", "github.com/jackc/pgx/v5/pgconn"},
	"sinks/pgsink/pgtest":       {"sinks/sinktest", "github.com/jackc/pgx/v5"},
	"sinks/s3sink": {
		"sinks", "sinks/filesink", "sinks/setup", "github.com/aws/aws-sdk-go-v2/...", "github.com/aws/smithy-go/...",
		"github.com/klauspost/compress/gzip", "github.com/klauspost/compress/zstd",
	},
	"sinks/s3sink/s3test": {"sinks/sinktest", "github.com/aws/aws-sdk-go-v2/...", "github.com/klauspost/compress/gzip", "github.com/klauspost/compress/zstd"},

	"weida":                          {"weida/wire", "weida/transport", "weida/transport/quictransport", "weida/transport/localtransport"},
	"weida/wire":                     {},
	"weida/transport":                {},
	"weida/transport/simnet":         {},
	"weida/transport/localtransport": {"weida/transport", "internal/unixsocket"},
	"weida/transport/transporttest":  {"weida/transport"},
	"weida/transport/quictransport":  {"weida/transport", "github.com/quic-go/quic-go/..."},

	"weida/broker": {"weida", "weida/wire"},

	"weida/broker/wabstore": {"weida/broker", "weida/wire", "wab", "wab/record"},

	"drain":            {"wab", "sinks", "wab/record", "drain/deadletter", "golang.org/x/sys/unix"},
	"drain/deadletter": {"wab/record", "wab/vfs", "wab/segment"},

	"conformance":                 {"ingest/frame", "wab/record", "weida/wire"},
	"conformance/cmd/conformance": {"conformance", "ingest/frame", "wab/record"},
	"clients/go":                  {"ingest/frame", "wab/record"},
	"clients/go/internal/lines":   {"clients/go", "ingest/frame", "wab/record"},
	"docs/receivers/go":           {},

	"cmd/weir": {"cmd/weir/internal/cli"},
	"cmd/weir/internal/config": {
		"internal/units", "sinks/httpsink", "sinks/filesink", "sinks/kafkasink", "sinks/natssink", "sinks/pgsink", "sinks/s3sink", "sinks/weidasink", "github.com/BurntSushi/toml",
	},
	"cmd/weir/internal/metrics": {"cmd/weir/internal/admin", "github.com/prometheus/client_golang/..."},
	"cmd/weir/internal/admin":   {"internal/unixsocket", "drain/deadletter", "wab/record"},
	"cmd/weir/internal/receive": {
		"sinks/filesink", "wab/record", "wab/vfs", "github.com/klauspost/compress/gzip", "github.com/klauspost/compress/zstd",
	},
	"cmd/weir/internal/daemon": {
		"cmd/weir/internal/admin", "cmd/weir/internal/config", "cmd/weir/internal/metrics", "drain", "drain/deadletter", "ingest", "ingest/frame",
		"sinks", "sinks/discard", "sinks/filesink", "sinks/httpsink", "sinks/kafkasink", "sinks/natssink", "sinks/pgsink", "sinks/s3sink", "sinks/weidasink", "wab", "wab/vfs",
	},
	"cmd/weir/internal/cli": {
		"cmd/weir/internal/admin", "cmd/weir/internal/config", "cmd/weir/internal/daemon", "cmd/weir/internal/receive", "clients/go",
		"ingest/frame", "wab", "wab/record", "wab/vfs", "drain/deadletter", "github.com/spf13/cobra", "github.com/schollz/progressbar/v3", "golang.org/x/term",
	},
	"cmd/weir/internal/demo": {"clients/go"},
	"cmd/weir/internal/docgen": {
		"cmd/weir/internal/cli", "cmd/weir/internal/config", "github.com/spf13/cobra", "github.com/spf13/cobra/doc", "github.com/spf13/pflag",
	},

	"cmd/weida":                  {"cmd/weida/internal/cli"},
	"cmd/weida/internal/exit":    {"weida"},
	"cmd/weida/internal/framing": {},
	"cmd/weida/internal/terms":   {"cmd/weida/internal/exit", "weida", "github.com/spf13/pflag"},
	// The daemon of the broker is the one place where weida and wab meet beside the store.
	"internal/units":               {},
	"cmd/weida/internal/brokerapi": {},
	"cmd/weida/internal/queuecmd":  {"cmd/weida/internal/brokerapi", "cmd/weida/internal/exit", "github.com/spf13/cobra"},
	"cmd/weida/internal/brokerd": {
		"cmd/weida/internal/brokerapi", "cmd/weida/internal/exit", "internal/units", "internal/unixsocket", "wab", "wab/record", "weida", "weida/broker", "weida/broker/wabstore",
		"github.com/BurntSushi/toml", "github.com/prometheus/client_golang/...", "github.com/spf13/cobra",
	},
	"cmd/weida/internal/cli": {
		"cmd/weida/internal/brokerd", "cmd/weida/internal/queuecmd",
		"cmd/weida/internal/exit", "cmd/weida/internal/framing", "cmd/weida/internal/terms", "weida", "weida/wire", "github.com/spf13/cobra",
	},

	"cmd/weir-bench":                   {"cmd/weir-bench/internal/cli"},
	"cmd/weir-bench/internal/load":     {"ingest/frame", "wab/record", "github.com/HdrHistogram/hdrhistogram-go", "golang.org/x/sys/unix"},
	"cmd/weir-bench/internal/baseline": {"cmd/weir-bench/internal/load", "ingest/frame", "wab/record", "github.com/klauspost/crc32", "github.com/HdrHistogram/hdrhistogram-go", "golang.org/x/sys/unix"},
	"cmd/weir-bench/internal/compare":  {"cmd/weir-bench/internal/load", "ingest/frame", "wab/record"},
	"cmd/weir-bench/internal/proc":     {},
	"cmd/weir-bench/internal/streams": {
		"cmd/weir-bench/internal/load", "cmd/weir-bench/internal/proc", "weida", "weida/transport", "weida/transport/quictransport", "weida/wire", "github.com/HdrHistogram/hdrhistogram-go",
	},
	"cmd/weir-bench/internal/soak":    {"clients/go", "cmd/weir-bench/internal/proc", "golang.org/x/sys/unix"},
	"cmd/weir-bench/internal/report":  {"cmd/weir-bench/internal/load"},
	"cmd/weir-bench/internal/forward": {"cmd/weir-bench/internal/load", "cmd/weir-bench/internal/proc", "weida", "weida/broker", "weida/broker/wabstore", "wab"}, // wab: the options of a store
	"cmd/weir-bench/internal/chaos": {
		"clients/go", "cmd/weir-bench/internal/proc", "wab", "weida", "weida/broker", "weida/broker/wabstore", "golang.org/x/sys/unix",
	},
	"cmd/weir-bench/internal/cli": {
		"cmd/weir-bench/internal/baseline", "cmd/weir-bench/internal/chaos", "cmd/weir-bench/internal/compare", "cmd/weir-bench/internal/forward", "cmd/weir-bench/internal/load", "cmd/weir-bench/internal/proc", "cmd/weir-bench/internal/report",
		"cmd/weir-bench/internal/soak", "cmd/weir-bench/internal/streams",
		"ingest/frame", "wab/record", "github.com/spf13/cobra",
	},
}

type listed struct {
	ImportPath string
	Imports    []string
}

func goList(t *testing.T) []listed {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports", module+"/...")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []listed
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

func allowed(table []string, imp string) bool {
	return slices.ContainsFunc(table, func(a string) bool {
		prefix, below := strings.CutSuffix(a, "/...")
		return imp == a || below && (imp == prefix || strings.HasPrefix(imp, prefix+"/"))
	})
}

// TestImports holds the package tree to the import table: an edge that is not in it fails.
func TestImports(t *testing.T) {
	packages := goList(t)
	if len(packages) < len(edges)/2 {
		t.Fatalf("go list found %d packages only", len(packages))
	}
	for _, p := range packages {
		name := strings.TrimPrefix(p.ImportPath, module+"/")
		table, ok := edges[name]
		if !ok {
			t.Errorf("package %s is not in the import table", name)
			continue
		}
		for _, imp := range p.Imports {
			if ours, ok := strings.CutPrefix(imp, module+"/"); ok {
				imp = ours
			} else if !strings.Contains(strings.SplitN(imp, "/", 2)[0], ".") {
				continue // the standard library
			}
			if !allowed(table, imp) {
				t.Errorf("package %s imports %s, which the table does not allow", name, imp)
			}
			if strings.HasSuffix(imp, "test") && !strings.HasSuffix(name, "test") {
				t.Errorf("package %s imports the test package %s", name, imp)
			}
		}
	}
}
