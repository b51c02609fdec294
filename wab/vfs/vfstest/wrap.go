package vfstest

import (
	"io"

	"github.com/weir-agent/weir/wab/vfs"
)

// Create implements vfs.FS.
func (in *Injector) Create(name string) (vfs.File, error) {
	return in.open(Create, name, in.inner.Create)
}

// Open implements vfs.FS.
func (in *Injector) Open(name string) (vfs.File, error) {
	return in.open(Open, name, in.inner.Open)
}

// OpenRead implements vfs.FS.
func (in *Injector) OpenRead(name string) (vfs.File, error) {
	return in.open(OpenRead, name, in.inner.OpenRead)
}

func (in *Injector) open(kind Kind, name string, open func(string) (vfs.File, error)) (vfs.File, error) {
	f, err := made(in, Op{Kind: kind, Name: name}, func() (vfs.File, error) { return open(name) })
	if err != nil {
		return nil, err
	}
	return &tapped{in: in, inner: f, name: name}, nil
}

// Lock implements vfs.FS. Its closer is not counted as an operation.
func (in *Injector) Lock(name string) (io.Closer, error) {
	return made(in, Op{Kind: Lock, Name: name}, func() (io.Closer, error) { return in.inner.Lock(name) })
}

// made runs an operation that makes a handle, and closes the handle where a crash takes
// the outcome away.
func made[H io.Closer](in *Injector, op Op, make func() (H, error)) (H, error) {
	var handle, none H
	var ok bool
	err := in.do(op, action{full: func() (err error) {
		handle, err = make()
		ok = err == nil
		return err
	}})
	if err == nil {
		return handle, nil
	}
	if ok {
		handle.Close() // the error that counts is that of the crash
	}
	return none, err
}

// Mkdir implements vfs.FS.
func (in *Injector) Mkdir(name string) error {
	return in.do(Op{Kind: Mkdir, Name: name}, action{full: func() error { return in.inner.Mkdir(name) }})
}

// Rename implements vfs.FS.
func (in *Injector) Rename(oldname, newname string) error {
	return in.do(Op{Kind: Rename, Name: oldname, To: newname}, action{full: func() error {
		return in.inner.Rename(oldname, newname)
	}})
}

// Remove implements vfs.FS.
func (in *Injector) Remove(name string) error {
	return in.do(Op{Kind: Remove, Name: name}, action{full: func() error { return in.inner.Remove(name) }})
}

// ReadDir implements vfs.FS.
func (in *Injector) ReadDir(name string) (entries []vfs.Entry, err error) {
	err = in.do(Op{Kind: ReadDir, Name: name}, action{full: func() (err error) {
		entries, err = in.inner.ReadDir(name)
		return err
	}})
	return entries, err
}

// SyncDir implements vfs.FS.
func (in *Injector) SyncDir(name string) error {
	full := func() error { return in.inner.SyncDir(name) }
	if d, ok := in.inner.(*Disk); ok {
		mark := d.markDir(name)
		full = func() error { return d.syncDirTo(name, mark) }
	}
	return in.do(Op{Kind: SyncDir, Name: name}, action{full: full})
}

// Space implements vfs.FS.
func (in *Injector) Space() (free, total int64, err error) {
	err = in.do(Op{Kind: Space, Name: "."}, action{full: func() (err error) {
		free, total, err = in.inner.Space()
		return err
	}})
	return free, total, err
}

// tapped is an open file below an Injector.
type tapped struct {
	in    *Injector
	inner vfs.File
	name  string
}

var _ vfs.File = (*tapped)(nil)

func (f *tapped) ReadAt(p []byte, off int64) (n int, err error) {
	op := Op{Kind: ReadAt, Name: f.name, Off: off, Len: int64(len(p))}
	err = f.in.do(op, action{full: func() (err error) {
		n, err = f.inner.ReadAt(p, off)
		return err
	}})
	return n, err
}

func (f *tapped) WriteAt(p []byte, off int64) (n int, err error) {
	op := Op{Kind: WriteAt, Name: f.name, Off: off, Len: int64(len(p))}
	err = f.in.do(op, action{
		full: func() (err error) {
			n, err = f.inner.WriteAt(p, off)
			return err
		},
		// The fault's error stands for whatever else fails.
		short: func(bytes int) { n, _ = f.inner.WriteAt(p[:min(bytes, len(p))], off) },
	})
	return n, err
}

// Close releases the file whatever the fault is, as the operating system does.
func (f *tapped) Close() error {
	err := f.in.do(Op{Kind: Close, Name: f.name}, action{full: func() error { return nil }})
	if closeErr := f.inner.Close(); err == nil {
		err = closeErr
	}
	return err
}

func (f *tapped) SyncData() error {
	a := action{full: f.inner.SyncData}
	if file, ok := f.inner.(*diskFile); ok {
		mark := file.mark()
		a.full = func() error { return file.settle(mark, false) }
		a.drop = func() error { return file.settle(mark, true) }
	}
	return f.in.do(Op{Kind: SyncData, Name: f.name}, a)
}

func (f *tapped) Preallocate(off, n int64) error {
	op := Op{Kind: Preallocate, Name: f.name, Off: off, Len: n}
	return f.in.do(op, action{full: func() error { return f.inner.Preallocate(off, n) }})
}

func (f *tapped) Truncate(size int64) error {
	op := Op{Kind: Truncate, Name: f.name, Len: size}
	return f.in.do(op, action{full: func() error { return f.inner.Truncate(size) }})
}

func (f *tapped) Size() (size int64, err error) {
	err = f.in.do(Op{Kind: Size, Name: f.name}, action{full: func() (err error) {
		size, err = f.inner.Size()
		return err
	}})
	return size, err
}
