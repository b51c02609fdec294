// Package report gathers the samples of a run and writes them as a table or as JSON, with the facts of the machine.
package report

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/weir-agent/weir/cmd/weir-bench/internal/load"
)

// Sample is one pass of one case.
type Sample struct {
	load.Result
	CPU     time.Duration // of the daemon
	LoadCPU time.Duration // of what made the load; 0 where it was not told apart
	PeakRSS int64         // bytes, of the daemon
	PerSync float64       // records of one fdatasync
	Sharers int           // that the CPU time is divided by, such as subscribers; 0 for none
}

// Case is what all passes of one case gave; of the passes the median, the least and the most.
type Case struct {
	Name       string  `json:"name"`
	Records    float64 `json:"records_per_second"`
	Bytes      float64 `json:"bytes_per_second,omitempty"` // of payload; of the median pass, as Records
	Least      float64 `json:"least"`
	Most       float64 `json:"most"`
	Failed     int64   `json:"failed"`
	P50        float64 `json:"p50_us"`
	P99        float64 `json:"p99_us"`
	P999       float64 `json:"p999_us"`
	CPUMillion float64 `json:"cpu_seconds_per_million,omitempty"`
	// LoadMillion is the same of what made the load.
	LoadMillion float64 `json:"load_cpu_seconds_per_million,omitempty"`
	PeakRSS     int64   `json:"peak_rss_bytes,omitempty"`
	PerSync     float64 `json:"records_per_fdatasync,omitempty"`
	CPUEach     float64 `json:"cpu_percent_of_each_sharer,omitempty"`
}

// Report is a run.
type Report struct {
	Title   string    `json:"title"`
	Began   time.Time `json:"began"`
	Machine Machine   `json:"machine"`
	// RecordBytes is the payload of each record; 0 where the cases differ in it.
	RecordBytes int    `json:"record_bytes,omitempty"`
	Cases       []Case `json:"cases"`

	order   []string
	samples map[string][]Sample
}

// Machine is what the figures were measured on.
type Machine struct {
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	Kernel string `json:"kernel"`
	Go     string `json:"go"`
}

// New begins a report.
func New(title string, now time.Time) Report {
	return Report{Title: title, Began: now, Machine: machine(), samples: map[string][]Sample{}}
}

func machine() Machine {
	m := Machine{Cores: runtime.NumCPU(), Go: runtime.Version()}
	// What cannot be read is left empty: these are remarks beside the figures.
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if name, ok := strings.CutPrefix(line, "model name"); ok {
				m.CPU = strings.TrimSpace(strings.TrimLeft(name, "\t :"))
				break
			}
		}
	}
	if text, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.Kernel = strings.TrimSpace(string(text))
	}
	return m
}

// Add takes a sample of a case.
func (r *Report) Add(name string, s Sample) {
	if len(r.samples[name]) == 0 {
		r.order = append(r.order, name)
	}
	r.samples[name] = append(r.samples[name], s)
}

func (r *Report) summarise() {
	r.Cases = nil
	for _, name := range r.order {
		all := r.samples[name]
		slices.SortFunc(all, func(a, b Sample) int {
			if a.PerSecond() < b.PerSecond() {
				return -1
			}
			return 1
		})
		mid := all[len(all)/2]
		c := Case{Name: name, Records: mid.PerSecond(), Bytes: mid.PerSecond() * float64(r.RecordBytes), Least: all[0].PerSecond(), Most: all[len(all)-1].PerSecond(), PeakRSS: mid.PeakRSS, PerSync: mid.PerSync}
		us := func(q float64) float64 { return float64(mid.Latency.ValueAtQuantile(q)) / 1e3 }
		c.P50, c.P99, c.P999 = us(50), us(99), us(99.9)
		for _, s := range all {
			c.Failed += s.Failed
		}
		if mid.Records > 0 && mid.CPU > 0 {
			c.CPUMillion = mid.CPU.Seconds() / float64(mid.Records) * 1e6
			c.LoadMillion = mid.LoadCPU.Seconds() / float64(mid.Records) * 1e6
		}
		if mid.Sharers > 0 {
			c.CPUEach = 100 * mid.CPU.Seconds() / mid.Elapsed.Seconds() / float64(mid.Sharers)
		}
		r.Cases = append(r.Cases, c)
	}
}

// JSON writes the report as JSON.
func (r *Report) JSON(w io.Writer) error {
	r.summarise()
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// Table writes the report for a person.
func (r *Report) Table(w io.Writer) error {
	r.summarise()
	fmt.Fprintf(w, "%s, %s: %s, %d cores, Linux %s, %s\n\n", r.Title, r.Began.Format(time.DateOnly), r.Machine.CPU, r.Machine.Cores, r.Machine.Kernel, r.Machine.Go)
	rows := [][]string{{"case", "records/s", "least..most", "MB/s", "p50 µs", "p99 µs", "p99.9 µs", "CPU s/M", "load CPU s/M", "peak MiB", "records/sync", "CPU % each", "failed"}}
	for _, c := range r.Cases {
		rows = append(rows, []string{
			c.Name, fmt.Sprintf("%.0f", c.Records), fmt.Sprintf("%.0f..%.0f", c.Least, c.Most), orDash(c.Bytes / 1e6), fine(c.P50), fine(c.P99), fine(c.P999),
			orDash(c.CPUMillion), orDash(c.LoadMillion), orDash(float64(c.PeakRSS) / (1 << 20)), orDash(c.PerSync), orDash(c.CPUEach), fmt.Sprint(c.Failed),
		})
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range withoutEmpty(rows) {
		fmt.Fprintln(tw, strings.Join(row, "\t"))
	}
	return tw.Flush()
}

// withoutEmpty leaves out the columns that no case has a figure for.
func withoutEmpty(rows [][]string) [][]string {
	out := make([][]string, len(rows))
	for col := range rows[0] {
		if !slices.ContainsFunc(rows[1:], func(row []string) bool { return row[col] != "-" }) {
			continue
		}
		for i, row := range rows {
			out[i] = append(out[i], row[col])
		}
	}
	return out
}

// fine gives what is less than a microsecond with its nanoseconds.
func fine(v float64) string {
	if v < 1 {
		return fmt.Sprintf("%.3f", v)
	}
	return fmt.Sprintf("%.0f", v)
}

func orDash(v float64) string {
	if v == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", v)
}
