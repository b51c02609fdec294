package cli

import (
	"io"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-agent/weir/cmd/weir-bench/internal/soak"
)

func newSoak(out io.Writer) *cobra.Command {
	var c common
	o := soak.Options{Out: out}
	cmd := &cobra.Command{Use: "soak", Short: "Run weir under kills, endpoint faults and full disks for long, and draw the ledger"}
	cmd.Flags().StringVar(&c.weir, "weir", "bin/weir", "the binary")
	cmd.Flags().StringVar(&c.dir, "dir", "", "folder to work in (default: a temporary one here)")
	cmd.Flags().DurationVar(&o.For, "for", time.Hour, "how long")
	cmd.Flags().IntVar(&o.Producers, "producers", 4, "producers")
	cmd.Flags().IntVar(&o.Rate, "rate", 2000, "records a second")
	cmd.Flags().IntVar(&o.Bytes, "bytes", 256, "bytes of a payload")
	cmd.Flags().Uint64Var(&o.Seed, "seed", 0, "of what goes wrong (default: from the clock)")
	cmd.Flags().Int64Var(&o.DiskBytes, "disk", 32<<20, "size of the file system that is filled up now and then (as root; 0: none)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		dir, remove, err := c.workDir()
		if err != nil {
			return err
		}
		defer remove()
		if o.Weir, err = filepath.Abs(c.weir); err != nil {
			return err
		}
		o.Dir = dir
		if o.Seed == 0 {
			o.Seed = uint64(time.Now().UnixNano())
		}
		return soak.Run(cmd.Context(), o)
	}
	return cmd
}
