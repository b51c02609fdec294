package weidasink

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-agent/weir/sinks"
	"github.com/weir-agent/weir/wab/record"
	"github.com/weir-agent/weir/weida"
)

// chunkBytes is how much of a payload is written at a time, so that a large record on a slow link is seen to get on.
const chunkBytes = 256 << 10

// attempt is one Deliver: one goroutine opens an exchange for each record, in their order, and the caller's reads the confirms in the same order.
type attempt struct {
	sink  *Sink
	ctx   context.Context
	timer *time.Timer                   // ends ctx when nothing gets done
	stop  atomic.Pointer[sinks.Outcome] // why the rest is not sent
	begun chan exchange
}

// exchange is a record under way.
type exchange struct {
	at    int
	reply *weida.ReplyStream // nil if there is none
	err   error              // of the request
}

// Deliver makes one attempt for each record of b. See sinks.Sink.
func (s *Sink) Deliver(parent context.Context, b sinks.Batch) []sinks.Outcome {
	if len(b.Records) == 0 {
		return nil
	}
	if err := s.connect(parent); err != nil {
		return sinks.Same(len(b.Records), s.failed(err))
	}
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	a := &attempt{sink: s, ctx: ctx, begun: make(chan exchange, min(len(b.Records), s.set.MaxInFlight))}
	a.timer = time.AfterFunc(s.set.Timeout, func() { cancel(errNoConfirm) })
	defer a.timer.Stop()
	out := make([]sinks.Outcome, len(b.Records))
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(a.begun)
		a.send(b.Records)
	})
	for e := range a.begun {
		out[e.at] = a.receive(e)
		if e.reply != nil {
			<-s.slots
		}
	}
	wg.Wait()
	a.account(b.Records, out)
	return out
}

// send opens the exchanges, until one has come to something that concerns all of them.
func (a *attempt) send(records []record.Record) {
	for i := range records {
		if a.stop.Load() != nil {
			return
		}
		if a.sink.tooLarge(&records[i]) {
			continue
		}
		select {
		case a.sink.slots <- struct{}{}:
		case <-a.ctx.Done():
			a.begun <- exchange{at: i, err: context.Cause(a.ctx)}
			return
		}
		e := a.request(&records[i])
		e.at = i
		if e.reply == nil {
			<-a.sink.slots
		}
		a.begun <- e
		if e.reply == nil {
			return
		}
	}
}

// request sends one record. With a reply stream, what becomes of the record is for that to say, also where the request failed.
func (a *attempt) request(r *record.Record) exchange {
	set := &a.sink.set
	meta := weida.Meta{
		ContentType: set.ContentType, ContentLen: uint64(len(r.Payload)), Topic: set.Topic,
		Extensions: []weida.Extension{{Key: RecordIDExtension, Value: string(r.ID[:])}},
	}
	t, reply, err := a.sink.requester.Open(a.ctx, meta)
	if err != nil {
		return exchange{err: err}
	}
	defer t.Cancel()
	for rest := r.Payload; len(rest) > 0 && err == nil; {
		chunk := rest[:min(len(rest), chunkBytes)]
		rest = rest[len(chunk):]
		_, err = t.Write(chunk)
		a.progress()
	}
	if err == nil {
		_, err = t.Finish() // nobody waits for the receipt, and there is none
	}
	return exchange{reply: reply, err: err}
}

// progress says that something got done.
func (a *attempt) progress() { a.timer.Reset(a.sink.set.Timeout) }

// receive waits for what becomes of a record.
func (a *attempt) receive(e exchange) sinks.Outcome {
	o := sinks.Outcome{}
	if e.reply == nil {
		o = a.sink.failed(e.err)
	} else {
		o = a.confirm(e)
		a.progress()
	}
	if stops(o) {
		a.stop.CompareAndSwap(nil, &o)
	}
	return o
}

// confirm reads the reply to a request. What comes after ctx has ended is not believed: a link that is taken down may say anything.
func (a *attempt) confirm(e exchange) sinks.Outcome {
	in, err := e.reply.Recv()
	if err == nil {
		_, err = in.Collect(0) // a confirm is a header alone
	}
	if a.ctx.Err() != nil {
		return a.sink.failed(context.Cause(a.ctx))
	}
	if err != nil {
		return a.sink.failed(worse(e.err, err))
	}
	return a.sink.judge(in.Meta())
}

// account gives an outcome to the records that were not sent: those that are too large, and those behind what has stopped the attempt.
func (a *attempt) account(records []record.Record, out []sinks.Outcome) {
	var unsent sinks.Outcome
	if first := a.stop.Load(); first != nil {
		unsent = *first
		unsent.Reason = sinks.CleanReason("not sent: " + first.Reason)
	}
	for i := range out {
		switch {
		case a.sink.tooLarge(&records[i]):
			out[i] = a.sink.refused(&records[i])
		case out[i].Verdict == sinks.Invalid:
			out[i] = unsent
		}
	}
}
