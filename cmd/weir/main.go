// Command weir is a durable local write-ahead buffer; see README.md.
package main

import (
	"os"

	"github.com/weir-agent/weir/cmd/weir/internal/cli"
)

func main() {
	os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
