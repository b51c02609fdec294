package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"github.com/weir-agent/weir/cmd/weir-bench/internal/load"
	"github.com/weir-agent/weir/cmd/weir-bench/internal/proc"
	"github.com/weir-agent/weir/cmd/weir-bench/internal/report"
	"github.com/weir-agent/weir/cmd/weir-bench/internal/streams"
)

// publishBytes is the payload of what is published.
const publishBytes = 64

// carrier is what weida goes over.
type carrier struct{ name, address string }

func carriers(a streams.Addresses) []carrier {
	return []carrier{{"in-process", a.Inproc}, {"unix", a.Unix}, {"quic", a.Weida}}
}

// patterns takes one sample of each pattern over each carrier, all in this process.
func patterns(ctx context.Context, c *common, rep *report.Report, subscribers []int) (err error) {
	s, err := streams.Serve(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	for _, via := range carriers(s.Addresses) {
		for _, size := range []struct {
			name  string
			bytes int
		}{{"1 KiB", 1 << 10}, {"1 MiB", 1 << 20}} {
			err := sample(rep, fmt.Sprintf("request of %s, %s", size.name, via.name), 0, func() (load.Result, error) {
				return carried(s, via, func(d streams.Dialler) (load.Result, error) { return streams.Request(ctx, d, size.bytes, c.duration) })
			})
			if err != nil {
				return err
			}
			err = sample(rep, fmt.Sprintf("push of %s, %s", size.name, via.name), 0, func() (load.Result, error) {
				return carried(s, via, func(d streams.Dialler) (load.Result, error) { return s.PushRead(ctx, d, size.bytes, c.duration) })
			})
			if err != nil {
				return err
			}
		}
		for _, n := range subscribers {
			err := sample(rep, fmt.Sprintf("publish to %d, copies of 64 B, %s", n, via.name), n, func() (load.Result, error) {
				return s.Publish(ctx, via.address, n, publishBytes, c.duration)
			})
			if err != nil {
				return err
			}
		}
	}
	return matching(c.duration, rep)
}

// carried measures with a dialler over a carrier.
func carried(s *streams.Server, via carrier, run func(d streams.Dialler) (load.Result, error)) (load.Result, error) {
	d, err := streams.NewCarried(s.Addresses, via.address)
	if err != nil {
		return load.Result{}, err
	}
	r, err := run(d)
	return r, errors.Join(err, d.Close())
}

// sample runs one case with the CPU time of this process.
func sample(rep *report.Report, name string, sharers int, run func() (load.Result, error)) error {
	debug.FreeOSMemory()
	before, err := proc.UsageOf(os.Getpid())
	if err != nil {
		return err
	}
	peak := watchRSS([]int{os.Getpid()})
	r, err := run()
	rss, rssErr := peak()
	after, usageErr := proc.UsageOf(os.Getpid())
	if err = errors.Join(err, rssErr, usageErr); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	rep.Add(name, report.Sample{Result: r, CPU: after.CPU - before.CPU, PeakRSS: rss, Sharers: sharers})
	return nil
}

// matching measures how long a filter takes.
func matching(duration time.Duration, rep *report.Report) error {
	const topic = "px.eur.spot"
	for _, filter := range []string{"px.eur.spot", "px.*.spot", "px.#", ""} {
		err := sample(rep, fmt.Sprintf("filter %q on a topic of 3 segments", filter), 0, func() (load.Result, error) {
			return streams.Match(filter, topic, duration), nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
