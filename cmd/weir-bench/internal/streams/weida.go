package streams

import (
	"context"
	"errors"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-agent/weir/weida"
)

// The paths of the weida server.
const (
	echoPath = "/echo"
	sinkPath = "/sink"
	pushPath = "/push"

	publishPath = "/publish"
)

// maxLinks is how many links one process may have to the server.
const maxLinks = 1024

// settleTimeout bounds how long the receipts of messages are waited for.
const settleTimeout = 30 * time.Second

// weidaServer serves three endpoints.
type weidaServer struct {
	runtime *weida.Runtime
	address string
	dir     string // of the socket
	socket  string
	buses   *weida.Buses
	publish *weida.Publisher
	pulled  atomic.Int64 // messages that were read to their end
	serving sync.WaitGroup
	cancel  context.CancelFunc
}

// addresses puts down where it is reached.
func (s *weidaServer) addresses(a *Addresses) {
	a.Weida, a.Buses, a.Inproc = s.address, s.buses, weida.SchemeInproc+"://"+bus
	a.Unix = weida.SchemeUnix + "://" + url.PathEscape(s.socket)
}

// bus is the in-process address.
const bus = "bench"

func listenWeida(ctx context.Context, id *weida.Identity) (*weidaServer, error) {
	buses := new(weida.Buses)
	rt, err := weida.NewRuntime(weida.Options{Buses: buses, MaxConnectionsPerPeer: maxLinks})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &weidaServer{runtime: rt, buses: buses, cancel: cancel}
	l := rt.Listener()
	if err := s.bindLocal(l); err != nil {
		return nil, errors.Join(err, s.close())
	}
	if s.publish, err = l.Publisher(publishPath); err != nil {
		return nil, errors.Join(err, s.close())
	}
	echo, err := l.Replier(echoPath)
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	sink, err := l.Replier(sinkPath)
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	push, err := l.Puller(pushPath)
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	b, err := l.BindQUIC("127.0.0.1:0", weida.ServerTLS{Identity: id})
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	s.address = "weida://" + id.Fingerprint().String() + "@" + b.Addr().String()
	s.serving.Go(func() { s.replies(ctx, echo, serveEcho) })
	s.serving.Go(func() { s.replies(ctx, sink, serveSink) })
	s.serving.Go(func() { s.messages(ctx, push) })
	return s, nil
}

// bindLocal makes the server reachable within the machine.
func (s *weidaServer) bindLocal(l *weida.Listener) error {
	var err error
	if s.dir, err = os.MkdirTemp("", "weida-bench-"); err != nil {
		return err
	}
	s.socket = filepath.Join(s.dir, "s")
	if _, err := l.BindUnix(s.socket); err != nil {
		return err
	}
	_, err = l.BindInproc(bus)
	return err
}

func serveEcho(r io.Reader, w io.Writer) error {
	_, err := io.Copy(w, r)
	return err
}

// replies serves requests. What fails is a client that is gone.
func (s *weidaServer) replies(ctx context.Context, r *weida.Replier, serve func(io.Reader, io.Writer) error) {
	for {
		req, err := r.Accept(ctx)
		if err != nil {
			return
		}
		s.serving.Go(func() {
			body := req.TakeBody()
			defer body.Close()
			w, err := req.Reply(ctx, weida.Meta{})
			if err != nil {
				return
			}
			defer w.Cancel()
			if serve(body, w) == nil {
				if d, err := w.Finish(); err == nil {
					d.Discard()
				}
			}
		})
	}
}

func (s *weidaServer) messages(ctx context.Context, p *weida.Puller) {
	for {
		in, err := p.Recv(ctx)
		if err != nil {
			return
		}
		s.serving.Go(func() {
			defer in.Close()
			if _, err := io.Copy(io.Discard, in); err == nil { // a client that is gone is what fails it
				s.pulled.Add(1)
			}
		})
	}
}

func (s *weidaServer) close() error {
	s.cancel()
	err := s.runtime.Shutdown()
	s.serving.Wait()
	if s.dir != "" {
		err = errors.Join(err, os.RemoveAll(s.dir))
	}
	return err
}

// Weida dials a weida server from one runtime.
type Weida struct {
	runtime *weida.Runtime
	address string
}

// NewWeida returns a dialler for a weida server. Without receipts, connections cannot give any.
func NewWeida(address string, receipts bool) (*Weida, error) {
	rt, err := weida.NewRuntime(weida.Options{Limits: weida.Limits{NoReceipts: !receipts}})
	if err != nil {
		return nil, err
	}
	return &Weida{rt, address}, nil
}

// NewCarried returns a dialler for an address of a weida server in this process, over any carrier.
func NewCarried(a Addresses, address string) (*Weida, error) {
	rt, err := weida.NewRuntime(weida.Options{Buses: a.Buses})
	if err != nil {
		return nil, err
	}
	return &Weida{rt, address}, nil
}

// Dial makes a connection to the sink; those to the other paths are made when they are used.
func (d *Weida) Dial(ctx context.Context) (Client, error) {
	c := &weidaClient{dialler: d}
	var err error
	if c.sink, err = d.requester(ctx, sinkPath); err != nil {
		return nil, err
	}
	return c, nil
}

func (d *Weida) requester(ctx context.Context, path string) (*weida.Requester, error) {
	r := d.runtime.Requester(weida.ClientTLS{})
	if err := r.Connect(ctx, d.address+path); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// Close ends the runtime.
func (d *Weida) Close() error { return d.runtime.Shutdown() }

// weidaClient is one connection for each path that was used.
type weidaClient struct {
	dialler *Weida
	sink    *weida.Requester
	echo    *weida.Requester
	push    *weida.Pusher
}

func (c *weidaClient) Ask(ctx context.Context, _ int64, sink bool) (Exchange, error) {
	r := c.sink
	if !sink {
		if c.echo == nil {
			var err error
			if c.echo, err = c.dialler.requester(ctx, echoPath); err != nil {
				return nil, err
			}
		}
		r = c.echo
	}
	w, reply, err := r.Open(ctx, weida.Meta{})
	if err != nil {
		return nil, err
	}
	return &weidaExchange{OutgoingTransfer: w, reply: reply}, nil
}

func (c *weidaClient) Push(ctx context.Context, body []byte) error {
	if c.push == nil {
		c.push = c.dialler.runtime.Pusher(weida.ClientTLS{})
		if err := c.push.Connect(ctx, c.dialler.address+pushPath); err != nil {
			return err
		}
	}
	return c.push.Send(ctx, weida.Meta{}, body)
}

// Settle drains the runtime, which is what waits for the receipts of messages that were sent.
func (c *weidaClient) Settle(context.Context) (uint64, error) {
	drained, err := c.dialler.runtime.Drain(settleTimeout)
	return drained.Outstanding, err
}

func (c *weidaClient) Close() error {
	err := c.sink.Close()
	if c.echo != nil {
		err = errors.Join(err, c.echo.Close())
	}
	if c.push != nil {
		err = errors.Join(err, c.push.Close())
	}
	return err
}

// weidaExchange is a request and its reply.
type weidaExchange struct {
	*weida.OutgoingTransfer
	reply    *weida.ReplyStream
	incoming *weida.IncomingTransfer
}

func (x *weidaExchange) CloseRequest() error {
	d, err := x.Finish()
	if err == nil {
		d.Discard()
	}
	return err
}

func (x *weidaExchange) Read(p []byte) (int, error) {
	if x.incoming == nil {
		in, err := x.reply.Recv()
		if err != nil {
			return 0, err
		}
		x.incoming = in
	}
	return x.incoming.Read(p)
}

func (x *weidaExchange) CloseReply() error { return atEnd(x.incoming) }
