// Package admin is weir's HTTP side: health, status and metrics on a TCP address, and the same with
// the mutations on a Unix socket that only the daemon's own user may open.
package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/weir-agent/weir/drain/deadletter"
	"github.com/weir-agent/weir/ingest"
)

// Options says where to listen and what to answer.
type Options struct {
	Listen  string // host:port; empty: not on TCP
	Socket  string // path of the socket, mode 0600
	Status  func() Status
	Metrics http.Handler
	Pause   func()
	Resume  func()
	Letters *deadletter.Store
	Log     *slog.Logger
}

// Server is the admin server. New takes its addresses, Serve answers.
type Server struct {
	tcp    net.Listener
	unix   net.Listener
	public *http.Server
	local  *http.Server
}

const (
	headerTimeout = 5 * time.Second
	answerTimeout = 30 * time.Second
	maxHeader     = 16 << 10
)

// New listens on both addresses.
func New(o Options) (*Server, error) {
	s := &Server{public: server(o.routes(false), o.Log), local: server(o.routes(true), o.Log)}
	var err error
	if o.Listen != "" {
		if s.tcp, err = net.Listen("tcp", o.Listen); err != nil {
			return nil, fmt.Errorf("admin.listen: %w: choose another address with --admin", err)
		}
	}
	unix, err := ingest.Listen(o.Socket)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("admin.socket: %w", err), s.Close())
	}
	s.unix = unix
	return s, nil
}

func server(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: headerTimeout, ReadTimeout: answerTimeout, WriteTimeout: answerTimeout,
		MaxHeaderBytes: maxHeader, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

// Addr is the TCP address, empty where there is none.
func (s *Server) Addr() string {
	if s.tcp == nil {
		return ""
	}
	return s.tcp.Addr().String()
}

// Serve answers until Shutdown. The error of a listener that broke is returned.
func (s *Server) Serve() error {
	errs := make(chan error, 2)
	n := 1
	go func() { errs <- s.local.Serve(s.unix) }()
	if s.tcp != nil {
		n++
		go func() { errs <- s.public.Serve(s.tcp) }()
	}
	var first error
	for range n {
		if err := <-errs; !errors.Is(err, http.ErrServerClosed) && first == nil {
			first = fmt.Errorf("admin: %w", err)
		}
	}
	return first
}

// Shutdown stops the server and waits for answers under way until ctx ends.
func (s *Server) Shutdown(ctx context.Context) error {
	return errors.Join(s.local.Shutdown(ctx), s.public.Shutdown(ctx), s.Close())
}

// Close stops listening, without waiting for answers under way.
func (s *Server) Close() error {
	var errs []error
	for _, l := range []net.Listener{s.tcp, s.unix} {
		if l == nil {
			continue
		}
		if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (o Options) routes(local bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { text(w, http.StatusOK, "alive\n") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		st := o.Status()
		if st.Ready {
			text(w, http.StatusOK, "ready\n")
			return
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(http.StatusServiceUnavailable)
		for _, why := range st.NotReady {
			fmt.Fprintln(w, why)
		}
	})
	mux.HandleFunc("GET /api/v1/status", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		_ = enc.Encode(o.Status()) // the peer is gone, if it fails
	})
	mux.Handle("GET /metrics", o.Metrics)
	if local {
		o.letterRoutes(mux)
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
		mux.HandleFunc("POST /api/v1/drain/pause", func(w http.ResponseWriter, _ *http.Request) { o.Pause(); text(w, http.StatusOK, "paused\n") })
		mux.HandleFunc("POST /api/v1/drain/resume", func(w http.ResponseWriter, _ *http.Request) { o.Resume(); text(w, http.StatusOK, "resumed\n") })
	}
	return mux
}

func text(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(body)) // the peer is gone, if it fails
}
