package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-agent/weir/cmd/weir-bench/internal/load"
	"github.com/weir-agent/weir/cmd/weir-bench/internal/proc"
	"github.com/weir-agent/weir/cmd/weir-bench/internal/report"
	"github.com/weir-agent/weir/cmd/weir-bench/internal/streams"
)

// The sizes that weida is measured with, in bytes.
const (
	echoBytes = 1 << 10
	pushBytes = 64
)

const pushCase = "push of 64 B"

// rssInterval is how often memory is looked at while a large stream is sent.
const rssInterval = 10 * time.Millisecond

// contender is one of what is compared.
type contender struct {
	name string
	push bool // it has one-way messages
	make func(a streams.Addresses) (streams.Dialler, error)
}

func contenders() []contender {
	return []contender{
		{"tls over tcp", false, func(a streams.Addresses) (streams.Dialler, error) { return streams.TLS(a.TLS), nil }},
		{"bare quic stream", true, func(a streams.Addresses) (streams.Dialler, error) { return streams.NewBare(a.Bare, false) }},
		{"bare quic stream, receipts held", true, func(a streams.Addresses) (streams.Dialler, error) { return streams.NewBare(a.Bare, true) }},
		{"weida", true, func(a streams.Addresses) (streams.Dialler, error) { return streams.NewWeida(a.Weida, true) }},
		{"weida, receipts off", true, func(a streams.Addresses) (streams.Dialler, error) { return streams.NewWeida(a.Weida, false) }},
	}
}

func newWeida(out io.Writer) *cobra.Command {
	var c common
	var large int64
	var held int
	var subscribers []int
	cmd := &cobra.Command{
		Use: "weida", Short: "Measure weida beside a bare QUIC stream and TLS over TCP, in one process and in two, and its patterns over each carrier",
	}
	c.flags(cmd)
	cmd.Flags().Int64Var(&large, "large", 1<<30, "bytes of the large stream")
	cmd.Flags().IntVar(&held, "held", 200, "connections that are held to measure their memory")
	cmd.Flags().IntSliceVar(&subscribers, "subscribers", []int{8, 256}, "how many subscribers to publish to")
	var parts []string
	cmd.Flags().StringSliceVar(&parts, "parts", []string{"links", "patterns"}, "what to measure: links (beside QUIC and TLS), patterns (over each carrier)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		rep := report.New("weida: operations a second, for large streams MiB a second; memory is of all processes", time.Now())
		for _, part := range parts {
			if part != "links" && part != "patterns" {
				return fmt.Errorf("--parts: %q: use links or patterns", part)
			}
		}
		links := slices.Contains(parts, "links")
		for range c.passes {
			if links {
				if err := inOneProcess(cmd.Context(), &c, &rep, large); err != nil {
					return err
				}
				if err := inTwoProcesses(cmd.Context(), &c, &rep, large); err != nil {
					return err
				}
			}
			if slices.Contains(parts, "patterns") {
				if err := patterns(cmd.Context(), &c, &rep, subscribers); err != nil {
					return err
				}
			}
		}
		if err := c.print(out, rep); err != nil || !links {
			return err
		}
		return holdConnections(cmd.Context(), out, held)
	}
	return cmd
}

// newWeidaServe is the other process of newWeida.
func newWeidaServe(out io.Writer) *cobra.Command {
	return &cobra.Command{
		Use: "weida-serve", Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return streams.ServeProcess(cmd.Context(), cmd.InOrStdin(), out)
		},
	}
}

func inOneProcess(ctx context.Context, c *common, rep *report.Report, large int64) error {
	s, err := streams.Serve(ctx)
	if err != nil {
		return err
	}
	free := func() error {
		debug.FreeOSMemory()
		return nil
	}
	err = measureAll(ctx, c, rep, "one process", s.Addresses, large, free, os.Getpid())
	return errors.Join(err, s.Close())
}

func inTwoProcesses(ctx context.Context, c *common, rep *report.Report, large int64) error {
	p, err := streams.StartProcess(ctx, "weida-serve")
	if err != nil {
		return err
	}
	free := func() error {
		debug.FreeOSMemory()
		return p.Free()
	}
	err = measureAll(ctx, c, rep, "two processes", p.Addresses, large, free, os.Getpid(), p.PID())
	return errors.Join(err, p.Close())
}

// measureAll takes one sample of each case of each contender.
func measureAll(ctx context.Context, c *common, rep *report.Report, where string, a streams.Addresses, large int64, free func() error, pids ...int) error {
	cases := []struct {
		name string
		run  func(d streams.Dialler) (load.Result, error)
	}{
		{"handshake", func(d streams.Dialler) (load.Result, error) { return streams.Handshakes(ctx, d, c.duration) }},
		{"echo of 1 KiB", func(d streams.Dialler) (load.Result, error) { return streams.Echo(ctx, d, echoBytes, c.duration) }},
		{pushCase, func(d streams.Dialler) (load.Result, error) { return streams.Push(ctx, d, pushBytes, c.duration) }},
		{"large stream", func(d streams.Dialler) (load.Result, error) { return streams.Large(ctx, d, large) }},
	}
	for _, x := range contenders() {
		for _, m := range cases {
			if m.name == pushCase && !x.push {
				continue
			}
			d, err := x.make(a)
			if err != nil {
				return err
			}
			if err := free(); err != nil {
				return err
			}
			peak := watchRSS(pids)
			r, err := m.run(d)
			rss, rssErr := peak()
			if err = errors.Join(err, rssErr, d.Close()); err != nil {
				return fmt.Errorf("%s, %s, %s: %w", m.name, where, x.name, err)
			}
			rep.Add(fmt.Sprintf("%s, %s, %s", m.name, where, x.name), report.Sample{Result: r, PeakRSS: rss})
		}
	}
	return nil
}

// watchRSS looks at the memory of processes until it is asked for the most that they had together.
func watchRSS(pids []int) func() (int64, error) {
	stop, done := make(chan struct{}), make(chan struct{})
	var peak int64
	var err error
	go func() {
		defer close(done)
		for {
			sum, e := rssOf(pids)
			if e != nil {
				err = e
				return
			}
			peak = max(peak, sum)
			select {
			case <-stop:
				return
			case <-time.After(rssInterval):
			}
		}
	}()
	return func() (int64, error) {
		close(stop)
		<-done
		return peak, err
	}
}

func rssOf(pids []int) (int64, error) {
	var sum int64
	for _, pid := range pids {
		u, err := proc.UsageOf(pid)
		if err != nil {
			return 0, err
		}
		sum += u.RSS
	}
	return sum, nil
}

// holdConnections says what a connection costs while it is open, on each side.
func holdConnections(ctx context.Context, out io.Writer, count int) error {
	fmt.Fprintf(out, "\nmemory of a connection that was used once, in KiB, over %d of them:\n\n%-34s %8s %8s\n", count, "", "dialling", "accepting")
	for _, x := range contenders() {
		if err := holdOne(ctx, out, x, count); err != nil {
			return fmt.Errorf("held connections, %s: %w", x.name, err)
		}
	}
	return nil
}

// holdOne measures one contender against a process of its own, so that nothing lives in what another has left.
func holdOne(ctx context.Context, out io.Writer, x contender, count int) error {
	p, err := streams.StartProcess(ctx, "weida-serve")
	if err != nil {
		return err
	}
	d, err := x.make(p.Addresses)
	if err != nil {
		return errors.Join(err, p.Close())
	}
	rss := func() (near, far int64, err error) {
		debug.FreeOSMemory()
		if err := p.Free(); err != nil {
			return 0, 0, err
		}
		if near, err = rssOf([]int{os.Getpid()}); err == nil {
			far, err = rssOf([]int{p.PID()})
		}
		return near, far, err
	}
	// A first connection brings in what all of them share.
	err = streams.Hold(ctx, d, 1, func() error { return nil })
	near0, far0, rssErr := rss()
	if err = errors.Join(err, rssErr); err == nil {
		err = streams.Hold(ctx, d, count, func() error {
			near, far, err := rss()
			fmt.Fprintf(out, "%-34s %8d %8d\n", x.name, (near-near0)/int64(count)>>10, (far-far0)/int64(count)>>10)
			return err
		})
	}
	return errors.Join(err, d.Close(), p.Close())
}
