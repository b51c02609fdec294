package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/weir-agent/weir/wab/record"
	"github.com/weir-agent/weir/weida"
)

// weidaEnd is a listener with one queue, which keeps what it gets and confirms it with a level.
type weidaEnd struct {
	id   *weida.Identity
	addr string
	rt   *weida.Runtime
	done chan struct{}

	mu  sync.Mutex
	got []string // guarded by mu
	ids map[string]bool
}

// newWeidaEnd starts a listener at addr, with the identity of another one or its own.
func newWeidaEnd(t *testing.T, addr string, id *weida.Identity, clients *weida.Trust, level weida.Level) *weidaEnd {
	t.Helper()
	e := &weidaEnd{id: id, done: make(chan struct{}), ids: map[string]bool{}}
	var err error
	if e.id == nil {
		if e.id, err = weida.GenerateIdentity(); err != nil {
			t.Fatal(err)
		}
	}
	var offered weida.Guarantees
	if level == weida.LevelStored {
		offered = weida.Guarantees{Acknowledgement: weida.AckStored, Durability: weida.Flushed}
	}
	if e.rt, err = weida.NewRuntime(weida.Options{Offered: offered}); err != nil {
		t.Fatal(err)
	}
	l := e.rt.Listener()
	replier, err := l.Replier("/orders")
	if err != nil {
		t.Fatal(err)
	}
	binding, err := l.BindQUIC(addr, weida.ServerTLS{Identity: e.id, ClientTrust: clients})
	if err != nil {
		t.Fatal(err)
	}
	e.addr = binding.Addr().String()
	go func() {
		defer close(e.done)
		for {
			r, err := replier.Accept(context.Background())
			if err != nil {
				return
			}
			e.take(r, level)
		}
	}()
	t.Cleanup(func() { e.stop(t) })
	return e
}

func (e *weidaEnd) take(r *weida.IncomingRequest, level weida.Level) {
	defer r.Close()
	body, err := r.Body().Collect(record.MaxBytes)
	if err != nil {
		return
	}
	id, _ := r.Meta().Extension(64)
	e.mu.Lock()
	e.got = append(e.got, string(body))
	e.ids[id] = true
	e.mu.Unlock()
	_ = r.Respond(context.Background(), weida.Meta{Achieved: weida.Some(level)}, nil) // the daemon may have been stopped
}

func (e *weidaEnd) stop(t *testing.T) {
	if err := e.rt.Shutdown(); err != nil {
		t.Error(err)
	}
	<-e.done
}

func (e *weidaEnd) url(pin weida.Fingerprint) string {
	return fmt.Sprintf("weida://%v@%s/orders", pin, e.addr)
}

// payloads returns what arrived, sorted, and how many different record ids came with it.
func (e *weidaEnd) payloads() ([]string, int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Sorted(slices.Values(e.got)), len(e.ids)
}

// TestWeidaSink: records arrive at a queue that is named on the command line, each with its id, and the status says where they go and who this weir is.
func TestWeidaSink(t *testing.T) {
	end := newWeidaEnd(t, "127.0.0.1:0", nil, nil, weida.LevelStored)
	dir := filepath.Join(t.TempDir(), "data")
	url := end.url(end.id.Fingerprint())
	p := startWeir(t, dir, "--sink", "weida", "--sink-url", url)
	want := []string{"one", "three", "two"}
	for _, text := range want {
		pushText(t, dir, text)
	}
	await(t, dir, func(s shownStatus) bool { return s.Backlog == 0 && s.Shards[0].Drain.Delivered == 3 })
	if got, ids := end.payloads(); !slices.Equal(got, want) || ids != 3 {
		t.Errorf("got %q with %d ids, want %q", got, ids, want)
	}
	id, err := weida.OpenIdentityDir(filepath.Join(dir, "identity"))
	if err != nil {
		t.Fatal(err)
	}
	own, err := id.Current()
	if err != nil {
		t.Fatal(err)
	}
	out, err := weirOn(t, dir, "status")
	for _, words := range []string{"weida " + url, own.Fingerprint().String()} {
		if err != nil || !strings.Contains(out, words) {
			t.Errorf("the status lacks %q: %v\n%s", words, err, out)
		}
	}
	if !strings.Contains(p.log.String(), own.Fingerprint().String()) {
		t.Errorf("the log lacks this weir's key:\n%s", p.log)
	}
}

// TestWeidaSinkHeld: what is wrong with a broker or its address is told in the status, with what to do; once it is mended, by a reload or by a restart, the
// records arrive.
func TestWeidaSinkHeld(t *testing.T) {
	other, err := weida.GenerateIdentity()
	if err != nil {
		t.Fatal(err)
	}
	memory := newWeidaEnd(t, "127.0.0.1:0", nil, nil, weida.LevelAccepted)
	good := newWeidaEnd(t, "127.0.0.1:0", nil, nil, weida.LevelStored)
	strangers := weida.TrustPins(other.Fingerprint())
	closed := newWeidaEnd(t, "127.0.0.1:0", nil, &strangers, weida.LevelStored)
	url := good.url(good.id.Fingerprint())
	for _, tc := range []struct {
		name, url, more string
		words           []string
		restart         bool
	}{
		{name: "wrong pin, reload", url: good.url(other.Fingerprint()), words: []string{"another key", good.id.Fingerprint().String()}},
		{name: "wrong pin, restart", url: good.url(other.Fingerprint()), words: []string{"another key"}, restart: true},
		{name: "no such queue", url: url + "/new", words: []string{`no queue at "/orders/new"`}},
		{name: "memory only", url: memory.url(memory.id.Fingerprint()), words: []string{"does not promise", `sink.weida.required_ack = "stored"`}},
		{name: "keys that it knows", url: closed.url(closed.id.Fingerprint()), words: []string{"add this one there: sha256:"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			base := t.TempDir()
			dir, file := filepath.Join(base, "data"), filepath.Join(base, "weir.toml")
			text := func(url string) string {
				return fmt.Sprintf("[sink]\ntype = \"weida\"\n[sink.weida]\nurl = %q\n", url)
			}
			writeFile(t, file, text(tc.url))
			p := startWeir(t, dir, "--config", file)
			pushText(t, dir, tc.name)
			st := await(t, dir, func(s shownStatus) bool { return s.Shards[0].Drain.State == "held" })
			if !st.Ready || len(st.Warnings) != 1 || st.Backlog != 1 {
				t.Errorf("held: %+v", st)
			}
			for _, words := range append(tc.words, "weir reload") {
				if !strings.Contains(st.Warnings[0], words) {
					t.Errorf("the warning lacks %q: %s", words, st.Warnings[0])
				}
			}
			writeFile(t, file, text(url))
			if tc.restart {
				if code := p.stop(t); code != 0 {
					t.Fatalf("exit status %d\n%s", code, p.log)
				}
				startWeir(t, dir, "--config", file)
			} else if out, err := weirOn(t, dir, "reload"); err != nil || !strings.Contains(out, "changed: sink.weida.url\n") {
				t.Fatalf("reload: %v\n%s", err, out)
			}
			await(t, dir, func(s shownStatus) bool { return s.Backlog == 0 })
			if got, _ := good.payloads(); !slices.Contains(got, tc.name) {
				t.Errorf("got %q, want %q among it", got, tc.name)
			}
		})
	}
}

// TestWeidaSinkStops: a SIGTERM while the broker holds what it got ends in time, and the next start sends it again.
func TestWeidaSinkStops(t *testing.T) {
	rt, err := weida.NewRuntime(weida.Options{Offered: weida.Guarantees{Acknowledgement: weida.AckStored, Durability: weida.Flushed}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := rt.Shutdown(); err != nil {
			t.Error(err)
		}
	})
	id, err := weida.GenerateIdentity()
	if err != nil {
		t.Fatal(err)
	}
	l := rt.Listener()
	replier, err := l.Replier("/orders")
	if err != nil {
		t.Fatal(err)
	}
	binding, err := l.BindQUIC("127.0.0.1:0", weida.ServerTLS{Identity: id})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "weir.toml")
	url := fmt.Sprintf("weida://%v@%s/orders", id.Fingerprint(), binding.Addr())
	writeFile(t, file, fmt.Sprintf("shutdown_timeout = \"2s\"\n[sink]\ntype = \"weida\"\n[sink.weida]\nurl = %q\n", url))
	dir := filepath.Join(t.TempDir(), "data")
	p := startWeir(t, dir, "--config", file)
	pushText(t, dir, "held")
	held, err := replier.Accept(t.Context()) // and it is not answered
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if code := p.stop(t); code != 0 {
		t.Fatalf("exit status %d\n%s", code, p.log)
	}
	startWeir(t, dir, "--config", file)
	again, err := replier.Accept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	first, _ := held.Meta().Extension(64)
	if second, _ := again.Meta().Extension(64); first == "" || second != first {
		t.Errorf("the second time the record has the id %x, the first time %x", second, first)
	}
	if err := again.Respond(t.Context(), weida.Meta{Achieved: weida.Some(weida.LevelStored)}, nil); err != nil {
		t.Fatal(err)
	}
	await(t, dir, func(s shownStatus) bool { return s.Backlog == 0 })
}
