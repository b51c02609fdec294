// Package cli is weida's command line: results on stdout, the rest on stderr.
package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/weir-agent/weir/cmd/weida/internal/exit"
)

// Main runs the command line and returns the exit status.
func Main(args []string, in io.Reader, out, errOut io.Writer) int {
	// A reader that has gone is an error of the write, so that what is under way is ended in order.
	signal.Ignore(syscall.SIGPIPE)
	root := New()
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errOut)
	root.SetArgs(args)
	err := root.ExecuteContext(context.Background())
	if err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") { // of joined errors each has one
			fmt.Fprintf(errOut, "weida: %s\n", line)
		}
	}
	return exit.Status(err)
}

// New returns the command line. Commands read and write what cobra was told to.
func New() *cobra.Command {
	root := &cobra.Command{
		Use:   "weida",
		Short: "Send and receive messages over streams",
		Long: "weida sends messages from the shell and receives them there, between machines over QUIC (weida://) and within one over a Unix socket (weida+unix://).\n\n" +
			"Whoever serves prints the address to paste into the other side's command.",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return exit.Usage(fmt.Errorf("%w (see %s --help)", err, cmd.CommandPath()))
	})
	root.AddCommand(newServe(), newSend(), newRequest(), newSub(), newIdentity(), newVersion())
	root.AddCommand(brokerCommands()...)
	wrapArgs(root)
	return root
}

// wrapArgs makes wrong arguments errors of usage.
func wrapArgs(c *cobra.Command) {
	for _, sub := range c.Commands() {
		wrapArgs(sub)
	}
	check := c.Args
	switch {
	case check != nil:
	case c.HasSubCommands():
		check = cobra.ArbitraryArgs
		if c.Run == nil && c.RunE == nil {
			c.RunE = func(cmd *cobra.Command, args []string) error { return needVerb(cmd, args) }
		}
	default:
		check = cobra.NoArgs
	}
	c.Args = func(cmd *cobra.Command, args []string) error { return exit.Usage(check(cmd, args)) }
}

// needVerb prints what a command can do, or refuses what it cannot.
func needVerb(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return exit.Usage(fmt.Errorf("unknown command %q for %q", args[0], cmd.CommandPath()))
	}
	return cmd.Help()
}

// untilSignal returns a context that ends with the first SIGTERM or interrupt. A second one ends the process at once.
func untilSignal(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, os.Interrupt)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}
