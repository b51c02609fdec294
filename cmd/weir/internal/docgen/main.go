// Command docgen writes what of the documentation follows from the code: the manual pages, and the references of
// the commands and of the configuration.
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	man := flag.String("man", "", "folder for the manual pages")
	docs := flag.String("docs", "", "folder for configuration.md and commands.md")
	flag.Parse()
	if err := write(*man, *docs); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
