package filesink

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/weir-agent/weir/sinks"
	"github.com/weir-agent/weir/sinks/sinktest"
	"github.com/weir-agent/weir/wab/record"
	"github.com/weir-agent/weir/wab/vfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func verdicts(out []sinks.Outcome) []sinks.Verdict {
	var all []sinks.Verdict
	for _, o := range out {
		all = append(all, o.Verdict)
	}
	return all
}

func mustNew(t *testing.T, o Options) *Sink {
	t.Helper()
	if o.Path == "" {
		o.Path = "out"
	}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// mustDeliver fails the test unless every record is delivered.
func mustDeliver(t *testing.T, s *Sink, payloads ...string) {
	t.Helper()
	for i, o := range s.Deliver(t.Context(), sinktest.BatchOf(payloads...)) {
		if o.Verdict != sinks.Delivered {
			t.Fatalf("record %d (%q): %+v, want delivered", i, payloads[i], o)
		}
	}
}

func mustRetry(t *testing.T, s *Sink, reason string, payloads ...string) {
	t.Helper()
	for i, o := range s.Deliver(t.Context(), sinktest.BatchOf(payloads...)) {
		if o.Verdict != sinks.Retry || !strings.Contains(o.Reason, reason) {
			t.Fatalf("record %d: %+v, want retry for %q", i, o, reason)
		}
	}
}

func wantNames(t *testing.T, d *dirFS, want ...string) {
	t.Helper()
	if got := names(t, d); !slices.Equal(got, want) {
		t.Errorf("files = %q, want %q", got, want)
	}
}

func wantLines(t *testing.T, d *dirFS, name string, want ...string) {
	t.Helper()
	if got := content(t, d, name); strings.TrimSuffix(strings.Join(got, ""), "\n") != strings.Join(want, "\n") {
		t.Errorf("%s = %q, want %q", name, got, want)
	}
}

func TestObjectsHoldTheRecord(t *testing.T) {
	payloads := []string{"plain", "quote \" back \\ tab \t line \r\n nul \x00 del \x7f é \u2028", "\xff\xfe", "{\"a\":1}"}
	for _, base64Only := range []bool{false, true} {
		d := newDirFS(t, t.TempDir())
		s := mustNew(t, Options{FS: d, Path: "somewhere/out.jsonl", Base64: base64Only})
		mustDeliver(t, s, payloads...)
		lines := content(t, d, "out.jsonl")
		if len(lines) != len(payloads) {
			t.Fatalf("%d lines, want %d", len(lines), len(payloads))
		}
		want := sinktest.BatchOf(payloads...)
		for i, line := range lines {
			var got struct {
				ID            record.ID
				Segment       string
				Index         uint64
				Appended      time.Time
				Payload       *string
				PayloadBase64 *string `json:"payload_base64"`
			}
			if err := json.Unmarshal([]byte(line), &got); err != nil {
				t.Fatalf("line %q: %v", line, err)
			}
			r := want.Records[i]
			if got.ID != r.ID || got.Segment != r.Segment || got.Index != r.Index || !got.Appended.Equal(r.Appended) {
				t.Errorf("line %q, want record %+v", line, r.Coordinate)
			}
			asText := !base64Only && payloads[i] != "\xff\xfe"
			if asText != (got.Payload != nil) || asText == (got.PayloadBase64 != nil) {
				t.Fatalf("line %q: payload in the wrong form", line)
			}
			if asText && *got.Payload != payloads[i] {
				t.Errorf("payload = %q, want %q", *got.Payload, payloads[i])
			}
			if !asText {
				if p, err := base64.StdEncoding.DecodeString(*got.PayloadBase64); err != nil || string(p) != payloads[i] {
					t.Errorf("payload_base64 = %q, %v, want %q", p, err, payloads[i])
				}
			}
		}
	}
}

func TestLinesRejectWhatIsNoLine(t *testing.T) {
	d := newDirFS(t, t.TempDir())
	s := mustNew(t, Options{FS: d, Format: FormatLines})
	out := s.Deliver(t.Context(), sinktest.BatchOf("one", "t\nwo", "three", "f\rour"))
	want := []sinks.Verdict{sinks.Delivered, sinks.Reject, sinks.Delivered, sinks.Reject}
	if got := verdicts(out); !slices.Equal(got, want) {
		t.Errorf("verdicts = %v, want %v", got, want)
	}
	if !out[1].Isolated || out[1].Reason == "" {
		t.Errorf("outcome of a rejected record = %+v", out[1])
	}
	wantLines(t, d, "out", "one", "three")
	if got := verdicts(s.Deliver(t.Context(), sinktest.BatchOf("\n"))); !slices.Equal(got, []sinks.Verdict{sinks.Reject}) {
		t.Errorf("verdicts of a batch without a line = %v", got)
	}
}

func TestFirstDeliveryFollowsTheSyncOfFileAndFolder(t *testing.T) {
	d := newDirFS(t, t.TempDir())
	s := mustNew(t, Options{FS: d, Format: FormatLines})
	mustDeliver(t, s, "a")
	want := []string{
		"open out", "create out", "syncdir .", "sync out", "syncdir .",
		"write out", "sync out", "openread out",
	}
	if got := d.takeLog(); !slices.Equal(got, want) {
		t.Errorf("operations = %q, want %q", got, want)
	}
}

func TestTornLastLineIsMovedAside(t *testing.T) {
	long := strings.Repeat("x", 3*copyBytes)
	for name, tc := range map[string]struct{ before, keep, torn string }{
		"no file end":       {"one\ntw", "one\n", "tw"},
		"only a torn line":  {"tw", "", "tw"},
		"whole":             {"one\n", "one\n", ""},
		"empty":             {"", "", ""},
		"zeros":             {"one\n\x00\x00\x00", "one\n", "\x00\x00\x00"},
		"long torn line":    {"one\n" + long, "one\n", long},
		"line at the block": {long[:copyBytes-1] + "\n" + long[:copyBytes], long[:copyBytes-1] + "\n", long[:copyBytes]},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDirFS(t, t.TempDir())
			if err := d.root.WriteFile("out", []byte(tc.before), 0o600); err != nil {
				t.Fatal(err)
			}
			mustDeliver(t, mustNew(t, Options{FS: d, Format: FormatLines}), "new")
			if got, _ := d.root.ReadFile("out"); string(got) != tc.keep+"new\n" {
				t.Errorf("file = %d bytes, want %d", len(got), len(tc.keep)+4)
			}
			got, err := d.root.ReadFile("out.torn.1")
			if tc.torn == "" && !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("a torn file was made: %q, %v", got, err)
			}
			if string(got) != tc.torn {
				t.Errorf("torn = %d bytes, want %d", len(got), len(tc.torn))
			}
		})
	}
}

func TestRepairKilledAtEachStep(t *testing.T) {
	killed := errors.New("killed")
	for k := 0; ; k++ {
		d := newDirFS(t, t.TempDir())
		if err := d.root.WriteFile("out", []byte("one\ntw"), 0o600); err != nil {
			t.Fatal(err)
		}
		n, hit := 0, false
		d.setFail(func(string) error {
			if n++; n > k {
				hit = true
				return killed
			}
			return nil
		})
		out := output{fs: d, name: "out"}
		err := out.open()
		if hit != (err != nil) {
			t.Fatalf("operation %d failed, open = %v", k, err)
		}
		if err := out.close(); err != nil {
			t.Fatal(err)
		}
		d.setFail(nil)
		mustDeliver(t, mustNew(t, Options{FS: d, Format: FormatLines}), "new")
		wantLines(t, d, "out", "one", "new")
		torn := ""
		for _, name := range names(t, d) {
			if strings.HasPrefix(name, "out.torn.") {
				torn += strings.Join(content(t, d, name), "") + "\n"
			}
		}
		if !strings.Contains(torn, "tw\n") {
			t.Errorf("killed at operation %d: the torn line is nowhere: %q", k, torn)
		}
		if !hit {
			return
		}
	}
}

func TestRotationBySize(t *testing.T) {
	d := newDirFS(t, t.TempDir())
	if err := d.root.WriteFile("out.7", []byte("old\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := mustNew(t, Options{FS: d, Format: FormatLines, RotateBytes: 8})
	for _, p := range []string{"aaa", "bbb", "ccc", "a line over the limit", "ddd", "eee", "fff"} {
		mustDeliver(t, s, p)
	}
	wantNames(t, d, "out", "out.10", "out.11", "out.7", "out.8", "out.9")
	if got := content(t, d, "out.8"); len(got) != 2 {
		t.Errorf("out.8 = %q, want two lines", got)
	}
	wantLines(t, d, "out.9", "ccc")
	wantLines(t, d, "out.10", "a line over the limit")
	wantLines(t, d, "out.11", "ddd", "eee")
	wantLines(t, d, "out", "fff")
}

func TestRotationByAge(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d := newDirFS(t, dir)
		s := mustNew(t, Options{FS: d, Format: FormatLines, RotateAge: time.Hour})
		time.Sleep(3 * time.Hour) // an empty file does not age
		mustDeliver(t, s, "one")
		time.Sleep(time.Hour - time.Nanosecond)
		synctest.Wait()
		wantNames(t, d, "out")
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		wantNames(t, d, "out.1")
		mustDeliver(t, s, "two")
		time.Sleep(time.Hour)
		synctest.Wait()
		wantNames(t, d, "out.1", "out.2")
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestFailedWriteOrSyncEndsTheFile(t *testing.T) {
	for name, tc := range map[string]struct {
		op  string
		err error
	}{
		"write":     {"write out", syscall.EIO},
		"disk full": {"write out", syscall.ENOSPC},
		"sync":      {"sync out", syscall.EIO},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDirFS(t, t.TempDir())
			s := mustNew(t, Options{FS: d, Format: FormatLines})
			mustDeliver(t, s, "one")
			failed := false
			d.setFail(func(op string) error {
				if op == tc.op && !failed {
					failed = true
					return tc.err
				}
				return nil
			})
			mustRetry(t, s, tc.err.Error(), "two", "three")
			wantLines(t, d, "out.1", "one")
			mustDeliver(t, s, "two", "three")
			wantNames(t, d, "out", "out.1")
			wantLines(t, d, "out.1", "one")
			wantLines(t, d, "out", "two", "three")
		})
	}
}

func TestFailedFileIsNeverAppendedEvenIfItCannotBePutAside(t *testing.T) {
	d := newDirFS(t, t.TempDir())
	s := mustNew(t, Options{FS: d, Format: FormatLines})
	mustDeliver(t, s, "one")
	d.takeLog()
	d.setFail(func(op string) error {
		if op == "sync out" || strings.HasPrefix(op, "rename ") || strings.HasPrefix(op, "truncate ") {
			return syscall.EIO
		}
		return nil
	})
	mustRetry(t, s, "input/output", "two")
	d.setFail(func(op string) error {
		if strings.HasPrefix(op, "rename ") {
			return syscall.EROFS
		}
		return nil
	})
	d.takeLog()
	mustRetry(t, s, "read-only", "two")
	if log := d.takeLog(); slices.Contains(log, "write out") || slices.Contains(log, "sync out") {
		t.Errorf("the failed file was touched: %q", log)
	}
	d.setFail(nil)
	mustDeliver(t, s, "two")
	wantLines(t, d, "out", "two")
	if got := content(t, d, "out.1"); got[0] != "one\n" {
		t.Errorf("out.1 = %q, want one first", got)
	}
}

func TestFullDiskLeavesNoTrailOfFiles(t *testing.T) {
	d := newDirFS(t, t.TempDir())
	s := mustNew(t, Options{FS: d, Format: FormatLines})
	d.setFail(func(op string) error {
		if strings.HasPrefix(op, "write ") {
			return syscall.ENOSPC
		}
		return nil
	})
	for range 5 {
		mustRetry(t, s, "no space", "one")
	}
	d.setFail(nil)
	mustDeliver(t, s, "one")
	wantNames(t, d, "out")
	wantLines(t, d, "out", "one")
}

// Whatever operation fails, nothing is said to be delivered that is not in a
// file, and the sink goes on once the fault has passed.
func TestEachOperationFails(t *testing.T) {
	for k := 0; ; k++ {
		d := newDirFS(t, t.TempDir())
		n, hit := 0, false
		d.setFail(func(string) error {
			n++
			if n == k+1 {
				hit = true
				return syscall.EIO
			}
			return nil
		})
		s := mustNew(t, Options{FS: d, Format: FormatLines, RotateBytes: 12})
		delivered := map[string]bool{}
		for i := range 6 {
			p := "line" + strconv.Itoa(i)
			out := s.Deliver(t.Context(), sinktest.BatchOf(p))
			delivered[p] = out[0].Verdict == sinks.Delivered
			if !delivered[p] && out[0].Verdict != sinks.Retry {
				t.Fatalf("operation %d: %+v", k, out[0])
			}
		}
		d.setFail(nil)
		mustDeliver(t, s, "last")
		all := map[string]bool{}
		for _, name := range names(t, d) {
			for _, line := range content(t, d, name) {
				all[strings.TrimSuffix(line, "\n")] = true
			}
		}
		for p, ok := range delivered {
			if ok && !all[p] {
				t.Errorf("operation %d: %s was delivered and is in no file", k, p)
			}
		}
		if !hit {
			return
		}
	}
}

func TestFileChangedBySomeoneElse(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, d *dirFS) error{
		"removed":  func(_ *testing.T, d *dirFS) error { return d.root.Remove("out") },
		"moved":    func(_ *testing.T, d *dirFS) error { return d.root.Rename("out", "moved") },
		"cut":      func(_ *testing.T, d *dirFS) error { return d.root.WriteFile("out", nil, 0o600) },
		"appended": func(_ *testing.T, d *dirFS) error { return d.root.WriteFile("out", []byte("one\nmine"), 0o600) },
		"replaced": func(_ *testing.T, d *dirFS) error {
			return errors.Join(d.root.Remove("out"), d.root.WriteFile("out", []byte("mine\n"), 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDirFS(t, t.TempDir())
			s := mustNew(t, Options{FS: d, Format: FormatLines})
			mustDeliver(t, s, "one")
			if err := change(t, d); err != nil {
				t.Fatal(err)
			}
			mustRetry(t, s, errChanged.Error(), "two")
			mustDeliver(t, s, "two")
			wantLines(t, d, "out", "two")
			if name == "replaced" {
				wantLines(t, d, "out.1", "mine")
			}
			if name == "appended" {
				wantLines(t, d, "out.1", "one", "mine")
			}
		})
	}
}

func TestSecondSinkOnTheFileIsRefused(t *testing.T) {
	d := newDirFS(t, t.TempDir())
	first := mustNew(t, Options{FS: d})
	if _, err := New(Options{FS: d, Path: "out"}); !errors.Is(err, vfs.ErrLocked) {
		t.Errorf("New = %v, want %v", err, vfs.ErrLocked)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	mustNew(t, Options{FS: d})
}

func TestNewRefusesWhatIsNoFile(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "target"), nil, 0o600), os.Symlink("target", filepath.Join(dir, "link")),
		os.Mkdir(filepath.Join(dir, "folder"), 0o700)); err != nil {
		t.Fatal(err)
	}
	d := newDirFS(t, dir)
	for _, path := range []string{"link", "folder"} {
		if _, err := New(Options{FS: d, Path: path}); !errors.Is(err, vfs.ErrNotRegular) {
			t.Errorf("New(%q) = %v, want %v", path, err, vfs.ErrNotRegular)
		}
	}
}

func TestNewNamesEveryFault(t *testing.T) {
	_, err := New(Options{Format: "xml", RotateBytes: -1, RotateAge: -1})
	for _, want := range []string{"no file system", "sink.file.path", "sink.file.format", "sink.file.rotate_bytes", "sink.file.rotate_age"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New = %v, want a word of %q", err, want)
		}
	}
	if _, err := New(Options{FS: newDirFS(t, t.TempDir()), Path: "x", Format: FormatLines, Base64: true}); err == nil {
		t.Error("base64 with lines was accepted")
	}
}

func TestNewLeavesAFaultThatMayPassToDeliver(t *testing.T) {
	d := newDirFS(t, t.TempDir())
	d.setFail(func(string) error { return syscall.ENOSPC })
	s := mustNew(t, Options{FS: d, Format: FormatLines})
	mustRetry(t, s, "no space", "one")
	d.setFail(nil)
	mustDeliver(t, s, "one")
}

func TestHungDiskHoldsNeitherDeliverNorClose(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d := newDirFS(t, dir)
		s := mustNew(t, Options{FS: d})
		release := make(chan struct{})
		d.setFail(func(op string) error {
			if op == "sync out" {
				<-release
			}
			return nil
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		out := s.Deliver(ctx, sinktest.BatchOf("one"))
		if out[0].Verdict != sinks.Retry || ctx.Err() == nil {
			t.Errorf("Deliver = %+v before the end of ctx (%v)", out[0], ctx.Err())
		}
		if err := s.Close(); err == nil {
			t.Error("Close of a hung disk returned nil")
		}
		close(release)
		if err := s.Close(); err != nil {
			t.Errorf("Close once the disk answers: %v", err)
		}
	})
}
