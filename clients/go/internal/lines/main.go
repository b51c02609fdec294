// Command lines lets the conformance runner drive the Go client itself: it answers
// the runner's line protocol with what the client sends to a server of this
// process, and with what the client makes of that server's bytes.
package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
)

// maxLineBytes holds the longest line of the runner: the hex of a whole frame.
const maxLineBytes = 40 << 20

func main() {
	if err := serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// serve answers every line of in on out until in ends.
func serve(in io.Reader, out io.Writer) error {
	s, err := newServer()
	if err != nil {
		return err
	}
	defer s.close()
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 64<<10), maxLineBytes)
	for lines.Scan() {
		if _, err := fmt.Fprintln(out, s.answer(lines.Text())); err != nil {
			return fmt.Errorf("lines: answer: %w", err)
		}
	}
	return lines.Err()
}
