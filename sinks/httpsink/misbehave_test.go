package httpsink

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-agent/weir/sinks"
	"github.com/weir-agent/weir/sinks/sinktest"
)

// short is a deadline for tests that wait for it to pass; long one that must not.
const (
	short = 50 * time.Millisecond
	long  = time.Minute
)

// peer is one connection at a scripted server.
type peer struct {
	net.Conn
	in *bufio.Reader
	n  int // of the connection, from 0
	// end is closed with the test.
	end <-chan struct{}
}

// request reads one whole request.
func (p *peer) request() (*http.Request, []byte, error) {
	r, err := http.ReadRequest(p.in)
	if err != nil {
		return nil, nil, err
	}
	body, err := io.ReadAll(r.Body)
	return r, body, err
}

func (p *peer) say(s string) { _, _ = io.WriteString(p, s) }

// reset ends the connection with a TCP reset.
func (p *peer) reset() {
	if c, ok := p.Conn.(*net.TCPConn); ok {
		_ = c.SetLinger(0)
	}
	_ = p.Close()
}

// serveRaw runs script for each connection and closes it afterwards; it returns the URL. The test's end closes
// all connections and waits for the scripts.
func serveRaw(t *testing.T, script func(p *peer)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serve(t, l, script)
	return "http://" + l.Addr().String()
}

func serve(t *testing.T, l net.Listener, script func(p *peer)) {
	t.Helper()
	var wg sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	end := make(chan struct{})
	wg.Go(func() {
		for n := 0; ; n++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open = append(open, c)
			mu.Unlock()
			wg.Go(func() {
				defer c.Close()
				script(&peer{Conn: c, in: bufio.NewReader(c), n: n, end: end})
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		close(end)
		mu.Lock()
		for _, c := range open {
			c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
}

const ok = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"

// F22: a fault of credentials, address or load balancer never costs a record.
func TestF22FaultsOfTheEndpointRejectNothing(t *testing.T) {
	for _, status := range []int{401, 402, 403, 404, 405, 407, 410} {
		e := newEndpoint(t, func(_ int, w http.ResponseWriter, _ *request) { w.WriteHeader(status) })
		for _, format := range []string{FormatRaw, FormatNDJSON, FormatJSON} {
			s := sinktest.Open(t, New, Options{URL: e.URL, Format: format})
			wantWords(t, s.Deliver(t.Context(), sinktest.BatchOf("a", "b")), fmt.Sprintf("hold %d, hold %d", status, status))
		}
	}
	closed := newEndpoint(t, nil)
	closed.Close()
	for _, url := range []string{"http://no-such-host.invalid/", closed.URL} {
		s := sinktest.Open(t, New, Options{URL: url})
		wantWords(t, s.Deliver(t.Context(), sinktest.BatchOf("a", "b")), "retry, retry")
	}
}

// F23: what breaks in the middle of a request or an answer is tried again.
func TestF23BrokenExchangesAreRetried(t *testing.T) {
	large := strings.Repeat("x", 2<<20)
	for name, script := range map[string]func(p *peer){
		"reset in the middle of the body": func(p *peer) {
			_, _ = io.CopyN(io.Discard, p.in, 1<<20)
			p.reset()
		},
		"reset before the body": func(p *peer) {
			_, _ = p.in.ReadString('\n')
			p.reset()
		},
		"close after the request": func(p *peer) { _, _, _ = p.request() },
		"half a status line": func(p *peer) {
			_, _, _ = p.request()
			p.say("HTTP/1.1 20")
		},
		"half a header": func(p *peer) {
			_, _, _ = p.request()
			p.say("HTTP/1.1 200 OK\r\nContent-Le")
		},
		"no HTTP": func(p *peer) {
			_, _, _ = p.request()
			p.say("220 mail.example ESMTP\r\n")
		},
		"status 408": func(p *peer) {
			_, _, _ = p.request()
			p.say("HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		},
		"status 425": func(p *peer) {
			_, _, _ = p.request()
			p.say("HTTP/1.1 425 Too Early\r\nContent-Length: 0\r\n\r\n")
		},
		"endless header": func(p *peer) {
			_, _, _ = p.request()
			p.say("HTTP/1.1 200 OK\r\n")
			for line := strings.Repeat("X-Filler: y\r\n", 1000); ; {
				if _, err := io.WriteString(p, line); err != nil {
					return
				}
			}
		},
		"endless interim answers": func(p *peer) {
			_, _, _ = p.request()
			for line := strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", 1000); ; {
				if _, err := io.WriteString(p, line); err != nil {
					return
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			url := serveRaw(t, script)
			for _, format := range []string{FormatRaw, FormatNDJSON} {
				s := sinktest.Open(t, New, Options{URL: url, Format: format, Timeout: long})
				out := s.Deliver(t.Context(), sinktest.BatchOf(large))
				if len(out) != 1 || out[0].Verdict != sinks.Retry || out[0].Reason == "" {
					t.Errorf("%s: %+v, want retry", format, out)
				}
			}
		})
	}
}

// F24: a kept connection that ends just as a request goes out. Whatever becomes of the
// request, no server ever sees it without its whole body.
func TestF24KeptConnectionEnds(t *testing.T) {
	for _, format := range []string{FormatRaw, FormatNDJSON} {
		for name, end := range map[string]func(p *peer){
			"before the next request": func(*peer) {},
			"after the next request":  func(p *peer) { _, _, _ = p.request() },
			"within the next request": func(p *peer) { _, _ = p.in.ReadString('\n'); p.reset() },
			"reset when idle":         func(p *peer) { p.reset() },
		} {
			t.Run(format+" "+name, func(t *testing.T) {
				var mu sync.Mutex
				bodies := map[string][]string{} // by key
				url := serveRaw(t, func(p *peer) {
					r, body, err := p.request()
					if err != nil {
						return
					}
					mu.Lock()
					k := r.Header.Get("Idempotency-Key")
					bodies[k] = append(bodies[k], string(body))
					mu.Unlock()
					p.say(ok)
					end(p)
				})
				s := sinktest.Open(t, New, Options{URL: url, Format: format})
				delivered := 0
				for i := range 40 {
					b := sinktest.BatchOf(fmt.Sprint("payload ", i))
					out := s.Deliver(t.Context(), b)
					switch out[0].Verdict {
					case sinks.Delivered:
						delivered++
						mu.Lock()
						n := len(bodies)
						mu.Unlock()
						if n < delivered {
							t.Fatalf("%d delivered, the server has %d", delivered, n)
						}
					case sinks.Retry:
					default:
						t.Fatalf("%+v", out[0])
					}
				}
				if delivered == 0 {
					t.Error("nothing was delivered")
				}
				mu.Lock()
				defer mu.Unlock()
				for k, all := range bodies {
					for _, body := range all {
						if body != all[0] || !strings.HasPrefix(body, "payload ") {
							t.Errorf("key %s arrived with %q", k, all)
						}
					}
				}
			})
		}
	}
}

// The second request of a kept connection is lost with the connection and goes out again,
// whole and with its key, on a new one.
func TestF24LostRequestIsSentAgainWhole(t *testing.T) {
	for _, format := range []string{FormatRaw, FormatNDJSON} {
		type seen struct{ key, body, length string }
		requests := make(chan seen, 10)
		take := func(p *peer) bool {
			r, body, err := p.request()
			if err == nil {
				requests <- seen{r.Header.Get("Idempotency-Key"), string(body), r.Header.Get("Content-Length") + fmt.Sprint(r.ContentLength)}
			}
			return err == nil
		}
		url := serveRaw(t, func(p *peer) {
			if p.n == 0 {
				_ = take(p)
				p.say(ok)
				_ = take(p)
				return
			}
			for take(p) {
				p.say(ok)
			}
		})
		s := sinktest.Open(t, New, Options{URL: url, Format: format})
		wantWords(t, s.Deliver(t.Context(), sinktest.BatchOf("first")), "delivered")
		wantWords(t, s.Deliver(t.Context(), sinktest.BatchOf(strings.Repeat("second", 1<<16))), "delivered")
		<-requests
		lost, again := <-requests, <-requests
		if lost != again || !strings.HasPrefix(again.body, "secondsecond") || again.key == "" {
			t.Errorf("%s: the repeat is %.80v, the first was %.80v", format, again, lost)
		}
	}
}

// F33: no phase of an exchange can hold a Deliver for longer than its deadline.
func TestF33EachPhaseHasADeadline(t *testing.T) {
	hang := func(p *peer) { _, _ = io.Copy(io.Discard, p.in) }
	large := strings.Repeat("x", 8<<20)
	for name, tc := range map[string]struct {
		script func(p *peer)
		opts   Options
		want   string
	}{
		"never answers":          {hang, Options{Timeout: short}, "retry"},
		"never reads":            {func(p *peer) { <-p.end }, Options{Timeout: short}, "retry"},
		"never answers TLS":      {hang, Options{TLSTimeout: short, Timeout: long}, "retry"},
		"stops in the header":    {func(p *peer) { _, _, _ = p.request(); p.say("HTTP/1.1 200 OK\r\nX"); hang(p) }, Options{Timeout: short}, "retry"},
		"interim answer only":    {func(p *peer) { _, _, _ = p.request(); p.say("HTTP/1.1 103 Hints\r\n\r\n"); hang(p) }, Options{Timeout: short}, "retry"},
		"stops in a 200 body":    {func(p *peer) { _, _, _ = p.request(); p.say(head(200) + "\r\nx"); hang(p) }, Options{AnswerTimeout: short}, "delivered"},
		"stops in a 503 body":    {func(p *peer) { _, _, _ = p.request(); p.say(head(503) + "\r\nx"); hang(p) }, Options{AnswerTimeout: short}, "retry 503"},
		"endless 200 body":       {func(p *peer) { _, _, _ = p.request(); endless(p, 200) }, Options{AnswerTimeout: long}, "delivered"},
		"endless 503 body":       {func(p *peer) { _, _, _ = p.request(); endless(p, 503) }, Options{AnswerTimeout: long}, "retry 503"},
		"stops in a bulk answer": {func(p *peer) { _, _, _ = p.request(); p.say(head(200) + "\r\n{"); hang(p) }, Options{AnswerTimeout: short, Partial: PartialBulk}, "retry 200"},
		"endless bulk answer":    {func(p *peer) { _, _, _ = p.request(); endless(p, 200) }, Options{AnswerTimeout: long, Partial: PartialBulk}, "retry 200"},
	} {
		t.Run(name, func(t *testing.T) {
			url := serveRaw(t, tc.script)
			if strings.HasSuffix(name, "TLS") {
				url = strings.Replace(url, "http:", "https:", 1)
			}
			for _, format := range []string{FormatRaw, FormatNDJSON} {
				o := tc.opts
				o.URL, o.Format = url, format
				if format == FormatRaw {
					if o.Partial != "" {
						continue
					}
				}
				s := sinktest.Open(t, New, o)
				wantWords(t, s.Deliver(t.Context(), sinktest.BatchOf(large)), tc.want)
			}
		})
	}
}

func head(status int) string {
	return fmt.Sprintf("HTTP/1.1 %d Status\r\nContent-Length: 1000000000000\r\n", status)
}

func endless(p *peer, status int) {
	p.say(head(status) + "\r\n")
	for line := bytes.Repeat([]byte("x"), 1<<16); ; {
		if _, err := p.Write(line); err != nil {
			return
		}
	}
}

// Whatever phase a request is in, the end of ctx ends Deliver, and so does Close.
func TestF33TheEndOfCtxEndsEveryPhase(t *testing.T) {
	for name, script := range map[string]func(p *peer, reached func()){
		"unanswered":         func(p *peer, reached func()) { _, _, _ = p.request(); reached() },
		"body not read":      func(p *peer, reached func()) { _, _ = p.in.ReadString('\n'); reached() },
		"answer not ended":   func(p *peer, reached func()) { _, _, _ = p.request(); p.say(head(503) + "\r\n"); reached() },
		"interim answer":     func(p *peer, reached func()) { _, _, _ = p.request(); p.say("HTTP/1.1 103 x\r\n\r\n"); reached() },
		"TLS handshake TLS":  func(p *peer, reached func()) { _, _ = p.in.ReadByte(); reached() },
		"half a status line": func(p *peer, reached func()) { _, _, _ = p.request(); p.say("HTTP/1"); reached() },
	} {
		for _, by := range []string{"ctx", "Close"} {
			t.Run(name+" "+by, func(t *testing.T) {
				reached := make(chan struct{}, 8)
				url := serveRaw(t, func(p *peer) {
					script(p, func() { reached <- struct{}{} })
					<-p.end
				})
				if strings.HasSuffix(name, "TLS") {
					url = strings.Replace(url, "http:", "https:", 1)
				}
				s := sinktest.Open(t, New, Options{URL: url, Format: FormatNDJSON, Timeout: long, AnswerTimeout: long, TLSTimeout: long})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				done := make(chan []sinks.Outcome, 1)
				size := 1
				if name == "body not read" {
					size = 16 << 20 // more than the buffers of both ends hold
				}
				go func() { done <- s.Deliver(ctx, sinktest.BatchOf(strings.Repeat("x", size))) }()
				<-reached
				if by == "ctx" {
					cancel()
				} else if err := s.Close(); err != nil {
					t.Error(err)
				}
				if got := <-done; len(got) != 1 || got[0].Verdict != sinks.Retry {
					t.Errorf("outcomes = %+v, want one retry", got)
				}
			})
		}
	}
}

func TestAnswerBeforeTheBodyWasRead(t *testing.T) {
	for status, want := range map[int]string{413: "split 413", 401: "hold 401", 503: "retry 503"} {
		url := serveRaw(t, func(p *peer) {
			if _, err := http.ReadRequest(p.in); err != nil {
				return
			}
			p.say(fmt.Sprintf("HTTP/1.1 %d No\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno", status))
			_, _ = io.Copy(io.Discard, p.in) // as servers do that let their answer be read
		})
		for _, format := range []string{FormatRaw, FormatNDJSON} {
			s := sinktest.Open(t, New, Options{URL: url, Format: format})
			wantWords(t, s.Deliver(t.Context(), sinktest.BatchOf(strings.Repeat("x", 8<<20))), strings.TrimSuffix(want, " isolated"))
		}
	}
}

// An endpoint that takes only requests of known length gets what it wants, on each attempt.
func TestEndpointThatWantsALength(t *testing.T) {
	url := serveRaw(t, func(p *peer) {
		for {
			r, body, err := p.request()
			if err != nil {
				return
			}
			if r.Header.Get("Expect") != "" || len(r.TransferEncoding) > 0 || r.ContentLength <= 0 || int64(len(body)) != r.ContentLength {
				p.say("HTTP/1.1 411 Length Required\r\nContent-Length: 0\r\n\r\n")
				continue
			}
			p.say(ok)
		}
	})
	for _, format := range []string{FormatRaw, FormatNDJSON, FormatJSON} {
		for _, compression := range []string{CompressionNone, CompressionGzip, CompressionZstd} {
			s := sinktest.Open(t, New, Options{URL: url, Format: format, Compression: compression})
			for range 2 {
				wantWords(t, s.Deliver(t.Context(), sinktest.BatchOf("a", strings.Repeat("b", 1<<20))), "delivered, delivered")
			}
		}
	}
}

func TestInterimAnswersAreNotTheAnswer(t *testing.T) {
	url := serveRaw(t, func(p *peer) {
		for {
			if _, _, err := p.request(); err != nil {
				return
			}
			p.say("HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 422 No\r\nContent-Length: 0\r\n\r\n")
		}
	})
	s := sinktest.Open(t, New, Options{URL: url})
	wantWords(t, s.Deliver(t.Context(), sinktest.BatchOf("a")), "reject 422 isolated")
}

// An answer's body of up to 64 KiB is read whole, so its connection is used again.
func TestConnectionIsUsedAgain(t *testing.T) {
	for _, status := range []int{200, 400, 503} {
		var mu sync.Mutex
		conns := 0
		url := serveRaw(t, func(p *peer) {
			mu.Lock()
			conns++
			mu.Unlock()
			for {
				if _, _, err := p.request(); err != nil {
					return
				}
				body := strings.Repeat("x", maxDrainBytes-1)
				p.say(fmt.Sprintf("HTTP/1.1 %d Status\r\nContent-Length: %d\r\n\r\n%s", status, len(body), body))
			}
		})
		s := sinktest.Open(t, New, Options{URL: url})
		for range 5 {
			s.Deliver(t.Context(), sinktest.BatchOf("a"))
		}
		mu.Lock()
		if conns != 1 {
			t.Errorf("status %d: %d connections, want 1", status, conns)
		}
		mu.Unlock()
	}
}

func TestAnswersThatAreTooLarge(t *testing.T) {
	bulk := newEndpoint(t, func(_ int, w http.ResponseWriter, _ *request) {
		_, _ = io.WriteString(w, `{"errors":false}`+strings.Repeat(" ", maxAnswerBytes))
	})
	s := sinktest.Open(t, New, Options{URL: bulk.URL, Format: FormatNDJSON, Partial: PartialBulk})
	wantWords(t, s.Deliver(t.Context(), sinktest.BatchOf("a")), "retry 200")
	header := newEndpoint(t, func(_ int, w http.ResponseWriter, _ *request) {
		w.Header().Set("X-Large", strings.Repeat("x", 2*maxAnswerHeaderBytes))
	})
	s = sinktest.Open(t, New, Options{URL: header.URL})
	wantWords(t, s.Deliver(t.Context(), sinktest.BatchOf("a")), "retry")
}

// A batch that waits for its turn leaves when its own ctx ends.
func TestWaitingForATurnEndsWithCtx(t *testing.T) {
	held, release := make(chan struct{}), make(chan struct{})
	e := newEndpoint(t, func(n int, _ http.ResponseWriter, _ *request) {
		if n == 0 {
			close(held)
			<-release
		}
	})
	s := sinktest.Open(t, New, Options{URL: e.URL, Concurrency: 1})
	first := make(chan []sinks.Outcome)
	go func() { first <- s.Deliver(t.Context(), sinktest.BatchOf("first")) }()
	<-held
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	wantWords(t, s.Deliver(ctx, sinktest.BatchOf("a", "b")), "retry, retry")
	close(release)
	wantWords(t, <-first, "delivered")
	if n := len(e.all()); n != 1 {
		t.Errorf("%d requests, want 1", n)
	}
}
