package wire

import "fmt"

// Verdict is why bytes were refused. Each is an error.
type Verdict uint8

// The verdicts. They are named in conformance/vectors by what Name returns.
const (
	// ErrIncomplete: what is there is the beginning of something valid; more bytes are needed. Where no more will come, it is a violation.
	ErrIncomplete Verdict = iota + 1
	// ErrBadMagic: a stream does not begin with 0x57.
	ErrBadMagic
	// ErrUnknownKind: the frame kind is above 6.
	ErrUnknownKind
	// ErrHeaderTooLarge: the header is longer than the receiver allows. It is judged before anything is reserved for it.
	ErrHeaderTooLarge
	// ErrMalformed: the header is not one CBOR item, or ends too soon.
	ErrMalformed
	// ErrTrailing: bytes follow the header map.
	ErrTrailing
	// ErrNotAMap: the header is not a map.
	ErrNotAMap
	// ErrIndefinite: something in the header has an indefinite length.
	ErrIndefinite
	// ErrForbidden: a tag, a half float or a simple value that is not false, true, null or undefined.
	ErrForbidden
	// ErrTooDeep: a skipped value is nested more than 8 deep.
	ErrTooDeep
	// ErrKeyType: a map key is not an unsigned integer.
	ErrKeyType
	// ErrKeyOrder: a map key is not greater than the one before it.
	ErrKeyOrder
	// ErrValueType: a value is not of its key's type.
	ErrValueType
	// ErrTooLong: a string is longer than its key's cap, or not of the exact length that its key wants.
	ErrTooLong
	// ErrTooMany: a list has more items than its key's cap.
	ErrTooMany
	// ErrNotUTF8: a text string is not UTF-8.
	ErrNotUTF8
	// ErrMissingKey: a required key is absent, or one of two that travel together.
	ErrMissingKey
	// ErrValue: a value is not defined for its key.
	ErrValue
	// ErrListOrder: a list is not strictly ascending.
	ErrListOrder
	// ErrGuarantees: the combination of dimensions is forbidden, or a HELLO requires what it does not offer.
	ErrGuarantees
	// ErrFilter: a filter violates the grammar of §6.4.
	ErrFilter
	// ErrRange: a number cannot be written, as it is above 2^62-1.
	ErrRange

	lastVerdict = ErrRange
)

func verdictNames() [lastVerdict + 1]string {
	return [...]string{
		ErrIncomplete: "Incomplete", ErrBadMagic: "BadMagic", ErrUnknownKind: "UnknownKind", ErrHeaderTooLarge: "HeaderTooLarge",
		ErrMalformed: "Malformed", ErrTrailing: "Trailing", ErrNotAMap: "NotAMap", ErrIndefinite: "Indefinite", ErrForbidden: "Forbidden",
		ErrTooDeep: "TooDeep", ErrKeyType: "KeyType", ErrKeyOrder: "KeyOrder", ErrValueType: "ValueType", ErrTooLong: "TooLong",
		ErrTooMany: "TooMany", ErrNotUTF8: "NotUTF8", ErrMissingKey: "MissingKey", ErrValue: "Value", ErrListOrder: "ListOrder",
		ErrGuarantees: "Guarantees", ErrFilter: "Filter", ErrRange: "Range",
	}
}

// Verdicts returns every verdict.
func Verdicts() []Verdict {
	all := make([]Verdict, 0, lastVerdict)
	for v := ErrIncomplete; v <= lastVerdict; v++ {
		all = append(all, v)
	}
	return all
}

// Name returns the verdict as the conformance vectors write it.
func (v Verdict) Name() string {
	if names := verdictNames(); v >= ErrIncomplete && v <= lastVerdict {
		return names[v]
	}
	return fmt.Sprintf("Verdict(%d)", uint8(v))
}

// Error returns the verdict as an error.
func (v Verdict) Error() string { return "weida wire: " + v.Name() }
