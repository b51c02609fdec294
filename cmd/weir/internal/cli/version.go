package cli

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/weir-agent/weir/cmd/weir/internal/daemon"
)

func newVersion(s streams) *cobra.Command {
	cmd := &cobra.Command{Use: "version", Short: "Print version, commit and formats", Example: "  weir version"}
	asJSON := cmd.Flags().Bool("json", false, "print JSON")
	cmd.RunE = func(*cobra.Command, []string) error {
		b := daemon.Build()
		if *asJSON {
			return json.NewEncoder(s.out).Encode(b)
		}
		_, err := fmt.Fprintf(s.out, "weir %s, commit %s, wire version 1, %s %s/%s\n", b.Version, b.Commit, b.Go, b.OS, b.Arch)
		return err
	}
	return cmd
}
