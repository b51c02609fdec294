package wire

import "fmt"

// Keys of a guarantee set (weida-supplement §1.7).
const (
	guaranteeDelivery = iota
	guaranteeAcknowledgement
	guaranteeDurability
	guaranteeReplicas
	guaranteeOrdering
	guaranteeDeduplication
	guaranteeDedupWindow
	guaranteeBackpressure
	guaranteeProducerNaming
	guaranteeControlIsolated
)

// Guarantees is one level for each dimension (§6.5). The zero value is core, which every peer has that declares nothing.
type Guarantees struct {
	Delivery        Delivery
	Acknowledgement Acknowledgement
	// Durability qualifies AckStored and AckReplicated, and may be set with those alone.
	Durability Durability
	// Replicas, 2 or more with the leader, qualifies AckReplicated and may be set with it alone. 0 says nothing.
	Replicas      uint64
	Ordering      Ordering
	Deduplication Deduplication
	// DedupWindowMillis is the window of DedupBounded and 0 otherwise.
	DedupWindowMillis uint64
	Backpressure      Backpressure
	ProducerNaming    ProducerNaming
	ControlIsolated   bool
}

// Delivery is how often a message arrives.
type Delivery uint8

// The delivery ladder.
const (
	BestEffort Delivery = iota
	AtMostOnce
	AtLeastOnce
)

// Acknowledgement is the level that the link can report. Its zero value is core's; on the wire each is one more.
type Acknowledgement int8

// The acknowledgement ladder.
const (
	AckNone             Acknowledgement = -1
	AckTransportReceipt Acknowledgement = 0
	AckAccepted         Acknowledgement = 1
	AckStored           Acknowledgement = 2
	AckReplicated       Acknowledgement = 3
	AckProcessed        Acknowledgement = 4
)

// Durability says what a stored message survives. Its zero value says nothing; on the wire each is one less.
type Durability uint8

// The durability axis.
const (
	DurabilityUnstated Durability = iota
	// Written survives the death of the process.
	Written
	// Flushed survives a power cut.
	Flushed
)

// Ordering is which order of transfers the link keeps or tells.
type Ordering uint8

// The ordering ladder.
const (
	OrderNone Ordering = iota
	// OrderDetect numbers a producer's transfers, so that the receiver sees gaps.
	OrderDetect
	// OrderReassemble holds transfers back until their predecessors are there.
	OrderReassemble
	OrderPerKey
	OrderTotal
)

// Deduplication is which repeats the receiver drops.
type Deduplication uint8

// The deduplication ladder.
const (
	DedupNone Deduplication = iota
	// DedupBounded drops repeats within a window.
	DedupBounded
	DedupDurable
)

// Backpressure is what happens to a message for which there is no room. Its values are not ordered.
type Backpressure uint8

// The kinds of backpressure.
const (
	Block Backpressure = iota
	RejectOverflow
	DropOverflow
	Spill
	Coalesce
)

// ProducerNaming is how a producer is named. Its values are not ordered.
type ProducerNaming uint8

// The kinds of producer names.
const (
	NamedByFingerprint ProducerNaming = iota
	NamedStably
)

// stored reports whether the level may be qualified by a durability.
func (a Acknowledgement) stored() bool { return a == AckStored || a == AckReplicated }

// Check fails with ErrValue for a value that is not defined and with ErrGuarantees for a combination that is forbidden.
func (g Guarantees) Check() error {
	switch {
	case g.Delivery > AtLeastOnce, g.Acknowledgement < AckNone, g.Acknowledgement > AckProcessed, g.Durability > Flushed,
		g.Ordering > OrderTotal, g.Deduplication > DedupDurable, g.Backpressure > Coalesce, g.ProducerNaming > NamedStably:
		return ErrValue
	case g.Durability != DurabilityUnstated && !g.Acknowledgement.stored(),
		g.Replicas != 0 && (g.Acknowledgement != AckReplicated || g.Replicas < 2),
		g.DedupWindowMillis != 0 && g.Deduplication != DedupBounded,
		g.Backpressure == Coalesce && g.Ordering == OrderReassemble:
		return ErrGuarantees
	}
	return nil
}

// guarantees writes a set under a key, unless it is core.
func (w *mapWriter) guarantees(key uint64, g Guarantees) {
	if g == (Guarantees{}) {
		return
	}
	w.key(key)
	set := beginMap(w.b)
	level := func(k, v uint64) {
		if v != 0 {
			set.uint(k, v)
		}
	}
	level(guaranteeDelivery, uint64(g.Delivery))
	if g.Acknowledgement != AckTransportReceipt {
		set.uint(guaranteeAcknowledgement, uint64(g.Acknowledgement+1))
	}
	if g.Durability != DurabilityUnstated {
		set.uint(guaranteeDurability, uint64(g.Durability-1))
	}
	level(guaranteeReplicas, g.Replicas)
	level(guaranteeOrdering, uint64(g.Ordering))
	level(guaranteeDeduplication, uint64(g.Deduplication))
	if g.Deduplication == DedupBounded {
		set.uint(guaranteeDedupWindow, g.DedupWindowMillis)
	}
	level(guaranteeBackpressure, uint64(g.Backpressure))
	level(guaranteeProducerNaming, uint64(g.ProducerNaming))
	if g.ControlIsolated {
		set.uint(guaranteeControlIsolated, 1)
	}
	b, err := set.end()
	if err != nil {
		w.fail(err)
		return
	}
	w.b = b
}

// guarantees reads a set and checks it.
func (r *reader) guarantees() (Guarantees, error) {
	var g Guarantees
	m, err := r.pairs(ErrValueType)
	if err != nil {
		return Guarantees{}, err
	}
	window := false
	for {
		key, ok, err := m.next()
		if err != nil {
			return Guarantees{}, err
		}
		if !ok {
			break
		}
		if key > guaranteeControlIsolated {
			if err := r.skip(); err != nil {
				return Guarantees{}, err
			}
			continue
		}
		v, err := r.uint()
		if err == nil {
			err = g.set(key, v)
		}
		if err != nil {
			return Guarantees{}, err
		}
		window = window || key == guaranteeDedupWindow
	}
	if window != (g.Deduplication == DedupBounded) {
		return Guarantees{}, ErrGuarantees
	}
	return g, g.Check()
}

// set sets one dimension to a value of the wire, and fails with ErrValue if it is not defined.
func (g *Guarantees) set(key, v uint64) error {
	limits := [...]uint64{
		guaranteeDelivery: uint64(AtLeastOnce), guaranteeAcknowledgement: uint64(AckProcessed + 1), guaranteeDurability: uint64(Flushed - 1),
		guaranteeReplicas: 1<<64 - 1, guaranteeOrdering: uint64(OrderTotal), guaranteeDeduplication: uint64(DedupDurable),
		guaranteeDedupWindow: 1<<64 - 1, guaranteeBackpressure: uint64(Coalesce), guaranteeProducerNaming: uint64(NamedStably),
		guaranteeControlIsolated: 1,
	}
	if v > limits[key] {
		return ErrValue
	}
	switch key {
	case guaranteeDelivery:
		g.Delivery = Delivery(v)
	case guaranteeAcknowledgement:
		g.Acknowledgement = Acknowledgement(v) - 1
	case guaranteeDurability:
		g.Durability = Durability(v) + 1
	case guaranteeReplicas:
		if v < 2 {
			return ErrGuarantees // 0 would read as unstated
		}
		g.Replicas = v
	case guaranteeOrdering:
		g.Ordering = Ordering(v)
	case guaranteeDeduplication:
		g.Deduplication = Deduplication(v)
	case guaranteeDedupWindow:
		g.DedupWindowMillis = v
	case guaranteeBackpressure:
		g.Backpressure = Backpressure(v)
	case guaranteeProducerNaming:
		g.ProducerNaming = ProducerNaming(v)
	case guaranteeControlIsolated:
		g.ControlIsolated = v == 1
	}
	return nil
}

// lacks returns the first dimension on which g does not reach want, or nothing.
func (g Guarantees) lacks(want Guarantees) string {
	switch {
	case g.Delivery < want.Delivery:
		return "delivery"
	case g.Acknowledgement < want.Acknowledgement:
		return "acknowledgement"
	case g.Durability < want.Durability:
		return "durability"
	case g.Replicas < want.Replicas:
		return "replicas"
	case g.Ordering < want.Ordering:
		return "ordering"
	case g.Deduplication < want.Deduplication,
		g.Deduplication == want.Deduplication && g.DedupWindowMillis < want.DedupWindowMillis:
		return "deduplication"
	case g.Backpressure != want.Backpressure:
		return "backpressure"
	case g.ProducerNaming != want.ProducerNaming:
		return "producer naming"
	case want.ControlIsolated && !g.ControlIsolated:
		return "control isolation"
	}
	return ""
}

// String returns the dimensions that differ from core, as the wire writes them: "4:1 5:1 6:500", or "core".
func (g Guarantees) String() string {
	w := beginMap(nil)
	w.guarantees(0, g)
	if w.pairs == 0 {
		return "core"
	}
	r := reader{w.b[2:]} // behind the outer map and the key
	m, err := r.pairs(ErrValueType)
	s := ""
	for err == nil {
		var key, v uint64
		var ok bool
		if key, ok, err = m.next(); !ok || err != nil {
			break
		}
		if v, err = r.uint(); err == nil {
			s += fmt.Sprintf(" %d:%d", key, v)
		}
	}
	return s[min(1, len(s)):]
}
