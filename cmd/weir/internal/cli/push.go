package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	weir "github.com/weir-agent/weir/clients/go"
	"github.com/weir-agent/weir/ingest/frame"
	"github.com/weir-agent/weir/wab/record"
)

const maxLine = record.MaxBytes

// pushOptions are the flags of push.
type pushOptions struct {
	socket     string
	file       string
	durability string
	tracked    bool
	batch      int
	null       bool
	hex        bool
	asJSON     bool
	timeout    time.Duration
}

func newPush(s streams) *cobra.Command {
	var o pushOptions
	cmd := &cobra.Command{
		Use:   "push",
		Short: "Push records: each line of standard input is one",
		Long: "Pushes each line of standard input, or of a file, as one record, and waits for the acks. Empty lines are left out: a record has at least one byte.\n\n" +
			"The exit status is 0 only if every record was acked. What was not acked is counted and may or may not be stored.",
		Example: "  printf 'hello\\nworld\\n' | weir push\n  weir push --file app.log --batch 1000\n  find . -print0 | weir push --null --tracked",
	}
	socketFlag(cmd, &o.socket)
	f := cmd.Flags()
	f.StringVar(&o.file, "file", "", "read this file instead of standard input")
	f.StringVar(&o.durability, "durability", "durable", "durable or buffered")
	f.BoolVar(&o.tracked, "tracked", false, "print where each record landed: segment, index, id")
	f.IntVar(&o.batch, "batch", 512, "records in one frame, 1 to 2048 (1: plain pushes)")
	f.BoolVarP(&o.null, "null", "0", false, "records end with a NUL byte instead of a newline")
	f.BoolVar(&o.hex, "hex", false, "print the frame of each record instead of sending it")
	f.BoolVar(&o.asJSON, "json", false, "with --tracked: print JSON")
	f.DurationVar(&o.timeout, "timeout", 30*time.Second, "how long to wait for an answer")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return push(cmd.Context(), s, o)
	}
	return cmd
}

func push(ctx context.Context, s streams, o pushOptions) error {
	tier, err := record.ParseDurability(o.durability)
	if err != nil {
		return usage(fmt.Errorf("--durability: %q: use durable or buffered", o.durability))
	}
	if o.batch < 1 || o.batch > frame.MaxBatchRecords {
		return usage(fmt.Errorf("--batch: %d: 1 to %d are possible", o.batch, frame.MaxBatchRecords))
	}
	in := s.in
	size := int64(-1)
	if o.file != "" {
		f, err := os.Open(o.file)
		if err != nil {
			return fmt.Errorf("--file: %w", err)
		}
		defer f.Close() // only read
		if info, err := f.Stat(); err == nil {
			size = info.Size()
		}
		in = f
	}
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 0, 64<<10), maxLine+1)
	lines.Split(splitter(o.null))
	if o.hex {
		return pushHex(s, lines, tier)
	}
	client := weir.New(weir.Options{Path: o.socket, Timeout: o.timeout})
	defer client.Close() // always nil
	if err := client.Health(ctx); err != nil {
		return fmt.Errorf("socket %s: %w: %w", o.socket, err, errNotRunning)
	}
	var t tally
	if o.tracked {
		err = pushTracked(ctx, s, o, client, lines, tier, &t)
	} else {
		err = pushBatched(ctx, s, o, lines, tier, size, &t)
	}
	return t.verdict(s.err, err)
}

// splitter cuts at newlines, or at NUL bytes. Only one end is cut off a record: what else is in it stays.
func splitter(null bool) bufio.SplitFunc {
	end := byte('\n')
	if null {
		end = 0
	}
	return func(data []byte, atEOF bool) (int, []byte, error) {
		if i := bytes.IndexByte(data, end); i >= 0 {
			return i + 1, data[:i], nil
		}
		if atEOF && len(data) > 0 {
			return len(data), data, nil
		}
		return 0, nil, nil
	}
}

func pushHex(s streams, lines *bufio.Scanner, tier record.Durability) error {
	for lines.Scan() {
		if len(lines.Bytes()) == 0 {
			continue
		}
		if _, err := io.WriteString(s.out, hex.Dump(frame.Append(nil, frame.Push, tier, lines.Bytes()))); err != nil {
			return err
		}
	}
	return lines.Err()
}

// tally counts what became of the records. The producer calls add from its own goroutines.
type tally struct {
	mu    sync.Mutex
	read  int
	acked int
	first error // why the first record that was not acked was not
	at    int   // its number
}

func (t *tally) add(n int, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		t.acked++
		return
	}
	if t.first == nil {
		t.first, t.at = err, n
	}
}

// verdict says on w what was acked and returns the error of the whole.
func (t *tally) verdict(w io.Writer, err error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintf(w, "%d of %d records acked\n", t.acked, t.read)
	if t.first != nil {
		hint := ""
		if nack, ok := errors.AsType[*weir.NackError](t.first); ok && nack.Reason == frame.InternalError {
			hint = " (a cap is reached or the disk fails: weir status says which)"
		}
		err = errors.Join(err, fmt.Errorf("%d records were not acked and may or may not be stored; the first is record %d: %w%s", t.read-t.acked, t.at, t.first, hint))
	}
	return err
}

func pushTracked(ctx context.Context, s streams, o pushOptions, c *weir.Client, lines *bufio.Scanner, tier record.Durability, t *tally) error {
	out := json.NewEncoder(s.out)
	for lines.Scan() {
		if len(lines.Bytes()) == 0 {
			continue
		}
		t.read++
		at, err := c.PushTracked(ctx, tier, lines.Bytes())
		t.add(t.read, err)
		switch {
		case err != nil && weir.StateOf(err) == weir.Refused:
			return nil // the tally says it
		case err != nil:
			continue
		case o.asJSON:
			err = out.Encode(struct {
				Segment string    `json:"segment"`
				Index   uint64    `json:"index"`
				ID      record.ID `json:"id"`
			}{at.Segment, at.Index, at.ID})
		default:
			_, err = fmt.Fprintf(s.out, "%s\t%d\t%s\n", at.Segment, at.Index, at.ID)
		}
		if err != nil {
			return err
		}
	}
	return readError(lines.Err())
}

func readError(err error) error {
	if errors.Is(err, bufio.ErrTooLong) {
		return fmt.Errorf("a record is longer than %d bytes", maxLine)
	}
	return err
}

func pushBatched(ctx context.Context, s streams, o pushOptions, lines *bufio.Scanner, tier record.Durability, size int64, t *tally) error {
	p := weir.NewProducer(weir.ProducerOptions{Path: o.socket, Durability: tier, BatchRecords: o.batch, Timeout: o.timeout})
	bar := progress(s.err, size)
	var err error
	for lines.Scan() {
		payload := lines.Bytes()
		if len(payload) == 0 {
			continue
		}
		t.mu.Lock()
		t.read++
		n := t.read
		t.mu.Unlock()
		sendCtx, cancel := context.WithTimeout(ctx, o.timeout)
		err = p.Send(sendCtx, payload, func(out weir.Outcome) { t.add(n, out.Err) })
		cancel()
		if err != nil {
			t.add(n, err)
			break
		}
		_ = bar.Add(len(payload) + 1) // only a picture
	}
	closeCtx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	err = errors.Join(p.Close(closeCtx), readError(lines.Err()))
	_ = bar.Finish() // only a picture
	return err
}

// counted is standard output with a count of what has gone into it on standard error, where that is a terminal and the output is none. done ends it.
func counted(s streams) (out io.Writer, done func()) {
	if f, ok := s.out.(*os.File); !ok || term.IsTerminal(int(f.Fd())) {
		return s.out, func() {}
	}
	bar := progress(s.err, -1)
	return io.MultiWriter(s.out, bar), func() { _ = bar.Finish() } // only a picture
}

// progress is a bar on a terminal, and nothing elsewhere. A size of -1 is not known.
func progress(w io.Writer, size int64) *progressbar.ProgressBar {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return progressbar.DefaultBytesSilent(size)
	}
	return progressbar.NewOptions64(size, progressbar.OptionSetWriter(w), progressbar.OptionShowBytes(true), progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionClearOnFinish())
}

// lookAgain is how long a command that waits leaves the daemon alone.
const lookAgain = 20 * time.Millisecond

func newHealth(s streams) *cobra.Command {
	var socket string
	cmd := &cobra.Command{Use: "health", Short: "Ask the daemon whether it answers on its socket", Example: "  weir health\n  weir health --wait 10s --socket /run/weir/weir.sock"}
	socketFlag(cmd, &socket)
	timeout := cmd.Flags().Duration("timeout", 5*time.Second, "how long to wait for an answer")
	wait := cmd.Flags().Duration("wait", 0, "how long to wait for a daemon that is starting")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c := weir.New(weir.Options{Path: socket, Timeout: *timeout})
		defer c.Close() // always nil
		err := c.Health(cmd.Context())
		for begun := time.Now(); err != nil && time.Since(begun) < *wait && cmd.Context().Err() == nil; err = c.Health(cmd.Context()) {
			time.Sleep(lookAgain)
		}
		if err != nil {
			return fmt.Errorf("socket %s: %w: %w", socket, err, errNotRunning)
		}
		_, err = fmt.Fprintln(s.out, "healthy")
		return err
	}
	return cmd
}
