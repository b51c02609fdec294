package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-agent/weir/cmd/weir-bench/internal/compare"
	"github.com/weir-agent/weir/cmd/weir-bench/internal/proc"
	"github.com/weir-agent/weir/cmd/weir-bench/internal/report"
)

// compareLoads are the shapes of the comparison: what each system is asked for.
func (c *common) compareLoads() []compare.Load {
	return []compare.Load{
		{Connections: 1, InFlight: 1, Bytes: c.bytes, Duration: c.duration},
		{Connections: 16, InFlight: 1, Bytes: c.bytes, Duration: c.duration},
		{Connections: 64, InFlight: 1, Bytes: c.bytes, Duration: c.duration},
		{Connections: 1, InFlight: 256, Bytes: c.bytes, Duration: c.duration},
		{Connections: 4, InFlight: 256, Bytes: c.bytes, Duration: c.duration},
	}
}

func newCompare(out io.Writer) *cobra.Command {
	var c common
	cmd := &cobra.Command{Use: "compare", Short: "Run the same work against other systems, each with its durable setting; what is not installed is named"}
	c.flags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		rep := report.New("compare: acks for durable records", time.Now())
		rep.RecordBytes = c.bytes
		var missing []error
		for range c.passes {
			missing = nil
			for _, l := range c.compareLoads() {
				for _, s := range compare.Systems(c.weir) {
					err := c.compareOne(cmd.Context(), &rep, s, l)
					if errors.Is(err, compare.ErrMissing) {
						missing = append(missing, fmt.Errorf("%s: %w", s.Name, err))
						continue
					}
					if err != nil {
						return fmt.Errorf("%s: %w", s.Name, err)
					}
				}
				if err := c.compareEmbedded(cmd.Context(), &rep, l, &missing); err != nil {
					return err
				}
			}
		}
		if err := c.print(out, rep); err != nil || c.asJSON {
			return err
		}
		fmt.Fprintln(out)
		for _, s := range append(compare.Systems(c.weir), compare.Embedded()...) {
			fmt.Fprintf(out, "%s: %s\n", s.Name, s.Setting)
		}
		if err := errors.Join(missing...); err != nil {
			fmt.Fprintf(out, "left out:\n%v\n", err)
		}
		return nil
	}
	return cmd
}

func caseName(system string, l compare.Load) string {
	return fmt.Sprintf("%d x %d in flight: %s", l.Connections, l.InFlight, system)
}

func (c *common) compareOne(ctx context.Context, rep *report.Report, s compare.System, l compare.Load) error {
	dir, remove, err := c.workDir()
	if err != nil {
		return err
	}
	defer remove()
	srv, err := s.Start(ctx, dir)
	if err != nil {
		return err
	}
	before, err := proc.UsageOf(srv.PID())
	if err != nil {
		return errors.Join(err, srv.Stop())
	}
	r, err := compare.Run(ctx, s, srv, l)
	after, uerr := proc.UsageOf(srv.PID())
	if err := errors.Join(err, uerr); err != nil {
		return errors.Join(err, srv.Stop())
	}
	rep.Add(caseName(s.Name, l), report.Sample{Result: r, CPU: after.CPU - before.CPU, PeakRSS: after.PeakRSS})
	return srv.Stop()
}

func (c *common) compareEmbedded(ctx context.Context, rep *report.Report, l compare.Load, missing *[]error) error {
	for _, s := range compare.Embedded() {
		dir, remove, err := c.workDir()
		if err != nil {
			return err
		}
		r, err := compare.RunEmbedded(ctx, s.Name, dir, l)
		remove()
		if errors.Is(err, compare.ErrMissing) {
			*missing = append(*missing, fmt.Errorf("%s: %w", s.Name, err))
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
		rep.Add(caseName(s.Name, l), report.Sample{Result: r})
	}
	return nil
}
