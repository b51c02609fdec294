package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-agent/weir/cmd/weir/internal/receive"
	"github.com/weir-agent/weir/wab/vfs"
)

const receiveStop = 5 * time.Second

func newReceive(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "receive",
		Short: "Run an HTTP endpoint that stores what it gets and drops repeats, for trying things out",
		Long: "Stores each record as a line of a file, with its key, before it answers. A record whose Idempotency-Key was seen is counted and dropped, " +
			"also after a restart. GET /stats gives the counts.",
		Example: "  weir receive --listen 127.0.0.1:8080 --out received.jsonl",
	}
	listen := cmd.Flags().String("listen", "127.0.0.1:8080", "host:port to listen on")
	out := cmd.Flags().String("out", "received.jsonl", "file to store records in")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return runReceive(cmd.Context(), s, *listen, *out)
	}
	return cmd
}

func runReceive(ctx context.Context, s streams, listen, out string) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, os.Interrupt)
	defer stop()
	dir, err := vfs.OpenDir(filepath.Dir(out))
	if err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	defer dir.Close() // nothing is written by it
	r, err := receive.Open(receive.Options{FS: dir, Name: filepath.Base(out)})
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return errors.Join(fmt.Errorf("--listen: %w", err), r.Close())
	}
	fmt.Fprintf(s.err, "receiving on http://%s/, storing in %s\n", l.Addr(), out)
	server := &http.Server{Handler: r, ReadHeaderTimeout: adminTimeout}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	select {
	case err = <-served:
	case <-ctx.Done():
		limit, cancel := context.WithTimeout(context.Background(), receiveStop)
		defer cancel()
		err = server.Shutdown(limit)
	}
	err = errors.Join(err, r.Close())
	st := r.Stats()
	fmt.Fprintf(s.out, "received %d, stored %d, repeats dropped %d\n", st.Received, st.Stored, st.Repeats)
	return err
}
