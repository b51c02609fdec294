// Package s3test runs real servers of S3 for tests: versitygw, which keeps objects as files and checks signatures, and which can be
// killed and started again.
package s3test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/weir-agent/weir/sinks/sinktest"
)

// AccessKey and SecretKey are those of the server's root user, Region its region.
const (
	AccessKey = "WEIRTESTKEY"
	SecretKey = "s3cret-access-key"
	Region    = "eu-test-1"
)

// Server is one versitygw.
type Server struct {
	sinktest.Process
	// Address is host:port, the same after a restart.
	Address string
	// Dir has the objects, a folder a bucket.
	Dir string

	t      testing.TB
	binary string
}

// Start runs a server; args are more of its global options.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	binary := sinktest.Program(t, "versitygw", "go install github.com/versity/versitygw/cmd/versitygw@latest")
	s := &Server{t: t, binary: binary, Dir: filepath.Join(t.TempDir(), "objects"), Address: sinktest.FreeAddress(t)}
	if err := os.Mkdir(s.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	args = append([]string{"--port", s.Address, "--region", Region, "--keep-alive", "--quiet"}, append(args, "posix", s.Dir)...)
	s.Process = sinktest.Process{
		Command: func() *exec.Cmd {
			cmd := exec.Command(binary, args...)
			cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+AccessKey, "ROOT_SECRET_KEY="+SecretKey)
			return cmd
		},
		Log:    s.Dir + ".log",
		Serves: func() bool { return sinktest.Listens(s.Address) },
	}
	s.Start(t)
	return s
}

// URL is the address for clients.
func (s *Server) URL() string { return "http://" + s.Address }

// Admin runs a command of the server's tool for its users, which a server has with the option --iam-dir.
func (s *Server) Admin(args ...string) {
	s.t.Helper()
	cmd := exec.Command(s.binary, append([]string{"admin", "--access", AccessKey, "--secret", SecretKey, "--endpoint-url", s.URL(), "--region", Region}, args...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		s.t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
}

// Client returns a client of the root user.
func (s *Server) Client() *s3.Client {
	return s3.New(s3.Options{
		BaseEndpoint: aws.String(s.URL()), Region: Region, UsePathStyle: true, Credentials: credentials.NewStaticCredentialsProvider(AccessKey, SecretKey, ""),
		HTTPClient: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, // nothing of it is left when a test ends
	})
}

// MakeBucket makes a bucket.
func (s *Server) MakeBucket(name string) {
	s.t.Helper()
	if _, err := s.Client().CreateBucket(s.t.Context(), &s3.CreateBucketInput{Bucket: &name}); err != nil {
		s.t.Fatal(err)
	}
}

// SecretFile has the secret key.
func SecretFile(t testing.TB) string {
	t.Helper()
	return sinktest.File(t, SecretKey+"\n")
}

// Object is one object as the server gives it.
type Object struct {
	Name, Type string
	Data       []byte
}

// leftBehind matches what the server leaves in a bucket, and lists, where it is killed while it replaces an object: a second name of the new one.
var leftBehind = regexp.MustCompile(`(^|/)\.[^/]+\.sgwtmp\.[0-9]+$`)

// Objects returns all objects of a bucket, unpacked, by name.
func (s *Server) Objects(bucket string) []Object {
	s.t.Helper()
	client, all := s.Client(), map[string]Object{}
	pages := s3.NewListObjectsV2Paginator(client, &s3.ListObjectsV2Input{Bucket: &bucket})
	for pages.HasMorePages() {
		page, err := pages.NextPage(s.t.Context())
		if err != nil {
			s.t.Fatal(err)
		}
		for _, found := range page.Contents {
			if leftBehind.MatchString(*found.Key) {
				continue
			}
			all[*found.Key] = s.object(s.t.Context(), client, bucket, *found.Key)
		}
	}
	var out []Object
	for _, name := range slices.Sorted(maps.Keys(all)) {
		out = append(out, all[name])
	}
	return out
}

func (s *Server) object(ctx context.Context, client *s3.Client, bucket, name string) Object {
	s.t.Helper()
	got, err := client.GetObject(ctx, &s3.GetObjectInput{Bucket: &bucket, Key: &name, ChecksumMode: "ENABLED"})
	if err != nil {
		s.t.Fatal(err)
	}
	defer got.Body.Close()
	data, err := io.ReadAll(got.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return Unpack(s.t, Object{Name: name, Type: aws.ToString(got.ContentType), Data: data})
}

// Unpack returns o with its data unpacked, as the ending of its name says.
func Unpack(t testing.TB, o Object) Object {
	t.Helper()
	var err error
	switch filepath.Ext(o.Name) {
	case ".zst":
		var d *zstd.Decoder
		if d, err = zstd.NewReader(nil); err == nil {
			defer d.Close()
			o.Data, err = d.DecodeAll(o.Data, nil)
		}
	case ".gz":
		var r *gzip.Reader
		if r, err = gzip.NewReader(bytes.NewReader(o.Data)); err == nil {
			o.Data, err = io.ReadAll(r)
		}
	}
	if err != nil {
		t.Fatalf("%s: %v", o.Name, err)
	}
	return o
}

// Record is one record of an object. Format length has payloads only.
type Record struct {
	ID, Payload string
	Segment     string
	Index       uint64
}

// Records returns what is in an object, in its order.
func Records(t testing.TB, o Object) []Record {
	t.Helper()
	var all []Record
	if strings.Contains(o.Name, ".length") {
		for rest := o.Data; len(rest) > 0; {
			if len(rest) < 4 || uint64(binary.BigEndian.Uint32(rest)) > uint64(len(rest)-4) {
				t.Fatalf("%s: %d bytes are left that are no record", o.Name, len(rest))
			}
			end := 4 + binary.BigEndian.Uint32(rest)
			all = append(all, Record{Payload: string(rest[4:end])})
			rest = rest[end:]
		}
		return all
	}
	for line := range bytes.Lines(o.Data) {
		var r struct {
			ID      string  `json:"id"`
			Segment string  `json:"segment"`
			Index   uint64  `json:"index"`
			Payload *string `json:"payload"`
			Base64  []byte  `json:"payload_base64"`
		}
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatalf("%s: %v", o.Name, err)
		}
		if r.Payload == nil {
			text := string(r.Base64)
			r.Payload = &text
		}
		all = append(all, Record{ID: r.ID, Payload: *r.Payload, Segment: r.Segment, Index: r.Index})
	}
	return all
}
