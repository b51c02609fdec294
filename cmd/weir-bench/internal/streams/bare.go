package streams

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/weir-agent/weir/weida/transport"
	"github.com/weir-agent/weir/weida/transport/quictransport"
)

// bareServer answers on QUIC streams without weida: the first byte of an exchange says its kind, and one-way streams are read and dropped.
type bareServer struct {
	listener *quictransport.Listener
	serving  sync.WaitGroup
	cancel   context.CancelFunc
}

func listenBare(cert tls.Certificate) (*bareServer, error) {
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, fmt.Errorf("streams: %w", err)
	}
	l, err := quictransport.Listen(conn, &tls.Config{Certificates: []tls.Certificate{cert}}, quictransport.ListenConfig{
		Config: quictransport.Config{NoReceipts: true},
	})
	if err != nil {
		return nil, fmt.Errorf("streams: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &bareServer{listener: l, cancel: cancel}
	s.serving.Go(func() {
		for {
			link, err := l.Accept(ctx)
			if err != nil {
				return
			}
			s.serving.Go(func() { s.exchanges(ctx, link) })
			s.serving.Go(func() { s.messages(ctx, link) })
		}
	})
	return s, nil
}

func (s *bareServer) exchanges(ctx context.Context, link transport.Link) {
	for {
		w, r, err := link.AcceptBi(ctx)
		if err != nil {
			return
		}
		s.serving.Go(func() {
			if err := serveBare(w, r); err != nil {
				w.Reset(transport.CodeInternal)
			}
		})
	}
}

func serveBare(w transport.SendStream, r transport.ReceiveStream) error {
	var kind [1]byte
	if _, err := io.ReadFull(r, kind[:]); err != nil {
		return err
	}
	if kind[0] == kindSink {
		if err := serveSink(r, w); err != nil {
			return err
		}
	} else if _, err := io.Copy(w, r); err != nil {
		return err
	}
	return w.CloseWrite()
}

func (s *bareServer) messages(ctx context.Context, link transport.Link) {
	for {
		r, err := link.AcceptUni(ctx)
		if err != nil {
			return
		}
		s.serving.Go(func() { _, _ = io.Copy(io.Discard, r) }) // a client that is gone is what fails it
	}
}

func (s *bareServer) close() error {
	err := s.listener.Close()
	s.cancel()
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_ = s.listener.Wait(ended) // what is left is cut off, as it says
	s.serving.Wait()
	return err
}

// Bare dials a bare server from one socket.
type Bare struct {
	dialler  *quictransport.Dialler
	to       net.Addr
	receipts bool
}

// NewBare returns a dialler for a bare server. With receipts, one is held for each message, and Settle waits for them.
func NewBare(addr string, receipts bool) (*Bare, error) {
	to, err := net.ResolveUDPAddr("udp", addr)
	if err != nil {
		return nil, fmt.Errorf("streams: %w", err)
	}
	d, err := quictransport.NewDialler(nil, quictransport.Config{NoReceipts: !receipts})
	if err != nil {
		return nil, err
	}
	return &Bare{d, to, receipts}, nil
}

// Dial makes a connection.
func (b *Bare) Dial(ctx context.Context) (Client, error) {
	link, err := b.dialler.Dial(ctx, b.to, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		return nil, err
	}
	c := &bareClient{link: link}
	if b.receipts {
		c.parking = transport.NewParking(quictransport.DefaultMaxUniStreams + quictransport.DefaultMaxBidiStreams)
	}
	return c, nil
}

// Close frees the socket.
func (b *Bare) Close() error {
	return errors.Join(b.dialler.Close(), b.dialler.Wait(context.Background()))
}

// bareClient is a QUIC connection without weida.
type bareClient struct {
	link    transport.Link
	parking *transport.Parking // nil where no receipts are held
}

func (c *bareClient) Ask(ctx context.Context, _ int64, sink bool) (Exchange, error) {
	w, r, err := c.link.OpenBi(ctx)
	if err != nil {
		return nil, err
	}
	kind := byte(kindEcho)
	if sink {
		kind = kindSink
	}
	if _, err := w.Write([]byte{kind}); err != nil {
		return nil, err
	}
	return &bareExchange{SendStream: w, ReceiveStream: r}, nil
}

func (c *bareClient) Push(ctx context.Context, body []byte) error {
	w, err := c.link.OpenUni(ctx)
	if err != nil {
		return err
	}
	if c.parking != nil {
		r, err := w.Receipt()
		if err != nil {
			return err
		}
		c.parking.Park(r)
	}
	if _, err := w.Write(body); err != nil {
		return err
	}
	return w.CloseWrite()
}

// Settle waits for the receipts that are held; without receipts there is nothing to wait for.
func (c *bareClient) Settle(ctx context.Context) (uint64, error) {
	if c.parking == nil {
		return 0, nil
	}
	_, outstanding := c.parking.Drain(ctx)
	return outstanding, nil
}

func (c *bareClient) Close() error {
	c.link.Close(transport.CodeNoError, "")
	return nil
}

// bareExchange is a two-way stream.
type bareExchange struct {
	transport.SendStream
	transport.ReceiveStream
}

func (x *bareExchange) CloseRequest() error { return x.CloseWrite() }

func (x *bareExchange) CloseReply() error { return atEnd(x.ReceiveStream) }

// atEnd reads the end of a reply, which frees its stream.
func atEnd(r io.Reader) error {
	n, err := io.Copy(io.Discard, r)
	if err == nil && n != 0 {
		err = fmt.Errorf("streams: %d bytes behind the reply", n)
	}
	return err
}
