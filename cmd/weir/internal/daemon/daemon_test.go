package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	weir "github.com/weir-agent/weir/clients/go"
	"github.com/weir-agent/weir/cmd/weir/internal/config"
	"github.com/weir-agent/weir/drain"
	"github.com/weir-agent/weir/wab"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func testConfig(t *testing.T) config.Config {
	t.Helper()
	cfg, err := config.Load(config.Source{Flags: map[string]string{
		"wab.dir": filepath.Join(t.TempDir(), "data"), "admin.listen": "", "sink.type": "discard", "drain.linger": "1ms",
	}})
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// TestReloadUnderLoad reloads again and again while producers push and the status is read: every acked record is counted as
// delivered once, and nothing is left.
func TestReloadUnderLoad(t *testing.T) {
	cfg := testConfig(t)
	n := 0
	reread := func() (config.Config, error) { // called by one goroutine at a time
		n++
		next := cfg
		next.Drain.BatchRecords = 1 + n%50
		return next, nil
	}
	d, err := New(Options{Config: cfg, Log: slog.New(slog.DiscardHandler), Level: new(slog.LevelVar), Reread: reread})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	const producers, each, reloads = 3, 200, 20
	var wg sync.WaitGroup
	for p := range producers {
		wg.Go(func() {
			c := weir.New(weir.Options{Path: cfg.Socket.Path})
			defer c.Close()
			for i := range each {
				if err := c.Push(ctx, weir.Buffered, fmt.Appendf(nil, "%d/%d", p, i)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range reloads {
		res, err := d.Reload(ctx)
		if err != nil || len(res.Changed) != 1 {
			t.Errorf("Reload: %v, %v", res, err)
		}
		d.Status()
	}
	wg.Wait()
	for d.Status().BacklogRecords > 0 && t.Context().Err() == nil {
	}
	if got := d.Status().Shards[0].Drain.Delivered; got < producers*each {
		t.Errorf("%d records delivered, want %d", got, producers*each)
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("Run: %v", err)
	}
	if _, err := d.Reload(t.Context()); !errors.Is(err, errStopping) {
		t.Errorf("Reload after the end: %v", err)
	}
}

func TestRepeatsAreLeftOut(t *testing.T) {
	var out bytes.Buffer
	l := newLimiter(slog.NewTextHandler(&out, nil))
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	say := func(after time.Duration, shard int, text string) {
		r := slog.NewRecord(at.Add(after), slog.LevelError, "a step failed", 0)
		r.AddAttrs(slog.Int("shard", shard), slog.String("error", text))
		if err := l.Handle(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	say(0, 0, "first")
	for i := range 5 {
		say(time.Duration(i)*time.Second, 0, "left out")
	}
	say(time.Second, 1, "other shard")
	say(repeatAfter, 0, "again")
	got := out.String()
	if strings.Count(got, "\n") != 3 || strings.Contains(got, `"left out"`) || !strings.Contains(got, `error="other shard"`) || !strings.Contains(got, "error=again repeats_left_out=5") {
		t.Errorf("got\n%s", got)
	}
	for i := range 10 * maxRemembered {
		say(0, i, "many kinds")
	}
	if n := len(l.mem.lines); n > maxRemembered {
		t.Errorf("%d kinds are remembered", n)
	}
}

// TestEachStateIsInWords: an operator is told what to do in every state of trouble.
func TestEachStateIsInWords(t *testing.T) {
	for state, part := range map[drain.State]string{
		drain.Idle: "up to date", drain.Delivering: "delivering", drain.Retrying: "tried again", drain.Held: "weir reload",
		drain.DeadLetterFull: "weir deadletter list", drain.Paused: "weir drain resume", drain.Failed: "log has the reason",
	} {
		if got := inWords(drain.ShardStats{State: state}); !strings.Contains(got, part) {
			t.Errorf("%v: %q does not say %q", state, got, part)
		}
	}
	if got := inWords(drain.ShardStats{State: drain.Held, NextAttempt: time.Now().Add(time.Minute)}); !strings.Contains(got, "in 1m0s") {
		t.Errorf("with a next attempt: %q", got)
	}
}

// TestOldestAge: a quiet log whose segment is old does not make a record that just came old.
func TestOldestAge(t *testing.T) {
	now := time.Now()
	hour := wab.Stats{BacklogRecords: 1, Oldest: now.Add(-time.Hour)}
	for name, tc := range map[string]struct {
		w        wab.Stats
		d        drain.ShardStats
		min, max time.Duration
	}{
		"taken up":       {hour, drain.ShardStats{State: drain.Retrying, Oldest: now.Add(-time.Minute)}, time.Minute, 2 * time.Minute},
		"gathering":      {hour, drain.ShardStats{State: drain.Idle}, 0, 200 * time.Millisecond},
		"cannot be read": {wab.Stats{Oldest: hour.Oldest, Faults: []wab.Fault{{Step: "read"}}}, drain.ShardStats{State: drain.Idle}, time.Hour, 2 * time.Hour},
		"failed":         {hour, drain.ShardStats{State: drain.Failed}, time.Hour, 2 * time.Hour},
	} {
		if got := oldestAge(tc.w, tc.d, 200*time.Millisecond); got < tc.min || got > tc.max {
			t.Errorf("%s: %v, want between %v and %v", name, got, tc.min, tc.max)
		}
	}
}

func TestRefusedLately(t *testing.T) {
	var r refusals
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, step := range []struct {
		after       time.Duration
		total, want uint64
	}{
		{0, 5, 5}, {time.Second, 7, 2}, {9 * time.Second, 7, 2}, {12 * time.Second, 7, 0}, {13 * time.Second, 8, 1}, {time.Minute, 8, 0},
	} {
		if got := r.lately(step.total, at.Add(step.after)); got != step.want {
			t.Errorf("after %v: %d, want %d", step.after, got, step.want)
		}
	}
	for i := range 10_000 {
		r.lately(uint64(i+8), at.Add(2*time.Minute))
	}
	if len(r.looks) > maxLooks+1 {
		t.Errorf("%d looks are kept", len(r.looks))
	}
}
