package cli

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-agent/weir/cmd/weida/internal/exit"
	"github.com/weir-agent/weir/cmd/weida/internal/framing"
	"github.com/weir-agent/weir/weida"
)

// settlePatience is how long the end waits for the reports of what was written to arrive.
const settlePatience = 5 * time.Second

// subscribing is the flags of sub.
type subscribing struct {
	dialling
	frames
	filters []string
	count   int
	asJSON  bool
	topics  bool
	queue   bool
}

func newSub() *cobra.Command {
	var o subscribing
	cmd := &cobra.Command{
		Use:   "sub ADDRESS",
		Short: "Subscribe to a publisher, or a broker's queue, and print what comes",
		Long: framing.Describe() + "\n\nA filter is split at dots: * stands for one segment, # at the end for any number of them, and everything else for itself. What is published while " +
			"the link is down is missed, and standard error says how much a publisher of this kind has dropped for want of room.\n\n" +
			"With --queue the address is a queue of a broker: messages wait there until somebody takes them, and each is settled, which removes it from the queue, once it is written to standard " +
			"output. What is not settled goes to somebody else.",
		Example: "  weida sub weida://sha256:9f86…@host:7443/prices\n  weida sub \"$ADDRESS\" --filter 'eur.*' --filter 'usd.#' --topics\n  weida sub \"$ADDRESS\" --count 10 --json\n  weida sub \"$ADDRESS\" --queue > taken",
		Args:    cobra.ExactArgs(1),
	}
	o.dialling.register(cmd, "how long a message that has begun may take; 0 is for ever")
	o.frames.register(cmd)
	f := cmd.Flags()
	f.StringArrayVar(&o.filters, "filter", []string{""}, "which topics to get (repeatable; none gets all)")
	f.IntVar(&o.count, "count", 0, "end after so many messages; 0 is never")
	f.BoolVar(&o.asJSON, "json", false, "print each message as JSON, its payload in base64")
	f.BoolVar(&o.queue, "queue", false, "take messages from a queue of a broker, and settle them")
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

func (o *subscribing) run(cmd *cobra.Command, address string) (err error) {
	ctx, stop := untilSignal(cmd.Context())
	defer stop()
	rt, tls, err := o.runtime(address, weida.Options{Offered: weida.Guarantees{Ordering: weida.OrderDetect}})
	if err != nil {
		return err
	}
	defer func() { // whatever comes now is not wanted, and what was settled must be heard
		_, drainErr := rt.Drain(settlePatience)
		err = errors.Join(err, drainErr)
	}()
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
	if o.queue {
		go o.grant(sub)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-w.gone:
			cancel()
		case <-ctx.Done():
		}
	}()
	s := sink{out: newOutput(cmd, &o.frames, o.asJSON, o.topics), frames: &o.frames, count: o.count, timeout: o.timeout, queue: o.queue, note: cmd.ErrOrStderr()}
	err = s.run(ctx, sub)
	if !o.quiet {
		s.sum()
	}
	if w.over() {
		err = errors.Join(err, w.err)
	}
	return err
}

// grant lets queues deliver as many messages as are wanted, again after each redial, until the subscriber is closed: a new link begins without credit.
func (o *subscribing) grant(sub *weida.Subscriber) {
	limit := uint64(math.MaxInt64)
	if o.count > 0 {
		limit = uint64(o.count)
	}
	for events := sub.Events(); ; {
		for _, f := range o.filters {
			_ = sub.Grant(f, limit) // it fails while no link is up, and the next one gets it
		}
		for connected := false; !connected; {
			event, err := events.Next(context.Background())
			if err != nil {
				return
			}
			_, connected = event.(weida.Connected)
		}
	}
}
