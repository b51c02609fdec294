package cli

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/weir-agent/weir/cmd/weida/internal/terms"
	"github.com/weir-agent/weir/weida"
)

func newIdentity() *cobra.Command {
	var who terms.Identity
	cmd := &cobra.Command{
		Use:   "identity",
		Short: "Print the fingerprint of this side's key, which is made on first use",
		Long: "Prints the fingerprint by which others know this side: it stands in the addresses that they dial, and in --allow of what this side dials. The key is in a directory that " +
			"its owner alone can read.",
		Example: "  weida identity\n  weida send \"weida://$(weida identity)@127.0.0.1:7443/logs\" < lines.txt",
	}
	who.Register(cmd.Flags())
	asJSON := cmd.Flags().Bool("json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		dir, err := who.Dir()
		if err != nil {
			return err
		}
		source, err := who.Open()
		if err != nil {
			return err
		}
		id, err := source.Current()
		if err != nil {
			return err
		}
		if *asJSON {
			return json.NewEncoder(cmd.OutOrStdout()).Encode(struct {
				Fingerprint weida.Fingerprint `json:"fingerprint"`
				Directory   string            `json:"directory"`
			}{id.Fingerprint(), dir})
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), id.Fingerprint())
		return err
	}
	return cmd
}
