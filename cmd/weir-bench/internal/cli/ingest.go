package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-agent/weir/cmd/weir-bench/internal/baseline"
	"github.com/weir-agent/weir/cmd/weir-bench/internal/load"
	"github.com/weir-agent/weir/cmd/weir-bench/internal/proc"
	"github.com/weir-agent/weir/cmd/weir-bench/internal/report"
	"github.com/weir-agent/weir/ingest/frame"
	"github.com/weir-agent/weir/wab/record"
)

// measure is one case of a run.
type measure struct {
	name string
	run  func(ctx context.Context, dir string) (report.Sample, error)
}

// runAll makes the passes: each runs all cases in turn, so that the machine's moods fall on all of them.
func (c *common) runAll(ctx context.Context, title string, cases []measure) (report.Report, error) {
	r := report.New(title, time.Now())
	r.RecordBytes = c.bytes
	cases, err := choose(cases, c.only)
	if err != nil {
		return r, err
	}
	for pass := range c.passes + 1 { // the first one warms up
		for _, m := range cases {
			dir, remove, err := c.workDir()
			if err != nil {
				return r, err
			}
			s, err := m.run(ctx, dir)
			remove()
			if err != nil {
				return r, fmt.Errorf("%s: %w", m.name, err)
			}
			if pass > 0 || c.passes == 1 {
				r.Add(m.name, s)
			}
		}
		if c.passes == 1 {
			break
		}
	}
	return r, ctx.Err()
}

// choose returns the cases whose names match a regular expression; a run without a case is an error.
func choose(cases []measure, expression string) ([]measure, error) {
	re, err := regexp.Compile(expression)
	if err != nil {
		return nil, fmt.Errorf("--only: %w", err)
	}
	var some []measure
	var names []string
	for _, m := range cases {
		names = append(names, m.name)
		if re.MatchString(m.name) {
			some = append(some, m)
		}
	}
	if len(some) == 0 {
		return nil, fmt.Errorf("--only %q matches no case; there are:\n  %s", expression, strings.Join(names, "\n  "))
	}
	return some, nil
}

func (c *common) baselines() []measure {
	var cases []measure
	for _, connections := range []int{1, 64} {
		cases = append(cases, measure{fmt.Sprintf("rtt, %d connections", connections), func(ctx context.Context, dir string) (report.Sample, error) {
			r, err := baseline.RTT(ctx, dir, connections, c.bytes+frame.Overhead, c.duration)
			return report.Sample{Result: r}, err
		}})
	}
	cases = append(cases, measure{"keys: one SHA-256 a record", func(ctx context.Context, _ string) (report.Sample, error) {
		return report.Sample{Result: baseline.Keys(ctx, c.bytes, c.duration)}, nil
	}})
	for _, waiters := range []int{1, 16, 64, 256} {
		cases = append(cases, measure{fmt.Sprintf("fsync, %d waiting", waiters), func(ctx context.Context, dir string) (report.Sample, error) {
			r, err := baseline.Fsync(ctx, dir, waiters, c.bytes, c.duration)
			return report.Sample{Result: r}, err
		}})
	}
	return cases
}

func newBaseline(out io.Writer) *cobra.Command {
	var c common
	cmd := &cobra.Command{Use: "baseline", Short: "Measure the machine without weir: fdatasync and a socket round trip"}
	c.caseFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		r, err := c.runAll(cmd.Context(), "baseline", c.baselines())
		if err != nil {
			return err
		}
		return c.print(out, r)
	}
	return cmd
}

// shape is a closed-loop load.
type shape struct {
	name        string
	tier        record.Durability
	connections int
	inFlight    int
	batch       int
}

func shapes() []shape {
	return []shape{
		{"durable, 1 producer, one at a time", record.Durable, 1, 1, 1},
		{"durable, 16 producers, one at a time", record.Durable, 16, 1, 1},
		{"durable, 64 producers, one at a time", record.Durable, 64, 1, 1},
		{"durable, 1 connection, 16 in flight", record.Durable, 1, 16, 1},
		{"durable, 1 connection, 256 in flight", record.Durable, 1, 256, 1},
		{"durable, 4 connections, 256 in flight", record.Durable, 4, 256, 1},
		{"durable, 4 connections, batches of 1000", record.Durable, 4, 4, 1000},
		{"buffered, 1 producer, one at a time", record.Buffered, 1, 1, 1},
	}
}

func newIngest(out io.Writer) *cobra.Command {
	var c common
	cmd := &cobra.Command{Use: "ingest", Short: "Measure acks: how many a second, and how long each takes, by shape of load"}
	c.caseFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cases := append(c.baselines(), c.floors()...)
		for _, s := range shapes() {
			cases = append(cases, measure{s.name, func(ctx context.Context, dir string) (report.Sample, error) { return c.ingest(ctx, dir, s) }})
		}
		r, err := c.runAll(cmd.Context(), "ingest", cases)
		if err != nil {
			return err
		}
		return c.print(out, r)
	}
	return cmd
}

// ingest runs one shape against a fresh daemon that delivers to nowhere.
func (c *common) ingest(ctx context.Context, dir string, s shape) (report.Sample, error) {
	d, err := proc.Start(ctx, c.weir, filepath.Join(dir, "data"), "--sink", "discard", "--log-level", "warn")
	if err != nil {
		return report.Sample{}, err
	}
	before, err := d.Usage()
	if err != nil {
		return report.Sample{}, err
	}
	r, loadCPU, err := c.load(ctx, d.Socket, s)
	if err != nil {
		return report.Sample{}, err
	}
	after, err := d.Usage()
	if err != nil {
		return report.Sample{}, err
	}
	records, syncs, err := d.Commits(ctx)
	if err != nil {
		return report.Sample{}, err
	}
	sample := report.Sample{Result: r, CPU: after.CPU - before.CPU, LoadCPU: loadCPU, PeakRSS: after.PeakRSS, PerSync: float64(records) / float64(max(1, syncs))}
	return sample, d.Stop()
}

// load makes the load of a shape from this process, and returns the CPU time that it took of it.
func (c *common) load(ctx context.Context, socket string, s shape) (load.Result, time.Duration, error) {
	before, err := proc.UsageOf(os.Getpid())
	if err != nil {
		return load.Result{}, 0, err
	}
	r, err := load.Run(ctx, load.Options{
		Socket: socket, Connections: s.connections, InFlight: s.inFlight, Batch: s.batch, Tier: s.tier, Bytes: c.bytes, Duration: c.duration,
	})
	if err != nil {
		return r, 0, err
	}
	after, err := proc.UsageOf(os.Getpid())
	return r, after.CPU - before.CPU, err
}
