package weida

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/weir-agent/weir/weida/transport"
	"github.com/weir-agent/weir/weida/wire"
)

// conn is one link with what weida knows of it. Both sides run the same code. Payload never passes through it: transfers read and write their streams
// themselves.
type conn struct {
	rt   *Runtime
	link transport.Link
	// ns is where streams of the peer find their endpoints.
	ns *namespace
	// parking holds the receipts that nobody waits for, until they are here or a drain asks for them.
	parking *transport.Parking
	reports reportTable
	// finishing is the reports that this side makes and that are being ended.
	finishing unwritten
	// writing is the places for reports that this side writes.
	writing reportPlaces
	hello   *time.Timer // closes the link if the peer's HELLO does not come

	// ready is closed when agreed is set; agreed does not change afterwards.
	ready  chan struct{}
	agreed wire.Agreed

	// handlers are the goroutines that serve one-way streams.
	handlers sync.WaitGroup
	// control holds a token while a SUBSCRIBE, UNSUBSCRIBE or CREDIT is served: one after the other, so that what an acceptor is told is in order.
	control chan struct{}
	// members and filters are what the peer has subscribed to, by path, and with how many filters in all. The namespace's lock of subscriptions guards them.
	members map[string]*member
	filters int
	// bus brings a bus's copies to the peer; it is set before the link is up, and nil for other endpoints.
	bus *courier
	// numbers counts what this side sends; order judges the numbers of what it receives.
	numbers numbering
	order   sequencing

	mu sync.Mutex
	// heard is set by the first HELLO of the peer.
	heard bool
	// fault is why this side closed the link, where it did so for a fault of the peer.
	fault error
}

// startConn takes over a link, or closes it where the runtime is closed. owner is told when it has ended; it may be nil.
func (rt *Runtime) startConn(link transport.Link, ns *namespace, owner func()) (*conn, error) {
	c := &conn{rt: rt, link: link, ns: ns, ready: make(chan struct{}), control: make(chan struct{}, 1)}
	c.writing.most = max(1, rt.opts.Limits.MaxConcurrentUniStreams)
	c.parking = transport.NewParking(max(0, rt.opts.Limits.MaxConcurrentUniStreams) + max(0, rt.opts.Limits.MaxConcurrentBidiStreams))
	if err := rt.addConn(c); err != nil {
		link.Close(transport.CodeShutdown, "shutting down")
		return nil, err
	}
	defer rt.tasks.Done() // of addConn, so that the runtime waits for what begins here
	c.hello = time.AfterFunc(rt.opts.Limits.HelloTimeout, func() {
		c.fail(transport.CodeNegotiationFailed, fmt.Errorf("%w: the peer's HELLO did not come in time", ErrNegotiation))
	})
	if control, ok := link.(transport.Controlled); ok {
		w, r := control.Control()
		rt.tasks.Go(func() { c.sendHello(w) })
		rt.tasks.Go(func() { c.settle(c.readHello(r)) })
	} else {
		rt.tasks.Go(func() { c.sendHello(nil) })
	}
	rt.tasks.Go(c.acceptBi)
	rt.tasks.Go(func() {
		c.acceptUni()
		c.hello.Stop()
		c.reports.end()
		rt.removeConn(c)
		if owner != nil {
			owner()
		}
		c.handlers.Wait()
		c.unsubscribeAll()
		if l, ok := link.(transport.Busy); ok {
			l.WaitTasks()
		}
	})
	return c, nil
}

// fail closes the link for a fault of the peer.
func (c *conn) fail(code uint64, err error) {
	c.mu.Lock()
	if c.fault == nil {
		c.fault = err
	}
	c.mu.Unlock()
	c.link.Close(code, err.Error())
}

// violation closes the link because the peer broke the protocol (§3.2).
func (c *conn) violation(err error) error {
	err = fmt.Errorf("%w: %w", ErrProtocol, err)
	c.fail(transport.CodeProtocolViolation, err)
	return err
}

// negotiated waits until both HELLOs are here, the link has ended, or ctx has.
func (c *conn) negotiated(ctx context.Context) error {
	select {
	case <-c.ready:
		return nil
	case <-c.link.Done():
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fault != nil {
		return c.fault
	}
	return outcomeOf(c.link.Err())
}

// sendHello says who this side is, on the stream that the link has for it, or on one of its own where control is nil.
func (c *conn) sendHello(control io.WriteCloser) {
	hello := c.rt.opts.hello()
	frame, err := wire.AppendHello(nil, &hello)
	switch {
	case err != nil:
	case control == nil:
		err = c.sendFrame(context.Background(), frame)
	default:
		if _, err = control.Write(frame); err == nil {
			err = control.Close()
		}
	}
	// A link on which this side cannot speak is of no use; if it has ended, this changes nothing.
	if err != nil {
		c.link.Close(transport.CodeInternal, "cannot send HELLO")
	}
}

// readHello takes the peer's HELLO from the stream that the link has for it, on which nothing else may stand.
func (c *conn) readHello(control io.ReadCloser) error {
	defer control.Close()
	p, err := c.readPreamble(control, wire.Uni)
	if err != nil {
		return err
	}
	if p.Kind != wire.KindHello {
		return fmt.Errorf("%v in place of HELLO", p.Kind)
	}
	header, err := readHeader(control, p)
	if err != nil {
		return err
	}
	return c.takeHello(header)
}

// sendFrame sends a frame that is all of a one-way stream.
func (c *conn) sendFrame(ctx context.Context, frame []byte) error {
	s, err := c.link.OpenUni(ctx)
	if err != nil {
		return err
	}
	if _, err := s.Write(frame); err != nil {
		return err
	}
	return s.CloseWrite()
}

// heard tells when the peer has a frame: by the transport's receipt, or within the machine, where that tells nothing, by the end of the stream. The zero value tells nothing.
type heard struct {
	receipt *transport.Receipt
	retired <-chan struct{}
}

// wait waits until the peer has the frame, has refused it, or is gone; or for ctx.
func (h heard) wait(ctx context.Context) error {
	switch {
	case h.retired != nil:
		select {
		case <-h.retired:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	case h.receipt != nil:
		if err := h.receipt.Wait(ctx); ctx.Err() != nil {
			return err
		}
	}
	return nil
}

// settled reports whether there is nothing to wait for.
func (h heard) settled() bool {
	switch {
	case h.retired != nil:
		select {
		case <-h.retired:
			return true
		default:
			return false
		}
	case h.receipt != nil:
		settled, _ := h.receipt.Settled()
		return settled
	}
	return true
}

// sendControl sends a frame that is all of a one-way stream, and returns what tells that the peer has it. A peer that stops reading has read what it wants.
func (c *conn) sendControl(ctx context.Context, frame []byte) (heard, error) {
	s, err := c.link.OpenUni(ctx)
	if err != nil {
		return heard{}, err
	}
	var h heard
	if local, ok := s.(transport.Retiring); ok {
		h.retired = local.Retired()
	} else if receipt, err := s.Receipt(); err == nil {
		h.receipt = receipt
	}
	if _, err = s.Write(frame); err == nil {
		err = s.CloseWrite()
	}
	if _, stopped := errors.AsType[*transport.StopError](err); stopped {
		err = nil
	}
	return h, err
}

// takeHello judges the peer's HELLO.
func (c *conn) takeHello(header []byte) error {
	theirs, err := wire.ParseHello(header)
	if err != nil {
		return err
	}
	c.mu.Lock()
	again := c.heard
	c.heard = true
	c.mu.Unlock()
	if again {
		return errors.New("a second HELLO")
	}
	ours := c.rt.opts.hello()
	agreed, err := wire.Negotiate(&ours, &theirs)
	if err != nil {
		c.fail(transport.CodeNegotiationFailed, fmt.Errorf("%w: %w", ErrNegotiation, err))
		return nil
	}
	// If the timer has fired, the link is closed, and what is ready then serves nobody.
	c.hello.Stop()
	c.agreed = agreed
	c.beginSequencing()
	close(c.ready)
	return nil
}

// acceptUni takes the peer's one-way streams until the link ends. Each is handled by a goroutine of its own, of which there are at most as many
// as the peer may have streams.
func (c *conn) acceptUni() {
	for {
		s, err := c.link.AcceptUni(context.Background())
		if err != nil {
			return
		}
		c.handlers.Go(func() { c.settle(c.handleUni(s)) })
	}
}

// acceptBi takes the peer's exchanges until the link ends.
func (c *conn) acceptBi() {
	for {
		w, r, err := c.link.AcceptBi(context.Background())
		if err != nil {
			return
		}
		if k, ok := w.(transport.Kindless); ok {
			c.rt.tasks.Go(func() { c.settle(c.handleKindless(k, w, r)) })
			continue
		}
		c.rt.tasks.Go(func() { c.settle(c.handleBi(w, r)) })
	}
}

// settle closes the link for an error that is the peer's fault. A stream that was reset and a link that has ended are none.
func (c *conn) settle(err error) {
	if err == nil {
		return
	}
	_, reset := errors.AsType[*transport.ResetError](err)
	_, closed := errors.AsType[*transport.CloseError](err)
	if !reset && !closed && !errors.Is(err, transport.ErrAbandoned) {
		_ = c.violation(err) // it is of no interest but to the link
	}
}

// handleUni serves one one-way stream, until it is queued, refused or read. The error is why its framing was wrong.
func (c *conn) handleUni(s transport.ReceiveStream) error {
	p, err := c.readPreamble(s, wire.Uni)
	if err != nil {
		return err
	}
	if p.Kind != wire.KindHello && c.negotiated(context.Background()) != nil {
		return nil // the link has ended
	}
	header, err := readHeader(s, p)
	if err != nil {
		return err
	}
	return c.takeUni(s, p, header)
}

// takeUni serves a one-way stream by its kind.
func (c *conn) takeUni(s transport.ReceiveStream, p wire.Preamble, header []byte) (err error) {
	switch p.Kind {
	case wire.KindHello:
		if err := c.takeHello(header); err != nil {
			return err
		}
		if n, _ := s.Read(make([]byte, 1)); n == 0 { // its end, or that of the link
			return nil
		}
	case wire.KindData:
		return c.takeTransfer(s, header)
	case wire.KindCursor:
		return c.takeCursor(s, header)
	case wire.KindSubscribe, wire.KindUnsubscribe, wire.KindCredit:
		err = c.takeControl(p.Kind, header)
	}
	s.Stop(transport.CodeNoError) // nothing may follow that anybody wants
	return err
}

// takeTransfer dispatches a one-way transfer.
func (c *conn) takeTransfer(s transport.ReceiveStream, header []byte) error {
	d, err := initiating(header)
	if err != nil {
		return err
	}
	c.sequence(arrival{stream: s, data: &d})
	return nil
}

// deliver brings a one-way transfer to its endpoint.
func (c *conn) deliver(a arrival) {
	e, verdict := c.route(a.data, wire.Uni)
	if verdict.accept && e.admit != nil && !e.admit(c) {
		verdict = decision{stop: transport.CodeLimitExceeded}
	}
	if !verdict.accept {
		a.stream.Stop(verdict.stop)
		return
	}
	in := newIncoming(context.Background(), c, a.stream, a.data)
	in.meta.Gap, in.identity = a.gap, a.identity
	e.put(Incoming{Transfer: in}, c.link.Done())
}

// handleBi serves one exchange, until it is queued or refused.
func (c *conn) handleBi(w transport.SendStream, r transport.ReceiveStream) error {
	p, err := c.readPreamble(r, wire.Initiating)
	if err != nil {
		return err
	}
	if c.negotiated(context.Background()) != nil {
		return nil
	}
	header, err := readHeader(r, p)
	if err != nil {
		return err
	}
	return c.takeExchange(w, r, header)
}

// handleKindless serves one stream whose transport does not say whether it is one-way or an exchange: its frame and what is registered at its path do
// (weida-protocol §2.1). A path that takes both takes it as an exchange, and what is answered to a one-way transfer reaches nobody.
func (c *conn) handleKindless(k transport.Kindless, w transport.SendStream, r transport.ReceiveStream) error {
	header, p, err := c.readKindless(r)
	oneWay := err != nil || header == nil || p.Kind != wire.KindData
	if !oneWay {
		d, derr := initiating(header)
		if err = derr; err == nil {
			e := c.ns.find(d.Endpoint.Value)
			oneWay = e != nil && e.kind == routePuller
		}
	}
	switch {
	case err != nil:
		k.OneWay()
		r.Stop(transport.CodeCanceled)
		return err
	case header == nil: // the link has ended
		return nil
	case oneWay:
		k.OneWay()
		return c.takeUni(r, p, header)
	}
	return c.takeExchange(w, r, header)
}

// readKindless reads the preamble and the header of a stream of no kind. Without a header the link has ended.
func (c *conn) readKindless(r transport.ReceiveStream) ([]byte, wire.Preamble, error) {
	p, err := c.readPreamble(r, wire.Uni)
	if err != nil || c.negotiated(context.Background()) != nil {
		return nil, p, err
	}
	header, err := readHeader(r, p)
	return header, p, err
}

// takeExchange dispatches an exchange.
func (c *conn) takeExchange(w transport.SendStream, r transport.ReceiveStream, header []byte) error {
	d, err := initiating(header)
	if err != nil {
		return err
	}
	e, verdict := c.route(&d, wire.Initiating)
	if verdict.accept {
		e.put(Incoming{Request: newRequest(c, w, newIncoming(context.Background(), c, r, &d))}, c.link.Done())
		return nil
	}
	r.Stop(verdict.stop)
	if verdict.answer == 0 {
		w.Reset(verdict.stop)
	} else {
		c.answerError(w, verdict.answer, "")
	}
	return nil
}

// answerError puts an ERROR on a reply half and ends it. That the peer has lost interest or the link has ended is nothing that could be told to anybody.
func (c *conn) answerError(w transport.SendStream, code wire.ErrorCode, message string) {
	frame, err := wire.AppendError(nil, wire.Error{Code: code, Message: some(message)}, c.agreed.SendMaxHeaderBytes)
	if err == nil {
		if _, err = w.Write(frame); err == nil {
			err = w.CloseWrite()
		}
	}
	if err != nil {
		w.Reset(transport.CodeInternal)
	}
}

// route finds the endpoint of a stream and what is to be done with it.
func (c *conn) route(d *wire.Data, half wire.Half) (*endpoint, decision) {
	e := c.ns.find(d.Endpoint.Value)
	kind := routeNone
	if e != nil {
		kind = e.kind
	}
	return e, dispatch(kind, half, c.rt.draining.Load())
}

// initiating reads the header of a stream that begins something, which must say where it goes (§6.2).
func initiating(header []byte) (wire.Data, error) {
	d, err := wire.ParseData(header)
	if err == nil && !d.Endpoint.Set {
		err = wire.ErrMissingKey
	}
	return d, err
}

// readPreamble reads the preamble of a half and no byte more.
func (c *conn) readPreamble(s io.Reader, half wire.Half) (wire.Preamble, error) {
	var buf [wire.MaxPreambleBytes]byte
	n := 0
	for {
		p, _, err := wire.ParsePreamble(buf[:n], c.rt.opts.Limits.MaxHeaderBytes)
		switch {
		case err == nil && !p.Kind.Allowed(half):
			return p, fmt.Errorf("%v may not stand there", p.Kind)
		case err == nil:
			return p, nil
		case !errors.Is(err, wire.ErrIncomplete):
			return p, err
		}
		want := wire.PreambleBytes(buf[:n])
		m, err := s.Read(buf[n:want])
		if n += m; m == 0 && err != nil {
			return p, endOfFrame(err)
		}
	}
}

// readHeader reads the header behind a preamble. The preamble's length was checked against this side's bound.
func readHeader(s io.Reader, p wire.Preamble) ([]byte, error) {
	header := make([]byte, p.HeaderBytes)
	if _, err := io.ReadFull(s, header); err != nil {
		return nil, endOfFrame(err)
	}
	return header, nil
}

// endOfFrame names the end of a stream inside a frame for what it is.
func endOfFrame(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return wire.ErrIncomplete
	}
	return err
}
