// Package queuecmd is `weida queue`: looking at the queues of a broker without taking anything out of them.
package queuecmd

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-agent/weir/cmd/weida/internal/brokerapi"
	"github.com/weir-agent/weir/cmd/weida/internal/exit"
)

// look is the flags of a command that asks a broker.
type look struct {
	admin string
	json  bool
}

func (l *look) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&l.admin, "admin", filepath.Join("weida-data", "admin.sock"), "the broker's admin socket, or host:port for list")
	cmd.Flags().BoolVar(&l.json, "json", false, "print JSON, payloads in base64")
}

// Command returns `weida queue`.
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "queue",
		Short: "Look at the queues of a broker on this machine",
	}
	cmd.AddCommand(newList(), newPeek(), newTail())
	return cmd
}

func newList() *cobra.Command {
	var l look
	var wait time.Duration
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the queues and what is in them",
		Example: "  weida queue list\n  weida queue list --wait 10s\n  weida queue list --json --admin 127.0.0.1:9186",
	}
	l.register(cmd)
	cmd.Flags().DurationVar(&wait, "wait", 0, "how long to wait for the broker to be ready")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		client := brokerapi.NewClient(l.admin)
		if wait > 0 {
			ctx, cancel := context.WithTimeout(cmd.Context(), wait)
			defer cancel()
			if err := client.WaitReady(ctx); err != nil {
				return err
			}
		}
		queues, err := client.Queues(cmd.Context())
		if err != nil {
			return err
		}
		out := cmd.OutOrStdout()
		if l.json {
			return json.NewEncoder(out).Encode(brokerapi.Queues{Queues: queues})
		}
		w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "QUEUE\tMESSAGES\tUNSETTLED\tDEAD\tBYTES\tCONSUMERS\tADMITTED\tSETTLED\tREFUSED\tSTATE")
		for _, q := range queues {
			state := "ok"
			if q.StoreError != "" {
				state = q.StoreError
			}
			fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%s\n", q.Path, q.Messages, q.Unsettled, q.Dead, q.Bytes, q.Consumers, q.Admitted, q.Settled, q.Refused, state)
		}
		return w.Flush()
	}
	return cmd
}

func newPeek() *cobra.Command {
	var l look
	var after uint64
	var limit int
	var raw bool
	cmd := &cobra.Command{
		Use:     "peek QUEUE",
		Short:   "Show the oldest messages of a queue and leave them there",
		Example: "  weida queue peek /logs\n  weida queue peek /logs --after 120 --limit 1 --raw > message",
		Args:    cobra.ExactArgs(1),
	}
	l.register(cmd)
	cmd.Flags().Uint64Var(&after, "after", 0, "show what comes behind the message of this number")
	cmd.Flags().IntVarP(&limit, "limit", "n", 10, "how many messages")
	cmd.Flags().BoolVar(&raw, "raw", false, "print the payloads alone, as they are")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := checkLimit(limit); err != nil {
			return err
		}
		found, err := brokerapi.NewClient(l.admin).Peek(cmd.Context(), args[0], after, limit, 0)
		if err != nil {
			return err
		}
		return l.print(cmd.OutOrStdout(), found, raw)
	}
	return cmd
}

func newTail() *cobra.Command {
	var l look
	var limit int
	var follow, raw bool
	cmd := &cobra.Command{
		Use:   "tail QUEUE",
		Short: "Show the newest messages of a queue, and those that arrive",
		Long: "Shows the newest messages of a queue and leaves them there. With --follow it goes on with what arrives, until it is interrupted; a message that is settled " +
			"sooner than it can be looked at is not shown.",
		Example: "  weida queue tail /logs -n 1\n  weida queue tail /logs --follow",
		Args:    cobra.ExactArgs(1),
	}
	l.register(cmd)
	cmd.Flags().IntVarP(&limit, "limit", "n", 10, "how many messages")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on with what arrives")
	cmd.Flags().BoolVar(&raw, "raw", false, "print the payloads alone, as they are")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := checkLimit(limit); err != nil {
			return err
		}
		ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		client := brokerapi.NewClient(l.admin)
		found, err := client.Newest(ctx, args[0], limit)
		for last := uint64(0); ; {
			if err != nil {
				return err
			}
			if err := l.print(cmd.OutOrStdout(), found, raw); err != nil || !follow {
				return err
			}
			if n := len(found); n > 0 {
				last = found[n-1].Seq
			}
			if found, err = client.Peek(ctx, args[0], last, brokerapi.MaxMessages, brokerapi.MaxWait); ctx.Err() != nil {
				return nil
			}
		}
	}
	return cmd
}

func checkLimit(n int) error {
	if n < 1 || n > brokerapi.MaxMessages {
		return exit.Usage(fmt.Errorf("--limit %d is not 1 to %d", n, brokerapi.MaxMessages))
	}
	return nil
}

// print writes messages, one a line unless raw is set.
func (l *look) print(out io.Writer, found []brokerapi.Message, raw bool) error {
	for _, m := range found {
		if (raw || l.json) && len(m.Payload) < m.Bytes {
			return fmt.Errorf("message %d has %d bytes, of which one answer holds %d: look at fewer messages, or take it with `weida sub`", m.Seq, m.Bytes, len(m.Payload))
		}
		var err error
		switch {
		case raw:
			_, err = out.Write(m.Payload)
		case l.json:
			err = json.NewEncoder(out).Encode(m)
		default:
			_, err = fmt.Fprintf(out, "%d  %s  attempts %d  %d bytes  %s%s\n", m.Seq, m.State, m.Attempts, m.Bytes, topic(m.Topic), shown(m))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func topic(t string) string {
	if t == "" {
		return ""
	}
	return strconv.Quote(t) + "  "
}

// shownBytes is how much of a payload a line shows.
const shownBytes = 200

// shown is the beginning of a payload, such that no byte of it does anything to a terminal.
func shown(m brokerapi.Message) string {
	text := strconv.Quote(string(m.Payload[:min(len(m.Payload), shownBytes)]))
	if m.Bytes > shownBytes {
		text += "…"
	}
	return text
}
