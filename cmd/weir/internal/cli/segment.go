package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/weir-agent/weir/cmd/weir/internal/config"
	"github.com/weir-agent/weir/wab"
	"github.com/weir-agent/weir/wab/record"
	"github.com/weir-agent/weir/wab/vfs"
)

// onData makes run what cmd does, on the data folder that its flags or the configuration name, opened for reading.
func onData(cmd *cobra.Command, run func(dir *vfs.Dir, args []string) error) {
	load := configFlags(cmd)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		cfg, err := load()
		if err != nil {
			return err
		}
		dir, err := vfs.OpenDir(cfg.WAB.Dir)
		if err != nil {
			return fmt.Errorf("data folder: %w", err)
		}
		defer dir.Close() // only read
		return run(dir, args)
	}
}

func newSegment(s streams) *cobra.Command {
	cmd := &cobra.Command{Use: "segment", Short: "Look into the log, running or not"}
	cmd.AddCommand(newSegmentSeal(s), newSegmentList(s), newSegmentInspect(s), newSegmentDump(s), newSegmentVerify(s))
	return cmd
}

// onSegments runs do on the segments of the data folder, or on those that are named.
func onSegments(dir *vfs.Dir, names []string, do func(wab.SegmentInfo) error) error {
	all, err := wab.Segments(dir)
	if err != nil {
		return err
	}
	wanted := map[string]bool{}
	for _, n := range names {
		wanted[n] = true
	}
	for _, info := range all {
		if len(names) > 0 && !wanted[info.Name] && !wanted[info.Address] {
			continue
		}
		delete(wanted, info.Name)
		delete(wanted, info.Address)
		if err := do(info); err != nil {
			return err
		}
	}
	for n := range wanted {
		return fmt.Errorf("there is no segment %s: weir segment list shows what there is", n)
	}
	return nil
}

type segmentRow struct {
	Name    string     `json:"name"`
	Shard   int        `json:"shard"`
	Number  uint64     `json:"number"`
	Sealed  bool       `json:"sealed"`
	Bytes   int64      `json:"bytes"`
	Records uint64     `json:"records"`
	First   *time.Time `json:"first,omitempty"`
	Last    *time.Time `json:"last,omitempty"`
	Problem string     `json:"problem,omitempty"`
}

func rowOf(i wab.SegmentInfo) segmentRow {
	r := segmentRow{Name: i.Name, Shard: i.Shard, Number: i.Number, Sealed: i.Sealed, Bytes: i.Bytes, Records: i.Records, Problem: i.Problem}
	if !i.First.IsZero() {
		r.First, r.Last = &i.First, &i.Last
	}
	return r
}

func newSegmentList(s streams) *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "List the segments", Example: "  weir segment list --data-dir /var/lib/weir"}
	asJSON := cmd.Flags().Bool("json", false, "print JSON, one object a line")
	onData(cmd, func(dir *vfs.Dir, _ []string) error {
		enc := json.NewEncoder(s.out)
		w := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
		if !*asJSON {
			fmt.Fprintln(w, "SEGMENT\tSTATE\tSIZE\tRECORDS\tLAST APPEND\tPROBLEM")
		}
		err := onSegments(dir, nil, func(i wab.SegmentInfo) error {
			if *asJSON {
				return enc.Encode(rowOf(i))
			}
			state, records, last := "open", "-", "-"
			if i.Sealed {
				state, records = "sealed", fmt.Sprint(i.Records)
			}
			if !i.Last.IsZero() {
				last = i.Last.Format(time.RFC3339)
			}
			_, err := fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", i.Name, state, config.Size(i.Bytes).Human(), records, last, i.Problem)
			return err
		})
		return errors.Join(err, w.Flush())
	})
	return cmd
}

func newSegmentInspect(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use: "inspect SEGMENT...", Short: "Print what header and footer of a segment say",
		Example: "  weir segment inspect shard_00/seg_00000001-0123456789abcdef.wab.sealed",
		Args:    cobra.MinimumNArgs(1),
	}
	onData(cmd, func(dir *vfs.Dir, args []string) error {
		enc := json.NewEncoder(s.out)
		enc.SetIndent("", "  ")
		return onSegments(dir, args, func(i wab.SegmentInfo) error { return enc.Encode(rowOf(i)) })
	})
	return cmd
}

// dumped is a record as dump prints it.
type dumped struct {
	record.Coordinate
	Appended time.Time
	Payload  []byte
}

// MarshalJSON implements json.Marshaler.
func (d dumped) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		ID       record.ID `json:"id"`
		Segment  string    `json:"segment"`
		Index    uint64    `json:"index"`
		Appended time.Time `json:"appended"`
		Payload  string    `json:"payload,omitempty"`
		Base64   []byte    `json:"payload_base64,omitempty"`
	}{d.ID, d.Segment, d.Index, d.Appended, textOf(d.Payload), binaryOf(d.Payload)})
}

// textOf and binaryOf are the two forms of a payload in JSON: text where it is UTF-8, base64 elsewhere.
func textOf(payload []byte) string {
	if !utf8.Valid(payload) {
		return ""
	}
	return string(payload)
}

func binaryOf(payload []byte) []byte {
	if utf8.Valid(payload) {
		return nil
	}
	return payload
}

func newSegmentDump(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use: "dump [SEGMENT...]", Short: "Print the records of segments as JSON lines, delivered or not", Args: cobra.ArbitraryArgs,
		Example: "  weir segment dump --data-dir /var/lib/weir | jq -r .payload",
	}
	onData(cmd, func(dir *vfs.Dir, args []string) error {
		out, done := counted(s)
		defer done()
		enc := json.NewEncoder(out)
		damaged := false
		err := onSegments(dir, args, func(i wab.SegmentInfo) error {
			_, err := wab.Walk(dir, i, func(r *record.Record, d *wab.Damage) error {
				if d != nil {
					damaged = true
					return tellDamage(s.err, d)
				}
				return enc.Encode(dumped{r.Coordinate, r.Appended, r.Payload})
			})
			return err
		})
		if err == nil && damaged {
			return silentError{}
		}
		return err
	})
	return cmd
}

func tellDamage(w io.Writer, d *wab.Damage) error {
	lost := "an unknown number of"
	if d.Lost >= 0 {
		lost = fmt.Sprint(d.Lost)
	}
	_, err := fmt.Fprintf(w, "%s: damage at offset %d, %d bytes, %s records from index %d: %s\n", d.Segment, d.Offset, d.Length, lost, d.FirstIndex, d.Reason)
	return err
}

func newSegmentVerify(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use: "verify [SEGMENT...]", Short: "Read segments whole and check every record; the exit status is 1 if any is damaged", Args: cobra.ArbitraryArgs,
		Example: "  weir segment verify --data-dir /var/lib/weir",
	}
	onData(cmd, func(dir *vfs.Dir, args []string) error {
		segments, records, damages := 0, 0, 0
		total := int64(0)
		if err := onSegments(dir, args, func(i wab.SegmentInfo) error { total += i.Bytes; return nil }); err != nil {
			return err
		}
		bar := progress(s.err, total)
		err := onSegments(dir, args, func(i wab.SegmentInfo) error {
			segments++
			defer bar.Add64(i.Bytes) // only a picture
			if i.Problem != "" {
				damages++
				fmt.Fprintf(s.out, "%s: %s\n", i.Name, i.Problem)
			}
			_, err := wab.Walk(dir, i, func(r *record.Record, d *wab.Damage) error {
				if d == nil {
					records++
					return nil
				}
				damages++
				return tellDamage(s.out, d)
			})
			if corrupt := (*wab.CorruptError)(nil); errors.As(err, &corrupt) {
				fmt.Fprintln(s.out, corrupt)
				return nil
			}
			return err
		})
		_ = bar.Finish() // only a picture
		if err != nil {
			return err
		}
		fmt.Fprintf(s.out, "%d segments, %d records verified, %d faults\n", segments, records, damages)
		if damages > 0 {
			return silentError{}
		}
		return nil
	})
	return cmd
}

func newSegmentSeal(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use: "seal", Short: "Have the daemon end its active segments, though they are not full",
		Example: "  weir segment seal",
		Long:    "Ends the active segment of every shard, so that it is sealed and, once its records are delivered, removed. Pushes go on into new segments.",
	}
	client := adminFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := client()
		if err != nil {
			return err
		}
		body, err := c.do(cmd.Context(), http.MethodPost, "/api/v1/segment/seal")
		if err != nil {
			return err
		}
		_, err = s.out.Write(body)
		return err
	}
	return cmd
}
