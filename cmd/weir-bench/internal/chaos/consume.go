package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/weir-agent/weir/weida"
	"github.com/weir-agent/weir/weida/broker"
)

const (
	// consumeCredit is more than is ever delivered to one consumer; how much it has at a time is for the queue to bound.
	consumeCredit = 1 << 40
	redial        = 100 * time.Millisecond
	reportTick    = 50 * time.Millisecond
	maxBody       = 1 << 20
)

// consumer is one life of a consumer.
type consumer struct {
	log *os.File

	mu   sync.Mutex
	done []done // noted, and not reported yet; guarded by mu
}

// done is a message that was processed.
type done struct {
	report *weida.Reporter
	bytes  uint64
}

// Consume takes messages from a queue until ctx ends. It notes each one in a file, with its record id and attempt, and a moment later reports it as processed, many
// together, so that whoever kills it makes repeats. Poison it gives back.
func Consume(ctx context.Context, url, log string) error {
	file, err := os.OpenFile(log, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("chaos: %w", err)
	}
	rt, err := weida.NewRuntime(weida.Options{Reconnect: weida.ReconnectPolicy{Max: time.Second}})
	if err != nil {
		return errors.Join(err, file.Close())
	}
	s := rt.Subscriber(weida.ClientTLS{})
	events := s.Events()
	if err := s.Subscribe(""); err != nil {
		return errors.Join(err, rt.Shutdown(), file.Close())
	}
	c := &consumer{log: file}
	var wg sync.WaitGroup
	wg.Go(func() { keep(ctx, s, events, url) })
	wg.Go(func() { c.report(ctx) })
	for {
		in, rerr := s.Recv(ctx)
		if rerr != nil {
			break // ctx has ended
		}
		if err = c.take(in); err != nil {
			break
		}
	}
	err = errors.Join(err, rt.Shutdown(), file.Close())
	wg.Wait()
	return err
}

// report reports what was processed, now and then, until ctx ends.
func (c *consumer) report(ctx context.Context) {
	tick := time.NewTicker(reportTick)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		c.mu.Lock()
		all := c.done
		c.done = nil
		c.mu.Unlock()
		for _, d := range all {
			d.report.Report(weida.LevelProcessed, d.bytes)
			d.report.Finish()
		}
	}
}

// keep connects, as often as it takes, and grants credit on every new link, until ctx ends.
func keep(ctx context.Context, s *weida.Subscriber, events *weida.Events, url string) {
	connect := func() {
		for s.Connect(ctx, url) != nil && ctx.Err() == nil {
			time.Sleep(redial)
		}
	}
	connect()
	for {
		e, err := events.Next(ctx)
		if err != nil {
			return
		}
		switch e.(type) {
		case weida.Connected, weida.Missed:
			_ = s.Grant("", consumeCredit) // it fails where the link has ended again, and the next one gets its own
		case weida.GaveUp:
			connect()
		}
	}
}

// take deals with one message. The error is of the file; a message that does not come whole is none.
func (c *consumer) take(in *weida.IncomingTransfer) error {
	report := in.Reporter()
	body, err := in.Collect(maxBody)
	if err != nil {
		report.Finish()
		return nil // the link has ended
	}
	var n uint64
	if _, err := fmt.Sscan(string(body[:min(len(body), numberBytes)]), &n); err != nil {
		return fmt.Errorf("chaos: a message without a number: %w", err)
	}
	if isPoison(n) {
		report.Finish()
		return nil
	}
	id, _ := in.Meta().Extension(broker.RecordIDExtension)
	if _, err := fmt.Fprintf(c.log, "%d %d %d %x\n", n, in.Meta().DeliveryAttempt, time.Now().UnixNano(), id); err != nil {
		return err
	}
	c.mu.Lock()
	c.done = append(c.done, done{report, uint64(len(body))})
	c.mu.Unlock()
	return nil
}
