package filesink

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/weir-agent/weir/wab/vfs"
)

// dirFS is a plain vfs.FS on a folder, with a log of its operations and a
// hook that can make each of them fail.
type dirFS struct {
	root *os.Root

	mu    sync.Mutex
	log   []string
	locks map[string]bool
	// fail is asked before each operation; an error from it is the operation's.
	// An operation is "verb name".
	fail func(op string) error
}

func newDirFS(t *testing.T, dir string) *dirFS {
	t.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return &dirFS{root: root, locks: map[string]bool{}}
}

// setFail replaces the hook.
func (d *dirFS) setFail(f func(op string) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fail = f
}

// takeLog returns the operations since the last call.
func (d *dirFS) takeLog() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	log := d.log
	d.log = nil
	return log
}

func (d *dirFS) op(verb, name string) error {
	d.mu.Lock()
	d.log = append(d.log, verb+" "+name)
	fail := d.fail
	d.mu.Unlock()
	if fail != nil {
		return fail(verb + " " + name)
	}
	return nil
}

func (d *dirFS) openFile(verb, name string, flag int) (vfs.File, error) {
	if err := d.op(verb, name); err != nil {
		return nil, err
	}
	if info, err := d.root.Lstat(name); err == nil && !info.Mode().IsRegular() {
		return nil, vfs.ErrNotRegular
	}
	f, err := d.root.OpenFile(name, flag, 0o600)
	if err != nil {
		return nil, err
	}
	return &dirFile{File: f, fs: d, name: name}, nil
}

func (d *dirFS) Create(name string) (vfs.File, error) {
	return d.openFile("create", name, os.O_RDWR|os.O_CREATE|os.O_EXCL)
}

func (d *dirFS) Open(name string) (vfs.File, error) {
	return d.openFile("open", name, os.O_RDWR)
}

func (d *dirFS) OpenRead(name string) (vfs.File, error) {
	return d.openFile("openread", name, os.O_RDONLY)
}

func (d *dirFS) Mkdir(name string) error { return d.root.Mkdir(name, 0o700) }

func (d *dirFS) Rename(oldname, newname string) error {
	if err := d.op("rename", oldname+" "+newname); err != nil {
		return err
	}
	if _, err := d.root.Lstat(newname); err == nil {
		return fs.ErrExist
	}
	return d.root.Rename(oldname, newname)
}

func (d *dirFS) Remove(name string) error {
	if err := d.op("remove", name); err != nil {
		return err
	}
	return d.root.Remove(name)
}

func (d *dirFS) ReadDir(name string) ([]vfs.Entry, error) {
	if err := d.op("readdir", name); err != nil {
		return nil, err
	}
	entries, err := fs.ReadDir(d.root.FS(), name)
	if err != nil {
		return nil, err
	}
	var all []vfs.Entry
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return nil, err
		}
		all = append(all, vfs.Entry{Name: e.Name(), Size: info.Size(), Mode: info.Mode()})
	}
	return all, nil
}

func (d *dirFS) SyncDir(name string) error { return d.op("syncdir", name) }

func (d *dirFS) Lock(name string) (io.Closer, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.locks[name] {
		return nil, vfs.ErrLocked
	}
	d.locks[name] = true
	return unlock(func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.locks, name)
	}), nil
}

type unlock func()

func (u unlock) Close() error { u(); return nil }

func (d *dirFS) Space() (free, total int64, err error) { return 1 << 40, 1 << 40, nil }

type dirFile struct {
	*os.File
	fs   *dirFS
	name string
}

func (f *dirFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.fs.op("write", f.name); err != nil {
		n, werr := f.File.WriteAt(p[:len(p)/2], off) // a short write
		return n, errors.Join(err, werr)
	}
	return f.File.WriteAt(p, off)
}

func (f *dirFile) SyncData() error {
	if err := f.fs.op("sync", f.name); err != nil {
		return err
	}
	return f.File.Sync()
}

func (f *dirFile) Truncate(size int64) error {
	if err := f.fs.op("truncate", f.name); err != nil {
		return err
	}
	return f.File.Truncate(size)
}

func (f *dirFile) Preallocate(int64, int64) error { return errors.ErrUnsupported }

func (f *dirFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// content returns the lines of a file.
func content(t *testing.T, d *dirFS, name string) []string {
	t.Helper()
	data, err := d.root.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if len(data) == 0 {
		return nil
	}
	return strings.SplitAfter(strings.TrimSuffix(string(data), "\n"), "\n")
}

// names lists the folder without the lock.
func names(t *testing.T, d *dirFS) []string {
	t.Helper()
	entries, err := fs.ReadDir(d.root.FS(), ".")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return slices.DeleteFunc(all, func(n string) bool { return strings.HasSuffix(n, ".lock") })
}
