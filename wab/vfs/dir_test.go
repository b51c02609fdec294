//go:build linux || darwin

package vfs_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/weir-agent/weir/wab/vfs"
	"github.com/weir-agent/weir/wab/vfs/vfstest"
)

func openDir(t *testing.T, dir string) *vfs.Dir {
	t.Helper()
	d, err := vfs.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestDirSuite(t *testing.T) {
	vfstest.Suite(t, func(t *testing.T) vfs.FS { return openDir(t, t.TempDir()) })
}

func TestDirSuiteBelowInjector(t *testing.T) {
	vfstest.Suite(t, func(t *testing.T) vfs.FS { return vfstest.NewInjector(openDir(t, t.TempDir())) })
}

func TestOpenDirRefuses(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	must(t, os.Mkdir(filepath.Join(dir, "real"), 0o700))
	must(t, os.Symlink("real", filepath.Join(dir, "link")))
	for _, test := range []struct {
		name string
		want error
	}{
		{"missing", fs.ErrNotExist},
		{"file", syscall.ENOTDIR},
		{"link", syscall.ENOTDIR},
		{"link/", syscall.ENOTDIR},
	} {
		if d, err := vfs.OpenDir(dir + "/" + test.name); !errors.Is(err, test.want) {
			t.Errorf("%s: got %v, %v, want %v", test.name, d, err, test.want)
		}
	}
	openDir(t, filepath.Join(dir, "real"))
}

// openers are the operations that open what stands under a name.
func openers(d *vfs.Dir, name string) map[string]error {
	_, openErr := d.Open(name)
	_, readErr := d.OpenRead(name)
	_, lockErr := d.Lock(name)
	return map[string]error{
		"open": openErr, "openread": readErr, "lock": lockErr, "rename": d.Rename(name, "moved"),
	}
}

func TestDirRefusesWhatIsNotRegular(t *testing.T) {
	dir := t.TempDir()
	d := openDir(t, dir)
	must(t, os.WriteFile(filepath.Join(dir, "file"), []byte("x"), 0o600))
	must(t, os.Symlink("file", filepath.Join(dir, "link")))
	must(t, os.Symlink("nowhere", filepath.Join(dir, "dangling")))
	must(t, os.Symlink("/etc/hostname", filepath.Join(dir, "outside")))
	must(t, syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600))
	for _, name := range []string{"link", "dangling", "outside", "fifo"} {
		for op, err := range openers(d, name) {
			if !errors.Is(err, vfs.ErrNotRegular) {
				t.Errorf("%s %s: got error %v, want %v", op, name, err, vfs.ErrNotRegular)
			}
		}
		if f, err := d.Create(name); !errors.Is(err, fs.ErrExist) {
			t.Errorf("create %s: got %v, %v, want %v", name, f, err, fs.ErrExist)
		}
		if err := d.Rename("file", name); !errors.Is(err, fs.ErrExist) {
			t.Errorf("rename to %s: got %v, want %v", name, err, fs.ErrExist)
		}
	}
	if _, err := os.Lstat(filepath.Join(dir, "nowhere")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the target of a dangling link was made: %v", err)
	}
	must(t, d.Remove("link"))
	if _, err := os.Lstat(filepath.Join(dir, "file")); err != nil {
		t.Errorf("remove of a link took its target: %v", err)
	}
}

func TestDirRefusesLinkedFolders(t *testing.T) {
	dir := t.TempDir()
	d := openDir(t, dir)
	must(t, os.Mkdir(filepath.Join(dir, "real"), 0o700))
	must(t, os.WriteFile(filepath.Join(dir, "real", "a"), nil, 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "b"), nil, 0o600))
	must(t, os.Symlink("real", filepath.Join(dir, "link")))
	errs := openers(d, "link/a")
	_, errs["create"] = d.Create("link/new")
	_, errs["readdir"] = d.ReadDir("link")
	errs["mkdir"] = d.Mkdir("link/new")
	errs["remove"] = d.Remove("link/a")
	errs["syncdir"] = d.SyncDir("link")
	errs["rename to"] = d.Rename("b", "link/b")
	for op, err := range errs {
		if !errors.Is(err, syscall.ENOTDIR) {
			t.Errorf("%s: got error %v, want %v", op, err, syscall.ENOTDIR)
		}
	}
	entries, err := d.ReadDir("real")
	if err != nil || len(entries) != 1 || entries[0].Name != "a" {
		t.Errorf("the linked folder has changed: %v, %v", entries, err)
	}
	entries, err = d.ReadDir(".")
	if err != nil || len(entries) != 3 || entries[1].Mode.Type() != fs.ModeSymlink {
		t.Errorf("readdir: got %v, %v, want the link as a link", entries, err)
	}
}

func TestDirStaysWithItsFolder(t *testing.T) {
	parent := t.TempDir()
	must(t, os.Mkdir(filepath.Join(parent, "data"), 0o700))
	d := openDir(t, filepath.Join(parent, "data"))
	must(t, os.Rename(filepath.Join(parent, "data"), filepath.Join(parent, "moved")))
	f, err := d.Create("a")
	must(t, err)
	must(t, f.Close())
	if _, err := os.Lstat(filepath.Join(parent, "moved", "a")); err != nil {
		t.Error(err)
	}
}

// TestDirUnderSwaps replaces a file by a link, by a FIFO, and back, all the time: what is opened is never the
// link's target, and no open waits for a writer of the FIFO.
func TestDirUnderSwaps(t *testing.T) {
	dir := t.TempDir()
	d := openDir(t, dir)
	at := func(name string) string { return filepath.Join(dir, name) }
	must(t, os.WriteFile(at("target"), []byte("target"), 0o600))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			err := errors.Join(
				os.WriteFile(at("new"), []byte("file"), 0o600), os.Rename(at("new"), at("a")),
				os.Symlink("target", at("new")), os.Rename(at("new"), at("a")),
				os.WriteFile(at("new"), []byte("file"), 0o600), os.Rename(at("new"), at("a")),
				syscall.Mkfifo(at("new"), 0o600), os.Rename(at("new"), at("a")),
			)
			if err != nil {
				t.Error(err)
				return
			}
		}
	})
	opened := 0
	for range 20_000 {
		f, err := d.OpenRead("a")
		if err != nil {
			continue
		}
		opened++
		p := make([]byte, 6)
		if n, _ := f.ReadAt(p, 0); string(p[:n]) == "target" {
			t.Error("a link was followed")
		}
		must(t, f.Close())
	}
	close(stop)
	wg.Wait()
	if opened == 0 {
		t.Log("nothing could be opened: this run has shown nothing")
	}
}
