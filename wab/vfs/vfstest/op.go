package vfstest

import (
	"fmt"
	"strings"
)

// Kind is a kind of operation, or a set of kinds joined by |.
type Kind uint32

// The operations of vfs.FS and vfs.File.
const (
	Create Kind = 1 << iota
	Open
	OpenRead
	Mkdir
	Rename
	Remove
	ReadDir
	SyncDir
	Lock
	Space
	ReadAt
	WriteAt
	Close
	SyncData
	Preallocate
	Truncate
	Size
)

// Mutating is every kind that may change what is on the disk or make it durable. Only at these does
// the moment of a crash matter.
const Mutating = Create | Mkdir | Rename | Remove | SyncDir | Lock | WriteAt | SyncData | Preallocate | Truncate

func (k Kind) String() string {
	names := [...]string{
		"create", "open", "openread", "mkdir", "rename", "remove", "readdir", "syncdir", "lock", "space",
		"read", "write", "close", "syncdata", "preallocate", "truncate", "size",
	}
	var set []string
	for i, name := range names {
		if k&(1<<i) != 0 {
			set = append(set, name)
		}
	}
	return strings.Join(set, "|")
}

// Op is one operation.
type Op struct {
	N        int    // 1 for the first operation of the injector
	Kind     Kind   // exactly one
	Name     string // as the file was opened, also after a rename
	To       string // the new name of a Rename
	Off, Len int64  // of ReadAt, WriteAt, Preallocate; Len is the size of a Truncate
	Err      error  // how it ended
}

// String returns the operation as one line of a trace, without its number.
func (o Op) String() string {
	line := o.Kind.String() + " " + o.Name
	switch o.Kind {
	case Rename:
		line += " " + o.To
	case ReadAt, WriteAt, Preallocate:
		line += fmt.Sprintf(" %d %d", o.Off, o.Len)
	case Truncate:
		line += fmt.Sprintf(" %d", o.Len)
	}
	if o.Err != nil {
		line += ": " + o.Err.Error()
	}
	return line
}

// Trace returns one line for each operation, for comparison with a golden file. Names go through
// normalize unless it is nil; the texts of errors stay as they are.
func Trace(ops []Op, normalize func(name string) string) string {
	var b strings.Builder
	for _, o := range ops {
		if normalize != nil {
			o.Name = normalize(o.Name)
			if o.Kind == Rename {
				o.To = normalize(o.To)
			}
		}
		b.WriteString(o.String())
		b.WriteByte('\n')
	}
	return b.String()
}
