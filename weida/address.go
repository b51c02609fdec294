package weida

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/weir-agent/weir/weida/transport"
	"github.com/weir-agent/weir/weida/transport/localtransport"
)

// The schemes of addresses (weida-supplement §7). Each names its transport, and none falls back to another.
const (
	// Scheme is for what is reached over QUIC.
	Scheme = "weida"
	// SchemeInproc is for what is reached within a process.
	SchemeInproc = "weida+inproc"
	// SchemeUnix is for what is reached over a Unix socket.
	SchemeUnix = "weida+unix"
	// SchemePipe is for named pipes of Windows. Such an address can be read and not dialled.
	SchemePipe = "weida+pipe"
)

// Carrier is what an address is reached over.
type Carrier uint8

// The carriers, in the order of the schemes.
const (
	OverQUIC Carrier = iota
	OverInproc
	OverUnix
	OverPipe
)

// scheme returns the scheme of a carrier.
func (c Carrier) scheme() string { return [...]string{Scheme, SchemeInproc, SchemeUnix, SchemePipe}[c] }

const (
	// MaxPathBytes bounds an endpoint path (weida-supplement §14).
	MaxPathBytes = 512
	// maxHostBytes is the longest name that DNS can hold.
	maxHostBytes = 253
	// maxPipeBytes bounds the name of a pipe.
	maxPipeBytes = 256
)

// What an address or a path was refused for; the errors of ParseAddress and CheckPath wrap one of them.
var (
	// ErrInvalidAddress: the address does not follow the grammar.
	ErrInvalidAddress = errors.New("invalid address")
	// ErrInvalidEndpointPath: the path is empty, too long, or holds what a path may not.
	ErrInvalidEndpointPath = errors.New("invalid endpoint path")
	// ErrInvalidFingerprint: the fingerprint is not "sha256:" and 64 lower-case hexadecimal digits.
	ErrInvalidFingerprint = transport.ErrFingerprint
)

// Address says where to dial, which endpoint to ask for there and, if it names a fingerprint, who must answer:
//
//	weida://[sha256:<64 hex>@]host:port/path
//	weida+inproc://bus/path
//	weida+unix://<percent-encoded path of the socket>/path
//	weida+pipe://name/path
//
// It is comparable.
type Address struct {
	// Carrier says which of the following fields are set: Pin, Pinned, Host and Port for OverQUIC, Local for the others.
	Carrier Carrier
	// Local is the name of the bus or the pipe, or the path of the socket.
	Local string
	// Pin is the only peer that may answer, if Pinned is set. It overrides every trust.
	Pin    Fingerprint
	Pinned bool
	// Host is a name or an IP address as it was written, an IPv6 address without its brackets. It is also the name that
	// an anchor's certificate must be for.
	Host string
	// Port is 1 to 65535.
	Port uint16
	// Path names the endpoint. It begins with a slash and means nothing beyond being equal to another.
	Path string
}

// ParseAddress reads an address (weida-supplement §14). Its error wraps ErrInvalidAddress, ErrInvalidFingerprint or ErrInvalidEndpointPath.
func ParseAddress(s string) (Address, error) {
	scheme, rest, ok := strings.Cut(s, "://")
	if !ok {
		return Address{}, fmt.Errorf("%w: it does not begin with %s://", ErrInvalidAddress, Scheme)
	}
	authority, path := rest, ""
	if i := strings.IndexByte(rest, '/'); i >= 0 {
		authority, path = rest[:i], rest[i:]
	}
	a := Address{Path: path}
	var err error
	switch scheme {
	case Scheme:
		err = a.setRemote(authority)
	case SchemeInproc:
		a.Carrier, a.Local = OverInproc, authority
		err = checkBus(authority)
	case SchemeUnix:
		a.Carrier = OverUnix
		a.Local, err = socketPath(authority)
	case SchemePipe:
		a.Carrier, a.Local = OverPipe, authority
		err = checkPipe(authority)
	default:
		err = errors.New("its scheme is not known")
	}
	if err != nil {
		return Address{}, fmt.Errorf("%w: %w", ErrInvalidAddress, err)
	}
	if err := CheckPath(path); err != nil {
		return Address{}, err
	}
	return a, nil
}

// setRemote reads the authority of an address over QUIC.
func (a *Address) setRemote(authority string) error {
	if pin, host, ok := strings.Cut(authority, "@"); ok {
		f, err := ParseFingerprint(pin)
		if err != nil {
			return err
		}
		a.Pin, a.Pinned, authority = f, true, host
	}
	var err error
	a.Host, a.Port, err = splitHostPort(authority)
	return err
}

// checkBus refuses what cannot stand as a bus in an address. No key can be named there.
func checkBus(name string) error {
	if strings.ContainsAny(name, "/@") {
		return errors.New("the name of the bus holds a slash or an at sign")
	}
	return localtransport.CheckBus(name)
}

// socketPath reads the path of a socket. No key can be named before it.
func socketPath(authority string) (string, error) {
	if strings.Contains(authority, "@") {
		return "", errors.New("the path of the socket holds an at sign that is not percent-encoded")
	}
	path, err := url.PathUnescape(authority)
	if err != nil {
		return "", err
	}
	return path, localtransport.CheckSocket(path)
}

// checkPipe refuses what cannot be the name of a pipe.
func checkPipe(name string) error {
	if name == "" || len(name) > maxPipeBytes || strings.ContainsAny(name, `\@`) {
		return fmt.Errorf("the name of the pipe is not of 1 to %d bytes without a backslash or an at sign", maxPipeBytes)
	}
	return nil
}

// splitHostPort takes "host:port" or "[IPv6]:port" apart.
func splitHostPort(s string) (string, uint16, error) {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return "", 0, errors.New("it wants host:port, an IPv6 address in brackets")
	}
	if strings.HasPrefix(s, "[") {
		if ip, err := netip.ParseAddr(host); err != nil || !ip.Is6() {
			return "", 0, errors.New("what is in brackets is not an IPv6 address")
		}
	} else if err := checkName(host); err != nil {
		return "", 0, err
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 || port[0] == '0' || port[0] == '+' {
		return "", 0, errors.New("the port is not a number from 1 to 65535")
	}
	return host, uint16(n), nil
}

// checkName accepts what can be a host name or an IPv4 address, and leaves to the resolver whether it is one.
func checkName(host string) error {
	if host == "" || len(host) > maxHostBytes {
		return fmt.Errorf("the host is not of 1 to %d bytes", maxHostBytes)
	}
	for _, c := range []byte(host) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '.', c == '_':
		default:
			return fmt.Errorf("the host holds the byte 0x%02x", c)
		}
	}
	return nil
}

// CheckPath refuses what cannot be an endpoint path: it begins with a slash, is UTF-8 of 1 to MaxPathBytes bytes, and holds no byte
// below 0x20. Its error wraps ErrInvalidEndpointPath.
func CheckPath(path string) error {
	switch {
	case !strings.HasPrefix(path, "/"):
		return fmt.Errorf("%w: it does not begin with a slash", ErrInvalidEndpointPath)
	case len(path) > MaxPathBytes:
		return fmt.Errorf("%w: it is longer than %d bytes", ErrInvalidEndpointPath, MaxPathBytes)
	case !utf8.ValidString(path):
		return fmt.Errorf("%w: it is not UTF-8", ErrInvalidEndpointPath)
	case strings.ContainsFunc(path, func(r rune) bool { return r < 0x20 }):
		return fmt.Errorf("%w: it holds a control character", ErrInvalidEndpointPath)
	}
	return nil
}

// Authority returns what stands between the scheme and the path, without a pin: host:port with an IPv6 address in brackets, or the local name, percent-encoded for a socket.
func (a Address) Authority() string {
	switch a.Carrier {
	case OverUnix:
		return strings.ReplaceAll(url.PathEscape(a.Local), "@", "%40")
	case OverInproc, OverPipe:
		return a.Local
	case OverQUIC:
	}
	return net.JoinHostPort(a.Host, strconv.FormatUint(uint64(a.Port), 10))
}

// WithPin returns the address with the only peer that may answer.
func (a Address) WithPin(f Fingerprint) Address {
	a.Pin, a.Pinned = f, true
	return a
}

// String returns the address as ParseAddress reads it.
func (a Address) String() string {
	pin := ""
	if a.Pinned {
		pin = a.Pin.String() + "@"
	}
	return a.Carrier.scheme() + "://" + pin + a.Authority() + a.Path
}
