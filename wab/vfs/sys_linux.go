package vfs

import "golang.org/x/sys/unix"

func syncData(fd int) error {
	return retryEINTR(func() error { return unix.Fdatasync(fd) })
}

// preallocate reserves blocks, or only extends where the file system knows no reservation.
func preallocate(fd int, off, n int64) error {
	err := retryEINTR(func() error { return unix.Fallocate(fd, 0, off, n) })
	if err == unix.EOPNOTSUPP || err == unix.ENOSYS {
		return extend(fd, off+n)
	}
	return err
}

func renameNoReplace(olddir int, oldname string, newdir int, newname string) error {
	err := retryEINTR(func() error {
		return unix.Renameat2(olddir, oldname, newdir, newname, unix.RENAME_NOREPLACE)
	})
	// EINVAL is a file system that does not know the flag, ENOSYS a kernel without the call.
	if err == unix.EINVAL || err == unix.ENOSYS || err == unix.EOPNOTSUPP {
		return linkThenUnlink(olddir, oldname, newdir, newname)
	}
	return err
}

func space(fd int) (free, total int64, err error) {
	var st unix.Statfs_t
	if err := retryEINTR(func() error { return unix.Fstatfs(fd, &st) }); err != nil {
		return 0, 0, err
	}
	block := uint64(st.Frsize)
	if block == 0 {
		block = uint64(st.Bsize)
	}
	return blockBytes(st.Bavail, block), blockBytes(st.Blocks, block), nil
}
