package vfs

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func TestPreallocateReservesBlocks(t *testing.T) {
	d, err := OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	f, err := d.Create("a")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const reserved = 1 << 20
	if err := f.Preallocate(0, reserved); err != nil {
		t.Fatal(err)
	}
	err = f.(*osFile).control("fstat", func(fd int) error {
		var st unix.Stat_t
		if err := unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, 0, 1); err == unix.EOPNOTSUPP {
			t.Skip("the file system cannot reserve")
		}
		if err := unix.Fstat(fd, &st); err != nil {
			return err
		}
		if got := st.Blocks * 512; got < reserved {
			t.Errorf("got %d bytes of blocks, want at least %d", got, reserved)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// The kernel refuses to sync a pipe and a folder of /proc: so it was asked.
func TestSyncsReachTheKernel(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	if err := onFD(w, syncData); err != unix.EINVAL {
		t.Errorf("syncdata of a pipe: got %v, want %v", err, unix.EINVAL)
	}
	d, err := OpenDir("/proc")
	if err != nil {
		t.Skip(err)
	}
	defer d.Close()
	if err := d.SyncDir("."); !errors.Is(err, unix.EINVAL) {
		t.Errorf("syncdir of /proc: got %v, want %v", err, unix.EINVAL)
	}
}
