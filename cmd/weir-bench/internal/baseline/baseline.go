// Package baseline measures what the machine can do without weir: one goroutine that gathers, writes into a zero-filled file and
// calls fdatasync, the echo of a Unix socket, and the keys of records.
package baseline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sys/unix"

	"github.com/weir-agent/weir/cmd/weir-bench/internal/load"
	"github.com/weir-agent/weir/wab/record"
)

const (
	fileBytes = 64 << 20
	chunk     = 1 << 20
	sector    = 512
)

// Fsync is the group commit of one goroutine: waiters hand it payloads of n bytes, it copies what has gathered behind what is
// in the file, syncs, and wakes them.
func Fsync(ctx context.Context, dir string, waiters, n int, d time.Duration) (load.Result, error) {
	f, err := zeroFile(filepath.Join(dir, "baseline"))
	if err != nil {
		return load.Result{}, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	g := &gatherer{file: f, wake: make(chan struct{}, 1), done: make(chan struct{})}
	failed := make(chan error, 1)
	go func() { failed <- g.run() }()
	out := load.Result{Latency: load.NewHistogram()}
	var mu sync.Mutex
	var wg sync.WaitGroup
	began := time.Now()
	for range waiters {
		wg.Go(func() {
			hist := load.NewHistogram()
			payload := make([]byte, n)
			records := int64(0)
			for ctx.Err() == nil {
				at := time.Now()
				<-g.add(payload)
				_ = hist.RecordValue(int64(time.Since(at))) // in range: a minute at most
				records++
			}
			mu.Lock()
			out.Records += records
			out.Latency.Merge(hist)
			mu.Unlock()
		})
	}
	wg.Wait()
	out.Elapsed = time.Since(began)
	close(g.wake)
	return out, <-failed
}

func zeroFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("baseline: %w", err)
	}
	zeros := make([]byte, chunk)
	for off := int64(0); off < fileBytes; off += chunk {
		if _, err := f.WriteAt(zeros, off); err != nil {
			return nil, errors.Join(fmt.Errorf("baseline: %w", err), f.Close())
		}
	}
	if err := f.Sync(); err != nil {
		return nil, errors.Join(fmt.Errorf("baseline: %w", err), f.Close())
	}
	return f, nil
}

type gatherer struct {
	file *os.File
	wake chan struct{}

	mu   sync.Mutex
	buf  []byte
	done chan struct{}
}

func (g *gatherer) add(p []byte) <-chan struct{} {
	g.mu.Lock()
	g.buf = append(g.buf, p...)
	done := g.done
	g.mu.Unlock()
	select {
	case g.wake <- struct{}{}:
	default:
	}
	return done
}

func (g *gatherer) run() error {
	var spare []byte
	off := int64(0)
	for range g.wake {
		g.mu.Lock()
		buf, done := g.buf, g.done
		g.buf, g.done = spare[:0], make(chan struct{})
		g.mu.Unlock()
		if len(buf) == 0 {
			spare = buf
			continue
		}
		if off+int64(len(buf)) > fileBytes {
			off = 0
		}
		if _, err := g.file.WriteAt(buf, off); err != nil {
			return fmt.Errorf("baseline: %w", err)
		}
		if err := unix.Fdatasync(int(g.file.Fd())); err != nil {
			return fmt.Errorf("baseline: %w", err)
		}
		off += (int64(len(buf)) + sector - 1) / sector * sector
		spare = buf
		close(done)
	}
	return nil
}

// RTT is the echo of a Unix socket: n bytes there, 20 bytes back, one at a time on each of some connections. It is the floor of
// what a server can do that reads and answers each record by itself.
func RTT(ctx context.Context, dir string, connections, n int, d time.Duration) (load.Result, error) {
	path := filepath.Join(dir, "echo.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		return load.Result{}, fmt.Errorf("baseline: %w", err)
	}
	var served sync.WaitGroup
	defer served.Wait()
	defer l.Close()
	served.Go(func() { echo(&served, l, n) })
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	out := load.Result{Latency: load.NewHistogram()}
	var mu sync.Mutex
	var wg sync.WaitGroup
	var failed error
	began := time.Now()
	for range connections {
		wg.Go(func() {
			hist, records, err := ask(ctx, path, n)
			mu.Lock()
			defer mu.Unlock()
			out.Records += records
			out.Latency.Merge(hist)
			failed = errors.Join(failed, err)
		})
	}
	wg.Wait()
	out.Elapsed = time.Since(began)
	return out, failed
}

// ask sends and waits, one at a time, until ctx ends.
func ask(ctx context.Context, path string, n int) (*hdrhistogram.Histogram, int64, error) {
	hist, records := load.NewHistogram(), int64(0)
	nc, err := net.Dial("unix", path)
	if err != nil {
		return hist, 0, fmt.Errorf("baseline: %w", err)
	}
	defer nc.Close()
	request, reply := make([]byte, n), make([]byte, ackBytes)
	for ctx.Err() == nil {
		at := time.Now()
		if _, err := nc.Write(request); err != nil {
			return hist, records, fmt.Errorf("baseline: %w", err)
		}
		if _, err := io.ReadFull(nc, reply); err != nil {
			return hist, records, fmt.Errorf("baseline: %w", err)
		}
		_ = hist.RecordValue(int64(time.Since(at))) // in range: a minute at most
		records++
	}
	return hist, records, nil
}

// Keys computes record ids, which each record that is delivered needs, on one goroutine: the floor of what the drain costs.
func Keys(ctx context.Context, n int, d time.Duration) load.Result {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	out := load.Result{Latency: load.NewHistogram()}
	var hasher record.IDHasher
	payload := make([]byte, n)
	began := time.Now()
	for ctx.Err() == nil {
		at := time.Now()
		for i := range uint64(1000) {
			hasher.ID(keySegment, i+1, payload)
		}
		_ = out.Latency.RecordValue(int64(time.Since(at)) / 1000) // in range: a minute at most
		out.Records += 1000
	}
	out.Elapsed = time.Since(began)
	return out
}

// keySegment is an address as the log gives them.
const keySegment = "shard_00/seg_00000001-0123456789abcdef.wab.sealed"

const ackBytes = 20

// echo answers each connection until it is closed.
func echo(served *sync.WaitGroup, l net.Listener, n int) {
	for {
		nc, err := l.Accept()
		if err != nil {
			return
		}
		served.Go(func() {
			defer nc.Close()
			request, reply := make([]byte, n), make([]byte, ackBytes)
			for {
				if _, err := io.ReadFull(nc, request); err != nil {
					return
				}
				if _, err := nc.Write(reply); err != nil {
					return
				}
			}
		})
	}
}
