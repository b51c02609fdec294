package cli

import (
	"context"
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

func newDrain(out io.Writer) *cobra.Command {
	var c common
	var records int64
	var config string
	cmd := &cobra.Command{Use: "drain", Short: "Measure delivery: a backlog is made while the drain is paused, then timed to a loopback endpoint, or to the sink of a configuration"}
	c.caseFlags(cmd)
	cmd.Flags().Int64Var(&records, "records", 1_000_000, "records of the backlog (raw: a tenth)")
	cmd.Flags().StringVar(&config, "config", "", "configuration of weir whose sink is measured instead of the loopback endpoint")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var cases []measure
		formats := []string{"ndjson", "json", "raw"}
		if config != "" {
			formats = nil
			cases = append(cases, measure{"drain, " + filepath.Base(config), func(ctx context.Context, dir string) (report.Sample, error) {
				return c.drain(ctx, dir, config, records, func(ctx context.Context, d *proc.Daemon) (int64, error) {
					left, err := d.Backlog(ctx)
					return records - left, err
				})
			}})
		}
		for _, format := range formats {
			n := records
			if format == "raw" {
				n /= 10
			}
			cases = append(cases, measure{"drain, http " + format, func(ctx context.Context, dir string) (report.Sample, error) {
				return c.drainHTTP(ctx, dir, format, n)
			}})
		}
		r, err := c.runAll(cmd.Context(), "drain", cases)
		if err != nil {
			return err
		}
		return c.print(out, r)
	}
	return cmd
}

func (c *common) drainHTTP(ctx context.Context, dir, format string, records int64) (report.Sample, error) {
	e, err := startEndpoint(format)
	if err != nil {
		return report.Sample{}, err
	}
	defer e.close()
	config := filepath.Join(dir, "weir.toml")
	text := fmt.Sprintf("[sink]\ntype = \"http\"\n[sink.http]\nurl = %q\nformat = %q\n", e.url, format)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return report.Sample{}, err
	}
	return c.drain(ctx, dir, config, records, func(context.Context, *proc.Daemon) (int64, error) { return e.records.Load(), nil })
}

// drain makes the backlog and times its delivery; delivered tells how many records have arrived.
func (c *common) drain(ctx context.Context, dir, config string, records int64, delivered func(context.Context, *proc.Daemon) (int64, error)) (report.Sample, error) {
	d, err := proc.Start(ctx, c.weir, filepath.Join(dir, "data"), "--config", config, "--log-level", "warn")
	if err != nil {
		return report.Sample{}, err
	}
	if err := d.Post(ctx, "/api/v1/drain/pause"); err != nil {
		return report.Sample{}, err
	}
	if err := c.backlog(ctx, d, records); err != nil {
		return report.Sample{}, err
	}
	before, err := d.Usage()
	if err != nil {
		return report.Sample{}, err
	}
	began := time.Now()
	if err := d.Post(ctx, "/api/v1/drain/resume"); err != nil {
		return report.Sample{}, err
	}
	for {
		n, err := delivered(ctx, d)
		if err != nil {
			return report.Sample{}, err
		}
		if n >= records {
			break
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return report.Sample{}, ctx.Err()
		}
	}
	took := time.Since(began)
	after, err := d.Usage()
	if err != nil {
		return report.Sample{}, err
	}
	s := report.Sample{Result: load.Result{Records: records, Elapsed: took, Latency: load.NewHistogram()}, CPU: after.CPU - before.CPU, PeakRSS: after.PeakRSS}
	return s, d.Stop()
}

// backlog pushes records, by batches that hold a newline-free payload, until there are as many as asked for.
func (c *common) backlog(ctx context.Context, d *proc.Daemon, records int64) error {
	for left := records; left > 0; {
		batch := min(left, 1000)
		r, err := load.Run(ctx, load.Options{
			Socket: d.Socket, Connections: 1, InFlight: 4, Batch: int(batch), Tier: record.Durable, Bytes: c.bytes, Duration: time.Minute, Frames: left / batch,
		})
		if err != nil {
			return err
		}
		if r.Failed > 0 {
			return fmt.Errorf("%d records of the backlog were refused", r.Failed)
		}
		left -= r.Records
	}
	return nil
}
