package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-agent/weir/cmd/weir-bench/internal/load"
	"github.com/weir-agent/weir/cmd/weir-bench/internal/proc"
	"github.com/weir-agent/weir/wab/record"
)

// countedCalls are the system calls on the way of a record, as strace names them.
var countedCalls = []string{"read", "write", "pwrite64", "fdatasync", "pread64", "epoll_pwait", "futex"}

const straceTimeout = 5 * time.Second

func newSyscalls(out io.Writer) *cobra.Command {
	var c common
	cmd := &cobra.Command{Use: "syscalls", Short: "Count the daemon's system calls for each record and each group, by strace -c (it slows everything down)"}
	c.flags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		fmt.Fprintf(w, "producers, one at a time\trecords\trecords/group\t%s\n", strings.Join(countedCalls, "\t"))
		for _, producers := range []int{1, 16, 256} {
			dir, remove, err := c.workDir()
			if err != nil {
				return err
			}
			err = c.syscalls(cmd.Context(), w, dir, producers)
			remove()
			if err != nil {
				return err
			}
		}
		fmt.Fprintln(w, "(calls for each record; pread64, futex and a part of read and epoll_pwait are the drain's and the runtime's)")
		return w.Flush()
	}
	return cmd
}

func (c *common) syscalls(ctx context.Context, w io.Writer, dir string, producers int) error {
	counts := filepath.Join(dir, "strace")
	d, err := proc.StartUnder(ctx, []string{"strace", "-D", "-f", "-c", "-o", counts}, c.weir, filepath.Join(dir, "data"), "--sink", "discard", "--log-level", "error")
	if err != nil {
		return err
	}
	r, err := load.Run(ctx, load.Options{Socket: d.Socket, Connections: producers, InFlight: 1, Batch: 1, Tier: record.Durable, Bytes: c.bytes, Duration: c.duration})
	if err != nil {
		return err
	}
	records, syncs, err := d.Commits(ctx)
	if err != nil {
		return err
	}
	if err := d.Stop(); err != nil {
		return err
	}
	calls, err := straceCounts(counts)
	for until := time.Now().Add(straceTimeout); err == nil && calls["fdatasync"] == 0 && time.Now().Before(until); time.Sleep(straceTimeout / 100) {
		calls, err = straceCounts(counts) // strace writes it when it has seen the daemon's end
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "%d\t%d\t%.1f", producers, records, float64(records)/float64(max(1, syncs)))
	for _, name := range countedCalls {
		fmt.Fprintf(w, "\t%.3f", float64(calls[name])/float64(max(1, r.Records)))
	}
	_, err = fmt.Fprintln(w)
	return err
}

// straceCounts reads the table of strace -c: the calls by name.
func straceCounts(path string) (map[string]int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() // only read
	out := map[string]int64{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 5 {
			continue
		}
		if n, err := strconv.ParseInt(fields[3], 10, 64); err == nil {
			out[fields[len(fields)-1]] = n
		}
	}
	return out, lines.Err()
}
