// Package receive is the endpoint of `weir receive`: it takes what the HTTP sink
// sends (DESIGN section 8), stores each record as a line of a file and
// drops repeats by their key. It is for trying things out and for tests.
//
// A request is answered with 204 once its records are on stable storage, be it by
// this request or by an earlier one of the same key. Requests that run at
// the same time share a sync.
package receive

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/weir-agent/weir/wab/record"
	"github.com/weir-agent/weir/wab/vfs"
)

const (
	// defaultMaxBodyBytes holds a record of 16 MiB in base64, and the usual batch several times.
	defaultMaxBodyBytes = 32 << 20
	// defaultMaxInFlightBytes bounds the bodies of all requests at once.
	defaultMaxInFlightBytes = 256 << 20
	// maxPooledBytes is the largest body buffer that is kept for the next request.
	maxPooledBytes = 1 << 20
	// maxWindowBytes is the largest window of a zstd body.
	maxWindowBytes = 8 << 20
)

// Options says where to store. FS and Name are required.
type Options struct {
	// FS is the folder of the file; it is not closed.
	FS vfs.FS
	// Name is the file's name in FS. Beside it lies a lock file (.lock).
	Name string
	// MaxBodyBytes bounds the body of one request, compressed and not; default 32 MiB.
	MaxBodyBytes int64
	// MaxInFlightBytes bounds the bodies that are held at one time; requests over it
	// get 503. Default 256 MiB.
	MaxInFlightBytes int64
}

// Stats counts records.
type Stats struct {
	// Received is how many came in well-formed requests since the start.
	Received int64 `json:"received"`
	// Stored is how many are in the file, those of earlier runs included.
	Stored int64 `json:"stored"`
	// Repeats is how many of Received had a key that was known.
	Repeats int64 `json:"repeats"`
}

// Receiver is the endpoint. It is an http.Handler.
type Receiver struct {
	opts     Options
	store    *store
	inFlight atomic.Int64 // bytes of bodies
	bodies   sync.Pool    // *bytes.Buffer
	gzip     sync.Pool    // *gzip.Reader
	zstd     sync.Pool    // *zstd.Decoder
}

var _ http.Handler = (*Receiver)(nil)

// Open locks and opens the file, reads the keys back from it and returns the endpoint. A line that
// a crash tore, or the lines of a batch that it cut short, are removed: they
// were never answered for.
func Open(o Options) (*Receiver, error) {
	if o.FS == nil || o.Name == "" {
		return nil, errors.New("receive: a folder and a file name are required")
	}
	if o.MaxBodyBytes == 0 {
		o.MaxBodyBytes = defaultMaxBodyBytes
	}
	if o.MaxInFlightBytes == 0 {
		o.MaxInFlightBytes = defaultMaxInFlightBytes
	}
	if o.MaxBodyBytes < 1 || o.MaxInFlightBytes < o.MaxBodyBytes {
		return nil, fmt.Errorf("receive: a body of %d bytes and %d bytes in flight do not go together", o.MaxBodyBytes, o.MaxInFlightBytes)
	}
	s, err := openStore(o.FS, o.Name)
	if err != nil {
		return nil, err
	}
	return &Receiver{opts: o, store: s}, nil
}

// Close stores what was taken, then closes the file. No request may come after it.
func (r *Receiver) Close() error { return r.store.close() }

// Stats returns the counts of now.
func (r *Receiver) Stats() Stats { return r.store.stats() }

// ServeHTTP answers GET /stats with Stats as JSON, and takes POST and PUT on any path.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	switch {
	case req.Method == http.MethodGet && req.URL.Path == "/stats":
		w.Header().Set("Content-Type", "application/json")
		// A client that went away is no fault of ours.
		_ = json.NewEncoder(w).Encode(r.Stats())
	case req.Method == http.MethodPost || req.Method == http.MethodPut:
		r.take(w, req)
	default:
		w.Header().Set("Allow", "POST, PUT")
		http.Error(w, "send records with POST or PUT", http.StatusMethodNotAllowed)
	}
}

// refusal is an answer other than 2xx.
type refusal struct {
	status int
	text   string
}

func (e *refusal) Error() string { return e.text }

func refuse(status int, format string, args ...any) error {
	return &refusal{status, fmt.Sprintf(format, args...)}
}

func (r *Receiver) take(w http.ResponseWriter, req *http.Request) {
	body, ok := r.bodies.Get().(*bytes.Buffer)
	if !ok {
		body = new(bytes.Buffer)
	}
	body.Reset()
	held, err := r.readBody(body, w, req)
	defer func() {
		r.inFlight.Add(-held)
		if body.Cap() <= maxPooledBytes {
			r.bodies.Put(body)
		}
	}()
	var pushed push
	if err == nil {
		pushed, err = parse(req.Header, body.Bytes())
	}
	if err == nil {
		err = r.store.add(req.Context(), pushed)
	}
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	status := http.StatusServiceUnavailable
	if no, ok := errors.AsType[*refusal](err); ok {
		status = no.status
	}
	if status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	http.Error(w, err.Error(), status)
}

// readBody reads the body, unfolded, into dst, and returns how many bytes it charged
// to inFlight, which grow with what arrives.
func (r *Receiver) readBody(dst *bytes.Buffer, w http.ResponseWriter, req *http.Request) (int64, error) {
	if req.ContentLength > r.opts.MaxBodyBytes {
		return 0, refuse(http.StatusRequestEntityTooLarge, "the body has more than %d bytes", r.opts.MaxBodyBytes)
	}
	raw := io.Reader(http.MaxBytesReader(w, req.Body, r.opts.MaxBodyBytes))
	plain, done, err := r.unfold(req.Header, raw)
	if err != nil {
		return 0, err
	}
	defer done()
	m := &meter{r: io.LimitReader(plain, r.opts.MaxBodyBytes+1), total: &r.inFlight, limit: r.opts.MaxInFlightBytes}
	_, err = dst.ReadFrom(m)
	_, tooLong := errors.AsType[*http.MaxBytesError](err)
	switch {
	case tooLong || int64(dst.Len()) > r.opts.MaxBodyBytes:
		return m.held, refuse(http.StatusRequestEntityTooLarge, "the body has more than %d bytes", r.opts.MaxBodyBytes)
	case errors.Is(err, errBusy):
		return m.held, err
	case err != nil:
		return m.held, refuse(http.StatusBadRequest, "the body cannot be read: %v", err)
	}
	return m.held, nil
}

var errBusy = errors.New("too many bytes are under way")

// meter charges what is read to a common total.
type meter struct {
	r     io.Reader
	total *atomic.Int64
	limit int64
	held  int64
}

func (m *meter) Read(p []byte) (int, error) {
	n, err := m.r.Read(p)
	if m.total.Add(int64(n)) > m.limit && n > 0 {
		m.total.Add(int64(-n)) // others are not to suffer for what is refused
		return 0, errBusy
	}
	m.held += int64(n)
	return n, err
}

// unfold returns a reader of the body as it was before its Content-Encoding,
// and what has to be called after use.
func (r *Receiver) unfold(h http.Header, raw io.Reader) (io.Reader, func(), error) {
	switch h.Get("Content-Encoding") {
	case "", "identity":
		return raw, func() {}, nil
	case "gzip":
		z, ok := r.gzip.Get().(*gzip.Reader)
		if !ok {
			z = new(gzip.Reader)
		}
		if err := z.Reset(raw); err != nil {
			return nil, nil, refuse(http.StatusBadRequest, "the body is not gzip: %v", err)
		}
		return z, func() { r.gzip.Put(z) }, nil
	case "zstd":
		z, ok := r.zstd.Get().(*zstd.Decoder)
		if !ok {
			var err error
			z, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindowBytes))
			if err != nil {
				return nil, nil, err
			}
		}
		if err := z.Reset(raw); err != nil {
			return nil, nil, refuse(http.StatusBadRequest, "the body is not zstd: %v", err)
		}
		return z, func() { r.zstd.Put(z) }, nil
	}
	return nil, nil, refuse(http.StatusUnsupportedMediaType, "Content-Encoding %q is none of gzip, zstd", h.Get("Content-Encoding"))
}

// push is what one request brings.
type push struct {
	items []item
	// whole: the items share the key of the first and are stored all or none.
	whole bool
}

// item is one record. Its payload is valid as long as the request.
type item struct {
	key     record.ID
	keyed   bool
	payload []byte
}

// parse reads a body: ndjson by its Content-Type, json where it is JSON and
// Weir-Record-Count says that it is a batch, else one record.
func parse(h http.Header, body []byte) (push, error) {
	var first item
	if text := h.Get("Idempotency-Key"); text != "" {
		id, err := record.ParseID(text)
		if err != nil {
			return push{}, refuse(http.StatusBadRequest, "Idempotency-Key: %v", err)
		}
		first.key, first.keyed = id, true
	}
	// What cannot be parsed is no type that is asked for here.
	kind, _, _ := mime.ParseMediaType(h.Get("Content-Type"))
	count := h.Get("Weir-Record-Count")
	p := push{}
	var err error
	switch {
	case kind == "application/x-ndjson":
		p, err = parseLines(first, body)
	case kind == "application/json" && count != "":
		p, err = parseDocument(body)
	default:
		first.payload = body
		p.items = []item{first}
	}
	if err != nil {
		return push{}, err
	}
	if count != "" && count != strconv.Itoa(len(p.items)) {
		return push{}, refuse(http.StatusBadRequest, "the body has %d records, Weir-Record-Count says %.20q", len(p.items), count)
	}
	for i := range p.items {
		if n := len(p.items[i].payload); n == 0 || n > record.MaxBytes {
			return push{}, refuse(http.StatusBadRequest, "record %d has %d bytes: a record has 1 byte to 16 MiB", i+1, n)
		}
	}
	return p, nil
}

func parseLines(first item, body []byte) (push, error) {
	if len(body) == 0 || body[len(body)-1] != '\n' {
		return push{}, refuse(http.StatusBadRequest, "the body does not end with a line feed")
	}
	p := push{whole: first.keyed, items: make([]item, 0, bytes.Count(body, []byte{'\n'}))}
	for line := range bytes.SplitSeq(body[:len(body)-1], []byte{'\n'}) {
		one := first
		one.payload = line
		p.items = append(p.items, one)
	}
	return p, nil
}

func parseDocument(body []byte) (push, error) {
	var doc struct {
		Records []struct {
			ID      record.ID `json:"id"`
			Payload []byte    `json:"payload"`
		} `json:"records"`
	}
	if err := json.Unmarshal(body, &doc); err != nil {
		return push{}, refuse(http.StatusBadRequest, "the document cannot be read: %v", err)
	}
	p := push{items: make([]item, 0, len(doc.Records))}
	for i, r := range doc.Records {
		if r.ID == (record.ID{}) {
			return push{}, refuse(http.StatusBadRequest, "record %d has no id", i+1)
		}
		p.items = append(p.items, item{key: r.ID, keyed: true, payload: r.Payload})
	}
	return p, nil
}
