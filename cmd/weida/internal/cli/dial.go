package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-agent/weir/cmd/weida/internal/terms"
	"github.com/weir-agent/weir/weida"
)

// dialling is the flags of a command that dials.
type dialling struct {
	terms.Client
	wait    time.Duration
	timeout time.Duration
	quiet   bool
}

func (d *dialling) register(cmd *cobra.Command, timeout string) {
	d.Client.Register(cmd.Flags())
	cmd.Flags().DurationVar(&d.wait, "wait", 0, "how long to try while nobody answers at first")
	cmd.Flags().DurationVar(&d.timeout, "timeout", 30*time.Second, timeout)
	cmd.Flags().BoolVarP(&d.quiet, "quiet", "q", false, "say nothing of links that are lost and found again, nor counts at the end")
}

// endpoint is what a command dials with.
type endpoint interface {
	Connect(ctx context.Context, url string) error
	Events() *weida.Events
}

// runtime makes a runtime and says on what terms an address is dialled.
func (d *dialling) runtime(address string, o weida.Options) (*weida.Runtime, weida.ClientTLS, error) {
	a, err := terms.ParseAddress(address)
	if err != nil {
		return nil, weida.ClientTLS{}, err
	}
	tls, err := d.TLS(a)
	if err != nil {
		return nil, weida.ClientTLS{}, err
	}
	o.SendTimeout = d.timeout
	rt, err := weida.NewRuntime(o)
	return rt, tls, err
}

// The delays between attempts to reach somebody who is not there yet.
const (
	firstPause = 50 * time.Millisecond
	maxPause   = time.Second
)

// connect dials, again and again as long as --wait allows and trying again can help.
func (d *dialling) connect(ctx context.Context, e endpoint, address string) error {
	limit, cancel := context.WithCancel(ctx)
	defer cancel()
	if d.timeout > 0 {
		limit, cancel = context.WithTimeout(ctx, max(d.wait, d.timeout))
		defer cancel()
	}
	begun := time.Now()
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		err := e.Connect(limit, address)
		if err == nil || time.Since(begun) >= d.wait || !passing(err) {
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-limit.Done():
			timer.Stop()
			return errors.Join(err, context.Cause(limit))
		}
	}
}

// passing reports whether a failure to connect may be over later: nobody is there, and not that somebody refuses.
func passing(err error) bool {
	return errors.Is(err, weida.ErrConnectionLost) || errors.Is(err, weida.ErrTransport)
}

// watch is what is known of an address that was connected to.
type watch struct {
	gone chan struct{} // closed when it was given up
	err  error         // why; set before
}

func (w *watch) over() bool {
	select {
	case <-w.gone:
		return true
	default:
		return false
	}
}

// tell says what happens to the link until the endpoint is closed.
func (d *dialling) tell(cmd *cobra.Command, e endpoint) *watch {
	w := &watch{gone: make(chan struct{})}
	events := e.Events()
	go func() {
		for lost := false; ; {
			event, err := events.Next(context.Background())
			if err != nil {
				return
			}
			switch e := event.(type) {
			case weida.Lost:
				lost = true
				d.say(cmd, "%s: %v; dialling again", e.URL, e.Err)
			case weida.Connected:
				if lost {
					d.say(cmd, "%s: connected again", e.URL)
				}
				lost = false
			case weida.GaveUp:
				w.err = fmt.Errorf("%s: gave up: %w", e.URL, e.Err)
				close(w.gone)
				return
			}
		}
	}()
	return w
}

// patience is a context for one message, as --timeout says.
func (d *dialling) patience() (context.Context, context.CancelFunc) {
	if d.timeout == 0 {
		return context.WithCancel(context.Background())
	}
	return context.WithTimeoutCause(context.Background(), d.timeout, fmt.Errorf("nothing has come of it within --timeout %v", d.timeout))
}

func (d *dialling) say(cmd *cobra.Command, format string, args ...any) {
	if !d.quiet {
		fmt.Fprintf(cmd.ErrOrStderr(), format+"\n", args...)
	}
}
