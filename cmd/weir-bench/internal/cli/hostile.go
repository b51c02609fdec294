package cli

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-agent/weir/cmd/weir-bench/internal/load"
	"github.com/weir-agent/weir/cmd/weir-bench/internal/proc"
	"github.com/weir-agent/weir/cmd/weir-bench/internal/report"
	"github.com/weir-agent/weir/wab/record"
)

const settle = time.Second

func newHostile(out io.Writer) *cobra.Command {
	var c common
	var peers int
	cmd := &cobra.Command{Use: "hostile", Short: "Measure an honest producer with and without peers that mean harm"}
	c.flags(cmd)
	cmd.Flags().IntVar(&peers, "peers", 1000, "dribbling connections")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		dir, remove, err := c.workDir()
		if err != nil {
			return err
		}
		defer remove()
		return c.hostile(cmd.Context(), out, dir, peers)
	}
	return cmd
}

// hostile alternates passes without and with the hostile peers on one daemon.
func (c *common) hostile(ctx context.Context, out io.Writer, dir string, peers int) error {
	d, err := proc.Start(ctx, c.weir, filepath.Join(dir, "data"), "--sink", "discard", "--log-level", "error")
	if err != nil {
		return err
	}
	rep := report.New("hostile peers", time.Now())
	rep.RecordBytes = c.bytes
	var n load.HostileCounts
	honest := load.Options{Socket: d.Socket, Connections: 1, InFlight: 1, Batch: 1, Tier: record.Durable, Bytes: c.bytes, Duration: c.duration}
	for range c.passes {
		if err := c.honest(ctx, &rep, "alone", d, honest); err != nil {
			return err
		}
		hostileCtx, cancel := context.WithCancel(ctx)
		var wg sync.WaitGroup
		wg.Go(func() { load.Hostile(hostileCtx, d.Socket, peers, &n) })
		time.Sleep(settle)
		err := c.honest(ctx, &rep, fmt.Sprintf("beside %d hostile peers", peers), d, honest)
		cancel()
		wg.Wait()
		if err != nil {
			return err
		}
	}
	if err := c.print(out, rep); err != nil {
		return err
	}
	fmt.Fprintf(out, "\nhostile: %d bytes dribbled, %d lying headers, %d connections of garbage, %d half frames, %d refused\n",
		n.Dribbled.Load(), n.Lies.Load(), n.Garbage.Load(), n.Halves.Load(), n.Refused.Load())
	return d.Stop()
}

func (c *common) honest(ctx context.Context, rep *report.Report, name string, d *proc.Daemon, o load.Options) error {
	r, err := load.Run(ctx, o)
	if err != nil {
		return err
	}
	use, err := d.Usage()
	if err != nil {
		return err
	}
	rep.Add(name, report.Sample{Result: r, PeakRSS: use.PeakRSS})
	return nil
}
