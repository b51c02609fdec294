package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/weir-agent/weir/cmd/weida/internal/exit"
	"github.com/weir-agent/weir/cmd/weida/internal/framing"
	"github.com/weir-agent/weir/weida"
)

// subscribing is the flags of sub.
type subscribing struct {
	dialling
	frames
	filters []string
	count   int
	asJSON  bool
	topics  bool
}

func newSub() *cobra.Command {
	var o subscribing
	cmd := &cobra.Command{
		Use:   "sub ADDRESS",
		Short: "Subscribe to a publisher and print what it publishes",
		Long: framing.Describe() + "\n\nA filter is split at dots: * stands for one segment, # at the end for any number of them, and everything else for itself. What is published while " +
			"the link is down is missed, and standard error says how much a publisher of this kind has dropped for want of room.",
		Example: "  weida sub weida://sha256:9f86…@host:7443/prices\n  weida sub \"$ADDRESS\" --filter 'eur.*' --filter 'usd.#' --topics\n  weida sub \"$ADDRESS\" --count 10 --json",
		Args:    cobra.ExactArgs(1),
	}
	o.dialling.register(cmd, "how long a message that has begun may take; 0 is for ever")
	o.frames.register(cmd)
	f := cmd.Flags()
	f.StringArrayVar(&o.filters, "filter", []string{""}, "which topics to get (repeatable; none gets all)")
	f.IntVar(&o.count, "count", 0, "end after so many messages; 0 is never")
	f.BoolVar(&o.asJSON, "json", false, "print each message as JSON, its payload in base64")
	f.BoolVar(&o.topics, "topics", false, "print the topic and a tab before each message")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if o.count < 0 {
			return exit.Usage(fmt.Errorf("--count: %d is negative", o.count))
		}
		if err := o.frames.check(); err != nil {
			return err
		}
		return o.run(cmd, args[0])
	}
	return cmd
}

func (o *subscribing) run(cmd *cobra.Command, address string) error {
	ctx, stop := untilSignal(cmd.Context())
	defer stop()
	rt, tls, err := o.runtime(address, weida.Options{Offered: weida.Guarantees{Ordering: weida.OrderDetect}})
	if err != nil {
		return err
	}
	defer rt.Shutdown() // whatever comes now is not wanted
	sub := rt.Subscriber(tls)
	for _, f := range o.filters {
		if err := sub.Subscribe(f); err != nil {
			return err
		}
	}
	if err := o.connect(ctx, sub, address); err != nil {
		return err
	}
	w := o.tell(cmd, sub)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-w.gone:
			cancel()
		case <-ctx.Done():
		}
	}()
	s := sink{out: newOutput(cmd, &o.frames, o.asJSON, o.topics), frames: &o.frames, count: o.count, timeout: o.timeout, note: cmd.ErrOrStderr()}
	err = s.run(ctx, sub)
	if !o.quiet {
		s.sum()
	}
	if w.over() {
		err = errors.Join(err, w.err)
	}
	return err
}
