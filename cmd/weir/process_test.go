package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	weir "github.com/weir-agent/weir/clients/go"
	"github.com/weir-agent/weir/conformance"
)

// binary is the weir under test, built once by TestMain.
var binary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "weir-test-")
	if err == nil {
		binary = filepath.Join(dir, "weir")
		var out []byte
		if out, err = exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
			err = fmt.Errorf("%w\n%s", err, out)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// process is a weir run that a test started.
type process struct {
	cmd   *exec.Cmd
	log   *lockedBuffer
	ended chan struct{} // closed once it was waited for
}

type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// startWeir runs the daemon and returns when its socket answers.
func startWeir(t *testing.T, dir string, args ...string) *process {
	t.Helper()
	p := &process{log: &lockedBuffer{}, ended: make(chan struct{})}
	p.cmd = exec.Command(binary, append([]string{"run", "--data-dir", dir, "--admin", ""}, args...)...)
	p.cmd.Stderr = p.log
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait() // its state tells
		close(p.ended)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it may have ended already
		<-p.ended
	})
	c := weir.New(weir.Options{Path: filepath.Join(dir, "weir.sock")})
	defer c.Close()
	for {
		err := c.Health(t.Context())
		if err == nil {
			return p
		}
		select {
		case <-p.ended:
			t.Fatalf("the daemon ended: %v\n%s", err, p.log)
		default:
		}
	}
}

func (p *process) kill(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-p.ended
}

// stop ends the daemon by SIGTERM and returns its exit status.
func (p *process) stop(t *testing.T) int {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-p.ended
	return p.cmd.ProcessState.ExitCode()
}

// delivered reads the file sink's payloads: how often each came.
func delivered(t *testing.T, dir string) map[string]int {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, "delivered.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	seen := map[string]int{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var line struct {
			ID      string `json:"id"`
			Payload string `json:"payload"`
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil || !strings.HasPrefix(line.ID, "sha256:") {
			t.Fatalf("line %q: %v", lines.Text(), err)
		}
		seen[line.Payload]++
	}
	return seen
}

// acks is the producers' side of the ledger.
type acks struct {
	mu    sync.Mutex
	acked map[string]bool
	next  int
}

func (a *acks) payload() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.next++
	return fmt.Sprintf("record %d", a.next)
}

func (a *acks) book(payload string, out weir.Outcome) {
	if out.State == weir.Acked {
		a.mu.Lock()
		a.acked[payload] = true
		a.mu.Unlock()
	}
}

// produce pushes until ctx ends: batches, and one at a time in both tiers.
func (a *acks) produce(ctx context.Context, socket string) {
	p := weir.NewProducer(weir.ProducerOptions{Path: socket, BatchRecords: 50, Linger: time.Millisecond})
	c := weir.New(weir.Options{Path: socket})
	defer c.Close()
	for i := 0; ctx.Err() == nil; i++ {
		payload := a.payload()
		switch i % 10 {
		case 0:
			if c.Push(ctx, weir.Durable, []byte(payload)) == nil {
				a.book(payload, weir.Outcome{State: weir.Acked})
			}
		case 1:
			if c.Push(ctx, weir.Buffered, []byte(payload)) == nil {
				a.book(payload, weir.Outcome{State: weir.Acked})
			}
		default:
			_ = p.Send(ctx, []byte(payload), func(o weir.Outcome) { a.book(payload, o) }) // an error is no ack
		}
	}
	_ = p.Close(ctx) // what has no answer is unknown
}

const kills = 200

// TestKilledAtRandomMoments kills the built binary again and again under load: whatever was acked is delivered in the end.
func TestKilledAtRandomMoments(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	dir := filepath.Join(t.TempDir(), "data")
	a := &acks{acked: map[string]bool{}}
	for range kills {
		p := startWeir(t, dir)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() { a.produce(ctx, filepath.Join(dir, "weir.sock")) })
		}
		moment := time.NewTimer(time.Duration(rng.IntN(40_000)) * time.Microsecond)
		<-moment.C
		p.kill(t)
		cancel()
		wg.Wait()
	}
	p := startWeir(t, dir)
	awaitEmpty(t, dir)
	if code := p.stop(t); code != 0 {
		t.Errorf("exit status %d\n%s", code, p.log)
	}
	seen := delivered(t, dir)
	lost, twice := 0, 0
	for payload := range a.acked {
		if seen[payload] == 0 {
			lost++
		}
	}
	for _, n := range seen {
		if n > 1 {
			twice++
		}
	}
	t.Logf("%d kills, %d pushed, %d acked, %d delivered, %d of them more than once, %d lost", kills, a.next, len(a.acked), len(seen), twice, lost)
	if lost > 0 {
		t.Errorf("%d acked records are lost", lost)
	}
	if len(a.acked) < 10*kills {
		t.Errorf("only %d records were acked: the test did too little", len(a.acked))
	}
}

// awaitEmpty waits until the daemon on dir has delivered all it has.
func awaitEmpty(t *testing.T, dir string) {
	t.Helper()
	for t.Context().Err() == nil {
		out, err := exec.Command(binary, "status", "--json", "--admin-socket", filepath.Join(dir, "admin.sock")).Output()
		if err != nil {
			t.Fatal(err)
		}
		var st struct {
			Backlog int64 `json:"backlog_records"`
		}
		if err := json.Unmarshal(out, &st); err != nil {
			t.Fatal(err)
		}
		if st.Backlog == 0 {
			return
		}
	}
}

func TestDeliveredWhileRunning(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	p := startWeir(t, dir)
	cmd := exec.Command(binary, "push", "--socket", filepath.Join(dir, "weir.sock"))
	cmd.Stdin = strings.NewReader("hello\nworld\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("push: %v\n%s", err, out)
	}
	awaitEmpty(t, dir)
	seen := delivered(t, dir)
	if seen["hello"] != 1 || seen["world"] != 1 || len(seen) != 2 {
		t.Errorf("delivered %v, want hello and world", seen)
	}
	info, err := os.Stat(filepath.Join(dir, "weir.sock"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("socket: %v, %v", info.Mode(), err)
	}
	for _, part := range []string{"socket=" + dir, "dir=" + dir, "weir push --socket"} {
		if !strings.Contains(p.log.String(), part) {
			t.Errorf("the log at the start does not say %q:\n%s", part, p.log)
		}
	}
	if code := p.stop(t); code != 0 {
		t.Errorf("exit status %d\n%s", code, p.log)
	}
}

// TestStopsWhileTheSinkHangs: SIGTERM answers what is in flight and ends with status 0 though the endpoint never answers.
func TestStopsWhileTheSinkHangs(t *testing.T) {
	release := make(chan struct{})
	asked := make(chan struct{}, 1000)
	endpoint := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		asked <- struct{}{}
		<-release
	}))
	defer endpoint.Close()
	defer close(release)
	dir := filepath.Join(t.TempDir(), "data")
	p := startWeir(t, dir, "--sink", "http", "--sink-url", endpoint.URL)
	c := weir.New(weir.Options{Path: filepath.Join(dir, "weir.sock")})
	defer c.Close()
	for range 20 {
		if err := c.Push(t.Context(), weir.Durable, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	<-asked
	if code := p.stop(t); code != 0 {
		t.Errorf("exit status %d\n%s", code, p.log)
	}
	if _, err := os.Lstat(filepath.Join(dir, "weir.sock")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}
}

// TestRefusesToStart: one clear line, the right status, and nothing touched.
func TestRefusesToStart(t *testing.T) {
	base := t.TempDir()
	running := filepath.Join(base, "running")
	startWeir(t, running)
	regular := filepath.Join(base, "regular")
	if err := os.WriteFile(regular, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	badFile := filepath.Join(base, "bad.toml")
	if err := os.WriteFile(badFile, []byte("[drain]\nlingr = \"1s\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	fresh := filepath.Join(base, "fresh")
	for _, tc := range []struct {
		name string
		args []string
		code int
		says string
	}{
		{"second daemon on the data", []string{"--data-dir", running, "--socket", filepath.Join(base, "other.sock")}, 1, "listening there already"},
		{"live socket", []string{"--data-dir", fresh, "--socket", filepath.Join(running, "weir.sock")}, 1, "listening there already"},
		{"regular file at the socket", []string{"--data-dir", fresh, "--socket", regular}, 1, "not a socket"},
		{"missing parent", []string{"--data-dir", filepath.Join(base, "no", "such")}, 1, "no such file"},
		{"data folder is a file", []string{"--data-dir", regular}, 1, "regular"},
		{"unknown flag", []string{"--bogus"}, 2, "--bogus"},
		{"an argument", []string{"extra"}, 2, "extra"},
		{"unknown sink", []string{"--data-dir", fresh, "--sink", "nowhere"}, 2, "sink.type"},
		{"bad configuration", []string{"--config", badFile}, 2, badFile + ":2: drain.lingr"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cmd := exec.Command(binary, append([]string{"run", "--admin", ""}, tc.args...)...)
			cmd.Dir = base
			out, err := cmd.CombinedOutput()
			if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != tc.code {
				t.Errorf("%v, want exit status %d\n%s", err, tc.code, out)
			}
			if !strings.Contains(string(out), tc.says) || strings.Count(string(out), "\n") != 1 {
				t.Errorf("says %q, want one line with %q", out, tc.says)
			}
			if _, err := os.Lstat(fresh); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the data folder was made: %v", err)
			}
		})
	}
	if text, err := os.ReadFile(regular); string(text) != "precious" {
		t.Errorf("the regular file holds %q, %v", text, err)
	}
}

// TestDaemonConformance: the built daemon does with every vector what the vectors say.
func TestDaemonConformance(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	startWeir(t, dir, "--sink", "discard")
	report, err := conformance.RunDaemon(t.Context(), filepath.Join(dir, "weir.sock"))
	if err != nil {
		t.Fatal(err)
	}
	if report.Passed < 50 || len(report.Failures) > 0 {
		t.Errorf("%d passed, failures: %v", report.Passed, report.Failures)
	}
}

// TestReadmeFrame: the frame in the README is the specification's worked example, byte for byte.
func TestReadmeFrame(t *testing.T) {
	cmd := exec.Command(binary, "push", "--hex")
	cmd.Stdin = strings.NewReader("hello")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(readme), string(out)) {
		t.Errorf("the README does not hold\n%s", out)
	}
	const worked = "57 45 49 52 01 01 01 00  05 00 00 00 66 ad 7d 3c  68 65 6c 6c 6f 86 a6 10  36"
	var digits []string
	for line := range strings.Lines(string(out)) {
		digits = append(digits, strings.Fields(line[10:58])...)
	}
	if got := strings.Join(digits, " "); got != strings.Join(strings.Fields(worked), " ") {
		t.Errorf("the frame is %s, want %s", got, worked)
	}
}
