package wab_test

import (
	"context"
	"fmt"
	"os"

	"github.com/weir-agent/weir/wab"
	"github.com/weir-agent/weir/wab/record"
)

// A producer appends and waits for its ticket; a consumer reads, does its work, and confirms.
func Example() {
	dir, err := os.MkdirTemp("", "wab-example-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	log, err := wab.Open(dir, wab.Options{SegmentBytes: 1 << 20})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer log.Close()
	shard := log.Shards()[0]

	ticket, err := shard.Append(record.Durable, []byte("first"), []byte("second"))
	if err == nil {
		err = ticket.Wait() // from here on both records survive a power cut
	}
	if err != nil {
		fmt.Println(err)
		return
	}

	from, _ := shard.Cursor()
	reader := shard.NewReader(from)
	defer reader.Close()
	if err := reader.Wait(context.Background()); err != nil {
		fmt.Println(err)
		return
	}
	records, err := reader.Next(nil, 100, 1<<20, wab.Position{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, r := range records {
		fmt.Printf("%d %s\n", r.Index, r.Payload)
	}
	shard.Confirm(reader.Position(), nil) // they will not be read again
	// Output:
	// 1 first
	// 2 second
}
