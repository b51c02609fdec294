package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"text/tabwriter"
	"time"

	weir "github.com/weir-agent/weir/clients/go"
)

const (
	producers = 4
	outage    = 3 * time.Second
	poll      = 20 * time.Millisecond
	stopLimit = 15 * time.Second
)

// demo is one run: a folder, an endpoint, a daemon and what the producers know.
type demo struct {
	binary   string
	dir      string
	endpoint string
	out      io.Writer
	receiver *exec.Cmd
	daemon   *exec.Cmd

	mu     sync.Mutex
	acked  map[int]bool
	resent atomic.Int64
}

func run(ctx context.Context, binary string, records int, out io.Writer) error {
	dir, err := os.MkdirTemp(".", "demo-data-")
	if err != nil {
		return err
	}
	endpoint, err := freeAddress()
	if err != nil {
		return err
	}
	d := &demo{binary: binary, dir: dir, endpoint: endpoint, out: out, acked: map[int]bool{}}
	defer d.killAll()
	if err := d.play(ctx, records); err != nil {
		return fmt.Errorf("%w (its files are in %s)", err, dir)
	}
	return os.RemoveAll(dir)
}

// freeAddress returns a loopback address that nobody listens on.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

func (d *demo) socket() string { return filepath.Join(d.dir, "data", "weir.sock") }

func (d *demo) say(format string, args ...any) { fmt.Fprintf(d.out, format+"\n", args...) }

func (d *demo) start(ctx context.Context, log string, args ...string) (*exec.Cmd, error) {
	f, err := os.OpenFile(filepath.Join(d.dir, log), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close() // the child has its own
	cmd := exec.CommandContext(ctx, d.binary, args...)
	cmd.Stdout, cmd.Stderr = f, f
	return cmd, cmd.Start()
}

func (d *demo) startReceiver(ctx context.Context) (err error) {
	d.receiver, err = d.start(ctx, "receiver.log", "receive", "--listen", d.endpoint, "--out", filepath.Join(d.dir, "received.jsonl"))
	return err
}

func (d *demo) startDaemon(ctx context.Context) (err error) {
	d.daemon, err = d.start(ctx, "weir.log", "run", "--data-dir", filepath.Join(d.dir, "data"), "--admin", "",
		"--sink", "http", "--sink-url", "http://"+d.endpoint+"/")
	return err
}

// play is the story: producers push while weir is killed twice and the endpoint is away for a while.
func (d *demo) play(ctx context.Context, records int) error {
	if err := errors.Join(d.startReceiver(ctx), d.startDaemon(ctx)); err != nil {
		return err
	}
	d.say("pushing %d records from %d producers", records, producers)
	pushed := make(chan error, 1)
	go func() { pushed <- d.produce(ctx, records) }()
	back := make(chan error, 1)
	steps := []struct {
		at int
		do func() error
	}{
		{records / 4, func() error { return d.killDaemon(ctx) }},
		{records / 2, func() error { go func() { back <- d.cutReceiver(ctx) }(); return nil }},
		{records * 3 / 4, func() error { return d.killDaemon(ctx) }},
	}
	for _, s := range steps {
		if err := d.await(ctx, func() bool { return d.ackedCount() >= s.at }); err != nil {
			return fmt.Errorf("waiting for ack %d: %w", s.at, err)
		}
		if err := s.do(); err != nil {
			return err
		}
	}
	if err := errors.Join(<-pushed, <-back); err != nil {
		return err
	}
	d.say("all is acked; waiting for the last deliveries")
	if err := d.await(ctx, d.deliveredAll); err != nil {
		return errors.Join(d.ledger(records), err)
	}
	return d.ledger(records)
}

func (d *demo) await(ctx context.Context, done func() bool) error {
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (d *demo) killDaemon(ctx context.Context) error {
	d.say("SIGKILL to weir at %d acks", d.ackedCount())
	if err := d.daemon.Process.Kill(); err != nil {
		return err
	}
	_ = d.daemon.Wait() // it says that it was killed
	return d.startDaemon(ctx)
}

func (d *demo) cutReceiver(ctx context.Context) error {
	d.say("the endpoint goes away for %v at %d acks", outage, d.ackedCount())
	if err := d.receiver.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	_ = d.receiver.Wait() // its status does not matter here
	select {
	case <-time.After(outage):
	case <-ctx.Done():
		return ctx.Err()
	}
	return d.startReceiver(ctx)
}

// produce pushes all records; what has no definite answer is pushed again.
func (d *demo) produce(ctx context.Context, records int) error {
	errs := make([]error, producers)
	var wg sync.WaitGroup
	for i := range producers {
		wg.Go(func() { errs[i] = d.producer(ctx, i, records) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

type answer struct {
	seq int
	out weir.Outcome
}

func (d *demo) producer(ctx context.Context, first, records int) error {
	// Small batches: the kills shall hit many of them.
	p := weir.NewProducer(weir.ProducerOptions{Path: d.socket(), BatchRecords: 5, MaxBackoff: 200 * time.Millisecond})
	defer p.Close(ctx) // all has its answer by then
	answers := make(chan answer, records)
	open := 0
	send := func(seq int) error {
		open++
		return p.Send(ctx, logLine(seq), func(o weir.Outcome) { answers <- answer{seq, o} })
	}
	take := func(a answer) error {
		open--
		switch a.out.State {
		case weir.Acked:
			d.mu.Lock()
			d.acked[a.seq] = true
			d.mu.Unlock()
			return nil
		case weir.Refused:
			return fmt.Errorf("record %d was refused: %w", a.seq, a.out.Err)
		}
		d.resent.Add(1)
		return send(a.seq)
	}
	const window = 40
	for seq := first; seq < records; seq += producers {
		if err := send(seq); err != nil {
			return err
		}
		for open >= window {
			if err := take(<-answers); err != nil {
				return err
			}
		}
	}
	for open > 0 {
		select {
		case a := <-answers:
			if err := take(a); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// logLine is a record as a web server's log has it.
func logLine(seq int) []byte {
	paths := []string{"/", "/cart", "/login", "/search?q=weir", "/orders/1742"}
	status := []int{200, 200, 200, 304, 404, 500}
	return fmt.Appendf(nil, `{"seq":%d,"time":%q,"method":"GET","path":%q,"status":%d,"ms":%d}`, seq, time.Now().UTC().Format(time.RFC3339Nano),
		paths[seq%len(paths)], status[seq%len(status)], seq%97)
}

func (d *demo) ackedCount() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.acked)
}

// stored reads the sequence numbers from the endpoint's file, and how many lines it has.
func (d *demo) stored() (map[int]int, error) {
	f, err := os.Open(filepath.Join(d.dir, "received.jsonl"))
	if err != nil {
		return nil, err
	}
	defer f.Close() // only read
	seen := map[int]int{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var line struct {
			Payload string `json:"payload"`
		}
		var rec struct {
			Seq *int `json:"seq"`
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return nil, fmt.Errorf("the endpoint's file: %w", err)
		}
		if err := json.Unmarshal([]byte(line.Payload), &rec); err != nil || rec.Seq == nil {
			return nil, fmt.Errorf("the endpoint's file holds what was never pushed: %.80s", line.Payload)
		}
		seen[*rec.Seq]++
	}
	return seen, lines.Err()
}

type receiverStats struct {
	Received int64 `json:"received"`
	Stored   int64 `json:"stored"`
	Repeats  int64 `json:"repeats"`
}

func (d *demo) stats() (st receiverStats, err error) {
	resp, err := http.Get("http://" + d.endpoint + "/stats")
	if err != nil {
		return st, err
	}
	defer resp.Body.Close()
	return st, json.NewDecoder(resp.Body).Decode(&st)
}

// deliveredAll reports whether the endpoint has as many records as were acked; the ledger looks at each.
func (d *demo) deliveredAll() bool {
	st, err := d.stats()
	if err != nil || st.Stored < int64(d.ackedCount()) {
		return false
	}
	seen, err := d.stored()
	return err == nil && d.lost(seen) == 0
}

func (d *demo) lost(seen map[int]int) (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for seq := range d.acked {
		if seen[seq] == 0 {
			n++
		}
	}
	return n
}

// ledger prints the table and fails if a record that was acked is not at the endpoint.
func (d *demo) ledger(records int) error {
	seen, err := d.stored()
	if err != nil {
		return err
	}
	st, err := d.stats()
	if err != nil {
		return err
	}
	lost := d.lost(seen)
	w := tabwriter.NewWriter(d.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, row := range []struct {
		name string
		n    int64
	}{
		{"pushed", int64(records)},
		{"pushed again without an answer", d.resent.Load()},
		{"acked", int64(d.ackedCount())},
		{"delivered", int64(len(seen))},
		{"repeats dropped", st.Repeats},
		{"stored twice (a push repeated)", st.Stored - int64(len(seen))},
		{"lost", int64(lost)},
	} {
		fmt.Fprintf(w, "%s\t%d\t\n", row.name, row.n)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if lost > 0 || d.ackedCount() != records {
		return fmt.Errorf("the ledger does not hold: %d acked of %d, %d lost", d.ackedCount(), records, lost)
	}
	return nil
}

// killAll ends what this run started.
func (d *demo) killAll() {
	for _, cmd := range []*exec.Cmd{d.daemon, d.receiver} {
		if cmd == nil || cmd.Process == nil {
			continue
		}
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended already
		ended := make(chan struct{})
		go func() { _ = cmd.Wait(); close(ended) }()
		select {
		case <-ended:
		case <-time.After(stopLimit):
			_ = cmd.Process.Kill()
			<-ended
		}
	}
}
