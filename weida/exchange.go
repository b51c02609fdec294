package weida

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"

	"github.com/weir-agent/weir/weida/transport"
	"github.com/weir-agent/weir/weida/wire"
)

// ErrorCode is why a request gets no reply.
type ErrorCode = wire.ErrorCode

// The codes for IncomingRequest.Refuse.
const (
	CodeUnknownEndpoint = wire.CodeUnknownEndpoint
	CodeRejected        = wire.CodeRejected
	CodeUnsupported     = wire.CodeUnsupported
	CodeInternal        = wire.CodeInternal
	CodeNoReply         = wire.CodeNoReply
)

// ReplyStream is the requester's receiving half of an exchange. It must be received from or closed.
type ReplyStream struct {
	conn    *conn
	ctx     context.Context
	target  string
	recv    transport.ReceiveStream
	unwatch func() bool
	taken   atomic.Bool
}

func newReplyStream(ctx context.Context, c *conn, s transport.ReceiveStream, path string) *ReplyStream {
	r := &ReplyStream{conn: c, ctx: ctx, target: path, recv: s, unwatch: noWatch}
	if ctx.Done() != nil {
		r.unwatch = context.AfterFunc(ctx, func() { s.Stop(transport.CodeCanceled) })
	}
	return r
}

// Recv waits for the reply and returns it once it has begun; the context of the exchange governs its payload, too. It fails with what the replier
// said in its place, with ErrIndeterminate if the link ended first, or with ErrProtocol.
func (r *ReplyStream) Recv() (*IncomingTransfer, error) {
	if !r.taken.CompareAndSwap(false, true) {
		return nil, opError("reply", r.target, ErrClosed)
	}
	t, err := r.read()
	r.unwatch()
	if err != nil {
		r.recv.Stop(transport.CodeCanceled)
		return nil, opError("reply", r.target, err)
	}
	return t, nil
}

func (r *ReplyStream) read() (*IncomingTransfer, error) {
	p, err := r.conn.readPreamble(r.recv, wire.Reply)
	if err != nil {
		return nil, r.failed(err)
	}
	header, err := readHeader(r.recv, p)
	if err != nil {
		return nil, r.failed(err)
	}
	if p.Kind == wire.KindError {
		e, err := wire.ParseError(header)
		if err != nil {
			return nil, r.failed(err)
		}
		if e.Message.Value == "" {
			return nil, errorOutcome(e.Code)
		}
		return nil, fmt.Errorf("%w: %q", errorOutcome(e.Code), e.Message.Value)
	}
	d, err := wire.ParseData(header)
	if err != nil {
		return nil, r.failed(err)
	}
	d.Endpoint = wire.Opt[string]{} // it means nothing there
	return newIncoming(r.ctx, r.conn, r.recv, &d), nil
}

// failed is what it means that no reply could be read.
func (r *ReplyStream) failed(err error) error {
	_, reset := errors.AsType[*transport.ResetError](err)
	_, closed := errors.AsType[*transport.CloseError](err)
	switch {
	case closed:
		return ErrIndeterminate
	case reset, errors.Is(err, transport.ErrAbandoned):
		return ended(r.ctx, err)
	}
	return r.conn.violation(err)
}

// Close says that the reply is not wanted any more. After Recv it does nothing. It always returns nil.
func (r *ReplyStream) Close() error {
	if r.taken.CompareAndSwap(false, true) {
		r.unwatch()
		r.recv.Stop(transport.CodeCanceled)
	}
	return nil
}

// IncomingRequest is an exchange that was accepted: a body, and the reply that it is owed. It must be answered, by Reply, Respond or Refuse, or closed, which
// tells the requester that there will be no reply; `defer r.Close()` is always right. A request that is forgotten is closed when the garbage collector finds it.
type IncomingRequest struct {
	body    *IncomingTransfer
	half    *replyHalf
	cleanup runtime.Cleanup
}

// replyHalf is the sending half that a request is owed.
type replyHalf struct {
	conn     *conn
	send     transport.SendStream
	body     transport.ReceiveStream
	taken    atomic.Bool // the body lives on without the request
	answered atomic.Bool
}

func newRequest(c *conn, w transport.SendStream, body *IncomingTransfer) *IncomingRequest {
	r := &IncomingRequest{body: body, half: &replyHalf{conn: c, send: w, body: body.recv}}
	r.cleanup = runtime.AddCleanup(r, func(h *replyHalf) { c.rt.spawn(h.forgotten) }, r.half)
	return r
}

// forgotten answers a request that nobody will.
func (h *replyHalf) forgotten() {
	if h.answered.CompareAndSwap(false, true) {
		h.conn.answerError(h.send, wire.CodeNoReply, "")
		if !h.taken.Load() {
			h.body.Stop(transport.CodeRejected)
		}
	}
}

// Meta is what is known of the request.
func (r *IncomingRequest) Meta() *IncomingMeta { return r.body.Meta() }

// Body is the request's payload. An answer refuses what was not read of it, unless TakeBody was called.
func (r *IncomingRequest) Body() *IncomingTransfer { return r.body }

// TakeBody returns the body for reading beside and after the answer; the caller then reads it to its end or closes it.
func (r *IncomingRequest) TakeBody() *IncomingTransfer {
	r.half.taken.Store(true)
	return r.body
}

// Canceled is closed when the requester does not want the reply any more, when the link has ended, or when the request was answered.
func (r *IncomingRequest) Canceled() <-chan struct{} { return r.half.send.Done() }

// answer claims the one answer.
func (r *IncomingRequest) answer() error {
	if !r.half.answered.CompareAndSwap(false, true) {
		return opError("reply", r.Meta().Endpoint, ErrReplied)
	}
	r.cleanup.Stop()
	if !r.half.taken.Load() {
		r.body.stop(transport.CodeRejected)
	}
	return nil
}

// Reply begins the reply, which may be long before the end of the request. ctx is the life of the reply. The reply has the request's trace unless meta has one.
func (r *IncomingRequest) Reply(ctx context.Context, meta Meta) (*OutgoingTransfer, error) {
	if err := r.answer(); err != nil {
		return nil, err
	}
	if meta.Trace.IsZero() {
		meta.Trace = r.Meta().Trace
	}
	t, err := newOutgoing(ctx, r.half.conn, r.half.send, "", &meta, true)
	if err != nil {
		return nil, opError("reply", r.Meta().Endpoint, err)
	}
	t.target = r.Meta().Endpoint
	return t, nil
}

// Respond sends a whole reply. That it returns nil says that the reply is on its way, not that it arrived.
func (r *IncomingRequest) Respond(ctx context.Context, meta Meta, body []byte) error {
	t, err := r.Reply(ctx, meta)
	if err != nil {
		return err
	}
	return t.sendAll(body)
}

// sendAll writes a payload, finishes the transfer and leaves its receipt to a drain.
func (t *OutgoingTransfer) sendAll(body []byte) error {
	defer t.Cancel()
	if len(body) > 0 {
		if _, err := t.Write(body); err != nil {
			return err
		}
	}
	d, err := t.Finish()
	if err != nil {
		return err
	}
	d.Discard()
	return nil
}

// Refuse answers with an error in place of a reply. message is for people, at most 1024 bytes, and may be empty.
func (r *IncomingRequest) Refuse(code ErrorCode, message string) error {
	if err := r.answer(); err != nil {
		return err
	}
	r.half.conn.answerError(r.half.send, code, message)
	return nil
}

// refuse is Refuse for a request that nobody has taken.
func (r *IncomingRequest) refuse(code wire.ErrorCode, message string) {
	if r.half.answered.CompareAndSwap(false, true) {
		r.cleanup.Stop()
		r.half.conn.answerError(r.half.send, code, message)
	}
}

// Close tells the requester that there will be no reply, unless the request was answered. It always returns nil.
func (r *IncomingRequest) Close() error {
	if r.half.answered.CompareAndSwap(false, true) {
		r.cleanup.Stop()
		r.half.conn.answerError(r.half.send, wire.CodeNoReply, "")
		if !r.half.taken.Load() {
			r.body.stop(transport.CodeRejected)
		}
	}
	return nil
}
