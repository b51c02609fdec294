package daemon

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// A line that is like one before it is left out for repeatAfter; the next one that is written tells how many were.
const (
	repeatAfter = 30 * time.Second
	// maxRemembered bounds how many kinds of lines are remembered.
	maxRemembered = 256
)

// likeness tells the attributes that, with level and message, make two lines alike. Others, like the text of
// an error, may differ.
func likeness(key string) bool {
	switch key {
	case "shard", "step", "state", "reason", "segment":
		return true
	}
	return false
}

// limiter is a slog.Handler that keeps repeated lines from filling the log. Debug lines all go through.
type limiter struct {
	next slog.Handler
	mem  *lineMemory
}

type lineMemory struct {
	mu    sync.Mutex
	lines map[string]*lineSeen // guarded by mu
}

type lineSeen struct {
	until   time.Time // left out before that
	skipped int
}

func newLimiter(next slog.Handler) *limiter {
	return &limiter{next: next, mem: &lineMemory{lines: map[string]*lineSeen{}}}
}

// Enabled implements slog.Handler.
func (l *limiter) Enabled(ctx context.Context, level slog.Level) bool {
	return l.next.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (l *limiter) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelInfo {
		write, skipped := l.mem.see(lineKey(r), r.Time)
		if !write {
			return nil
		}
		if skipped > 0 {
			r = r.Clone()
			r.AddAttrs(slog.Int("repeats_left_out", skipped))
		}
	}
	return l.next.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (l *limiter) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &limiter{next: l.next.WithAttrs(attrs), mem: l.mem}
}

// WithGroup implements slog.Handler.
func (l *limiter) WithGroup(name string) slog.Handler {
	return &limiter{next: l.next.WithGroup(name), mem: l.mem}
}

func lineKey(r slog.Record) string {
	key := r.Level.String() + " " + r.Message
	r.Attrs(func(a slog.Attr) bool {
		if likeness(a.Key) {
			key += " " + a.Key + "=" + a.Value.String()
		}
		return true
	})
	return key
}

// see reports whether the line is to be written, and how many like it were left out before.
func (m *lineMemory) see(key string, now time.Time) (write bool, skipped int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.lines[key]
	if s != nil && now.Before(s.until) {
		s.skipped++
		return false, 0
	}
	if s == nil {
		if len(m.lines) >= maxRemembered {
			m.forget(now)
		}
		s = &lineSeen{}
		m.lines[key] = s
	}
	skipped, s.skipped, s.until = s.skipped, 0, now.Add(repeatAfter)
	return true, skipped
}

// forget makes room: it drops the kinds that are over, and if that is none, all.
func (m *lineMemory) forget(now time.Time) {
	for key, s := range m.lines {
		if !now.Before(s.until) {
			delete(m.lines, key)
		}
	}
	if len(m.lines) >= maxRemembered {
		clear(m.lines)
	}
}
