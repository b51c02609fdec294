package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-agent/weir/sinks/s3sink/s3test"
	"github.com/weir-agent/weir/sinks/sinktest"
)

// TestLedgerOfS3 reads all objects back: whatever was acked is in one of them, and nothing is in two, as a batch that is sent again has the same name.
func TestLedgerOfS3(t *testing.T) {
	for _, tc := range []struct{ format, compression string }{{"jsonl", "zstd"}, {"length", "gzip"}} {
		t.Run(tc.format, func(t *testing.T) {
			server := s3test.Start(t)
			server.MakeBucket("records")
			sinkLedger(t, engine{
				config: fmt.Sprintf("[sink]\ntype = \"s3\"\n[sink.s3]\nbucket = \"records\"\nendpoint = %q\nregion = %q\npath_style = true\naccess_key = %q\nsecret_key_file = %q\nformat = %q\ncompression = %q\n",
					server.URL(), s3test.Region, s3test.AccessKey, s3test.SecretFile(t), tc.format, tc.compression),
				kill: server.Kill, start: server.Run,
				all: func() (rows []sinktest.Stored) {
					objects := server.Objects("records")
					for _, o := range objects {
						for _, r := range s3test.Records(t, o) {
							if tc.format == "length" {
								r.ID = r.Payload // no two records of the test have the same
							}
							rows = append(rows, sinktest.Stored{ID: r.ID, Payload: r.Payload})
						}
					}
					t.Logf("%d objects", len(objects))
					return rows
				},
			})
		})
	}
}

// TestHeldByS3UntilReload: a bucket that is not there holds the records, the status and the log say so without the secret, and they are
// delivered once a reload has named the right one.
func TestHeldByS3UntilReload(t *testing.T) {
	server := s3test.Start(t)
	server.MakeBucket("records")
	base, secret := t.TempDir(), s3test.SecretFile(t)
	dir, file := filepath.Join(base, "data"), filepath.Join(base, "weir.toml")
	text := func(bucket string) string {
		return sinkDrain + fmt.Sprintf("[sink]\ntype = \"s3\"\n[sink.s3]\nbucket = %q\nendpoint = %q\nregion = %q\npath_style = true\naccess_key = %q\nsecret_key_file = %q\nprefix = \"of/{shard}/\"\n",
			bucket, server.URL(), s3test.Region, s3test.AccessKey, secret)
	}
	writeFile(t, file, text("wrong-name"))
	p := startWeir(t, dir, "--config", file)
	pushText(t, dir, "one")
	st := await(t, dir, func(s shownStatus) bool { return s.Shards[0].Drain.State == "held" })
	if got := st.Shards[0].Drain.LastError; !strings.Contains(got, "404 NoSuchBucket") {
		t.Errorf("held with %q", got)
	}
	writeFile(t, file, text("records"))
	if out, err := weirOn(t, dir, "reload"); err != nil || out != "changed: sink.s3.bucket\n" {
		t.Errorf("reload: %v, %q", err, out)
	}
	await(t, dir, func(s shownStatus) bool { return s.Backlog == 0 && s.Shards[0].Drain.Delivered == 1 })
	if code := p.stop(t); code != 0 {
		t.Errorf("exit status %d", code)
	}
	if strings.Contains(p.log.String(), s3test.SecretKey) {
		t.Errorf("the log tells the secret:\n%s", p.log)
	}
	if want := "sink=s3 to=\"" + server.URL() + " s3://wrong-name/of/{shard}/\""; !strings.Contains(p.log.String(), want) {
		t.Errorf("the log does not tell where records go, %s:\n%s", want, p.log)
	}
	if got := server.Objects("records"); len(got) != 1 || !strings.HasPrefix(got[0].Name, "of/0/shard_00-seg_00000001-") {
		t.Errorf("%+v", got)
	}
}
