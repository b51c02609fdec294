//go:build !nos3

package s3sink

import (
	"fmt"
	"testing"

	"github.com/weir-agent/weir/sinks/s3sink/s3test"
	"github.com/weir-agent/weir/sinks/sinktest"
)

func TestSuite(t *testing.T) {
	server := s3test.Start(t)
	n := 0
	for _, tc := range []Options{
		Default(),
		{Format: FormatLength, Compression: CompressionGzip, Checksum: ChecksumSHA256, Prefix: "{host}/{shard}-"},
		{Format: FormatLength, Compression: CompressionNone, Checksum: ChecksumNone},
	} {
		t.Run(tc.Format+" "+tc.Compression, func(t *testing.T) {
			sinktest.Run(t, func(t *testing.T) sinktest.Fixture {
				n++
				bucket := fmt.Sprintf("suite-%d", n)
				server.MakeBucket(bucket)
				proxy := sinktest.NewProxy(t, "tcp", server.Address)
				o := of(t, server, tc)
				o.Endpoint, o.Bucket = "http://"+proxy.Address, bucket
				return sinktest.Fixture{
					Sink: sinktest.Open(t, New, o), Once: true, Unordered: true, Stall: proxy.Stall, // objects have no order but that of their names
					Got: func() (all [][]byte) {
						for _, r := range stored(t, server, bucket) {
							all = append(all, []byte(r.Payload))
						}
						return all
					},
				}
			})
		})
	}
}

// of fills in what o needs to deliver to the bucket records of a server.
func of(t testing.TB, server *s3test.Server, o Options) Options {
	t.Helper()
	o.Bucket, o.Endpoint, o.Region, o.PathStyle = "records", server.URL(), s3test.Region, true
	o.AccessKey, o.SecretKeyFile = s3test.AccessKey, s3test.SecretFile(t)
	return o
}

// stored returns all records of a bucket.
func stored(t testing.TB, server *s3test.Server, bucket string) (all []s3test.Record) {
	t.Helper()
	for _, o := range server.Objects(bucket) {
		all = append(all, s3test.Records(t, o)...)
	}
	return all
}
