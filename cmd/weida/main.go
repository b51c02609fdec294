// Command weida sends and receives messages from the shell; see docs/weida.md.
package main

import (
	"os"

	"github.com/weir-agent/weir/cmd/weida/internal/cli"
)

func main() {
	os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
