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
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// AccessKey and SecretKey are those of the server's root user, Region its region.
const (
	AccessKey = "WEIRTESTKEY"
	SecretKey = "s3cret-access-key"
	Region    = "eu-test-1"
)

// Server is one versitygw.
type Server struct {
	// Address is host:port, the same after a restart.
	Address string
	// Dir has the objects, a folder a bucket.
	Dir string

	t      testing.TB
	binary string
	args   []string
	cmd    *exec.Cmd
	ended  chan struct{} // closed once it was waited for
}

// Binary returns the path of versitygw. Where it is missing the test is left out, and fails with CI=true.
func Binary(t testing.TB) string {
	t.Helper()
	path, err := exec.LookPath("versitygw")
	if err == nil {
		return path
	}
	if os.Getenv("CI") == "true" {
		t.Fatal("missing: versitygw")
	}
	t.Skip("left out, for want of versitygw (go install github.com/versity/versitygw/cmd/versitygw@latest)")
	return ""
}

// Start runs a server; args are more of its global options.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	s := &Server{t: t, binary: Binary(t), Dir: filepath.Join(t.TempDir(), "objects"), Address: freeAddress(t), args: args}
	if err := os.Mkdir(s.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s.Run()
	s.AwaitReady()
	return s
}

func freeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// Run starts the process and does not wait until it serves.
func (s *Server) Run() {
	s.t.Helper()
	log, err := os.OpenFile(s.Dir+".log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		s.t.Fatal(err)
	}
	defer log.Close()
	args := append([]string{"--port", s.Address, "--region", Region, "--keep-alive", "--quiet"}, s.args...)
	cmd, ended := exec.Command(s.binary, append(args, "posix", s.Dir)...), make(chan struct{})
	cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+AccessKey, "ROOT_SECRET_KEY="+SecretKey)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	go func() {
		_ = cmd.Wait() // it ends by being killed
		close(ended)
	}()
	s.cmd, s.ended = cmd, ended
	s.t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended already
		<-ended
	})
}

// Kill ends the process by SIGKILL.
func (s *Server) Kill() {
	s.t.Helper()
	if err := s.cmd.Process.Kill(); err != nil {
		s.t.Fatal(err)
	}
	<-s.ended
}

// AwaitReady returns once the server takes connections.
func (s *Server) AwaitReady() {
	s.t.Helper()
	for s.t.Context().Err() == nil {
		conn, err := net.Dial("tcp", s.Address)
		if err == nil {
			conn.Close()
			return
		}
		select {
		case <-s.ended:
			log, _ := os.ReadFile(s.Dir + ".log")
			s.t.Fatalf("versitygw ended:\n%s", log)
		default:
		}
	}
	s.t.Fatal(s.t.Context().Err())
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
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte(SecretKey+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Object is one object as the server gives it.
type Object struct {
	Name, Type string
	Data       []byte
}

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
