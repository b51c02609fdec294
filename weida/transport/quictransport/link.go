package quictransport

import (
	"context"

	quic "github.com/quic-go/quic-go"

	"github.com/weir-agent/weir/weida/transport"
)

// link is a QUIC connection.
type link struct {
	conn    *quic.Conn
	info    transport.Info
	tracker *tracker // nil where no receipts are given
	gone    chan struct{}
}

var _ transport.Link = (*link)(nil)

// newLink returns the link over a connection whose handshake is complete. ended is called once when the connection has ended.
func newLink(conn *quic.Conn, dialled bool, ended func()) *link {
	l := &link{
		conn: conn,
		info: transport.Info{Peer: provedIdentity(conn), Local: conn.LocalAddr(), Remote: conn.RemoteAddr(), Dialled: dialled},
		gone: make(chan struct{}),
	}
	l.tracker, _ = conn.QlogTrace().(*tracker)
	context.AfterFunc(conn.Context(), func() {
		close(l.gone)
		if l.tracker != nil {
			l.tracker.fail(l.closeErr())
		}
		ended()
	})
	return l
}

// lost returns why the link has ended, of which a call has learned by err. quic-go tells its streams a moment before it ends the connection; nobody
// shall see a stream that failed on a link that seems to live.
func (l *link) lost(err error) error {
	<-l.gone
	return closeError(err)
}

// provedIdentity returns who the peer proved to be in the handshake.
func provedIdentity(conn *quic.Conn) transport.Identity {
	certs := conn.ConnectionState().TLS.PeerCertificates
	if len(certs) == 0 {
		return transport.Identity{}
	}
	return transport.KeyIdentity(transport.CertificateFingerprint(certs[0]))
}

func (l *link) closeErr() *transport.CloseError {
	return closeError(context.Cause(l.conn.Context()))
}

func (l *link) Info() transport.Info { return l.info }

func (l *link) Done() <-chan struct{} { return l.gone }

func (l *link) Err() error {
	select {
	case <-l.gone:
		return l.closeErr()
	default:
		return nil
	}
}

func (l *link) Close(code uint64, text string) {
	// It waits for quic-go to have sent its last packet, not for the peer, and always returns nil.
	_ = l.conn.CloseWithError(quic.ApplicationErrorCode(code), transport.CloseText(text))
	<-l.gone
}

func (l *link) OpenUni(ctx context.Context) (transport.SendStream, error) {
	s, err := l.conn.OpenUniStreamSync(ctx)
	if err != nil {
		return nil, l.openError(ctx, err)
	}
	return &sendStream{link: l, half: s}, nil
}

func (l *link) OpenBi(ctx context.Context) (transport.SendStream, transport.ReceiveStream, error) {
	s, err := l.conn.OpenStreamSync(ctx)
	if err != nil {
		return nil, nil, l.openError(ctx, err)
	}
	return &sendStream{link: l, half: s}, &receiveStream{link: l, half: s}, nil
}

func (l *link) AcceptUni(ctx context.Context) (transport.ReceiveStream, error) {
	s, err := l.conn.AcceptUniStream(ctx)
	if err != nil {
		return nil, l.openError(ctx, err)
	}
	return &receiveStream{link: l, half: s}, nil
}

func (l *link) AcceptBi(ctx context.Context) (transport.SendStream, transport.ReceiveStream, error) {
	s, err := l.conn.AcceptStream(ctx)
	if err != nil {
		return nil, nil, l.openError(ctx, err)
	}
	return &sendStream{link: l, half: s}, &receiveStream{link: l, half: s}, nil
}

// openError says why no stream was opened or accepted: ctx ended, or the link did.
func (l *link) openError(ctx context.Context, err error) error {
	if l.conn.Context().Err() == nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return l.lost(err)
}
