package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-agent/weir/cmd/weir/internal/config"
	"github.com/weir-agent/weir/wab"
	"github.com/weir-agent/weir/wab/vfs"
)

func newQuarantine(s streams) *cobra.Command {
	cmd := &cobra.Command{Use: "quarantine", Short: "Look at damaged bytes that were kept"}
	cmd.AddCommand(newQuarantineList(s), newQuarantineShow(s), newQuarantineSalvage(s))
	return cmd
}

func newQuarantineList(s streams) *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "List the reports", Example: "  weir quarantine list"}
	asJSON := cmd.Flags().Bool("json", false, "print JSON, one object a line")
	onData(cmd, func(dir *vfs.Dir, _ []string) error {
		all, err := wab.Quarantine(dir)
		if err != nil {
			return err
		}
		enc := json.NewEncoder(s.out)
		w := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
		if !*asJSON {
			fmt.Fprintln(w, "NAME\tFOUND\tBYTES KEPT\tRECORDS LOST\tREASON")
		}
		for _, q := range all {
			if *asJSON {
				if err := enc.Encode(q); err != nil {
					return err
				}
				continue
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\n", q.Name, q.Found.Format(time.RFC3339), config.Size(q.Kept).Human(), q.Lost, q.Reason)
		}
		return w.Flush()
	})
	return cmd
}

// findReport returns the report with a name.
func findReport(dir *vfs.Dir, name string) (wab.Quarantined, error) {
	all, err := wab.Quarantine(dir)
	if err != nil {
		return wab.Quarantined{}, err
	}
	for _, q := range all {
		if q.Name == name {
			return q, nil
		}
	}
	return wab.Quarantined{}, fmt.Errorf("there is no report %s: weir quarantine list shows what there is", name)
}

func newQuarantineShow(s streams) *cobra.Command {
	cmd := &cobra.Command{Use: "show NAME", Short: "Print a report as JSON", Example: "  weir quarantine show \"$(weir quarantine list --json | jq -r .name | head -1)\"", Args: cobra.ExactArgs(1)}
	onData(cmd, func(dir *vfs.Dir, args []string) error {
		q, err := findReport(dir, args[0])
		if err != nil {
			return err
		}
		enc := json.NewEncoder(s.out)
		enc.SetIndent("", "  ")
		return enc.Encode(q)
	})
	return cmd
}

func newQuarantineSalvage(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use: "salvage NAME", Short: "Print what in the damaged bytes has the form of records",
		Example: "  weir quarantine salvage NAME > salvaged.jsonl", Args: cobra.ExactArgs(1),
		Long: "Prints each stretch of the damaged bytes that has the form of a record, as JSON lines. No checksum vouches for them: look at each before you push it again. " +
			"Nothing is changed or removed.",
	}
	onData(cmd, func(dir *vfs.Dir, args []string) error {
		q, err := findReport(dir, args[0])
		if err != nil {
			return err
		}
		enc := json.NewEncoder(s.out)
		n, err := wab.Salvage(dir, q, func(payload []byte) error {
			return enc.Encode(struct {
				Unverified bool   `json:"unverified"`
				Segment    string `json:"segment"`
				Payload    string `json:"payload,omitempty"`
				Base64     []byte `json:"payload_base64,omitempty"`
			}{true, q.Segment, textOf(payload), binaryOf(payload)})
		})
		fmt.Fprintf(s.err, "%d stretches of %d kept bytes have the form of a record\n", n, q.Kept)
		if err == nil && n == 0 {
			return errors.New("nothing in it has the form of a record")
		}
		return err
	})
	return cmd
}
