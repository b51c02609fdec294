// Package soak runs weir for a long time under everything that goes wrong at once: kills, an endpoint that misbehaves, and a disk that is full
// now and then. At the end the ledger is drawn: what was acked and did not arrive is lost.
package soak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"

	weir "github.com/weir-agent/weir/clients/go"
	"github.com/weir-agent/weir/cmd/weir-bench/internal/proc"
)

// Options is one soak.
type Options struct {
	Weir      string // binary
	Dir       string // an empty folder
	For       time.Duration
	Producers int
	Rate      int // records a second, of all producers
	Bytes     int
	Seed      uint64
	DiskBytes int64 // of the file system that is filled up; 0: none is
	Out       io.Writer
}

const (
	minCalm, maxCalm   = 1 * time.Second, 12 * time.Second
	minFault, maxFault = 500 * time.Millisecond, 4 * time.Second
	drainLimit         = 3 * time.Minute
	say                = time.Minute
)

// soak is one run.
type soak struct {
	Options
	data     string
	endpoint *endpoint
	daemon   *proc.Daemon
	disk     bool // the file system is ours, and may be filled

	acked, sent, unknown        atomic.Int64
	kills, stops, fills, starts atomic.Int64
	ledger                      ledger
}

// Run soaks and prints the table. The error says what the ledger lacks.
func Run(ctx context.Context, o Options) error {
	s := &soak{Options: o, data: filepath.Join(o.Dir, "data")}
	unmount, err := s.mount()
	if err != nil {
		return err
	}
	defer unmount()
	if s.endpoint, err = newEndpoint(&s.ledger); err != nil {
		return err
	}
	defer s.endpoint.close()
	if err := s.start(ctx); err != nil {
		return err
	}
	began := time.Now()
	ran, cancel := context.WithTimeout(ctx, o.For)
	defer cancel()
	var wg sync.WaitGroup
	var faults error
	wg.Go(func() { s.endpoint.misbehave(ran, rand.New(rand.NewPCG(o.Seed, 1))) })
	wg.Go(func() { faults = s.torment(ran, rand.New(rand.NewPCG(o.Seed, 2))) })
	wg.Go(func() { s.report(ran) })
	for i := range o.Producers {
		wg.Go(func() { s.produce(ran, rand.New(rand.NewPCG(o.Seed, uint64(10+i)))) })
	}
	wg.Wait()
	if faults != nil {
		return faults
	}
	return s.settle(ctx, time.Since(began))
}

// mount puts a small file system under the data, where that may be done, so that it can be filled up.
func (s *soak) mount() (func(), error) {
	if s.DiskBytes == 0 || os.Geteuid() != 0 {
		fmt.Fprintln(s.Out, "left out: full disks (they need root and --disk)")
		return func() {}, nil
	}
	dir := filepath.Join(s.Dir, "disk")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, fmt.Errorf("soak: %w", err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d,mode=0700", s.DiskBytes)); err != nil {
		return nil, fmt.Errorf("soak: mount a file system of %d bytes: %w", s.DiskBytes, err)
	}
	s.disk, s.data = true, filepath.Join(dir, "data")
	return func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			fmt.Fprintf(s.Out, "unmount %s: %v\n", dir, err)
		}
	}, nil
}

func (s *soak) start(ctx context.Context) (err error) {
	config := filepath.Join(s.Dir, "weir.toml")
	text := fmt.Sprintf("shutdown_timeout = \"5s\"\n[wab]\nsegment_bytes = \"1MiB\"\nmin_free_bytes = 0\n[drain]\nbatch_records = 100\n[sink]\ntype = \"http\"\n[sink.http]\nurl = %q\ntimeout = \"2s\"\n", s.endpoint.url)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return fmt.Errorf("soak: %w", err)
	}
	s.starts.Add(1)
	s.daemon, err = proc.Start(ctx, s.Weir, s.data, "--config", config, "--log-level", "error")
	return err
}

func pause(ctx context.Context, rng *rand.Rand, least, most time.Duration) bool {
	select {
	case <-time.After(least + time.Duration(rng.Int64N(int64(most-least)))):
		return true
	case <-ctx.Done():
		return false
	}
}

// torment kills the daemon, stops it, and fills its disk, in turns.
func (s *soak) torment(ctx context.Context, rng *rand.Rand) error {
	for pause(ctx, rng, minCalm, maxCalm) {
		var err error
		switch what := rng.IntN(3); {
		case what == 0 && s.disk:
			err = s.fill(ctx, rng)
		case what == 1:
			s.stops.Add(1)
			err = s.daemon.Stop()
			if err == nil {
				err = s.start(context.WithoutCancel(ctx))
			}
		default:
			s.kills.Add(1)
			err = s.daemon.Kill()
			if err == nil {
				err = s.start(context.WithoutCancel(ctx))
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// fill takes all free space of the file system for a while, and sometimes kills the daemon meanwhile.
func (s *soak) fill(ctx context.Context, rng *rand.Rand) error {
	s.fills.Add(1)
	name := filepath.Join(filepath.Dir(s.data), "ballast")
	f, err := os.Create(name)
	if err != nil {
		return fmt.Errorf("soak: %w", err)
	}
	chunk := make([]byte, 64<<10)
	for err == nil {
		_, err = f.Write(chunk)
	}
	if !errors.Is(err, unix.ENOSPC) {
		return fmt.Errorf("soak: fill the disk: %w", errors.Join(err, f.Close()))
	}
	pause(ctx, rng, minFault, maxFault)
	return errors.Join(f.Close(), os.Remove(name))
}

// produce pushes at its share of the rate. What has no ack is not pushed again: the ledger holds what was acked.
func (s *soak) produce(ctx context.Context, rng *rand.Rand) {
	p := weir.NewProducer(weir.ProducerOptions{Path: filepath.Join(s.data, "weir.sock"), BatchRecords: 1 + rng.IntN(64), MaxBackoff: 200 * time.Millisecond, Timeout: 5 * time.Second})
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		<-tick.C
		for range max(1, s.Rate/s.Producers/100) {
			n := s.sent.Add(1)
			err := p.Send(ctx, s.payload(n), func(o weir.Outcome) {
				if o.State == weir.Acked {
					s.ledger.ack(n)
					s.acked.Add(1)
				} else {
					s.unknown.Add(1)
				}
			})
			if err != nil {
				break
			}
		}
	}
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	_ = p.Close(limit) // what has no answer is unknown
}

func (s *soak) payload(n int64) []byte {
	b := fmt.Appendf(nil, "%d ", n)
	for len(b) < s.Bytes {
		b = append(b, byte('a'+(n+int64(len(b)))%26))
	}
	return b
}

func (s *soak) report(ctx context.Context) {
	tick := time.NewTicker(say)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			missing, _ := s.ledger.missing()
			fmt.Fprintf(s.Out, "acked %d, to be delivered %d, kills %d, full disks %d, endpoint faults %d\n", s.acked.Load(), missing, s.kills.Load(), s.fills.Load(), s.endpoint.faults.Load())
		case <-ctx.Done():
			return
		}
	}
}

// settle lets all be well, waits for the deliveries and draws the ledger over the time that it ran.
func (s *soak) settle(ctx context.Context, ran time.Duration) error {
	s.endpoint.heal()
	if ctx.Err() != nil { // an interrupt ends the soak early, and the daemon with it: what is in its log is not lost
		ctx = context.WithoutCancel(ctx)
		if err := s.daemon.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
		if err := s.start(ctx); err != nil {
			return err
		}
	}
	for until := time.Now().Add(drainLimit); time.Now().Before(until); time.Sleep(50 * time.Millisecond) {
		if missing, _ := s.ledger.missing(); missing == 0 {
			break
		}
	}
	if err := s.daemon.Stop(); err != nil {
		return err
	}
	missing, first := s.ledger.missing()
	w := tabwriter.NewWriter(s.Out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "seed\t%d\t\n", s.Seed)
	for _, row := range []struct {
		name string
		n    int64
	}{
		{"kills", s.kills.Load()},
		{"orderly stops", s.stops.Load()},
		{"full disks", s.fills.Load()},
		{"endpoint faults", s.endpoint.faults.Load()},
		{"pushed", s.sent.Load()},
		{"without an ack", s.unknown.Load()},
		{"acked", s.acked.Load()},
		{"repeats dropped", s.endpoint.repeats.Load()},
		{"lost", missing},
	} {
		fmt.Fprintf(w, "%s\t%d\t\n", row.name, row.n)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if missing > 0 {
		return fmt.Errorf("soak: %d acked records did not arrive; the first is number %d", missing, first)
	}
	if s.acked.Load() == 0 || s.kills.Load()+s.stops.Load() == 0 && ran > 2*maxCalm {
		return errors.New("soak: nothing happened")
	}
	return nil
}

// ledger has two bits for each record: acked and arrived.
type ledger struct {
	mu      sync.Mutex
	acked   []uint64
	arrived []uint64
}

func set(words []uint64, n int64) []uint64 {
	for int64(len(words)) <= n/64 {
		words = append(words, make([]uint64, 1024)...)
	}
	words[n/64] |= 1 << (n % 64)
	return words
}

func (l *ledger) ack(n int64) {
	l.mu.Lock()
	l.acked = set(l.acked, n)
	l.mu.Unlock()
}

func (l *ledger) arrive(n int64) {
	l.mu.Lock()
	l.arrived = set(l.arrived, n)
	l.mu.Unlock()
}

// missing counts what was acked and has not arrived.
func (l *ledger) missing() (n, first int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, w := range l.acked {
		if i < len(l.arrived) {
			w &^= l.arrived[i]
		}
		for ; w != 0; w &= w - 1 {
			if n == 0 {
				first = int64(i)*64 + int64(bits.TrailingZeros64(w))
			}
			n++
		}
	}
	return n, first
}
