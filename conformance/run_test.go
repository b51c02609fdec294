package conformance

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/weir-agent/weir/ingest"
	"github.com/weir-agent/weir/wab"
	"github.com/weir-agent/weir/wab/vfs/vfstest"
)

// roleVar makes this test binary play a codec.
const roleVar = "CONFORMANCE_TEST_ROLE"

// codecs are the codecs that the test binary can play, by role.
func codecs() map[string]func(string) string {
	return map[string]func(string) string{
		"right": Answer,
		// The bits of a byte the other way round: every frame is well formed.
		"mirrored": func(line string) string {
			got := Answer(line)
			if bits, ok := strings.CutPrefix(got, "ok "); ok && strings.HasPrefix(line, "decode-ack_batch") {
				return "ok " + mirrored(bits)
			}
			return got
		},
		"few": func(line string) string {
			if strings.HasPrefix(line, "decode-nack") {
				return Answer(line)
			}
			return Skip
		},
		"none": func(string) string { return Skip },
	}
}

// mirrored reads a bitmap as a decoder would that takes the highest bit for the first.
func mirrored(bits string) string {
	padded := bits + strings.Repeat("0", (8-len(bits)%8)%8)
	out := make([]byte, 0, len(padded))
	for i := range padded {
		out = append(out, padded[i/8*8+7-i%8])
	}
	return string(out[:len(bits)])
}

func TestMain(m *testing.M) {
	switch role := os.Getenv(roleVar); role {
	case "":
		goleak.VerifyTestMain(m)
	case "dead":
		os.Exit(3)
	default:
		if err := serveLines(os.Stdin, os.Stdout, codecs()[role]); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
}

// run runs the command against this test binary in a role.
func run(t *testing.T, role string, flags ...string) (code int, out, errs string) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(roleVar, role)
	var o, e bytes.Buffer
	args := append(append([]string{"run"}, flags...), "--", exe)
	code = Main(t.Context(), args, nil, &o, &e)
	return code, o.String(), e.String()
}

func TestRunner(t *testing.T) {
	tests := []struct {
		role  string
		flags []string
		code  int
		want  string // in stdout
		err   string // in stderr
	}{
		{"right", []string{"-strict"}, exitDone, " 0 failed, 0 skipped", ""},
		{"mirrored", nil, exitFailed, "FAIL ack_bitmap_asymmetric_n9", "checks failed"},
		{"few", nil, exitDone, " 0 failed", ""},
		{"few", []string{"-strict"}, exitFailed, " 0 failed", "skipped"},
		{"none", nil, exitFailed, "0 passed", "nothing was checked"},
		{"dead", nil, exitFailed, "0 passed", "codec"},
	}
	for _, tt := range tests {
		t.Run(strings.Join(append([]string{tt.role}, tt.flags...), " "), func(t *testing.T) {
			code, out, errs := run(t, tt.role, tt.flags...)
			if code != tt.code || !strings.Contains(out, tt.want) || !strings.Contains(errs, tt.err) {
				t.Errorf("exit %d, want %d\n%s\n%s", code, tt.code, out, errs)
			}
		})
	}
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{nil, {"run"}, {"daemon"}, {"codec", "x"}, {"dance"}, {"run", "-no", "x"}, {"daemon", "-socket", "x", "y"}} {
		var out, errs bytes.Buffer
		if code := Main(t.Context(), args, nil, &out, &errs); code != exitUsage || !strings.Contains(errs.String(), "usage:") {
			t.Errorf("%q: exit %d, %s", args, code, errs.String())
		}
	}
}

func TestNoCommandAndNoDaemon(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none")
	for _, args := range [][]string{{"run", "--", none}, {"daemon", "-socket", none}} {
		var out, errs bytes.Buffer
		if code := Main(t.Context(), args, nil, &out, &errs); code != exitFailed {
			t.Errorf("%q: exit %d, %s", args, code, errs.String())
		}
	}
}

// The server does with every frame what the vectors say.
func TestDaemonConforms(t *testing.T) {
	l, err := wab.Open("", wab.Options{FS: vfstest.NewDisk(), SegmentBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	path := filepath.Join(t.TempDir(), "s")
	srv, err := ingest.New(ingest.Config{Path: path}, []ingest.Appender{l.Writable()[0]})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(context.Background()) }()
	defer func() {
		if err := srv.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	var out, errs bytes.Buffer
	if code := Main(t.Context(), []string{"daemon", "-socket", path}, nil, &out, &errs); code != exitDone {
		t.Errorf("exit %d\n%s\n%s", code, out.String(), errs.String())
	}
	checks := 0
	for _, v := range loadAll(t, Names()) {
		if v.Daemon != nil {
			checks++
		}
	}
	if got := srv.Stats().Accepted; int(got) != checks {
		t.Errorf("%d connections for %d vectors", got, checks)
	}
}
