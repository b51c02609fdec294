package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	weir "github.com/weir-agent/weir/clients/go"
)

// weirOn runs a command of the binary against the daemon on dir and returns what it prints.
func weirOn(t *testing.T, dir string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary, args...)
	cmd.Env = append(os.Environ(), "WEIR_DATA_DIR="+dir)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// adminClient speaks to the admin socket of the daemon on dir.
func adminClient(dir string) *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(dir, "admin.sock"))
	}}}
}

type shownStatus struct {
	Ready    bool     `json:"ready"`
	Warnings []string `json:"warnings"`
	NotReady []string `json:"not_ready"`
	Paused   bool     `json:"paused"`
	Backlog  int64    `json:"backlog_records"`
	Shards   []struct {
		Segments []struct {
			State string `json:"state"`
		} `json:"segment_map"`
		Drain struct {
			State     string `json:"state"`
			Delivered uint64 `json:"delivered_records"`
			LastError string `json:"last_error"`
		} `json:"drain"`
	} `json:"shards"`
	Dead struct {
		Records int64 `json:"records"`
	} `json:"dead_letters"`
}

func statusOf(t *testing.T, dir string) (st shownStatus) {
	t.Helper()
	resp, err := adminClient(dir).Get("http://weir/api/v1/status")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&st); err != nil {
		t.Fatal(err)
	}
	return st
}

// await asks for the status until it is as wanted.
func await(t *testing.T, dir string, wanted func(shownStatus) bool) shownStatus {
	t.Helper()
	for {
		if st := statusOf(t, dir); wanted(st) {
			return st
		}
		if t.Context().Err() != nil {
			t.Fatal("the status never came")
		}
	}
}

func pushText(t *testing.T, dir, text string) {
	t.Helper()
	c := weir.New(weir.Options{Path: filepath.Join(dir, "weir.sock")})
	defer c.Close()
	if err := c.Push(t.Context(), weir.Durable, []byte(text)); err != nil {
		t.Fatal(err)
	}
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// counted is an endpoint that counts the bodies it got, and answers with status while it is set.
type counted struct {
	*httptest.Server
	got    atomic.Int64
	status atomic.Int64
}

func newCounted(t *testing.T) *counted {
	c := &counted{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if s := c.status.Load(); s != 0 {
			w.WriteHeader(int(s))
			return
		}
		c.got.Add(1)
	}))
	t.Cleanup(c.Close)
	return c
}

// TestReload: a reload turns the delivery to another endpoint without losing or skipping a record, names what needs a
// restart, and with a faulty file changes nothing. SIGHUP does the same.
func TestReload(t *testing.T) {
	old, next := newCounted(t), newCounted(t)
	old.status.Store(http.StatusUnauthorized)
	base := t.TempDir()
	dir, file := filepath.Join(base, "data"), filepath.Join(base, "weir.toml")
	text := func(url, level, more string) string {
		return fmt.Sprintf("[sink]\ntype = \"http\"\n[sink.http]\nurl = %q\n[log]\nlevel = %q\n%s", url, level, more)
	}
	writeFile(t, file, text(old.URL, "info", ""))
	p := startWeir(t, dir, "--config", file)
	pushText(t, dir, "one")
	st := await(t, dir, func(s shownStatus) bool { return s.Shards[0].Drain.State == "held" })
	if !st.Ready || len(st.Warnings) != 1 || !strings.Contains(st.Warnings[0], "weir reload") || !strings.Contains(st.Warnings[0], "401") {
		t.Errorf("held: ready %v, warnings %q: want one that says 401 and what to do", st.Ready, st.Warnings)
	}

	writeFile(t, file, text(next.URL, "loud", "[drain]\nlingr = 1\n"))
	out, err := weirOn(t, dir, "reload")
	if err == nil || !strings.Contains(out, file+":6: log.level") || !strings.Contains(out, file+":8: drain.lingr") || !strings.Contains(out, "nothing was changed") {
		t.Errorf("reload of a faulty file: %v\n%s", err, out)
	}
	writeFile(t, file, text(next.URL, "debug", "[wab]\nshards = 2\n"))
	out, err = weirOn(t, dir, "reload")
	if want := "changed: sink.http.url, log.level\nchanged in the configuration, needs a restart: wab.shards\n"; err != nil || out != want {
		t.Errorf("reload: %v, %q, want %q", err, out, want)
	}
	pushText(t, dir, "two")
	await(t, dir, func(s shownStatus) bool { return s.Backlog == 0 && s.Shards[0].Drain.Delivered == 2 })
	if next.got.Load() != 2 || old.got.Load() != 0 {
		t.Errorf("the new endpoint got %d records, the old one %d, want 2 and 0", next.got.Load(), old.got.Load())
	}
	if !strings.Contains(p.log.String(), `msg="delivery works again" shard=0`) {
		t.Errorf("the log does not tell of the end of the trouble:\n%s", p.log)
	}
	if !strings.Contains(p.log.String(), "level=DEBUG") {
		t.Errorf("the log level did not change:\n%s", p.log)
	}

	third := newCounted(t)
	writeFile(t, file, text(third.URL, "info", ""))
	if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	for n := 2; third.got.Load() == 0; n++ { // what is pushed before the signal was heard goes to the second one
		pushText(t, dir, "three")
		await(t, dir, func(s shownStatus) bool { return s.Backlog == 0 })
	}
	if st := statusOf(t, dir); st.Shards[0].Drain.Delivered != uint64(next.got.Load()+third.got.Load()) {
		t.Errorf("%d records counted as delivered, the endpoints got %d and %d", st.Shards[0].Drain.Delivered, next.got.Load(), third.got.Load())
	}
	if code := p.stop(t); code != 0 {
		t.Errorf("exit status %d\n%s", code, p.log)
	}
}

// TestReloadKeepsThePause: an operator's pause lasts over a reload.
func TestReloadKeepsThePause(t *testing.T) {
	end := newCounted(t)
	base := t.TempDir()
	dir, file := filepath.Join(base, "data"), filepath.Join(base, "weir.toml")
	writeFile(t, file, "")
	startWeir(t, dir, "--config", file, "--sink", "http", "--sink-url", end.URL)
	if out, err := weirOn(t, dir, "drain", "pause"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	writeFile(t, file, "[drain]\nlinger = \"1ms\"\n")
	if out, err := weirOn(t, dir, "reload"); err != nil || !strings.Contains(out, "changed: drain.linger") {
		t.Fatalf("%v\n%s", err, out)
	}
	pushText(t, dir, "kept")
	if st := statusOf(t, dir); !st.Paused || st.Backlog != 1 || end.got.Load() != 0 {
		t.Errorf("after the reload: paused %v, backlog %d, delivered %d", st.Paused, st.Backlog, end.got.Load())
	}
	if out, err := weirOn(t, dir, "drain", "resume"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	await(t, dir, func(s shownStatus) bool { return s.Backlog == 0 })
}

// startOpen is startWeir with the status on TCP; it returns its address.
func startOpen(t *testing.T, dir string, args ...string) (*process, string) {
	t.Helper()
	p := startWeir(t, dir, append([]string{"--admin", "127.0.0.1:0"}, args...)...)
	for {
		if _, rest, ok := strings.Cut(p.log.String(), "page=http://"); ok {
			if addr, _, ok := strings.Cut(rest, "/"); ok {
				return p, addr
			}
		}
		if t.Context().Err() != nil {
			t.Fatalf("no address in the log:\n%s", p.log)
		}
	}
}

// TestOnlyTheSocketChangesAnything: what changes something is to be found on the admin socket alone, which others cannot open; what
// reads is on both, and a page on the web cannot get at it.
func TestOnlyTheSocketChangesAnything(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	_, addr := startOpen(t, dir)
	local := adminClient(dir)
	for _, path := range []string{"drain/pause", "drain/resume", "segment/seal", "reload", "deadletter/requeue", "deadletter/drop"} {
		for _, open := range []bool{true, false} {
			client, url := local, "http://weir/api/v1/"+path
			if open {
				client, url = http.DefaultClient, "http://"+addr+"/api/v1/"+path
			}
			resp, err := client.Post(url, "application/json", strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if got, want := resp.StatusCode == http.StatusOK, !open; got != want {
				t.Errorf("POST %s, over TCP %v: %s", path, open, resp.Status)
			}
		}
	}
	for path, host := range map[string]string{"/": "", "/healthz": "", "/readyz": "localhost", "/api/v1/status": "", "/api/v1/deadletters": "", "/metrics": "[::1]:99", "/debug/pprof/": "none", "/ ": "evil.example"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+strings.TrimSpace(path), nil)
		if err != nil {
			t.Fatal(err)
		}
		want := http.StatusOK
		switch host {
		case "none":
			want = http.StatusNotFound
		case "evil.example":
			want = http.StatusMisdirectedRequest
			fallthrough
		case "localhost", "[::1]:99":
			req.Host = host
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("GET %s as %q: %s, want %d", path, req.Host, resp.Status, want)
		}
	}
	info, err := os.Lstat(filepath.Join(dir, "admin.sock"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("admin socket: %v, %v", info.Mode(), err)
	}
}

// TestSealAndMap: seal ends the active segment, and the map shows it.
func TestSealAndMap(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	startWeir(t, dir)
	if out, err := weirOn(t, dir, "drain", "pause"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	pushText(t, dir, "x")
	if out, err := weirOn(t, dir, "segment", "seal"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	st := await(t, dir, func(s shownStatus) bool { return s.Shards[0].Segments[0].State == "sealed" })
	if n := len(st.Shards[0].Segments); n != 2 || st.Shards[0].Segments[1].State != "active" {
		t.Errorf("segments %+v", st.Shards[0].Segments)
	}
}

// TestStatusScreen: the screen says what an operator asks first.
func TestStatusScreen(t *testing.T) {
	end := newCounted(t)
	end.status.Store(http.StatusBadRequest)
	dir := filepath.Join(t.TempDir(), "data")
	startWeir(t, dir, "--sink", "http", "--sink-url", end.URL+"?token=s3cret")
	pushText(t, dir, "refused")
	await(t, dir, func(s shownStatus) bool { return s.Dead.Records == 1 })
	out, err := weirOn(t, dir, "status")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, part := range []string{
		"accepting pushes", "1 records were refused", "weir deadletter list", "backlog       0 records", "dead letters  1,", "quarantine    0 copies",
		"file system", "SHARD", "FSYNC P50", "1 records acked",
	} {
		if !strings.Contains(out, part) {
			t.Errorf("the screen does not say %q:\n%s", part, out)
		}
	}
	if strings.Contains(out, "s3cret") {
		t.Errorf("the screen shows a secret:\n%s", out)
	}
	if n := strings.Count(out, "\n"); n > 24 {
		t.Errorf("%d lines do not fit one screen", n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	watch := exec.CommandContext(ctx, binary, "status", "--watch", "--interval", "1ms", "--admin-socket", filepath.Join(dir, "admin.sock"))
	watch.Cancel = func() error { return watch.Process.Signal(os.Interrupt) }
	pipe, err := watch.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := watch.Start(); err != nil {
		t.Fatal(err)
	}
	var seen bytes.Buffer
	for buf := make([]byte, 4096); strings.Count(seen.String(), "accepting pushes") < 3; {
		n, err := pipe.Read(buf)
		if err != nil {
			t.Fatalf("--watch ended: %v\n%s", err, &seen)
		}
		seen.Write(buf[:n])
	}
	cancel()
	_, _ = io.Copy(io.Discard, pipe)
	_ = watch.Wait() // the context's error
	if code := watch.ProcessState.ExitCode(); code != 0 {
		t.Errorf("--watch ended with status %d", code)
	}
}

// TestServiceManagerIsTold: a service manager hears of the start, of life, and of the stop, in this order.
func TestServiceManagerIsTold(t *testing.T) {
	base := t.TempDir()
	path := filepath.Join(base, "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", "30000")
	p := startWeir(t, filepath.Join(base, "data"))
	var heard []string
	hear := func(until string) {
		buf := make([]byte, 100)
		for {
			n, err := conn.Read(buf)
			if err != nil {
				t.Fatal(err)
			}
			if text := string(buf[:n]); !slices.Contains(heard, text) {
				heard = append(heard, text)
				if text == until {
					return
				}
			}
		}
	}
	hear("READY=1")
	hear("WATCHDOG=1")
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	hear("STOPPING=1")
	<-p.ended
	if want := []string{"READY=1", "WATCHDOG=1", "STOPPING=1"}; !slices.Equal(heard, want) {
		t.Errorf("heard %q, want %q", heard, want)
	}
}

// TestConfigCommands: init writes a file that check finds good and that is never replaced; show tells where values come from.
func TestConfigCommands(t *testing.T) {
	base := t.TempDir()
	file := filepath.Join(base, "weir.toml")
	if out, err := weirOn(t, base, "config", "init", file); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if out, err := weirOn(t, base, "config", "check", "--config", file); err != nil || out != "the configuration is good\n" {
		t.Errorf("check: %v\n%s", err, out)
	}
	if out, err := weirOn(t, base, "config", "init", file); err == nil || !strings.Contains(out, "exists and is left alone") {
		t.Errorf("init over a file: %v\n%s", err, out)
	}
	out, err := weirOn(t, base, "config", "show", "--config", file, "--log-level", "warn")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	fields := map[string][]string{}
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		fields[f[0]] = f[1:]
	}
	if got := fields["log.level"]; !slices.Equal(got, []string{`"warn"`, "--log-level"}) {
		t.Errorf("log.level: %q", got)
	}
	if got := fields["wab.dir"]; !slices.Equal(got, []string{fmt.Sprintf("%q", base), "WEIR_DATA_DIR"}) {
		t.Errorf("wab.dir: %q", got)
	}
	if entries, err := os.ReadDir(base); err != nil || len(entries) != 1 {
		t.Errorf("the commands left %v, %v", entries, err)
	}
}

// TestFullLogIsTold: while the cap refuses pushes, readiness, status and the producer's message say so and say what to do; when the
// endpoint is back, weir goes on by itself.
func TestFullLogIsTold(t *testing.T) {
	end := newCounted(t)
	end.status.Store(http.StatusServiceUnavailable)
	t.Setenv("WEIR_WAB_MAX_BYTES", "1MiB")
	t.Setenv("WEIR_WAB_SEGMENT_BYTES", "128KiB")
	t.Setenv("WEIR_DRAIN_BACKOFF_MAX", "200ms")
	dir := filepath.Join(t.TempDir(), "data")
	_, addr := startOpen(t, dir, "--sink", "http", "--sink-url", end.URL)
	push := func() (string, error) {
		cmd := exec.CommandContext(t.Context(), binary, "push", "--socket", filepath.Join(dir, "weir.sock"))
		cmd.Stdin = strings.NewReader(strings.Repeat(strings.Repeat("x", 1000)+"\n", 2000))
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := push(); err == nil || !strings.Contains(out, "weir status says which") {
		t.Errorf("push into a full log: %v\n%s", err, out)
	}
	ready := func() (int, string) {
		resp, err := http.Get("http://" + addr + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(text)
	}
	if code, text := ready(); code != http.StatusServiceUnavailable || !strings.Contains(text, "wab.max_bytes") || !strings.Contains(text, "records were refused in the last 10s") {
		t.Errorf("/readyz of a full log: %d\n%s", code, text)
	}
	if out, err := weirOn(t, dir, "status"); err != nil || !strings.Contains(out, "NOT READY") {
		t.Errorf("status of a full log: %v\n%s", err, out)
	}
	end.status.Store(0)
	await(t, dir, func(s shownStatus) bool { return s.Backlog == 0 && s.Ready })
	if code, text := ready(); code != http.StatusOK {
		t.Errorf("/readyz after the recovery: %d\n%s", code, text)
	}
	pushText(t, dir, "goes on")
}
