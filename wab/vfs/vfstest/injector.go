package vfstest

import (
	"errors"
	"io/fs"
	"path"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/weir-agent/weir/wab/vfs"
)

// Fault is something that happens at one operation, or from one on. Which one it is says the
// first group of fields, what happens the second. The zero value holds the first operation
// for no time and changes nothing.
type Fault struct {
	Kinds  Kind   // of the operations that count; 0 is all
	Name   string // pattern of path.Match for their (old) name; "" is all
	At     int    // the fault fires at the At-th operation that counts, from Add on; 0 is the first
	Sticky bool   // and at every one after it

	// Gate holds the operation, before it takes effect. A held SyncData or SyncDir covers only
	// what was there when it began.
	Gate *Gate
	// Err is what the operation fails with, without effect but for Late, Short and Drop.
	Err error
	// Late lets the operation take effect before it fails with Err.
	Late bool
	// Short is how many bytes of a WriteAt are written before Err.
	Short int
	// Drop makes a SyncData that fails with Err drop the bytes it was to sync: reads go on to see them, the
	// next SyncData returns nil, and no sync ever makes them durable (F3). It needs a Disk.
	Drop bool
	// Crash ends the world: this and every later operation fails with ErrCrashed, and a Disk is halted.
	// The operation itself has taken effect but is not synced, so that an image holds all, a
	// part or nothing of it; a sync has made nothing durable.
	Crash bool
}

// Firing is one occasion at which a fault fired.
type Firing struct {
	Fault Fault
	Op    Op // without its Err
}

// Gate holds operations until a test releases them.
type Gate struct {
	reached, released chan struct{}
	reach, release    sync.Once
}

// NewGate returns a closed gate. In a synctest bubble it is made inside the bubble.
func NewGate() *Gate {
	return &Gate{reached: make(chan struct{}), released: make(chan struct{})}
}

// Reached is closed when the first operation stands at the gate.
func (g *Gate) Reached() <-chan struct{} { return g.reached }

// Release lets all operations pass, now and from now on.
func (g *Gate) Release() { g.release.Do(func() { close(g.released) }) }

func (g *Gate) pass() {
	g.reach.Do(func() { close(g.reached) })
	<-g.released
}

// Injector is a vfs.FS that numbers the operations on another one, records them, and lets faults happen
// at them. It is safe for use by several goroutines.
type Injector struct {
	inner vfs.FS

	crashed atomic.Bool
	mu      sync.Mutex
	ops     int
	faults  []*armed
	fired   []Firing
	record  Kind
	log     []Op
}

type armed struct {
	Fault
	seen int // operations that counted
}

var _ vfs.FS = (*Injector)(nil)

// NewInjector returns an injector on inner without faults.
func NewInjector(inner vfs.FS) *Injector { return &Injector{inner: inner} }

// Add arms faults. Where several fire at one operation the first one counts. It panics
// on a fault that cannot happen: Drop where the file system below is no Disk, Late, Short or Drop
// without Err, or a malformed pattern.
func (in *Injector) Add(faults ...Fault) {
	_, disk := in.inner.(*Disk)
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, f := range faults {
		if _, err := path.Match(f.Name, ""); err != nil {
			panic("vfstest: " + f.Name + ": " + err.Error())
		}
		if f.Drop && !disk {
			panic("vfstest: Fault.Drop needs a Disk")
		}
		if f.Err == nil && (f.Late || f.Drop || f.Short > 0) {
			panic("vfstest: Late, Short and Drop need an Err")
		}
		f.At = max(f.At, 1)
		in.faults = append(in.faults, &armed{Fault: f})
	}
}

// Clear disarms all faults. Operations that are held stay so until their gate is released, and
// a crash is for good.
func (in *Injector) Clear() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.faults = nil
}

// Ops returns how many operations there were.
func (in *Injector) Ops() int {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.ops
}

// Fired returns the occasions at which faults fired, in order. A loop over "fail operation k" is at its
// end when there is none.
func (in *Injector) Fired() []Firing {
	in.mu.Lock()
	defer in.mu.Unlock()
	return slices.Clone(in.fired)
}

// Record keeps, from now on, every operation of these kinds for Log; 0 ends it.
func (in *Injector) Record(kinds Kind) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.record = kinds
}

// Log returns the recorded operations in the order in which they began. One that still runs has no Err.
func (in *Injector) Log() []Op {
	in.mu.Lock()
	defer in.mu.Unlock()
	return slices.Clone(in.log)
}

// do runs an operation, or what a fault makes of it.
func (in *Injector) do(op Op, a action) error {
	fault, entry, err := in.begin(&op)
	if err == nil {
		err = in.run(op, fault, a)
	}
	if entry >= 0 && err != nil {
		in.mu.Lock()
		in.log[entry].Err = err
		in.mu.Unlock()
	}
	return err
}

// begin numbers and records the operation; entry is its place in the log, or -1.
func (in *Injector) begin(op *Op) (fault Fault, entry int, err error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.ops++
	op.N = in.ops
	entry = -1
	if in.record&op.Kind != 0 {
		entry = len(in.log)
		in.log = append(in.log, *op)
	}
	if in.crashed.Load() {
		return Fault{}, entry, crashError(*op)
	}
	found := false
	for _, f := range in.faults {
		if !f.counts(op) {
			continue
		}
		f.seen++
		if !found && (f.seen == f.At || f.Sticky && f.seen > f.At) {
			fault, found = f.Fault, true
			in.fired = append(in.fired, Firing{Fault: fault, Op: *op})
		}
	}
	return fault, entry, nil
}

func (f *armed) counts(op *Op) bool {
	if f.Kinds != 0 && f.Kinds&op.Kind == 0 {
		return false
	}
	if f.Name == "" {
		return true
	}
	match, err := path.Match(f.Name, op.Name)
	return err == nil && match
}

// action is what an operation does; short and drop are nil where a fault cannot ask for them.
type action struct {
	full  func() error
	short func(n int)
	drop  func() error
}

func (in *Injector) run(op Op, fault Fault, a action) error {
	if fault.Gate != nil {
		fault.Gate.pass()
		if in.crashed.Load() {
			return crashError(op)
		}
	}
	switch {
	case fault.Crash:
		return in.crash(op, a)
	case fault.Err == nil:
		return a.full()
	}
	if fault.Late {
		if err := a.full(); err != nil {
			return err
		}
	}
	if a.short != nil && fault.Short > 0 {
		a.short(fault.Short)
	}
	if a.drop != nil && fault.Drop {
		if err := a.drop(); err != nil {
			return err
		}
	}
	return &fs.PathError{Op: op.Kind.String(), Path: op.Name, Err: fault.Err}
}

// crash lets the operation take effect, as far as it can be undone by an image, and ends everything.
func (in *Injector) crash(op Op, a action) error {
	var err error
	if op.Kind&Mutating&^(SyncData|SyncDir) != 0 {
		err = a.full()
	}
	in.crashed.Store(true)
	if d, ok := in.inner.(*Disk); ok {
		d.Halt()
	}
	return errors.Join(crashError(op), err)
}

func crashError(op Op) error {
	return &fs.PathError{Op: op.Kind.String(), Path: op.Name, Err: ErrCrashed}
}
