// Command weir-bench measures weir beside baselines of the same run; see docs/performance.md.
package main

import (
	"os"

	"github.com/weir-agent/weir/cmd/weir-bench/internal/cli"
)

func main() {
	os.Exit(cli.Main(os.Args[1:], os.Stdout, os.Stderr))
}
