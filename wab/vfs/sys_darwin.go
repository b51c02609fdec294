package vfs

import "golang.org/x/sys/unix"

// syncData asks the drive to empty its cache: fsync alone does not on this system.
func syncData(fd int) error {
	return retryEINTR(func() error {
		_, err := unix.FcntlInt(uintptr(fd), unix.F_FULLFSYNC, 0)
		return err
	})
}

// preallocate reserves what is missing behind the end and then extends the file over it.
func preallocate(fd int, off, n int64) error {
	var st unix.Stat_t
	if err := retryEINTR(func() error { return unix.Fstat(fd, &st) }); err != nil {
		return err
	}
	missing := off + n - st.Size
	if missing <= 0 {
		return nil
	}
	err := retryEINTR(func() error {
		return unix.FcntlFstore(uintptr(fd), unix.F_PREALLOCATE, &unix.Fstore_t{
			Flags: unix.F_ALLOCATEALL, Posmode: unix.F_PEOFPOSMODE, Length: missing,
		})
	})
	if err != nil && err != unix.ENOTSUP && err != unix.EOPNOTSUPP {
		return err
	}
	return extend(fd, off+n)
}

func renameNoReplace(olddir int, oldname string, newdir int, newname string) error {
	err := retryEINTR(func() error {
		return unix.RenameatxNp(olddir, oldname, newdir, newname, unix.RENAME_EXCL)
	})
	if err == unix.EINVAL || err == unix.ENOTSUP || err == unix.EOPNOTSUPP {
		return linkThenUnlink(olddir, oldname, newdir, newname)
	}
	return err
}

func space(fd int) (free, total int64, err error) {
	var st unix.Statfs_t
	if err := retryEINTR(func() error { return unix.Fstatfs(fd, &st) }); err != nil {
		return 0, 0, err
	}
	return blockBytes(st.Bavail, uint64(st.Bsize)), blockBytes(st.Blocks, uint64(st.Bsize)), nil
}
