package drain_test

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-agent/weir/drain"
	"github.com/weir-agent/weir/drain/deadletter"
	"github.com/weir-agent/weir/sinks"
	"github.com/weir-agent/weir/sinks/httpsink"
	"github.com/weir-agent/weir/wab"
	"github.com/weir-agent/weir/wab/record"
	"github.com/weir-agent/weir/wab/vfs"
	"github.com/weir-agent/weir/wab/vfs/vfstest"
)

// wire is a form of HTTP.
type wire struct {
	name    string
	tls, h2 bool
}

// onlyPlain, onlyHTTP1, onlyHTTP2 and allWires are the forms that a row is run over.
func onlyPlain() []wire { return []wire{{name: "HTTP1"}} }
func onlyHTTP1() []wire { return []wire{{name: "HTTP1"}, {name: "TLS", tls: true}} }
func onlyHTTP2() []wire { return []wire{{name: "HTTP2", tls: true, h2: true}} }
func allWires() []wire  { return append(onlyHTTP1(), onlyHTTP2()...) }

// request is one that arrived whole. Its fields are guarded by the endpoint's mutex once it is there.
type request struct {
	e       *endpoint
	ctx     context.Context
	path    string
	key     string
	batch   bool // the key is that of a batch
	records []string
	took    []string
}

// take notes that the endpoint has these records, before it says so.
func (q *request) take(records ...string) {
	q.e.mu.Lock()
	defer q.e.mu.Unlock()
	q.took = append(q.took, records...)
	for _, p := range records {
		q.e.times[p]++
	}
}

// endpoint is a real HTTP server that misbehaves by script and takes every record that the script leaves to it.
type endpoint struct {
	*httptest.Server
	caFile string
	begun  atomic.Int64 // requests
	// early sees the n-th request, from 0, before its body is read. It returns true where it has dealt with it.
	early func(n int, w http.ResponseWriter, r *http.Request) bool
	// script sees it once it is whole.
	script func(n int, w http.ResponseWriter, q *request) bool
	// connections is how many of the first connections go to front instead of the server.
	connections int
	front       func(n int, c net.Conn)

	mu       sync.Mutex
	requests []*request
	times    map[string]int // how often each record was taken
}

// start runs the endpoint until the end of the test.
func (e *endpoint) start(t *testing.T, over wire) *endpoint {
	t.Helper()
	e.times = map[string]int{}
	e.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if (r.ProtoMajor == 2) != over.h2 || (r.TLS != nil) != over.tls {
			t.Errorf("a request over %s, TLS %t; want %s", r.Proto, r.TLS != nil, over.name)
		}
		e.serve(w, r)
	}))
	e.Config.ErrorLog = log.New(io.Discard, "", 0)
	gate := &frontListener{Listener: e.Listener, e: e, tls: over.tls}
	e.Listener = gate
	e.EnableHTTP2 = over.h2
	if !over.tls {
		e.Start()
	} else {
		e.StartTLS()
		e.caFile = filepath.Join(t.TempDir(), "ca.pem")
		block := &pem.Block{Type: "CERTIFICATE", Bytes: e.Certificate().Raw}
		if err := os.WriteFile(e.caFile, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		e.Close()
		gate.running.Wait()
	})
	return e
}

// frontListener keeps the first connections from the server.
type frontListener struct {
	net.Listener
	e       *endpoint
	tls     bool
	n       int // for Accept alone
	running sync.WaitGroup
}

func (l *frontListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil || l.n >= l.e.connections {
			return c, err
		}
		n := l.n
		l.n++
		l.running.Go(func() {
			defer c.Close()
			if l.tls {
				l.e.front(n, tls.Server(c, l.e.TLS))
				return
			}
			l.e.front(n, c)
		})
	}
}

func (e *endpoint) serve(w http.ResponseWriter, r *http.Request) {
	n := int(e.begun.Add(1)) - 1
	if e.early != nil && e.early(n, w, r) {
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	q := &request{
		e: e, ctx: r.Context(), path: r.Method + " " + r.URL.Path, key: r.Header.Get("Idempotency-Key"),
		batch: r.Header.Get("Weir-Record-Count") != "",
	}
	if !q.batch {
		q.records = []string{string(body)}
	} else {
		for line := range strings.Lines(string(body)) {
			q.records = append(q.records, strings.TrimSuffix(line, "\n"))
		}
	}
	e.mu.Lock()
	e.requests = append(e.requests, q)
	e.mu.Unlock()
	if e.script != nil && e.script(n, w, q) {
		return
	}
	q.take(q.records...)
	_, _ = io.WriteString(w, `{"errors":false}`)
}

// taken is how many different records the endpoint has.
func (e *endpoint) taken() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.times)
}

// all returns the requests that arrived whole so far.
func (e *endpoint) all() []*request {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]*request(nil), e.requests...)
}

// answers is a script that answers the first requests with these statuses, one each.
func answers(statuses ...int) func(int, http.ResponseWriter, *request) bool {
	return func(n int, w http.ResponseWriter, _ *request) bool {
		if n < len(statuses) {
			w.WriteHeader(statuses[n])
		}
		return n < len(statuses)
	}
}

// rig is a log and its drain, and what was acked.
type rig struct {
	t            *testing.T
	fs, deadFS   vfs.FS
	segmentBytes int64
	log          *wab.Log
	one          *wab.Shard // the log's only one
	dead         *deadletter.Store
	drain        *drain.Drain
	sink         *httpsink.Sink
	stop         context.CancelFunc
	ended        chan error

	mu    sync.Mutex
	acked map[string]record.ID // by payload; guarded by mu
	saw   map[drain.State]bool // states of the shard; guarded by mu
}

// newRig opens a log and a dead-letter store, on new disks where they are nil.
func newRig(t *testing.T, fs, deadFS vfs.FS) *rig {
	t.Helper()
	if fs == nil {
		fs = vfstest.NewDisk()
	}
	if deadFS == nil {
		deadFS = vfstest.NewDisk()
	}
	r := &rig{
		t: t, fs: fs, deadFS: deadFS, segmentBytes: 64 << 10,
		acked: map[string]record.ID{}, saw: map[drain.State]bool{},
	}
	r.open()
	t.Cleanup(r.halt)
	return r
}

func (r *rig) open() {
	r.t.Helper()
	var err error
	r.log, err = wab.Open("", wab.Options{FS: r.fs, SegmentBytes: r.segmentBytes, MinFreeBytes: -1})
	if err != nil {
		r.t.Fatal(err)
	}
	r.one = r.log.Shards()[0]
	if r.dead, err = deadletter.Open(r.deadFS, deadletter.Options{}); err != nil {
		r.t.Fatal(err)
	}
}

// append pushes payloads, which are unlike all others, in one group, and books those that are acked.
func (r *rig) append(payloads ...string) error {
	all := make([][]byte, len(payloads))
	for i, p := range payloads {
		all[i] = []byte(p)
	}
	ticket, err := r.one.Append(record.Durable, all...)
	if err != nil {
		return err
	}
	err = ticket.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, p := range payloads[:ticket.Len()] {
		if ticket.Err(i) == nil {
			segment, index := ticket.Coordinate(i)
			r.acked[p] = record.ComputeID(segment, index, all[i])
		}
	}
	return err
}

func (r *rig) push(payloads ...string) {
	r.t.Helper()
	if err := r.append(payloads...); err != nil {
		r.t.Fatal(err)
	}
}

// setup is what a row has different from the others.
type setup struct {
	http  httpsink.Options
	drain drain.Options
	wrap  func(sinks.Sink) sinks.Sink
}

// deliver starts a drain to e.
func (r *rig) deliver(e *endpoint, s setup) {
	r.t.Helper()
	if s.http.URL == "" {
		s.http.URL = e.URL
	}
	s.http.CAFile = e.caFile
	o := &s.drain
	if o.BatchRecords == 0 {
		o.BatchRecords = 100_000 // so large that no pace that depends on it takes time
	}
	if o.Linger == 0 {
		o.Linger = -1
	}
	o.BackoffMin, o.BackoffMax, o.HoldInterval = time.Microsecond, time.Microsecond, time.Microsecond
	o.Observer.Changed = func(_ int, to drain.State, _ string) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.saw[to] = true
	}
	var err error
	if r.sink, err = httpsink.New(s.http); err != nil {
		r.t.Fatal(err)
	}
	var sink sinks.Sink = r.sink
	if s.wrap != nil {
		sink = s.wrap(sink)
	}
	if r.drain, err = drain.New(r.log.Shards(), sink, r.dead, s.drain); err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.stop, r.ended = cancel, make(chan error, 1)
	go func(d *drain.Drain, ended chan<- error) { ended <- d.Run(ctx) }(r.drain, r.ended)
}

// endDrain stops the drain and its sink and waits for both.
func (r *rig) endDrain() {
	if r.stop == nil {
		return
	}
	r.stop()
	r.stop = nil
	if err := <-r.ended; err != nil {
		r.t.Errorf("Run: %v", err)
	}
	if err := r.sink.Close(); err != nil {
		r.t.Errorf("the sink: %v", err)
	}
}

// halt ends everything that runs; what is on the disks stays.
func (r *rig) halt() {
	r.endDrain()
	if err := r.log.Close(); err != nil {
		r.t.Errorf("the log: %v", err)
	}
	if err := r.dead.Close(); err != nil {
		r.t.Errorf("the dead-letter store: %v", err)
	}
}

// waitBound ends a wait for what never comes, so that it is seen what was waited for.
const waitBound = time.Minute

// until waits for an event.
func (r *rig) until(what string, f func() bool) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), waitBound)
	defer cancel()
	for !f() {
		if ctx.Err() != nil {
			r.t.Fatalf("waited in vain for: %s; %+v", what, r.shard())
		}
		runtime.Gosched()
	}
}

func (r *rig) shard() drain.ShardStats { return r.drain.Stats().Shards[0] }

func (r *rig) backlog() int64 { return r.one.Stats().BacklogRecords }

func (r *rig) letters() []deadletter.Letter {
	r.t.Helper()
	var all []deadletter.Letter
	for l, err := range r.dead.List() {
		if err != nil {
			r.t.Errorf("the dead letters: %v", err)
			continue
		}
		all = append(all, l)
	}
	return all
}

// wantState fails the test unless the shard was in this state.
func (r *rig) wantState(s drain.State) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.saw[s] {
		r.t.Errorf("states %v, want %v among them", r.saw, s)
	}
}

// ledger waits until the log is empty and settles the account: each acked record was taken by the endpoint, is a dead
// letter (there are as many as said) with its reason, or is among those whose damage the test made and saw reported.
func (r *rig) ledger(e *endpoint, letters int, damaged ...string) {
	r.t.Helper()
	r.until("an empty log", func() bool { return r.backlog() == 0 })
	if r.stop != nil {
		r.until("no requeued letter", func() bool { return r.dead.Stats().Requeued == 0 })
	}
	end := map[string]string{}
	for _, l := range r.letters() {
		p := string(l.Payload)
		end[p] = "dead"
		if l.Reason == "" || l.ID != r.acked[p] {
			r.t.Errorf("the letter of %.40q has reason %q and id %v, want %v", p, l.Reason, l.ID, r.acked[p])
		}
	}
	if len(end) != letters {
		r.t.Errorf("%d dead letters, want %d", len(end), letters)
	}
	for _, p := range damaged {
		end[p] = "damaged"
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	lost := 0
	for p := range r.acked {
		if e.times[p] == 0 && end[p] == "" {
			lost++
		}
		if e.times[p] > 0 && end[p] != "" {
			r.t.Errorf("%.40q was delivered and is %s", p, end[p])
		}
	}
	if lost > 0 {
		r.t.Errorf("%d of %d acked records are lost", lost, len(r.acked))
	}
	for _, q := range e.requests {
		r.checkKey(q)
	}
}

// checkKey wants a request to have records that were acked, under the key that is their own.
func (r *rig) checkKey(q *request) {
	r.t.Helper()
	records := make([]record.Record, len(q.records))
	for i, p := range q.records {
		id, known := r.acked[p]
		if !known {
			r.t.Errorf("%s has a record that was not acked: %.40q", q.path, p)
		}
		records[i].ID = id
	}
	var want record.ID
	if q.batch {
		want = record.BatchKey(records)
	} else {
		want = records[0].ID
	}
	if q.key != want.String() {
		r.t.Errorf("%s has key %s, want %s", q.path, q.key, want)
	}
}

// wantOnce wants every acked record to have been taken once.
func (r *rig) wantOnce(e *endpoint) {
	r.t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	for p, n := range e.times {
		if n != 1 {
			r.t.Errorf("%.40q was taken %d times", p, n)
		}
	}
}
