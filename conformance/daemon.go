package conformance

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/weir-agent/weir/ingest/frame"
	"github.com/weir-agent/weir/wab/record"
)

// daemonTimeout bounds what one vector may take.
const daemonTimeout = 10 * time.Second

// RunDaemon sends every vector that says what a daemon does to the one that
// listens on the Unix socket at path, each on a connection of its own. The daemon must have
// its default limits. It stores records in it. An error is one of connecting.
func RunDaemon(ctx context.Context, path string) (Report, error) {
	var r Report
	for _, name := range Names() {
		vectors, err := Load(name)
		if err != nil {
			return r, err
		}
		for _, v := range vectors {
			if v.Daemon == nil {
				continue
			}
			if err := r.daemon(ctx, path, v); err != nil {
				return r, err
			}
		}
	}
	return r, nil
}

func (r *Report) daemon(ctx context.Context, path string, v Vector) error {
	raw := v.Hex
	if v.Kind == KindBatch {
		raw = v.Frame
	}
	in, err := hex.DecodeString(raw)
	if err != nil {
		return fmt.Errorf("conformance: %s: %w", v.Name, err)
	}
	var d net.Dialer
	nc, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return fmt.Errorf("conformance: connect: %w", err)
	}
	defer nc.Close()
	if err := nc.SetDeadline(time.Now().Add(daemonTimeout)); err != nil {
		return fmt.Errorf("conformance: connect: %w", err)
	}
	if err := talk(nc, v, in); err != nil {
		r.fail(v, "%v", err)
		return nil
	}
	r.Passed++
	return nil
}

// talk sends a frame and judges the answer and what becomes of the connection.
func talk(nc net.Conn, v Vector, in []byte) error {
	if _, err := nc.Write(in); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	reply, err := readFrame(nc)
	if err != nil {
		return fmt.Errorf("read the reply: %w", err)
	}
	if want := v.Daemon.Reply; want != "" && hex.EncodeToString(reply) != want {
		return fmt.Errorf("the reply is %x, want %s", reply, shown(want))
	}
	if want := v.Daemon.ReplyType; want != 0 {
		if err := checkReply(v, reply, frame.Type(want)); err != nil {
			return err
		}
	}
	if v.Daemon.Connection == "open" {
		return isOpen(nc)
	}
	return isClosed(nc)
}

// checkReply checks a reply whose bytes cannot be known before.
func checkReply(v Vector, reply []byte, want frame.Type) error {
	h, payload, err := frame.Parse(reply, 0)
	if err != nil {
		return err
	}
	if h.Type != want {
		return fmt.Errorf("the reply is a %v, want %v", h.Type, want)
	}
	if want != frame.AckTracked {
		return nil
	}
	c, err := frame.ParseCoordinate(payload)
	if err != nil {
		return err
	}
	sent, err := hex.DecodeString(v.Fields.Payload)
	if err != nil {
		return err
	}
	if c.Index == 0 || c.Segment == "" || c.ID != record.ComputeID(c.Segment, c.Index, sent) {
		return fmt.Errorf("the coordinate %d of %q has the id %v, which is not that of the record", c.Index, c.Segment, c.ID)
	}
	return nil
}

func isOpen(nc net.Conn) error {
	if _, err := nc.Write(frame.AppendHealthCheck(nil)); err != nil {
		return fmt.Errorf("the connection shall stay open: %w", err)
	}
	reply, err := readFrame(nc)
	if err != nil {
		return fmt.Errorf("the connection shall stay open: %w", err)
	}
	h, _, err := frame.Parse(reply, 0)
	if err == nil && h.Type != frame.HealthCheckResponse {
		err = fmt.Errorf("a health check on the open connection was answered with %v", h.Type)
	}
	return err
}

var errStillOpen = errors.New("the connection shall be closed, but more came")

// isClosed checks that the daemon ends the stream without being asked to.
func isClosed(nc net.Conn) error {
	n, err := nc.Read(make([]byte, 1))
	switch {
	case n > 0:
		return errStillOpen
	case errors.Is(err, io.EOF):
		return nil
	}
	return fmt.Errorf("the connection shall be closed in order: %w", err)
}

// readFrame reads one reply frame, of at most what a daemon may send.
func readFrame(r io.Reader) ([]byte, error) {
	b := make([]byte, frame.HeaderLen)
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, err
	}
	h, err := frame.ParseHeader(b, frame.MaxCoordinateBytes)
	if err != nil {
		return nil, err
	}
	b = append(b, make([]byte, h.FrameLen()-frame.HeaderLen)...)
	_, err = io.ReadFull(r, b[frame.HeaderLen:])
	return b, err
}
