package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/weir-agent/weir/cmd/weir-bench/internal/baseline"
	"github.com/weir-agent/weir/cmd/weir-bench/internal/proc"
	"github.com/weir-agent/weir/cmd/weir-bench/internal/report"
	"github.com/weir-agent/weir/wab/record"
)

// floorServe is the name of the command that floor runs in a process of its own.
const floorServe = "floor-serve"

func newFloorServe(out io.Writer) *cobra.Command {
	keys := false
	cmd := &cobra.Command{
		Use: floorServe + " DIR", Short: "Serve the floor of ingest (ingest runs it)", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithCancel(cmd.Context())
			defer cancel()
			return baseline.Floor(ctx, args[0], keys, func() {
				go func() {
					defer cancel()
					if err := proc.Answer(cmd.InOrStdin(), out, floorServe, func(string) any { return nil }); err != nil {
						fmt.Fprintln(cmd.ErrOrStderr(), err)
					}
				}()
			})
		},
	}
	cmd.Flags().BoolVar(&keys, "keys", false, "compute the key of each record, too")
	return cmd
}

// floors are the shapes of ingest against the least that a server can do, each in a process of its own, as the daemon is.
func (c *common) floors() []measure {
	var cases []measure
	for _, s := range shapes() {
		cases = append(cases, measure{"floor of " + s.name, func(ctx context.Context, dir string) (report.Sample, error) { return c.floor(ctx, dir, s, false) }})
		if s.inFlight > 1 && s.tier == record.Durable {
			cases = append(cases, measure{"floor with keys of " + s.name, func(ctx context.Context, dir string) (report.Sample, error) { return c.floor(ctx, dir, s, true) }})
		}
	}
	return cases
}

func (c *common) floor(ctx context.Context, dir string, s shape, keys bool) (sample report.Sample, err error) {
	var hello string
	child, err := proc.StartChild(ctx, &hello, floorServe, dir, fmt.Sprintf("--keys=%v", keys))
	if err != nil {
		return sample, err
	}
	defer func() { err = errors.Join(err, child.Close()) }()
	before, err := proc.UsageOf(child.PID())
	if err != nil {
		return sample, err
	}
	sample.Result, sample.LoadCPU, err = c.load(ctx, filepath.Join(dir, "floor.sock"), s)
	if err != nil {
		return sample, err
	}
	after, err := proc.UsageOf(child.PID())
	sample.CPU, sample.PeakRSS = after.CPU-before.CPU, after.PeakRSS
	return sample, err
}
