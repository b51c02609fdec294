package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-agent/weir/cmd/weir-bench/internal/load"
	"github.com/weir-agent/weir/cmd/weir-bench/internal/proc"
	"github.com/weir-agent/weir/cmd/weir-bench/internal/report"
	"github.com/weir-agent/weir/wab/record"
)

// endpoint is a loopback HTTP server that counts records.
type endpoint struct {
	url     string
	records atomic.Int64
	server  *http.Server
}

func startEndpoint(format string) (*endpoint, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("endpoint: %w", err)
	}
	e := &endpoint{url: "http://" + l.Addr().String() + "/"}
	e.server = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, err := countRecords(r.Body, format)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		e.records.Add(n)
		w.WriteHeader(http.StatusNoContent)
	})}
	go func() { _ = e.server.Serve(l) }() // it ends by Close
	return e, nil
}

// countRecords reads a body and returns how many records are in it.
func countRecords(body io.Reader, format string) (int64, error) {
	mark := []byte{'\n'}
	if format == "json" {
		mark = []byte(`"index":`)
	}
	buf := make([]byte, 64<<10)
	n, kept := int64(0), 0
	for {
		got, err := body.Read(buf[kept:])
		have := buf[:kept+got]
		n += int64(bytes.Count(have, mark))
		kept = copy(buf, have[max(0, len(have)-len(mark)+1):]) // a mark may lie over two reads
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return 0, err
		}
	}
	if format == "raw" {
		return 1, nil
	}
	return n, nil
}

func newDrain(out io.Writer) *cobra.Command {
	var c common
	var records int64
	cmd := &cobra.Command{Use: "drain", Short: "Measure delivery: a backlog is made while the drain is paused, then timed to a loopback endpoint"}
	c.flags(cmd)
	cmd.Flags().Int64Var(&records, "records", 1_000_000, "records of the backlog (raw: a tenth)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var cases []measure
		for _, format := range []string{"ndjson", "json", "raw"} {
			n := records
			if format == "raw" {
				n /= 10
			}
			cases = append(cases, measure{"drain, http " + format, func(ctx context.Context, dir string) (report.Sample, error) {
				return c.drain(ctx, dir, format, n)
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

func (c *common) drain(ctx context.Context, dir, format string, records int64) (report.Sample, error) {
	e, err := startEndpoint(format)
	if err != nil {
		return report.Sample{}, err
	}
	defer e.server.Close() // nothing is lost by it
	config := filepath.Join(dir, "weir.toml")
	text := fmt.Sprintf("[sink]\ntype = \"http\"\n[sink.http]\nurl = %q\nformat = %q\n", e.url, format)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return report.Sample{}, err
	}
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
	for e.records.Load() < records {
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
	s := report.Sample{Result: load.Result{Records: e.records.Load(), Elapsed: took, Latency: load.NewHistogram()}, CPU: after.CPU - before.CPU, PeakRSS: after.PeakRSS}
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
