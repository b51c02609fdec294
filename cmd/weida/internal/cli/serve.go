package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-agent/weir/cmd/weida/internal/exit"
	"github.com/weir-agent/weir/cmd/weida/internal/framing"
	"github.com/weir-agent/weir/cmd/weida/internal/terms"
	"github.com/weir-agent/weir/weida"
)

// serving is the flags of serve.
type serving struct {
	terms.Server
	frames
	topics
	echo, sink, pub bool
	confirm         bool
	count           int
	timeout         time.Duration
	asJSON          bool
	subscribers     int
	linger          time.Duration
	quiet           bool
}

func newServe() *cobra.Command {
	var o serving
	cmd := &cobra.Command{
		Use:   "serve --echo|--sink|--pub ADDRESS",
		Short: "Be the side that is dialled: answer, write or publish messages",
		Long: "--echo answers each request with its body. --sink writes each message that is sent here to standard output; with --confirm messages are requests, which are answered when they " +
			"were written. --pub publishes each message of standard input to whoever has subscribed; a subscriber that is too slow loses messages, which are counted.\n\n" +
			"The address is weida://host:port/path (no host: every interface; port 0: a free one) or weida+unix://<percent-encoded path of a socket>/path. The one to paste at the other side is " +
			"printed on standard error. SIGTERM or an interrupt ends it in order: what was taken is written.\n\n" + framing.Describe(),
		Example: "  weida serve --sink weida://:7443/logs > logs.txt\n" +
			"  weida serve --sink --confirm --allow sha256:9f86… weida://:7443/logs >> logs.txt\n" +
			"  weida serve --echo weida+unix://%2Frun%2Fuser%2F1000%2Fecho/echo\n" +
			"  sensor | weida serve --pub --topics weida://:7443/sensors\n" +
			"  weida serve --sink --framing raw --count 1 weida://:7443/file > backup.tar",
		Args: cobra.ExactArgs(1),
	}
	o.Server.Register(cmd.Flags())
	o.frames.register(cmd)
	f := cmd.Flags()
	f.BoolVar(&o.echo, "echo", false, "answer each request with its body")
	f.BoolVar(&o.sink, "sink", false, "write each message to standard output")
	f.BoolVar(&o.pub, "pub", false, "publish each message of standard input")
	f.BoolVar(&o.confirm, "confirm", false, "with --sink: take requests, and answer each when it was written")
	f.IntVar(&o.count, "count", 0, "with --sink: end after so many messages; 0 is never")
	f.DurationVar(&o.timeout, "timeout", 30*time.Second, "with --sink: how long a message that has begun may take; 0 is for ever")
	f.BoolVar(&o.asJSON, "json", false, "with --sink: print each message as JSON, its payload in base64")
	f.StringVar(&o.topic, "topic", "", "with --pub: topic of all messages")
	f.BoolVar(&o.topics.prefixed, "topics", false, "each message begins with its topic and a tab")
	f.IntVar(&o.subscribers, "subscribers", 0, "with --pub: how many subscribers must be there before the first message is read")
	f.DurationVar(&o.linger, "linger", time.Second, "how long to stay at the end while somebody is connected, who may be reading")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "print no counts at the end")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := o.check(cmd); err != nil {
			return err
		}
		return o.run(cmd, args[0])
	}
	return cmd
}

// belongs is which of echo, sink and pub a flag goes with.
func (o *serving) belongs() map[string]bool {
	return map[string]bool{
		"confirm": o.sink, "count": o.sink, "timeout": o.sink, "json": o.sink, "topic": o.pub, "subscribers": o.pub, "topics": o.sink || o.pub, "framing": !o.echo,
	}
}

func (o *serving) check(cmd *cobra.Command) error {
	kinds := 0
	for _, is := range []bool{o.echo, o.sink, o.pub} {
		if is {
			kinds++
		}
	}
	if kinds != 1 {
		return exit.Usage(errors.New("one of --echo, --sink and --pub is needed"))
	}
	for name, fits := range o.belongs() {
		if !fits && cmd.Flags().Changed(name) {
			return exit.Usage(fmt.Errorf("--%s means nothing here (see %s --help)", name, cmd.CommandPath()))
		}
	}
	if o.count < 0 || o.subscribers < 0 {
		return exit.Usage(errors.New("--count and --subscribers cannot be negative"))
	}
	return cmp.Or(o.topics.check(&o.frames), o.frames.check())
}

// maxHeld is how many messages a sink holds back on a link until the ones before them are there: half of the streams that a sender may have open.
const maxHeld = 1024

func (o *serving) run(cmd *cobra.Command, address string) error {
	ctx, stop := untilSignal(cmd.Context())
	defer stop()
	place, err := terms.ParsePlace(address)
	if err != nil {
		return err
	}
	opts := weida.Options{}
	switch {
	case o.sink:
		opts.Offered.Ordering = weida.OrderReassemble
		opts.Limits.MaxReorderHold = maxHeld
	case o.pub:
		opts.Offered.Ordering = weida.OrderDetect
	}
	rt, err := weida.NewRuntime(opts)
	if err != nil {
		return err
	}
	err = o.serve(ctx, cmd, rt, place)
	// What was answered or published last gets the time to arrive.
	_, derr := rt.Drain(stopPatience)
	return errors.Join(err, derr)
}

// serve claims the path before anybody can ask for it.
func (o *serving) serve(ctx context.Context, cmd *cobra.Command, rt *weida.Runtime, place terms.Place) error {
	l := rt.Listener()
	var work func() error
	switch {
	case o.echo:
		r, err := l.Replier(place.Path)
		if err != nil {
			return err
		}
		work = func() error { return o.runEcho(ctx, r) }
	case o.pub:
		p, err := l.Publisher(place.Path)
		if err != nil {
			return err
		}
		work = func() error { return o.publish(ctx, cmd, p) }
	case o.confirm:
		r, err := l.Replier(place.Path)
		if err != nil {
			return err
		}
		work = func() error { return o.runConfirm(ctx, cmd, r) }
	default:
		p, err := l.Puller(place.Path)
		if err != nil {
			return err
		}
		work = func() error { return o.runSink(ctx, cmd, p) }
	}
	b, err := o.Bind(l, place)
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "serving %s%s\n", b.Authority, place.Path)
	if b.Open {
		fmt.Fprintln(cmd.ErrOrStderr(), "anybody who reaches it may connect: --allow names who may")
	}
	err = work()
	o.stay(b)
	return err
}

// stay lets whoever is connected read what was answered, reported or published last: the end of a link takes what its peer has not read.
func (o *serving) stay(b *terms.Bound) {
	limit := time.NewTimer(o.linger)
	defer limit.Stop()
	look := time.NewTicker(lookAgain)
	defer look.Stop()
	for b.Connections() > 0 {
		select {
		case <-look.C:
		case <-limit.C:
			return
		}
	}
}

// maxEchoes is how many requests are answered at once. Others wait in the queue of the path.
const maxEchoes = 256

// runEcho answers requests until ctx ends, and then lets those under way go on for a while.
func (o *serving) runEcho(ctx context.Context, r *weida.Replier) error {
	life, end := context.WithCancel(context.Background())
	defer end()
	places := make(chan struct{}, maxEchoes)
	var answers sync.WaitGroup
	for {
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
		}
		req, err := r.Accept(ctx)
		if err != nil {
			break
		}
		answers.Go(func() {
			defer func() { <-places }()
			answer(life, req)
		})
	}
	limit := time.AfterFunc(stopPatience, end)
	defer limit.Stop()
	answers.Wait()
	return nil
}

// answer sends a body back while it comes. What fails is told to the requester by the end of its reply.
func answer(ctx context.Context, req *weida.IncomingRequest) {
	defer req.Close() // it always returns nil
	body := req.TakeBody()
	defer body.Close() // it always returns nil
	defer context.AfterFunc(ctx, func() { _ = body.Close() })()
	meta := body.Meta()
	reply, err := req.Reply(ctx, weida.Meta{ContentType: meta.ContentType, ContentLen: meta.ContentLen.Value, Topic: meta.Topic.Value})
	if err != nil {
		return
	}
	defer reply.Cancel()
	if _, err := io.Copy(reply, body); err != nil {
		return
	}
	if d, err := reply.Finish(); err == nil {
		d.Discard()
	}
}

func (o *serving) newSink(cmd *cobra.Command) *sink {
	return &sink{out: newOutput(cmd, &o.frames, o.asJSON, o.topics.prefixed), frames: &o.frames, count: o.count, timeout: o.timeout, note: cmd.ErrOrStderr()}
}

func (o *serving) runSink(ctx context.Context, cmd *cobra.Command, p *weida.Puller) error {
	s := o.newSink(cmd)
	err := s.run(ctx, p)
	if !o.quiet {
		s.sum()
	}
	return err
}

// runConfirm writes requests and answers each when it was written.
func (o *serving) runConfirm(ctx context.Context, cmd *cobra.Command, r *weida.Replier) error {
	s := o.newSink(cmd)
	var failed error
	for failed == nil && (s.count == 0 || s.written < s.count) {
		req, err := r.Accept(ctx)
		if err != nil {
			break
		}
		failed = s.confirm(ctx, req)
	}
	if !o.quiet {
		s.sum()
	}
	return failed
}

// confirm writes a request and answers it. One that could not be written gets no answer.
func (s *sink) confirm(ctx context.Context, req *weida.IncomingRequest) error {
	defer req.Close() // it always returns nil
	before := s.written
	err := s.take(ctx, req.Body())
	if err == nil {
		err = s.flush()
	}
	if err == nil && s.written > before {
		// That the answer cannot be brought any more is the requester's to see.
		_ = req.Respond(context.Background(), weida.Meta{}, nil)
	}
	return err
}

// lookAgain is how often it is looked whether enough subscribers are there.
const lookAgain = 20 * time.Millisecond

// publish publishes the input, and waits until what was published has gone out.
func (o *serving) publish(ctx context.Context, cmd *cobra.Command, p *weida.Publisher) error {
	look := time.NewTicker(lookAgain)
	defer look.Stop()
	for p.Subscribers() < o.subscribers {
		select {
		case <-look.C:
		case <-ctx.Done():
			return nil
		}
	}
	in := reading(cmd.InOrStdin(), &o.frames)
	n, copies := 0, 0
	var err error
	for {
		message, ok := in.next(ctx.Done())
		if !ok {
			if err = in.end(); errors.Is(err, errInterrupted) {
				err = nil // it is how a publisher ends
			}
			break
		}
		topic, body := o.topics.of(message)
		var queued int
		if queued, err = p.Publish(weida.Meta{Topic: topic, ContentLen: uint64(len(body))}, body); err != nil {
			err = fmt.Errorf("message %d: %w", n+1, err)
			break
		}
		n, copies = n+1, copies+queued
	}
	limit, cancel := context.WithTimeout(context.Background(), stopPatience)
	defer cancel()
	left := p.Flush(limit)
	if !o.quiet {
		d := p.Dropped()
		room := d.OverBytes + d.OverMessages
		fmt.Fprintf(cmd.ErrOrStderr(), "%d messages published, %d copies queued, %d dropped for want of room, %d not delivered\n", n, copies, room, d.Total()-room)
	}
	return errors.Join(err, left)
}
