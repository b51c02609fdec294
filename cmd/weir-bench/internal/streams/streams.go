// Package streams measures weida beside what it is built on and what it replaces: a bare QUIC stream and a TCP connection with TLS. All three serve
// the same three things (an echo, a sink that answers, a sink that does not), so one set of measurements fits them all.
package streams

import (
	"context"
	"io"
	"time"

	"github.com/weir-agent/weir/cmd/weir-bench/internal/load"
)

// Client is one connection to a server of this package.
type Client interface {
	// Ask opens an exchange with a request of size bytes. The server echoes it or, for a sink, answers it with one byte when it has read it all.
	Ask(ctx context.Context, size int64, sink bool) (Exchange, error)
	// Push sends one message to nobody in particular. It fails with ErrNoPush where there is no such thing.
	Push(ctx context.Context, body []byte) error
	// Settle waits until the other side's transport has all that was pushed, and returns for how many messages that is not known.
	Settle(ctx context.Context) (unknown uint64, err error)
	// Close ends the connection.
	Close() error
}

// Exchange is a request and its reply.
type Exchange interface {
	io.Writer
	// CloseRequest says that the request is whole.
	CloseRequest() error
	io.Reader
	// CloseReply says that the reply was read, and fails if there is more of it.
	CloseReply() error
}

// Dialler makes connections to one server.
type Dialler interface {
	Dial(ctx context.Context) (Client, error)
	// Close frees what its connections shared. All of them are closed before it.
	Close() error
}

// Echo sends body and reads it back, one after the other, for duration.
func Echo(ctx context.Context, d Dialler, bytes int, duration time.Duration) (load.Result, error) {
	c, err := d.Dial(ctx)
	if err != nil {
		return load.Result{}, err
	}
	body, reply := make([]byte, bytes), make([]byte, bytes)
	return timed(c, duration, func() error {
		x, err := c.Ask(ctx, int64(bytes), false)
		if err != nil {
			return err
		}
		return exchange(x, body, reply)
	})
}

// exchange sends a whole request and reads a whole reply.
func exchange(x Exchange, body, reply []byte) error {
	if _, err := x.Write(body); err != nil {
		return err
	}
	if err := x.CloseRequest(); err != nil {
		return err
	}
	return readReply(x, reply)
}

// readReply reads a whole reply.
func readReply(x Exchange, reply []byte) error {
	if _, err := io.ReadFull(x, reply); err != nil {
		return err
	}
	return x.CloseReply()
}

// timed calls op again and again for duration, and closes c.
func timed(c Client, duration time.Duration, op func() error) (load.Result, error) {
	r, err := timedOpen(duration, op)
	if closeErr := c.Close(); err == nil {
		err = closeErr
	}
	return r, err
}

// Push sends messages of so many bytes for duration and then waits until the other side has them all; the wait counts. Failed are those whose
// receipt gave way to later ones.
func Push(ctx context.Context, d Dialler, bytes int, duration time.Duration) (load.Result, error) {
	c, err := d.Dial(ctx)
	if err != nil {
		return load.Result{}, err
	}
	body := make([]byte, bytes)
	r := load.Result{Latency: load.NewHistogram()}
	began := time.Now()
	for time.Since(began) < duration && err == nil {
		before := time.Now()
		if err = c.Push(ctx, body); err == nil {
			_ = r.Latency.RecordValue(int64(time.Since(before)))
			r.Records++
		}
	}
	if err == nil {
		var unknown uint64
		unknown, err = c.Settle(ctx)
		r.Failed = int64(unknown)
	}
	r.Elapsed = time.Since(began)
	if closeErr := c.Close(); err == nil {
		err = closeErr
	}
	return r, err
}

// chunk is how much a large stream is written at once, in bytes.
const chunk = 256 << 10

// Large sends one request of so many bytes to a sink and waits for its answer. The records of the result are MiB.
func Large(ctx context.Context, d Dialler, bytes int64) (load.Result, error) {
	c, err := d.Dial(ctx)
	if err != nil {
		return load.Result{}, err
	}
	r := load.Result{Latency: load.NewHistogram()}
	began := time.Now()
	err = func() error {
		x, err := c.Ask(ctx, bytes, true)
		if err != nil {
			return err
		}
		body := make([]byte, chunk)
		for left := bytes; left > 0; {
			n, err := x.Write(body[:min(left, chunk)])
			if err != nil {
				return err
			}
			left -= int64(n)
		}
		return exchange(x, nil, body[:1])
	}()
	r.Elapsed, r.Records = time.Since(began), bytes>>20
	_ = r.Latency.RecordValue(int64(r.Elapsed))
	if closeErr := c.Close(); err == nil {
		err = closeErr
	}
	return r, err
}

// Handshakes makes connections one after the other for duration, each until it can be used.
func Handshakes(ctx context.Context, d Dialler, duration time.Duration) (load.Result, error) {
	r := load.Result{Latency: load.NewHistogram()}
	began := time.Now()
	for time.Since(began) < duration {
		before := time.Now()
		c, err := d.Dial(ctx)
		if err != nil {
			return r, err
		}
		_ = r.Latency.RecordValue(int64(time.Since(before)))
		r.Records++
		if err := c.Close(); err != nil {
			return r, err
		}
	}
	r.Elapsed = time.Since(began)
	return r, nil
}

// Hold makes count connections, uses each once, calls measure while all are open, and closes them.
func Hold(ctx context.Context, d Dialler, count int, measure func() error) error {
	clients := make([]Client, 0, count)
	defer func() {
		for _, c := range clients {
			_ = c.Close() // the measurement is over
		}
	}()
	for range count {
		c, err := d.Dial(ctx)
		if err != nil {
			return err
		}
		clients = append(clients, c)
		x, err := c.Ask(ctx, 1, true)
		if err != nil {
			return err
		}
		if err := exchange(x, []byte{0}, make([]byte, 1)); err != nil {
			return err
		}
	}
	return measure()
}

// serveSink reads all of a request and says that it did.
func serveSink(r io.Reader, w io.Writer) error {
	if _, err := io.Copy(io.Discard, r); err != nil {
		return err
	}
	_, err := w.Write([]byte{0})
	return err
}
