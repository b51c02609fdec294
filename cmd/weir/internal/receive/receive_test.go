package receive

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"go.uber.org/goleak"

	"github.com/weir-agent/weir/sinks"
	"github.com/weir-agent/weir/sinks/httpsink"
	"github.com/weir-agent/weir/sinks/sinktest"
	"github.com/weir-agent/weir/wab/record"
	"github.com/weir-agent/weir/wab/vfs"
	"github.com/weir-agent/weir/wab/vfs/vfstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const fileName = "received.jsonl"

func openDir(t *testing.T, dir string) *vfs.Dir {
	t.Helper()
	d, err := vfs.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func mustOpen(t *testing.T, o Options) *Receiver {
	t.Helper()
	if o.Name == "" {
		o.Name = fileName
	}
	r, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return r
}

func key(s string) string { return record.ComputeID(s, 1, nil).String() }

// send makes one request; header holds names and values by turns.
func send(r *Receiver, body string, header ...string) *httptest.ResponseRecorder {
	req := httptest.NewRequest(http.MethodPost, "/any", strings.NewReader(body))
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	r.ServeHTTP(w, req)
	return w
}

func mustSend(t *testing.T, r *Receiver, body string, header ...string) {
	t.Helper()
	if w := send(r, body, header...); w.Code != http.StatusNoContent {
		t.Errorf("status = %d (%s), want 204", w.Code, w.Body)
	}
}

func wantStats(t *testing.T, r *Receiver, want Stats) {
	t.Helper()
	if got := r.Stats(); got != want {
		t.Errorf("stats = %+v, want %+v", got, want)
	}
}

// payloads reads the file back as any JSON reader would.
func payloads(t *testing.T, data []byte) []string {
	t.Helper()
	var all []string
	for d := json.NewDecoder(bytes.NewReader(data)); ; {
		var line struct {
			Payload       *string
			PayloadBase64 []byte `json:"payload_base64"`
		}
		if err := d.Decode(&line); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatalf("%v in %q", err, data)
		}
		if line.Payload != nil {
			all = append(all, *line.Payload)
		} else {
			all = append(all, string(line.PayloadBase64))
		}
	}
}

func wantFile(t *testing.T, path string, want ...string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := payloads(t, data); !slices.Equal(got, want) {
		t.Errorf("file holds %q, want %q", got, want)
	}
}

const (
	lines = "application/x-ndjson"
	plain = "application/octet-stream"
)

func TestStoresAndDropsRepeats(t *testing.T) {
	dir := t.TempDir()
	r := mustOpen(t, Options{FS: openDir(t, dir)})
	for range 2 {
		mustSend(t, r, "raw \n\x00\xff", "Idempotency-Key", key("1"))
	}
	mustSend(t, r, "raw two", "Idempotency-Key", key("2"), "Content-Type", plain)
	wantStats(t, r, Stats{Received: 3, Stored: 2, Repeats: 1})
	for range 2 {
		mustSend(t, r, "a\nb\na\n", "Idempotency-Key", key("3"), "Content-Type", lines, "Weir-Record-Count", "3")
	}
	wantStats(t, r, Stats{Received: 9, Stored: 5, Repeats: 4})
	doc := func(names ...string) string {
		var all []string
		for _, n := range names {
			p, _ := json.Marshal([]byte(n))
			all = append(all, fmt.Sprintf(`{"id":%q,"segment":"s","index":1,"payload":%s}`, key(n), p))
		}
		return `{"records":[` + strings.Join(all, ",") + `]}`
	}
	mustSend(t, r, doc("x", "y", "x"), "Idempotency-Key", key("4"), "Content-Type", "application/json", "Weir-Record-Count", "3")
	mustSend(t, r, doc("y", "z"), "Idempotency-Key", key("5"), "Content-Type", "application/json; charset=utf-8", "Weir-Record-Count", "2")
	wantStats(t, r, Stats{Received: 14, Stored: 8, Repeats: 6})
	mustSend(t, r, `{"no":"batch"}`, "Content-Type", "application/json")
	mustSend(t, r, `{"no":"batch"}`, "Content-Type", "application/json")
	wantStats(t, r, Stats{Received: 16, Stored: 10, Repeats: 6})
	wantFile(t, filepath.Join(dir, fileName),
		"raw \n\x00\xff", "raw two", "a", "b", "a", "x", "y", "z", `{"no":"batch"}`, `{"no":"batch"}`)
}

func TestRepeatsAreDroppedAcrossRestarts(t *testing.T) {
	dir := t.TempDir()
	push := func(r *Receiver) {
		mustSend(t, r, "raw", "Idempotency-Key", key("1"))
		mustSend(t, r, strings.Repeat("long", 1<<16), "Idempotency-Key", key("2"))
		mustSend(t, r, "a\nb\n", "Idempotency-Key", key("3"), "Content-Type", lines)
		mustSend(t, r, "c\n", "Idempotency-Key", key("4"), "Content-Type", lines)
	}
	r := mustOpen(t, Options{FS: openDir(t, dir)})
	push(r)
	mustSend(t, r, "no key")
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	r = mustOpen(t, Options{FS: openDir(t, dir)})
	wantStats(t, r, Stats{Stored: 6})
	push(r)
	wantStats(t, r, Stats{Received: 5, Stored: 6, Repeats: 5})
	mustSend(t, r, "new", "Idempotency-Key", key("5"))
	wantFile(t, filepath.Join(dir, fileName), "raw", strings.Repeat("long", 1<<16), "a", "b", "c", "no key", "new")
}

// Whatever part of the file a crash leaves, what is whole is kept and known, and what is not
// is gone and taken again.
func TestFileCutAtEachByte(t *testing.T) {
	dir := t.TempDir()
	push := func(r *Receiver) {
		mustSend(t, r, "raw", "Idempotency-Key", key("1"))
		mustSend(t, r, "a\nb\nc\n", "Idempotency-Key", key("2"), "Content-Type", lines)
		mustSend(t, r, "end", "Idempotency-Key", key("3"))
	}
	r := mustOpen(t, Options{FS: openDir(t, dir)})
	push(r)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, fileName)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for n := range whole {
		for _, tail := range []string{"", "\x00\x00\x00"} {
			if err := os.WriteFile(path, append(bytes.Clone(whole[:n]), tail...), 0o600); err != nil {
				t.Fatal(err)
			}
			r, err := Open(Options{FS: openDir(t, dir), Name: fileName})
			if err != nil {
				// Zeros behind a line feed are a torn line as well.
				t.Fatalf("cut at %d with %q: %v", n, tail, err)
			}
			stored := r.Stats().Stored
			push(r)
			if got, want := r.Stats(), (Stats{Received: 5, Stored: 5, Repeats: stored}); got != want {
				t.Errorf("cut at %d: stats = %+v, want %+v", n, got, want)
			}
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
			wantFile(t, path, "raw", "a", "b", "c", "end")
		}
	}
}

func TestOpenRefusesAFileOfSomeoneElse(t *testing.T) {
	k := key("1")
	for name, data := range map[string]string{
		"other text":         "hello\n",
		"short":              "{\n",
		"empty line":         "\n",
		"bad key":            `{"key":"sha256:12","payload":"x"}` + "\n",
		"no payload":         `{"key":"` + k + `"}` + "\n",
		"line without of":    `{"key":"` + k + `","line":1,"payload":"x"}` + "\n",
		"line over of":       `{"key":"` + k + `","line":2,"of":1,"payload":"x"}` + "\n",
		"line zero":          `{"key":"` + k + `","line":0,"of":1,"payload":"x"}` + "\n",
		"starts in a batch":  `{"key":"` + k + `","line":2,"of":2,"payload":"x"}` + "\n",
		"damage inside":      `{"payload":"x` + "\x00" + `"}` + "\n" + `{"payload":"x"}` + "\n",
		"huge line":          `{"key":"` + k + `","line":99999999999999999999,"of":2,"payload":"x"}` + "\n",
		"batch broken off":   `{"key":"` + k + `","line":1,"of":2,"payload":"x"}` + "\n" + `{"payload":"x"}` + "\n",
		"batch of other key": `{"key":"` + k + `","line":1,"of":2,"payload":"x"}` + "\n" + `{"key":"` + key("2") + `","line":2,"of":2,"payload":"x"}` + "\n",
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, fileName)
		if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(Options{FS: openDir(t, dir), Name: fileName}); err == nil || !strings.Contains(err.Error(), "line ") {
			t.Errorf("%s: Open = %v, want an error that names the line", name, err)
		}
		if got, _ := os.ReadFile(path); string(got) != data {
			t.Errorf("%s: the file was changed to %q", name, got)
		}
	}
}

func FuzzReadBack(f *testing.F) {
	f.Add([]byte(`{"key":"` + key("1") + `","line":1,"of":2,"payload":"x"}` + "\n"))
	f.Add([]byte(`{"payload":"x"}` + "\n\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		disk := vfstest.NewDisk()
		file, err := disk.Create(fileName)
		if err != nil {
			t.Fatal(err)
		}
		if len(data) > 0 {
			if _, err := file.WriteAt(data, 0); err != nil {
				t.Fatal(err)
			}
		}
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
		r, err := Open(Options{FS: disk, Name: fileName})
		got, rerr := disk.Bytes(fileName)
		if rerr != nil {
			t.Fatal(rerr)
		}
		if err != nil {
			if !bytes.Equal(got, data) {
				t.Errorf("a file that was refused changed from %q to %q", data, got)
			}
			return
		}
		defer r.Close()
		if !bytes.HasPrefix(data, got) || r.Stats().Stored != int64(bytes.Count(got, []byte("\n"))) {
			t.Errorf("of %q remains %q, %d stored", data, got, r.Stats().Stored)
		}
	})
}

func TestRefusals(t *testing.T) {
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	if _, err := z.Write(make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	e, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	small := string(e.EncodeAll(make([]byte, 1<<20), nil))
	dir := t.TempDir()
	r := mustOpen(t, Options{FS: openDir(t, dir), MaxBodyBytes: 1 << 16})
	for name, tc := range map[string]struct {
		status int
		body   string
		header []string
	}{
		"empty":             {400, "", nil},
		"too long":          {413, strings.Repeat("x", 1<<16+1), nil},
		"gzip unfolds":      {413, zipped.String(), []string{"Content-Encoding", "gzip"}},
		"zstd unfolds":      {413, small, []string{"Content-Encoding", "zstd"}},
		"not gzip":          {400, "plain", []string{"Content-Encoding", "gzip"}},
		"gzip cut":          {400, zipped.String()[:20], []string{"Content-Encoding", "gzip"}},
		"not zstd":          {400, "plain", []string{"Content-Encoding", "zstd"}},
		"unknown encoding":  {415, "plain", []string{"Content-Encoding", "br"}},
		"bad key":           {400, "plain", []string{"Idempotency-Key", "sha256:1"}},
		"lines without end": {400, "a\nb", []string{"Content-Type", lines}},
		"empty line":        {400, "a\n\nb\n", []string{"Content-Type", lines}},
		"no line":           {400, "", []string{"Content-Type", lines}},
		"count":             {400, "a\nb\n", []string{"Content-Type", lines, "Weir-Record-Count", "3"}},
		"json":              {400, "{", []string{"Content-Type", "application/json", "Weir-Record-Count", "1"}},
		"json without id":   {400, `{"records":[{"payload":"YQ=="}]}`, []string{"Content-Type", "application/json", "Weir-Record-Count", "1"}},
	} {
		tc.header = append(tc.header, "X-None", "")
		if w := send(r, tc.body, tc.header...); w.Code != tc.status {
			t.Errorf("%s: status = %d (%s), want %d", name, w.Code, w.Body, tc.status)
		}
	}
	w := httptest.NewRecorder()
	r.ServeHTTP(w, httptest.NewRequest(http.MethodDelete, "/", nil))
	if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") == "" {
		t.Errorf("DELETE: status = %d", w.Code)
	}
	wantStats(t, r, Stats{})
	wantFile(t, filepath.Join(dir, fileName))
	mustSend(t, r, strings.Repeat("x", 1<<16))
	if n := r.inFlight.Load(); n != 0 {
		t.Errorf("%d bytes are charged with no request under way", n)
	}
}

func TestBytesInFlightAreBounded(t *testing.T) {
	r := mustOpen(t, Options{FS: openDir(t, t.TempDir()), MaxBodyBytes: 1000, MaxInFlightBytes: 1500})
	in, out := io.Pipe()
	first := make(chan int)
	go func() {
		req := httptest.NewRequest(http.MethodPost, "/", in)
		w := httptest.NewRecorder()
		r.ServeHTTP(w, req)
		first <- w.Code
	}()
	for _, n := range []int{900, 1} { // the second is taken once the first is charged
		if _, err := out.Write(make([]byte, n)); err != nil {
			t.Fatal(err)
		}
	}
	w := send(r, strings.Repeat("x", 900))
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
		t.Errorf("status = %d, want 503 with Retry-After", w.Code)
	}
	mustSend(t, r, strings.Repeat("x", 500))
	out.Close()
	if code := <-first; code != http.StatusNoContent {
		t.Errorf("the request that was first: status = %d", code)
	}
	mustSend(t, r, strings.Repeat("x", 1000))
}

func TestStatsEndpoint(t *testing.T) {
	r := mustOpen(t, Options{FS: openDir(t, t.TempDir())})
	mustSend(t, r, "a", "Idempotency-Key", key("1"))
	mustSend(t, r, "a", "Idempotency-Key", key("1"))
	w := httptest.NewRecorder()
	r.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/stats", nil))
	if got := strings.TrimSpace(w.Body.String()); w.Code != 200 || got != `{"received":2,"stored":1,"repeats":1}` {
		t.Errorf("GET /stats = %d %s", w.Code, got)
	}
}

func TestARepeatWaitsForTheSyncOfTheFirst(t *testing.T) {
	in := vfstest.NewInjector(vfstest.NewDisk())
	r := mustOpen(t, Options{FS: in})
	gate := vfstest.NewGate()
	in.Add(vfstest.Fault{Kinds: vfstest.SyncData, Name: fileName, Gate: gate, Err: syscall.EIO})
	codes := make(chan int, 2)
	go func() { codes <- send(r, "a", "Idempotency-Key", key("1")).Code }()
	<-gate.Reached()
	if known, g := r.store.known(mustKey(t, "1")); !known || g == nil {
		t.Fatal("the key is not pending while its sync runs")
	}
	go func() { codes <- send(r, "a", "Idempotency-Key", key("1")).Code }()
	gate.Release()
	for range 2 {
		if code := <-codes; code != http.StatusServiceUnavailable {
			t.Errorf("status = %d for a record whose sync failed, want 503", code)
		}
	}
	// The file is not believed again.
	if code := send(r, "b", "Idempotency-Key", key("2")).Code; code != http.StatusServiceUnavailable {
		t.Errorf("status = %d after a failed sync, want 503", code)
	}
	if got := r.Stats().Stored; got != 0 {
		t.Errorf("%d stored, want 0", got)
	}
}

func mustKey(t *testing.T, s string) record.ID {
	t.Helper()
	id, err := record.ParseID(key(s))
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// A power cut at each operation: what was answered with 204 is in the file.
func TestPowerCutAtEachOperation(t *testing.T) {
	for k := 1; ; k++ {
		disk := vfstest.NewDisk()
		in := vfstest.NewInjector(disk)
		in.Add(vfstest.Fault{At: k, Crash: true})
		var want []string
		if r, err := Open(Options{FS: in, Name: fileName}); err == nil {
			for i := range 4 {
				p := fmt.Sprint("payload ", i, strings.Repeat("x", 1500))
				if send(r, p, "Idempotency-Key", key(p)).Code == http.StatusNoContent {
					want = append(want, p)
				}
			}
			_ = r.Close() // the world may have ended
		}
		for seed := range uint64(40) {
			image := disk.Image(vfstest.Choice{Keep: vfstest.Keep(seed % 3), Seed: seed})
			r, err := Open(Options{FS: image, Name: fileName})
			if err != nil {
				t.Fatalf("operation %d, image %d: %v", k, seed, err)
			}
			data, err := image.Bytes(fileName)
			if err != nil {
				t.Fatal(err)
			}
			got := payloads(t, data)
			if n := r.Stats().Stored; n != int64(len(got)) {
				t.Errorf("operation %d, image %d: %d stored, %d lines", k, seed, n, len(got))
			}
			for _, p := range want {
				if !slices.Contains(got, p) {
					t.Errorf("operation %d, image %d: %.10q was answered for and is lost", k, seed, p)
				}
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		}
		if t.Failed() || len(in.Fired()) == 0 {
			return
		}
	}
}

func TestTakesWhatTheHTTPSinkSends(t *testing.T) {
	for _, format := range []string{httpsink.FormatRaw, httpsink.FormatNDJSON, httpsink.FormatJSON} {
		for _, compression := range []string{httpsink.CompressionNone, httpsink.CompressionGzip, httpsink.CompressionZstd} {
			r := mustOpen(t, Options{FS: openDir(t, t.TempDir())})
			server := httptest.NewServer(r)
			t.Cleanup(server.Close)
			s, err := httpsink.New(httpsink.Options{URL: server.URL, Format: format, Compression: compression})
			if err != nil {
				t.Fatal(err)
			}
			var wg sync.WaitGroup
			const batches, size = 4, 50
			for i := range batches * 2 { // each batch twice, at the same time
				wg.Go(func() {
					for _, o := range s.Deliver(t.Context(), sinktest.Batch(fmt.Sprint(i%batches), size)) {
						if o.Verdict != sinks.Delivered {
							t.Errorf("%s %s: %+v", format, compression, o)
						}
					}
				})
			}
			wg.Wait()
			wantStats(t, r, Stats{Received: 2 * batches * size, Stored: batches * size, Repeats: batches * size})
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
