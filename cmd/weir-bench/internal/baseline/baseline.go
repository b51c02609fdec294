// Package baseline measures what the machine can do without weir: one goroutine that gathers, writes into a zero-filled file and
// calls fdatasync, and the echo of a Unix socket.
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

	"golang.org/x/sys/unix"

	"github.com/weir-agent/weir/cmd/weir-bench/internal/load"
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

// RTT is the echo of a Unix socket: n bytes there, 20 bytes back, one at a time.
func RTT(ctx context.Context, dir string, n int, d time.Duration) (load.Result, error) {
	path := filepath.Join(dir, "echo.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		return load.Result{}, fmt.Errorf("baseline: %w", err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	go echo(l, n)
	nc, err := net.Dial("unix", path)
	if err != nil {
		return load.Result{}, fmt.Errorf("baseline: %w", err)
	}
	defer nc.Close()
	out := load.Result{Latency: load.NewHistogram()}
	request, reply := make([]byte, n), make([]byte, ackBytes)
	began := time.Now()
	for ctx.Err() == nil {
		at := time.Now()
		if _, err := nc.Write(request); err != nil {
			return out, fmt.Errorf("baseline: %w", err)
		}
		if _, err := io.ReadFull(nc, reply); err != nil {
			return out, fmt.Errorf("baseline: %w", err)
		}
		_ = out.Latency.RecordValue(int64(time.Since(at))) // in range: a minute at most
		out.Records++
	}
	out.Elapsed = time.Since(began)
	return out, nil
}

const ackBytes = 20

// echo answers one connection until it is closed.
func echo(l net.Listener, n int) {
	nc, err := l.Accept()
	if err != nil {
		return
	}
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
}
