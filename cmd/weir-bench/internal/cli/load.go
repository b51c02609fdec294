package cli

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-agent/weir/cmd/weir-bench/internal/load"
	"github.com/weir-agent/weir/cmd/weir-bench/internal/report"
	"github.com/weir-agent/weir/wab/record"
)

func newLoad(out io.Writer) *cobra.Command {
	var o load.Options
	var tier string
	cmd := &cobra.Command{
		Use: "load", Short: "Make one load on a daemon that runs already",
		Example: "  weir-bench load --socket weir-data/weir.sock --connections 4 --in-flight 256",
	}
	f := cmd.Flags()
	f.StringVar(&o.Socket, "socket", "weir-data/weir.sock", "the daemon's socket")
	f.IntVar(&o.Connections, "connections", 1, "connections")
	f.IntVar(&o.InFlight, "in-flight", 1, "frames that a connection has unanswered at most")
	f.IntVar(&o.Batch, "batch", 1, "records of a frame")
	f.IntVar(&o.Bytes, "bytes", 256, "bytes of a payload")
	f.StringVar(&tier, "durability", "durable", "durable or buffered")
	f.Float64Var(&o.Rate, "rate", 0, "records a second, latency counted from when each was due (0: as fast as it goes)")
	f.DurationVar(&o.Duration, "duration", 5*time.Second, "length")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var err error
		if o.Tier, err = record.ParseDurability(tier); err != nil {
			return fmt.Errorf("--durability: %w", err)
		}
		r, err := load.Run(cmd.Context(), o)
		if err != nil {
			return err
		}
		rep := report.New("load", time.Now())
		rep.RecordBytes = o.Bytes
		rep.Add(fmt.Sprintf("%s, %d x %d in flight, %d a frame", tier, o.Connections, o.InFlight, o.Batch), report.Sample{Result: r})
		return rep.Table(out)
	}
	return cmd
}
