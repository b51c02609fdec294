package broker

import (
	"errors"
	"slices"

	"github.com/weir-agent/weir/weida/wire"
)

// Seq numbers the messages of one queue in the order of their admission. It starts at 1, and a store never lets one return for another message.
type Seq uint64

// ID is the record id that a producer put on a message (extension key 64). The zero ID means that there is none.
type ID [32]byte

// Message is what a queue keeps of a message. Nobody changes it once it was admitted.
type Message struct {
	ID          ID
	Topic       string
	ContentType string
	TraceParent string
	TraceState  string
	Body        []byte
}

// charge is what a message counts against the byte bound of its queue.
func (m *Message) charge() int {
	return MessageCharge + len(m.Topic) + len(m.ContentType) + len(m.TraceParent) + len(m.TraceState) + len(m.Body)
}

// OpKind says what an Op is.
type OpKind uint8

// The kinds of an Op.
const (
	// OpAdmit: the message is in the queue from now on.
	OpAdmit OpKind = 1
	// OpAttempt: the message is about to be handed out for the Attempt-th time.
	OpAttempt OpKind = 2
	// OpSettle: the message is done with. Its id stays in the window of known ids.
	OpSettle OpKind = 3
)

// Op is one change of a queue that a store makes durable.
type Op struct {
	Kind    OpKind
	Seq     Seq
	Message *Message // of OpAdmit
	Attempt uint64   // of OpAttempt
}

// Stored is a message that a store gave back.
type Stored struct {
	Seq     Seq
	Message *Message
	// Attempts is how often the message was handed out, as far as it is known.
	Attempts uint64
}

// State is what a store found when it was opened.
type State struct {
	// Messages are those that are not settled, in the order of their Seq.
	Messages []Stored
	// IDs are those of messages that were settled and whose repeats are still suppressed, oldest first.
	IDs []ID
	// Next is above every Seq that was ever stored.
	Next Seq
}

// Store keeps the changes of one queue. A queue has one store and calls it from one goroutine at a time.
type Store interface {
	// Load returns what is there. It is called once, before the first Append.
	Load() (State, error)
	// Append stores ops in their order and returns when they are as safe as Level says: nil if all are, else an error or
	// nil for each. What failed may be found by a later Load all the same. The messages stay the queue's; the store may keep them.
	Append(ops []Op) []error
	// Level is what a confirm may say about a message that was appended.
	Level() wire.Level
	// Close ends the use of the store. What was appended is there at the next opening, as far as Level says.
	Close() error
}

// ErrStoreClosed: the store was closed.
var ErrStoreClosed = errors.New("broker: the store is closed")

// Memory is a store that keeps nothing beyond the life of the process: its level is Accepted. The zero value is ready for use.
type Memory struct{ closed bool }

var _ Store = (*Memory)(nil)

// Load returns the state of an empty queue.
func (*Memory) Load() (State, error) { return State{Next: 1}, nil }

// Append returns nil: what a queue holds in memory is as safe as this store promises.
func (m *Memory) Append(ops []Op) []error {
	if m.closed {
		return slices.Repeat([]error{ErrStoreClosed}, len(ops))
	}
	return nil
}

// Level returns Accepted.
func (*Memory) Level() wire.Level { return wire.LevelAccepted }

// Close lets every later Append fail.
func (m *Memory) Close() error {
	m.closed = true
	return nil
}
