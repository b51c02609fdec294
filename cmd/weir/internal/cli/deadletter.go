package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-agent/weir/cmd/weir/internal/admin"
	"github.com/weir-agent/weir/cmd/weir/internal/config"
	"github.com/weir-agent/weir/drain/deadletter"
	"github.com/weir-agent/weir/wab/record"
	"github.com/weir-agent/weir/wab/vfs"
)

func newDeadletter(s streams) *cobra.Command {
	cmd := &cobra.Command{Use: "deadletter", Short: "Look at records that the sink refused for good, deliver them again or drop them"}
	cmd.AddCommand(newDeadletterList(s), newDeadletterShow(s), newDeadletterExport(s), newDeadletterChange(s, "requeue"), newDeadletterChange(s, "drop"))
	return cmd
}

// letters is an open store with its folder.
type letters struct {
	*deadletter.Store
	dir *vfs.Dir
}

func (l letters) close() error { return errors.Join(l.Store.Close(), l.dir.Close()) }

func openLetters(cfg config.Config, readOnly bool) (letters, error) {
	dir, err := vfs.OpenDir(filepath.Join(cfg.WAB.Dir, "deadletter"))
	if err != nil {
		return letters{}, fmt.Errorf("dead letters: %w", err)
	}
	store, err := deadletter.Open(dir, deadletter.Options{MaxBytes: int64(cfg.Drain.DeadletterMaxBytes), ReadOnly: readOnly})
	if err != nil {
		return letters{}, errors.Join(err, dir.Close())
	}
	return letters{store, dir}, nil
}

func newDeadletterList(s streams) *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "List the dead letters", Example: "  weir deadletter list --json | jq -r .reason | sort | uniq -c"}
	asJSON := cmd.Flags().Bool("json", false, "print JSON, one object a line, with the payload")
	load := configFlags(cmd)
	cmd.RunE = func(*cobra.Command, []string) (err error) {
		cfg, err := load()
		if err != nil {
			return err
		}
		l, err := openLetters(cfg, true)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, l.close()) }()
		enc := json.NewEncoder(s.out)
		w := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
		if !*asJSON {
			fmt.Fprintln(w, "ID\tDIED\tSTATUS\tATTEMPTS\tBYTES\tSTATE\tREASON")
		}
		var faults error
		for letter, err := range l.List() {
			switch {
			case err != nil:
				faults = errors.Join(faults, err)
			case *asJSON:
				if err := enc.Encode(letter); err != nil {
					return err
				}
			default:
				state := "dead"
				if letter.Requeued {
					state = "requeued"
				}
				fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%s\t%s\n", letter.ID, letter.Died.Format(time.RFC3339), letter.Status, letter.Attempts, len(letter.Payload), state, letter.Reason)
			}
		}
		return errors.Join(w.Flush(), faults)
	}
	return cmd
}

func newDeadletterShow(s streams) *cobra.Command {
	cmd := &cobra.Command{Use: "show ID", Short: "Print one dead letter as JSON", Example: "  weir deadletter show sha256:5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9", Args: cobra.ExactArgs(1)}
	load := configFlags(cmd)
	cmd.RunE = func(_ *cobra.Command, args []string) (err error) {
		id, err := record.ParseID(args[0])
		if err != nil {
			return usage(err)
		}
		cfg, err := load()
		if err != nil {
			return err
		}
		l, err := openLetters(cfg, true)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, l.close()) }()
		letter, err := l.Get(id)
		if err != nil {
			return err
		}
		enc := json.NewEncoder(s.out)
		enc.SetIndent("", "  ")
		return enc.Encode(letter)
	}
	return cmd
}

func newDeadletterExport(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use: "export", Short: "Write all dead letters as JSON lines to standard output",
		Example: "  weir deadletter export > letters.jsonl",
	}
	load := configFlags(cmd)
	cmd.RunE = func(*cobra.Command, []string) (err error) {
		cfg, err := load()
		if err != nil {
			return err
		}
		l, err := openLetters(cfg, true)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, l.close()) }()
		out, done := counted(s)
		n, err := l.Export(out)
		done()
		fmt.Fprintf(s.err, "%d letters exported\n", n)
		return err
	}
	return cmd
}

// changeText is the help of the two commands that change letters.
func changeText(verb string) (short, done string) {
	if verb == "drop" {
		return "Remove dead letters for good", "dropped"
	}
	return "Deliver dead letters again, under the same ids", "requeued"
}

func newDeadletterChange(s streams, verb string) *cobra.Command {
	short, done := changeText(verb)
	cmd := &cobra.Command{
		Use: verb + " ID...", Short: short, Args: cobra.ArbitraryArgs,
		Example: "  weir deadletter " + verb + " --all" + map[string]string{"drop": " --yes"}[verb],
		Long:    short + ". A running daemon does it; without one the store is changed directly, and delivery begins at the next start.",
	}
	all := cmd.Flags().Bool("all", false, "all letters")
	yes := cmd.Flags().Bool("yes", false, "do it: this cannot be undone")
	load := configFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		change := admin.LetterChange{All: *all}
		for _, a := range args {
			id, err := record.ParseID(a)
			if err != nil {
				return usage(fmt.Errorf("%q: %w", a, err))
			}
			change.IDs = append(change.IDs, id)
		}
		if *all == (len(args) > 0) {
			return usage(errors.New("name the letters, or give --all"))
		}
		if verb == "drop" && !*yes {
			return usage(errors.New("drop removes records for good: give --yes if that is meant"))
		}
		cfg, err := load()
		if err != nil {
			return err
		}
		n, err := changeLetters(cmd.Context(), cfg, verb, change)
		fmt.Fprintf(s.out, "%d letters %s\n", n, done)
		return err
	}
	return cmd
}

// changeLetters asks the daemon, or changes the store itself where none is running.
func changeLetters(ctx context.Context, cfg config.Config, verb string, change admin.LetterChange) (int, error) {
	if conn, err := net.DialTimeout("unix", cfg.Admin.Socket, adminTimeout); err == nil {
		if err := conn.Close(); err != nil {
			return 0, err
		}
		body, err := json.Marshal(change)
		if err != nil {
			return 0, err
		}
		answer, err := newAdminClient(cfg.Admin.Socket).send(ctx, http.MethodPost, "/api/v1/deadletter/"+verb, bytes.NewReader(body))
		if err != nil {
			return 0, err
		}
		var res admin.LetterResult
		if err := json.Unmarshal(answer, &res); err != nil {
			return 0, fmt.Errorf("the daemon's answer: %w", err)
		}
		if res.Error != "" {
			return res.Changed, errors.New(res.Error)
		}
		return res.Changed, nil
	}
	l, err := openLetters(cfg, false)
	if err != nil {
		return 0, err
	}
	res := admin.ChangeLetters(ctx, l.Store, verb, change)
	err = l.close()
	if res.Error != "" {
		err = errors.Join(errors.New(res.Error), err)
	}
	return res.Changed, err
}
