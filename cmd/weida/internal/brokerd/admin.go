package brokerd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/weir-agent/weir/cmd/weida/internal/brokerapi"
	"github.com/weir-agent/weir/internal/unixsocket"
	"github.com/weir-agent/weir/weida/broker"
)

const (
	headerTimeout = 5 * time.Second
	answerTimeout = 30 * time.Second
	maxHeader     = 16 << 10
)

// admin answers over HTTP: how the broker is on a TCP address, and that and the messages on a Unix socket that its own user alone can open.
type admin struct {
	broker *broker.Broker
	ready  atomic.Bool
	tcp    net.Listener
	unix   net.Listener
	public *http.Server
	local  *http.Server
}

func newAdmin(c Admin, b *broker.Broker) (*admin, error) {
	a := &admin{broker: b}
	a.public, a.local = a.server(false), a.server(true)
	var err error
	if a.unix, err = unixsocket.Listen(c.Socket); err != nil {
		return nil, fmt.Errorf("admin.socket: %w", err)
	}
	if c.Listen != "" {
		if a.tcp, err = net.Listen("tcp", c.Listen); err != nil {
			return nil, errors.Join(fmt.Errorf("admin.listen: %w: choose another address, or \"\" for none", err), a.unix.Close())
		}
	}
	return a, nil
}

func (a *admin) server(local bool) *http.Server {
	return &http.Server{
		Handler: a.routes(local), ReadHeaderTimeout: headerTimeout, ReadTimeout: answerTimeout,
		WriteTimeout: answerTimeout + brokerapi.MaxWait, MaxHeaderBytes: maxHeader,
	}
}

// address is the TCP address, or the path of the socket where there is none.
func (a *admin) address() string {
	if a.tcp == nil {
		return a.unix.Addr().String()
	}
	return a.tcp.Addr().String()
}

// serve answers until close. The error of a listener that broke is returned.
func (a *admin) serve() error {
	errs := make(chan error, 2)
	go func() { errs <- a.local.Serve(a.unix) }()
	if a.tcp != nil {
		go func() { errs <- a.public.Serve(a.tcp) }()
	}
	return fmt.Errorf("admin: %w", <-errs)
}

func (a *admin) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	errs := []error{a.local.Shutdown(ctx), a.public.Shutdown(ctx)}
	for _, l := range []net.Listener{a.unix, a.tcp} {
		if l == nil {
			continue
		}
		if err := l.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	for i, err := range errs {
		if errors.Is(err, context.DeadlineExceeded) { // somebody follows a queue; the end of the process ends that
			errs[i] = nil
		}
	}
	return errors.Join(errs...)
}

func (a *admin) routes(local bool) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metricsHandler(a.broker))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { text(w, http.StatusOK, "alive\n") })
	mux.HandleFunc("GET /readyz", a.readyz)
	mux.HandleFunc("GET /api/v1/queues", func(w http.ResponseWriter, _ *http.Request) { answer(w, a.queues()) })
	if local {
		mux.HandleFunc("GET /api/v1/messages", a.messages)
	}
	return mux
}

func text(w http.ResponseWriter, status int, s string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(s)) // who asked has gone
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // who asked has gone
}

// readyz says whether every queue takes messages: it is served, and its store took the last change.
func (a *admin) readyz(w http.ResponseWriter, _ *http.Request) {
	if !a.ready.Load() {
		text(w, http.StatusServiceUnavailable, "starting or stopping\n")
		return
	}
	for _, q := range a.queues().Queues {
		if q.StoreError != "" {
			text(w, http.StatusServiceUnavailable, q.Path+": "+q.StoreError+"\n")
			return
		}
	}
	text(w, http.StatusOK, "ready\n")
}

func (a *admin) queues() brokerapi.Queues {
	var all brokerapi.Queues
	for _, path := range a.broker.Paths() {
		st, _ := a.broker.Stats(path)
		q := brokerapi.Queue{
			Path: path, Messages: st.Messages, Unsettled: st.Unsettled, Dead: st.Dead, Bytes: st.Bytes, Consumers: st.Consumers,
			Admitted: st.Admitted, AdmittedBytes: st.AdmittedBytes, Repeats: st.Repeats, Refused: st.Refused,
			Delivered: st.Delivered, Settled: st.Settled, Requeued: st.Requeued, DeadLettered: st.DeadLettered,
		}
		if st.StoreError != nil {
			q.StoreError = st.StoreError.Error()
		}
		all.Queues = append(all.Queues, q)
	}
	return all
}

// messages returns messages of the queue ?path: the ?limit oldest ones behind ?after, or the ?newest ones. With ?wait it waits so many seconds until
// there is one behind after.
func (a *admin) messages(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	path := query.Get("path")
	if _, there := a.broker.Stats(path); !there {
		text(w, http.StatusNotFound, fmt.Sprintf("there is no queue %q\n", path))
		return
	}
	number := map[string]uint64{"limit": brokerapi.MaxMessages}
	for _, name := range []string{"after", "limit", "newest", "wait"} {
		if !query.Has(name) {
			continue
		}
		n, err := strconv.ParseUint(query.Get(name), 10, 64)
		if err != nil {
			text(w, http.StatusBadRequest, fmt.Sprintf("%s: %q is not a number\n", name, query.Get(name)))
			return
		}
		number[name] = n
	}
	after := broker.Seq(number["after"])
	if wait := min(time.Duration(min(number["wait"], 3600))*time.Second, brokerapi.MaxWait); wait > 0 {
		ctx, cancel := context.WithTimeout(r.Context(), wait)
		a.broker.Arrived(ctx, path, after)
		cancel()
	}
	var found []broker.Peeked
	if query.Has("newest") {
		found, _ = a.broker.Newest(path, int(min(number["newest"], brokerapi.MaxMessages)))
	} else {
		found, _ = a.broker.Peek(path, after, int(min(number["limit"], brokerapi.MaxMessages)))
	}
	answer(w, listed(found))
}

// listed returns messages as they are told. Payloads beyond a bound for all of them are cut.
func listed(found []broker.Peeked) brokerapi.Messages {
	all := brokerapi.Messages{Messages: []brokerapi.Message{}}
	room := brokerapi.MaxPayloads
	for _, p := range found {
		m := brokerapi.Message{
			Seq: uint64(p.Seq), Attempts: p.Attempts, State: "ready", Topic: p.Message.Topic, ContentType: p.Message.ContentType,
			Bytes: len(p.Message.Body), Payload: p.Message.Body[:min(len(p.Message.Body), room)],
		}
		room -= len(m.Payload)
		switch {
		case p.Dead:
			m.State = "dead"
		case p.Out:
			m.State = "out"
		}
		if p.Message.ID != (broker.ID{}) {
			m.ID = fmt.Sprintf("sha256:%x", p.Message.ID)
		}
		all.Messages = append(all.Messages, m)
	}
	return all
}
