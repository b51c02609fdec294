package cli

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-agent/weir/cmd/weir-bench/internal/load"
	"github.com/weir-agent/weir/cmd/weir-bench/internal/proc"
	"github.com/weir-agent/weir/cmd/weir-bench/internal/report"
	"github.com/weir-agent/weir/ingest/frame"
	"github.com/weir-agent/weir/wab/record"
)

func newDelivery(out io.Writer) *cobra.Command {
	var c common
	var rate float64
	cmd := &cobra.Command{Use: "delivery", Short: "Measure the time from the ack of a record to its arrival at a healthy endpoint, at a low rate"}
	c.flags(cmd)
	cmd.Flags().Float64Var(&rate, "rate", 10, "records a second")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		r, err := c.runAll(cmd.Context(), "delivery", []measure{{fmt.Sprintf("ack to delivery, %g a second", rate), func(ctx context.Context, dir string) (report.Sample, error) {
			return c.delivery(ctx, dir, rate)
		}}})
		if err != nil {
			return err
		}
		return c.print(out, r)
	}
	return cmd
}

// arrivals remembers when each record, known by the number it begins with, was acked and came.
type arrivals struct {
	mu    sync.Mutex
	acked map[uint64]time.Time
	came  map[uint64]time.Time
}

func (a *arrivals) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	now := time.Now()
	text := make([]byte, 16)
	var number [8]byte
	if _, err := io.ReadFull(r.Body, text); err == nil {
		if _, err := hex.Decode(number[:], text); err == nil {
			a.mu.Lock()
			a.came[binary.BigEndian.Uint64(number[:])] = now
			a.mu.Unlock()
		}
	}
	w.WriteHeader(http.StatusNoContent)
}

// await waits until everything that was acked has come, for as long as a healthy endpoint could need at most.
func (a *arrivals) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for {
		if a.result().Failed == 0 {
			return nil
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return fmt.Errorf("%d records were acked and have not come: %w", a.result().Failed, ctx.Err())
		}
	}
}

// result returns the times from ack to arrival of what has come; a record may come before its ack is read.
func (a *arrivals) result() load.Result {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := load.Result{Latency: load.NewHistogram()}
	for n, acked := range a.acked {
		came, ok := a.came[n]
		if !ok {
			out.Failed++
			continue
		}
		_ = out.Latency.RecordValue(max(0, int64(came.Sub(acked)))) // in range: below a minute
		out.Records++
	}
	return out
}

func (c *common) delivery(ctx context.Context, dir string, rate float64) (report.Sample, error) {
	a := &arrivals{acked: map[uint64]time.Time{}, came: map[uint64]time.Time{}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return report.Sample{}, err
	}
	server := &http.Server{Handler: a}
	go func() { _ = server.Serve(l) }() // it ends by Close
	defer server.Close()
	d, err := proc.Start(ctx, c.weir, filepath.Join(dir, "data"), "--sink", "http", "--sink-url", "http://"+l.Addr().String()+"/", "--log-level", "error")
	if err != nil {
		return report.Sample{}, err
	}
	nc, err := net.Dial("unix", d.Socket)
	if err != nil {
		return report.Sample{}, err
	}
	defer nc.Close()
	began := time.Now()
	tick := time.NewTicker(time.Duration(float64(time.Second) / rate))
	defer tick.Stop()
	reply := make([]byte, frame.Overhead)
	for n := uint64(0); time.Since(began) < c.duration; n++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return report.Sample{}, ctx.Err()
		}
		payload := fmt.Appendf(nil, "%016x %0*d", n, max(1, c.bytes-17), 0)
		if _, err := nc.Write(frame.Append(nil, frame.Push, record.Durable, payload)); err != nil {
			return report.Sample{}, err
		}
		if _, err := io.ReadFull(nc, reply); err != nil {
			return report.Sample{}, err
		}
		a.mu.Lock()
		a.acked[n] = time.Now()
		a.mu.Unlock()
	}
	if err := a.await(ctx); err != nil {
		return report.Sample{}, err
	}
	if err := d.Stop(); err != nil {
		return report.Sample{}, err
	}
	r := a.result()
	r.Elapsed = time.Since(began)
	return report.Sample{Result: r}, nil
}
