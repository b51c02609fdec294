package httpsink

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/weir-agent/weir/sinks"
	"github.com/weir-agent/weir/wab/record"
)

// BenchmarkFailedRequests sends 1 MiB to an endpoint that answers 503, again and again, and reports what a leak would make
// grow: open files and resident memory, after the first tenth and at the end. The endpoint is in the same process. For the figures in
// docs/performance.md: -benchtime 50000x.
func BenchmarkFailedRequests(b *testing.B) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // what cannot be read ends the request
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer server.Close()
	sink, err := New(Options{URL: server.URL})
	if err != nil {
		b.Fatal(err)
	}
	defer sink.Close()
	payload := bytes.Repeat([]byte("x"), 1<<20)
	batch := sinks.Batch{Records: []record.Record{{Coordinate: record.Coordinate{Segment: "s", Index: 1}, Payload: payload}}}
	n := 0
	var early, earlyFDs float64
	for b.Loop() {
		if out := sink.Deliver(b.Context(), batch); out[0].Verdict != sinks.Retry {
			b.Fatalf("got %+v", out)
		}
		if n++; n == max(1, b.N/10) {
			early, earlyFDs = residentMiB(b), openFiles(b)
		}
	}
	b.ReportMetric(early, "MiB-early")
	b.ReportMetric(residentMiB(b), "MiB-late")
	b.ReportMetric(earlyFDs, "fds-early")
	b.ReportMetric(openFiles(b), "fds-late")
}

func residentMiB(b *testing.B) float64 {
	runtime.GC()
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		b.Skip("needs /proc:", err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(text))[1])
	if err != nil {
		b.Fatal(err)
	}
	return float64(pages*os.Getpagesize()) / (1 << 20)
}

func openFiles(b *testing.B) float64 {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		b.Skip("needs /proc:", err)
	}
	return float64(len(entries))
}
