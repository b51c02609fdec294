//go:build !nos3

package s3sink

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/weir-agent/weir/sinks"
	"github.com/weir-agent/weir/sinks/filesink"
)

const (
	// lengthBytes is what stands before each record of format length.
	lengthBytes = 4
	// lineBytes is about what a line of format jsonl has besides the payload.
	lineBytes = 256
	// windowBytes is how far back zstd looks, and about what each of its encoders keeps: larger ones make objects hardly smaller.
	windowBytes = 512 << 10
	// maxPooledBytes is the largest buffer that is kept for the next batch.
	maxPooledBytes = 8 << 20
)

// name returns the name of the object of b, which has a record.
func (o *Options) name(b *sinks.Batch, host string) string {
	first := &b.Records[0]
	place := strings.TrimSuffix(first.Segment, ".wab.sealed")
	place = plainName(place[:min(len(place), maxPlaceBytes)])
	return fmt.Sprintf("%s%s-%010d-%s%s", o.prefix(b.Shard, host, first.Appended), place, first.Index, hex.EncodeToString(b.Key[:]), o.ending())
}

func (o *Options) ending() string {
	return "." + o.Format + map[string]string{CompressionZstd: ".zst", CompressionGzip: ".gz"}[o.Compression]
}

func (o *Options) contentType() string {
	switch {
	case o.Compression == CompressionZstd:
		return "application/zstd"
	case o.Compression == CompressionGzip:
		return "application/gzip"
	case o.Format == FormatJSONL:
		return "application/x-ndjson"
	}
	return "application/octet-stream"
}

// plainName replaces what a name of a file or an object had better not have.
func plainName(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '.' || r == '_' || r == '-' {
			return r
		}
		return '-'
	}, s)
}

// encoder turns batches into objects. It is safe for use by several goroutines.
type encoder struct {
	format      string
	compression string
	scratch     sync.Pool // *[]byte: nothing that is sent
	gzip        sync.Pool // *gzip.Writer
	zstd        *zstd.Encoder
}

func newEncoder(o *Options) (*encoder, error) {
	e := &encoder{format: o.Format, compression: o.Compression}
	if e.compression == CompressionZstd {
		z, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(windowBytes))
		if err != nil {
			return nil, err
		}
		e.zstd = z
	}
	return e, nil
}

// object returns the bytes of b's object: the same for the same batch. They are new, as the client may still read them after the attempt
// that they were made for has ended.
func (e *encoder) object(b *sinks.Batch) []byte {
	if e.compression == CompressionNone {
		return e.append(make([]byte, 0, e.bytes(b)), b)
	}
	plain, packed := e.borrow(), e.borrow()
	*plain = e.append(*plain, b)
	*packed = e.compress(*packed, *plain)
	out := bytes.Clone(*packed)
	e.giveBack(plain)
	e.giveBack(packed)
	return out
}

// borrow returns an empty slice.
func (e *encoder) borrow() *[]byte {
	if buf, ok := e.scratch.Get().(*[]byte); ok {
		return buf
	}
	return new([]byte)
}

func (e *encoder) giveBack(buf *[]byte) {
	if cap(*buf) <= maxPooledBytes {
		*buf = (*buf)[:0]
		e.scratch.Put(buf)
	}
}

// bytes returns about how long append makes an empty slice.
func (e *encoder) bytes(b *sinks.Batch) int {
	each, n := lengthBytes, 0
	if e.format == FormatJSONL {
		each = lineBytes
	}
	for i := range b.Records {
		n += len(b.Records[i].Payload) + each
	}
	return n
}

func (e *encoder) append(dst []byte, b *sinks.Batch) []byte {
	for i := range b.Records {
		r := &b.Records[i]
		if e.format == FormatJSONL {
			dst = filesink.AppendLine(dst, r, false)
			continue
		}
		dst = binary.BigEndian.AppendUint32(dst, uint32(len(r.Payload)))
		dst = append(dst, r.Payload...)
	}
	return dst
}

func (e *encoder) compress(dst, plain []byte) []byte {
	if e.compression == CompressionZstd {
		return e.zstd.EncodeAll(plain, dst)
	}
	out := bytes.NewBuffer(dst)
	w, ok := e.gzip.Get().(*gzip.Writer)
	if !ok {
		w = gzip.NewWriter(out)
	}
	w.Reset(out)
	// A bytes.Buffer takes every write, so neither call can fail.
	_, _ = w.Write(plain)
	_ = w.Close()
	e.gzip.Put(w)
	return out.Bytes()
}

func (e *encoder) close() error {
	if e.zstd == nil {
		return nil
	}
	return e.zstd.Close()
}
