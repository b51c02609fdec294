package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/weir-agent/weir/cmd/weir/internal/admin"
	"github.com/weir-agent/weir/cmd/weir/internal/config"
)

const adminTimeout = 30 * time.Second

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
		if wrapped, ok := errors.AsType[*url.Error](err); ok {
			err = wrapped.Err // without an address that the user never wrote
		}
		return nil, fmt.Errorf("admin socket %s: %w: %w", c.path, err, errNotRunning)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("admin socket %s: %w", c.path, err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, errors.New(strings.TrimSpace(string(answer)))
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

const defaultWatch = 2 * time.Second

func newStatus(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use: "status", Short: "Show what the daemon is doing, on one screen",
		Long:    "Shows whether pushes are accepted, the backlog by shard, what the delivery does and its last error, dead letters, quarantine and disk. The exit status is 1 where no daemon answers.",
		Example: "  weir status\n  weir status --watch\n  weir status --json | jq .backlog_records",
	}
	asJSON := cmd.Flags().Bool("json", false, "print JSON, as GET /api/v1/status answers it")
	watch := cmd.Flags().Bool("watch", false, "show it again and again until interrupted")
	every := cmd.Flags().Duration("interval", defaultWatch, "with --watch: how often")
	client := adminFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := client()
		if err != nil {
			return err
		}
		if !*watch {
			return showStatus(cmd.Context(), s.out, c, *asJSON)
		}
		if *every <= 0 {
			return usage(fmt.Errorf("--interval: %v: must be above 0", *every))
		}
		ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		return watchStatus(ctx, s.out, c, *asJSON, *every)
	}
	return cmd
}

// watchStatus shows the status until ctx ends. That a daemon does not answer is shown, too: it may come back.
func watchStatus(ctx context.Context, w io.Writer, c *adminClient, asJSON bool, every time.Duration) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		var screen bytes.Buffer
		if err := showStatus(ctx, &screen, c, asJSON); err != nil && ctx.Err() == nil {
			fmt.Fprintln(&screen, err)
		}
		if ctx.Err() != nil {
			return nil
		}
		if !asJSON && isTerminal(w) {
			fmt.Fprint(w, "\x1b[H\x1b[2J") // to the top, and clear
		}
		if _, err := w.Write(screen.Bytes()); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

func showStatus(ctx context.Context, w io.Writer, c *adminClient, asJSON bool) error {
	body, err := c.do(ctx, http.MethodGet, "/api/v1/status")
	if err != nil {
		return err
	}
	if asJSON {
		_, err := w.Write(body)
		return err
	}
	var st admin.Status
	if err := json.Unmarshal(body, &st); err != nil {
		return fmt.Errorf("the daemon's answer: %w", err)
	}
	return printStatus(w, st, time.Now())
}

// printStatus writes one screen: what is wrong first.
func printStatus(out io.Writer, st admin.Status, now time.Time) error {
	accepting := "accepting pushes"
	if !st.Ready {
		accepting = "NOT READY"
	}
	fmt.Fprintf(out, "weir %s, up %s: %s\n", st.Version, now.Sub(st.Started).Round(time.Second), accepting)
	for _, text := range st.NotReady {
		fmt.Fprintf(out, "  ! %s\n", text)
	}
	for _, text := range st.Warnings {
		fmt.Fprintf(out, "  - %s\n", text)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	backlog := fmt.Sprintf("%d records, %s", st.BacklogRecords, human(st.BacklogBytes))
	if st.BacklogRecords > 0 {
		backlog += ", the oldest " + age(st.OldestAgeSeconds) + " old"
	}
	fmt.Fprintf(w, "backlog\t%s\n", backlog)
	fmt.Fprintf(w, "sink\t%s %s\n", st.Sink.Type, st.Sink.Target)
	if st.Sink.Identity != "" {
		fmt.Fprintf(w, "own key\t%s\n", st.Sink.Identity)
	}
	fmt.Fprintf(w, "acks\tp50 %s, p99 %s; %d records acked\n", seconds(st.Producers.AckP50Seconds), seconds(st.Producers.AckP99Seconds), st.Producers.AckedRecords)
	fmt.Fprintf(w, "disk\tlog %s of %s; file system %s free of %s\n", human(st.UsedBytes), human(st.MaxBytes), human(st.FreeBytes), human(st.DiskBytes))
	fmt.Fprintf(w, "dead letters\t%d, %s of %s; %d of them requeued\n", st.DeadLetters.Records, human(st.DeadLetters.Bytes), human(st.DeadLetters.MaxBytes), st.DeadLetters.Requeued)
	fmt.Fprintf(w, "quarantine\t%d copies, %s; since the start %d pieces of damage, %d records lost\n", st.Quarantine.Reports, human(st.Quarantine.Kept), st.Quarantine.Damaged, st.Quarantine.Lost)
	fmt.Fprintf(w, "socket\t%s, %d connections\n", st.Socket, st.Producers.Connections)
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(out)
	w = tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SHARD\tDRAIN\tBEHIND\tOLDEST\tDELIVERED\tSENT AGAIN\tFSYNC P50\tP99\tLAST ERROR")
	for _, sh := range st.Shards {
		oldest, last := "-", "-"
		if sh.BacklogRecords > 0 {
			oldest = age(sh.OldestAgeSeconds)
		}
		if sh.Drain.LastErrorTime != nil {
			last = fmt.Sprintf("%s ago: %s", now.Sub(*sh.Drain.LastErrorTime).Round(time.Second), sh.Drain.LastError)
		}
		fmt.Fprintf(w, "%d\t%s\t%d\t%s\t%d\t%d\t%s\t%s\t%s\n", sh.Shard, sh.Drain.State, sh.BacklogRecords, oldest,
			sh.Drain.Delivered, sh.Drain.Retried, seconds(sh.SyncP50Seconds), seconds(sh.SyncP99Seconds), last)
	}
	return w.Flush()
}

func human(n int64) string { return config.Size(n).Human() }

func age(s float64) string { return seconds(s).Round(time.Second).String() }

func seconds(v float64) time.Duration { return time.Duration(v * float64(time.Second)) }

func newDrain(s streams) *cobra.Command {
	cmd := &cobra.Command{Use: "drain", Short: "Pause delivery, resume it, or wait until it is done"}
	for _, verb := range []struct{ use, short string }{{"pause", "Stop delivering; pushes go on being accepted"}, {"resume", "Deliver again"}} {
		sub := &cobra.Command{Use: verb.use, Short: verb.short, Example: "  weir drain " + verb.use}
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
	cmd.AddCommand(newDrainWait(s))
	return cmd
}

func newDrainWait(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use: "wait", Short: "Wait until everything that was pushed is delivered",
		Long:    "Waits until no record waits for delivery. The exit status is 1 if --timeout passes before, or if the daemon stops answering.",
		Example: "  weir drain wait\n  weir drain wait --timeout 1h",
	}
	timeout := cmd.Flags().Duration("timeout", 0, "how long to wait at most; 0: for ever")
	client := adminFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := client()
		if err != nil {
			return err
		}
		ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		for begun := time.Now(); ; time.Sleep(lookAgain) {
			body, err := c.do(ctx, http.MethodGet, "/api/v1/status")
			if err != nil {
				return err
			}
			var st admin.Status
			if err := json.Unmarshal(body, &st); err != nil {
				return fmt.Errorf("the daemon's answer: %w", err)
			}
			if st.BacklogRecords == 0 {
				_, err := fmt.Fprintln(s.out, "everything is delivered")
				return err
			}
			if *timeout > 0 && time.Since(begun) > *timeout {
				return fmt.Errorf("%d records still wait for delivery after %v: weir status says why", st.BacklogRecords, *timeout)
			}
		}
	}
	return cmd
}

func newReload(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use: "reload", Short: "Have the daemon read its configuration again",
		Example: "  weir reload\n  weir config check --config /etc/weir/weir.toml && weir reload",
		Long: "Puts into force what can be changed while the daemon runs (log level, delivery, the HTTP and the weida sink, runtime) and names what needs a restart. " +
			"A faulty configuration changes nothing. SIGHUP does the same, and the answer is in the log.",
	}
	asJSON := cmd.Flags().Bool("json", false, "print JSON")
	client := adminFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := client()
		if err != nil {
			return err
		}
		body, err := c.do(cmd.Context(), http.MethodPost, "/api/v1/reload")
		if err != nil {
			return err
		}
		if *asJSON {
			_, err := s.out.Write(body)
			return err
		}
		var res admin.ReloadResult
		if err := json.Unmarshal(body, &res); err != nil {
			return fmt.Errorf("the daemon's answer: %w", err)
		}
		if len(res.Changed) == 0 {
			fmt.Fprintln(s.out, "nothing to change")
		} else {
			fmt.Fprintf(s.out, "changed: %s\n", strings.Join(res.Changed, ", "))
		}
		if len(res.NeedRestart) > 0 {
			fmt.Fprintf(s.out, "changed in the configuration, needs a restart: %s\n", strings.Join(res.NeedRestart, ", "))
		}
		return nil
	}
	return cmd
}
