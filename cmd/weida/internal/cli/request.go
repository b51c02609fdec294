package cli

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/weir-agent/weir/cmd/weida/internal/framing"
	"github.com/weir-agent/weir/weida"
)

// requesting is the flags of request.
type requesting struct {
	dialling
	frames
	topic, contentType string
	data               string
	asJSON             bool
}

func newRequest() *cobra.Command {
	var o requesting
	cmd := &cobra.Command{
		Use:   "request ADDRESS",
		Short: "Send each message of standard input as a request and print the reply",
		Long: framing.Describe() + "\n\nOne request is answered before the next is sent. With raw the request and its reply are streamed at the same time, and take as long as they take. The first request that fails ends the " +
			"command; standard error says why, and whether it may have had an effect all the same.",
		Example: "  weida request weida://sha256:9f86…@host:7443/greet --data Ada\n  weida request \"$ADDRESS\" --framing raw < question > answer",
		Args:    cobra.ExactArgs(1),
	}
	o.dialling.register(cmd, "how long a request may take, in waiting for a link and for its reply; 0 is for ever")
	o.frames.register(cmd)
	f := cmd.Flags()
	f.StringVar(&o.data, "data", "", "send this as the one request and read no input")
	f.StringVar(&o.topic, "topic", "", "topic of the requests")
	f.StringVar(&o.contentType, "content-type", "", "label of the requests")
	f.BoolVar(&o.asJSON, "json", false, "print each reply as JSON, its payload in base64")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := o.frames.check(); err != nil {
			return err
		}
		return o.run(cmd, args[0], cmd.Flags().Changed("data"))
	}
	return cmd
}

func (o *requesting) run(cmd *cobra.Command, address string, given bool) error {
	ctx, stop := untilSignal(cmd.Context())
	defer stop()
	rt, tls, err := o.runtime(address, weida.Options{})
	if err != nil {
		return err
	}
	defer rt.Shutdown() // everything was waited for
	r := rt.Requester(tls)
	if err := o.connect(ctx, r, address); err != nil {
		return err
	}
	o.tell(cmd, r)
	out := newOutput(cmd, &o.frames, o.asJSON, false)
	switch {
	case given:
		err = o.one(ctx, r, out, []byte(o.data))
	case o.framing == framing.Raw && !o.asJSON:
		err = o.stream(ctx, cmd, r, out)
	default:
		in := reading(cmd.InOrStdin(), &o.frames)
		for {
			message, ok := in.next(ctx.Done())
			if !ok {
				err = in.end()
				break
			}
			if err = o.one(ctx, r, out, message); err != nil {
				break
			}
		}
	}
	out.torn(cmd.ErrOrStderr())
	return err
}

// one sends a request and prints the reply. A signal ends the wait for it.
func (o *requesting) one(ctx context.Context, r *weida.Requester, out *output, message []byte) error {
	limit, cancel := o.patience()
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	reply, err := r.Request(limit, weida.Meta{Topic: o.topic, ContentType: o.contentType, ContentLen: uint64(len(message))}, message)
	if err != nil {
		return explain(err)
	}
	body, err := reply.Collect(o.maxBytes)
	if err != nil {
		return explain(err)
	}
	return errors.Join(out.write(reply.Meta(), body), out.flush())
}

// explain says of a failure whether the request may have had an effect.
func explain(err error) error {
	if err == nil || weida.IsDefinite(err) {
		return err
	}
	return errors.Join(err, errMaybe)
}

var errMaybe = errors.New("the request may have had an effect all the same")

// stream sends the input as one request while its reply is written.
func (o *requesting) stream(ctx context.Context, cmd *cobra.Command, r *weida.Requester, out *output) error {
	life, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() { cancel(errInterrupted) })()
	request, reply, err := r.Open(life, weida.Meta{Topic: o.topic, ContentType: o.contentType})
	if err != nil {
		return err
	}
	defer request.Cancel()
	sent := make(chan error, 1)
	go func() {
		_, err := io.Copy(request, cmd.InOrStdin())
		if err == nil {
			var d *weida.Delivery
			if d, err = request.Finish(); err == nil {
				d.Discard()
			}
		} else {
			request.Cancel() // a part must not pass for the whole
		}
		sent <- err
	}()
	in, err := reply.Recv()
	if err == nil {
		_, err = out.w.Copy(in)
	}
	if err != nil {
		return explain(err)
	}
	// Whoever has answered need not have read all of the request, and then nobody waits for the rest of the input.
	select {
	case err = <-sent:
		if errors.Is(err, weida.ErrRejected) || errors.Is(err, weida.ErrCanceled) {
			err = nil
		}
		return err
	default:
		return nil
	}
}
