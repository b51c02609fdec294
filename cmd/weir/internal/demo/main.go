// Command demo shows what weir promises: it pushes real records through kills and an outage and counts what arrives.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"
)

func main() {
	weir := flag.String("weir", "bin/weir", "the binary")
	records := flag.Int("records", 20_000, "records to push")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	err := run(ctx, *weir, *records, os.Stdout)
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}
