// Command conformance drives codecs and daemons with the conformance vectors of
// weir wire v1.
package main

import (
	"context"
	"os"
	"os/signal"

	"github.com/weir-agent/weir/conformance"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	code := conformance.Main(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
