//go:build linux || darwin

package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"math/bits"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Permissions of what Dir makes. The umask can only take away from them.
const (
	fileMode   fs.FileMode = 0o600
	folderMode fs.FileMode = 0o700
)

// openFlags go with every open of a file: a FIFO must not block it and a terminal must
// not become ours. os.Root adds O_CLOEXEC and O_NOFOLLOW.
const openFlags = syscall.O_NONBLOCK | syscall.O_NOCTTY

// maxLockTries bounds how often Lock starts again because the file came or went between
// its two looks.
const maxLockTries = 8

// Dir is the FS of the operating system: one folder and what is below it.
//
// os.Root keeps every operation inside the folder, but it follows links that stay in it, even
// where O_NOFOLLOW is asked for. So Dir looks at a name (lstat), opens it, and compares
// the two identities: what it returns is the very file that stood under the name and was no
// link. It keeps no handle but that of the top folder.
type Dir struct {
	root *os.Root
}

var _ FS = (*Dir)(nil)

// OpenDir opens an existing folder. Its path may lead through symbolic links, but the folder
// itself must not be one: the error is then syscall.ENOTDIR. The caller closes it.
func OpenDir(dir string) (*Dir, error) {
	dir = filepath.Clean(dir)
	seen, err := os.Lstat(dir)
	if err != nil {
		return nil, pathError("opendir", dir, err)
	}
	if !seen.IsDir() {
		return nil, pathError("opendir", dir, syscall.ENOTDIR)
	}
	root, err := os.OpenRoot(dir)
	if err == nil {
		root, err = sameFolder(root, seen)
	}
	if err != nil {
		return nil, pathError("opendir", dir, err)
	}
	return &Dir{root: root}, nil
}

// Close releases the folder. Open files and locks stay as they are.
func (d *Dir) Close() error { return d.root.Close() }

// Create implements FS.
func (d *Dir) Create(name string) (File, error) {
	f, err := d.create(name)
	if err != nil {
		return nil, pathError("create", name, err)
	}
	return newFile(f)
}

// Open implements FS.
func (d *Dir) Open(name string) (File, error) {
	f, err := d.open(name, os.O_RDWR)
	if err != nil {
		return nil, pathError("open", name, err)
	}
	return newFile(f)
}

// OpenRead implements FS.
func (d *Dir) OpenRead(name string) (File, error) {
	f, err := d.open(name, os.O_RDONLY)
	if err != nil {
		return nil, pathError("open", name, err)
	}
	return newFile(f)
}

// Mkdir implements FS.
func (d *Dir) Mkdir(name string) error {
	folder, err := d.parent(name)
	if err != nil {
		return pathError("mkdir", name, err)
	}
	defer folder.Close()
	if err := folder.Mkdir(path.Base(name), folderMode); err != nil {
		return pathError("mkdir", name, err)
	}
	return nil
}

// Rename implements FS. Where the file system cannot rename without replacing, it links the new
// name and then removes the old one: a crash, or an error, between the two leaves both.
func (d *Dir) Rename(oldname, newname string) error {
	if err := d.rename(oldname, newname); err != nil {
		return fmt.Errorf("vfs: %w", &os.LinkError{Op: "rename", Old: oldname, New: newname, Err: cause(err)})
	}
	return nil
}

func (d *Dir) rename(oldname, newname string) error {
	from, err := d.parentFile(oldname)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := d.parentFile(newname)
	if err != nil {
		return err
	}
	defer to.Close()
	if info, err := d.root.Lstat(oldname); err != nil {
		return err
	} else if !info.Mode().IsRegular() {
		return ErrNotRegular
	}
	return onFDs(from, to, func(oldfd, newfd int) error {
		return renameNoReplace(oldfd, path.Base(oldname), newfd, path.Base(newname))
	})
}

// Remove implements FS.
func (d *Dir) Remove(name string) error {
	folder, err := d.parent(name)
	if err != nil {
		return pathError("remove", name, err)
	}
	defer folder.Close()
	if err := folder.Remove(path.Base(name)); err != nil {
		return pathError("remove", name, err)
	}
	return nil
}

// ReadDir implements FS. A name that is removed while it runs is left out.
func (d *Dir) ReadDir(name string) ([]Entry, error) {
	entries, err := d.readDir(name)
	if err != nil {
		return nil, pathError("readdir", name, err)
	}
	return entries, nil
}

func (d *Dir) readDir(name string) ([]Entry, error) {
	folder, err := d.folder(name)
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	f, err := folder.Open(".")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	entries := make([]Entry, 0, len(names))
	for _, n := range names {
		info, err := folder.Lstat(n)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		e := Entry{Name: n, Mode: info.Mode()}
		if e.Mode.IsRegular() {
			e.Size = info.Size()
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// SyncDir implements FS.
func (d *Dir) SyncDir(name string) error {
	f, err := d.folderFile(name)
	if err != nil {
		return pathError("syncdir", name, err)
	}
	// Nothing was written through this handle, so the outcome of its close says nothing.
	defer f.Close()
	if err := f.Sync(); err != nil {
		return pathError("syncdir", name, err)
	}
	return nil
}

// Lock implements FS, by flock: the lock ends with the process, however it ends.
func (d *Dir) Lock(name string) (io.Closer, error) {
	f, err := d.openOrCreate(name)
	if err != nil {
		return nil, pathError("lock", name, err)
	}
	if err := lockFile(f); err != nil {
		return nil, pathError("lock", name, errors.Join(err, f.Close()))
	}
	return f, nil
}

func (d *Dir) openOrCreate(name string) (*os.File, error) {
	var err error
	for range maxLockTries {
		var f *os.File
		f, err = d.create(name)
		if errors.Is(err, fs.ErrExist) {
			f, err = d.open(name, os.O_RDWR)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return f, err
		}
	}
	return nil, err
}

// Space implements FS.
func (d *Dir) Space() (free, total int64, err error) {
	f, err := d.folderFile(".")
	if err != nil {
		return 0, 0, pathError("space", ".", err)
	}
	defer f.Close()
	err = onFD(f, func(fd int) error {
		var err error
		free, total, err = space(fd)
		return err
	})
	if err != nil {
		return 0, 0, pathError("space", ".", err)
	}
	return free, total, nil
}

// create makes a new regular file. O_EXCL makes it fail on whatever stands under the name, a link too.
func (d *Dir) create(name string) (*os.File, error) {
	folder, err := d.parent(name)
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	return folder.OpenFile(path.Base(name), os.O_RDWR|os.O_CREATE|os.O_EXCL|openFlags, fileMode)
}

// open opens an existing regular file that is not reached through a link.
func (d *Dir) open(name string, flag int) (*os.File, error) {
	folder, err := d.parent(name)
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	seen, err := folder.Lstat(path.Base(name))
	if err != nil {
		return nil, err
	}
	if !seen.Mode().IsRegular() {
		return nil, ErrNotRegular
	}
	f, err := folder.OpenFile(path.Base(name), flag|openFlags, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !os.SameFile(seen, info) {
		err = ErrNotRegular // replaced between the look and the open
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// parent opens the folder that holds name, which must not be ".".
func (d *Dir) parent(name string) (*os.Root, error) {
	if name == "." || !fs.ValidPath(name) {
		return nil, fs.ErrInvalid
	}
	return d.folder(path.Dir(name))
}

// folder opens a folder, element by element, and refuses a link as any of them. The caller closes it.
func (d *Dir) folder(name string) (*os.Root, error) {
	if !fs.ValidPath(name) {
		return nil, fs.ErrInvalid
	}
	if name == "." {
		return d.root.OpenRoot(".")
	}
	at := d.root
	for element := range strings.SplitSeq(name, "/") {
		next, err := subfolder(at, element)
		if at != d.root {
			at.Close() // a handle for looking: its close says nothing
		}
		if err != nil {
			return nil, err
		}
		at = next
	}
	return at, nil
}

func (d *Dir) parentFile(name string) (*os.File, error) {
	if name == "." || !fs.ValidPath(name) {
		return nil, fs.ErrInvalid
	}
	return d.folderFile(path.Dir(name))
}

func (d *Dir) folderFile(name string) (*os.File, error) {
	folder, err := d.folder(name)
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	return folder.Open(".")
}

func subfolder(at *os.Root, element string) (*os.Root, error) {
	seen, err := at.Lstat(element)
	if err != nil {
		return nil, err
	}
	if !seen.IsDir() {
		return nil, syscall.ENOTDIR
	}
	next, err := at.OpenRoot(element)
	if err != nil {
		return nil, err
	}
	return sameFolder(next, seen)
}

// sameFolder returns root if it is the folder that was seen before it was opened, and
// closes it otherwise.
func sameFolder(root *os.Root, seen fs.FileInfo) (*os.Root, error) {
	info, err := root.Stat(".")
	if err == nil && !os.SameFile(seen, info) {
		err = syscall.ENOTDIR // replaced between the look and the open
	}
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return root, nil
}

// pathError gives err the operation and the name that this package's callers know.
func pathError(op, name string, err error) error {
	return fmt.Errorf("vfs: %w", &fs.PathError{Op: op, Path: name, Err: cause(err)})
}

// cause takes off the wrapping of package os, which names a step and a path of its own.
func cause(err error) error {
	switch e := err.(type) {
	case *fs.PathError:
		return e.Err
	case *os.LinkError:
		return e.Err
	case *os.SyscallError:
		return e.Err
	}
	return err
}

// blockBytes returns n blocks of size bytes, at most the greatest int64.
func blockBytes(n, size uint64) int64 {
	hi, lo := bits.Mul64(n, size)
	if hi != 0 || lo > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(lo)
}
