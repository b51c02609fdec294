// Package chaos runs the whole way of records under everything that goes wrong at once: producers, weir, a weida broker and consumers, each a process of its own
// that is killed at random, over links that are cut, on disks that are full. At the end the ledger is drawn over all hops: what weir acked was processed, or
// is in the broker, or is a dead letter; and what was processed again was marked as a repeat.
package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/weir-agent/weir/cmd/weir-bench/internal/proc"
)

// Options is one run.
type Options struct {
	Weir      string // binary
	Weida     string // binary, of the broker
	Dir       string // an empty folder
	For       time.Duration
	Producers int
	Consumers int
	Rate      int // records a second, of all producers
	Bytes     int // of a payload
	Seed      uint64
	DiskBytes int64 // of each of the two file systems that are filled up; 0: none is
	Out       io.Writer
}

const (
	minCalm, maxCalm   = 100 * time.Millisecond, 1500 * time.Millisecond
	minFault, maxFault = 200 * time.Millisecond, 4 * time.Second
	settleLimit        = 5 * time.Minute
	settlePoll         = 20 * time.Millisecond
	say                = time.Minute

	// firstsApart is more than how many records one life of a producer pushes.
	firstsApart = 1_000_000_000
)

// weirConfig is what weir runs with: short times, so that much happens, and so that there is always something under way.
const weirConfig = `shutdown_timeout = "5s"
[wab]
segment_bytes = "1MiB"
min_free_bytes = 0
[drain]
batch_records = 100
linger = "2ms"
backoff_max = "1s"
hold_interval = "500ms"
[sink]
type = "weida"
[sink.weida]
url = %q
connect_timeout = "1s"
timeout = "3s"
`

// run is one run.
type run struct {
	Options
	network    *network
	weirDisk   *disk
	brokerDisk *disk
	broker     *brokerd
	listen     string // of the broker
	weir       *proc.Daemon
	producers  []*child
	consumers  []*child
	lives      int // of producers and consumers, for the names of their files
	counts     map[string]int
	suppressed uint64 // repeats that the broker dropped by their ids, as far as it could be asked
}

// Run makes the chaos and prints the table. The error says what the ledger lacks.
func Run(ctx context.Context, o Options) (err error) {
	r := &run{Options: o, counts: map[string]int{}}
	ended, err := r.prepare(ctx)
	defer func() { err = errors.Join(err, ended()) }()
	if err != nil {
		return err
	}
	if err := r.startAll(ctx); err != nil {
		return err
	}
	ran, cancel := context.WithTimeout(ctx, o.For)
	defer cancel()
	if err := r.torment(ran, rand.New(rand.NewPCG(o.Seed, 1))); err != nil {
		return err
	}
	for _, p := range r.producers {
		if err := p.stop(); err != nil {
			return err
		}
	}
	r.producers = nil
	if err := r.settle(ctx); err != nil {
		return err
	}
	return r.conclude(ctx)
}

// prepare makes disks and network. What it returns takes them down, and ends what still runs.
func (r *run) prepare(ctx context.Context) (ended func() error, err error) {
	ended = func() error {
		r.endAll()
		var errs []error
		for _, d := range []*disk{r.weirDisk, r.brokerDisk} {
			if d != nil {
				errs = append(errs, d.close())
			}
		}
		if r.network != nil {
			errs = append(errs, r.network.close())
		}
		return errors.Join(errs...)
	}
	if r.weirDisk, err = newDisk(filepath.Join(r.Dir, "weir"), r.DiskBytes); err != nil {
		return ended, err
	}
	if r.brokerDisk, err = newDisk(filepath.Join(r.Dir, "broker"), r.DiskBytes); err != nil {
		return ended, err
	}
	if !r.weirDisk.own {
		fmt.Fprintln(r.Out, "left out: full disks (they need root and --disk)")
	}
	var leftOut string
	if r.network, leftOut, err = newNetwork(ctx); err != nil {
		return ended, err
	}
	if leftOut != "" {
		fmt.Fprintln(r.Out, "left out:", leftOut)
	}
	r.listen = "0.0.0.0:" + port
	if r.network.broker == "" {
		if r.listen, err = freeAddress(); err != nil {
			return ended, err
		}
	}
	if err := os.WriteFile(r.brokerConfigFile(), fmt.Appendf(nil, brokerConfig, r.brokerData(), r.listen, queueDisk), 0o600); err != nil {
		return ended, fmt.Errorf("chaos: %w", err)
	}
	return ended, nil
}

func (r *run) brokerConfigFile() string { return filepath.Join(r.Dir, "broker.toml") }
func (r *run) brokerData() string       { return filepath.Join(r.brokerDisk.dir, "data") }

// freeAddress is one that nobody uses now, so that the broker can have the same one at each start.
func freeAddress() (string, error) {
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("chaos: %w", err)
	}
	return c.LocalAddr().String(), c.Close()
}

// at is the broker's address as it is seen from one of its links.
func (r *run) at(host string) string {
	if r.network.broker == "" {
		return r.listen
	}
	return net.JoinHostPort(host, port)
}

func (r *run) startAll(ctx context.Context) error {
	if err := r.startBroker(ctx); err != nil {
		return err
	}
	text := fmt.Sprintf(weirConfig, r.broker.urlAt(r.at(toWeirAddr)))
	if err := os.WriteFile(r.configFile(), []byte(text), 0o600); err != nil {
		return fmt.Errorf("chaos: %w", err)
	}
	if err := r.startWeir(ctx); err != nil {
		return err
	}
	for range r.Consumers {
		c, err := r.newConsumer(ctx)
		if err != nil {
			return err
		}
		r.consumers = append(r.consumers, c)
	}
	for range r.Producers {
		p, err := r.newProducer(ctx)
		if err != nil {
			return err
		}
		r.producers = append(r.producers, p)
	}
	return nil
}

func (r *run) configFile() string { return filepath.Join(r.Dir, "weir.toml") }

func (r *run) startBroker(ctx context.Context) (err error) {
	r.broker, err = startBroker(ctx, within(r.network.broker), r.Weida, r.brokerConfigFile(), r.brokerData(), r.Out)
	return err
}

func (r *run) startWeir(ctx context.Context) (err error) {
	r.weir, err = proc.StartUnder(ctx, within(r.network.weir), r.Weir, filepath.Join(r.weirDisk.dir, "data"), "--config", r.configFile(), "--log-level", "error")
	return err
}

func (r *run) newConsumer(ctx context.Context) (*child, error) {
	r.lives++
	log := filepath.Join(r.Dir, fmt.Sprintf("processed-%d", r.lives))
	return startChild(ctx, within(r.network.consumers), r.Out, ConsumeCommand, "--url", r.broker.urlAt(r.at(toConsumers)), "--log", log)
}

func (r *run) newProducer(ctx context.Context) (*child, error) {
	r.lives++
	return startChild(ctx, nil, r.Out, ProduceCommand, "--socket", filepath.Join(r.weirDisk.dir, "data", "weir.sock"),
		"--acked", filepath.Join(r.Dir, fmt.Sprintf("acked-%d", r.lives)), "--first", strconv.Itoa(r.lives*firstsApart),
		"--rate", strconv.Itoa(r.Rate/r.Producers), "--bytes", strconv.Itoa(r.Bytes))
}

// endAll kills what still runs, after a failure.
func (r *run) endAll() {
	for _, c := range slices.Concat(r.producers, r.consumers) {
		_ = c.kill() // it may have ended by itself
	}
	if r.weir != nil {
		_ = r.weir.Kill()
	}
	if r.broker != nil {
		_ = r.broker.kill()
	}
}

// settle waits, with everything well again, until nothing is under way.
func (r *run) settle(ctx context.Context) error {
	for until := time.Now().Add(settleLimit); ; time.Sleep(settlePoll) {
		backlog, err := r.weir.Backlog(ctx)
		if err != nil {
			return err
		}
		st, err := r.broker.stats(ctx)
		if err != nil {
			return err
		}
		if backlog == 0 && st.Messages == 0 {
			return nil
		}
		if time.Now().After(until) {
			return fmt.Errorf("chaos: after %v of quiet there are %d records in weir, and in the queue %+v", settleLimit, backlog, st)
		}
	}
}

// conclude stops everything, draws the ledger and prints it.
func (r *run) conclude(ctx context.Context) error {
	r.askBroker(ctx)
	for _, c := range r.consumers {
		if err := c.stop(); err != nil {
			return err
		}
	}
	r.consumers = nil
	weir, broker := r.weir, r.broker
	r.weir, r.broker = nil, nil
	if err := errors.Join(weir.Stop(), broker.stop()); err != nil {
		return err
	}
	var l ledger
	err := l.read(r.Dir)
	if err == nil {
		l.queued, err = r.stored(orders)
	}
	if err == nil {
		l.dead, err = r.stored(dead)
	}
	if err != nil {
		return err
	}
	v := l.judge(r.brokerDisk.wasFull)
	return errors.Join(r.print(v), v.fault(r.counts, r.For))
}

// stored returns the numbers of the records in a queue's store.
func (r *run) stored(path string) (numbers map[uint64]bool, err error) {
	s, err := openStore(r.brokerData(), path)
	if err != nil {
		return nil, err
	}
	st, err := s.Load()
	numbers = map[uint64]bool{}
	for _, m := range st.Messages {
		var n uint64
		if _, err := fmt.Sscan(string(m.Message.Body[:min(len(m.Message.Body), numberBytes)]), &n); err != nil {
			return nil, errors.Join(fmt.Errorf("chaos: a message without a number: %w", err), s.Close())
		}
		numbers[n] = true
	}
	return numbers, errors.Join(err, s.Close())
}

func (r *run) print(v verdict) error {
	w := tabwriter.NewWriter(r.Out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "seed\t%d\t\n", r.Seed)
	for _, what := range []string{
		killedProducer, killedWeir, stoppedWeir, killedBroker, stoppedBroker, killedConsumer, stalled, cutWeir, cutConsumers, fullWeir, fullBroker,
	} {
		fmt.Fprintf(w, "%s\t%d\t\n", what, r.counts[what])
	}
	for _, row := range []struct {
		name string
		n    int
	}{
		{"acked by weir", v.acked},
		{"processed", v.processed},
		{"left in the broker", v.queued},
		{"dead letters", v.dead},
		{"sent again to the broker and dropped by id, at least", int(r.suppressed)},
		{"processed again, marked", v.marked},
		{"processed again, not marked, after a full disk", v.excused},
		{"processed again, not marked", len(v.unmarked)},
		{"pushed twice by a producer", v.twice},
		{"lost", len(v.lost)},
	} {
		fmt.Fprintf(w, "%s\t%d\t\n", row.name, row.n)
	}
	return w.Flush()
}

// fault is what is wrong with a run.
func (v verdict) fault(counts map[string]int, ran time.Duration) error {
	var errs []error
	wrong := func(numbers []uint64, what string) {
		if len(numbers) > 0 {
			errs = append(errs, fmt.Errorf("chaos: %d records %s; the first is number %d", len(numbers), what, slices.Min(numbers)))
		}
	}
	wrong(v.lost, "were acked by weir and are nowhere")
	wrong(v.unmarked, "were processed again without a mark")
	wrong(v.poisoned, "that cannot be processed were")
	if v.acked == 0 || v.processed == 0 || len(counts) == 0 && ran > 2*maxCalm {
		errs = append(errs, errors.New("chaos: nothing happened"))
	}
	return errors.Join(errs...)
}
