package ingest

import (
	"bytes"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/weir-agent/weir/ingest/frame"
	"github.com/weir-agent/weir/wab"
	"github.com/weir-agent/weir/wab/record"
)

// wire is a connection whose reader the test plays itself, step by step.
func wire(t *testing.T, cfg Config) (c *conn, peer *net.UnixConn) {
	t.Helper()
	r := start(t, cfg, wab.Options{})
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "w"), Net: "unix"})
	must(t, err)
	defer l.Close()
	peer, err = net.DialUnix("unix", nil, l.Addr().(*net.UnixAddr))
	must(t, err)
	nc, err := l.AcceptUnix()
	must(t, err)
	raw, err := nc.SyscallConn()
	must(t, err)
	c = newConn(r.srv, nc, raw)
	c.app = r.log.Writable()[0]
	t.Cleanup(func() {
		c.in.release()
		nc.Close()
		peer.Close()
	})
	return c, peer
}

// Memory follows the bytes that arrived, whatever a header announces: never more
// than the class of four times as much, or one slab to read ahead into.
func TestMemoryFollowsTheBytes(t *testing.T) {
	c, peer := wire(t, Config{})
	f := frame.Append(nil, frame.Push, record.Durable, make([]byte, frame.MaxPayloadBytes))
	arrived := 0
	for arrived < 9<<20 {
		n, err := peer.Write(f[arrived : arrived+min(8<<10, len(f)-arrived)])
		must(t, err)
		arrived += n
		must(t, c.in.fill())
		if c.gather() || len(c.lots) != 0 {
			t.Fatal("a frame was taken out of a half one")
		}
		most := max(readAheadSlabBytes, slabBytes(4*arrived))
		if got := len(c.in.slab.b); got > most {
			t.Fatalf("%d bytes arrived and the buffer has %d", arrived, got)
		}
		if got := c.srv.mem.used.Load(); got > int64(most) {
			t.Fatalf("%d bytes arrived and %d are charged", arrived, got)
		}
	}
}

// A peer that has sent a long frame whole gets room for the next one at once, and
// loses it again when its frames are short.
func TestTrustFades(t *testing.T) {
	c, peer := wire(t, Config{})
	const size = 1 << 20
	long := frame.Append(nil, frame.Push, record.Durable, make([]byte, size))
	short := frame.Append(nil, frame.Push, record.Durable, []byte("x"))
	feed := func(f []byte) {
		t.Helper()
		done := make(chan error, 1)
		go func() {
			_, err := peer.Write(f)
			done <- err
		}()
		for len(c.lots) == 0 {
			must(t, c.in.fill())
			c.gather()
		}
		must(t, <-done)
		c.lots, c.payloads = c.lots[:0], c.payloads[:0]
	}
	feed(long)
	if c.in.trusted < size {
		t.Errorf("after a long frame %d bytes are trusted", c.in.trusted)
	}
	for range 30 {
		feed(short)
	}
	if c.in.trusted > readAheadSlabBytes {
		t.Errorf("after 30 short frames %d bytes are trusted", c.in.trusted)
	}
	if got := len(c.in.slab.b); got > readAheadSlabBytes {
		t.Errorf("the buffer still has %d bytes", got)
	}
}

// Announcing many records costs nothing: the lots have no more entries than the
// body.
func TestLyingBatchIsRefusedBeforeMemory(t *testing.T) {
	c, peer := wire(t, Config{MaxBatchRecords: frame.MaxBatchRecords})
	_, err := peer.Write(frame.Append(nil, frame.PushBatch, record.Durable, []byte{1, 0x00, 0x08, 1, 0, 0, 0, 'x'}))
	must(t, err)
	must(t, c.in.fill())
	if !c.gather() || cap(c.payloads) > 16 {
		t.Errorf("%d places for the records of a batch of one", cap(c.payloads))
	}
}

func TestSlabClasses(t *testing.T) {
	if largest := slabClasses[len(slabClasses)-1]; largest < frame.MaxPayloadBytes+frame.Overhead {
		t.Errorf("the largest class has %d bytes, too few for the largest frame", largest)
	}
	for i, size := range slabClasses {
		if slabClass(size) != i || i > 0 && slabClass(slabClasses[i-1]+1) != i {
			t.Errorf("class %d of %d bytes is not what %d bytes get", i, size, size)
		}
	}
}

func TestMemoryBudget(t *testing.T) {
	m := &memory{limit: 300 << 10}
	a := m.slab(slabClass(256 << 10))
	if a == nil || m.used.Load() != 256<<10 {
		t.Fatalf("slab %v, %d charged", a, m.used.Load())
	}
	if m.slab(1) != nil || m.used.Load() != 256<<10 {
		t.Errorf("a slab above the budget was given, %d charged", m.used.Load())
	}
	first := m.slab(0)
	if first == nil {
		t.Error("the first class is not always there")
	}
	m.release(first)
	m.release(a)
	m.release(nil)
	if m.used.Load() != 0 {
		t.Errorf("%d bytes are still charged", m.used.Load())
	}
}

// The deadline of a frame is set by the first wait in its middle; later waits and
// bytes do not move it, and its end takes it back.
func TestOneDeadlineForAFrame(t *testing.T) {
	c, peer := wire(t, Config{FrameTimeout: time.Hour})
	f := push("hello")
	give := func(b []byte) {
		t.Helper()
		_, err := peer.Write(b)
		must(t, err)
	}
	give(f[:3])
	must(t, c.in.fill())
	c.gather()
	c.in.idle() // what a wait does
	must(t, c.in.err)
	give(f[3:6])
	must(t, c.in.fill()) // the deadline is an hour away
	c.gather()
	must(t, c.nc.SetReadDeadline(time.Unix(1, 0))) // the hour is over
	c.in.idle()
	must(t, c.in.err)
	give(f[6:9])
	if err := c.in.fill(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("fill = %v, want the deadline of the frame", err)
	}
	must(t, c.nc.SetReadDeadline(time.Now().Add(time.Hour)))
	give(f[9:])
	for len(c.lots) == 0 {
		must(t, c.in.fill())
		c.gather()
	}
	must(t, c.nc.SetReadDeadline(time.Unix(1, 0))) // left over from the frame that is done
	give(f)
	if err := c.in.fill(); err != nil {
		t.Errorf("after the end of the frame: %v", err)
	}
}

// TestReadAheadLeavesHalfOfTheBudget: peers that send much leave room for the frame of another one, and a frame in the middle takes no more than it needs.
func TestReadAheadLeavesHalfOfTheBudget(t *testing.T) {
	many := bytes.Repeat(frame.Append(nil, frame.Push, record.Durable, make([]byte, 100)), 200)
	first, peer := wire(t, Config{MaxPayloadBytes: 64 << 10, MemoryBytes: 4 * readAheadSlabBytes})
	mem := &first.srv.mem
	for i, want := range []int{readAheadSlabBytes, readAheadSlabBytes, firstSlabBytes, firstSlabBytes, firstSlabBytes} {
		c := first
		if i > 0 {
			c, peer = wire(t, Config{})
			c.srv = first.srv
		}
		_, err := peer.Write(many)
		must(t, err)
		must(t, c.in.fill())
		c.gather() // takes what came, which fills the first buffer
		c.lots, c.payloads = c.lots[:0], c.payloads[:0]
		must(t, c.in.fill())
		if got := len(c.in.slab.b); got != want {
			t.Errorf("connection %d reads into %d bytes, want %d", i, got, want)
		}
	}
	c, peer := wire(t, Config{})
	c.srv = first.srv
	before := mem.used.Load()
	_, err := peer.Write(frame.Append(nil, frame.Push, record.Durable, make([]byte, 20<<10))[:firstSlabBytes])
	must(t, err)
	must(t, c.in.fill())
	if c.gather() || c.in.skip.on {
		t.Fatal("a frame that needs room was thrown away")
	}
	if got := mem.used.Load() - before; got != 64<<10 {
		t.Errorf("a frame of 20 KiB takes %d bytes", got)
	}
}
