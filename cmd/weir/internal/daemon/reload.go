package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/weir-agent/weir/cmd/weir/internal/admin"
	"github.com/weir-agent/weir/cmd/weir/internal/config"
)

// reloadRequest is a reload that the goroutine of Run does.
type reloadRequest struct {
	answer chan reloadAnswer // capacity 1
}

type reloadAnswer struct {
	result admin.ReloadResult
	err    error
}

// errNoReload: the daemon was started without a way to read its configuration again.
var errNoReload = errors.New("reload: this daemon has no configuration to read again")

// errStopping: the daemon takes no changes any more.
var errStopping = errors.New("the daemon is stopping")

// Reload reads the configuration again, puts into force what can be changed while the daemon runs, and names what
// needs a restart. A faulty configuration changes nothing.
func (d *Daemon) Reload(ctx context.Context) (admin.ReloadResult, error) {
	if d.reread == nil {
		return admin.ReloadResult{}, errNoReload
	}
	req := reloadRequest{answer: make(chan reloadAnswer, 1)}
	select {
	case d.reloads <- req:
	case <-d.stopping:
		return admin.ReloadResult{}, errStopping
	case <-ctx.Done():
		return admin.ReloadResult{}, ctx.Err()
	}
	select {
	case a := <-req.answer:
		return a.result, a.err
	case <-ctx.Done():
		return admin.ReloadResult{}, ctx.Err()
	}
}

// reload does the reload. An error that is errDrainLost ends the daemon.
func (d *Daemon) reload() (admin.ReloadResult, error) {
	next, err := d.reread()
	if err != nil {
		return admin.ReloadResult{}, fmt.Errorf("reload: the configuration is at fault, nothing was changed: %w", err)
	}
	cfg := d.config()
	changed, restart := cfg.Apply(&next)
	res := admin.ReloadResult{Changed: names(changed), NeedRestart: names(restart)}
	if err := d.redeliver(cfg, changed); err != nil {
		return admin.ReloadResult{}, fmt.Errorf("reload: %w", err)
	}
	d.mu.Lock()
	d.cfg = cfg
	d.mu.Unlock()
	d.tune(cfg)
	d.log.Info("configuration read again", "changed", strings.Join(res.Changed, " "), "need_restart", strings.Join(res.NeedRestart, " "))
	return res, nil
}

// redeliver replaces drain and sink where changed keys concern them.
func (d *Daemon) redeliver(cfg config.Config, changed []config.Key) error {
	begins := func(prefix string) bool {
		return slices.ContainsFunc(changed, func(k config.Key) bool { return strings.HasPrefix(k.Name, prefix) })
	}
	ofSink := begins("sink." + cfg.Sink.Type + ".")
	if !ofSink && !begins("drain.") && !begins("shutdown_timeout") {
		return nil
	}
	if !ofSink {
		return d.delivery.replace(d.delivery.sink, d.drainOptions(cfg)) // only the goroutine of Run changes it
	}
	fresh, err := d.openSink(cfg)
	if err != nil {
		return fmt.Errorf("nothing was changed: %w", err)
	}
	old := d.delivery.sink
	if err := d.delivery.replace(fresh, d.drainOptions(cfg)); err != nil {
		return errors.Join(err, fresh.Close())
	}
	if err := old.Close(); err != nil {
		d.log.Warn("the former sink could not be closed", "error", err)
	}
	return nil
}

// tune puts into force what concerns the process. Zero values stand for what was in force at the start.
func (d *Daemon) tune(cfg config.Config) {
	if d.level != nil {
		var level slog.Level
		if err := level.UnmarshalText([]byte(cfg.Log.Level)); err == nil { // it was checked
			d.level.Set(level)
		}
	}
	if os.Getenv("GOMAXPROCS") == "" {
		// One more than there are processors: the drain reads back on a thread that the kernel puts behind the others, which must not wait for
		// Go's scheduler to take the processor from it.
		runtime.SetDefaultGOMAXPROCS()
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + 1)
	}
	debug.SetGCPercent(cmp.Or(cfg.Runtime.GOGC, d.gogc))
	debug.SetMemoryLimit(cmp.Or(int64(cfg.Runtime.MemoryLimit), d.memoryLimit))
}

func names(keys []config.Key) []string {
	out := []string{}
	for _, k := range keys {
		out = append(out, k.Name)
	}
	return out
}
