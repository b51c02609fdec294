//go:build linux || darwin

package vfs

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestLinkThenUnlink(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a", "b"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	move := func(oldname, newname string) error {
		return onFDs(f, f, func(a, b int) error { return linkThenUnlink(a, oldname, b, newname) })
	}
	if err := move("a", "b"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("over a file: got %v, want %v", err, fs.ErrExist)
	}
	if err := move("a", "c"); err != nil {
		t.Error(err)
	}
	for name, want := range map[string]string{"b": "b", "c": "a"} {
		if got, err := os.ReadFile(filepath.Join(dir, name)); string(got) != want || err != nil {
			t.Errorf("%s: got %q, %v, want %q", name, got, err, want)
		}
	}
	if _, err := os.Lstat(filepath.Join(dir, "a")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the old name: got %v, want %v", err, fs.ErrNotExist)
	}
}

func TestExtend(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "a"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, step := range []struct{ to, want int64 }{{10, 10}, {5, 10}, {11, 11}} {
		if err := onFD(f, func(fd int) error { return extend(fd, step.to) }); err != nil {
			t.Fatal(err)
		}
		if info, err := f.Stat(); err != nil || info.Size() != step.want {
			t.Errorf("extend to %d: got %v, %v, want %d", step.to, info.Size(), err, step.want)
		}
	}
}

func TestRetryEINTR(t *testing.T) {
	calls := 0
	err := retryEINTR(func() error {
		if calls++; calls < 3 {
			return unix.EINTR
		}
		return unix.EIO
	})
	if calls != 3 || err != unix.EIO {
		t.Errorf("got %d calls, %v, want 3, EIO", calls, err)
	}
}

func TestBlockBytes(t *testing.T) {
	for _, test := range []struct {
		n, size uint64
		want    int64
	}{
		{3, 4096, 12288},
		{1 << 62, 2, math.MaxInt64},
		{1 << 60, 4096, math.MaxInt64},
		{0, 4096, 0},
	} {
		if got := blockBytes(test.n, test.size); got != test.want {
			t.Errorf("blockBytes(%d, %d): got %d, want %d", test.n, test.size, got, test.want)
		}
	}
}

// A file must not survive into a program that is started.
func TestFilesAreCloseOnExec(t *testing.T) {
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
	err = f.(*osFile).control("getfd", func(fd int) error {
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if flags&unix.FD_CLOEXEC == 0 {
			t.Error("it is not")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
