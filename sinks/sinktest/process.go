package sinktest

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Process is a server that runs in a process of its own, one at a time, which can be killed and started again.
type Process struct {
	// Command returns what starts it.
	Command func() *exec.Cmd
	// Log is the file that what it writes is appended to.
	Log string
	// Serves tells whether it answers.
	Serves func() bool
	// Again is what its log has where it ended and may only be started again; empty where there is no such end.
	Again string
	// End is the signal that ends it with the test; the zero value is SIGKILL.
	End syscall.Signal

	t     testing.TB
	cmd   *exec.Cmd
	ended chan struct{} // closed once it was waited for
}

// Start starts p and returns once it serves. The end of the test ends it.
func (p *Process) Start(t testing.TB) {
	t.Helper()
	p.t = t
	if p.End == 0 {
		p.End = syscall.SIGKILL
	}
	t.Cleanup(func() {
		if p.cmd == nil {
			return
		}
		_ = p.cmd.Process.Signal(p.End) // it may have ended already
		<-p.ended
	})
	p.Restart()
}

// Run starts the process and does not wait until it serves.
func (p *Process) Run() {
	p.t.Helper()
	log, err := os.OpenFile(p.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		p.t.Fatal(err)
	}
	defer log.Close()
	cmd, ended := p.Command(), make(chan struct{})
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	go func() {
		_ = cmd.Wait() // it ends by a signal
		close(ended)
	}()
	p.cmd, p.ended = cmd, ended
}

// Kill ends the process by SIGKILL.
func (p *Process) Kill() {
	p.t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		p.t.Fatal(err)
	}
	<-p.ended
}

// Restart starts a server that was killed, and returns once it serves.
func (p *Process) Restart() {
	p.t.Helper()
	p.Run()
	p.AwaitReady()
}

// AwaitReady returns once the server serves.
func (p *Process) AwaitReady() {
	p.t.Helper()
	for p.t.Context().Err() == nil {
		if p.Serves() {
			return
		}
		select {
		case <-p.ended:
			log, _ := os.ReadFile(p.Log) // what there is of it is shown
			if p.Again == "" || !strings.Contains(string(log), p.Again) {
				p.t.Fatalf("%s ended:\n%s", filepath.Base(p.cmd.Path), log)
			}
			p.Run()
		default:
		}
	}
	p.t.Fatal(p.t.Context().Err())
}

// Listens tells whether somebody takes connections at a TCP address.
func Listens(address string) bool {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

// FreeAddress returns a loopback address that nobody uses.
func FreeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// Program returns the path of a program that install installs. Where it is missing the test is left out, see LeaveOut.
func Program(t testing.TB, name, install string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		LeaveOut(t, name, install)
	}
	return path
}

// LeaveOut leaves the test out for want of a server that install installs. With CI=true the test fails.
func LeaveOut(t testing.TB, server, install string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal("missing: " + server)
	}
	t.Skipf("left out, for want of %s (%s)", server, install)
}

// File writes text to a file of a temporary folder, which nobody else can read, and returns its path.
func File(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	WriteFile(t, path, text)
	return path
}

// WriteFile writes text to the file path, which nobody else can read.
func WriteFile(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
