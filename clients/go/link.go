package weir

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"

	"github.com/weir-agent/weir/ingest/frame"
)

// replyBufferBytes holds many replies, and any single one.
const replyBufferBytes = 16 << 10

// link is one connection. After an error it must be closed.
type link struct {
	nc  net.Conn
	raw syscall.RawConn // nil where the connection has none
	in  *bufio.Reader
	// reply is the last frame that was read.
	reply [frame.Overhead + frame.MaxCoordinateBytes]byte
}

func dial(ctx context.Context, path string) (*link, error) {
	var d net.Dialer
	nc, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("weir: connect: %w", err)
	}
	return newLink(nc), nil
}

func newLink(nc net.Conn) *link {
	l := &link{nc: nc, in: bufio.NewReaderSize(nc, replyBufferBytes)}
	if sc, ok := nc.(syscall.Conn); ok {
		if raw, err := sc.SyscallConn(); err == nil {
			l.raw = raw
		}
	}
	return l
}

// idle reports whether a request may be sent: the daemon has neither closed the
// connection nor sent a byte that nobody asked for, which would be taken for the answer.
func (l *link) idle() bool {
	if l.in.Buffered() > 0 {
		return false
	}
	if l.raw == nil {
		return true
	}
	var one [1]byte
	quiet := false
	err := l.raw.Read(func(fd uintptr) bool {
		_, _, err := syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		quiet = err == syscall.EAGAIN || err == syscall.EINTR
		return true
	})
	return err == nil && quiet
}

// read reads the answer to a frame of type sent. A Nack is a *NackError, after which the
// connection goes on if the reason is transient; any other error poisons it. The
// header is checked, and the length against the cap of its type, before the
// payload is read; the result is valid until the next call.
func (l *link) read(sent frame.Type) ([]byte, error) {
	head := l.reply[:frame.HeaderLen]
	if _, err := io.ReadFull(l.in, head); err != nil {
		return nil, fmt.Errorf("weir: read the reply: %w", err)
	}
	h, err := frame.ParseReplyHeader(head, sent)
	if err != nil {
		return nil, fmt.Errorf("weir: read the reply: %w", err)
	}
	whole := l.reply[:h.FrameLen()]
	if _, err := io.ReadFull(l.in, whole[frame.HeaderLen:]); err != nil {
		return nil, fmt.Errorf("weir: read the reply: %w", err)
	}
	payload, err := frame.ParsePayload(whole, h)
	if err != nil {
		return nil, fmt.Errorf("weir: read the reply: %w", err)
	}
	if h.Type != frame.Nack {
		return payload, nil
	}
	n, err := frame.ParseNack(payload)
	if err != nil {
		return nil, fmt.Errorf("weir: read the reply: %w", err)
	}
	return nil, &NackError{Reason: n.Reason, Version: n.Version}
}

// write writes whole frames before the deadline, and returns how many bytes went
// out.
func (l *link) write(b []byte, deadline time.Time) (n int, err error) {
	if err = l.nc.SetWriteDeadline(deadline); err == nil {
		n, err = l.nc.Write(b)
	}
	if err != nil {
		return n, fmt.Errorf("weir: write: %w", err)
	}
	return n, nil
}
