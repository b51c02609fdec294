package forward

import (
	"context"
	"strconv"

	"github.com/weir-agent/weir/cmd/weir-bench/internal/proc"
)

// BrokerCommand is the command of this binary that calls ServeProcess.
const BrokerCommand = "forward-broker"

// freeMemory is the line that asks for memory to be given back.
const freeMemory = "free"

// Process is a broker in a process of its own. One goroutine uses it.
type Process struct {
	*proc.Child
	hello hello
}

// StartBroker runs this binary as a broker and returns when it is there.
func StartBroker(ctx context.Context, o BrokerOptions) (p *Process, err error) {
	p = &Process{}
	p.Child, err = proc.StartChild(ctx, &p.hello, BrokerCommand, "--dir", o.Dir, "--queue-bytes", strconv.Itoa(o.QueueBytes))
	return p, err
}

// URL is the address of a queue.
func (p *Process) URL(path string) string { return p.hello.url(path) }

// Stats asks for the state of the queues.
func (p *Process) Stats() (st Stats, err error) {
	err = p.Ask("", &st)
	return st, err
}

// Free has the process give back what memory it can.
func (p *Process) Free() error { return p.Ask(freeMemory, &Stats{}) }
