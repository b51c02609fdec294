package brokerd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/weir-agent/weir/wab"
	"github.com/weir-agent/weir/wab/record"
	"github.com/weir-agent/weir/weida"
	"github.com/weir-agent/weir/weida/broker"
	"github.com/weir-agent/weir/weida/broker/wabstore"
)

// drainTimeout is how long a stop waits for what was written to peers to arrive.
const drainTimeout = time.Second

// How far the log of a queue may grow beyond twice what is alive: a share of what it may take on disk, so that it is tidied in time.
const (
	slackShare = 4
	maxSlack   = 64 << 20
)

// daemon is a broker that runs.
type daemon struct {
	config  Config
	log     *slog.Logger
	runtime *weida.Runtime
	listen  *weida.Listener
	stores  []broker.Store
	broker  *broker.Broker
	admin   *admin
	urls    []string // where producers and consumers dial, one for each queue and address
}

// Run runs a broker until ctx ends: what waits for the disk is answered, deliveries are retired within the shutdown timeout, and the stores are closed. When it is
// ready it writes the address of each queue to out, one a line.
func Run(ctx context.Context, c Config, out io.Writer, log *slog.Logger) (err error) {
	d := &daemon{config: c, log: log}
	defer func() { err = errors.Join(err, d.close()) }()
	if err := d.open(); err != nil {
		return err
	}
	serving, end := context.WithCancel(context.Background())
	defer end()
	served := make(chan error, 1)
	go func() { served <- d.broker.Serve(serving) }()
	asked := make(chan error, 1)
	go func() { asked <- d.admin.serve() }()
	// Nobody is answered before everything is there.
	if err := d.bind(); err != nil {
		end()
		return errors.Join(err, <-served)
	}
	d.admin.ready.Store(true)
	for _, url := range d.urls {
		if _, err := fmt.Fprintln(out, url); err != nil {
			end()
			return errors.Join(err, <-served)
		}
	}
	log.Info("serving", "queues", len(c.Queues), "listen", strings.Join(d.addresses(), " "), "admin", d.admin.address())
	select {
	case <-ctx.Done():
	case err := <-asked: // of a listener that broke
		end()
		return errors.Join(err, <-served)
	case err := <-served:
		return errors.Join(errors.New("no queue is left"), err)
	}
	d.admin.ready.Store(false)
	log.Info("stopping")
	for path, r := range d.broker.Retire(time.Duration(c.Broker.ShutdownTimeout)) {
		log.Info("retired", "queue", path, "settled", r.Settled, "unsettled", r.Unsettled, "requeued", r.Requeued)
	}
	// The links end before the paths do, and what was answered arrives.
	_, err = d.runtime.Drain(drainTimeout)
	end()
	return errors.Join(err, <-served)
}

// open opens the folder, the identity and the queues, and listens for those who ask how it is.
func (d *daemon) open() error {
	c := &d.config
	if err := os.MkdirAll(filepath.Join(c.Broker.DataDir, "queues"), 0o700); err != nil {
		return err
	}
	var err error
	if d.runtime, err = weida.NewRuntime(weida.Options{
		Limits:         weida.Limits{IdleTimeout: time.Duration(c.Broker.IdleTimeout)},
		MaxConnections: c.Broker.MaxConnections, MaxConnectionsPerPeer: c.Broker.MaxConnectionsPerPeer, Offered: c.offer(),
	}); err != nil {
		return err
	}
	d.listen = d.runtime.Listener()
	options := broker.Options{Log: d.log, MaxQueues: len(c.Queues)}
	for i := range c.Queues {
		q := &c.Queues[i]
		store, err := d.store(q)
		if err != nil {
			return fmt.Errorf("queue %s: %w", q.Path, err)
		}
		d.stores = append(d.stores, store)
		options.Queues = append(options.Queues, broker.QueueOptions{
			Path: q.Path, Store: store, DeadLetter: q.DeadLetter,
			Config: broker.Config{Bytes: int(q.MaxBytes), MaxUnsettled: q.MaxUnsettled, MaxAttempts: q.MaxAttempts, Window: q.KnownIDs},
		})
	}
	if err := d.noteUnserved(); err != nil {
		return err
	}
	if d.broker, err = broker.New(d.listen, options); err != nil {
		return err
	}
	d.admin, err = newAdmin(c.Admin, d.broker)
	return err
}

// offer is what a client may require of every queue: that of the weakest.
func (c *Config) offer() weida.Guarantees {
	weakest := weida.Guarantees{Acknowledgement: weida.AckStored, Durability: weida.Flushed}
	for _, q := range c.Queues {
		switch {
		case q.Durability == Memory:
			return weida.Guarantees{Acknowledgement: weida.AckAccepted}
		case q.Durability == Written:
			weakest.Durability = weida.Written
		}
	}
	return weakest
}

func (d *daemon) store(q *Queue) (broker.Store, error) {
	if q.Durability == Memory {
		return new(broker.Memory), nil
	}
	dir := filepath.Join(d.config.Broker.DataDir, "queues", q.folder())
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	free := int64(d.config.Broker.MinFreeBytes)
	if free == 0 {
		free = -1 // none
	}
	o := wabstore.Options{
		Window: q.KnownIDs, SlackBytes: min(maxSlack, int64(q.MaxDiskBytes)/slackShare),
		Log: wab.Options{MaxBytes: int64(q.MaxDiskBytes), MinFreeBytes: free, Observer: d.observer(q.Path)},
	}
	if q.Durability == Written {
		o.Durability = record.Buffered
	}
	return wabstore.Open(dir, o)
}

// noteUnserved warns of the logs of queues that the configuration does not name, or keeps in memory now: what they hold was confirmed, and nobody gets it.
func (d *daemon) noteUnserved() error {
	folders, err := os.ReadDir(filepath.Join(d.config.Broker.DataDir, "queues"))
	if err != nil {
		return err
	}
	for _, f := range folders {
		served := slices.ContainsFunc(d.config.Queues, func(q Queue) bool { return q.Durability != Memory && q.folder() == f.Name() })
		if !served {
			d.log.Warn("a queue on the disk is not served: what it holds stays there until the configuration names it again", "folder", filepath.Join("queues", f.Name()))
		}
	}
	return nil
}

// observer logs what the log of a queue meets.
func (d *daemon) observer(path string) wab.Observer {
	log := d.log.With("queue", path)
	return wab.Observer{
		Failed:    func(_ int, step string, err error) { log.Error("the log failed", "step", step, "error", err) },
		Recovered: func(_ int, step string) { log.Info("the log works again", "step", step) },
		Damaged:   func(_ int, damage wab.Damage) { log.Error("damaged bytes in the log", "damage", damage) },
	}
}

// bind opens the addresses to peers.
func (d *daemon) bind() error {
	c := &d.config
	paths := d.broker.Paths()
	if len(c.Broker.Listen) > 0 {
		identity, err := weida.OpenIdentityDir(filepath.Join(c.Broker.DataDir, "identity"))
		if err != nil {
			return err
		}
		current, err := identity.Current()
		if err != nil {
			return err
		}
		trust, err := c.Trust.trust()
		if err != nil {
			return err
		}
		for _, addr := range c.Broker.Listen {
			b, err := d.listen.BindQUIC(addr, weida.ServerTLS{Identity: identity, ClientTrust: trust})
			if err != nil {
				return fmt.Errorf("broker.listen: %s: %w", addr, err)
			}
			for _, path := range paths {
				d.urls = append(d.urls, fmt.Sprintf("weida://%v@%s%s", current.Fingerprint(), dialable(b.Addr()), path))
			}
		}
	}
	if c.Broker.Socket != "" {
		if _, err := d.listen.BindUnix(c.Broker.Socket); err != nil {
			return fmt.Errorf("broker.socket: %w", err)
		}
		local, err := filepath.Abs(c.Broker.Socket)
		if err != nil {
			return err
		}
		for _, path := range paths {
			d.urls = append(d.urls, weida.Address{Carrier: weida.OverUnix, Local: local, Path: path}.String())
		}
	}
	return nil
}

// dialable is an address as another machine may dial it: one that means all of this machine's is replaced by its name.
func dialable(addr net.Addr) string {
	udp, ok := addr.(*net.UDPAddr)
	if !ok || !udp.IP.IsUnspecified() {
		return addr.String()
	}
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	return net.JoinHostPort(host, fmt.Sprint(udp.Port))
}

func (d *daemon) addresses() []string {
	all := append([]string(nil), d.config.Broker.Listen...)
	if d.config.Broker.Socket != "" {
		all = append(all, d.config.Broker.Socket)
	}
	return all
}

// close closes what was opened, peers first, stores last.
func (d *daemon) close() error {
	var errs []error
	if d.runtime != nil {
		errs = append(errs, d.runtime.Shutdown())
	}
	if d.admin != nil {
		errs = append(errs, d.admin.close())
	}
	for _, s := range d.stores {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}
