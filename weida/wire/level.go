package wire

import "fmt"

// Level is a completion level of a report or a confirm. Levels 0 to 15 are the specification's ladder, of which 0 to 5 are defined; from 16 on they are
// an application's own stages, which weida carries and never interprets (§6.2).
type Level uint64

// The defined levels.
const (
	LevelNone             Level = 0
	LevelTransportReceipt Level = 1
	LevelAccepted         Level = 2
	LevelStored           Level = 3
	LevelReplicated       Level = 4
	LevelProcessed        Level = 5
	// FirstApplicationLevel is the lowest level that an application may give a meaning.
	FirstApplicationLevel Level = 16
)

// Defined reports whether the level may be sent: one of the ladder that has a meaning, or an application's.
func (l Level) Defined() bool { return l <= LevelProcessed || l >= FirstApplicationLevel }

// String returns the name of a defined level, or the number.
func (l Level) String() string {
	names := [...]string{"none", "transport receipt", "accepted", "stored", "replicated", "processed"}
	if l < Level(len(names)) {
		return names[l]
	}
	return fmt.Sprintf("level %d", uint64(l))
}
