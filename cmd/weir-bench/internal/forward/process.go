package forward

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"
)

// BrokerCommand is the command of this binary that calls ServeProcess.
const BrokerCommand = "forward-broker"

// freeMemory is the line that asks for memory to be given back.
const freeMemory = "free"

// Process is a broker in a process of its own. One goroutine uses it.
type Process struct {
	hello hello
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   *bufio.Reader
}

// args is the command line that makes o.
func (o BrokerOptions) args() []string {
	return []string{
		BrokerCommand, "--dir", o.Dir, "--listen", o.Listen, "--queue-bytes", strconv.Itoa(o.QueueBytes),
	}
}

// StartBroker runs this binary as a broker, by way of another program whose command line is prefix, and returns when it is there. What it has to complain of
// goes to errOut.
func StartBroker(ctx context.Context, prefix []string, o BrokerOptions, errOut io.Writer) (*Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("forward: %w", err)
	}
	line := append(append(prefix[:len(prefix):len(prefix)], self), o.args()...)
	p := &Process{cmd: exec.CommandContext(ctx, line[0], line[1:]...)}
	p.cmd.Stderr = errOut
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("forward: %w", err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("forward: %w", err)
	}
	p.out = bufio.NewReader(out)
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("forward: %w", err)
	}
	if err := p.read(&p.hello); err != nil {
		return nil, errors.Join(fmt.Errorf("forward: the broker does not come up: %w", err), p.Close())
	}
	return p, nil
}

func (p *Process) read(v any) error {
	line, err := p.out.ReadBytes('\n')
	if err != nil {
		return err
	}
	return json.Unmarshal(line, v)
}

// URL is the address of a queue.
func (p *Process) URL(path string) string { return p.URLAt(p.hello.Addr, path) }

// URLAt is the address of a queue where the broker is reached at host:port.
func (p *Process) URLAt(addr, path string) string {
	return "weida://" + p.hello.Fingerprint + "@" + addr + path
}

// PID is the process's.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Stats asks for the state of the queues.
func (p *Process) Stats() (Stats, error) { return p.ask("") }

// Free is Stats behind the giving back of what memory can be given back.
func (p *Process) Free() (Stats, error) { return p.ask(freeMemory) }

func (p *Process) ask(line string) (st Stats, err error) {
	if _, err = io.WriteString(p.in, line+"\n"); err == nil {
		err = p.read(&st)
	}
	if err != nil {
		return Stats{}, fmt.Errorf("forward: ask the broker: %w", err)
	}
	return st, nil
}

// Stop ends the process with SIGTERM and waits.
func (p *Process) Stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("forward: %w", err)
	}
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("forward: the broker's end: %w", err)
	}
	return nil
}

// Close ends the process by the end of its input and waits.
func (p *Process) Close() error { return errors.Join(p.in.Close(), p.cmd.Wait()) }
