package cli

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-agent/weir/cmd/weir-bench/internal/load"
	"github.com/weir-agent/weir/cmd/weir-bench/internal/proc"
	"github.com/weir-agent/weir/cmd/weir-bench/internal/report"
	"github.com/weir-agent/weir/wab/record"
)

func newLatency(out io.Writer) *cobra.Command {
	var c common
	var rates []float64
	var svg string
	cmd := &cobra.Command{
		Use: "latency", Short: "Measure ack latency against load: records are due at a fixed rate, and latency counts from when each was due",
	}
	c.flags(cmd)
	cmd.Flags().Float64SliceVar(&rates, "rates", []float64{1000, 3000, 10_000, 30_000, 100_000, 200_000, 300_000}, "records a second")
	cmd.Flags().StringVar(&svg, "svg", "", "write a plot to this file")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		dir, remove, err := c.workDir()
		if err != nil {
			return err
		}
		defer remove()
		d, err := proc.Start(cmd.Context(), c.weir, filepath.Join(dir, "data"), "--sink", "discard", "--log-level", "error")
		if err != nil {
			return err
		}
		rep := report.New("latency, durable, 4 connections, open loop", time.Now())
		rep.RecordBytes = c.bytes
		for range c.passes {
			for _, rate := range rates {
				r, err := load.Run(cmd.Context(), load.Options{
					Socket: d.Socket, Connections: 4, InFlight: 1024, Batch: 1, Tier: record.Durable, Bytes: c.bytes, Duration: c.duration, Rate: rate,
				})
				if err != nil {
					return err
				}
				rep.Add(fmt.Sprintf("%.0f a second", rate), report.Sample{Result: r})
			}
		}
		if err := d.Stop(); err != nil {
			return err
		}
		if err := c.print(out, rep); err != nil {
			return err
		}
		return writePlot(svg, &rep)
	}
	return cmd
}

func writePlot(path string, rep *report.Report) error {
	if path == "" {
		return nil
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := rep.Plot(f); err != nil {
		f.Close() // the error of the plot is the one to tell
		return err
	}
	return f.Close()
}
