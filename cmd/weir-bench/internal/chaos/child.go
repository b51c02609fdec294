package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
)

// The commands of this binary that call Produce and Consume.
const (
	ProduceCommand = "chaos-produce"
	ConsumeCommand = "chaos-consume"
)

// child is another process.
type child struct {
	cmd *exec.Cmd
}

// newChild is a process of a binary, by way of another program whose command line is prefix. It is not started.
func newChild(ctx context.Context, prefix []string, errOut io.Writer, binary string, args ...string) *child {
	line := append(append(prefix[:len(prefix):len(prefix)], binary), args...)
	c := &child{exec.CommandContext(ctx, line[0], line[1:]...)}
	c.cmd.Stderr = errOut
	return c
}

// startChild runs this binary in another process.
func startChild(ctx context.Context, prefix []string, errOut io.Writer, args ...string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("chaos: %w", err)
	}
	c := newChild(ctx, prefix, errOut, self, args...)
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("chaos: %w", err)
	}
	return c, nil
}

// signal sends the process a signal.
func (c *child) signal(s os.Signal) error {
	if err := c.cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("chaos: %w", err)
	}
	return nil
}

// kill ends the process with SIGKILL and waits.
func (c *child) kill() error {
	if err := c.cmd.Process.Kill(); err != nil {
		return fmt.Errorf("chaos: %w", err)
	}
	if err := c.cmd.Wait(); !killed(err) {
		return fmt.Errorf("chaos: %s ended by itself: %w", c.cmd.Args, err)
	}
	return nil
}

// stop ends the process with SIGTERM and waits.
func (c *child) stop() error {
	if err := c.signal(syscall.SIGTERM); err != nil {
		return err
	}
	if err := c.cmd.Wait(); err != nil {
		return fmt.Errorf("chaos: the end of %s: %w", c.cmd.Args, err)
	}
	return nil
}

// killed reports whether a process ended by SIGKILL.
func killed(err error) bool {
	e, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		return false
	}
	status, ok := e.Sys().(syscall.WaitStatus)
	return ok && status.Signal() == syscall.SIGKILL
}
