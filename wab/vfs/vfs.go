// Package vfs is the seam between weir's logs and the file system. Each step
// that matters after a crash is an operation of its own, with its own name:
// writing is not syncing, and syncing a file is not syncing its directory.
package vfs

import (
	"errors"
	"io"
	"io/fs"
)

var (
	// ErrLocked is returned by Lock when another process holds the lock.
	ErrLocked = errors.New("vfs: locked by another process")
	// ErrNotRegular is returned when a name is a symbolic link, a directory
	// or anything else that is not a regular file.
	ErrNotRegular = errors.New("vfs: not a regular file")
)

// FS is one folder and what is below it. Names are relative, slash-separated
// and free of "..". No operation follows a symbolic link. Implementations are safe
// for use by several goroutines. Errors wrap the operating system's, so that
// errors.Is finds fs.ErrNotExist, fs.ErrExist, syscall.ENOSPC and the like.
type FS interface {
	// Create makes a new regular file, mode 0600, for reading and writing.
	// It fails with fs.ErrExist where the name is taken. The name is on stable
	// storage only after SyncDir of its folder.
	Create(name string) (File, error)
	// Open opens an existing regular file for reading and writing.
	Open(name string) (File, error)
	// OpenRead opens an existing regular file for reading.
	OpenRead(name string) (File, error)
	// Mkdir makes a folder, mode 0700; fs.ErrExist where the name is taken.
	Mkdir(name string) error
	// Rename moves a file. It never replaces: fs.ErrExist where the new name
	// is taken. It lasts only after SyncDir of each folder concerned.
	Rename(oldname, newname string) error
	// Remove removes a file or an empty folder; it lasts only after SyncDir.
	Remove(name string) error
	// ReadDir lists a folder ("." is the root) in the order of names. It is
	// whole or an error, never a part.
	ReadDir(name string) ([]Entry, error)
	// SyncDir puts the names in a folder on stable storage (fsync of the folder).
	SyncDir(name string) error
	// Lock takes the exclusive lock of a file, made where it is missing,
	// and holds it until the closer is closed or the process ends.
	// It fails at once with ErrLocked where another holds it.
	Lock(name string) (io.Closer, error)
	// Space reports the bytes that this process may still write, and the size
	// of the whole file system.
	Space() (free, total int64, err error)
}

// File is one open regular file.
type File interface {
	io.ReaderAt
	io.WriterAt
	// Close releases the file. It syncs nothing.
	Close() error
	// SyncData puts the file's bytes, and what of its size is needed to read them,
	// on stable storage (fdatasync). After an error nothing about the
	// unsynced bytes is known, and a later nil means nothing.
	SyncData() error
	// Preallocate reserves space for [off, off+n) and extends the file to
	// cover it. The range reads as zeros where nothing was written. Where the file
	// system cannot reserve, it only extends.
	Preallocate(off, n int64) error
	// Truncate sets the size.
	Truncate(size int64) error
	// Size returns the size in bytes.
	Size() (int64, error)
}

// Entry is one name in a folder.
type Entry struct {
	Name string      // the last element only
	Size int64       // bytes, of a regular file
	Mode fs.FileMode // type and permissions, of the name itself (lstat)
}
