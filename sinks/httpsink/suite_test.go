package httpsink

import (
	"bytes"
	"encoding/json"
	"net/http"
	"testing"

	"github.com/weir-agent/weir/sinks/sinktest"
)

func TestSuite(t *testing.T) {
	for _, format := range []string{FormatRaw, FormatNDJSON, FormatJSON} {
		for _, h2 := range []bool{false, true} {
			name := format + " HTTP/1.1"
			if h2 {
				name = format + " HTTP/2"
			}
			t.Run(name, func(t *testing.T) {
				sinktest.Run(t, func(t *testing.T) sinktest.Fixture { return fixture(t, format, h2) })
			})
		}
	}
}

func fixture(t *testing.T, format string, h2 bool) sinktest.Fixture {
	var gate sinktest.Gate
	e := newUnstarted(func(int, http.ResponseWriter, *request) { gate.Pass() })
	o := Options{Format: format, Concurrency: 4}
	if h2 {
		e.EnableHTTP2 = true
		e.StartTLS()
		o.CAFile = caFileOf(t, e)
	} else {
		e.Start()
	}
	t.Cleanup(e.Close)
	o.URL = e.URL
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return sinktest.Fixture{
		Sink: s, Unordered: format == FormatRaw,
		Got:   func() [][]byte { return payloadsOf(t, e.all(), format) },
		Stall: gate.Stall,
	}
}

func payloadsOf(t *testing.T, requests []request, format string) [][]byte {
	t.Helper()
	var all [][]byte
	for _, r := range requests {
		switch format {
		case FormatRaw:
			all = append(all, r.body)
		case FormatNDJSON:
			all = append(all, bytes.Split(bytes.TrimSuffix(r.body, []byte("\n")), []byte("\n"))...)
		case FormatJSON:
			var doc struct{ Records []struct{ Payload []byte } }
			if err := json.Unmarshal(r.body, &doc); err != nil {
				t.Fatal(err)
			}
			for _, one := range doc.Records {
				all = append(all, one.Payload)
			}
		}
	}
	return all
}
