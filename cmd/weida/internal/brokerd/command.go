package brokerd

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/weir-agent/weir/cmd/weida/internal/exit"
)

// Command returns `weida broker`.
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "broker",
		Short: "Run a broker: queues that keep messages until a consumer has processed them",
	}
	cmd.AddCommand(newRun(), newConfig())
	return cmd
}

func newRun() *cobra.Command {
	var file, dataDir, admin string
	var listen, queues, allow []string
	var anybody bool
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the broker in the foreground",
		Long: "Runs the broker until SIGTERM or an interrupt, and prints the address of each queue when it is ready: what producers and consumers dial, weir's [sink.weida] among them.\n\n" +
			"The first signal retires the queues: new messages are rejected, deliveries that are out may be settled within the shutdown timeout. A second one ends the process at once; what was confirmed is on the disk.",
		Example: "  weida broker run --queue /logs --anybody\n  weida broker run --config broker.toml",
	}
	f := cmd.Flags()
	f.StringVar(&file, "config", "", "file with the configuration (`weida broker config` prints one with all keys)")
	f.StringVar(&dataDir, "data-dir", "", "folder of the identity and the queues (broker.data_dir)")
	f.StringArrayVar(&listen, "listen", nil, "UDP address to listen on (broker.listen; repeatable)")
	f.StringArrayVar(&queues, "queue", nil, "path of a queue beside those of the file (repeatable)")
	f.StringArrayVar(&allow, "allow", nil, "fingerprint that may connect, beside trust.clients (repeatable)")
	f.BoolVar(&anybody, "anybody", false, "let everybody connect (trust.anybody)")
	f.StringVar(&admin, "admin", "", "host:port for health and metrics (admin.listen)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := Load(file, func(c *Config) {
			if dataDir != "" {
				c.Broker.DataDir = dataDir
			}
			if len(listen) > 0 {
				c.Broker.Listen = listen
			}
			for _, path := range queues {
				c.Queues = append(c.Queues, Queue{Path: path})
			}
			c.Trust.Clients = append(c.Trust.Clients, allow...)
			c.Trust.Anybody = c.Trust.Anybody || anybody
			if cmd.Flags().Changed("admin") {
				c.Admin.Listen = admin
			}
		})
		if err != nil {
			return exit.Usage(err)
		}
		ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, os.Interrupt)
		context.AfterFunc(ctx, stop) // so that a second signal ends the process
		defer stop()
		return Run(ctx, c, cmd.OutOrStdout(), logger(c.Log, cmd.ErrOrStderr()))
	}
	return cmd
}

// logger returns the log that a checked configuration asks for.
func logger(c Log, out io.Writer) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(c.Level)) // it was checked
	o := &slog.HandlerOptions{Level: level}
	if c.Format == "json" {
		return slog.New(slog.NewJSONHandler(out, o))
	}
	return slog.New(slog.NewTextHandler(out, o))
}

func newConfig() *cobra.Command {
	var check string
	cmd := &cobra.Command{
		Use:     "config",
		Short:   "Print a configuration with all keys, or check one",
		Example: "  weida broker config > broker.toml\n  weida broker config --check broker.toml",
	}
	cmd.Flags().StringVar(&check, "check", "", "file to check")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if check == "" {
			_, err := io.WriteString(cmd.OutOrStdout(), Example)
			return err
		}
		if _, err := Load(check, func(*Config) {}); err != nil {
			return exit.Usage(err)
		}
		_, err := fmt.Fprintf(cmd.ErrOrStderr(), "%s: no faults\n", check)
		return err
	}
	return cmd
}
