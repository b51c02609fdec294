// Package daemon is weir as one running thing: it puts the log, the wire, the drain, the sink and the
// admin server together, and takes them down in the order in which nothing is lost.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-agent/weir/cmd/weir/internal/admin"
	"github.com/weir-agent/weir/cmd/weir/internal/config"
	"github.com/weir-agent/weir/cmd/weir/internal/metrics"
	"github.com/weir-agent/weir/drain/deadletter"
	"github.com/weir-agent/weir/ingest"
	"github.com/weir-agent/weir/wab"
	"github.com/weir-agent/weir/wab/vfs"
)

// Options are what a daemon is made of.
type Options struct {
	Config config.Config
	Log    *slog.Logger
	// Level is the level of Log, which a reload may set; nil where it is fixed.
	Level *slog.LevelVar
	// Reread returns the configuration as it is now; nil: it cannot be reloaded.
	Reread func() (config.Config, error)
}

// Daemon is one weir. New takes everything it needs, Run serves, and when Run returns all is released.
type Daemon struct {
	log     *slog.Logger
	level   *slog.LevelVar
	reread  func() (config.Config, error)
	started time.Time
	notify  notifier
	// What was in force at the start.
	gogc        int
	memoryLimit int64

	mu       sync.Mutex
	cfg      config.Config // guarded by mu
	troubled map[int]bool  // shards whose delivery is in trouble; guarded by mu

	wab      *wab.Log
	data     *vfs.Dir
	dirs     []*vfs.Dir // that the sink, the dead letters and the status use
	dead     *deadletter.Store
	delivery *delivery
	ingest   *ingest.Server
	admin    *admin.Server
	kept     keptReports
	refused  refusals

	reloads  chan reloadRequest
	stopping chan struct{} // closed when Run takes no more changes
}

// New checks that the places it is given are usable before it changes anything, then opens the log, the sink and the
// sockets. The socket takes connections when New returns; Run answers them.
func New(o Options) (*Daemon, error) {
	for _, path := range []string{o.Config.Socket.Path, o.Config.Admin.Socket} {
		if err := checkSocket(path); err != nil {
			return nil, err
		}
	}
	if err := makeDataDir(o.Config.WAB.Dir); err != nil {
		return nil, err
	}
	d := &Daemon{
		cfg: o.Config, log: slog.New(newLimiter(o.Log.Handler())), level: o.Level, reread: o.Reread, started: time.Now(), notify: newNotifier(),
		troubled: map[int]bool{}, reloads: make(chan reloadRequest), stopping: make(chan struct{}),
		gogc: debug.SetGCPercent(-1), memoryLimit: debug.SetMemoryLimit(-1),
	}
	d.tune(o.Config)
	if err := d.open(o.Config); err != nil {
		return nil, errors.Join(err, d.release())
	}
	return d, nil
}

func (d *Daemon) config() config.Config {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.cfg
}

// checkSocket refuses a path that is taken, before anything is touched.
func checkSocket(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("socket %s: there is something that is not a socket: move it away or choose another path", path)
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err != nil {
		return nil // stale: whoever listened is gone
	}
	conn.Close()
	return fmt.Errorf("socket %s: a daemon is listening there already", path)
}

func makeDataDir(dir string) error {
	err := os.Mkdir(dir, 0o700)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("data folder: %w: make the folder above it, or choose another with --data-dir", err)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("data folder: %w", err)
	}
	return nil
}

func (d *Daemon) open(cfg config.Config) error {
	var err error
	if d.wab, err = wab.Open(cfg.WAB.Dir, d.wabOptions(cfg)); err != nil {
		if errors.Is(err, vfs.ErrLocked) {
			return fmt.Errorf("data folder %s: another weir is running on it; stop it, or choose another folder with --data-dir", cfg.WAB.Dir)
		}
		return err
	}
	if d.data, err = d.openDir(cfg.WAB.Dir); err != nil {
		return err
	}
	if d.dead, err = d.openDeadLetters(cfg); err != nil {
		return err
	}
	sink, err := d.openSink(cfg)
	if err != nil {
		return err
	}
	if d.delivery, err = newDelivery(d.wab.Shards(), d.dead, sink, d.drainOptions(cfg)); err != nil {
		return errors.Join(err, sink.Close())
	}
	d.admin, err = admin.New(admin.Options{
		Listen: cfg.Admin.Listen,
		Socket: cfg.Admin.Socket,
		Status: d.Status,
		Metrics: metrics.Handler(metrics.Source{
			Status: d.Status, SyncTimes: d.syncTimes, AnswerTimes: d.answerTimes, DeliveryTimes: d.deliveryTimes,
		}),
		Pause:   d.delivery.pause,
		Seal:    d.seal,
		Reload:  d.Reload,
		Letters: d.dead,
		Log:     d.log,
	})
	if err != nil {
		return err
	}
	// The producers' socket comes last: who finds it finds all of weir.
	var appenders []ingest.Appender
	for _, s := range d.wab.Writable() {
		appenders = append(appenders, s)
	}
	d.ingest, err = ingest.New(d.ingestConfig(cfg), appenders)
	return err
}

// seal ends the active segment of every shard.
func (d *Daemon) seal() error {
	var errs []error
	for i, s := range d.wab.Writable() {
		if err := s.Seal(); err != nil {
			errs = append(errs, fmt.Errorf("shard %d: %w", i, err))
		}
	}
	return errors.Join(errs...)
}

func (d *Daemon) openDir(path string) (*vfs.Dir, error) {
	dir, err := vfs.OpenDir(path)
	if err == nil {
		d.dirs = append(d.dirs, dir)
	}
	return dir, err
}

// Run serves until ctx ends, then stops in order: it stops accepting, answers every frame that was read, syncs, gives
// the deliveries under way a moment, and stores the cursor. It takes at most the shutdown timeout for that.
func (d *Daemon) Run(ctx context.Context) error {
	d.logStart()
	var asked atomic.Pointer[time.Time] // when the end was asked for
	defer context.AfterFunc(ctx, func() { now := time.Now(); asked.Store(&now) })()
	d.delivery.start()
	served := make(chan error, 2)
	go func() { served <- d.ingest.Serve(ctx) }()
	go func() { served <- d.admin.Serve() }()
	d.tell("READY=1")
	feedCtx, stopFeed := context.WithCancel(context.WithoutCancel(ctx))
	fed := make(chan struct{})
	go func() {
		defer close(fed)
		d.notify.feed(feedCtx, func() { d.Status() }, func(err error) { d.log.Warn("the watchdog could not be fed", "error", err) })
	}()
	err := d.serve(ctx, served)
	close(d.stopping)
	d.tell("STOPPING=1")
	timeout := d.config().ShutdownTimeout
	d.log.Info("stopping", "timeout", timeout)
	begun := time.Now()
	if at := asked.Load(); at != nil {
		begun = *at // a reload may have been under way
	}
	limit, cancel := context.WithDeadline(context.WithoutCancel(ctx), begun.Add(timeout))
	defer cancel()
	err = errors.Join(err, d.stop(limit))
	stopFeed()
	<-fed
	return err
}

// tell tells the service manager; that it cannot be told is no reason to stop.
func (d *Daemon) tell(state string) {
	if err := d.notify.send(state); err != nil {
		d.log.Warn("the service manager was not told", "state", state, "error", err)
	}
}

// serve does what is asked of the running daemon, until ctx ends or a part fails.
func (d *Daemon) serve(ctx context.Context, served <-chan error) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-served:
			return err
		case err := <-d.delivery.ended:
			d.delivery.ended <- err
			return err
		case req := <-d.reloads:
			res, err := d.reload()
			req.answer <- reloadAnswer{res, err}
			if errors.Is(err, errDrainLost) {
				d.delivery.ended <- nil
				return err
			}
		}
	}
}

// stop takes the parts down. Intake ends first, so that the cursor and the log are final when they are closed.
func (d *Daemon) stop(limit context.Context) error {
	err := d.ingest.Shutdown(limit)
	if err != nil {
		d.log.Error("not every producer got its answer in time", "error", err)
	}
	d.delivery.cancel()
	select {
	case e := <-d.delivery.ended:
		err = errors.Join(err, e)
	case <-limit.Done():
		d.log.Warn("a delivery did not end in time; it is repeated at the next start")
	}
	err = errors.Join(err, d.admin.Shutdown(limit))
	closed := make(chan error, 1)
	go func() { closed <- d.release() }()
	select {
	case e := <-closed:
		err = errors.Join(err, e)
	case <-limit.Done():
		err = errors.Join(err, errors.New("the log could not be closed in time; what was acked is on disk"))
	}
	if err == nil {
		d.log.Info("stopped")
	}
	return err
}

// release closes what is open; after Run it is all that is left to do.
func (d *Daemon) release() error {
	var errs []error
	if d.admin != nil {
		errs = append(errs, d.admin.Close())
	}
	if d.ingest != nil {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := d.ingest.Shutdown(ctx); err != nil && !errors.Is(err, context.Canceled) {
			errs = append(errs, err)
		}
	}
	if d.wab != nil {
		errs = append(errs, d.wab.Close())
	}
	if d.delivery != nil {
		errs = append(errs, d.delivery.close())
	}
	if d.dead != nil {
		errs = append(errs, d.dead.Close())
	}
	for _, dir := range d.dirs {
		errs = append(errs, dir.Close())
	}
	return errors.Join(errs...)
}

func (d *Daemon) logStart() {
	abs := func(p string) string {
		if a, err := filepath.Abs(p); err == nil {
			return a
		}
		return p
	}
	cfg := d.config()
	d.log.Info("listening", "socket", abs(cfg.Socket.Path))
	d.log.Info("data", "dir", abs(cfg.WAB.Dir), "backlog_records", d.Status().BacklogRecords)
	d.log.Info("delivering", "sink", cfg.Sink.Type, "to", target(cfg))
	if key := d.delivery.identity(); key != "" {
		d.log.Info("this weir's key, for a broker that admits only keys that it knows", "fingerprint", key)
	}
	if addr := d.admin.Addr(); addr != "" {
		d.log.Info("status", "page", "http://"+addr+"/", "command", "weir status")
	}
	d.log.Info("push a first record", "command", fmt.Sprintf("echo hello | weir push --socket %s", abs(cfg.Socket.Path)))
}
