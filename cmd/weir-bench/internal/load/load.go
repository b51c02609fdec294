// Package load makes load on a weir socket: closed loop (each connection keeps a number of frames in flight) or open
// loop (frames are due at fixed times, and latency counts from when a frame was due, so that a stall is not hidden).
package load

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sys/unix"

	"github.com/weir-agent/weir/ingest/frame"
	"github.com/weir-agent/weir/wab/record"
)

// Options is one load.
type Options struct {
	Socket      string
	Connections int
	InFlight    int // frames that a connection has unanswered at most, 1 or more
	Batch       int // records a frame; 1: Push, more: PushBatch
	Tier        record.Durability
	Bytes       int // of one payload
	Duration    time.Duration
	// Frames ends each connection after so many frames; 0: only Duration does.
	Frames int64
	// Rate is records a second over all connections in an open loop; 0: closed loop.
	Rate float64

	dial func() (net.Conn, error) // in place of Socket
}

// Result is what a load did.
type Result struct {
	Records int64 // acked
	Failed  int64 // not acked
	Elapsed time.Duration
	// Latency of a frame in nanoseconds, from when it was written, or in an open loop from when it was due.
	Latency *hdrhistogram.Histogram
}

// PerSecond is acked records a second.
func (r Result) PerSecond() float64 { return float64(r.Records) / r.Elapsed.Seconds() }

const (
	maxLatency  = int64(time.Minute)
	significant = 3
)

// NewHistogram returns the histogram that all measurements use: 100 ns to 1 min, 3 digits.
func NewHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(100, maxLatency, significant) }

// Run makes the load until its time is over or ctx ends.
func Run(ctx context.Context, o Options) (Result, error) {
	ctx, cancel := context.WithTimeout(ctx, o.Duration)
	defer cancel()
	if o.Rate > 0 {
		// A writer that sleeps in the kernel keeps its processor of Go's scheduler for a while, which a reader would wait for: each has one.
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(runtime.NumCPU() + o.Connections))
	}
	results := make([]Result, o.Connections)
	errs := make([]error, o.Connections)
	var wg sync.WaitGroup
	began := time.Now()
	for i := range o.Connections {
		wg.Go(func() { results[i], errs[i] = connection(ctx, o) })
	}
	wg.Wait()
	total := Result{Elapsed: time.Since(began), Latency: NewHistogram()}
	for _, r := range results {
		total.Records += r.Records
		total.Failed += r.Failed
		if r.Latency != nil {
			total.Latency.Merge(r.Latency)
		}
	}
	return total, errors.Join(errs...)
}

// connection runs one connection: this goroutine writes, another one reads replies.
func connection(ctx context.Context, o Options) (Result, error) {
	if o.dial == nil {
		o.dial = func() (net.Conn, error) { return net.Dial("unix", o.Socket) }
	}
	nc, err := o.dial()
	if err != nil {
		return Result{}, fmt.Errorf("load: %w", err)
	}
	defer nc.Close()
	c := &conn{o: o, nc: nc, window: newWindow(o.InFlight), request: request(o), hist: NewHistogram()}
	if o.InFlight == 1 && o.Rate == 0 {
		err = c.oneByOne(ctx)
	} else {
		err = c.pipelined(ctx)
	}
	return Result{Records: c.records, Failed: c.failed, Latency: c.hist}, err
}

func request(o Options) []byte {
	payload := make([]byte, o.Bytes)
	for i := range payload {
		payload[i] = byte('a' + i%26)
	}
	if o.Batch <= 1 {
		return frame.Append(nil, frame.Push, o.Tier, payload)
	}
	payloads := make([][]byte, o.Batch)
	for i := range payloads {
		payloads[i] = payload
	}
	return frame.AppendPushBatch(nil, o.Tier, payloads...)
}

type conn struct {
	o       Options
	nc      net.Conn
	request []byte
	window  window
	hist    *hdrhistogram.Histogram
	records int64
	failed  int64
	body    []byte
}

func (c *conn) oneByOne(ctx context.Context) error {
	r := bufio.NewReaderSize(c.nc, 4096)
	for sent := int64(0); ctx.Err() == nil && !c.enough(sent); sent++ {
		began := time.Now()
		if _, err := c.nc.Write(c.request); err != nil {
			return fmt.Errorf("load: write: %w", err)
		}
		if err := c.reply(r, began); err != nil {
			return err
		}
	}
	return nil
}

// pipelined writes in this goroutine and reads replies in another one.
func (c *conn) pipelined(ctx context.Context) error {
	read := make(chan error, 1)
	go func() {
		err := c.readAll()
		c.window.giveUp(err)
		read <- err
	}()
	err := c.writeAll(ctx)
	if c.window.end() {
		_ = c.nc.SetReadDeadline(time.Unix(1, 0)) // wakes a reader that has nothing to wait for; it fails only on what is closed
	}
	return errors.Join(err, <-read)
}

// readAll reads the replies until the window has ended and is empty. The writer is woken when what has come was read, so that its next write fills what has become
// free at once.
func (c *conn) readAll() error {
	r := bufio.NewReaderSize(c.nc, 64<<10)
	for !c.window.over() {
		if r.Buffered() == 0 {
			c.window.wake()
			if _, err := r.Peek(1); err != nil {
				if c.window.over() {
					return nil
				}
				return fmt.Errorf("load: read: %w", err)
			}
		}
		if err := c.reply(r, c.window.oldest()); err != nil {
			return err
		}
		c.window.answer()
	}
	return nil
}

// writeAll writes frames while the window has room; as many as there is room for go out in one write.
func (c *conn) writeAll(ctx context.Context) error {
	const most = 256
	buf := make([]byte, 0, len(c.request)*min(most, c.o.InFlight))
	interval := time.Duration(0)
	next := time.Now()
	if c.o.Rate > 0 {
		interval = time.Duration(float64(c.o.Connections*max(1, c.o.Batch)) / c.o.Rate * float64(time.Second))
	}
	for sent := int64(0); ctx.Err() == nil && !c.enough(sent); {
		buf = buf[:0]
		if interval > 0 {
			sleepUntil(next)
		}
		free := c.window.room()
		if free == 0 {
			return nil // the reader has failed
		}
		at := time.Now()
		for n := 0; n < min(most, free) && !c.enough(sent); n++ {
			if interval > 0 {
				if n > 0 && time.Until(next) > 0 {
					break
				}
				at = next
				next = next.Add(interval)
			}
			c.window.send(at)
			buf = append(buf, c.request...)
			sent++
		}
		if _, err := c.nc.Write(buf); err != nil {
			return fmt.Errorf("load: write: %w", err)
		}
	}
	return nil
}

// sleepUntil sleeps in the kernel: the timers of Go's runtime wake up to a millisecond late, which would count
// as latency of the daemon.
func sleepUntil(at time.Time) {
	for {
		wait := time.Until(at)
		if wait <= 0 {
			return
		}
		ts := unix.NsecToTimespec(int64(wait))
		if err := unix.Nanosleep(&ts, nil); err != nil && !errors.Is(err, unix.EINTR) {
			time.Sleep(wait)
		}
	}
}

// enough reports whether so many frames are all that were asked for.
func (c *conn) enough(sent int64) bool { return c.o.Frames > 0 && sent >= c.o.Frames }

// reply reads the answer to one frame.
func (c *conn) reply(r *bufio.Reader, began time.Time) error {
	var head [16]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return fmt.Errorf("load: read: %w", err)
	}
	h, err := frame.ParseReplyHeader(head[:], sent(c.o))
	if err != nil {
		return fmt.Errorf("load: reply: %w", err)
	}
	n := h.FrameLen() - len(head)
	if cap(c.body) < n {
		c.body = make([]byte, n)
	}
	if _, err := io.ReadFull(r, c.body[:n]); err != nil {
		return fmt.Errorf("load: read: %w", err)
	}
	if err := c.hist.RecordValue(min(int64(time.Since(began)), maxLatency)); err != nil {
		return fmt.Errorf("load: %w", err)
	}
	return c.count(h.Type, c.body[:n-4])
}

func sent(o Options) frame.Type {
	if o.Batch > 1 {
		return frame.PushBatch
	}
	return frame.Push
}

func (c *conn) count(t frame.Type, payload []byte) error {
	switch t {
	case frame.Ack:
		c.records++
	case frame.AckBatch:
		m, err := frame.ParseAckBatch(payload, c.o.Batch)
		if err != nil {
			return fmt.Errorf("load: reply: %w", err)
		}
		for i := range c.o.Batch {
			if m.Get(i) {
				c.records++
			} else {
				c.failed++
			}
		}
	case frame.Nack:
		c.failed += int64(max(1, c.o.Batch))
		if b, err := frame.ParseNack(payload); err != nil || !b.Reason.Transient() {
			return fmt.Errorf("load: nack %v: %w", b.Reason, err)
		}
	default:
		return fmt.Errorf("load: unexpected reply %v", t)
	}
	return nil
}
