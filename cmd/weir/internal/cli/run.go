package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/weir-agent/weir/cmd/weir/internal/config"
	"github.com/weir-agent/weir/cmd/weir/internal/daemon"
)

// packaged is the configuration of the packaged daemon, and packagedSocket its socket.
const (
	packaged       = "/etc/weir/weir.toml"
	packagedSocket = "/run/weir/weir.sock"
)

// servesHere reports whether who works in this folder means the packaged daemon: it is there, and no data is here.
func servesHere() bool {
	_, here := os.Stat(config.Default().WAB.Dir)
	_, there := os.Stat(packaged)
	return os.Getenv("WEIR_DATA_DIR") == "" && errors.Is(here, fs.ErrNotExist) && there == nil
}

// sourceFlags adds --config and the flags of run, and returns where the configuration comes from then.
func sourceFlags(cmd *cobra.Command) func() config.Source {
	path := cmd.Flags().String("config", "", "TOML file (default from WEIR_CONFIG; for all but run also "+packaged+" where there is no ./weir-data)")
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
		file := *path
		if file == "" {
			file = os.Getenv("WEIR_CONFIG")
		}
		if file == "" && cmd.Name() != "run" && servesHere() {
			file = packaged
		}
		return config.Source{File: file, Env: os.Environ(), Flags: set}
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
  weir run --sink weida --sink-url weida://sha256:FINGERPRINT@broker.example.com:7443/orders
  weir run --config /etc/weir/weir.toml`,
	}
	source := sourceFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		load := func() (config.Config, error) { return config.Load(source()) }
		cfg, err := load()
		if err != nil {
			return usage(err)
		}
		return run(cmd.Context(), s, cfg, load)
	}
	return cmd
}

// run serves until SIGTERM or SIGINT; a second one ends the process at once. SIGHUP reads the configuration again.
func run(ctx context.Context, s streams, cfg config.Config, load func() (config.Config, error)) error {
	level := new(slog.LevelVar)
	logger := newLogger(s.err, cfg.Log, level)
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, os.Interrupt)
	defer stop()
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	d, err := daemon.New(daemon.Options{Config: cfg, Log: logger, Level: level, Reread: load})
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, stop) // the next signal has its default effect
	reloads := make(chan struct{})
	go func() {
		defer close(reloads)
		reloadOnSignal(ctx, d, hup, logger)
	}()
	err = d.Run(ctx)
	stop()
	<-reloads
	if err != nil {
		return fmt.Errorf("stopped: %w", err)
	}
	return nil
}

func reloadOnSignal(ctx context.Context, d *daemon.Daemon, hup <-chan os.Signal, logger *slog.Logger) {
	for {
		select {
		case <-hup:
			if _, err := d.Reload(ctx); err != nil {
				logger.Error("SIGHUP", "error", err)
			}
		case <-ctx.Done():
			return
		}
	}
}

// newLogger makes the log; the daemon sets its level.
func newLogger(w io.Writer, cfg config.Log, level *slog.LevelVar) *slog.Logger {
	opts := &slog.HandlerOptions{Level: level}
	if cfg.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}

// errNotRunning is the hint behind a failed connection to the daemon.
var errNotRunning = errors.New("is the daemon running, and is this its path? (weir run says it at its start)")
