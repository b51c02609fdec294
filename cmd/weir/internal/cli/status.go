package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-agent/weir/cmd/weir/internal/admin"
	"github.com/weir-agent/weir/cmd/weir/internal/config"
	"github.com/weir-agent/weir/cmd/weir/internal/daemon"
)

const adminTimeout = 10 * time.Second

// adminClient talks to the admin socket of a daemon.
type adminClient struct {
	path string
	http http.Client
}

func newAdminClient(path string) *adminClient {
	return &adminClient{path: path, http: http.Client{
		Timeout: adminTimeout,
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}},
	}}
}

const maxAnswer = 16 << 20

func (c *adminClient) do(ctx context.Context, method, path string) ([]byte, error) {
	return c.send(ctx, method, path, nil)
}

// send asks with a body.
func (c *adminClient) send(ctx context.Context, method, path string, body io.Reader) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://weir"+path, body)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("admin socket %s: %w: %w", c.path, err, errNotRunning)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("admin socket %s: %w", c.path, err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("admin socket %s: %s: %s", c.path, resp.Status, answer)
	}
	return answer, nil
}

// adminFlag adds --admin-socket, by default the one of the configuration.
func adminFlag(cmd *cobra.Command) func() (*adminClient, error) {
	path := cmd.Flags().String("admin-socket", "", "path of the daemon's admin socket (default: as configured)")
	load := configFlags(cmd)
	return func() (*adminClient, error) {
		if *path != "" {
			return newAdminClient(*path), nil
		}
		cfg, err := load()
		if err != nil {
			return nil, err
		}
		return newAdminClient(cfg.Admin.Socket), nil
	}
}

func newStatus(s streams) *cobra.Command {
	cmd := &cobra.Command{Use: "status", Short: "Show what the daemon is doing"}
	asJSON := cmd.Flags().Bool("json", false, "print JSON")
	client := adminFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := client()
		if err != nil {
			return err
		}
		body, err := c.do(cmd.Context(), http.MethodGet, "/api/v1/status")
		if err != nil {
			return err
		}
		if *asJSON {
			_, err := s.out.Write(body)
			return err
		}
		var st admin.Status
		if err := json.Unmarshal(body, &st); err != nil {
			return fmt.Errorf("the daemon's answer: %w", err)
		}
		printStatus(s.out, st)
		return nil
	}
	return cmd
}

func printStatus(w io.Writer, st admin.Status) {
	accepting := "accepting pushes"
	if !st.Ready {
		accepting = "NOT READY: " + errors.Join(toErrors(st.NotReady)...).Error()
	}
	fmt.Fprintf(w, "weir %s, up %s: %s\n", st.Version, time.Since(st.Started).Round(time.Second), accepting)
	fmt.Fprintf(w, "socket       %s (%d connections)\n", st.Socket, st.Producers.Connections)
	fmt.Fprintf(w, "sink         %s %s\n", st.Sink.Type, st.Sink.Target)
	fmt.Fprintf(w, "backlog      %d records, %s", st.BacklogRecords, config.Size(st.BacklogBytes).Human())
	if st.BacklogRecords > 0 {
		fmt.Fprintf(w, ", the oldest %s old", time.Duration(st.OldestAgeSeconds*float64(time.Second)).Round(time.Second))
	}
	fmt.Fprintf(w, "\ndisk         %s of %s used\n", config.Size(st.UsedBytes).Human(), config.Size(st.MaxBytes).Human())
	fmt.Fprintf(w, "dead letters %d, quarantine: %d pieces of damage, %d records lost\n", st.DeadLetters.Records, st.Quarantine.Damaged, st.Quarantine.Lost)
	for _, sh := range st.Shards {
		fmt.Fprintf(w, "shard %-2d     %d records behind, drain %s, %d delivered, fsync p50 %s p99 %s\n", sh.Shard, sh.BacklogRecords, sh.Drain.State,
			sh.Drain.Delivered, seconds(sh.SyncP50Seconds), seconds(sh.SyncP99Seconds))
		if sh.Drain.LastError != "" {
			fmt.Fprintf(w, "             last error: %s\n", sh.Drain.LastError)
		}
		for _, f := range sh.Faults {
			fmt.Fprintf(w, "             %s fails since %s: %s\n", f.Step, f.Since.Format(time.RFC3339), f.Error)
		}
	}
}

func toErrors(texts []string) (errs []error) {
	for _, t := range texts {
		errs = append(errs, errors.New(t))
	}
	return errs
}

func seconds(v float64) time.Duration { return time.Duration(v * float64(time.Second)) }

func newDrain(s streams) *cobra.Command {
	cmd := &cobra.Command{Use: "drain", Short: "Pause or resume delivery"}
	for _, verb := range []struct{ use, short string }{{"pause", "Stop delivering; pushes go on being accepted"}, {"resume", "Deliver again"}} {
		sub := &cobra.Command{Use: verb.use, Short: verb.short}
		client := adminFlag(sub)
		sub.RunE = func(cmd *cobra.Command, _ []string) error {
			c, err := client()
			if err != nil {
				return err
			}
			body, err := c.do(cmd.Context(), http.MethodPost, "/api/v1/drain/"+verb.use)
			if err != nil {
				return err
			}
			_, err = s.out.Write(body)
			return err
		}
		cmd.AddCommand(sub)
	}
	return cmd
}

func newVersion(s streams) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version",
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintf(s.out, "weir %s, wire version 1\n", daemon.Version())
			return err
		},
	}
}
