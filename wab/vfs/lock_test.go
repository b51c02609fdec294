//go:build linux || darwin

package vfs_test

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"testing"

	"github.com/weir-agent/weir/wab/vfs"
)

// lockDirVariable tells the test binary to be the other process of TestLockEndsWithItsProcess.
const lockDirVariable = "VFS_TEST_LOCK_DIR"

func TestLockHelper(t *testing.T) {
	dir := os.Getenv(lockDirVariable)
	if dir == "" {
		t.Skip("runs as the other process of TestLockEndsWithItsProcess")
	}
	_, err := openDir(t, dir).Lock("LOCK")
	must(t, err)
	os.Stdout.WriteString("locked\n")
	bufio.NewReader(os.Stdin).ReadByte() // until the other side goes away
}

func TestLockEndsWithItsProcess(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestLockHelper$")
	cmd.Env = append(os.Environ(), lockDirVariable+"="+dir)
	stdin, err := cmd.StdinPipe()
	must(t, err)
	defer stdin.Close()
	stdout, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "locked\n" {
		t.Errorf("the other process says %q, %v", line, err)
	}
	d := openDir(t, dir)
	if _, err := d.Lock("LOCK"); !errors.Is(err, vfs.ErrLocked) {
		t.Errorf("while it runs: got %v, want %v", err, vfs.ErrLocked)
	}
	must(t, cmd.Process.Kill())
	if err := cmd.Wait(); err == nil {
		t.Error("the other process ended by itself")
	}
	l, err := d.Lock("LOCK")
	must(t, err)
	must(t, l.Close())
}
