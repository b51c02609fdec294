package httpsink

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

const (
	// maxAnswerHeaderBytes bounds the header of an answer.
	maxAnswerHeaderBytes = 64 << 10
	// pingAfter is how long an HTTP/2 connection may say nothing before it is
	// asked whether it lives, and pingTimeout how long the answer may take.
	pingAfter   = 15 * time.Second
	pingTimeout = 15 * time.Second
	// writeBufferBytes is what each connection writes at once.
	writeBufferBytes = 32 << 10
)

// generation is a set of connections of about one age that share their TLS files.
// When it is too old or the files change, the next one takes its place: it ends
// when its last user leaves.
type generation struct {
	transport *http.Transport
	born      time.Time
	tls       files
	users     int  // guarded by Sink.mu
	retired   bool // guarded by Sink.mu
}

func (s *Sink) newGeneration(c *credentials, now time.Time) *generation {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(!s.set.DisableHTTP2)
	t := &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		OnProxyConnectResponse: proxyAnswer,
		DialContext:            s.conns.Dial,
		TLSHandshakeTimeout:    s.set.TLSTimeout,
		IdleConnTimeout:        s.set.IdleTimeout,
		MaxIdleConnsPerHost:    s.set.Concurrency,
		MaxResponseHeaderBytes: maxAnswerHeaderBytes,
		WriteBufferSize:        writeBufferBytes,
		DisableCompression:     true, // an answer is read as it comes: nothing can unfold in memory
		Protocols:              &protocols,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
	}
	if c.tls != nil {
		t.TLSClientConfig = c.tls.Clone()
	}
	return &generation{transport: t, born: now, tls: c.files}
}

// proxyError says that a proxy refused to make a tunnel.
type proxyError struct{ status int }

func (e *proxyError) Error() string { return "the proxy answered " + strconv.Itoa(e.status) }

func proxyAnswer(_ context.Context, _ *url.URL, _ *http.Request, answer *http.Response) error {
	if answer.StatusCode != http.StatusOK {
		return &proxyError{answer.StatusCode}
	}
	return nil
}

// enter returns the generation and the credentials that a Deliver uses, and what
// was wrong with the files, in which case the credentials are the last good ones.
func (s *Sink) enter(now time.Time) (*generation, *credentials, error) {
	fresh, err := s.set.readFiles()

	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && !fresh.equal(&s.creds.files) {
		var next *credentials
		if next, err = s.set.credentials(fresh); err == nil {
			s.creds = next
		}
	}
	g := s.current
	if g == nil || now.Sub(g.born) >= s.set.MaxConnectionAge || !g.tls.sameTLS(&s.creds.files) {
		if g != nil {
			g.retired = true
			g.closeIfUnused()
		}
		g = s.newGeneration(s.creds, now)
		s.current = g
	}
	g.users++
	return g, s.creds, err
}

func (s *Sink) leave(g *generation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g.users--
	g.closeIfUnused()
}

// closeIfUnused must be called with Sink.mu held.
func (g *generation) closeIfUnused() {
	if g.retired && g.users == 0 {
		g.transport.CloseIdleConnections()
	}
}
