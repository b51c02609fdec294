package conformance

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
)

const usage = `usage:
  conformance run [-strict] [-weida] -- CMD [ARG...]   drive a codec of weir's wire, or of weida's, over its stdin and stdout
  conformance daemon -socket PATH                      drive a daemon over its socket
  conformance codec                                    be the Go codec of both, for a try
`

// Exit codes of Main.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

// Main is the conformance command. It returns the exit code: 0 if all passed, 1 if
// not, 2 if it was called wrongly.
func Main(ctx context.Context, args []string, in io.Reader, out, errs io.Writer) int {
	if len(args) == 0 {
		fmt.Fprint(errs, usage)
		return exitUsage
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	flags.SetOutput(errs)
	flags.Usage = func() { fmt.Fprint(errs, usage) }
	strict := flags.Bool("strict", false, "skipped checks are failures")
	weida := flags.Bool("weida", false, "the vectors of weida's wire in place of weir's")
	socket := flags.String("socket", "", "path of the daemon's socket")
	if err := flags.Parse(args[1:]); err != nil {
		return exitUsage
	}
	rest := flags.Args()
	var report Report
	var err error
	switch {
	case args[0] == "run" && len(rest) > 0:
		names := Names()
		if *weida {
			names = WeidaNames()
		}
		report, err = RunCodec(ctx, names, rest[0], rest[1:]...)
	case args[0] == "daemon" && *socket != "" && len(rest) == 0:
		report, err = RunDaemon(ctx, *socket)
	case args[0] == "codec" && len(rest) == 0:
		if err := ServeCodec(in, out); err != nil {
			fmt.Fprintln(errs, err)
			return exitFailed
		}
		return exitDone
	default:
		fmt.Fprint(errs, usage)
		return exitUsage
	}
	for _, f := range report.Failures {
		fmt.Fprintln(out, "FAIL", f)
	}
	fmt.Fprintf(out, "%d passed, %d failed, %d skipped\n", report.Passed, len(report.Failures), report.Skipped)
	if err = errors.Join(err, report.Err(*strict)); err != nil {
		fmt.Fprintln(errs, err)
		return exitFailed
	}
	return exitDone
}
