package httpsink

import (
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/weir-agent/weir/sinks"
	"github.com/weir-agent/weir/sinks/sinktest"
)

func discardLog() *log.Logger { return log.New(io.Discard, "", 0) }

// The frame types, flags and errors of RFC 9113 that the scripts need.
const (
	frameData, frameHeaders, frameReset, frameSettings, frameGoAway = 0, 1, 3, 4, 7

	flagEnd, flagAck, flagEndHeaders = 1, 1, 4

	errInternal, errRefused = 2, 7
)

func (p *peer) frame(kind, flags byte, stream uint32, payload ...byte) {
	b := []byte{byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), kind, flags}
	_, _ = p.Write(append(binary.BigEndian.AppendUint32(b, stream), payload...))
}

// request2 reads frames up to the end of a request; it returns its stream and body.
func (p *peer) request2() (uint32, string, error) {
	body := ""
	for {
		var h [9]byte
		if _, err := io.ReadFull(p.in, h[:]); err != nil {
			return 0, "", err
		}
		payload := make([]byte, int(h[0])<<16|int(h[1])<<8|int(h[2]))
		if _, err := io.ReadFull(p.in, payload); err != nil {
			return 0, "", err
		}
		kind, flags, stream := h[3], h[4], binary.BigEndian.Uint32(h[5:])
		if kind == frameSettings && flags&flagAck == 0 {
			p.frame(frameSettings, flagAck, 0)
		}
		if kind == frameData {
			body += string(payload)
		}
		if (kind == frameData || kind == frameHeaders) && flags&flagEnd != 0 {
			return stream, body, nil
		}
	}
}

func (p *peer) goAway(last uint32) {
	p.frame(frameGoAway, 0, 0, binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, last), 0)...)
}

func (p *peer) resetStream(stream, code uint32) {
	p.frame(frameReset, 0, stream, binary.BigEndian.AppendUint32(nil, code)...)
}

// answer2 answers a stream with 200; 0x88 is :status 200 in the static table.
func (p *peer) answer2(stream uint32) { p.frame(frameHeaders, flagEnd|flagEndHeaders, stream, 0x88) }

// F25: the server says GOAWAY, or refuses the stream, after the request was written whole.
func TestF25GoAway(t *testing.T) {
	for name, tc := range map[string]struct {
		end  func(p *peer, stream uint32)
		want sinks.Verdict // of the first Deliver
	}{
		"not processed":         {func(p *peer, _ uint32) { p.goAway(0) }, sinks.Delivered},
		"perhaps processed":     {func(p *peer, stream uint32) { p.goAway(stream) }, sinks.Retry},
		"processed":             {func(p *peer, stream uint32) { p.goAway(stream); p.answer2(stream) }, sinks.Delivered},
		"refused":               {func(p *peer, stream uint32) { p.resetStream(stream, errRefused) }, sinks.Delivered},
		"internal error":        {func(p *peer, stream uint32) { p.resetStream(stream, errInternal) }, sinks.Retry},
		"closed without GOAWAY": {func(*peer, uint32) {}, sinks.Retry},
	} {
		t.Run(name, func(t *testing.T) {
			ca := sinktest.NewAuthority(t, "ca")
			l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
				Certificates: []tls.Certificate{ca.Pair(t, "server")}, NextProtos: []string{"h2"},
			})
			if err != nil {
				t.Fatal(err)
			}
			var mu sync.Mutex
			var bodies []string
			serve(t, l, func(p *peer) {
				preface := make([]byte, len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))
				if _, err := io.ReadFull(p.in, preface); err != nil {
					return
				}
				p.frame(frameSettings, 0, 0)
				for first := true; ; first = false {
					stream, body, err := p.request2()
					if err != nil {
						return
					}
					mu.Lock()
					bodies = append(bodies, body)
					mu.Unlock()
					if p.n == 0 && first {
						tc.end(p, stream)
						if name != "refused" && name != "internal error" {
							return
						}
						continue
					}
					p.answer2(stream)
				}
			})
			path := filepath.Join(t.TempDir(), "ca")
			if err := os.WriteFile(path, ca.PEM, 0o600); err != nil {
				t.Fatal(err)
			}
			s := sinktest.Open(t, New, Options{URL: "https://" + l.Addr().String(), CAFile: path, Format: FormatNDJSON, Timeout: long})
			b := sinktest.BatchOf("one", "two")
			for i, o := range s.Deliver(t.Context(), b) {
				if o.Verdict != tc.want {
					t.Errorf("record %d: %+v, want %v", i, o, tc.want)
				}
			}
			wantWords(t, s.Deliver(t.Context(), b), "delivered, delivered")
			mu.Lock()
			defer mu.Unlock()
			if len(bodies) < 2 {
				t.Errorf("%d requests, want 2 or more", len(bodies))
			}
			for _, body := range bodies {
				if body != "one\ntwo\n" {
					t.Errorf("a request with body %q", body)
				}
			}
		})
	}
}

// A server that ends in the middle of traffic, and another that takes its address.
func TestServerEndsUnderTraffic(t *testing.T) {
	var mu sync.Mutex
	got := map[string]bool{} // keys
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if body, err := io.ReadAll(r.Body); err != nil || len(body) == 0 {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		mu.Lock()
		got[r.Header.Get("Idempotency-Key")] = true
		mu.Unlock()
	})
	ca := sinktest.NewAuthority(t, "ca")
	pair := ca.Pair(t, "server")
	path := filepath.Join(t.TempDir(), "ca")
	if err := os.WriteFile(path, ca.PEM, 0o600); err != nil {
		t.Fatal(err)
	}
	start := func(address string) (*http.Server, string, chan struct{}) {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		server := &http.Server{Handler: handler, ErrorLog: discardLog(), TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}}}
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = server.ServeTLS(l, "", "")
		}()
		return server, l.Addr().String(), done
	}
	server, address, served := start("127.0.0.1:0")
	s := sinktest.Open(t, New, Options{URL: "https://" + address, CAFile: path, Concurrency: 8})
	delivered := map[string]bool{}
	for round := range 10 {
		var names []string
		for i := range 50 {
			names = append(names, fmt.Sprint(round, "-", i))
		}
		b := sinktest.BatchOf(names...)
		result := make(chan []sinks.Outcome)
		go func() { result <- s.Deliver(t.Context(), b) }()
		if err := server.Close(); err != nil {
			t.Fatal(err)
		}
		<-served
		server, _, served = start(address)
		for i, o := range <-result {
			switch o.Verdict {
			case sinks.Delivered:
				delivered[b.Records[i].ID.String()] = true
			case sinks.Retry:
			default:
				t.Errorf("%+v", o)
			}
		}
	}
	wantWords(t, s.Deliver(t.Context(), sinktest.BatchOf("last")), "delivered")
	if err := server.Close(); err != nil {
		t.Error(err)
	}
	<-served
	mu.Lock()
	defer mu.Unlock()
	for k := range delivered {
		if !got[k] {
			t.Errorf("%s was delivered and never arrived", k)
		}
	}
}
