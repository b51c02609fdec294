//go:build !nos3

package s3sink

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/weir-agent/weir/sinks"
	"github.com/weir-agent/weir/sinks/s3sink/s3test"
	"github.com/weir-agent/weir/sinks/sinktest"
)

// started returns a server with the bucket records.
func started(t *testing.T, args ...string) *s3test.Server {
	t.Helper()
	server := s3test.Start(t, args...)
	server.MakeBucket("records")
	return server
}

func wantOutcome(t *testing.T, s *Sink, b sinks.Batch, want sinks.Verdict, reason string) {
	t.Helper()
	for _, o := range s.Deliver(t.Context(), b) {
		if o.Verdict != want || !strings.Contains(o.Reason, reason) || strings.Contains(o.Reason, s3test.SecretKey) {
			t.Errorf("got %+v, want %v with %q", o, want, reason)
		}
	}
}

// wantOnce checks that the bucket has each record of the batches once, and one object a batch.
func wantOnce(t *testing.T, server *s3test.Server, batches ...sinks.Batch) {
	t.Helper()
	var got []sinktest.Stored
	for _, r := range stored(t, server, "records") {
		got = append(got, sinktest.Stored{ID: r.ID, Payload: r.Payload})
	}
	sinktest.WantOnce(t, got, batches...)
	if n := len(server.Objects("records")); n != len(batches) {
		t.Errorf("%d objects for %d batches", n, len(batches))
	}
}

// random returns a batch of n records that do not compress.
func random(n, bytes int) sinks.Batch {
	payloads := make([]string, n)
	rng := rand.NewChaCha8([32]byte{1})
	for i := range payloads {
		p := make([]byte, bytes)
		_, _ = rng.Read(p) // it never fails
		payloads[i] = string(p)
	}
	return sinktest.BatchOf(payloads...)
}

// TestPartsOfTheServer: a real server takes an object in parts with each checksum, keeps it whole, and nothing besides it.
func TestPartsOfTheServer(t *testing.T) {
	server := started(t)
	for _, sum := range []string{ChecksumCRC32, ChecksumSHA256, ChecksumNone} {
		t.Run(sum, func(t *testing.T) {
			s := sinktest.Open(t, New, of(t, server, Options{MultipartBytes: minMultipartBytes, Format: FormatLength, Prefix: sum + "/", Checksum: sum}))
			b := random(12, 1<<20)
			wantOutcome(t, s, b, sinks.Delivered, "")
			wantOutcome(t, s, b, sinks.Delivered, "") // over itself
			n := 0
			for _, o := range server.Objects("records") {
				if !strings.HasPrefix(o.Name, sum+"/") {
					continue
				}
				n++
				for i, r := range s3test.Records(t, o) {
					if !bytes.Equal([]byte(r.Payload), b.Records[i].Payload) {
						t.Errorf("record %d is another one", i)
					}
				}
			}
			if n != 1 {
				t.Errorf("%d objects, want 1", n)
			}
		})
	}
	left, err := server.Client().ListMultipartUploads(t.Context(), &s3.ListMultipartUploadsInput{Bucket: aws.String("records")})
	if err != nil || len(left.Uploads) != 0 {
		t.Errorf("%v, %d uploads are not finished", err, len(left.Uploads))
	}
}

// TestRefusals: what the server holds against the options holds the batch, with words that tell what to mend.
func TestRefusals(t *testing.T) {
	server := started(t, "--iam-dir", t.TempDir())
	const stranger = "str4nger-secret"
	server.Admin("create-user", "--access", "STRANGER", "--secret", stranger, "--role", "user")
	t.Setenv("S3SINK_TEST_SECRET", stranger)
	for name, tc := range map[string]struct {
		change func(o *Options)
		want   string
	}{
		"bucket":      {func(o *Options) { o.Bucket = "no-such-bucket" }, "404 NoSuchBucket: "},
		"unknown key": {func(o *Options) { o.AccessKey = "NOBODY" }, "403 InvalidAccessKeyId: "},
		"secret":      {func(o *Options) { o.SecretKeyFile, o.SecretKeyEnv = "", "S3SINK_TEST_SECRET" }, "403 SignatureDoesNotMatch: "},
		"permission": {func(o *Options) {
			o.AccessKey, o.SecretKeyFile, o.SecretKeyEnv = "STRANGER", "", "S3SINK_TEST_SECRET"
		}, "403 AccessDenied: "},
		"region": {func(o *Options) { o.Region = "mars-1" }, "400 AuthorizationHeaderMalformed: "},
	} {
		t.Run(name, func(t *testing.T) {
			o := of(t, server, Options{})
			tc.change(&o)
			wantOutcome(t, sinktest.Open(t, New, o), sinktest.Batch("b", 2), sinks.Hold, tc.want)
		})
	}
	if got := server.Objects("records"); len(got) != 0 {
		t.Errorf("%d objects were written", len(got))
	}
}

// TestServerKilled: a server that dies under load loses nothing and gets nothing twice.
func TestServerKilled(t *testing.T) {
	server := started(t)
	s := sinktest.Open(t, New, of(t, server, Options{}))
	all := sinktest.UnderKills(t, s, 4, server.Kill, server.Run)
	server.AwaitReady()
	wantOnce(t, server, all...)
}

// TestNoServer: an address that nobody answers at is tried again, in words without the name of the object.
func TestNoServer(t *testing.T) {
	server := started(t)
	s := sinktest.Open(t, New, of(t, server, Options{}))
	server.Kill()
	b := sinktest.Batch("b", 2)
	first := s.Deliver(t.Context(), b)[0]
	if first.Verdict != sinks.Retry || !strings.Contains(first.Reason, "connection refused") || strings.Contains(first.Reason, "seg_") {
		t.Errorf("%+v", first)
	}
	server.Run()
	server.AwaitReady()
	wantOutcome(t, s, b, sinks.Delivered, "")
	wantOnce(t, server, b)
}

// TestNoAnswerInTime: a server that holds the request is given up, and the batch is kept once all the same.
func TestNoAnswerInTime(t *testing.T) {
	server := started(t)
	proxy := sinktest.NewProxy(t, "tcp", server.Address)
	o := of(t, server, Options{Timeout: 200 * time.Millisecond})
	o.Endpoint = "http://" + proxy.Address
	s := sinktest.Open(t, New, o)
	b := sinktest.Batch("b", 5)
	_, release := proxy.Stall()
	wantOutcome(t, s, b, sinks.Retry, "no answer in time")
	release()
	s.opts.Timeout = time.Minute
	wantOutcome(t, s, b, sinks.Delivered, "")
	wantOnce(t, server, b)
}

// TestCloseEndsConnections: a server that holds keeps Close no more than a moment.
func TestCloseEndsConnections(t *testing.T) {
	server := started(t)
	proxy := sinktest.NewProxy(t, "tcp", server.Address)
	o := of(t, server, Options{})
	o.Endpoint = "http://" + proxy.Address
	s := sinktest.Open(t, New, o)
	wantOutcome(t, s, sinktest.Batch("before", 1), sinks.Delivered, "")
	reached, release := proxy.Stall()
	defer release()
	held := make(chan sinks.Outcome, 1)
	go func() { held <- s.Deliver(context.Background(), sinktest.Batch("held", 1))[0] }()
	<-reached
	sinktest.CloseInTime(t, s, 20*time.Second) // the attempt alone would take a minute
	if o := <-held; o.Verdict != sinks.Retry || s.conns.Open() != 0 {
		t.Errorf("%d connections open, Deliver: %+v", s.conns.Open(), o)
	}
	wantOutcome(t, s, sinktest.Batch("late", 1), sinks.Retry, "closed")
}

// TestFilesAreReadAgain: a secret file that is gone holds, and a new one counts from the next batch on.
func TestFilesAreReadAgain(t *testing.T) {
	server := started(t)
	o := of(t, server, Options{})
	file := o.SecretKeyFile
	sinktest.WriteFile(t, file, "wrong")
	s := sinktest.Open(t, New, o)
	sinktest.ReadAgain(t, s, file, "SignatureDoesNotMatch", "sink.s3.secret_key_file: open ", s3test.SecretKey)
}

// TestRefusedByItsHead: a server that answers before it has read the body of a request, and says why only after that, is understood.
func TestRefusedByItsHead(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	served := make(chan error, 1)
	go func() { served <- refuseByHead(l) }()
	s := sinktest.Open(t, New, Options{
		Bucket: "records", Endpoint: "http://" + l.Addr().String(), Region: s3test.Region, PathStyle: true, AccessKey: s3test.AccessKey, SecretKeyFile: s3test.SecretFile(t),
		Format: FormatLength, Compression: CompressionNone,
	})
	// More than all buffers on the way, so that the body is still being sent when the answer comes.
	wantOutcome(t, s, sinktest.Sized(12<<20), sinks.Hold, "SignatureDoesNotMatch")
	if err := <-served; err != nil {
		t.Errorf("the server: %v", err)
	}
}

// refuseByHead serves one request.
func refuseByHead(l net.Listener) error {
	nc, err := l.Accept()
	if err != nil {
		return err
	}
	defer nc.Close()
	r := bufio.NewReader(nc)
	req, err := http.ReadRequest(r)
	if err != nil {
		return err
	}
	why := "<Error><Code>SignatureDoesNotMatch</Code><Message>no</Message></Error>"
	if _, err := fmt.Fprintf(nc, "HTTP/1.1 403 Forbidden\r\nContent-Type: application/xml\r\nContent-Length: %d\r\n\r\n", len(why)); err != nil {
		return err
	}
	if _, err := io.CopyN(io.Discard, r, req.ContentLength); err != nil {
		return fmt.Errorf("the body of the request: %w", err)
	}
	_, err = io.WriteString(nc, why)
	return err
}

// TestChain: without an access key the standard chain counts, and is gone through again after a refusal.
func TestChain(t *testing.T) {
	server := started(t)
	dir := t.TempDir()
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(dir, "config"))
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(dir, "credentials"))
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"} {
		t.Setenv(name, "")
	}
	o := of(t, server, Options{})
	o.AccessKey, o.SecretKeyFile, o.Region = "", "", ""
	if err := os.WriteFile(filepath.Join(dir, "config"), []byte("[default]\nregion = "+s3test.Region+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := sinktest.Open(t, New, o)
	b := sinktest.Batch("b", 1)
	wantOutcome(t, s, b, sinks.Hold, "sink.s3.access_key: no credentials: ")
	for _, step := range []struct {
		secret string
		want   sinks.Verdict
		reason string
	}{{"wrong", sinks.Hold, "SignatureDoesNotMatch"}, {s3test.SecretKey, sinks.Delivered, ""}} {
		text := "[default]\naws_access_key_id = " + s3test.AccessKey + "\naws_secret_access_key = " + step.secret + "\n"
		if err := os.WriteFile(filepath.Join(dir, "credentials"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		wantOutcome(t, s, b, step.want, step.reason)
	}
	wantOnce(t, server, b)
}

func TestTLS(t *testing.T) {
	ours, other := sinktest.NewAuthority(t, "ours"), sinktest.NewAuthority(t, "other")
	ca, cert, key := ours.Files(t, "server")
	otherCA, _, _ := other.Files(t, "server")
	server := s3test.Start(t, "--cert", cert, "--key", key)
	if err := os.Mkdir(filepath.Join(server.Dir, "records"), 0o700); err != nil { // a folder is a bucket
		t.Fatal(err)
	}
	plain := s3test.Start(t)
	for _, tc := range []struct {
		name, endpoint, ca string
		want               sinks.Verdict
		reason             string
	}{
		{"authority given", "https://" + server.Address, ca, sinks.Delivered, ""},
		{"unknown authority", "https://" + server.Address, otherCA, sinks.Retry, "unknown authority"},
		{"no authority given", "https://" + server.Address, "", sinks.Retry, "unknown authority"},
		{"no TLS at the server", "https://" + plain.Address, ca, sinks.Retry, "HTTP response to HTTPS client"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := of(t, server, Options{CAFile: tc.ca})
			o.Endpoint = tc.endpoint
			s := sinktest.Open(t, New, o)
			wantOutcome(t, s, sinktest.Batch("b", 1), tc.want, tc.reason)
			s.opts.MultipartBytes = minMultipartBytes
			wantOutcome(t, s, random(6, 1<<20), tc.want, tc.reason)
		})
	}
	t.Run("new authority", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "ca.pem")
		o := of(t, server, Options{CAFile: file})
		o.Endpoint = "https://" + server.Address
		if err := os.WriteFile(file, other.PEM, 0o600); err != nil {
			t.Fatal(err)
		}
		s := sinktest.Open(t, New, o)
		wantOutcome(t, s, sinktest.Batch("b", 1), sinks.Retry, "unknown authority")
		if err := os.WriteFile(file, ours.PEM, 0o600); err != nil {
			t.Fatal(err)
		}
		wantOutcome(t, s, sinktest.Batch("b", 1), sinks.Delivered, "")
	})
}

// TestFilesMustBeThere: a sink whose files are missing is not made, nor one that knows no region.
func TestFilesMustBeThere(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(dir, "config"))
	t.Setenv("AWS_REGION", "")
	t.Setenv("AWS_DEFAULT_REGION", "")
	none := filepath.Join(dir, "none")
	for want, o := range map[string]Options{
		"sink.s3.ca_file: open " + none:                                        {CAFile: none, Region: "r"},
		"sink.s3.secret_key_file: open " + none:                                {AccessKey: "A", SecretKeyFile: none, Region: "r"},
		"sink.s3.region: is neither here nor in AWS_REGION nor in the profile": {},
	} {
		o.Bucket = "b"
		s, err := New(o)
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
		if err == nil {
			s.Close()
		}
	}
}
