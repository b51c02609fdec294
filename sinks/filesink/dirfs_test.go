package filesink

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/weir-agent/weir/wab/vfs"
)

// dirFS is the real file system with a log of its operations and a hook that
// can make each of them fail.
type dirFS struct {
	*vfs.Dir
	root *os.Root // for the tests to look into the folder

	mu  sync.Mutex
	log []string
	// fail is asked before each operation; an error from it is the operation's.
	// An operation is "verb name".
	fail func(op string) error
}

func newDirFS(t *testing.T, dir string) *dirFS {
	t.Helper()
	d, err := vfs.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close(); root.Close() })
	return &dirFS{Dir: d, root: root}
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

func (d *dirFS) file(verb, name string, open func(string) (vfs.File, error)) (vfs.File, error) {
	if err := d.op(verb, name); err != nil {
		return nil, err
	}
	f, err := open(name)
	if err != nil {
		return nil, err
	}
	return &dirFile{File: f, fs: d, name: name}, nil
}

func (d *dirFS) Create(name string) (vfs.File, error) { return d.file("create", name, d.Dir.Create) }
func (d *dirFS) Open(name string) (vfs.File, error)   { return d.file("open", name, d.Dir.Open) }
func (d *dirFS) OpenRead(name string) (vfs.File, error) {
	return d.file("openread", name, d.Dir.OpenRead)
}

func (d *dirFS) Rename(oldname, newname string) error {
	if err := d.op("rename", oldname+" "+newname); err != nil {
		return err
	}
	return d.Dir.Rename(oldname, newname)
}

func (d *dirFS) Remove(name string) error {
	if err := d.op("remove", name); err != nil {
		return err
	}
	return d.Dir.Remove(name)
}

func (d *dirFS) ReadDir(name string) ([]vfs.Entry, error) {
	if err := d.op("readdir", name); err != nil {
		return nil, err
	}
	return d.Dir.ReadDir(name)
}

func (d *dirFS) SyncDir(name string) error {
	if err := d.op("syncdir", name); err != nil {
		return err
	}
	return d.Dir.SyncDir(name)
}

type dirFile struct {
	vfs.File
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
	return f.File.SyncData()
}

func (f *dirFile) Truncate(size int64) error {
	if err := f.fs.op("truncate", f.name); err != nil {
		return err
	}
	return f.File.Truncate(size)
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
