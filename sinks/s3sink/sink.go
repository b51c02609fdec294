//go:build !nos3

package s3sink

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/weir-agent/weir/sinks"
	"github.com/weir-agent/weir/sinks/setup"
)

// Built tells whether this build has the sink.
const Built = true

const (
	// abortTimeout bounds how long a server is told to forget the parts of an upload that failed, and maxAborts how many at once; what is
	// beyond is left to the bucket's rule for unfinished uploads.
	abortTimeout = 5 * time.Second
	maxAborts    = 8
	// goodbye bounds how long Close waits for that.
	goodbye = time.Second
)

var (
	errNoAnswer = errors.New("no answer in time")
	errNoETag   = errors.New("the answer has no ETag: this is no server of S3")
	errNoUpload = errors.New("the answer has no upload id: this is no server of S3")
)

// Sink is the S3 sink. It is safe for use by several goroutines.
type Sink struct {
	opts   Options
	host   string
	enc    *encoder
	conns  *setup.Conns
	aborts chan struct{}  // a place for each that is under way
	wg     sync.WaitGroup // attempts, raised under mu and not once closed is set, and aborts, raised within attempts

	mu      sync.Mutex
	current *link // nil where the next attempt has to make one; guarded by mu
	closed  bool  // guarded by mu
}

var _ sinks.Sink = (*Sink)(nil)

// New checks o and the files that it names, and returns the sink. No connection is made. Every fault of o is in the error,
// each named by its configuration key.
func New(o Options) (*Sink, error) {
	o, err := resolve(o)
	if err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil && strings.Contains(o.Prefix, "{host}") {
		return nil, fmt.Errorf("sink.s3.prefix: the name of this machine: %w", err)
	}
	enc, err := newEncoder(&o)
	if err != nil {
		return nil, fmt.Errorf("sink.s3.compression: %w", err)
	}
	s := &Sink{opts: o, host: plainName(host), enc: enc, conns: setup.NewConns(o.ConnectTimeout), aborts: make(chan struct{}, maxAborts)}
	if _, err := s.link(context.Background()); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Close ends every connection, a second after its call at the latest; a Deliver that is under way then returns Retry. It may be
// called again.
func (s *Sink) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	cut := time.AfterFunc(goodbye, s.conns.Close)
	s.wg.Wait()
	cut.Stop()
	s.conns.Close()
	s.replace(nil)
	return s.enc.close()
}

// Deliver writes the object of b. See sinks.Sink.
func (s *Sink) Deliver(ctx context.Context, b sinks.Batch) []sinks.Outcome {
	if len(b.Records) == 0 {
		return nil
	}
	return sinks.Same(len(b.Records), s.deliver(ctx, &b))
}

func (s *Sink) deliver(parent context.Context, b *sinks.Batch) sinks.Outcome {
	s.mu.Lock()
	closed := s.closed
	if !closed {
		s.wg.Add(1)
	}
	s.mu.Unlock()
	if closed {
		return outcomeOf(setup.ErrClosed, nil)
	}
	defer s.wg.Done()
	ctx, cancel := context.WithTimeoutCause(parent, s.opts.Timeout, errNoAnswer)
	defer cancel()
	l, err := s.attempt(ctx, b)
	if ctx.Err() != nil {
		err = context.Cause(ctx) // an answer that came with the end is not believed, and an error is in other words each time
	}
	o := outcomeOf(err, l)
	if o.Verdict == sinks.Hold {
		s.replace(nil) // the chain of credentials may find others, and the profile another region
	}
	return o
}

// attempt writes the object of b. nil says that the server keeps it.
func (s *Sink) attempt(ctx context.Context, b *sinks.Batch) (*link, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	l, err := s.link(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := l.creds.Retrieve(ctx); err != nil {
		return l, &setup.Unfit{Section: section, Err: fmt.Errorf("access_key: no credentials: %w", err)}
	}
	name, data := s.opts.name(b, s.host), s.enc.object(b)
	if int64(len(data)) > s.opts.MultipartBytes {
		return l, s.putParts(ctx, l, name, data)
	}
	return l, s.put(ctx, l, name, data)
}

// put writes an object with one request.
func (s *Sink) put(ctx context.Context, l *link, name string, data []byte) error {
	in := &s3.PutObjectInput{
		Bucket: &s.opts.Bucket, Key: &name, Body: bytes.NewReader(data), ContentType: aws.String(s.opts.contentType()),
		StorageClass: types.StorageClass(s.opts.StorageClass), ServerSideEncryption: types.ServerSideEncryption(s.opts.Encryption), SSEKMSKeyId: s.kmsKey(),
	}
	in.ChecksumCRC32, in.ChecksumSHA256 = s.sums(data)
	out, err := l.api.PutObject(ctx, in)
	if err == nil && aws.ToString(out.ETag) == "" {
		return errNoETag
	}
	return err
}

// putParts writes an object in parts of MultipartBytes, one after the other. It is there with the last request, or not at all.
func (s *Sink) putParts(ctx context.Context, l *link, name string, data []byte) error {
	made, err := l.api.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{
		Bucket: &s.opts.Bucket, Key: &name, ContentType: aws.String(s.opts.contentType()), ChecksumAlgorithm: s.algorithm(),
		StorageClass: types.StorageClass(s.opts.StorageClass), ServerSideEncryption: types.ServerSideEncryption(s.opts.Encryption), SSEKMSKeyId: s.kmsKey(),
	})
	if err != nil {
		return err
	}
	if aws.ToString(made.UploadId) == "" {
		return errNoUpload
	}
	parts, err := s.sendParts(ctx, l, name, *made.UploadId, data)
	if err == nil {
		var out *s3.CompleteMultipartUploadOutput
		out, err = l.api.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{
			Bucket: &s.opts.Bucket, Key: &name, UploadId: made.UploadId, MultipartUpload: &types.CompletedMultipartUpload{Parts: parts},
		})
		if err == nil && aws.ToString(out.ETag) == "" {
			err = errNoETag
		}
	}
	if err != nil {
		s.abort(ctx, l, name, *made.UploadId)
	}
	return err
}

func (s *Sink) sendParts(ctx context.Context, l *link, name, upload string, data []byte) ([]types.CompletedPart, error) {
	var parts []types.CompletedPart
	for len(data) > 0 {
		part := data[:min(int64(len(data)), s.opts.MultipartBytes)]
		data = data[len(part):]
		in := &s3.UploadPartInput{Bucket: &s.opts.Bucket, Key: &name, UploadId: &upload, PartNumber: aws.Int32(int32(len(parts) + 1)), Body: bytes.NewReader(part)}
		in.ChecksumCRC32, in.ChecksumSHA256 = s.sums(part)
		out, err := l.api.UploadPart(ctx, in)
		if err != nil {
			return nil, err
		}
		if aws.ToString(out.ETag) == "" {
			return nil, errNoETag
		}
		parts = append(parts, types.CompletedPart{
			ETag: out.ETag, PartNumber: in.PartNumber, ChecksumCRC32: in.ChecksumCRC32, ChecksumSHA256: in.ChecksumSHA256,
		})
	}
	return parts, nil
}

// abort tells the server to forget the parts of an upload, also where ctx has ended. Nobody waits for it but Close.
func (s *Sink) abort(ctx context.Context, l *link, name, upload string) {
	select {
	case s.aborts <- struct{}{}:
	default:
		return
	}
	s.wg.Go(func() {
		defer func() { <-s.aborts }()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTimeout)
		defer cancel()
		// What is not forgotten costs space until the bucket's rule for unfinished uploads removes it, and nothing else.
		_, _ = l.api.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: &s.opts.Bucket, Key: &name, UploadId: &upload})
	})
}

func (s *Sink) kmsKey() *string {
	if s.opts.KMSKey == "" {
		return nil
	}
	return &s.opts.KMSKey
}

func (s *Sink) algorithm() types.ChecksumAlgorithm {
	switch s.opts.Checksum {
	case ChecksumCRC32:
		return types.ChecksumAlgorithmCrc32
	case ChecksumSHA256:
		return types.ChecksumAlgorithmSha256
	}
	return ""
}

// sums returns the checksum of data that is asked for, as the header has it.
func (s *Sink) sums(data []byte) (crc, sha *string) {
	switch s.opts.Checksum {
	case ChecksumCRC32:
		sum := binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE(data))
		return aws.String(base64.StdEncoding.EncodeToString(sum)), nil
	case ChecksumSHA256:
		sum := sha256.Sum256(data)
		return nil, aws.String(base64.StdEncoding.EncodeToString(sum[:]))
	}
	return nil, nil
}
