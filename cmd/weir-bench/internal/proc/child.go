package proc

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
)

// Child is another process of this binary, which calls Answer. One goroutine uses it.
type Child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// StartChild runs this binary with the arguments that make it call Answer, and reads what it says first. What it has to complain of goes to this process's
// standard error.
func StartChild(ctx context.Context, hello any, args ...string) (*Child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("proc: %w", err)
	}
	c := &Child{cmd: exec.CommandContext(ctx, self, args...)}
	c.cmd.Stderr = os.Stderr
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("proc: %w", err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("proc: %w", err)
	}
	c.out = bufio.NewReader(out)
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("proc: %w", err)
	}
	if err := c.read(hello); err != nil {
		return nil, errors.Join(fmt.Errorf("proc: %s does not come up: %w", args[0], err), c.Close())
	}
	return c, nil
}

func (c *Child) read(v any) error {
	line, err := c.out.ReadBytes('\n')
	if err != nil {
		return err
	}
	return json.Unmarshal(line, v)
}

// Ask says a line and reads the answer.
func (c *Child) Ask(line string, answer any) error {
	_, err := io.WriteString(c.in, line+"\n")
	if err == nil {
		err = c.read(answer)
	}
	if err != nil {
		return fmt.Errorf("proc: ask %s: %w", c.cmd.Args[1], err)
	}
	return nil
}

// PID is the process's.
func (c *Child) PID() int { return c.cmd.Process.Pid }

// Close ends the process by the end of its input and waits.
func (c *Child) Close() error { return errors.Join(c.in.Close(), c.cmd.Wait()) }

// Answer is a Child's part: it says hello in a line of JSON, and an answer for each line that it reads, until its input ends.
func Answer(in io.Reader, out io.Writer, hello any, answer func(line string) any) error {
	enc := json.NewEncoder(out)
	if err := enc.Encode(hello); err != nil {
		return fmt.Errorf("proc: %w", err)
	}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		if err := enc.Encode(answer(lines.Text())); err != nil {
			return fmt.Errorf("proc: %w", err)
		}
	}
	return lines.Err()
}
