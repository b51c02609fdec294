package wire

// Keys of SUBSCRIBE, UNSUBSCRIBE and CREDIT headers (weida-supplement §1.6 and §1.8).
const (
	subscriptionEndpoint = iota
	subscriptionFilter
	subscriptionLimit // CREDIT alone
)

// Subscription is the header of a SUBSCRIBE or an UNSUBSCRIBE, and names what a CREDIT is for.
type Subscription struct {
	// Endpoint is the path of a publisher or a queue.
	Endpoint string
	// Filter says which topics, by the grammar of CheckFilter. It may be empty.
	Filter string
}

// Credit is the header of a CREDIT: how many deliveries a subscription will ever take, counted from its beginning.
type Credit struct {
	Subscription
	Limit uint64
}

// AppendSubscribe appends a whole SUBSCRIBE frame. maxHeaderBytes is what the peer allows.
func AppendSubscribe(b []byte, s Subscription, maxHeaderBytes uint64) ([]byte, error) {
	return appendSubscription(b, KindSubscribe, s, Opt[uint64]{}, maxHeaderBytes)
}

// AppendUnsubscribe appends a whole UNSUBSCRIBE frame. maxHeaderBytes is what the peer allows.
func AppendUnsubscribe(b []byte, s Subscription, maxHeaderBytes uint64) ([]byte, error) {
	return appendSubscription(b, KindUnsubscribe, s, Opt[uint64]{}, maxHeaderBytes)
}

// AppendCredit appends a whole CREDIT frame. maxHeaderBytes is what the peer allows.
func AppendCredit(b []byte, c Credit, maxHeaderBytes uint64) ([]byte, error) {
	return appendSubscription(b, KindCredit, c.Subscription, Some(c.Limit), maxHeaderBytes)
}

func appendSubscription(b []byte, k Kind, s Subscription, limit Opt[uint64], maxHeaderBytes uint64) ([]byte, error) {
	b, start := beginFrame(b, k)
	w := beginMap(b)
	w.text(subscriptionEndpoint, s.Endpoint, MaxEndpointBytes)
	w.text(subscriptionFilter, s.Filter, MaxFilterBytes)
	w.optUint(subscriptionLimit, limit)
	if err := CheckFilter(s.Filter); err != nil {
		w.fail(err)
	}
	b, err := w.end()
	if err != nil {
		return nil, err
	}
	return endFrame(b, start, maxHeaderBytes)
}

// ParseSubscription reads a header that a preamble announced as SUBSCRIBE or UNSUBSCRIBE.
func ParseSubscription(header []byte) (Subscription, error) {
	c, err := parseSubscription(header, false)
	return c.Subscription, err
}

// ParseCredit reads a header that a preamble announced as CREDIT.
func ParseCredit(header []byte) (Credit, error) { return parseSubscription(header, true) }

func parseSubscription(header []byte, credit bool) (Credit, error) {
	var c Credit
	r := reader{header}
	m, err := r.pairs(ErrNotAMap)
	if err != nil {
		return Credit{}, err
	}
	var endpoint, filter Opt[string]
	var limit Opt[uint64]
	for {
		key, ok, err := m.next()
		if err != nil {
			return Credit{}, err
		}
		if !ok {
			break
		}
		switch {
		case key == subscriptionEndpoint:
			endpoint, err = r.optText(MaxEndpointBytes)
		case key == subscriptionFilter:
			filter, err = r.optText(MaxFilterBytes)
		case key == subscriptionLimit && credit:
			var v uint64
			v, err = r.uint()
			limit = Some(v)
		default:
			err = r.skip()
		}
		if err != nil {
			return Credit{}, err
		}
	}
	if err := r.end(); err != nil {
		return Credit{}, err
	}
	if !endpoint.Set || !filter.Set || credit && !limit.Set {
		return Credit{}, ErrMissingKey
	}
	if err := CheckFilter(filter.Value); err != nil {
		return Credit{}, err
	}
	c.Endpoint, c.Filter, c.Limit = endpoint.Value, filter.Value, limit.Value
	return c, nil
}

func (r *reader) optText(maxBytes int) (Opt[string], error) {
	s, err := r.str(majorText, maxBytes)
	return Some(string(s)), err
}
