package ingest

import (
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-agent/weir/ingest/frame"
	"github.com/weir-agent/weir/wab/record"
)

// conn is one connection. Its reader, the goroutine in run, takes all frames
// that are in its buffer, appends them as few lots, and
//
//   - if the buffer held just these and nothing else is in flight, waits for the
//     lots and writes the replies itself, so that a lone producer pays no hand-over;
//   - else gives them to the replier, a second goroutine that is started for the
//     first such lot, and reads ahead within the bounds of the window.
type conn struct {
	srv *Server
	nc  *net.UnixConn
	raw syscall.RawConn
	app Appender
	in  inbox
	win window
	// broken: a write failed or was cut off; no more replies are written.
	broken atomic.Bool

	// Of the reader alone:
	lots     []lot
	payloads [][]byte // what the lots append; aliases the buffer
	// inline settles what the reader waits for itself.
	inline settler
}

func newConn(s *Server, nc *net.UnixConn, raw syscall.RawConn) *conn {
	c := &conn{srv: s, nc: nc, raw: raw}
	c.in.init(c)
	c.win.init(s.cfg.PipelineRecords, s.cfg.PipelineBytes)
	c.inline.c = c
	return c
}

// run serves the connection until it ends.
func (c *conn) run() {
	linger := c.serve()
	c.win.finish()
	c.in.release()
	if linger && !c.broken.Load() {
		c.linger()
	}
	c.srv.leave(c)
	c.nc.Close()
}

// serve reads and answers frames. It reports whether the last reply is a Nack
// that the peer may not have got to, since it is still writing.
func (c *conn) serve() (linger bool) {
	for {
		closing := c.gather()
		if len(c.lots) > 0 {
			c.dispatch(closing)
		}
		if closing {
			return true
		}
		if c.in.again {
			continue
		}
		err := c.in.fill()
		if err != nil && c.srv.stopping.Load() && c.in.sweep() {
			continue
		}
		if err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) && !c.srv.stopping.Load() {
				c.srv.count.frameTimeouts.Add(1)
			}
			return false
		}
	}
}

// dispatch appends the gathered lots and has them answered.
func (c *conn) dispatch(closing bool) {
	alone := (closing || c.in.empty()) && c.win.idle()
	var charge int64
	if !alone {
		charge = c.reserve()
	}
	begun := c.srv.clock()
	for i := range c.lots {
		c.lots[i].begun = begun
		c.submit(&c.lots[i], !alone)
	}
	if alone {
		c.inline.settle(c.lots)
	} else {
		c.lots[len(c.lots)-1].charge = charge
		c.win.put(c, c.lots)
	}
	clear(c.lots)
	c.lots = c.lots[:0]
	clear(c.payloads)
	c.payloads = c.payloads[:0]
}

// reserve charges what the gathered lots hold while they wait for their replies.
// If the budget has no room, it waits until nothing of this connection is in
// flight: one buffer full of frames may always go on, so nobody starves.
func (c *conn) reserve() int64 {
	var n int64
	for i := range c.lots {
		n += c.lots[i].cost()
	}
	if c.srv.mem.take(n) {
		return n
	}
	c.win.waitIdle()
	c.in.restart()
	return 0
}

// submit appends one lot. Retained payloads are copied: the buffer will be
// read into again before their ids are computed.
func (c *conn) submit(l *lot, retain bool) {
	c.srv.count.frames[l.kind].Add(uint64(l.frames))
	if l.kind == frame.HealthCheck || l.kind == frame.Nack || l.refused {
		return
	}
	payloads := c.payloads[l.from:l.to]
	var err error
	l.ticket, err = c.app.Append(l.tier, payloads...)
	l.refused = err != nil
	if l.kind != frame.PushTracked || l.refused {
		return
	}
	l.payloads = payloads
	if retain {
		l.payloads = copyAll(payloads)
	}
}

func copyAll(payloads [][]byte) [][]byte {
	n := 0
	for _, p := range payloads {
		n += len(p)
	}
	flat := make([]byte, 0, n)
	out := make([][]byte, len(payloads))
	for i, p := range payloads {
		at := len(flat)
		flat = append(flat, p...)
		out[i] = flat[at:]
	}
	return out
}

// write writes replies. It first tries without a deadline, which is enough as
// long as the peer reads; a peer that leaves its socket buffer full
// for WriteTimeout is cut off. Once a write failed nothing more is written.
func (c *conn) write(b []byte) {
	if len(b) == 0 || c.broken.Load() {
		return
	}
	n, err := c.tryWrite(b)
	if err == nil && n < len(b) {
		err = c.nc.SetWriteDeadline(time.Now().Add(c.srv.cfg.WriteTimeout))
		if err == nil {
			_, err = c.nc.Write(b[n:])
		}
		if err == nil {
			err = c.nc.SetWriteDeadline(time.Time{})
		}
	}
	if err == nil {
		return
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.srv.count.writeTimeouts.Add(1)
	}
	c.broken.Store(true)
	c.nc.Close() // ends the reader, too
}

// tryWrite writes what the socket buffer takes at once.
func (c *conn) tryWrite(b []byte) (n int, err error) {
	rawErr := c.raw.Write(func(fd uintptr) bool {
		for {
			n, err = unix.Write(int(fd), b)
			switch err {
			case unix.EINTR:
				continue
			case unix.EAGAIN:
				n, err = 0, nil
			}
			return true
		}
	})
	if rawErr != nil {
		return 0, rawErr
	}
	return max(n, 0), err
}

// wake ends a read that waits, for a shutdown.
func (c *conn) wake() {
	// An error means that the connection is closed already.
	_ = c.nc.SetReadDeadline(time.Unix(1, 0))
}

const (
	lingerTimeout = time.Second
	// lingerBytes is more than the largest frame, so that a peer which sends one
	// that is refused by its header gets to the point where it reads.
	lingerBytes = 32 << 20
)

// linger ends the writing side and reads what still comes, for a bounded time, so
// that the peer can read its last reply and the end of the stream, not a reset.
func (c *conn) linger() {
	if c.nc.CloseWrite() != nil {
		return
	}
	if c.nc.SetReadDeadline(time.Now().Add(lingerTimeout)) != nil {
		return
	}
	s := c.srv.mem.slab(0)
	defer c.srv.mem.release(s)
	// Whatever ends this, the connection is closed next.
	_, _ = io.CopyBuffer(io.Discard, io.LimitReader(readerOnly{c.nc}, lingerBytes), s.b)
}

// readerOnly hides the methods by which io.Copy would bring its own buffer.
type readerOnly struct{ io.Reader }

// lot is a run of frames of one type and tier that were gathered together; a
// batch is a lot of its own.
type lot struct {
	kind    frame.Type // HealthCheck, a push type, or Nack: the last lot of a connection
	tier    record.Durability
	reason  frame.Reason // of a Nack
	refused bool         // nothing was appended: Nack(InternalError)
	frames  int
	records int
	bytes   int   // of payload
	charge  int64 // to give back to the budget once the replies are written
	from,
	to int // of conn.payloads
	begun    time.Duration // on the server's clock: when its frames had been read
	payloads [][]byte      // of a tracked lot
	ticket   ticket
}

// lotRecordBytes is charged for each record in flight, beside its payload.
const lotRecordBytes = 64

// cost is what the lot is charged; tracked payloads are there twice.
func (l *lot) cost() int64 {
	n := l.bytes
	if l.kind == frame.PushTracked {
		n *= 2
	}
	return int64(n + l.weight()*lotRecordBytes)
}

// weight is what the lot counts against PipelineRecords.
func (l *lot) weight() int { return max(l.records, l.frames) }
