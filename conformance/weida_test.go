package conformance

import (
	"strings"
	"testing"

	"github.com/weir-agent/weir/weida/wire"
)

func TestWeidaVectorsCoverEveryVerdictAndReason(t *testing.T) {
	seen := map[string]bool{}
	for _, v := range loadAll(t, WeidaNames()) {
		seen[v.Verdict] = true
	}
	for _, v := range wire.Verdicts() {
		// A number above 2^62-1 cannot be read, so ErrRange is a writer's alone.
		if v != wire.ErrRange && !seen[v.Name()] {
			t.Errorf("no vector has the verdict %s", v.Name())
		}
	}
	for r := wire.NoCommonVersion; r <= wire.NotReached; r++ {
		if !seen[r.Name()] {
			t.Errorf("no vector has the reason %s", r.Name())
		}
	}
}

func TestWeidaCodes(t *testing.T) {
	c, err := LoadWeidaCodes()
	if err != nil {
		t.Fatal(err)
	}
	tables := []struct {
		name string
		want []NamedNumber
		got  func(n int) string
	}{
		{"kind", c.Kinds, func(n int) string { return wire.Kind(n).String() }},
		{"error", c.Errors, func(n int) string { return wire.ErrorCode(n).String() }},
		{"level", c.Levels, func(n int) string { return wire.Level(n).String() }},
	}
	for _, tt := range tables {
		last := 0
		for _, x := range tt.want {
			if got := tt.got(x.Number); got != x.Name {
				t.Errorf("%s %d: Go has %q, the codes %q", tt.name, x.Number, got, x.Name)
			}
			last = x.Number
		}
		if got := tt.got(last + 1); !strings.Contains(got, " ") || strings.Contains(got, "receipt") {
			t.Errorf("%s %d: Go has the name %q, the codes have none", tt.name, last+1, got)
		}
	}
	for n := range 32 {
		if got, want := wire.Level(n).Defined(), n < len(c.Levels) || n >= c.FirstApplicationLevel; got != want {
			t.Errorf("level %d: Go takes it: %v, want %v", n, got, want)
		}
	}
	caps := map[string]int{
		"endpoint_bytes": wire.MaxEndpointBytes, "content_type_bytes": wire.MaxContentTypeBytes, "traceparent_bytes": wire.MaxTraceparentBytes,
		"tracestate_bytes": wire.MaxTracestateBytes, "topic_bytes": wire.MaxTopicBytes, "filter_bytes": wire.MaxFilterBytes,
		"message_bytes": wire.MaxMessageBytes, "producer_bytes": wire.ProducerBytes, "list_items": wire.MaxListItems,
		"report_levels": wire.MaxReportLevels, "preamble_bytes": wire.MaxPreambleBytes, "record_bytes": wire.MaxRecordBytes,
		"default_max_header_bytes": wire.DefaultMaxHeaderBytes,
	}
	for name, want := range c.Caps {
		if caps[name] != want {
			t.Errorf("cap %s: Go has %d, the codes %d", name, caps[name], want)
		}
	}
	if c.WireVersion != wire.Version || len(c.Caps) != len(caps) {
		t.Errorf("version %d, %d caps; Go has %d and %d", c.WireVersion, len(c.Caps), wire.Version, len(caps))
	}
}

func TestRunnerDrivesWeida(t *testing.T) {
	tests := []struct {
		role  string
		flags []string
		code  int
		want  string // in stdout
	}{
		{"right", []string{"-strict", "-weida"}, exitDone, " 0 failed, 0 skipped"},
		{"none", []string{"-weida"}, exitFailed, "0 passed"},
	}
	for _, tt := range tests {
		t.Run(tt.role, func(t *testing.T) {
			if code, out, errs := run(t, tt.role, tt.flags...); code != tt.code || !strings.Contains(out, tt.want) {
				t.Errorf("exit %d, want %d\n%s\n%s", code, tt.code, out, errs)
			}
		})
	}
}

func TestAnswerSkipsWhatIsNotWeida(t *testing.T) {
	for _, line := range []string{
		"decode-weida_frame zz", "encode-weida_frame", "encode-weida_frame dance", "encode-weida_frame data endpoint",
		"encode-weida_frame cursor report_id=x", "encode-weida_frame data producer=00", "encode-weida_record 1", "encode-weida_varint x",
		"weida_match 00", "weida_match zz 00", "weida_negotiate 00", "weida_dance",
	} {
		if got := Answer(line); got != Skip {
			t.Errorf("Answer(%q) = %q, want %q", line, got, Skip)
		}
	}
}
