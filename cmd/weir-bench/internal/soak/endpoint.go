package soak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// mode is how the endpoint behaves.
type mode int32

const (
	well    mode = iota
	failing      // 503
	refused      // 401
	hanging      // no answer
	cut          // the connection is reset in the middle
	liar         // it stores the record and answers 500
	slow         // it takes 100 ms
	modes
)

// endpoint is a raw HTTP sink's other end: it stores the number of each record once by its key.
type endpoint struct {
	url     string
	server  *http.Server
	ledger  *ledger
	mode    atomic.Int32
	faults  atomic.Int64
	repeats atomic.Int64
	mu      sync.Mutex
	keys    map[string]struct{}
}

func newEndpoint(l *ledger) (*endpoint, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("soak: %w", err)
	}
	e := &endpoint{url: "http://" + ln.Addr().String() + "/", ledger: l, keys: map[string]struct{}{}}
	e.server = &http.Server{Handler: e}
	go func() { _ = e.server.Serve(ln) }() // it ends by close
	return e, nil
}

func (e *endpoint) close() { _ = e.server.Close() } // nothing is lost by it

func (e *endpoint) heal() { e.mode.Store(int32(well)) }

// misbehave changes the mode now and then.
func (e *endpoint) misbehave(ctx context.Context, rng *rand.Rand) {
	for pause(ctx, rng, minCalm, maxCalm) {
		e.mode.Store(1 + int32(rng.IntN(int(modes)-1)))
		e.faults.Add(1)
		pause(ctx, rng, minFault, maxFault)
		e.heal()
	}
}

func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m := mode(e.mode.Load())
	switch m {
	case failing:
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	case refused:
		w.WriteHeader(http.StatusUnauthorized)
		return
	case hanging:
		<-r.Context().Done()
		return
	case cut:
		_, _ = io.CopyN(io.Discard, r.Body, 10) // a part
		panic(http.ErrAbortHandler)
	case slow:
		time.Sleep(100 * time.Millisecond)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	if err := e.store(r.Header.Get("Idempotency-Key"), body); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if m == liar {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (e *endpoint) store(key string, body []byte) error {
	var n int64
	if _, err := fmt.Sscan(string(body[:min(len(body), 20)]), &n); err != nil {
		return err
	}
	if key == "" {
		return errors.New("no key")
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, ok := e.keys[key]; ok {
		e.repeats.Add(1)
		return nil
	}
	e.keys[key] = struct{}{}
	e.ledger.arrive(n)
	return nil
}
