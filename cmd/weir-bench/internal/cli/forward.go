package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-agent/weir/cmd/weir-bench/internal/forward"
	"github.com/weir-agent/weir/cmd/weir-bench/internal/load"
	"github.com/weir-agent/weir/cmd/weir-bench/internal/proc"
	"github.com/weir-agent/weir/cmd/weir-bench/internal/report"
)

// queueBytes is room for all that is published in a measurement.
const queueBytes = 4 << 30

// statsInterval is how often a broker is asked how far it is.
const statsInterval = 2 * time.Millisecond

// newForwardBroker is the other process of newForward.
func newForwardBroker(out io.Writer) *cobra.Command {
	var o forward.BrokerOptions
	cmd := &cobra.Command{Use: forward.BrokerCommand, Hidden: true}
	cmd.Flags().StringVar(&o.Dir, "dir", "", "folder")
	cmd.Flags().IntVar(&o.QueueBytes, "queue-bytes", 0, "bound of each queue")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return forward.ServeProcess(cmd.Context(), o, cmd.InOrStdin(), out)
	}
	return cmd
}

func newForward(out io.Writer) *cobra.Command {
	var c common
	var records int64
	cmd := &cobra.Command{
		Use: "forward", Short: "Measure the way to a weida broker that stores on disk: weir's delivery, publishes, consumers, and memory",
	}
	c.caseFlags(cmd)
	cmd.Flags().Int64Var(&records, "records", 200_000, "records of a backlog, and messages of a queue")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cases := []measure{{"weir to broker, drain of a backlog", func(ctx context.Context, dir string) (report.Sample, error) {
			return c.toBroker(ctx, dir, records)
		}}}
		for _, n := range []int{1, 16, 256} {
			cases = append(cases, measure{fmt.Sprintf("publish, stored and flushed, %d in flight", n), func(ctx context.Context, dir string) (report.Sample, error) {
				return c.publish(ctx, dir, n)
			}})
		}
		var memory int64
		cases = append(cases, measure{"consume and settle", func(ctx context.Context, dir string) (s report.Sample, err error) {
			s, memory, err = c.consume(ctx, dir, records)
			return s, err
		}})
		r, err := c.runAll(cmd.Context(), "forward: to and from a weida broker; CPU is the daemon's or the broker's", cases)
		if err != nil {
			return err
		}
		if err := c.print(out, r); err != nil {
			return err
		}
		if !c.asJSON {
			fmt.Fprintf(out, "\nmemory of a queued message of %d B, over %d of them: %d B\n", c.bytes, records, memory)
		}
		return nil
	}
	return cmd
}

// withBroker runs a broker in dir for a measurement.
func withBroker(ctx context.Context, dir string, measure func(b *forward.Process) error) error {
	at := filepath.Join(dir, "broker")
	if err := os.Mkdir(at, 0o700); err != nil {
		return err
	}
	b, err := forward.StartBroker(ctx, forward.BrokerOptions{Dir: at, QueueBytes: queueBytes})
	if err != nil {
		return err
	}
	return errors.Join(measure(b), b.Close())
}

// until asks the broker until it is as wanted.
func until(ctx context.Context, b *forward.Process, wanted func(forward.Stats) bool) error {
	for {
		st, err := b.Stats()
		if err != nil || wanted(st) {
			return err
		}
		select {
		case <-time.After(statsInterval):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// toBroker times the delivery of a backlog. CPU and memory are weir's.
func (c *common) toBroker(ctx context.Context, dir string, records int64) (s report.Sample, err error) {
	err = withBroker(ctx, dir, func(b *forward.Process) error {
		d, err := proc.Start(ctx, c.weir, filepath.Join(dir, "data"), "--sink", "weida", "--sink-url", b.URL(forward.Orders), "--log-level", "warn")
		if err != nil {
			return err
		}
		if err := d.Post(ctx, "/api/v1/drain/pause"); err != nil {
			return err
		}
		if err := c.backlog(ctx, d, records); err != nil {
			return err
		}
		before, err := d.Usage()
		if err != nil {
			return err
		}
		began := time.Now()
		if err := d.Post(ctx, "/api/v1/drain/resume"); err != nil {
			return err
		}
		if err := until(ctx, b, func(st forward.Stats) bool { return st.Orders.Admitted >= uint64(records) }); err != nil {
			return err
		}
		took := time.Since(began)
		after, err := d.Usage()
		if err != nil {
			return err
		}
		s = report.Sample{Result: load.Result{Records: records, Elapsed: took, Latency: load.NewHistogram()}, CPU: after.CPU - before.CPU, PeakRSS: after.PeakRSS}
		return d.Stop()
	})
	return s, err
}

// publish times confirmed publishes. CPU and memory are the broker's.
func (c *common) publish(ctx context.Context, dir string, inFlight int) (s report.Sample, err error) {
	err = withBroker(ctx, dir, func(b *forward.Process) error {
		r, err := forward.Publish(ctx, b.URL(forward.Orders), inFlight, c.bytes, 0, c.duration)
		if err != nil {
			return err
		}
		u, err := proc.UsageOf(b.PID())
		s = report.Sample{Result: r, CPU: u.CPU, PeakRSS: u.PeakRSS}
		return err
	})
	return s, err
}

// consume fills a queue, weighs it, and times how it is emptied. CPU and memory are the broker's.
func (c *common) consume(ctx context.Context, dir string, messages int64) (s report.Sample, memory int64, err error) {
	const publishers, atMost = 256, 10 * time.Minute
	err = withBroker(ctx, dir, func(b *forward.Process) error {
		// A first message brings in what all of them share.
		if _, err := forward.Publish(ctx, b.URL(forward.Dead), 1, c.bytes, 1, atMost); err != nil {
			return err
		}
		empty, err := weigh(b)
		if err != nil {
			return err
		}
		if _, err := forward.Publish(ctx, b.URL(forward.Orders), publishers, c.bytes, messages, atMost); err != nil {
			return err
		}
		full, err := weigh(b)
		if err != nil {
			return err
		}
		memory = (full.RSS - empty.RSS) / messages
		r, err := forward.Consume(ctx, b.URL(forward.Orders), messages, func() error {
			return until(ctx, b, func(st forward.Stats) bool { return st.Orders.Messages == 0 })
		})
		if err != nil {
			return err
		}
		u, err := proc.UsageOf(b.PID())
		s = report.Sample{Result: r, CPU: u.CPU - full.CPU, PeakRSS: u.PeakRSS}
		return err
	})
	return s, memory, err
}

// weigh reads what a broker uses once it has given back what memory it can.
func weigh(b *forward.Process) (proc.Usage, error) {
	if err := b.Free(); err != nil {
		return proc.Usage{}, err
	}
	return proc.UsageOf(b.PID())
}
