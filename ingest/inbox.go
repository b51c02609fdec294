package ingest

import (
	"io"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-agent/weir/ingest/frame"
)

// inbox is the read buffer of a connection. It is the reader's alone.
//
// It reads without waiting first and waits only if nothing is there; an empty
// buffer is given back before the wait, so an idle connection holds none. The
// deadline of a frame is set by the first wait in its middle and stands until
// the frame is whole.
type inbox struct {
	c    *conn
	slab *slab
	r, w int // unread bytes are slab.b[r:w]
	// again: gather is not done with the buffer, and nothing shall be read before it is.
	again bool
	// need is the length of the frame that begins at r, once its header is known.
	need int
	// trusted is the longest frame that this peer has sent whole lately.
	trusted int
	class   int // of the slab to take next
	skip    skip
	swept   int // bytes read during a shutdown

	armed    bool // a read deadline is set, for the frame that has begun
	consumed bool // that frame is over, or its deadline is void

	readFn func(fd uintptr) bool
	n      int
	err    error
}

// skip is a frame that found no room: it is read and thrown away.
type skip struct {
	on      bool
	header  frame.Header
	left    int // bytes of payload to come; the CRC follows
	running uint32
}

func (in *inbox) init(c *conn) {
	in.c = c
	in.readFn = in.readReady
}

func (in *inbox) release() {
	in.c.srv.mem.release(in.slab)
	in.slab, in.r, in.w = nil, 0, 0
}

func (in *inbox) empty() bool { return in.r == in.w && !in.skip.on }

// unread returns the bytes that were read and not consumed.
func (in *inbox) unread() []byte {
	if in.slab == nil {
		return nil
	}
	return in.slab.b[in.r:in.w]
}

// consume takes a whole frame of n bytes out of the buffer.
func (in *inbox) consume(n int) {
	in.r += n
	in.need = 0
	in.trusted = max(n, in.trusted-in.trusted/4)
	in.consumed = true
}

// restart gives the frame that has begun a new deadline: the time in which nothing
// was read of it was not its peer's.
func (in *inbox) restart() { in.consumed = true }

// fill reads at least one byte behind what is unread. At the end of the stream it
// returns io.EOF, after the deadline of a frame os.ErrDeadlineExceeded.
func (in *inbox) fill() error {
	in.compact()
	in.fit()
	if err := in.disarm(); err != nil {
		return err
	}
	if err := in.c.raw.Read(in.readFn); err != nil {
		return err
	}
	if in.err != nil {
		return in.err
	}
	if in.n == 0 {
		return io.EOF
	}
	in.w += in.n
	in.class = 0
	if in.n >= firstSlabBytes {
		in.class = readAheadClass
	}
	return nil
}

// sweepBytes is how much of what a peer had sent before a shutdown is still read.
const sweepBytes = 4 << 20

// sweep reads, during a shutdown, what is in the socket already, without waiting,
// so that frames which the peer had sent get their answers. It reports whether
// there was anything. A peer that never stops sending is bounded by sweepBytes.
func (in *inbox) sweep() bool {
	if in.swept >= sweepBytes {
		return false
	}
	in.n, in.err = 0, nil
	err := in.c.raw.Control(func(fd uintptr) { in.readReady(fd) })
	if err != nil || in.err != nil || in.n <= 0 {
		return false
	}
	in.w += in.n
	in.swept += in.n
	return true
}

// compact moves the unread bytes to the front.
func (in *inbox) compact() {
	if in.r == 0 {
		return
	}
	copy(in.slab.b, in.slab.b[in.r:in.w])
	in.w -= in.r
	in.r = 0
}

// grow makes room for the frame that has begun, of need bytes, and reports
// whether the budget allowed it. Memory follows the bytes that arrived: the
// buffer has at most four times as much, or what the peer has sent whole before.
func (in *inbox) grow() bool {
	if in.slab != nil && in.w < len(in.slab.b) {
		return true
	}
	class := slabClass(min(in.need, max(4*in.w, in.trusted, readAheadSlabBytes)))
	bigger := in.c.srv.mem.slab(class)
	if bigger == nil {
		return false
	}
	copy(bigger.b, in.slab.b[:in.w])
	in.c.srv.mem.release(in.slab)
	in.slab = bigger
	return true
}

// fit exchanges the buffer for one that suits what comes in: a larger one if reads
// fill the first class, a smaller one once the large frames are over.
func (in *inbox) fit() {
	if in.slab == nil {
		return
	}
	var other *slab
	if in.slab.class < in.class {
		other = in.c.srv.mem.spare(in.class)
	} else if in.slab.class > readAheadClass {
		// Never a larger one: only grow does that, by what has arrived.
		if want := slabClass(max(in.need, in.trusted, in.w+1, readAheadSlabBytes)); want < in.slab.class {
			other = in.c.srv.mem.slab(want)
		}
	}
	if other == nil {
		return
	}
	copy(other.b, in.slab.b[:in.w])
	in.c.srv.mem.release(in.slab)
	in.slab = other
}

// disarm takes back the deadline of a frame that is over.
func (in *inbox) disarm() error {
	if !in.armed || !in.consumed {
		in.consumed = false
		return nil
	}
	in.armed, in.consumed = false, false
	return in.deadline(time.Time{})
}

// deadline sets the read deadline, unless the server is stopping: then reads end
// at once, and this must not undo it.
func (in *inbox) deadline(t time.Time) error {
	err := in.c.nc.SetReadDeadline(t)
	if in.c.srv.stopping.Load() {
		in.c.wake()
	}
	return err
}

// readReady is called when the socket may be readable; it reports whether the
// read is over.
func (in *inbox) readReady(fd uintptr) bool {
	if in.slab == nil {
		in.take()
	}
	for {
		in.n, in.err = unix.Read(int(fd), in.slab.b[in.w:])
		switch in.err {
		case unix.EINTR:
			continue
		case unix.EAGAIN:
			in.idle()
			return in.err != nil
		}
		return true
	}
}

// take gets the buffer that the next read shall fill.
func (in *inbox) take() {
	in.slab = in.c.srv.mem.spare(in.class)
	if in.slab == nil {
		in.slab = in.c.srv.mem.slab(0)
	}
}

// idle prepares for a wait: with an empty buffer by giving it back, in the middle
// of a frame by setting its deadline. It leaves an error in err.
func (in *inbox) idle() {
	in.err = nil
	if in.empty() {
		in.release()
		return
	}
	if in.w == 0 {
		in.release() // in the middle of a frame that is thrown away
	}
	if !in.armed {
		in.armed = true
		in.err = in.deadline(time.Now().Add(in.c.srv.cfg.FrameTimeout))
	}
}
