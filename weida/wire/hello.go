package wire

// Keys of a HELLO (weida-supplement §1.3).
const (
	helloVersions = iota
	helloMaxHeaderBytes
	helloMaxTransfers
	helloCapabilities
	helloRequiredCapabilities
	helloOffered
	helloRequired
)

// Hello is the header of a HELLO, what one side says of itself (§6.1).
type Hello struct {
	// Versions are the wire versions that the sender speaks, at most MaxListItems.
	Versions []uint64
	// MaxHeaderBytes is the longest header that the sender will receive.
	MaxHeaderBytes uint64
	// MaxTransfers is how many transfers at once the sender would like to receive. Nothing enforces it.
	MaxTransfers uint64
	// Capabilities and RequiredCapabilities are codes, at most MaxListItems each. None is assigned.
	Capabilities, RequiredCapabilities []uint64
	// Offered is what the sender can honour, and Required what it demands of the link; it may not demand what it cannot honour.
	Offered, Required Guarantees
}

// AppendHello appends a whole HELLO frame. It fails with the Verdict by which a receiver would refuse it.
func AppendHello(b []byte, h *Hello) ([]byte, error) {
	if err := h.check(); err != nil {
		return nil, err
	}
	b, start := beginFrame(b, KindHello)
	w := beginMap(b)
	w.list(helloVersions, h.Versions, MaxListItems)
	w.uint(helloMaxHeaderBytes, h.MaxHeaderBytes)
	w.uint(helloMaxTransfers, h.MaxTransfers)
	w.list(helloCapabilities, h.Capabilities, MaxListItems)
	w.list(helloRequiredCapabilities, h.RequiredCapabilities, MaxListItems)
	w.guarantees(helloOffered, h.Offered)
	w.guarantees(helloRequired, h.Required)
	b, err := w.end()
	if err != nil {
		return nil, err
	}
	return endFrame(b, start, DefaultMaxHeaderBytes)
}

// ParseHello reads a header that a preamble announced as HELLO. The lists are the caller's.
func ParseHello(header []byte) (Hello, error) {
	var h Hello
	r := reader{header}
	m, err := r.pairs(ErrNotAMap)
	if err != nil {
		return Hello{}, err
	}
	seen := 0
	for {
		key, ok, err := m.next()
		if err != nil {
			return Hello{}, err
		}
		if !ok {
			break
		}
		if key <= helloRequiredCapabilities {
			seen++
		}
		if err := h.field(&r, key); err != nil {
			return Hello{}, err
		}
	}
	if seen <= helloRequiredCapabilities {
		return Hello{}, ErrMissingKey
	}
	if err := r.end(); err != nil {
		return Hello{}, err
	}
	return h, h.check()
}

// field reads the value of one key.
func (h *Hello) field(r *reader, key uint64) (err error) {
	switch key {
	case helloVersions:
		h.Versions, err = r.list(MaxListItems)
	case helloMaxHeaderBytes:
		h.MaxHeaderBytes, err = r.uint()
	case helloMaxTransfers:
		h.MaxTransfers, err = r.uint()
	case helloCapabilities:
		h.Capabilities, err = r.list(MaxListItems)
	case helloRequiredCapabilities:
		h.RequiredCapabilities, err = r.list(MaxListItems)
	case helloOffered:
		h.Offered, err = r.guarantees()
	case helloRequired:
		h.Required, err = r.guarantees()
	default:
		err = r.skip()
	}
	return err
}

// check refuses sets that are forbidden and a demand above the own offer.
func (h *Hello) check() error {
	for _, g := range []Guarantees{h.Offered, h.Required} {
		if err := g.Check(); err != nil {
			return err
		}
	}
	if h.Offered.lacks(h.Required) != "" {
		return ErrGuarantees
	}
	return nil
}
