package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-agent/weir/cmd/weida/internal/exit"
	"github.com/weir-agent/weir/cmd/weida/internal/framing"
	"github.com/weir-agent/weir/weida"
)

const (
	// maxUnconfirmed is how many messages may be under way whose receipt is not here. So many more than one that is lost for a while arrive before it at most, which is what
	// the other side may hold back to put them in order.
	maxUnconfirmed = 256
	// maxUnreported is how many messages are watched for the other side's word that it has taken them.
	maxUnreported = 1024
)

// sending is the flags of send.
type sending struct {
	dialling
	frames
	topics
	contentType     string
	confirm, repeat bool
	linger          time.Duration
}

func newSend() *cobra.Command {
	var o sending
	cmd := &cobra.Command{
		Use:   "send ADDRESS",
		Short: "Send each message of standard input",
		Long: framing.Describe() + "\n\nThe exit status is 0 only if the other side's transport has every message and, where the application there says what it has taken, as weida serve does, it has said " +
			"so of every one. An application that says nothing may have refused what was small, and may lose what it has not read when this command ends, for which --linger waits. With --confirm each " +
			"message is a request, and counts when the application has answered it. Where the link is lost, messages wait for it to come back, and one that had certainly not arrived is sent again; of which that is not known is told at the end. " +
			"Between two of these tools messages stay in order.",
		Example: "  printf 'hello\\nworld\\n' | weida send weida://sha256:9f86…@host:7443/logs\n" +
			"  tail -f app.log | weida send --confirm --repeat \"$ADDRESS\"\n" +
			"  weida send --framing raw \"$ADDRESS\" < backup.tar",
		Args: cobra.ExactArgs(1),
	}
	o.dialling.register(cmd, "how long a message waits for a link, and with --confirm for its answer; 0 is for ever")
	o.frames.register(cmd)
	f := cmd.Flags()
	f.StringVar(&o.topic, "topic", "", "topic of all messages")
	f.BoolVar(&o.topics.prefixed, "topics", false, "each message begins with its topic and a tab")
	f.StringVar(&o.contentType, "content-type", "", "label of all messages")
	f.BoolVar(&o.confirm, "confirm", false, "send each message as a request and wait for its answer before the next")
	f.BoolVar(&o.repeat, "repeat", false, "with --confirm: send a message again of which it is not known whether it arrived")
	f.DurationVar(&o.linger, "linger", 5*time.Second, "how long to wait at the end for the next word that a message was taken")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := o.check(); err != nil {
			return err
		}
		return o.run(cmd, args[0])
	}
	return cmd
}

func (o *sending) check() error {
	if o.repeat && !o.confirm {
		return exit.Usage(errors.New("--repeat wants --confirm"))
	}
	return cmp.Or(o.topics.check(&o.frames), o.frames.check())
}

// meta takes the topic off a message and describes the rest.
func (o *sending) meta(message []byte) (weida.Meta, []byte) {
	m := o.plainMeta()
	m.Topic, message = o.topics.of(message)
	m.ContentLen = uint64(len(message))
	return m, message
}

// plainMeta describes a message, and asks to be told when it was taken. An answer tells that by itself.
func (o *sending) plainMeta() weida.Meta {
	m := weida.Meta{Topic: o.topic, ContentType: o.contentType}
	if !o.confirm {
		m.Report = weida.ReportOrder{Levels: []weida.Level{weida.LevelProcessed}, FinalOnly: true}
	}
	return m
}

// link is what messages are sent through: one of the two fields is set.
type link struct {
	push    *weida.Pusher
	request *weida.Requester
}

func (l link) endpoint() endpoint {
	if l.request != nil {
		return l.request
	}
	return l.push
}

func (o *sending) run(cmd *cobra.Command, address string) error {
	ctx, stop := untilSignal(cmd.Context())
	defer stop()
	rt, tls, err := o.runtime(address, weida.Options{Offered: weida.Guarantees{Ordering: weida.OrderReassemble}})
	if err != nil {
		return err
	}
	defer rt.Shutdown() // everything was waited for
	var l link
	if o.confirm {
		l.request = rt.Requester(tls)
	} else {
		l.push = rt.Pusher(tls)
	}
	if err := o.connect(ctx, l.endpoint(), address); err != nil {
		return err
	}
	gone := o.tell(cmd, l.endpoint())
	t := tally{patience: o.linger}
	switch {
	case o.framing == framing.Raw:
		err = o.stream(ctx, cmd.InOrStdin(), l, &t)
	case o.confirm:
		err = o.each(ctx, cmd, &t, func(m weida.Meta, body []byte) error {
			err := o.ask(gone, l.request, m, body)
			t.settle(err)
			return err
		})
	default:
		err = o.pipeline(ctx, cmd, l.push, &t)
	}
	o.say(cmd, "%s", &t)
	return err
}

// each hands over every message of the input, until one fails.
func (o *sending) each(ctx context.Context, cmd *cobra.Command, t *tally, send func(weida.Meta, []byte) error) error {
	in := reading(cmd.InOrStdin(), &o.frames)
	for n := 1; ; n++ {
		message, ok := in.next(ctx.Done())
		if !ok {
			return in.end()
		}
		t.take()
		meta, body := o.meta(message)
		if err := send(meta, body); err != nil {
			return fmt.Errorf("message %d: %w", n, err)
		}
	}
}

// ask sends a message as a request and waits for the answer. It sends it again where it has certainly not arrived, or --repeat allows it, until --timeout or until there is
// nobody any more.
func (o *sending) ask(gone *watch, r *weida.Requester, meta weida.Meta, body []byte) error {
	ctx, cancel := o.patience()
	defer cancel()
	for {
		reply, err := r.Request(ctx, meta, body)
		if err == nil {
			_, err = io.Copy(io.Discard, reply)
		}
		again := errors.Is(err, weida.ErrConnectionLost) || o.repeat && errors.Is(err, weida.ErrIndeterminate)
		if !again || ctx.Err() != nil || gone.over() {
			return err
		}
	}
}

// pipeline sends messages one behind the other without waiting for their receipts, and waits for all of those at the end.
func (o *sending) pipeline(ctx context.Context, cmd *cobra.Command, push *weida.Pusher, t *tally) error {
	sent := make(chan sentMessage, maxUnconfirmed)
	settled := make(chan struct{})
	go func() {
		defer close(settled)
		for m := range sent {
			t.receipt(m)
		}
	}()
	err := o.each(ctx, cmd, t, func(meta weida.Meta, body []byte) error {
		if t.failed() != nil {
			return errEarlier
		}
		m, err := sendOne(push, meta, body)
		if err == nil {
			sent <- m
		}
		return err
	})
	close(sent)
	<-settled
	if errors.Is(err, errEarlier) {
		err = nil
	}
	return errors.Join(err, t.failed(), t.reports())
}

var errEarlier = errors.New("an earlier message did not arrive")

// sendOne sends a message, again where the link was lost before its end was written.
func sendOne(push *weida.Pusher, meta weida.Meta, body []byte) (sentMessage, error) {
	for {
		t, err := push.Open(context.Background(), meta)
		if err != nil {
			return sentMessage{}, err
		}
		if len(body) > 0 {
			_, err = t.Write(body)
		}
		var d *weida.Delivery
		if err == nil {
			d, err = t.Finish()
		}
		if err == nil {
			return sentMessage{receipt: d, cursors: t.Cursors(), bytes: uint64(len(body))}, nil
		}
		t.Cancel()
		if !errors.Is(err, weida.ErrConnectionLost) {
			return sentMessage{}, err
		}
	}
}

// stream sends the input as one message of any length, which is never whole unless the input has ended.
func (o *sending) stream(ctx context.Context, in io.Reader, l link, t *tally) error {
	t.take()
	if l.request != nil {
		err := o.askStream(ctx, in, l.request)
		t.settle(err)
		return err
	}
	out, err := l.push.Open(context.Background(), o.plainMeta())
	if err != nil {
		return err
	}
	defer out.Cancel()
	n, err := copyUntil(ctx, out, in)
	if err != nil {
		return err
	}
	d, err := out.Finish()
	if err != nil {
		return err
	}
	t.receipt(sentMessage{receipt: d, cursors: out.Cursors(), bytes: n})
	return errors.Join(t.failed(), t.reports())
}

// askStream sends the input as one request of any length.
func (o *sending) askStream(ctx context.Context, in io.Reader, r *weida.Requester) error {
	out, reply, err := r.Open(context.Background(), o.plainMeta())
	if err != nil {
		return err
	}
	defer reply.Close() // it always returns nil
	defer out.Cancel()
	if _, err = copyUntil(ctx, out, in); err == nil {
		var d *weida.Delivery
		if d, err = out.Finish(); err == nil {
			d.Discard()
		}
	}
	// Whoever refuses says so in place of a reply, too.
	if err != nil && !errors.Is(err, weida.ErrRejected) {
		return err
	}
	answer, err := reply.Recv()
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, answer)
	return err
}

// copyUntil copies until the end of the input, or fails when ctx ends first; a read that is under way then ends with the process.
func copyUntil(ctx context.Context, to io.Writer, from io.Reader) (uint64, error) {
	type result struct {
		n   int64
		err error
	}
	copied := make(chan result, 1)
	go func() {
		n, err := io.Copy(to, from)
		copied <- result{n, err}
	}()
	select {
	case r := <-copied:
		return uint64(r.n), r.err
	case <-ctx.Done():
		return 0, errInterrupted
	}
}
