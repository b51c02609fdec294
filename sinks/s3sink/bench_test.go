//go:build !nos3

package s3sink

import (
	"bytes"
	"fmt"
	"net/http"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/weir-agent/weir/sinks/s3sink/s3test"
	"github.com/weir-agent/weir/sinks/sinktest"
)

// BenchmarkDeliver delivers batches to a real server.
func BenchmarkDeliver(b *testing.B) {
	for _, o := range []Options{Default(), {Format: FormatJSONL, Compression: CompressionNone}, {Format: FormatLength, Compression: CompressionNone}} {
		b.Run(o.Format+" "+o.Compression, func(b *testing.B) {
			server := s3test.Start(b)
			server.MakeBucket("records")
			s := sinktest.Open(b, New, of(b, server, o))
			sinktest.Bench(b, s)
		})
	}
}

// BenchmarkFloor writes objects as large as those of BenchmarkDeliver in jsonl without compression, with the client alone.
func BenchmarkFloor(b *testing.B) {
	server := s3test.Start(b)
	server.MakeBucket("records")
	e, err := newEncoder(&Options{Format: FormatJSONL, Compression: CompressionNone})
	if err != nil {
		b.Fatal(err)
	}
	batch := sinktest.BenchBatch(1)
	data := e.object(&batch)
	client := s3.New(server.Client().Options(), func(o *s3.Options) {
		o.HTTPClient = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: sinktest.BenchCallers}}
	})
	sinktest.InParallel(b, func(n int) error {
		_, err := client.PutObject(b.Context(), &s3.PutObjectInput{Bucket: aws.String("records"), Key: aws.String(fmt.Sprint(n)), Body: bytes.NewReader(data)})
		return err
	})
}
