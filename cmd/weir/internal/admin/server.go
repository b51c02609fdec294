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
	"strings"
	"time"

	"github.com/weir-agent/weir/drain/deadletter"
	"github.com/weir-agent/weir/internal/unixsocket"
)

// Options says where to listen and what to answer.
type Options struct {
	Listen  string // host:port; empty: not on TCP
	Socket  string // path of the socket, mode 0600
	Status  func() Status
	Metrics http.Handler
	Pause   func(yes bool)
	Seal    func() error
	Reload  func(context.Context) (ReloadResult, error)
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
	unix, err := unixsocket.Listen(o.Socket)
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

// routes are what can be asked; local ones change something, or show more than others may see.
func (o Options) routes(local bool) http.Handler {
	mux := http.NewServeMux()
	o.pageRoutes(mux)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { text(w, http.StatusOK, "alive\n") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		st := o.Status()
		if !st.Ready {
			text(w, http.StatusServiceUnavailable, "not ready\n"+lines(st.NotReady)+lines(st.Warnings))
			return
		}
		text(w, http.StatusOK, "ready\n"+lines(st.Warnings))
	})
	mux.HandleFunc("GET /api/v1/status", func(w http.ResponseWriter, _ *http.Request) { answer(w, o.Status()) })
	cache := letterCache{store: o.Letters}
	mux.HandleFunc("GET /api/v1/deadletters", func(w http.ResponseWriter, _ *http.Request) { answer(w, cache.get()) })
	mux.Handle("GET /metrics", o.Metrics)
	if local {
		o.changeRoutes(mux)
		o.letterRoutes(mux)
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
		return mux
	}
	return byAddress(mux)
}

// byAddress refuses requests that were sent to a name other than localhost: a page on the web must not reach
// the status by a name of its own that it points at this machine. A proxy sends the address, or localhost, as Host.
func byAddress(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if h, _, err := net.SplitHostPort(host); err == nil {
			host = h
		}
		if net.ParseIP(strings.Trim(host, "[]")) == nil && host != "localhost" {
			text(w, http.StatusMisdirectedRequest, "ask by IP address, or as localhost\n")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// changeRoutes are the mutations of the delivery, the log and the configuration.
func (o Options) changeRoutes(mux *http.ServeMux) {
	mux.HandleFunc("POST /api/v1/drain/pause", func(w http.ResponseWriter, _ *http.Request) {
		o.Pause(true)
		text(w, http.StatusOK, "paused: nothing is delivered until weir drain resume; pushes are accepted\n")
	})
	mux.HandleFunc("POST /api/v1/drain/resume", func(w http.ResponseWriter, _ *http.Request) {
		o.Pause(false)
		text(w, http.StatusOK, "resumed\n")
	})
	mux.HandleFunc("POST /api/v1/segment/seal", func(w http.ResponseWriter, _ *http.Request) {
		if err := o.Seal(); err != nil {
			text(w, http.StatusInternalServerError, err.Error()+"\n")
			return
		}
		text(w, http.StatusOK, "the active segments are being sealed\n")
	})
	mux.HandleFunc("POST /api/v1/reload", func(w http.ResponseWriter, r *http.Request) {
		res, err := o.Reload(r.Context())
		if err != nil {
			text(w, http.StatusUnprocessableEntity, err.Error()+"\n")
			return
		}
		answer(w, res)
	})
}

func lines(texts []string) string {
	var b strings.Builder
	for _, t := range texts {
		b.WriteString(t + "\n")
	}
	return b.String()
}

// answer writes v as JSON. If it fails the peer is gone.
func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	_ = enc.Encode(v)
}

func text(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(body)) // the peer is gone, if it fails
}
