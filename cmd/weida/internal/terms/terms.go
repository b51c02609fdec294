// Package terms holds who a command of weida is and whom it trusts: the flags for it, and what they come to.
package terms

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"github.com/weir-agent/weir/cmd/weida/internal/exit"
	"github.com/weir-agent/weir/weida"
)

// identityVariable names the directory of the identity where no flag does.
const identityVariable = "WEIDA_IDENTITY"

// Identity is the flag for the directory of the identity.
type Identity struct{ dir string }

// Register adds the flag.
func (i *Identity) Register(fs *pflag.FlagSet) {
	fs.StringVar(&i.dir, "identity", "", "directory of this side's key, made on first use (default from "+identityVariable+", else weida/ in your configuration folder)")
}

// Dir is the directory.
func (i *Identity) Dir() (string, error) {
	if i.dir != "" {
		return i.dir, nil
	}
	if dir := os.Getenv(identityVariable); dir != "" {
		return dir, nil
	}
	config, err := os.UserConfigDir()
	if err != nil {
		return "", exit.Usage(fmt.Errorf("no place for an identity (%w): give --identity", err))
	}
	return filepath.Join(config, "weida"), nil
}

// Open opens the identity, or makes it.
func (i *Identity) Open() (*weida.IdentityDir, error) {
	dir, err := i.Dir()
	if err != nil {
		return nil, err
	}
	return weida.OpenIdentityDir(dir)
}

// trust is whom flags name.
func trust(pins []string, anchors string) (weida.Trust, error) {
	var t weida.Trust
	for _, s := range pins {
		f, err := weida.ParseFingerprint(s)
		if err != nil {
			return t, exit.Usage(fmt.Errorf("%q: %w", s, err))
		}
		t = t.WithPins(f)
	}
	if anchors == "" {
		return t, nil
	}
	t, err := t.WithAnchorFile(anchors)
	return t, exit.Usage(err)
}

// Client is the flags of a command that dials.
type Client struct {
	Identity
	anonymous bool
	pins      []string
	anchors   string
}

// Register adds the flags.
func (c *Client) Register(fs *pflag.FlagSet) {
	c.Identity.Register(fs)
	fs.BoolVar(&c.anonymous, "anonymous", false, "prove no identity")
	fs.StringArrayVar(&c.pins, "trust", nil, "fingerprint that may answer where the address names none (repeatable)")
	fs.StringVar(&c.anchors, "trust-ca", "", "file with certificates (PEM) that vouch for who may answer")
}

// TLS returns the terms on which an address is dialled. Within the machine there are none.
func (c *Client) TLS(a weida.Address) (weida.ClientTLS, error) {
	if a.Carrier != weida.OverQUIC {
		return weida.ClientTLS{}, nil
	}
	t, err := trust(c.pins, c.anchors)
	if err != nil {
		return weida.ClientTLS{}, err
	}
	if c.anonymous {
		return weida.ClientTLS{Trust: t}, nil
	}
	id, err := c.Open()
	if err != nil {
		return weida.ClientTLS{}, err
	}
	return weida.ClientTLS{Trust: t, Identity: id}, nil
}

// Server is the flags of a command that is dialled.
type Server struct {
	Identity
	pins    []string
	anchors string
}

// Register adds the flags.
func (s *Server) Register(fs *pflag.FlagSet) {
	s.Identity.Register(fs)
	fs.StringArrayVar(&s.pins, "allow", nil, "fingerprint that may connect (repeatable; without --allow and --allow-ca anybody may)")
	fs.StringVar(&s.anchors, "allow-ca", "", "file with certificates (PEM) that vouch for who may connect")
}

// TLS returns the terms of a binding.
func (s *Server) TLS() (weida.ServerTLS, error) {
	id, err := s.Open()
	if err != nil {
		return weida.ServerTLS{}, err
	}
	terms := weida.ServerTLS{Identity: id}
	if len(s.pins) > 0 || s.anchors != "" {
		t, err := trust(s.pins, s.anchors)
		if err != nil {
			return weida.ServerTLS{}, err
		}
		terms.ClientTrust = &t
	}
	return terms, nil
}

// Place is where a command is to be bound.
type Place struct {
	// Path is the path that the address names.
	Path   string
	quic   string // host:port; empty for a socket
	socket weida.Address
}

// Bound is where a command is bound.
type Bound struct {
	*weida.Binding
	// Authority is what peers put before a path, with the fingerprint to expect: weida://sha256:…@host:port.
	Authority string
	// Open reports whether anybody who reaches it may connect.
	Open bool
}

// errUseless is for the in-process scheme, on which no other process can meet a command.
var errUseless = errors.New(weida.SchemeInproc + " reaches nobody outside of this process: use " + weida.Scheme + " or " + weida.SchemeUnix)

// ParseAddress reads an address that is dialled.
func ParseAddress(s string) (weida.Address, error) {
	a, err := weida.ParseAddress(s)
	if err == nil && a.Carrier == weida.OverInproc {
		err = errUseless
	}
	if err != nil {
		return weida.Address{}, exit.Usage(fmt.Errorf("%s: %w", s, err))
	}
	return a, nil
}

// ParsePlace reads an address to bind at: weida://host:port/path, where the host may be left out for every interface and the port may be 0 for a free one, or
// weida+unix://<percent-encoded path of the socket>/path.
func ParsePlace(address string) (Place, error) {
	remote, ok := strings.CutPrefix(address, weida.Scheme+"://")
	if !ok {
		a, err := ParseAddress(address)
		if err == nil && a.Carrier != weida.OverUnix {
			err = exit.Usage(fmt.Errorf("%s: %w", address, weida.ErrUnsupported))
		}
		return Place{Path: a.Path, socket: a}, err
	}
	i := strings.IndexByte(remote, '/')
	if i < 0 || strings.Contains(remote[:i], "@") {
		return Place{}, exit.Usage(fmt.Errorf("%s: %w: it wants %s://host:port/path, without a fingerprint", address, weida.ErrInvalidAddress, weida.Scheme))
	}
	return Place{Path: remote[i:], quic: remote[:i]}, exit.Usage(weida.CheckPath(remote[i:]))
}

// Bind makes a listener reachable at a place.
func (s *Server) Bind(l *weida.Listener, p Place) (*Bound, error) {
	if p.quic == "" {
		b, err := l.BindUnix(p.socket.Local)
		if err != nil {
			return nil, err
		}
		return &Bound{Binding: b, Authority: weida.SchemeUnix + "://" + p.socket.Authority()}, nil
	}
	terms, err := s.TLS()
	if err != nil {
		return nil, err
	}
	b, err := l.BindQUIC(p.quic, terms)
	if err != nil {
		return nil, err
	}
	id, err := terms.Identity.Current()
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return &Bound{Binding: b, Open: terms.ClientTrust == nil, Authority: fmt.Sprintf("%s://%s@%s", weida.Scheme, id.Fingerprint(), reachable(b.Addr()))}, nil
}

// reachable is the address at which others may find a socket: its own, or the name of the host where it listens on every interface.
func reachable(addr net.Addr) string {
	host, port, err := net.SplitHostPort(addr.String())
	if err != nil {
		return addr.String()
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "localhost"
		if name, err := os.Hostname(); err == nil {
			host = name
		}
	}
	return net.JoinHostPort(host, port)
}
