package weida

import (
	"context"
	"errors"
	"io"
	"sync/atomic"

	"github.com/weir-agent/weir/weida/transport"
	"github.com/weir-agent/weir/weida/wire"
)

// OutgoingTransfer is the sending half of a transfer: write the payload, then Finish. Until then Cancel abandons it, so that `defer t.Cancel()` behind
// an open leaves no way on which a part of a payload passes for the whole.
//
// The context with which it was opened is the life of the transfer: when it ends before Finish, the transfer is canceled. One goroutine writes; Cancel may
// be called beside it.
type OutgoingTransfer struct {
	conn    *conn
	ctx     context.Context
	target  string
	send    transport.SendStream
	receipt *transport.Receipt // nil if none was asked for
	cursors *Cursors           // nil if no report was ordered
	unwatch func() bool        // stops watching ctx
	done    atomic.Bool        // finished or canceled
}

// newOutgoing writes a header to a stream and returns the transfer. The stream is reset if that fails.
func newOutgoing(ctx context.Context, c *conn, s transport.SendStream, path string, meta *Meta, wantReceipt bool) (*OutgoingTransfer, error) {
	t := &OutgoingTransfer{conn: c, ctx: ctx, target: path, send: s, unwatch: noWatch}
	if ctx.Done() != nil {
		t.unwatch = context.AfterFunc(ctx, func() { s.Reset(transport.CodeCanceled) })
	}
	if err := t.begin(path, meta, wantReceipt); err != nil {
		t.abandon()
		return nil, err
	}
	return t, nil
}

func noWatch() bool { return true }

func (t *OutgoingTransfer) begin(path string, meta *Meta, wantReceipt bool) error {
	if wantReceipt {
		receipt, err := t.send.Receipt()
		if err != nil && !errors.Is(err, transport.ErrNoReceipt) {
			return err
		}
		t.receipt = receipt
	}
	id := uint64(0)
	if len(meta.Report.Levels) > 0 {
		t.cursors = t.conn.reports.order(meta.Report)
		id = t.cursors.id
	}
	header := meta.header(path, id)
	frame, err := wire.AppendData(nil, &header, t.conn.agreed.SendMaxHeaderBytes)
	if err != nil {
		return err
	}
	_, err = t.send.Write(frame)
	return ended(t.ctx, err)
}

// Write sends p, waiting while the receiver's window is full.
func (t *OutgoingTransfer) Write(p []byte) (int, error) {
	n, err := t.send.Write(p)
	if err != nil {
		err = opError("write", t.target, ended(t.ctx, err))
	}
	return n, err
}

// Finish ends the payload, so that the receiver reads io.EOF behind it, and returns the transport's receipt for it. It does not wait. A refusal that
// has arrived, or the end of the link, is its error.
func (t *OutgoingTransfer) Finish() (*Delivery, error) {
	if !t.done.CompareAndSwap(false, true) {
		return nil, opError("finish", t.target, ErrClosed)
	}
	t.unwatch()
	if err := t.send.CloseWrite(); err != nil {
		err = ended(t.ctx, err)
		t.reset()
		return nil, opError("finish", t.target, err)
	}
	return &Delivery{conn: t.conn, target: t.target, receipt: t.receipt}, nil
}

// Cancel abandons the transfer: the receiver's read fails and never ends in io.EOF. After Finish it does nothing.
func (t *OutgoingTransfer) Cancel() {
	if t.done.CompareAndSwap(false, true) {
		t.abandon()
	}
}

// abandon frees everything of a transfer that will not be finished.
func (t *OutgoingTransfer) abandon() {
	t.done.Store(true)
	t.unwatch()
	t.reset()
}

func (t *OutgoingTransfer) reset() {
	t.send.Reset(transport.CodeCanceled)
	if t.receipt != nil {
		t.receipt.Forget()
	}
	if t.cursors != nil {
		t.cursors.Close()
	}
}

// Cursors returns what the receiver reports on this transfer, and nil if nothing was ordered. It outlives the transfer.
func (t *OutgoingTransfer) Cursors() *Cursors { return t.cursors }

// Delivery is the transport's receipt for a finished transfer: the peer's transport holds every byte and the end. It says nothing about the peer's
// application (weida-protocol §9.2).
type Delivery struct {
	conn    *conn
	target  string
	receipt *transport.Receipt
}

// Wait waits for the receipt. It fails with the peer's refusal, with ErrIndeterminate if the link ended first, or with ctx's error.
func (d *Delivery) Wait(ctx context.Context) error {
	if d.receipt == nil {
		return opError("receipt", d.target, transport.ErrNoReceipt)
	}
	return opError("receipt", d.target, outcomeOf(d.receipt.Wait(ctx)))
}

// Discard says that nobody will Wait. A drain waits in its place.
func (d *Delivery) Discard() {
	if d.receipt != nil {
		d.conn.parking.Park(d.receipt)
	}
}

// IncomingTransfer is the receiving half of a transfer: what it says of itself, and its payload. It must be read to io.EOF or closed. One goroutine
// reads; Close may be called beside it.
type IncomingTransfer struct {
	conn     *conn
	ctx      context.Context
	recv     transport.ReceiveStream
	meta     IncomingMeta
	reportID wire.Opt[uint64]
	reporter atomic.Pointer[Reporter]
	unwatch  func() bool
	identity *identity   // by which a repeat would be known; nil where nothing is remembered
	over     atomic.Bool // read to its end, failed, or stopped
}

func newIncoming(ctx context.Context, c *conn, s transport.ReceiveStream, d *wire.Data) *IncomingTransfer {
	t := &IncomingTransfer{conn: c, ctx: ctx, recv: s, meta: incomingMeta(c, d), unwatch: noWatch}
	t.reportID = wire.Opt[uint64]{Value: d.Report.Value.ID, Set: d.Report.Set}
	if ctx.Done() != nil {
		// It may run before AfterFunc returns, so it leaves unwatch alone.
		t.unwatch = context.AfterFunc(ctx, func() { t.halt(transport.CodeCanceled) })
	}
	return t
}

// Meta is what is known of the transfer. It is not to be changed.
func (t *IncomingTransfer) Meta() *IncomingMeta { return &t.meta }

// Read reads the payload. It returns io.EOF if and only if the sender finished the transfer and all of it was read.
func (t *IncomingTransfer) Read(p []byte) (int, error) {
	n, err := t.recv.Read(p)
	if err != nil {
		t.over.Store(true)
		t.unwatch()
		if err != io.EOF && t.identity != nil {
			t.conn.order.forget(*t.identity) // it is not here, so that another attempt is no repeat
		}
		if err != io.EOF { //nolint:errorlint // io.EOF itself, as io.Reader has it
			err = opError("read", t.meta.Endpoint, ended(t.ctx, err))
		}
	}
	return n, err
}

// firstRead is how much Collect reads at first; a longer payload doubles it.
const firstRead = 512

// Collect reads the whole payload, of at most maxBytes bytes, and closes the transfer. Of a longer one the rest is refused, and ErrLimitExceeded returned.
func (t *IncomingTransfer) Collect(maxBytes int) ([]byte, error) {
	defer t.Close()
	b := make([]byte, 0, min(firstRead, maxBytes+1))
	for {
		n, err := t.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		switch {
		case len(b) > maxBytes:
			return nil, opError("collect", t.meta.Endpoint, ErrLimitExceeded)
		case errors.Is(err, io.EOF):
			return b, nil
		case err != nil:
			return nil, err
		}
		if len(b) == cap(b) {
			grown := make([]byte, len(b), min(2*cap(b), maxBytes+1))
			copy(grown, b)
			b = grown
		}
	}
}

// Close refuses what was not read. After io.EOF it does nothing. It always returns nil.
func (t *IncomingTransfer) Close() error {
	t.stop(transport.CodeRejected)
	return nil
}

// stop tells the sender that no more will be read, unless the end was read.
func (t *IncomingTransfer) stop(code uint64) {
	t.unwatch()
	t.halt(code)
}

func (t *IncomingTransfer) halt(code uint64) {
	if t.over.CompareAndSwap(false, true) {
		t.recv.Stop(code)
	}
}
