package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/weir-agent/weir/cmd/weir/internal/config"
)

func newConfig(s streams) *cobra.Command {
	cmd := &cobra.Command{Use: "config", Short: "Write, check and show the configuration"}
	cmd.AddCommand(newConfigInit(s), newConfigCheck(s), newConfigShow(s))
	return cmd
}

// configMode is the mode of a new configuration file: it may come to hold names of secrets.
const configMode = 0o600

func newConfigInit(s streams) *cobra.Command {
	return &cobra.Command{
		Use: "init [FILE]", Short: "Write a commented configuration with every default, to FILE or standard output", Args: cobra.MaximumNArgs(1),
		Example: "  weir config init weir.toml",
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return config.Init(s.out)
			}
			f, err := os.OpenFile(args[0], os.O_WRONLY|os.O_CREATE|os.O_EXCL, configMode)
			if errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("%s exists and is left alone: choose another name, or remove it", args[0])
			}
			if err != nil {
				return fmt.Errorf("configuration: %w", err)
			}
			if err := errors.Join(config.Init(f), f.Close()); err != nil {
				return fmt.Errorf("configuration: %w", err)
			}
			_, err = fmt.Fprintf(s.err, "%s written; start with: weir run --config %s\n", args[0], args[0])
			return err
		},
	}
}

func newConfigCheck(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use: "check", Short: "Check the configuration without touching any data",
		Long:    "Tells all faults at once, each with the line, variable or flag it comes from. The exit status is 2 if there is any. Data and sockets are not touched.",
		Example: "  weir config check --config /etc/weir/weir.toml",
	}
	load := configFlags(cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		if _, err := load(); err != nil {
			return err
		}
		_, err := fmt.Fprintln(s.out, "the configuration is good")
		return err
	}
	return cmd
}

func newConfigShow(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use: "show", Short: "Print every key with its effective value and where it comes from; secrets are left out",
		Example: "  weir config show --config /etc/weir/weir.toml | grep -v default",
	}
	asJSON := cmd.Flags().Bool("json", false, "print JSON, one object a line")
	source := sourceFlags(cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		all, faults := config.Settings(source())
		enc := json.NewEncoder(s.out)
		w := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
		if !*asJSON {
			fmt.Fprintln(w, "KEY\tVALUE\tORIGIN")
		}
		for _, one := range all {
			if *asJSON {
				if err := enc.Encode(one); err != nil {
					return err
				}
				continue
			}
			fmt.Fprintf(w, "%s\t%s\t%s\n", one.Key, one.Value, one.Origin)
		}
		return errors.Join(w.Flush(), usage(faults))
	}
	return cmd
}
