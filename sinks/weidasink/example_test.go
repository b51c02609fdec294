package weidasink_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/weir-agent/weir/sinks"
	"github.com/weir-agent/weir/sinks/weidasink"
	"github.com/weir-agent/weir/wab/record"
)

// A sink whose broker is not there says so for each record; the caller decides when to try again.
func Example() {
	s, err := weidasink.New(weidasink.Options{
		URL:            "weida://sha256:0000000000000000000000000000000000000000000000000000000000000000@127.0.0.1:9/orders",
		ConnectTimeout: 50 * time.Millisecond,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	r := record.Record{Payload: []byte("hello")}
	r.ID = record.ComputeID("shard_00/seg_00000001-00112233445566aa.wab.sealed", 1, r.Payload)
	for _, o := range s.Deliver(context.Background(), sinks.Batch{Records: []record.Record{r}, Attempt: 1}) {
		fmt.Println(o.Verdict, "-", o.Reason)
	}
	// Output: retry - the broker does not answer
}
