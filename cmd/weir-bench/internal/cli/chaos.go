package cli

import (
	"io"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-agent/weir/cmd/weir-bench/internal/chaos"
)

func newChaos(out io.Writer) *cobra.Command {
	var c common
	var weida string
	o := chaos.Options{Out: out}
	cmd := &cobra.Command{
		Use: "chaos", Short: "Run producers, weir, a weida broker and consumers under kills, cut links and full disks, and draw the ledger over all of them",
	}
	cmd.Flags().StringVar(&c.weir, "weir", "bin/weir", "the binary")
	cmd.Flags().StringVar(&c.dir, "dir", "", "folder to work in (default: a temporary one here)")
	cmd.Flags().StringVar(&weida, "weida", "bin/weida", "the binary of the broker")
	cmd.Flags().DurationVar(&o.For, "for", time.Hour, "how long")
	cmd.Flags().IntVar(&o.Producers, "producers", 2, "producers")
	cmd.Flags().IntVar(&o.Consumers, "consumers", 2, "consumers")
	cmd.Flags().IntVar(&o.Rate, "rate", 4000, "records a second")
	cmd.Flags().IntVar(&o.Bytes, "bytes", 256, "bytes of a payload")
	cmd.Flags().Uint64Var(&o.Seed, "seed", 0, "of what goes wrong (default: from the clock)")
	cmd.Flags().Int64Var(&o.DiskBytes, "disk", 48<<20, "size of the file systems of weir and of the broker, which are filled up now and then (as root; 0: none)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		dir, remove, err := c.workDir()
		if err != nil {
			return err
		}
		defer remove()
		if o.Weir, err = filepath.Abs(c.weir); err != nil {
			return err
		}
		if o.Weida, err = filepath.Abs(weida); err != nil {
			return err
		}
		o.Dir = dir
		if o.Seed == 0 {
			o.Seed = uint64(time.Now().UnixNano())
		}
		return chaos.Run(cmd.Context(), o)
	}
	return cmd
}

// newChaosProduce and newChaosConsume are other processes of newChaos.
func newChaosProduce() *cobra.Command {
	var o chaos.ProduceOptions
	cmd := &cobra.Command{Use: chaos.ProduceCommand, Hidden: true}
	cmd.Flags().StringVar(&o.Socket, "socket", "", "weir's socket")
	cmd.Flags().StringVar(&o.Acked, "acked", "", "file for the numbers of what was acked")
	cmd.Flags().Uint64Var(&o.First, "first", 0, "number of the first record")
	cmd.Flags().IntVar(&o.Rate, "rate", 0, "records a second")
	cmd.Flags().IntVar(&o.Bytes, "bytes", 0, "bytes of a payload")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return chaos.Produce(cmd.Context(), o) }
	return cmd
}

func newChaosConsume() *cobra.Command {
	var url, log string
	cmd := &cobra.Command{Use: chaos.ConsumeCommand, Hidden: true}
	cmd.Flags().StringVar(&url, "url", "", "address of the queue")
	cmd.Flags().StringVar(&log, "log", "", "file for what was processed")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return chaos.Consume(cmd.Context(), url, log) }
	return cmd
}
