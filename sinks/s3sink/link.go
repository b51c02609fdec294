//go:build !nos3

package s3sink

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/logging"

	"github.com/weir-agent/weir/sinks/setup"
)

const (
	// regionOfServers is what servers other than AWS take where nothing else is said.
	regionOfServers = "us-east-1"
	idleTimeout     = 30 * time.Second
	// maxIdleConnections bounds the connections that wait for the next batch.
	maxIdleConnections = 64
	// maxAnswerHeaderBytes and maxAnswerBytes bound what is read of an answer: the client reads bodies whole.
	maxAnswerHeaderBytes = 64 << 10
	maxAnswerBytes       = 1 << 20
)

// files is what the files and variables of the options hold.
type files struct{ secretKey, sessionToken, authorities string }

func (o *Options) read() (files, error) {
	var f files
	var err error
	if f.secretKey, err = o.secretKey().Read(); err != nil {
		return f, &setup.Unfit{Section: section, Err: fmt.Errorf("secret_key_file: %w", err)}
	}
	if f.sessionToken, err = o.sessionToken().Read(); err != nil {
		return f, &setup.Unfit{Section: section, Err: fmt.Errorf("session_token_file: %w", err)}
	}
	if o.CAFile != "" {
		ca, err := setup.ReadFile(o.CAFile)
		if err != nil {
			return f, &setup.Unfit{Section: section, Err: fmt.Errorf("ca_file: %w", err)}
		}
		f.authorities = string(ca)
	}
	return f, nil
}

// link is a client that was made of one state of the files.
type link struct {
	files     files
	api       *s3.Client
	creds     aws.CredentialsProvider
	region    string
	transport *http.Transport
}

// link returns the client for what the files hold now. No connection is made.
func (s *Sink) link(ctx context.Context) (*link, error) {
	f, err := s.opts.read()
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	l := s.current
	s.mu.Unlock()
	if l != nil && l.files == f {
		return l, nil
	}
	l, err = s.newLink(ctx, f)
	if err != nil {
		return nil, err
	}
	s.replace(l)
	return l, nil
}

// replace makes l, which may be nil, the client of the next attempt.
func (s *Sink) replace(l *link) {
	s.mu.Lock()
	old := s.current
	s.current = l
	s.mu.Unlock()
	if old != nil {
		old.transport.CloseIdleConnections() // those in use end idleTimeout after their last
	}
}

func (s *Sink) newLink(ctx context.Context, f files) (*link, error) {
	o := &s.opts
	tls, err := setup.TLS{CAFile: o.CAFile}.Config()
	if err != nil {
		return nil, &setup.Unfit{Section: section, Err: err}
	}
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: s.conns.Dial, TLSClientConfig: tls, TLSHandshakeTimeout: o.ConnectTimeout,
		IdleConnTimeout: idleTimeout, MaxIdleConnsPerHost: maxIdleConnections, MaxResponseHeaderBytes: maxAnswerHeaderBytes,
		DisableCompression: true, ExpectContinueTimeout: time.Second,
	}
	load := []func(*config.LoadOptions) error{
		config.WithAppID("weir"),
		config.WithLogger(logging.Nop{}), // it would write to standard error
		// Of the chain of credentials, whose own servers do not answer for ca_file.
		config.WithHTTPClient(awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
			t.DialContext, t.IdleConnTimeout, t.MaxResponseHeaderBytes = s.conns.Dial, idleTimeout, maxAnswerHeaderBytes
		})),
	}
	if o.Region != "" {
		load = append(load, config.WithRegion(o.Region))
	}
	if o.AccessKey != "" {
		load = append(load, config.WithCredentialsProvider(credentials.NewStaticCredentialsProvider(o.AccessKey, f.secretKey, f.sessionToken)))
	}
	cfg, err := config.LoadDefaultConfig(ctx, load...)
	if err != nil {
		return nil, &setup.Unfit{Section: section, Err: fmt.Errorf("access_key: the configuration of AWS: %w", err)}
	}
	switch {
	case cfg.Region != "":
	case o.Endpoint != "":
		cfg.Region = regionOfServers
	default:
		return nil, &setup.Unfit{Section: section, Err: errors.New("region: is neither here nor in AWS_REGION nor in the profile")}
	}
	l := &link{files: f, creds: cfg.Credentials, region: cfg.Region, transport: transport}
	l.api = s3.NewFromConfig(cfg, func(so *s3.Options) {
		so.HTTPClient = &http.Client{
			Transport:     bounded{transport},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
		so.Retryer = aws.NopRetryer{} // the drain owns retry
		so.UsePathStyle = o.PathStyle
		if o.Endpoint != "" {
			so.BaseEndpoint = &o.Endpoint
		}
		// The sink gives the checksums itself, in the header, where every server that knows them takes them.
		so.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
		so.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
	})
	return l, nil
}

// bounded reads no more of an answer's body than maxAnswerBytes. It reads them before it gives the answer to the client, which then closes the body of the
// request: where that is still being sent, because the server refused it by its head, the transport would end the connection, and nobody would read why.
type bounded struct{ next http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := b.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswerBytes))
	answer.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(data), ended{err}), answer.Body}
	return answer, nil
}

// ended is the end of a body: its error, or nothing.
type ended struct{ err error }

func (e ended) Read([]byte) (int, error) { return 0, cmp.Or(e.err, io.EOF) }
