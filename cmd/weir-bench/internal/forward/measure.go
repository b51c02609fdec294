package forward

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-agent/weir/cmd/weir-bench/internal/load"
	"github.com/weir-agent/weir/weida"
	"github.com/weir-agent/weir/weida/broker"
)

// credit is more than is ever delivered; how much is out at a time is for the queue to bound.
const credit = 1 << 40

// Publish sends messages with record ids to a queue for a time, or up to a count if that is not 0, so many at a time, and counts those that are confirmed as stored.
func Publish(ctx context.Context, url string, inFlight, bytes int, count int64, d time.Duration) (load.Result, error) {
	rt, err := weida.NewRuntime(weida.Options{Limits: weida.Limits{NoReceipts: true}})
	if err != nil {
		return load.Result{}, err
	}
	r := rt.Requester(weida.ClientTLS{})
	if err := r.Connect(ctx, url); err != nil {
		return load.Result{}, errors.Join(err, rt.Shutdown())
	}
	var taken atomic.Int64
	results, errs := make([]load.Result, inFlight), make([]error, inFlight)
	began := time.Now()
	var wg sync.WaitGroup
	for i := range inFlight {
		results[i].Latency = load.NewHistogram()
		wg.Go(func() {
			body := make([]byte, bytes)
			for errs[i] == nil && ctx.Err() == nil && time.Since(began) < d {
				n := taken.Add(1)
				if count > 0 && n > count {
					return
				}
				errs[i] = publishOne(ctx, r, n, body, &results[i])
			}
		})
	}
	wg.Wait()
	total := load.Result{Elapsed: time.Since(began), Latency: load.NewHistogram()}
	for i := range results {
		total.Records += results[i].Records
		total.Latency.Merge(results[i].Latency)
	}
	return total, errors.Join(errors.Join(errs...), ctx.Err(), rt.Shutdown())
}

func publishOne(ctx context.Context, r *weida.Requester, n int64, body []byte, into *load.Result) error {
	var seed [8]byte
	binary.LittleEndian.PutUint64(seed[:], uint64(n))
	id := sha256.Sum256(seed[:])
	meta := weida.Meta{ContentLen: uint64(len(body)), Extensions: []weida.Extension{{Key: broker.RecordIDExtension, Value: string(id[:])}}}
	at := time.Now()
	in, err := r.Request(ctx, meta, body)
	if err != nil {
		return err
	}
	if _, err := in.Collect(0); err != nil {
		return err
	}
	if level := in.Meta().Achieved.Value; level < weida.LevelStored {
		return fmt.Errorf("forward: confirmed as %v only", level)
	}
	into.Records++
	return into.Latency.RecordValue(max(int64(time.Since(at)), 1))
}

// Consume takes so many messages from a queue and reports each as processed; then it waits until settled returns, as a report may be under way yet. Its time is
// that of both.
func Consume(ctx context.Context, url string, count int64, settled func() error) (load.Result, error) {
	rt, err := weida.NewRuntime(weida.Options{})
	if err != nil {
		return load.Result{}, err
	}
	s := rt.Subscriber(weida.ClientTLS{})
	err = errors.Join(s.Subscribe(""), s.Connect(ctx, url))
	if err == nil {
		err = s.Grant("", credit)
	}
	began := time.Now()
	r := load.Result{Latency: load.NewHistogram()}
	for err == nil && r.Records < count {
		if err = consumeOne(ctx, s); err == nil {
			r.Records++
		}
	}
	if err == nil {
		err = settled()
	}
	r.Elapsed = time.Since(began)
	return r, errors.Join(err, rt.Shutdown())
}

// maxMessageBytes bounds what a consumer reads of a message.
const maxMessageBytes = 16 << 20

func consumeOne(ctx context.Context, s *weida.Subscriber) error {
	in, err := s.Recv(ctx)
	if err != nil {
		return err
	}
	body, err := in.Collect(maxMessageBytes)
	if err != nil {
		return err
	}
	if report := in.Reporter(); report != nil {
		report.Report(weida.LevelProcessed, uint64(len(body)))
		report.Finish()
	}
	return nil
}
