// Package proc starts the daemon that is measured and reads what it uses from /proc.
package proc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Daemon is a running weir.
type Daemon struct {
	Socket string
	Dir    string
	cmd    *exec.Cmd
	exited chan error
}

const (
	startTimeout = 30 * time.Second
	startPoll    = 5 * time.Millisecond
)

// Start runs the binary on a data folder and waits until its socket takes connections.
func Start(ctx context.Context, binary, dir string, args ...string) (*Daemon, error) {
	return StartUnder(ctx, nil, binary, dir, args...)
}

// StartUnder is Start by way of another program, whose command line is prefix.
func StartUnder(ctx context.Context, prefix []string, binary, dir string, args ...string) (*Daemon, error) {
	d := &Daemon{Dir: dir, Socket: filepath.Join(dir, "weir.sock"), exited: make(chan error, 1)}
	log, err := os.Create(filepath.Join(filepath.Dir(dir), "weir.log"))
	if err != nil {
		return nil, fmt.Errorf("proc: %w", err)
	}
	defer log.Close()
	line := append(append(prefix[:len(prefix):len(prefix)], binary, "run", "--data-dir", dir, "--admin", ""), args...)
	d.cmd = exec.CommandContext(ctx, line[0], line[1:]...)
	d.cmd.Stderr = log
	if err := d.cmd.Start(); err != nil {
		return nil, fmt.Errorf("proc: %w", err)
	}
	go func() { d.exited <- d.cmd.Wait() }()
	for until := time.Now().Add(startTimeout); time.Now().Before(until); time.Sleep(startPoll) {
		if nc, err := net.Dial("unix", d.Socket); err == nil {
			return d, nc.Close()
		}
		select {
		case err := <-d.exited:
			d.exited <- err
			text, _ := os.ReadFile(log.Name()) // the cause is err, this is its explanation
			return nil, fmt.Errorf("proc: the daemon ended: %w\n%s", err, text)
		default:
		}
	}
	return nil, errors.Join(errors.New("proc: the daemon does not take connections"), d.Stop())
}

// Stop ends the daemon with SIGTERM and waits.
func (d *Daemon) Stop() error {
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("proc: %w", err)
	}
	if err := <-d.exited; err != nil {
		return fmt.Errorf("proc: the daemon's end: %w", err)
	}
	return nil
}

// Commits returns how many records were appended and how many fdatasyncs that took.
func (d *Daemon) Commits(ctx context.Context) (records, syncs int64, err error) {
	body, err := d.ask(ctx, http.MethodGet, "/api/v1/status")
	if err != nil {
		return 0, 0, err
	}
	var st struct {
		Shards []struct {
			Records int64 `json:"appended_records"`
			Syncs   int64 `json:"syncs"`
		} `json:"shards"`
	}
	if err := json.Unmarshal(body, &st); err != nil {
		return 0, 0, fmt.Errorf("proc: status: %w", err)
	}
	for _, s := range st.Shards {
		records += s.Records
		syncs += s.Syncs
	}
	return records, syncs, nil
}

// Backlog returns how many records are not delivered.
func (d *Daemon) Backlog(ctx context.Context) (int64, error) {
	body, err := d.ask(ctx, http.MethodGet, "/api/v1/status")
	if err != nil {
		return 0, err
	}
	var st struct {
		Records int64 `json:"backlog_records"`
	}
	if err := json.Unmarshal(body, &st); err != nil {
		return 0, fmt.Errorf("proc: status: %w", err)
	}
	return st.Records, nil
}

// Post sends a request to the daemon's admin socket.
func (d *Daemon) Post(ctx context.Context, path string) error {
	_, err := d.ask(ctx, http.MethodPost, path)
	return err
}

func (d *Daemon) ask(ctx context.Context, method, path string) ([]byte, error) {
	client := http.Client{Timeout: startTimeout, Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(d.Dir, "admin.sock"))
	}}}
	req, err := http.NewRequestWithContext(ctx, method, "http://weir"+path, nil)
	if err != nil {
		return nil, fmt.Errorf("proc: %w", err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("proc: %w", err)
	}
	body, err := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusOK {
		err = errors.Join(err, fmt.Errorf("proc: %s: %s", path, resp.Status))
	}
	return body, errors.Join(err, resp.Body.Close())
}

// Kill ends the daemon with SIGKILL and waits.
func (d *Daemon) Kill() error {
	if err := d.cmd.Process.Kill(); err != nil {
		return fmt.Errorf("proc: %w", err)
	}
	<-d.exited // it says that it was killed
	return nil
}

// Usage is what a process has used up to now.
type Usage struct {
	CPU     time.Duration
	RSS     int64 // bytes now
	PeakRSS int64
}

// clockTicks is USER_HZ, 100 on every Linux.
const clockTicks = 100

// Usage reads the daemon's.
func (d *Daemon) Usage() (Usage, error) { return UsageOf(d.cmd.Process.Pid) }

// UsageOf reads /proc of a process.
func UsageOf(pid int) (Usage, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Usage{}, fmt.Errorf("proc: %w", err)
	}
	_, rest, ok := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	if !ok || len(fields) < 13 {
		return Usage{}, errors.New("proc: /proc/PID/stat has another form")
	}
	user, err1 := strconv.ParseInt(fields[11], 10, 64)
	system, err2 := strconv.ParseInt(fields[12], 10, 64)
	u := Usage{CPU: time.Duration(user+system) * time.Second / clockTicks}
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return u, errors.Join(err, err1, err2)
	}
	defer f.Close()
	text, err := io.ReadAll(f)
	for _, line := range strings.Split(string(text), "\n") {
		if kb, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			u.RSS = kilobytes(kb)
		} else if kb, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			u.PeakRSS = kilobytes(kb)
		}
	}
	return u, errors.Join(err, err1, err2)
}

func kilobytes(s string) int64 {
	n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(s), "kB")), 10, 64)
	if err != nil {
		return 0
	}
	return n << 10
}
