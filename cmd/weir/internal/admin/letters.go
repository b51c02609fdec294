package admin

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/weir-agent/weir/drain/deadletter"
	"github.com/weir-agent/weir/wab/record"
)

// LetterChange names dead letters: all, or those with these ids.
type LetterChange struct {
	All bool        `json:"all,omitempty"`
	IDs []record.ID `json:"ids,omitempty"`
}

// LetterResult is how many letters were changed, and what did not work.
type LetterResult struct {
	Changed int    `json:"changed"`
	Error   string `json:"error,omitempty"`
}

const (
	maxChangeBytes = 16 << 20
	changeChunk    = 1000
)

// ChangeLetters requeues or drops (verb) letters of a store.
func ChangeLetters(ctx context.Context, store *deadletter.Store, verb string, change LetterChange) LetterResult {
	do := store.Requeue
	if verb == "drop" {
		do = store.Drop
	}
	var res LetterResult
	var errs []error
	ids := change.IDs
	if change.All {
		ids = nil
		for letter, err := range store.List() {
			if err != nil {
				errs = append(errs, err) // what cannot be read is left as it is
				continue
			}
			ids = append(ids, letter.ID)
		}
	}
	for len(ids) > 0 {
		n := min(len(ids), changeChunk)
		changed, err := do(ctx, ids[:n]...)
		res.Changed += changed
		errs = append(errs, err)
		ids = ids[n:]
	}
	if err := errors.Join(errs...); err != nil {
		res.Error = err.Error()
	}
	return res
}

// letterRoutes are the mutations of dead letters.
func (o Options) letterRoutes(mux *http.ServeMux) {
	for _, verb := range []string{"requeue", "drop"} {
		mux.HandleFunc("POST /api/v1/deadletter/"+verb, func(w http.ResponseWriter, r *http.Request) {
			var change LetterChange
			if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxChangeBytes)).Decode(&change); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			answer(w, ChangeLetters(r.Context(), o.Letters, verb, change))
		})
	}
}

// letterCache answers with the oldest letters. They are read again at most once in letterPause, and only where their number changed.
type letterCache struct {
	store *deadletter.Store

	mu   sync.Mutex
	last Letters // guarded by mu
	size deadletter.Stats
	read time.Time
}

const (
	shownLetters = 100
	shownBytes   = 64 << 20 // of payload that is read for them
	letterPause  = 2 * time.Second
)

func (c *letterCache) get() Letters {
	c.mu.Lock()
	defer c.mu.Unlock()
	st := c.store.Stats()
	same := st.Letters == c.size.Letters && st.Requeued == c.size.Requeued && st.Bytes == c.size.Bytes
	if now := time.Now(); !c.read.IsZero() && (same || now.Sub(c.read) < letterPause) {
		return c.last
	}
	c.last, c.size, c.read = Letters{Records: st.Letters, Letters: []Letter{}}, st, time.Now()
	total := 0
	for l, err := range c.store.List() {
		if err != nil {
			c.last.Error = err.Error()
			continue
		}
		c.last.Letters = append(c.last.Letters, Letter{
			ID: l.ID.String(), Shard: l.Shard, Bytes: len(l.Payload), Status: l.Status, Reason: l.Reason, Attempts: l.Attempts, Died: l.Died, Requeued: l.Requeued,
		})
		if total += len(l.Payload); len(c.last.Letters) >= shownLetters || total > shownBytes {
			break
		}
	}
	return c.last
}
