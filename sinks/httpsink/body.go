package httpsink

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/weir-agent/weir/sinks"
	"github.com/weir-agent/weir/wab/record"
)

// maxPooledBytes is the largest buffer that is kept for the next batch.
const maxPooledBytes = 8 << 20

var errReleased = errors.New("httpsink: the attempt that this body belongs to is over")

// body is what one attempt sends. Every reader starts at its first byte. After release
// no reader touches the bytes any more, so that they may be used for something
// else although the transport has not finished with the request.
type body struct {
	mu   sync.Mutex
	data []byte // nil after release; guarded by mu
}

func newBody(data []byte) *body { return &body{data: data} }

// reader is the form that http.Request.GetBody wants.
func (b *body) reader() (io.ReadCloser, error) { return &bodyReader{body: b}, nil }

func (b *body) release() {
	b.mu.Lock()
	b.data = nil
	b.mu.Unlock()
}

type bodyReader struct {
	body *body
	off  int
}

func (r *bodyReader) Read(p []byte) (int, error) {
	r.body.mu.Lock()
	defer r.body.mu.Unlock()
	if r.body.data == nil {
		return 0, errReleased
	}
	if r.off == len(r.body.data) {
		return 0, io.EOF
	}
	n := copy(p, r.body.data[r.off:])
	r.off += n
	return n, nil
}

func (r *bodyReader) Close() error { return nil }

// buffers lends byte slices and compressors. It is safe for concurrent use.
type buffers struct {
	compression string
	plain       sync.Pool // *[]byte
	gzip        sync.Pool // *gzip.Writer
	zstd        *zstd.Encoder
}

func newBuffers(compression string) (*buffers, error) {
	p := &buffers{compression: compression}
	if compression == CompressionZstd {
		e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest))
		if err != nil {
			return nil, err
		}
		p.zstd = e
	}
	return p, nil
}

func (p *buffers) close() error {
	if p.zstd == nil {
		return nil
	}
	return p.zstd.Close()
}

// get returns an empty slice with room for n bytes, to be given back with put.
func (p *buffers) get(n int) *[]byte {
	b, ok := p.plain.Get().(*[]byte)
	if !ok {
		b = new([]byte)
	}
	if cap(*b) < n {
		*b = make([]byte, 0, n)
	}
	*b = (*b)[:0]
	return b
}

func (p *buffers) put(b *[]byte) {
	if cap(*b) <= maxPooledBytes {
		p.plain.Put(b)
	}
}

// encode returns data as it goes over the wire, and what has to be called when it is
// no longer needed. The same data gives the same bytes each time.
func (p *buffers) encode(data []byte) ([]byte, func()) {
	if p.compression == CompressionNone {
		return data, func() {}
	}
	dst := p.get(len(data)/2 + 256)
	if p.compression == CompressionZstd {
		*dst = p.zstd.EncodeAll(data, *dst)
		return *dst, func() { p.put(dst) }
	}
	out := bytes.NewBuffer(*dst)
	w, ok := p.gzip.Get().(*gzip.Writer)
	if !ok {
		w = gzip.NewWriter(out)
	}
	w.Reset(out)
	// A bytes.Buffer takes every write, so neither call can fail.
	_, _ = w.Write(data)
	_ = w.Close()
	p.gzip.Put(w)
	*dst = out.Bytes()
	return *dst, func() { p.put(dst) }
}

const reasonNotALine = "the record holds a line feed or a carriage return, which ndjson cannot carry"

// linesBytes returns how long appendLines makes its result at most.
func linesBytes(records []record.Record, action string) int {
	n := 0
	for i := range records {
		n += len(records[i].Payload) + 1
		if action != BulkActionNone {
			n += len(action) + 128
		}
	}
	return n
}

// appendLines appends each record and a line feed, and puts a Reject into out for
// the records that are no line. It returns how many records it appended.
func appendLines(dst []byte, records []record.Record, action string, out []sinks.Outcome) ([]byte, int) {
	sent := 0
	for i := range records {
		p := records[i].Payload
		if bytes.IndexByte(p, '\n') >= 0 || bytes.IndexByte(p, '\r') >= 0 {
			out[i] = sinks.Outcome{Verdict: sinks.Reject, Isolated: true, Reason: reasonNotALine}
			continue
		}
		if action != BulkActionNone {
			dst = append(append(append(dst, `{"`...), action...), `":{"_id":"`...)
			dst = append(records[i].ID.AppendText(dst), "\"}}\n"...)
		}
		dst = append(append(dst, p...), '\n')
		sent++
	}
	return dst, sent
}

// jsonBytes returns about how long appendJSON makes its result.
func jsonBytes(records []record.Record) int {
	n := 32
	for i := range records {
		n += base64.StdEncoding.EncodedLen(len(records[i].Payload)) + len(records[i].Segment) + 160
	}
	return n
}

// appendJSON appends the document of format json.
func appendJSON(dst []byte, records []record.Record) []byte {
	dst = append(dst, `{"records":[`...)
	var segment string
	var quoted []byte
	for i := range records {
		r := &records[i]
		if i > 0 {
			dst = append(dst, ',')
		}
		if quoted == nil || r.Segment != segment {
			segment = r.Segment
			quoted, _ = json.Marshal(segment) // a string always has a JSON form
		}
		dst = r.ID.AppendText(append(dst, `{"id":"`...))
		dst = append(append(dst, `","segment":`...), quoted...)
		dst = strconv.AppendUint(append(dst, `,"index":`...), r.Index, 10)
		dst = base64.StdEncoding.AppendEncode(append(dst, `,"payload":"`...), r.Payload)
		dst = append(dst, `"}`...)
	}
	return append(dst, `]}`...)
}
