package weidasink

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/weir-agent/weir/sinks"
	"github.com/weir-agent/weir/sinks/sinktest"
	"github.com/weir-agent/weir/wab/record"
	"github.com/weir-agent/weir/weida"
)

// TestMessage: what the broker gets with a record.
func TestMessage(t *testing.T) {
	b := newBroker(t, brokerOptions{})
	s := sinktest.Open(t, New, Options{URL: b.url(), Topic: "orders.new", ContentType: "text/plain", IdentityDir: filepath.Join(t.TempDir(), "key")})
	batch := sinktest.BatchOf("one", strings.Repeat("x", record.MaxBytes))
	want{sinks.Delivered, nil}.check(t, s.Deliver(t.Context(), batch), 2)
	got := b.all()
	if len(got) != 2 {
		t.Fatalf("%d requests", len(got))
	}
	if len(got[0].body) > len(got[1].body) {
		got[0], got[1] = got[1], got[0]
	}
	for i, a := range got {
		r := batch.Records[i]
		id, there := a.meta.Extension(RecordIDExtension)
		if !there || id != string(r.ID[:]) {
			t.Errorf("record %d: id %x, want %x", i, id, r.ID)
		}
		if a.meta.Topic != weida.Some("orders.new") || a.meta.ContentType != "text/plain" || a.meta.ContentLen != weida.Some(uint64(len(r.Payload))) {
			t.Errorf("record %d: %+v", i, a.meta)
		}
		if !bytes.Equal(a.body, r.Payload) {
			t.Errorf("record %d: another payload", i)
		}
		if peer, ok := a.meta.Peer.Fingerprint(); !ok || peer.String() != s.Identity() {
			t.Errorf("record %d: sent by %v, want %s", i, a.meta.Peer, s.Identity())
		}
	}
}

// TestDefaults: without a topic none is sent, and a sink without an identity proves none.
func TestDefaults(t *testing.T) {
	b := newBroker(t, brokerOptions{})
	s := sinktest.Open(t, New, Options{URL: b.url()})
	want{sinks.Delivered, nil}.check(t, s.Deliver(t.Context(), sinktest.BatchOf("one")), 1)
	m := b.all()[0].meta
	if _, ok := m.Peer.Fingerprint(); ok || m.Topic.Set || m.ContentType != DefaultContentType || s.Identity() != "" {
		t.Errorf("got %+v of %q", m, s.Identity())
	}
}

// TestIdentityStays: the key is made once, and a later sink has the same.
func TestIdentityStays(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "key")
	id, err := weida.GenerateIdentity()
	if err != nil {
		t.Fatal(err)
	}
	o := Options{URL: (&broker{id: id, addr: "127.0.0.1:1"}).url(), IdentityDir: dir}
	first, second := sinktest.Open(t, New, o).Identity(), sinktest.Open(t, New, o).Identity()
	if first == "" || first != second {
		t.Errorf("got %q, then %q", first, second)
	}
	if err := os.WriteFile(filepath.Join(dir, "identity.pem"), []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(o); err == nil || !strings.HasPrefix(err.Error(), "sink.weida.identity_dir: ") {
		t.Errorf("New with a broken identity: %v", err)
	}
}

// TestInFlight: the bound on records under way is used in full and never exceeded, over all batches.
func TestInFlight(t *testing.T) {
	const most, batches, each = 4, 3, 8
	var mu sync.Mutex
	under, peak := 0, 0
	full := make(chan struct{})
	b := newBroker(t, brokerOptions{answer: func(n int, r *weida.IncomingRequest, body []byte) {
		mu.Lock()
		under++
		peak = max(peak, under)
		if under == most && n < most {
			close(full)
		}
		mu.Unlock()
		<-full // so that the first ones wait for each other
		mu.Lock()
		under--
		mu.Unlock()
		confirm(weida.LevelStored)(n, r, body)
	}})
	s := sinktest.Open(t, New, Options{URL: b.url(), MaxInFlight: most, Timeout: long})
	var wg sync.WaitGroup
	for i := range batches {
		wg.Go(func() {
			var payloads []string
			for j := range each {
				payloads = append(payloads, fmt.Sprint(i, j))
			}
			want{sinks.Delivered, nil}.check(t, s.Deliver(t.Context(), sinktest.BatchOf(payloads...)), each)
		})
	}
	wg.Wait()
	mu.Lock()
	if peak != most {
		t.Errorf("%d records were under way at once, want %d", peak, most)
	}
	mu.Unlock()
	if n := len(b.all()); n != batches*each {
		t.Errorf("%d records arrived", n)
	}
}

// TestOneInFlightKeepsTheOrder: with one record under way at a time they arrive in their order.
func TestOneInFlightKeepsTheOrder(t *testing.T) {
	b := newBroker(t, brokerOptions{})
	s := sinktest.Open(t, New, Options{URL: b.url(), MaxInFlight: 1})
	batch := sinktest.BatchOf("a", "b", "c", "d", "e", "f")
	want{sinks.Delivered, nil}.check(t, s.Deliver(t.Context(), batch), 6)
	for i, a := range b.all() {
		if !bytes.Equal(a.body, batch.Records[i].Payload) {
			t.Errorf("at %d came %q", i, a.body)
		}
	}
}

// TestBrokerComesBack: after the end of a broker the same sink delivers to the next one at its address with its key, and not to one with another key.
func TestBrokerComesBack(t *testing.T) {
	first := newBroker(t, brokerOptions{})
	s := sinktest.Open(t, New, Options{URL: first.url(), ConnectTimeout: long})
	want{sinks.Delivered, nil}.check(t, s.Deliver(t.Context(), sinktest.BatchOf("one")), 1)
	first.close(t)

	impostor := newBroker(t, brokerOptions{addr: first.addr})
	for { // it is dialled again beside the attempts, which wait for that
		out := s.Deliver(t.Context(), sinktest.BatchOf("two"))
		if out[0].Verdict == sinks.Hold {
			want{sinks.Hold, []string{"another key", impostor.id.Fingerprint().String()}}.check(t, out, 1)
			break
		}
		want{sinks.Retry, nil}.check(t, out, 1)
	}
	impostor.close(t)
	if n := len(impostor.all()); n != 0 {
		t.Errorf("%d records went to another key", n)
	}

	back := newBroker(t, brokerOptions{addr: first.addr, id: first.id})
	for {
		out := s.Deliver(t.Context(), sinktest.BatchOf("two"))
		if out[0].Verdict == sinks.Delivered {
			break
		}
		want{sinks.Retry, nil}.check(t, out, 1)
	}
	if got := back.all(); len(got) == 0 || string(got[0].body) != "two" {
		t.Errorf("got %v", got)
	}
}

// TestStopWithoutALink: an attempt that is ended, or a sink that is closed, while the broker is dialled or awaited, returns at once.
func TestStopWithoutALink(t *testing.T) {
	id, err := weida.GenerateIdentity()
	if err != nil {
		t.Fatal(err)
	}
	nobody := &broker{id: id, addr: silent(t)}
	for _, tc := range []struct {
		name  string
		lost  bool // there was a link
		close bool // the sink is closed, else the attempt ended
	}{
		{"first dial, ended", false, false},
		{"first dial, closed", false, true},
		{"lost link, ended", true, false},
		{"lost link, closed", true, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			at := nobody
			if tc.lost {
				at = newBroker(t, brokerOptions{})
			}
			s := sinktest.Open(t, New, Options{URL: at.url(), ConnectTimeout: long, Timeout: long})
			if tc.lost {
				want{sinks.Delivered, nil}.check(t, s.Deliver(t.Context(), sinktest.BatchOf("one")), 1)
				at.close(t)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			const batches = 3
			results := make(chan []sinks.Outcome)
			for range batches {
				go func() { results <- s.Deliver(ctx, sinktest.BatchOf("two", "three")) }()
			}
			if tc.close {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			} else {
				cancel()
			}
			for range batches {
				want{sinks.Retry, nil}.check(t, <-results, 2)
			}
		})
	}
}

// TestOverASocket: a broker on the same machine is reached without keys.
func TestOverASocket(t *testing.T) {
	b := newBroker(t, brokerOptions{path: "/other"})
	l := b.rt.Listener()
	replier, err := l.Replier(path)
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(t.TempDir(), "s")
	if _, err := l.BindUnix(socket); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.serve(replier, confirm(weida.LevelStored))
	}()
	t.Cleanup(func() {
		b.close(t)
		<-done
	})
	dir := filepath.Join(t.TempDir(), "key")
	s := sinktest.Open(t, New, Options{URL: "weida+unix://" + url.PathEscape(socket) + path, IdentityDir: dir})
	want{sinks.Delivered, nil}.check(t, s.Deliver(t.Context(), sinktest.BatchOf("one", "two")), 2)
	if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a key was made that nobody asks for: %v", err)
	}
}

// TestFaultsOfOptions: each is named by its key, and all are told at once.
func TestFaultsOfOptions(t *testing.T) {
	good := "weida://sha256:" + strings.Repeat("a", 64) + "@host:7443/q"
	for _, tc := range []struct {
		name string
		o    Options
		want []string
	}{
		{"good", Options{URL: good}, nil},
		{"nothing", Options{}, []string{"url: is required"}},
		{"no address", Options{URL: "http://host/"}, []string{"url: invalid address"}},
		{"no pin", Options{URL: "weida://host:7443/q"}, []string{"url: does not say which broker must answer"}},
		{"a bus", Options{URL: "weida+inproc://bus/q"}, []string{"url: is of a kind that leaves no process"}},
		{"labels", Options{URL: good, Topic: strings.Repeat("x", 257), ContentType: "\xff"}, []string{"topic: has 257 bytes", "content_type: is not UTF-8"}},
		{"ack", Options{URL: good, RequiredAck: "replicated"}, []string{`required_ack: "replicated": use stored, written or accepted`}},
		{
			"numbers",
			Options{URL: good, MaxInFlight: 5000, MaxRecordBytes: -1, ConnectTimeout: -1, Timeout: -1},
			[]string{"max_in_flight: 5000", "max_record_bytes: -1", "connect_timeout: -1ns", "timeout: -1ns"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := tc.o.Check()
			var got []string
			if err != nil {
				got = strings.Split(err.Error(), "\n")
			}
			if len(got) != len(tc.want) {
				t.Fatalf("got %q, want %d faults", got, len(tc.want))
			}
			for i, w := range tc.want {
				if !strings.HasPrefix(got[i], "sink.weida."+w) {
					t.Errorf("got %q, want %q", got[i], w)
				}
			}
			if _, newErr := New(tc.o); err != nil && newErr == nil {
				t.Error("New takes what Check refuses")
			}
		})
	}
}
