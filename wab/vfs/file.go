//go:build linux || darwin

package vfs

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// osFile is one open regular file. ReadAt, WriteAt and Close are those of os.File: WriteAt goes
// on after a short write, and returns the count with the error where it cannot.
type osFile struct {
	*os.File
	conn syscall.RawConn
}

var _ File = (*osFile)(nil)

// newFile takes f over.
func newFile(f *os.File) (File, error) {
	conn, err := f.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &osFile{File: f, conn: conn}, nil
}

// SyncData implements File.
func (f *osFile) SyncData() error { return f.control("syncdata", syncData) }

// Preallocate implements File. The caller must not extend the file at the same time.
func (f *osFile) Preallocate(off, n int64) error {
	if off < 0 || n <= 0 || off > math.MaxInt64-n {
		return pathError("preallocate", f.Name(), syscall.EINVAL)
	}
	return f.control("preallocate", func(fd int) error { return preallocate(fd, off, n) })
}

// Size implements File.
func (f *osFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// control runs call on the descriptor, which stays open for its time.
func (f *osFile) control(op string, call func(fd int) error) error {
	if err := onConn(f.conn, call); err != nil {
		return pathError(op, f.Name(), err)
	}
	return nil
}

func onFD(f *os.File, call func(fd int) error) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	return onConn(conn, call)
}

func onFDs(a, b *os.File, call func(fdA, fdB int) error) error {
	return onFD(a, func(fdA int) error {
		return onFD(b, func(fdB int) error { return call(fdA, fdB) })
	})
}

func onConn(conn syscall.RawConn, call func(fd int) error) error {
	var failure error
	if conn.Control(func(fd uintptr) { failure = call(int(fd)) }) != nil {
		return fs.ErrClosed // the one error of Control, under another name
	}
	return failure
}

// retryEINTR repeats a call that a signal interrupted. A rename that is repeated after it
// took effect fails; it never seems to succeed where it did not.
func retryEINTR(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}

// lockFile takes the exclusive lock, or fails at once with ErrLocked.
func lockFile(f *os.File) error {
	return onFD(f, func(fd int) error {
		err := retryEINTR(func() error { return unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) })
		if err == unix.EWOULDBLOCK {
			return ErrLocked
		}
		return err
	})
}

// linkThenUnlink moves a file without replacing, in two steps.
func linkThenUnlink(olddir int, oldname string, newdir int, newname string) error {
	err := retryEINTR(func() error { return unix.Linkat(olddir, oldname, newdir, newname, 0) })
	if err != nil {
		return err
	}
	return retryEINTR(func() error { return unix.Unlinkat(olddir, oldname, 0) })
}

// extend makes the file at least size bytes long.
func extend(fd int, size int64) error {
	var st unix.Stat_t
	if err := retryEINTR(func() error { return unix.Fstat(fd, &st) }); err != nil {
		return err
	}
	if st.Size >= size {
		return nil
	}
	return retryEINTR(func() error { return unix.Ftruncate(fd, size) })
}
