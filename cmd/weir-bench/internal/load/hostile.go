package load

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-agent/weir/ingest/frame"
	"github.com/weir-agent/weir/wab/record"
)

// HostileCounts is what hostile peers did.
type HostileCounts struct {
	Dribbled atomic.Int64 // bytes, by peers that send one now and then
	Lies     atomic.Int64 // headers that announce 16 MiB and send little
	Garbage  atomic.Int64 // connections that send noise
	Halves   atomic.Int64 // connections that end in the middle of a frame
	Refused  atomic.Int64 // connections that did not come about
}

const (
	dribbleEvery = 250 * time.Millisecond
	churnEvery   = 2 * time.Millisecond
)

// Hostile runs peers that mean harm until ctx ends: dribblers hold their connections and send a byte now and then, half of
// them behind a header that announces 16 MiB; others come and go with garbage, half frames and resets.
func Hostile(ctx context.Context, socket string, dribblers int, n *HostileCounts) {
	var wg sync.WaitGroup
	for i := range dribblers {
		wg.Go(func() { dribble(ctx, socket, i, n) })
	}
	wg.Go(func() { churn(ctx, socket, n) })
	wg.Wait()
}

// dribble keeps one connection that never completes a frame, and makes a new one when it is cut off.
func dribble(ctx context.Context, socket string, i int, n *HostileCounts) {
	push := frame.Append(nil, frame.Push, record.Durable, make([]byte, 1000))
	if i%2 == 0 {
		push = lie()
	}
	tick := time.NewTicker(dribbleEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		nc, err := net.Dial("unix", socket)
		if err != nil {
			n.Refused.Add(1)
			if !wait(ctx, tick) {
				return
			}
			continue
		}
		at := 0
		if i%2 == 0 {
			n.Lies.Add(1)
			at = 16
			_, err = nc.Write(push[:at])
		}
		for ; err == nil && at < len(push) && wait(ctx, tick); at++ {
			_, err = nc.Write(push[at : at+1])
			n.Dribbled.Add(1)
		}
		nc.Close()
	}
}

func wait(ctx context.Context, tick *time.Ticker) bool {
	select {
	case <-tick.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// lie is a valid header that announces 16 MiB, and a few bytes behind it.
func lie() []byte {
	b := frame.Append(nil, frame.Push, record.Durable, make([]byte, 1000))
	binary.LittleEndian.PutUint32(b[8:], record.MaxBytes)
	binary.LittleEndian.PutUint32(b[12:], frame.UpdateChecksum(0, b[:12]))
	return b
}

// churn makes connections that misbehave and end.
func churn(ctx context.Context, socket string, n *HostileCounts) {
	tick := time.NewTicker(churnEvery)
	defer tick.Stop()
	rng := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, 4096)
	push := frame.Append(nil, frame.Push, record.Durable, make([]byte, 1000))
	for wait(ctx, tick) {
		nc, err := net.Dial("unix", socket)
		if err != nil {
			n.Refused.Add(1)
			continue
		}
		if rng.IntN(2) == 0 {
			for i := range noise {
				noise[i] = byte(rng.Uint32())
			}
			_, _ = nc.Write(noise) // the daemon may hang up first
			n.Garbage.Add(1)
		} else {
			_, _ = nc.Write(push[:rng.IntN(len(push))]) // likewise
			n.Halves.Add(1)
		}
		nc.Close()
	}
}
