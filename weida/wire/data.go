package wire

// Keys of a DATA header (weida-supplement §1.4).
const (
	dataEndpoint = iota
	dataContentLen
	dataContentType
	dataTraceparent
	dataTracestate
	dataTopic
	dataSequence
	dataProducer
	dataAchieved
	dataReportID
	dataReport
	dataReportMode
	dataDeliveryAttempt
)

const (
	reportProgress  = 0
	reportFinalOnly = 1
	// firstRepeat is the lowest delivery attempt that is written.
	firstRepeat = 2
)

// Data is the header of a DATA frame, of which every field may be absent (§6.2). The strings of a parsed header share one copy of it.
type Data struct {
	// Endpoint is the path addressed. Whoever opens a stream must say it; on a reply half it means nothing.
	Endpoint Opt[string]
	// ContentLen is how long the payload will be, in bytes, for information alone: nothing may be reserved or refused because of it.
	ContentLen  Opt[uint64]
	ContentType Opt[string]
	// Traceparent and Tracestate are the W3C trace context, not interpreted here.
	Traceparent, Tracestate Opt[string]
	// Topic is opaque and never a pattern.
	Topic Opt[string]
	// Sequence counts a producer's transfers in one scope, where ordering was negotiated.
	Sequence Opt[uint64]
	// Producer is the key's digest of a producer that is not the peer of the link.
	Producer Opt[[ProducerBytes]byte]
	// Achieved is the level that this hop has reached for the message that it answers. It stands on reply halves.
	Achieved Opt[Level]
	// Report orders a report on this transfer.
	Report Opt[Report]
	// DeliveryAttempt is how often a queue has handed this message out, this time included. 0 and 1 both mean the first time, which is not written.
	DeliveryAttempt uint64
	// Extensions are values of keys from FirstExtension on, ascending by key.
	Extensions []Extension
}

// Report is an order for a report.
type Report struct {
	// ID names the report on a cursor stream. 0 is never allocated.
	ID uint64
	// Levels are at most MaxReportLevels, strictly ascending, each defined.
	Levels []Level
	// FinalOnly wants one record for each level, at the end.
	FinalOnly bool
}

// Extension is a byte string under a key that the specification leaves to applications. Other types of values are skipped.
type Extension struct {
	Key   uint64
	Value string
}

// Extension returns the value of an extension key, and whether it is there.
func (d *Data) Extension(key uint64) (string, bool) {
	for _, e := range d.Extensions {
		if e.Key == key {
			return e.Value, true
		}
	}
	return "", false
}

// AppendData appends preamble and header; the payload follows it. maxHeaderBytes is what the peer allows. It fails with the Verdict by
// which a receiver would refuse the header.
func AppendData(b []byte, d *Data, maxHeaderBytes uint64) ([]byte, error) {
	b, start := beginFrame(b, KindData)
	w := beginMap(b)
	w.optText(dataEndpoint, d.Endpoint, MaxEndpointBytes)
	w.optUint(dataContentLen, d.ContentLen)
	w.optText(dataContentType, d.ContentType, MaxContentTypeBytes)
	w.optText(dataTraceparent, d.Traceparent, MaxTraceparentBytes)
	w.optText(dataTracestate, d.Tracestate, MaxTracestateBytes)
	w.optText(dataTopic, d.Topic, MaxTopicBytes)
	w.optUint(dataSequence, d.Sequence)
	if p, ok := d.Producer.Get(); ok {
		w.key(dataProducer)
		w.b = append(appendHead(w.b, majorBytes, ProducerBytes), p[:]...)
	}
	if l, ok := d.Achieved.Get(); ok {
		if l > LevelProcessed {
			w.fail(ErrValue)
		}
		w.uint(dataAchieved, uint64(l))
	}
	if r, ok := d.Report.Get(); ok {
		w.report(r)
	}
	if d.DeliveryAttempt >= firstRepeat {
		w.uint(dataDeliveryAttempt, d.DeliveryAttempt)
	}
	w.extensions(d.Extensions)
	b, err := w.end()
	if err != nil {
		return nil, err
	}
	return endFrame(b, start, maxHeaderBytes)
}

func (w *mapWriter) optText(k uint64, s Opt[string], maxBytes int) {
	if s.Set {
		w.text(k, s.Value, maxBytes)
	}
}

func (w *mapWriter) optUint(k uint64, v Opt[uint64]) {
	if v.Set {
		w.uint(k, v.Value)
	}
}

func (w *mapWriter) report(r Report) {
	if len(r.Levels) > MaxReportLevels {
		w.fail(ErrTooMany)
	}
	if err := checkLevels(r.Levels); err != nil {
		w.fail(err)
	}
	w.uint(dataReportID, r.ID)
	w.key(dataReport)
	w.b = appendHead(w.b, majorArray, uint64(len(r.Levels)))
	for _, l := range r.Levels {
		w.b = appendHead(w.b, majorUint, uint64(l))
	}
	if r.FinalOnly {
		w.uint(dataReportMode, reportFinalOnly)
	}
}

func (w *mapWriter) extensions(all []Extension) {
	if len(all) > MaxExtensions {
		w.fail(ErrTooMany)
		return
	}
	last := uint64(FirstExtension - 1)
	for _, e := range all {
		if e.Key <= last {
			w.fail(ErrKeyOrder)
		}
		w.bytes(e.Key, e.Value)
		last = e.Key
	}
}

// checkLevels refuses undefined levels and any order but a strictly ascending one.
func checkLevels(levels []Level) error {
	for i, l := range levels {
		if !l.Defined() {
			return ErrValue
		}
		if i > 0 && l <= levels[i-1] {
			return ErrListOrder
		}
	}
	return nil
}

// dataParser holds what is known of a header while its keys are read.
type dataParser struct {
	reader
	data      Data
	whole     string // a copy of the header, made for the first string
	size      int
	reportID  Opt[uint64]
	levels    []Level
	hasLevels bool
	finalOnly bool
}

// ParseData reads a header that a preamble announced as DATA. Nothing of the result aliases header. It allocates once for a header with strings, and
// once more each for a report and for extensions.
func ParseData(header []byte) (Data, error) {
	p := dataParser{reader: reader{header}, size: len(header)}
	m, err := p.pairs(ErrNotAMap)
	if err != nil {
		return Data{}, err
	}
	for {
		key, ok, err := m.next()
		if err != nil {
			return Data{}, err
		}
		if !ok {
			break
		}
		if err := p.field(header, key); err != nil {
			return Data{}, err
		}
	}
	if err := p.end(); err != nil {
		return Data{}, err
	}
	if p.reportID.Set != p.hasLevels {
		return Data{}, ErrMissingKey
	}
	if p.hasLevels {
		p.data.Report = Some(Report{ID: p.reportID.Value, Levels: p.levels, FinalOnly: p.finalOnly})
	}
	return p.data, nil
}

// field reads the value of one key.
func (p *dataParser) field(header []byte, key uint64) error {
	d := &p.data
	switch key {
	case dataEndpoint:
		return p.text(header, &d.Endpoint, MaxEndpointBytes)
	case dataContentLen:
		return p.number(&d.ContentLen)
	case dataContentType:
		return p.text(header, &d.ContentType, MaxContentTypeBytes)
	case dataTraceparent:
		return p.text(header, &d.Traceparent, MaxTraceparentBytes)
	case dataTracestate:
		return p.text(header, &d.Tracestate, MaxTracestateBytes)
	case dataTopic:
		return p.text(header, &d.Topic, MaxTopicBytes)
	case dataSequence:
		return p.number(&d.Sequence)
	case dataProducer:
		return p.producer()
	case dataAchieved:
		v, err := p.uint()
		if err == nil && Level(v) > LevelProcessed {
			err = ErrValue
		}
		d.Achieved = Some(Level(v))
		return err
	case dataReportID:
		return p.number(&p.reportID)
	case dataReport:
		return p.report()
	case dataReportMode:
		v, err := p.uint()
		if err == nil && v > reportFinalOnly {
			err = ErrValue
		}
		p.finalOnly = v != reportProgress
		return err
	case dataDeliveryAttempt:
		v, err := p.uint()
		if v >= firstRepeat {
			d.DeliveryAttempt = v
		}
		return err
	}
	if key >= FirstExtension && len(p.b) > 0 && p.b[0]>>majorShift == majorBytes && len(d.Extensions) < MaxExtensions {
		return p.extension(header, key)
	}
	return p.skip()
}

// copied returns s, a part of header that ends where the reader stands, as a part of the one copy of header.
func (p *dataParser) copied(header, s []byte) string {
	if p.whole == "" {
		p.whole = string(header)
	}
	end := p.size - len(p.b)
	return p.whole[end-len(s) : end]
}

func (p *dataParser) text(header []byte, into *Opt[string], maxBytes int) error {
	s, err := p.str(majorText, maxBytes)
	if err != nil {
		return err
	}
	*into = Some(p.copied(header, s))
	return nil
}

func (p *dataParser) number(into *Opt[uint64]) error {
	v, err := p.uint()
	*into = Some(v)
	return err
}

func (p *dataParser) producer() error {
	s, err := p.str(majorBytes, ProducerBytes)
	if err != nil {
		return err
	}
	if len(s) != ProducerBytes {
		return ErrTooLong
	}
	p.data.Producer = Some([ProducerBytes]byte(s))
	return nil
}

func (p *dataParser) report() error {
	items, err := p.list(MaxReportLevels)
	if err != nil {
		return err
	}
	p.levels, p.hasLevels = make([]Level, len(items)), true
	for i, v := range items {
		p.levels[i] = Level(v)
	}
	return checkLevels(p.levels)
}

func (p *dataParser) extension(header []byte, key uint64) error {
	n, err := p.typed(majorBytes)
	if err != nil {
		return err
	}
	s, err := p.take(majorBytes, n)
	if err != nil {
		return err
	}
	p.data.Extensions = append(p.data.Extensions, Extension{Key: key, Value: p.copied(header, s)})
	return nil
}
