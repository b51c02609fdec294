package streams

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/weir-agent/weir/cmd/weir-bench/internal/load"
	"github.com/weir-agent/weir/weida"
	"github.com/weir-agent/weir/weida/wire"
)

// Request sends requests of so many bytes and reads them back, one after the other, for duration. A request is written while its reply is read, since no carrier holds all
// of a large one.
func Request(ctx context.Context, d Dialler, bytes int, duration time.Duration) (load.Result, error) {
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
		if bytes <= chunk {
			return exchange(x, body, reply)
		}
		written := make(chan error, 1)
		go func() {
			_, err := x.Write(body)
			written <- errors.Join(err, x.CloseRequest())
		}()
		return errors.Join(readReply(x, reply), <-written)
	})
}

// settlePause is how often it is looked whether everything was read.
const settlePause = 100 * time.Microsecond

// PushRead sends messages of so many bytes for duration, to a server in this process, and waits until that has read them all; the wait counts. Within a machine a receipt would say nothing
// of that.
func (s *Server) PushRead(ctx context.Context, d Dialler, bytes int, duration time.Duration) (load.Result, error) {
	c, err := d.Dial(ctx)
	if err != nil {
		return load.Result{}, err
	}
	body := make([]byte, bytes)
	before := s.weida.pulled.Load()
	sent := int64(0)
	r, err := timedOpen(duration, func() error {
		err := c.Push(ctx, body)
		if err == nil {
			sent++
		}
		return err
	})
	began := time.Now()
	for err == nil && s.weida.pulled.Load()-before < sent {
		if time.Since(began) > settleTimeout {
			err = fmt.Errorf("streams: %d of %d messages were read", s.weida.pulled.Load()-before, sent)
		}
		time.Sleep(settlePause)
	}
	r.Elapsed += time.Since(began)
	return r, errors.Join(err, c.Close())
}

// timedOpen calls op again and again for duration.
func timedOpen(duration time.Duration, op func() error) (load.Result, error) {
	r := load.Result{Latency: load.NewHistogram()}
	began := time.Now()
	var err error
	for last := began; last.Sub(began) < duration; {
		if err = op(); err != nil {
			break
		}
		now := time.Now()
		_ = r.Latency.RecordValue(int64(now.Sub(last))) // what takes longer than a minute is not counted
		r.Records++
		last = now
	}
	r.Elapsed = time.Since(began)
	return r, err
}

const (
	// ahead is how many messages the publisher may be ahead of its slowest subscriber, so that none loses a copy for want of room.
	ahead = 128
	// lookEvery is after how many messages it looks whether it is.
	lookEvery = 64
)

// subscribers are those of one measurement. Each counts what it has received.
type subscribers struct {
	runtime  *weida.Runtime
	received []atomic.Int64
	reading  sync.WaitGroup
}

// subscribe connects so many.
func (s *Server) subscribe(ctx context.Context, address string, n, bytes int) (*subscribers, error) {
	rt, err := weida.NewRuntime(weida.Options{Buses: s.weida.buses})
	if err != nil {
		return nil, err
	}
	all := &subscribers{runtime: rt, received: make([]atomic.Int64, n)}
	for i := range n {
		sub := rt.Subscriber(weida.ClientTLS{})
		if err := errors.Join(sub.Subscribe("bench.*"), sub.Connect(ctx, address+publishPath)); err != nil {
			return nil, errors.Join(err, all.close())
		}
		all.reading.Go(func() { count(sub, bytes, &all.received[i]) })
	}
	for s.weida.publish.Subscribers() < n {
		time.Sleep(settlePause)
	}
	return all, nil
}

func (a *subscribers) close() error {
	err := a.runtime.Shutdown()
	a.reading.Wait()
	return err
}

// count counts the copies that a subscriber reads until it is closed.
func count(sub *weida.Subscriber, bytes int, received *atomic.Int64) {
	for {
		in, err := sub.Recv(context.Background())
		if err != nil {
			return
		}
		if _, err := in.Collect(bytes); err == nil {
			received.Add(1)
		}
	}
}

// least and sum are of what was received.
func (a *subscribers) least() (least, sum int64) {
	least = a.received[0].Load()
	for i := range a.received {
		n := a.received[i].Load()
		least, sum = min(least, n), sum+n
	}
	return least, sum
}

// Publish publishes messages of so many bytes to so many subscribers for duration. The records of the result are copies that were received, its latency that of a call of
// Publish and of the wait for the slowest; failed are copies that were dropped.
func (s *Server) Publish(ctx context.Context, address string, n, bytes int, duration time.Duration) (load.Result, error) {
	all, err := s.subscribe(ctx, address, n, bytes)
	if err != nil {
		return load.Result{}, err
	}
	p := s.weida.publish
	before := p.Dropped().Total()
	dropped := func() int64 { return int64(p.Dropped().Total() - before) }
	body := make([]byte, bytes)
	published := int64(0)
	r, err := timedOpen(duration, func() error {
		for published%lookEvery == 0 {
			least, sum := all.least()
			behind := published - least
			if lost := dropped(); lost > 0 { // by whom is not told
				behind = (published*int64(n) - sum - lost) / int64(n)
			}
			if behind <= ahead || ctx.Err() != nil {
				break
			}
			time.Sleep(settlePause)
		}
		published++
		_, err := p.Publish(weida.Meta{Topic: "bench.topic"}, body)
		return errors.Join(err, ctx.Err())
	})
	began := time.Now()
	for err == nil && time.Since(began) < settleTimeout {
		if _, r.Records = all.least(); r.Records+dropped() >= published*int64(n) {
			break
		}
		time.Sleep(settlePause)
	}
	r.Elapsed += time.Since(began)
	r.Failed = dropped()
	err = errors.Join(err, all.close())
	for p.Subscribers() > 0 && err == nil { // so that the next measurement begins alone
		time.Sleep(settlePause)
	}
	return r, err
}

// matches is how many matches are timed at once.
const matches = 1024

// Match matches a topic against a filter for duration.
func Match(filter, topic string, duration time.Duration) load.Result {
	r := load.Result{Latency: hdrhistogram.New(1, int64(time.Millisecond), 3)} // a match takes less than the others' histogram tells apart
	began := time.Now()
	selected := 0
	for last := began; last.Sub(began) < duration; {
		for range matches {
			if wire.Match(filter, topic) {
				selected++
			}
		}
		now := time.Now()
		_ = r.Latency.RecordValue(int64(now.Sub(last)) / matches) // what takes longer than a millisecond is not counted
		last = now
	}
	r.Elapsed, r.Records = time.Since(began), int64(selected)
	return r
}
