package vfstest

import (
	"errors"
	"io"
	"io/fs"
	"maps"
	"math"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/weir-agent/weir/wab/vfs"
)

// ErrCrashed is what every operation on a disk fails with after its crash.
var ErrCrashed = errors.New("vfstest: the disk has crashed")

const (
	// DiskBytes is the capacity of a new disk. Space that was only reserved takes no memory.
	DiskBytes int64 = 1 << 40
	// MaxFileBytes bounds a file, and so the memory that one write can take.
	MaxFileBytes int64 = 1 << 30
)

// Disk is a file system in memory that keeps apart what was written and what is on stable
// storage. SyncData makes a file's bytes and size durable, SyncDir the names of a folder; nothing
// else makes anything durable. Image, Crash and Kill give the disks that may be found
// after a failure.
//
// A write costs a copy of its bytes, and a second one when it is synced. Disks that come from
// Clone, Kill or Image share the bytes of each file until one of them writes to it, which copies that
// file once. Disk is safe for use by several goroutines; no operation waits for anything but
// a mutex that is held for a short computation, so it may be used in a synctest bubble.
type Disk struct {
	mu       sync.Mutex
	root     *node
	nodes    uint64 // made so far, for their ids
	capacity int64  // bytes
	used     int64  // bytes of the files that have a name
	locked   map[*node]bool
	crashed  bool
}

var _ vfs.FS = (*Disk)(nil)

// NewDisk returns an empty disk of DiskBytes.
func NewDisk() *Disk {
	d := &Disk{capacity: DiskBytes, locked: map[*node]bool{}}
	d.root = d.newNode(true)
	return d
}

func (d *Disk) newNode(folder bool) *node {
	d.nodes++
	n := &node{id: d.nodes, folder: folder, named: true}
	if folder {
		n.names, n.lasting = map[string]*node{}, map[string]*node{}
	}
	return n
}

// SetFree makes the disk fail with ENOSPC after n more bytes, by a short write where part of it
// fits. Bytes that overwrite or fill reserved space need none; a removed or shortened file
// gives its bytes back. A file has space from its start to the last byte that was ever
// written or reserved. SetFree(DiskBytes) lifts the limit.
func (d *Disk) SetFree(n int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.capacity = d.used + n
}

// Create implements vfs.FS.
func (d *Disk) Create(name string) (vfs.File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, err := d.create(name)
	if err != nil {
		return nil, pathError("create", name, err)
	}
	return &diskFile{disk: d, node: n, name: name, writable: true}, nil
}

func (d *Disk) create(name string) (*node, error) {
	folder, base, err := d.place(name)
	if err != nil {
		return nil, err
	}
	n := d.newNode(false)
	folder.move(move{name: base, node: n})
	return n, nil
}

// Open implements vfs.FS.
func (d *Disk) Open(name string) (vfs.File, error) { return d.open(name, true) }

// OpenRead implements vfs.FS.
func (d *Disk) OpenRead(name string) (vfs.File, error) { return d.open(name, false) }

func (d *Disk) open(name string, writable bool) (vfs.File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, err := d.file(name)
	if err != nil {
		return nil, pathError("open", name, err)
	}
	return &diskFile{disk: d, node: n, name: name, writable: writable}, nil
}

// Mkdir implements vfs.FS.
func (d *Disk) Mkdir(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	folder, base, err := d.place(name)
	if err != nil {
		return pathError("mkdir", name, err)
	}
	folder.move(move{name: base, node: d.newNode(true)})
	return nil
}

// Rename implements vfs.FS. Within a folder it is one change of names, which a crash undoes or not. Over
// two folders it is two, each on its own until its folder is synced: a crash may
// leave the old name, the new one, both, or none.
func (d *Disk) Rename(oldname, newname string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.rename(oldname, newname); err != nil {
		return pathError("rename", oldname+" "+newname, err)
	}
	return nil
}

func (d *Disk) rename(oldname, newname string) error {
	n, err := d.file(oldname)
	if err != nil {
		return err
	}
	to, base, err := d.place(newname)
	if err != nil {
		return err
	}
	from, oldbase, err := d.parent(oldname)
	if err != nil {
		return err
	}
	if from == to {
		to.move(move{name: base, from: oldbase, node: n})
		return nil
	}
	to.move(move{name: base, node: n})
	from.move(move{name: oldbase, node: n, gone: true})
	return nil
}

// Remove implements vfs.FS.
func (d *Disk) Remove(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	folder, base, err := d.parent(name)
	if err != nil {
		return pathError("remove", name, err)
	}
	n := folder.names[base]
	switch {
	case n == nil:
		return pathError("remove", name, syscall.ENOENT)
	case len(n.names) > 0:
		return pathError("remove", name, syscall.ENOTEMPTY)
	}
	folder.move(move{name: base, node: n, gone: true})
	n.named = false
	d.used -= n.alloc
	return nil
}

// ReadDir implements vfs.FS.
func (d *Disk) ReadDir(name string) ([]vfs.Entry, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	folder, err := d.folder(name)
	if err != nil {
		return nil, pathError("readdir", name, err)
	}
	entries := make([]vfs.Entry, 0, len(folder.names))
	for _, base := range slices.Sorted(maps.Keys(folder.names)) {
		n := folder.names[base]
		e := vfs.Entry{Name: base, Size: n.now.size, Mode: 0o600}
		if n.folder {
			e.Mode = fs.ModeDir | 0o700
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// SyncDir implements vfs.FS.
func (d *Disk) SyncDir(name string) error {
	return d.syncDirTo(name, d.markDir(name))
}

// markDir names the changes that a folder has now, for syncDirTo.
func (d *Disk) markDir(name string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if folder, err := d.folder(name); err == nil {
		return folder.markMoves()
	}
	return 0
}

func (d *Disk) syncDirTo(name string, mark int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	folder, err := d.folder(name)
	if err != nil {
		return pathError("syncdir", name, err)
	}
	folder.settleMoves(mark)
	return nil
}

// Lock implements vfs.FS. The lock excludes every other Lock on this Disk.
func (d *Disk) Lock(name string) (io.Closer, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, err := d.file(name)
	if errors.Is(err, fs.ErrNotExist) {
		n, err = d.create(name)
	}
	if err == nil && d.locked[n] {
		err = vfs.ErrLocked
	}
	if err != nil {
		return nil, pathError("lock", name, err)
	}
	d.locked[n] = true
	return &diskLock{disk: d, node: n, name: name}, nil
}

// Space implements vfs.FS.
func (d *Disk) Space() (free, total int64, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.crashed {
		return 0, 0, pathError("space", ".", ErrCrashed)
	}
	return max(d.capacity-d.used, 0), d.capacity, nil
}

// room gives n space for its bytes before end, as far as there is some, and returns how
// far its space reaches.
func (d *Disk) room(n *node, end int64) int64 {
	if end <= n.alloc || !n.named {
		return end
	}
	more := max(min(end-n.alloc, d.capacity-d.used), 0)
	n.alloc += more
	d.used += more
	return n.alloc
}

// giveBack ends the space of n behind size.
func (d *Disk) giveBack(n *node, size int64) {
	if size >= n.alloc {
		return
	}
	if n.named {
		d.used -= n.alloc - size
	}
	n.alloc = size
}

// folder finds the folder called name.
func (d *Disk) folder(name string) (*node, error) {
	if d.crashed {
		return nil, ErrCrashed
	}
	if !fs.ValidPath(name) {
		return nil, fs.ErrInvalid
	}
	return find(d.root, name)
}

func find(at *node, name string) (*node, error) {
	if name == "." {
		return at, nil
	}
	for base := range strings.SplitSeq(name, "/") {
		at = at.names[base]
		if at == nil {
			return nil, syscall.ENOENT
		}
		if !at.folder {
			return nil, syscall.ENOTDIR
		}
	}
	return at, nil
}

// parent finds the folder that holds name.
func (d *Disk) parent(name string) (folder *node, base string, err error) {
	if name == "." {
		return nil, "", fs.ErrInvalid
	}
	if !fs.ValidPath(name) {
		return nil, "", fs.ErrInvalid
	}
	folder, err = d.folder(path.Dir(name))
	return folder, path.Base(name), err
}

// place finds the folder for a name that must be free.
func (d *Disk) place(name string) (folder *node, base string, err error) {
	folder, base, err = d.parent(name)
	if err == nil && folder.names[base] != nil {
		err = syscall.EEXIST
	}
	return folder, base, err
}

// file finds the regular file called name.
func (d *Disk) file(name string) (*node, error) {
	folder, base, err := d.parent(name)
	if err != nil {
		return nil, err
	}
	n := folder.names[base]
	switch {
	case n == nil:
		return nil, syscall.ENOENT
	case n.folder:
		return nil, vfs.ErrNotRegular
	}
	return n, nil
}

func pathError(op, name string, err error) error {
	return &fs.PathError{Op: op, Path: name, Err: err}
}

type diskLock struct {
	disk   *Disk
	node   *node
	name   string
	closed bool // guarded by disk.mu
}

func (l *diskLock) Close() error {
	l.disk.mu.Lock()
	defer l.disk.mu.Unlock()
	if l.closed {
		return pathError("close", l.name, fs.ErrClosed)
	}
	l.closed = true
	delete(l.disk.locked, l.node)
	return nil
}

// diskFile is an open file of a Disk.
type diskFile struct {
	disk     *Disk
	node     *node
	name     string // as it was opened
	writable bool
	closed   bool // guarded by disk.mu
}

var _ vfs.File = (*diskFile)(nil)

// usable says why an operation cannot be done. The disk's mutex is held.
func (f *diskFile) usable(writes bool) error {
	switch {
	case f.closed:
		return fs.ErrClosed
	case f.disk.crashed:
		return ErrCrashed
	case writes && !f.writable:
		return syscall.EBADF
	}
	return nil
}

// ReadAt implements vfs.File.
func (f *diskFile) ReadAt(p []byte, off int64) (int, error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	err := f.usable(false)
	if err == nil && off < 0 {
		err = syscall.EINVAL
	}
	if err != nil {
		return 0, pathError("read", f.name, err)
	}
	if len(p) == 0 {
		return 0, nil
	}
	return f.node.now.readAt(p, off)
}

// WriteAt implements vfs.File. Where space runs out it writes what fits.
func (f *diskFile) WriteAt(p []byte, off int64) (int, error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	err := f.usable(true)
	switch {
	case err != nil:
	case off < 0:
		err = syscall.EINVAL
	case off > MaxFileBytes-int64(len(p)):
		err = syscall.EFBIG
	}
	if err != nil {
		return 0, pathError("write", f.name, err)
	}
	if len(p) == 0 {
		return 0, nil
	}
	fits := min(f.disk.room(f.node, off+int64(len(p)))-off, int64(len(p)))
	if fits > 0 {
		f.node.change(change{off: off, data: slices.Clone(p[:fits])})
	}
	if fits = max(fits, 0); fits < int64(len(p)) {
		return int(fits), pathError("write", f.name, syscall.ENOSPC)
	}
	return len(p), nil
}

// Close implements vfs.File.
func (f *diskFile) Close() error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if f.closed {
		return pathError("close", f.name, fs.ErrClosed)
	}
	f.closed = true
	return nil
}

// SyncData implements vfs.File.
func (f *diskFile) SyncData() error { return f.settle(f.mark(), false) }

// mark names the changes that the file has now, for settle.
func (f *diskFile) mark() int {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	return f.node.mark()
}

// settle makes the changes before mark durable, or drops them as a failed sync does.
func (f *diskFile) settle(mark int, drop bool) error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if err := f.usable(false); err != nil {
		return pathError("syncdata", f.name, err)
	}
	f.node.settle(mark, drop)
	return nil
}

// Preallocate implements vfs.File.
func (f *diskFile) Preallocate(off, n int64) error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	err := f.usable(true)
	switch {
	case err != nil:
	case off < 0 || n <= 0 || off > math.MaxInt64-n:
		err = syscall.EINVAL
	case off+n-f.node.alloc > f.disk.capacity-f.disk.used && off+n > f.node.alloc:
		err = syscall.ENOSPC
	}
	if err != nil {
		return pathError("preallocate", f.name, err)
	}
	f.disk.room(f.node, off+n)
	f.node.change(change{size: off + n})
	return nil
}

// Truncate implements vfs.File.
func (f *diskFile) Truncate(size int64) error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	err := f.usable(true)
	if err == nil && size < 0 {
		err = syscall.EINVAL
	}
	if err != nil {
		return pathError("truncate", f.name, err)
	}
	f.disk.giveBack(f.node, size)
	f.node.change(change{size: size, cut: true})
	return nil
}

// Size implements vfs.File.
func (f *diskFile) Size() (int64, error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if err := f.usable(false); err != nil {
		return 0, pathError("size", f.name, err)
	}
	return f.node.now.size, nil
}
