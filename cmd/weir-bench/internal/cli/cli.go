// Package cli is the command line of weir-bench.
package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-agent/weir/cmd/weir-bench/internal/report"
)

// Main runs the command line and returns the exit status.
func Main(args []string, out, errOut io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	root := newRoot(out)
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(errOut)
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintf(errOut, "weir-bench: %v\n", err)
		return 1
	}
	return 0
}

// common are the flags of every measurement.
type common struct {
	weir     string
	dir      string
	bytes    int
	duration time.Duration
	passes   int
	asJSON   bool
	only     string // a regular expression on the names of cases
}

// caseFlags are those of a measurement that runs its cases by runAll.
func (c *common) caseFlags(cmd *cobra.Command) {
	c.flags(cmd)
	cmd.Flags().StringVar(&c.only, "only", "", "regular expression: run only the cases whose names match")
}

func (c *common) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.weir, "weir", "bin/weir", "the binary to measure")
	cmd.Flags().StringVar(&c.dir, "dir", "", "folder to work in, on the disk to measure (default: a temporary one here)")
	cmd.Flags().IntVar(&c.bytes, "bytes", 256, "bytes of a payload")
	cmd.Flags().DurationVar(&c.duration, "duration", 3*time.Second, "length of one pass of one case")
	cmd.Flags().IntVar(&c.passes, "passes", 3, "passes; the cases of a pass are interleaved")
	cmd.Flags().BoolVar(&c.asJSON, "json", false, "print JSON")
}

// workDir makes the folder to work in and returns how to remove it.
func (c *common) workDir() (string, func(), error) {
	parent := c.dir
	if parent == "" {
		parent = "."
	}
	parent, err := filepath.Abs(parent)
	if err != nil {
		return "", nil, err
	}
	dir, err := os.MkdirTemp(parent, "weir-bench-")
	return dir, func() { _ = os.RemoveAll(dir) }, err // what stays behind is in the user's sight
}

func (c *common) print(w io.Writer, r report.Report) error {
	if c.asJSON {
		return r.JSON(w)
	}
	return r.Table(w)
}

func newRoot(out io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use: "weir-bench", Short: "Measure weir beside baselines of the same run",
		SilenceUsage: true, SilenceErrors: true,
	}
	root.AddCommand(newBaseline(out), newIngest(out), newFloorServe(out), newLoad(out), newDrain(out), newDelivery(out), newRecover(out), newHostile(out), newLatency(out), newCompare(out), newSoak(out), newSyscalls(out), newWeida(out), newWeidaServe(out), newForward(out), newForwardBroker(out), newChaos(out), newChaosProduce(), newChaosConsume())
	return root
}
