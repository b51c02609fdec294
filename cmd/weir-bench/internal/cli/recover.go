package cli

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-agent/weir/cmd/weir-bench/internal/proc"
)

const steadyWait = 5 * time.Second

func newRecover(out io.Writer) *cobra.Command {
	var c common
	var gib float64
	var payload int
	cmd := &cobra.Command{
		Use: "recover", Short: "Measure the start with a backlog: weir is killed with it on disk and started again",
	}
	c.flags(cmd)
	cmd.Flags().Float64Var(&gib, "gib", 10, "size of the backlog")
	cmd.Flags().IntVar(&payload, "payload", 4096, "bytes of a payload of the backlog")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		dir, remove, err := c.workDir()
		if err != nil {
			return err
		}
		defer remove()
		return c.recover(cmd.Context(), out, dir, gib, payload)
	}
	return cmd
}

// recover makes the backlog, kills the daemon and times its starts: the first one finds an unsealed segment, the second one does not.
func (c *common) recover(ctx context.Context, out io.Writer, dir string, gib float64, payload int) error {
	data := filepath.Join(dir, "data")
	// An address where nobody listens: nothing is delivered, all of the drain runs.
	args := []string{"--sink", "http", "--sink-url", "http://127.0.0.1:1/", "--log-level", "error"}
	d, err := proc.Start(ctx, c.weir, data, args...)
	if err != nil {
		return err
	}
	made := *c
	made.bytes = payload
	records := int64(gib * float64(1<<30) / float64(payload+8))
	began := time.Now()
	if err := made.backlog(ctx, d, records); err != nil {
		return err
	}
	took := time.Since(began)
	use, err := d.Usage()
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "backlog\t%d records of %d bytes, made in %.1f s (%.0f MiB/s); RSS then %d MiB\n", records, payload, took.Seconds(),
		float64(records)*float64(payload)/(1<<20)/took.Seconds(), use.RSS>>20)
	if err := d.Kill(); err != nil {
		return err
	}
	for _, after := range []string{"SIGKILL", "SIGTERM"} {
		began := time.Now()
		if d, err = proc.Start(ctx, c.weir, data, args...); err != nil {
			return err
		}
		took := time.Since(began)
		select {
		case <-time.After(steadyWait):
		case <-ctx.Done():
			return ctx.Err()
		}
		if use, err = d.Usage(); err != nil {
			return err
		}
		fmt.Fprintf(w, "start after %s\tready in %.2f s, peak RSS %d MiB, RSS after %v %d MiB\n", after, took.Seconds(), use.PeakRSS>>20, steadyWait, use.RSS>>20)
		if err := d.Stop(); err != nil {
			return err
		}
	}
	return w.Flush()
}
