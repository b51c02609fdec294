// Package httpsink delivers records by HTTP: one record a request (raw), or one
// batch a request (ndjson, json). DESIGN section 8 is its contract.
//
// Each call of Deliver is one attempt; when to make the next is the caller's. The one
// repeat that happens below is net/http's own, on a kept connection that the
// server ended before it answered: it sends the same bytes from the start, with the same
// Idempotency-Key.
//
// Only an answer that was received delivers. Whatever else happens is Retry,
// and then the endpoint may have the records: the key lets it drop the repeat.
package httpsink

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-agent/weir/sinks"
	"github.com/weir-agent/weir/sinks/setup"
	"github.com/weir-agent/weir/wab/record"
)

const (
	// maxDrainBytes is how much of an answer's body is read so that its
	// connection can be used again.
	maxDrainBytes = 64 << 10
	// maxAnswerBytes bounds an answer that tells records apart.
	maxAnswerBytes = 16 << 20
	// maxTextBytes is how much of an answer is looked at for a reason.
	maxTextBytes = 4 << 10
)

var errNoAnswer = errors.New("httpsink: no answer in time")

// Sink is the HTTP sink. It is safe for use by several goroutines.
type Sink struct {
	set     settings
	conns   *setup.Conns
	buffers *buffers
	slots   chan struct{} // one for each raw request under way

	mu      sync.Mutex
	creds   *credentials // guarded by mu
	current *generation  // guarded by mu
}

var _ sinks.Sink = (*Sink)(nil)

// New checks o and returns the sink. Nothing is sent and no connection made. Every
// fault of o is in the error (errors.Join), each named by its configuration key.
func New(o Options) (*Sink, error) {
	set, f := resolve(o)
	fresh, unread := set.readFiles()
	creds, unfit := set.credentials(fresh)
	if err := errors.Join(f.Err(), unread, unfit); err != nil {
		return nil, err
	}
	b, err := newBuffers(set.Compression)
	if err != nil {
		return nil, err
	}
	return &Sink{
		set:     set,
		conns:   setup.NewConns(set.ConnectTimeout),
		buffers: b,
		slots:   make(chan struct{}, set.Concurrency),
		creds:   creds,
	}, nil
}

// Close ends every connection; a Deliver that is under way then returns Retry. It may be called again.
func (s *Sink) Close() error {
	s.conns.Close()
	s.mu.Lock()
	g := s.current
	s.mu.Unlock()
	if g != nil {
		g.transport.CloseIdleConnections()
	}
	return s.buffers.close()
}

// Deliver makes one attempt for each record of b. See sinks.Sink.
func (s *Sink) Deliver(ctx context.Context, b sinks.Batch) []sinks.Outcome {
	if len(b.Records) == 0 {
		return nil
	}
	g, creds, err := s.enter(time.Now())
	defer s.leave(g)
	a := &attempt{sink: s, transport: g.transport, creds: creds, fileFault: err}
	if s.set.Format == FormatRaw {
		return a.raw(ctx, b.Records)
	}
	return a.batch(ctx, b)
}

// attempt is one Deliver.
type attempt struct {
	sink      *Sink
	transport *http.Transport
	creds     *credentials
	fileFault error // the credentials are old ones because the files are faulty
}

// raw sends each record by itself, several at once. After an answer that
// concerns all of them the rest is not sent, and gets that answer.
func (a *attempt) raw(ctx context.Context, records []record.Record) []sinks.Outcome {
	out := make([]sinks.Outcome, len(records))
	var next atomic.Int64
	var stop atomic.Pointer[sinks.Outcome]
	work := func() {
		for {
			i := int(next.Add(1)) - 1
			if i >= len(records) {
				return
			}
			if first := stop.Load(); first != nil {
				out[i] = *first
				continue
			}
			out[i] = a.one(ctx, &records[i])
			if stops(out[i]) {
				first := out[i]
				first.Reason = sinks.CleanReason("not sent: " + first.Reason)
				stop.CompareAndSwap(nil, &first)
			}
		}
	}
	var wg sync.WaitGroup
	for range min(len(records), a.sink.set.Concurrency) - 1 {
		wg.Go(work)
	}
	work()
	wg.Wait()
	return out
}

// one sends one record as a request of its own, when its turn comes.
func (a *attempt) one(ctx context.Context, r *record.Record) sinks.Outcome {
	select {
	case a.sink.slots <- struct{}{}:
	case <-ctx.Done():
		return a.failed(ctx.Err())
	}
	defer func() { <-a.sink.slots }()
	// net/http puts header and body into one write for a bytes.Reader only, and may read it after the request has
	// failed: so the bytes are a copy of this request's own.
	data, done := a.sink.buffers.encode(r.Payload)
	own := bytes.Clone(data)
	done()
	values := []string{r.ID.String(), r.Segment, strconv.FormatUint(r.Index, 10)}
	header := maps.Clone(a.creds.header)
	header["Idempotency-Key"] = values[0:1:1]
	header["Weir-Segment"] = values[1:2:2]
	header["Weir-Index"] = values[2:3:3]
	o, _ := a.send(ctx, header, int64(len(own)), func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(own)), nil
	}, nil)
	o.Isolated = o.Verdict == sinks.Reject
	return o
}

// batch sends all records that the format can carry in one request.
func (a *attempt) batch(ctx context.Context, b sinks.Batch) []sinks.Outcome {
	out := make([]sinks.Outcome, len(b.Records))
	set, pool := &a.sink.set, a.sink.buffers
	key, sent := b.Key, len(b.Records)
	var plain *[]byte
	if set.Format == FormatJSON {
		plain = pool.get(jsonBytes(b.Records))
		*plain = appendJSON(*plain, b.Records)
	} else {
		plain = pool.get(linesBytes(b.Records, set.BulkAction))
		*plain, sent = appendLines(*plain, b.Records, set.BulkAction, out)
	}
	defer pool.put(plain)
	if sent == 0 {
		return out
	}
	if sent < len(b.Records) {
		key = keyOfSent(b.Records, out)
	}
	data, done := pool.encode(*plain)
	defer done()
	content := newBody(data)
	defer content.release()
	header := maps.Clone(a.creds.header)
	header["Idempotency-Key"] = []string{key.String()}
	header["Weir-Record-Count"] = []string{strconv.Itoa(sent)}
	o, answer := a.send(ctx, header, int64(len(data)), content.reader, func(status int) bool {
		return set.Partial == PartialBulk || status == http.StatusMultiStatus
	})
	o.Isolated = o.Verdict == sinks.Reject && sent == 1
	if o.Verdict == sinks.Delivered && answer != nil {
		a.apart(out, sent, o.Status, answer)
		return out
	}
	for i := range out {
		if out[i].Verdict == sinks.Invalid {
			out[i] = o
		}
	}
	return out
}

// keyOfSent returns the key over the records that no outcome excludes yet: it is
// the key that the rest has as a batch of its own, so one key always means the same body.
func keyOfSent(records []record.Record, out []sinks.Outcome) record.ID {
	var sent []record.Record
	for i := range records {
		if out[i].Verdict == sinks.Invalid {
			sent = append(sent, records[i])
		}
	}
	return record.BatchKey(sent)
}

// wanted tells whether the body of an answer that delivers is needed; nil is never.
type wanted func(status int) bool

// bodyFunc returns a reader of a request's body from its first byte, as http.Request.GetBody does.
type bodyFunc = func() (io.ReadCloser, error)

// send makes one request and returns the outcome that its status means, and
// the answer's body where it means delivered and is wanted.
func (a *attempt) send(parent context.Context, header http.Header, size int64, body bodyFunc, want wanted) (sinks.Outcome, []byte) {
	set := &a.sink.set
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	timer := time.AfterFunc(set.Timeout, func() { cancel(errNoAnswer) })
	defer timer.Stop()

	first, err := body()
	if err != nil {
		return a.failed(err), nil
	}
	req := (&http.Request{
		Method: set.Method, URL: set.url, Host: set.host,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: header, Body: first, GetBody: body, ContentLength: size,
	}).WithContext(ctx)
	resp, err := a.transport.RoundTrip(req)
	if err == nil && ctx.Err() != nil {
		// The request was given up before its answer was here, and what comes then may say no more than that the endpoint has noticed:
		// a handler that returns because its client has gone answers 200.
		_ = resp.Body.Close()
		err = context.Cause(ctx)
	}
	if err != nil {
		if context.Cause(ctx) == errNoAnswer {
			err = errNoAnswer
		}
		return a.failed(err), nil
	}
	timer.Reset(set.AnswerTimeout)
	return a.read(resp, want)
}

// read turns an answer into an outcome and leaves its connection fit for use
// where that takes no more than maxDrainBytes.
func (a *attempt) read(resp *http.Response, want wanted) (sinks.Outcome, []byte) {
	defer resp.Body.Close()
	set := &a.sink.set
	o := sinks.Outcome{Verdict: set.status.verdict(resp.StatusCode), Status: resp.StatusCode}
	if o.Verdict == sinks.Delivered {
		if want == nil || !want(resp.StatusCode) {
			// The status has said it: a body that breaks off changes nothing.
			_, _ = io.CopyN(io.Discard, resp.Body, maxDrainBytes)
			return o, nil
		}
		body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes+1))
		if err == nil && len(body) > maxAnswerBytes {
			err = errors.New("the answer is larger than 16 MiB")
		}
		if err != nil {
			o = a.failed(err)
			o.Status = resp.StatusCode
			return o, nil
		}
		return o, body
	}
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxTextBytes)) // what came before an error serves as well
	_, _ = io.CopyN(io.Discard, resp.Body, maxDrainBytes-maxTextBytes)
	o.RetryAfter = retryAfter(resp.Header, time.Now(), set.RetryAfterMax)
	o.Reason = a.reason("HTTP " + strconv.Itoa(resp.StatusCode) + ": " + string(text))
	return o, nil
}

// failed is the outcome of an attempt that got no answer from the endpoint. A proxy
// can hold it, but no proxy's word delivers or rejects a record.
func (a *attempt) failed(err error) sinks.Outcome {
	o := sinks.Outcome{Verdict: sinks.Retry, Reason: a.reason(err.Error())}
	if e, ok := errors.AsType[*proxyError](err); ok {
		o.Status = e.status
		if a.sink.set.status.verdict(e.status) == sinks.Hold {
			o.Verdict = sinks.Hold
		}
	}
	return o
}

func (a *attempt) reason(text string) string {
	if a.fileFault != nil {
		text = "old credentials are in use (" + a.fileFault.Error() + "); " + text
	}
	return sinks.CleanReason(text, a.creds.secrets...)
}
