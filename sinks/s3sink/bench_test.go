//go:build !nos3

package s3sink

import (
	"bytes"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/weir-agent/weir/sinks"
	"github.com/weir-agent/weir/sinks/s3sink/s3test"
	"github.com/weir-agent/weir/sinks/sinktest"
	"github.com/weir-agent/weir/wab/record"
)

// benchRecords records of benchBytes bytes are a batch, and benchCallers batches are under way at once, as the drain has them.
const (
	benchRecords = 1000
	benchBytes   = 256
	benchCallers = 4
)

// BenchmarkDeliver delivers batches to a real server.
func BenchmarkDeliver(b *testing.B) {
	for _, o := range []Options{Default(), {Format: FormatJSONL, Compression: CompressionNone}, {Format: FormatLength, Compression: CompressionNone}} {
		b.Run(o.Format+" "+o.Compression, func(b *testing.B) {
			server := s3test.Start(b)
			server.MakeBucket("records")
			s := sinktest.Open(b, New, of(b, server, o))
			inParallel(b, func(n int) error {
				batch := benchBatch(n)
				if o := s.Deliver(b.Context(), batch)[0]; o.Verdict != sinks.Delivered {
					return fmt.Errorf("%+v", o)
				}
				return nil
			})
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
	batch := benchBatch(1)
	data := e.object(&batch)
	client := s3.New(server.Client().Options(), func(o *s3.Options) {
		o.HTTPClient = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: benchCallers}}
	})
	inParallel(b, func(n int) error {
		_, err := client.PutObject(b.Context(), &s3.PutObjectInput{Bucket: aws.String("records"), Key: aws.String(fmt.Sprint(n)), Body: bytes.NewReader(data)})
		return err
	})
}

func benchBatch(n int) sinks.Batch {
	batch := sinktest.Batch(fmt.Sprint(n), benchRecords)
	payload := bytes.Repeat([]byte("x"), benchBytes)
	for i := range batch.Records {
		r := &batch.Records[i]
		r.Payload, r.Index = payload, uint64(n*benchRecords+i)
		r.ID = record.ComputeID(r.Segment, r.Index, r.Payload)
	}
	batch.Key = record.BatchKey(batch.Records)
	return batch
}

// inParallel runs one for each iteration, and reports records and their bytes a second.
func inParallel(b *testing.B, one func(n int) error) {
	jobs := make(chan int)
	var wg sync.WaitGroup
	for range benchCallers {
		wg.Go(func() {
			for n := range jobs {
				if err := one(n); err != nil {
					b.Error(err)
				}
			}
		})
	}
	n, began := 0, time.Now()
	for b.Loop() {
		n++
		jobs <- n
	}
	close(jobs)
	wg.Wait()
	records := float64(n*benchRecords) / time.Since(began).Seconds()
	b.ReportMetric(records, "records/s")
	b.ReportMetric(records*benchBytes/1e6, "MB/s")
}
