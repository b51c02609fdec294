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
	"time"

	"github.com/weir-agent/weir/cmd/weir/internal/admin"
	"github.com/weir-agent/weir/cmd/weir/internal/config"
	"github.com/weir-agent/weir/cmd/weir/internal/metrics"
	"github.com/weir-agent/weir/drain"
	"github.com/weir-agent/weir/drain/deadletter"
	"github.com/weir-agent/weir/ingest"
	"github.com/weir-agent/weir/sinks"
	"github.com/weir-agent/weir/wab"
	"github.com/weir-agent/weir/wab/vfs"
)

// Daemon is one weir. New takes everything it needs, Run serves, and when Run returns all is released.
type Daemon struct {
	cfg     config.Config
	log     *slog.Logger
	started time.Time

	wab    *wab.Log
	dirs   []*vfs.Dir // that the sink and the dead letters use
	dead   *deadletter.Store
	sink   sinks.Sink
	drain  *drain.Drain
	ingest *ingest.Server
	admin  *admin.Server
}

// New checks that the places it is given are usable before it changes anything, then opens the log, the sink and the
// sockets. The socket takes connections when New returns; Run answers them.
func New(cfg config.Config, logger *slog.Logger) (*Daemon, error) {
	for _, path := range []string{cfg.Socket.Path, cfg.Admin.Socket} {
		if err := checkSocket(path); err != nil {
			return nil, err
		}
	}
	if err := makeDataDir(cfg.WAB.Dir); err != nil {
		return nil, err
	}
	d := &Daemon{cfg: cfg, log: logger, started: time.Now()}
	if err := d.open(); err != nil {
		return nil, errors.Join(err, d.release())
	}
	return d, nil
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
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("data folder: %w", err)
	}
	return nil
}

func (d *Daemon) open() error {
	var err error
	if d.wab, err = wab.Open(d.cfg.WAB.Dir, d.wabOptions()); err != nil {
		if errors.Is(err, vfs.ErrLocked) {
			return fmt.Errorf("data folder %s: another weir is running on it", d.cfg.WAB.Dir)
		}
		return err
	}
	if d.dead, err = d.openDeadLetters(); err != nil {
		return err
	}
	if d.sink, err = d.openSink(); err != nil {
		return err
	}
	if d.drain, err = drain.New(d.wab.Shards(), d.sink, d.dead, d.drainOptions()); err != nil {
		return err
	}
	d.admin, err = admin.New(admin.Options{
		Listen:  d.cfg.Admin.Listen,
		Socket:  d.cfg.Admin.Socket,
		Status:  d.Status,
		Metrics: metrics.Handler(metrics.Source{Status: d.Status, SyncTimes: d.syncTimes}),
		Pause:   d.drain.Pause,
		Resume:  d.drain.Resume,
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
	d.ingest, err = ingest.New(d.ingestConfig(), appenders)
	return err
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
	drainCtx, stopDrain := context.WithCancel(context.WithoutCancel(ctx))
	defer stopDrain()
	drained := make(chan error, 1)
	go func() { drained <- d.drain.Run(drainCtx) }()
	served := make(chan error, 2)
	go func() { served <- d.ingest.Serve(ctx) }()
	go func() { served <- d.admin.Serve() }()

	var err error
	select {
	case <-ctx.Done():
		d.log.Info("stopping", "timeout", d.cfg.ShutdownTimeout)
	case err = <-served:
	case err = <-drained:
		drained <- err
	}
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.cfg.ShutdownTimeout)
	defer cancel()
	return errors.Join(err, d.stop(limit, stopDrain, drained))
}

// stop takes the parts down. Intake ends first, so that the cursor and the log are final when they are closed.
func (d *Daemon) stop(limit context.Context, stopDrain func(), drained <-chan error) error {
	err := d.ingest.Shutdown(limit)
	if err != nil {
		d.log.Error("not every producer got its answer in time", "error", err)
	}
	stopDrain()
	select {
	case e := <-drained:
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
	if d.sink != nil {
		errs = append(errs, d.sink.Close())
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
	d.log.Info("listening", "socket", abs(d.cfg.Socket.Path))
	d.log.Info("data", "dir", abs(d.cfg.WAB.Dir), "backlog_records", d.Status().BacklogRecords)
	d.log.Info("delivering", "sink", d.cfg.Sink.Type, "to", d.target())
	if addr := d.admin.Addr(); addr != "" {
		d.log.Info("status", "url", "http://"+addr+"/api/v1/status", "command", "weir status")
	}
	d.log.Info("push a first record", "command", fmt.Sprintf("echo hello | weir push --socket %s", abs(d.cfg.Socket.Path)))
}
