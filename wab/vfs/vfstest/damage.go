package vfstest

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"

	"github.com/weir-agent/weir/wab/vfs"
)

// The operations of this file look at a disk or damage it from outside, as a sick
// medium or a bad tool would: they count nowhere, need no space, work on a halted disk, and what they change
// is durable at once.

// Names returns the path of every file and folder but the root, in the order of names.
func (d *Disk) Names() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return appendNames(nil, "", d.root)
}

func appendNames(list []string, prefix string, folder *node) []string {
	for _, base := range slices.Sorted(maps.Keys(folder.names)) {
		name := path.Join(prefix, base)
		list = append(list, name)
		list = appendNames(list, name, folder.names[base])
	}
	return list
}

// Bytes returns a copy of a file as reads see it.
func (d *Disk) Bytes(name string) ([]byte, error) { return d.bytes(name, (*node).current) }

// DurableBytes returns a copy of what of a file is on stable storage; its name need not be.
func (d *Disk) DurableBytes(name string) ([]byte, error) { return d.bytes(name, (*node).onDisk) }

func (n *node) current() *content { return &n.now }
func (n *node) onDisk() *content  { return &n.durable }

func (d *Disk) bytes(name string, of func(*node) *content) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, err := d.look(name)
	if err != nil {
		return nil, pathError("bytes", name, err)
	}
	c := of(n)
	if c.size > MaxFileBytes {
		return nil, pathError("bytes", name, fmt.Errorf("%d bytes", c.size))
	}
	p := make([]byte, c.size)
	copy(p, c.b)
	return p, nil
}

// look finds a file also on a halted disk.
func (d *Disk) look(name string) (*node, error) {
	if !fs.ValidPath(name) || name == "." {
		return nil, fs.ErrInvalid
	}
	folder, err := find(d.root, path.Dir(name))
	if err != nil {
		return nil, err
	}
	n := folder.names[path.Base(name)]
	switch {
	case n == nil:
		return nil, fs.ErrNotExist
	case n.folder:
		return nil, vfs.ErrNotRegular
	}
	return n, nil
}

// Overwrite puts p at off. It fails with fs.ErrInvalid where the file does not reach so far:
// damage never makes a file longer.
func (d *Disk) Overwrite(name string, off int64, p []byte) error {
	return d.damage("overwrite", name, off, int64(len(p)), func(c *content) { c.writeAt(p, off) })
}

// FlipBit inverts bit 0 to 7 of the byte at off.
func (d *Disk) FlipBit(name string, off int64, bit uint) error {
	return d.damage("flipbit", name, off, 1, func(c *content) {
		var b [1]byte
		c.readAt(b[:], off) // damage has checked that it is there
		b[0] ^= 1 << (bit % 8)
		c.writeAt(b[:], off)
	})
}

// ZeroSector puts zeros on the sector that holds off, as far as the file reaches.
func (d *Disk) ZeroSector(name string, off int64) error {
	start := off - off%SectorBytes
	return d.damage("zerosector", name, off, 1, func(c *content) {
		c.writeAt(make([]byte, min(SectorBytes, c.size-start)), start)
	})
}

// Cut takes off what is behind size.
func (d *Disk) Cut(name string, size int64) error {
	return d.damage("cut", name, size, 0, func(c *content) { c.setSize(size) })
}

// damage changes both what reads see and what is durable. Both must hold [off, off+n).
func (d *Disk) damage(op, name string, off, n int64, change func(*content)) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	at, err := d.look(name)
	if err != nil {
		return pathError(op, name, err)
	}
	at.settle(at.mark(), false)
	if off < 0 || n < 0 || off > at.now.size-n || off > at.durable.size-n {
		return pathError(op, name, fs.ErrInvalid)
	}
	change(&at.now)
	change(&at.durable)
	d.giveBack(at, min(at.alloc, at.now.size))
	return nil
}

// copyChunkBytes is how much CopyTree holds of a file.
const copyChunkBytes = 1 << 20

// CopyTree copies every file and folder of one file system into another, which must not have
// them, and syncs them. It takes an image out to a real folder for a closer look, or a real folder in.
func CopyTree(to, from vfs.FS) error { return copyFolder(to, from, ".") }

func copyFolder(to, from vfs.FS, folder string) error {
	entries, err := from.ReadDir(folder)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := path.Join(folder, e.Name)
		switch {
		case e.Mode.IsRegular():
			err = copyFile(to, from, name)
		case e.Mode.IsDir():
			if err = to.Mkdir(name); err == nil {
				err = copyFolder(to, from, name)
			}
		default:
			err = pathError("copy", name, vfs.ErrNotRegular)
		}
		if err != nil {
			return err
		}
	}
	return to.SyncDir(folder)
}

func copyFile(to, from vfs.FS, name string) error {
	in, err := from.OpenRead(name)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := to.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(copyBytes(out, in), out.Close())
}

func copyBytes(out, in vfs.File) error {
	size, err := in.Size()
	if err != nil {
		return err
	}
	buf := make([]byte, min(size, copyChunkBytes))
	for off := int64(0); off < size; off += int64(len(buf)) {
		chunk := buf[:min(int64(len(buf)), size-off)]
		if _, err := in.ReadAt(chunk, off); err != nil {
			return err
		}
		if _, err := out.WriteAt(chunk, off); err != nil {
			return err
		}
	}
	return out.SyncData()
}
