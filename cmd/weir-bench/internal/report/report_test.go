package report

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-agent/weir/cmd/weir-bench/internal/load"
)

// sample is a pass of a second with these records, each acked after ms milliseconds.
func sample(records int64, ms int64, cpu time.Duration) Sample {
	s := Sample{Result: load.Result{Records: records, Elapsed: time.Second, Latency: load.NewHistogram()}, CPU: cpu}
	_ = s.Latency.RecordValue(ms * int64(time.Millisecond)) // within its range
	return s
}

// TestMedianAndSpread: a row is the pass with the median rate, whatever the order of the passes, with the least and the most beside it.
func TestMedianAndSpread(t *testing.T) {
	r := New("test", time.Unix(0, 0))
	r.RecordBytes = 250
	for _, s := range []Sample{sample(3000, 3, 3*time.Second), sample(1000, 1, time.Second), sample(2000, 2, time.Second)} {
		r.Add("a", s)
	}
	var b strings.Builder
	if err := r.JSON(&b); err != nil {
		t.Fatal(err)
	}
	var got Report
	if err := json.Unmarshal([]byte(b.String()), &got); err != nil {
		t.Fatal(err)
	}
	want := Case{Name: "a", Records: 2000, Bytes: 500_000, Least: 1000, Most: 3000, CPUMillion: 500}
	c := got.Cases[0]
	if c.P50 < 1999 || c.P50 > 2002 || c.P999 != c.P50 {
		t.Errorf("p50 %v, p99.9 %v µs, want 2000", c.P50, c.P999)
	}
	c.P50, c.P99, c.P999 = 0, 0, 0
	if c != want {
		t.Errorf("got %+v, want %+v", c, want)
	}
	if got.Machine.Cores == 0 || got.Machine.Go == "" {
		t.Errorf("the machine is %+v", got.Machine)
	}
}

// TestTable: columns without a figure are left out, and so is nothing else.
func TestTable(t *testing.T) {
	r := New("test", time.Unix(0, 0))
	r.RecordBytes = 1000
	r.Add("with", sample(2000, 2, time.Second))
	r.Add("without", sample(1000, 2, 0))
	var b strings.Builder
	if err := r.Table(&b); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	fields := strings.Fields(lines[len(lines)-1])
	if want := []string{"without", "1000", "1000..1000", "1.00", "2001", "2001", "2001", "-", "0"}; !slices.Equal(fields, want) {
		t.Errorf("got %v, want %v", fields, want)
	}
	if strings.Contains(b.String(), "peak MiB") || !strings.Contains(b.String(), "CPU s/M") {
		t.Errorf("got %s", b.String())
	}
}

// TestPlot: each case is a point of each line, and a report without a case is an error.
func TestPlot(t *testing.T) {
	r := New("latency", time.Unix(0, 0))
	var b strings.Builder
	if err := r.Plot(&b); err == nil || b.Len() > 0 {
		t.Errorf("nothing to plot: %v, %d bytes", err, b.Len())
	}
	for i, rate := range []int64{1000, 10_000, 100_000} {
		r.Add(fmt.Sprint(rate), sample(rate, int64(i)+1, 0))
	}
	if err := r.Plot(&b); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(b.String(), "<circle"); n != 9 {
		t.Errorf("%d points, want 3 for each of 3 lines", n)
	}
	for d := xml.NewDecoder(strings.NewReader(b.String())); ; {
		if _, err := d.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
}
