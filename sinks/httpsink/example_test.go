package httpsink_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/weir-agent/weir/sinks"
	"github.com/weir-agent/weir/sinks/httpsink"
	"github.com/weir-agent/weir/wab/record"
)

func Example() {
	endpoint := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Printf("%s %s\n%s", r.Method, r.Header.Get("Content-Type"), body)
	}))
	defer endpoint.Close()

	sink, err := httpsink.New(httpsink.Options{URL: endpoint.URL, Format: httpsink.FormatNDJSON})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer sink.Close()

	records := []record.Record{{Payload: []byte(`{"n":1}`)}, {Payload: []byte("two\nlines")}}
	batch := sinks.Batch{Records: records, Key: record.BatchKey(records), Attempt: 1}
	for _, o := range sink.Deliver(context.Background(), batch) {
		fmt.Printf("%v %q\n", o.Verdict, o.Reason)
	}
	// Output:
	// POST application/x-ndjson
	// {"n":1}
	// delivered ""
	// reject "the record holds a line feed or a carriage return, which ndjson cannot carry"
}
