package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"syscall"
	"time"
)

// What goes wrong, as the table names it.
const (
	killedProducer = "producers killed"
	killedWeir     = "weir killed"
	stoppedWeir    = "weir stopped"
	killedBroker   = "broker killed"
	stoppedBroker  = "broker stopped"
	killedConsumer = "consumers killed"
	stalled        = "stalls of weir, the broker or a consumer"
	cutWeir        = "cuts between weir and broker"
	cutConsumers   = "cuts between broker and consumers"
	fullWeir       = "weir's disk full"
	fullBroker     = "broker's disk full"
)

// torment does one thing after the other until ctx ends; what it began it ends.
func (r *run) torment(ctx context.Context, rng *rand.Rand) error {
	acts := []func(ctx context.Context, rng *rand.Rand) error{
		r.killProducer, r.killWeir, r.stopWeir, r.killBroker, r.stopBroker, r.killConsumer, r.stall,
	}
	if r.network.broker != "" {
		acts = append(acts, r.cutWeir, r.cutConsumers)
	}
	if r.weirDisk.own {
		acts = append(acts, r.fillWeir, r.fillBroker)
	}
	// Each comes once before any comes again, so that a short run has them all.
	var round []int
	reported := time.Now()
	for pause(ctx, rng, minCalm, maxCalm) {
		if len(round) == 0 {
			round = rng.Perm(len(acts))
		}
		act := acts[round[0]]
		round = round[1:]
		// It is not to be interrupted, so that all is well at the end.
		if err := act(context.WithoutCancel(ctx), rng); err != nil {
			return err
		}
		if time.Since(reported) >= say {
			reported = time.Now()
			fmt.Fprintf(r.Out, "so far: %v\n", r.counts)
		}
	}
	return nil
}

// pause waits for a random time and reports whether ctx still lives.
func pause(ctx context.Context, rng *rand.Rand, least, most time.Duration) bool {
	select {
	case <-time.After(least + time.Duration(rng.Int64N(int64(most-least)))):
		return true
	case <-ctx.Done():
		return false
	}
}

// askBroker adds what the broker has counted in this life, as far as it can tell.
func (r *run) askBroker(ctx context.Context) {
	if st, err := r.broker.stats(ctx); err == nil {
		r.suppressed += st.Repeats
	}
}

func (r *run) killProducer(ctx context.Context, rng *rand.Rand) (err error) {
	r.counts[killedProducer]++
	i := rng.IntN(len(r.producers))
	if err := r.producers[i].kill(); err != nil {
		return err
	}
	r.producers[i], err = r.newProducer(ctx)
	return err
}

func (r *run) killConsumer(ctx context.Context, rng *rand.Rand) (err error) {
	r.counts[killedConsumer]++
	i := rng.IntN(len(r.consumers))
	if err := r.consumers[i].kill(); err != nil {
		return err
	}
	r.consumers[i], err = r.newConsumer(ctx)
	return err
}

func (r *run) killWeir(ctx context.Context, _ *rand.Rand) error {
	r.counts[killedWeir]++
	if err := r.weir.Kill(); err != nil {
		return err
	}
	return r.startWeir(ctx)
}

func (r *run) stopWeir(ctx context.Context, _ *rand.Rand) error {
	r.counts[stoppedWeir]++
	if err := r.weir.Stop(); err != nil {
		return err
	}
	return r.startWeir(ctx)
}

func (r *run) killBroker(ctx context.Context, _ *rand.Rand) error {
	r.counts[killedBroker]++
	r.askBroker(ctx)
	if err := r.broker.kill(); err != nil {
		return err
	}
	return r.startBroker(ctx)
}

func (r *run) stopBroker(ctx context.Context, _ *rand.Rand) error {
	r.counts[stoppedBroker]++
	r.askBroker(ctx)
	if err := r.broker.stop(); err != nil {
		return err
	}
	return r.startBroker(ctx)
}

// stall stops a process for a while, without its knowing.
func (r *run) stall(ctx context.Context, rng *rand.Rand) error {
	r.counts[stalled]++
	signal := [...]func(os.Signal) error{r.weir.Signal, r.broker.signal, r.consumers[rng.IntN(len(r.consumers))].signal}[rng.IntN(3)]
	if err := signal(syscall.SIGSTOP); err != nil {
		return err
	}
	pause(ctx, rng, minFault, maxFault)
	return signal(syscall.SIGCONT)
}

func (r *run) cutWeir(ctx context.Context, rng *rand.Rand) error {
	r.counts[cutWeir]++
	return r.cut(ctx, rng, r.network.links[0], r.killWeir)
}

func (r *run) cutConsumers(ctx context.Context, rng *rand.Rand) error {
	r.counts[cutConsumers]++
	return r.cut(ctx, rng, r.network.links[1], r.killConsumer)
}

// cut pulls a link for a while. Sometimes the process at its far end, or the broker, is killed meanwhile.
func (r *run) cut(ctx context.Context, rng *rand.Rand, l link, killFar func(context.Context, *rand.Rand) error) error {
	if err := l.cut(ctx, true); err != nil {
		return err
	}
	pause(ctx, rng, minFault, maxFault)
	var err error
	switch rng.IntN(4) {
	case 0:
		err = killFar(ctx, rng)
	case 1:
		err = r.killBroker(ctx, rng)
	}
	if err != nil {
		return err
	}
	return l.cut(ctx, false)
}

func (r *run) fillWeir(ctx context.Context, rng *rand.Rand) error {
	r.counts[fullWeir]++
	return r.fill(ctx, rng, r.weirDisk, func() error {
		r.counts[killedWeir]++
		return r.weir.Kill()
	}, r.startWeir)
}

func (r *run) fillBroker(ctx context.Context, rng *rand.Rand) error {
	r.counts[fullBroker]++
	return r.fill(ctx, rng, r.brokerDisk, func() error {
		r.counts[killedBroker]++
		r.askBroker(ctx)
		return r.broker.kill()
	}, r.startBroker)
}

// fill takes all space of a disk for a while. Sometimes the process on it is killed when the disk is full, and started when there is space.
func (r *run) fill(ctx context.Context, rng *rand.Rand, d *disk, kill func() error, start func(context.Context) error) error {
	if err := d.fill(); err != nil {
		return err
	}
	pause(ctx, rng, minFault, maxFault)
	if rng.IntN(2) == 0 {
		return d.free()
	}
	if err := kill(); err != nil {
		return err
	}
	if err := d.free(); err != nil {
		return err
	}
	return start(ctx)
}
