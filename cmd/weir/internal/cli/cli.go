// Package cli is weir's command line: noun, then verb; results on stdout, the rest on stderr.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-agent/weir/cmd/weir/internal/config"
)

// Exit statuses.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

// streams are where a command reads and writes.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// Main runs the command line and returns the exit status.
func Main(args []string, in io.Reader, out, errOut io.Writer) int {
	root := newRoot(streams{in: in, out: out, err: errOut})
	root.SetArgs(args)
	err := root.ExecuteContext(context.Background())
	if err == nil {
		return exitDone
	}
	var quiet silentError
	if !errors.As(err, &quiet) {
		for line := range strings.SplitSeq(err.Error(), "\n") { // of joined errors each has one
			fmt.Fprintf(errOut, "weir: %s\n", line)
		}
	}
	if errors.Is(err, config.ErrUsage) {
		return exitUsage
	}
	return exitFailed
}

// silentError fails a command that has said all there is to say.
type silentError struct{}

func (silentError) Error() string { return "failed" }

// usage marks an error of usage or configuration.
func usage(err error) error {
	if err == nil {
		return nil
	}
	return usageError{err}
}

type usageError struct{ err error }

func (e usageError) Error() string        { return e.err.Error() }
func (e usageError) Unwrap() error        { return e.err }
func (e usageError) Is(target error) bool { return target == config.ErrUsage }

// Root returns the command line, for those who print its manual.
func Root() *cobra.Command {
	return newRoot(streams{in: os.Stdin, out: os.Stdout, err: os.Stderr})
}

func newRoot(s streams) *cobra.Command {
	root := &cobra.Command{
		Use:           "weir",
		Short:         "A durable local write-ahead buffer",
		Long:          "weir keeps records safe on local disk until a sink has them.\n\nStart it with `weir run`, push with `weir push`.",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetIn(s.in)
	root.SetOut(s.out)
	root.SetErr(s.err)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usage(fmt.Errorf("%w (see %s --help)", err, cmd.CommandPath()))
	})
	root.AddCommand(newRun(s), newPush(s), newHealth(s), newStatus(s), newReceive(s), newVersion(s), newConfig(s), newDrain(s), newReload(s), newSegment(s), newDeadletter(s), newQuarantine(s))
	for _, c := range root.Commands() {
		wrapArgs(c)
	}
	return root
}

// wrapArgs makes wrong arguments errors of usage.
func wrapArgs(c *cobra.Command) {
	if check := c.Args; check != nil {
		c.Args = func(cmd *cobra.Command, args []string) error { return usage(check(cmd, args)) }
	} else if !c.HasSubCommands() {
		c.Args = func(cmd *cobra.Command, args []string) error { return usage(cobra.NoArgs(cmd, args)) }
	}
	for _, sub := range c.Commands() {
		wrapArgs(sub)
	}
}

// socketFlag adds --socket with its default, WEIR_SOCKET or the one of a weir run without configuration.
func socketFlag(cmd *cobra.Command, v *string) {
	def := os.Getenv("WEIR_SOCKET")
	if def == "" {
		def = "weir-data/weir.sock"
		if servesHere() {
			def = packagedSocket
		}
	}
	cmd.Flags().StringVar(v, "socket", def, "path of the daemon's socket (default from WEIR_SOCKET)")
}
