package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/weir-agent/weir/cmd/weir/internal/config"
	"github.com/weir-agent/weir/cmd/weir/internal/daemon"
)

// sourceFlags adds --config and the flags of run, and returns where the configuration comes from then.
func sourceFlags(cmd *cobra.Command) func() config.Source {
	path := cmd.Flags().String("config", os.Getenv("WEIR_CONFIG"), "TOML file (default from WEIR_CONFIG)")
	values := map[string]*string{}
	for _, k := range config.Reference() {
		if k.Flag != "" && cmd.Flags().Lookup(k.Flag) == nil {
			values[k.Name] = cmd.Flags().String(k.Flag, "", k.Help)
		}
	}
	return func() config.Source {
		set := map[string]string{}
		for _, k := range config.Reference() {
			if v := values[k.Name]; v != nil && cmd.Flags().Changed(k.Flag) {
				set[k.Name] = *v
			}
		}
		return config.Source{File: *path, Env: os.Environ(), Flags: set}
	}
}

// configFlags adds --config and the flags of run, and returns how to load what they say.
func configFlags(cmd *cobra.Command) func() (config.Config, error) {
	source := sourceFlags(cmd)
	return func() (config.Config, error) {
		cfg, err := config.Load(source())
		return cfg, usage(err)
	}
}

func newRun(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the daemon",
		Example: `  weir run
  weir run --sink http --sink-url https://logs.example.com/in
  weir run --config /etc/weir/weir.toml`,
	}
	load := configFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := load()
		if err != nil {
			return err
		}
		return run(cmd.Context(), s, cfg)
	}
	return cmd
}

// run serves until SIGTERM or SIGINT; a second one ends the process at once.
func run(ctx context.Context, s streams, cfg config.Config) error {
	logger := newLogger(s.err, cfg.Log)
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, os.Interrupt)
	defer stop()
	d, err := daemon.New(cfg, logger)
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, stop) // the next signal has its default effect
	if err := d.Run(ctx); err != nil {
		return fmt.Errorf("stopped: %w", err)
	}
	return nil
}

func newLogger(w io.Writer, cfg config.Log) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(cfg.Level)); err != nil {
		level = slog.LevelInfo // cannot happen: the configuration was checked
	}
	opts := &slog.HandlerOptions{Level: level}
	if cfg.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}

// errNotRunning is the hint behind a failed connection to the daemon.
var errNotRunning = errors.New("is the daemon running, and is this its path? (weir run says it at its start)")
