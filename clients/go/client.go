package weir

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-agent/weir/ingest/frame"
	"github.com/weir-agent/weir/wab/record"
)

const defaultTimeout = 30 * time.Second

// Options configures a Client.
type Options struct {
	// Path is the daemon's socket.
	Path string
	// Timeout bounds each call; default 30 s. The context of a call may end it
	// sooner.
	Timeout time.Duration
}

// Client sends one frame at a time over one connection, which it makes when it is
// needed and drops after an error, or when the daemon has closed it or has sent
// what was not asked for. It is safe for use by several goroutines,
// which take turns.
type Client struct {
	opts Options
	turn chan struct{} // holds a token while a call runs
	out  []byte        // of the caller whose turn it is, like link
	link *link

	life context.Context // ends with Close
	end  context.CancelFunc
}

// New returns a client. It connects with its first call.
func New(opts Options) *Client {
	if opts.Timeout == 0 {
		opts.Timeout = defaultTimeout
	}
	c := &Client{opts: opts, turn: make(chan struct{}, 1)}
	c.life, c.end = context.WithCancel(context.Background())
	return c
}

// Push sends one record of 1 byte to 16 MiB and returns nil once it is as safe as
// d asks for. StateOf tells what an error means. The payload is not kept.
func (c *Client) Push(ctx context.Context, d Durability, payload []byte) error {
	if err := checkRecord(payload); err != nil {
		return err
	}
	_, err := c.call(ctx, frame.Push, func(out []byte) []byte {
		return frame.Append(out, frame.Push, d, payload)
	}, nil)
	return err
}

// PushTracked is Push, and returns where the record landed. The id in the
// coordinate was checked against the payload. A daemon that is too old for it answers with
// a NackError of UnknownMessage.
func (c *Client) PushTracked(ctx context.Context, d Durability, payload []byte) (Coordinate, error) {
	if err := checkRecord(payload); err != nil {
		return Coordinate{}, err
	}
	var at Coordinate
	_, err := c.call(ctx, frame.PushTracked, func(out []byte) []byte {
		return frame.Append(out, frame.PushTracked, d, payload)
	}, func(reply []byte) error {
		var err error
		if at, err = frame.ParseCoordinate(reply); err != nil {
			return err
		}
		if at.ID != record.ComputeID(at.Segment, at.Index, payload) {
			return fmt.Errorf("%w: the record id is that of another record", errReply)
		}
		return nil
	})
	if err != nil {
		return Coordinate{}, err
	}
	return at, nil
}

// PushBatch sends 1 to 2048 records in one frame of at most 16 MiB (a daemon may
// take fewer: 1024 by default). With a nil error, element i of the result tells whether record i
// is as safe as d asks for; where it is false the record's state is Unknown. With
// an error StateOf tells what it means, for all records alike.
func (c *Client) PushBatch(ctx context.Context, d Durability, payloads [][]byte) ([]bool, error) {
	if err := checkBatch(payloads); err != nil {
		return nil, err
	}
	acked := make([]bool, len(payloads))
	_, err := c.call(ctx, frame.PushBatch, func(out []byte) []byte {
		return frame.AppendPushBatch(out, d, payloads...)
	}, func(reply []byte) error {
		bits, err := frame.ParseAckBatch(reply, len(payloads))
		if err != nil {
			return err
		}
		for i := range acked {
			acked[i] = bits.Get(i)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return acked, nil
}

// Health returns nil if the daemon answers.
func (c *Client) Health(ctx context.Context) error {
	_, err := c.call(ctx, frame.HealthCheck, frame.AppendHealthCheck, nil)
	return err
}

// Close ends a call that runs, and the connection. It returns nil.
func (c *Client) Close() error {
	c.end()
	c.turn <- struct{}{}
	c.drop()
	<-c.turn
	return nil
}

func checkRecord(payload []byte) error {
	switch {
	case len(payload) == 0:
		return ErrEmpty
	case len(payload) > frame.MaxPayloadBytes:
		return fmt.Errorf("%w: a record of %d bytes, %d are possible", ErrTooLarge, len(payload), frame.MaxPayloadBytes)
	}
	return nil
}

func checkBatch(payloads [][]byte) error {
	if len(payloads) == 0 {
		return fmt.Errorf("%w: a batch without records", ErrEmpty)
	}
	if len(payloads) > frame.MaxBatchRecords {
		return fmt.Errorf("%w: a batch of %d records, %d are possible", ErrTooLarge, len(payloads), frame.MaxBatchRecords)
	}
	n := frame.BatchPrefixBytes
	for _, p := range payloads {
		if err := checkRecord(p); err != nil {
			return err
		}
		n += frame.BatchRecordOverheadBytes + len(p)
	}
	if n > frame.MaxPayloadBytes {
		return fmt.Errorf("%w: a batch of %d bytes, %d are possible", ErrTooLarge, n, frame.MaxPayloadBytes)
	}
	return nil
}

// call sends one frame and hands the payload of its answer to parse, which may be
// nil. After any error but a transient Nack the connection is dropped.
func (c *Client) call(ctx context.Context, sent frame.Type, build func([]byte) []byte, parse func([]byte) error) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, c.opts.Timeout)
	defer cancel()
	select {
	case c.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("weir: wait for the turn: %w", ctx.Err())
	case <-c.life.Done():
		return nil, ErrClosed
	}
	defer func() { <-c.turn }()
	if c.life.Err() != nil {
		return nil, ErrClosed
	}
	if c.link != nil && !c.link.idle() {
		c.drop()
	}
	if c.link == nil {
		l, err := dial(ctx, c.opts.Path)
		if err != nil {
			return nil, err
		}
		c.link = l
	}
	stop := c.endWith(ctx)
	reply, err := c.exchange(sent, build)
	if err == nil && parse != nil {
		if err = parse(reply); err != nil {
			err = fmt.Errorf("weir: read the reply: %w", err)
		}
	}
	var nack *NackError
	if !stop() || err != nil && !(errors.As(err, &nack) && nack.Reason.Transient()) {
		c.drop()
	}
	if err != nil && nack == nil && ctx.Err() != nil {
		err = fmt.Errorf("%w (%w)", err, ctx.Err())
	}
	return reply, err
}

func (c *Client) exchange(sent frame.Type, build func([]byte) []byte) ([]byte, error) {
	c.out = build(c.out[:0])
	_, err := c.link.write(c.out, time.Time{})
	if cap(c.out) > keepBytes {
		c.out = nil
	}
	if err != nil {
		// The daemon may have refused the frame by its header and closed: its Nack
		// is there to be read then.
		if reply, nack := c.link.read(sent); isNack(nack) {
			return reply, nack
		}
		return nil, err
	}
	return c.link.read(sent)
}

// keepBytes is how large a write buffer is kept for the next frame.
const keepBytes = 64 << 10

func isNack(err error) bool {
	var nack *NackError
	return errors.As(err, &nack)
}

// endWith closes the link when ctx or the client ends, which ends its reads and
// writes. stop takes that back and reports whether it had not happened.
func (c *Client) endWith(ctx context.Context) (stop func() bool) {
	nc := c.link.nc
	end := func() { nc.Close() }
	a, b := context.AfterFunc(ctx, end), context.AfterFunc(c.life, end)
	return func() bool {
		first := a()
		return b() && first
	}
}

func (c *Client) drop() {
	if c.link != nil {
		c.link.nc.Close()
		c.link = nil
	}
}
