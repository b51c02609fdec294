package vfstest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"sync"
	"syscall"
	"testing"

	"github.com/weir-agent/weir/wab/vfs"
)

// Suite holds an implementation of vfs.FS to what the interface promises, as far as it can be seen without a
// crash. open returns a new, empty file system for each test; it registers its own cleanup.
func Suite(t *testing.T, open func(t *testing.T) vfs.FS) {
	for _, test := range []struct {
		name string
		run  func(t *testing.T, fsys vfs.FS)
	}{
		{"names are checked", suiteNames},
		{"create is exclusive", suiteCreate},
		{"missing names", suiteMissing},
		{"only regular files open", suiteNotRegular},
		{"folders", suiteFolders},
		{"rename never replaces", suiteRename},
		{"remove", suiteRemove},
		{"list in order", suiteReadDir},
		{"read and write", suiteReadWrite},
		{"a read-only file", suiteReadOnly},
		{"truncate", suiteTruncate},
		{"preallocate", suitePreallocate},
		{"sync", suiteSync},
		{"closed files", suiteClosed},
		{"lock", suiteLock},
		{"space", suiteSpace},
		{"several goroutines", suiteGoroutines},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, open(t)) })
	}
}

// ok fails the test on an error.
func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// is fails the test unless errors.Is(got, want).
func is(t *testing.T, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("%s: got error %v, want %v", what, got, want)
	}
}

// put makes a file that holds data, and leaves it open.
func put(t *testing.T, fsys vfs.FS, name, data string) vfs.File {
	t.Helper()
	f, err := fsys.Create(name)
	ok(t, err)
	t.Cleanup(func() {
		if err := f.Close(); err != nil && !errors.Is(err, fs.ErrClosed) && !errors.Is(err, ErrCrashed) {
			t.Error(err)
		}
	})
	if n, err := f.WriteAt([]byte(data), 0); n != len(data) || err != nil {
		t.Fatalf("write: got %d, %v, want %d", n, err, len(data))
	}
	return f
}

// holds fails the test unless the file holds exactly want.
func holds(t *testing.T, f vfs.File, want string) {
	t.Helper()
	size, err := f.Size()
	ok(t, err)
	got := make([]byte, size)
	n, err := f.ReadAt(got, 0)
	if err != nil && err != io.EOF {
		t.Fatal(err)
	}
	if string(got[:n]) != want {
		t.Errorf("content: got %q, want %q", got[:n], want)
	}
}

// everyName calls each operation that takes a name.
func everyName(fsys vfs.FS, name string) map[string]error {
	closed := func(c io.Closer, err error) error {
		if err == nil {
			err = errors.Join(errors.New("it worked"), c.Close())
		}
		return err
	}
	errs := map[string]error{"mkdir": fsys.Mkdir(name), "remove": fsys.Remove(name)}
	f, err := fsys.Create(name)
	errs["create"] = closed(f, err)
	f, err = fsys.Open(name)
	errs["open"] = closed(f, err)
	f, err = fsys.OpenRead(name)
	errs["openread"] = closed(f, err)
	l, err := fsys.Lock(name)
	errs["lock"] = closed(l, err)
	errs["rename from"] = fsys.Rename(name, "free")
	errs["rename to"] = fsys.Rename("file", name)
	return errs
}

func suiteNames(t *testing.T, fsys vfs.FS) {
	ok(t, fsys.Mkdir("d"))
	put(t, fsys, "file", "x")
	for _, name := range []string{"", ".", "/a", "a/", "..", "../a", "d/../a", "./a", "d//a", "d/."} {
		for op, err := range everyName(fsys, name) {
			is(t, fmt.Sprintf("%s %q", op, name), err, fs.ErrInvalid)
		}
		if name == "." {
			continue
		}
		_, err := fsys.ReadDir(name)
		is(t, "readdir "+name, err, fs.ErrInvalid)
		is(t, "syncdir "+name, fsys.SyncDir(name), fs.ErrInvalid)
	}
}

func suiteCreate(t *testing.T, fsys vfs.FS) {
	f := put(t, fsys, "a", "first")
	_, err := fsys.Create("a")
	is(t, "create over a file", err, fs.ErrExist)
	ok(t, fsys.Mkdir("d"))
	_, err = fsys.Create("d")
	is(t, "create over a folder", err, fs.ErrExist)
	holds(t, f, "first")
	put(t, fsys, "d/a", "other")
	r, err := fsys.OpenRead("d/a")
	ok(t, err)
	holds(t, r, "other")
	ok(t, r.Close())
}

func suiteMissing(t *testing.T, fsys vfs.FS) {
	_, err := fsys.Open("a")
	is(t, "open", err, fs.ErrNotExist)
	_, err = fsys.OpenRead("a")
	is(t, "openread", err, fs.ErrNotExist)
	is(t, "remove", fsys.Remove("a"), fs.ErrNotExist)
	is(t, "rename", fsys.Rename("a", "b"), fs.ErrNotExist)
	_, err = fsys.ReadDir("a")
	is(t, "readdir", err, fs.ErrNotExist)
	is(t, "syncdir", fsys.SyncDir("a"), fs.ErrNotExist)
	put(t, fsys, "file", "x")
	for op, err := range everyName(fsys, "no/a") {
		is(t, op+" in a missing folder", err, fs.ErrNotExist)
	}
	for op, err := range everyName(fsys, "file/a") {
		is(t, op+" below a file", err, syscall.ENOTDIR)
	}
	_, err = fsys.ReadDir("file")
	is(t, "readdir of a file", err, syscall.ENOTDIR)
	is(t, "syncdir of a file", fsys.SyncDir("file"), syscall.ENOTDIR)
}

func suiteNotRegular(t *testing.T, fsys vfs.FS) {
	ok(t, fsys.Mkdir("d"))
	_, err := fsys.Open("d")
	is(t, "open", err, vfs.ErrNotRegular)
	_, err = fsys.OpenRead("d")
	is(t, "openread", err, vfs.ErrNotRegular)
	_, err = fsys.Lock("d")
	is(t, "lock", err, vfs.ErrNotRegular)
	is(t, "rename", fsys.Rename("d", "e"), vfs.ErrNotRegular)
}

func suiteFolders(t *testing.T, fsys vfs.FS) {
	ok(t, fsys.Mkdir("d"))
	is(t, "mkdir over a folder", fsys.Mkdir("d"), fs.ErrExist)
	put(t, fsys, "f", "x")
	is(t, "mkdir over a file", fsys.Mkdir("f"), fs.ErrExist)
	ok(t, fsys.Mkdir("d/e"))
	put(t, fsys, "d/e/f", "deep")
	is(t, "remove a folder in use", fsys.Remove("d/e"), syscall.ENOTEMPTY)
	ok(t, fsys.Remove("d/e/f"))
	ok(t, fsys.Remove("d/e"))
	ok(t, fsys.Remove("d"))
	_, err := fsys.ReadDir("d")
	is(t, "readdir of a removed folder", err, fs.ErrNotExist)
}

func suiteRename(t *testing.T, fsys vfs.FS) {
	ok(t, fsys.Mkdir("d"))
	a := put(t, fsys, "a", "A")
	b := put(t, fsys, "b", "B")
	is(t, "rename over a file", fsys.Rename("a", "b"), fs.ErrExist)
	is(t, "rename over a folder", fsys.Rename("a", "d"), fs.ErrExist)
	is(t, "rename to itself", fsys.Rename("a", "a"), fs.ErrExist)
	holds(t, b, "B")
	ok(t, fsys.Rename("a", "c"))
	_, err := fsys.Open("a")
	is(t, "open the old name", err, fs.ErrNotExist)
	ok(t, fsys.Rename("c", "d/c"))
	_, err = a.WriteAt([]byte("still"), 0)
	ok(t, err)
	f, err := fsys.OpenRead("d/c")
	ok(t, err)
	holds(t, f, "still")
	ok(t, f.Close())
}

func suiteRemove(t *testing.T, fsys vfs.FS) {
	f := put(t, fsys, "a", "kept open")
	ok(t, fsys.Remove("a"))
	is(t, "remove again", fsys.Remove("a"), fs.ErrNotExist)
	holds(t, f, "kept open")
	holds(t, put(t, fsys, "a", "new"), "new")
	holds(t, f, "kept open")
}

func suiteReadDir(t *testing.T, fsys vfs.FS) {
	got, err := fsys.ReadDir(".")
	ok(t, err)
	if len(got) != 0 {
		t.Errorf("a new file system: got %v", got)
	}
	put(t, fsys, "b", "12345")
	put(t, fsys, "a10", "")
	put(t, fsys, "a2", "x")
	ok(t, fsys.Mkdir("a"))
	put(t, fsys, "a/z", "not listed above")
	got, err = fsys.ReadDir(".")
	ok(t, err)
	want := []vfs.Entry{{Name: "a", Mode: fs.ModeDir | 0o700}, {Name: "a10", Mode: 0o600}, {Name: "a2", Size: 1, Mode: 0o600}, {Name: "b", Size: 5, Mode: 0o600}}
	if !slices.Equal(got, want) {
		t.Errorf("readdir: got %v, want %v", got, want)
	}
	got, err = fsys.ReadDir("a")
	ok(t, err)
	if len(got) != 1 || got[0].Name != "z" {
		t.Errorf("readdir a: got %v", got)
	}
}

func suiteReadWrite(t *testing.T, fsys vfs.FS) {
	f := put(t, fsys, "a", "abcdef")
	for _, test := range []struct {
		off     int64
		len     int
		want    string
		wantErr error
	}{
		{0, 6, "abcdef", nil},
		{2, 3, "cde", nil},
		{4, 9, "ef", io.EOF},
		{6, 1, "", io.EOF},
		{99, 1, "", io.EOF},
		{0, 0, "", nil},
	} {
		p := bytes.Repeat([]byte("!"), test.len)
		n, err := f.ReadAt(p, test.off)
		if string(p[:n]) != test.want || err != test.wantErr {
			t.Errorf("read %d at %d: got %q, %v, want %q, %v", test.len, test.off, p[:n], err, test.want, test.wantErr)
		}
	}
	if _, err := f.ReadAt(make([]byte, 1), -1); err == nil || err == io.EOF {
		t.Errorf("read at -1: got %v", err)
	}
	if n, err := f.WriteAt([]byte("x"), -1); n != 0 || err == nil {
		t.Errorf("write at -1: got %d, %v", n, err)
	}
	if n, err := f.WriteAt(nil, 100); n != 0 || err != nil {
		t.Errorf("write nothing: got %d, %v", n, err)
	}
	p := []byte("XY")
	_, err := f.WriteAt(p, 8)
	ok(t, err)
	p[0] = '!' // the bytes belong to the caller again
	_, err = f.WriteAt([]byte("B"), 1)
	ok(t, err)
	holds(t, f, "aBcdef\x00\x00XY")
	g, err := fsys.Open("a")
	ok(t, err)
	_, err = g.WriteAt([]byte("-"), 0)
	ok(t, err)
	ok(t, g.Close())
	holds(t, f, "-Bcdef\x00\x00XY")
}

func suiteReadOnly(t *testing.T, fsys vfs.FS) {
	put(t, fsys, "a", "abc")
	f, err := fsys.OpenRead("a")
	ok(t, err)
	if n, err := f.WriteAt([]byte("x"), 0); n != 0 || err == nil {
		t.Errorf("write: got %d, %v", n, err)
	}
	if err := f.Truncate(1); err == nil {
		t.Error("truncate worked")
	}
	if err := f.Preallocate(0, 100); err == nil {
		t.Error("preallocate worked")
	}
	holds(t, f, "abc")
	ok(t, f.Close())
}

func suiteTruncate(t *testing.T, fsys vfs.FS) {
	f := put(t, fsys, "a", "abcdef")
	ok(t, f.Truncate(2))
	holds(t, f, "ab")
	ok(t, f.Truncate(4))
	holds(t, f, "ab\x00\x00")
	ok(t, f.Truncate(0))
	holds(t, f, "")
	is(t, "truncate to -1", f.Truncate(-1), syscall.EINVAL)
}

func suitePreallocate(t *testing.T, fsys vfs.FS) {
	f := put(t, fsys, "a", "abc")
	ok(t, f.Preallocate(0, 8))
	holds(t, f, "abc\x00\x00\x00\x00\x00")
	ok(t, f.Preallocate(0, 2))
	holds(t, f, "abc\x00\x00\x00\x00\x00")
	ok(t, f.Preallocate(8, 1))
	holds(t, f, "abc\x00\x00\x00\x00\x00\x00")
	is(t, "negative offset", f.Preallocate(-1, 1), syscall.EINVAL)
	is(t, "no bytes", f.Preallocate(0, 0), syscall.EINVAL)
	is(t, "overflow", f.Preallocate(1<<62, 1<<62), syscall.EINVAL)
}

func suiteSync(t *testing.T, fsys vfs.FS) {
	ok(t, fsys.Mkdir("d"))
	f := put(t, fsys, "d/a", "abc")
	ok(t, f.SyncData())
	ok(t, fsys.SyncDir("d"))
	ok(t, fsys.SyncDir("."))
	holds(t, f, "abc")
}

func suiteClosed(t *testing.T, fsys vfs.FS) {
	f := put(t, fsys, "a", "abc")
	ok(t, f.Close())
	_, err := f.ReadAt(make([]byte, 1), 0)
	is(t, "read", err, fs.ErrClosed)
	_, err = f.WriteAt([]byte("x"), 0)
	is(t, "write", err, fs.ErrClosed)
	_, err = f.Size()
	is(t, "size", err, fs.ErrClosed)
	is(t, "syncdata", f.SyncData(), fs.ErrClosed)
	is(t, "truncate", f.Truncate(0), fs.ErrClosed)
	is(t, "preallocate", f.Preallocate(0, 1), fs.ErrClosed)
	is(t, "close", f.Close(), fs.ErrClosed)
}

func suiteLock(t *testing.T, fsys vfs.FS) {
	first, err := fsys.Lock("LOCK")
	ok(t, err)
	_, err = fsys.Lock("LOCK")
	is(t, "lock twice", err, vfs.ErrLocked)
	other, err := fsys.Lock("OTHER")
	ok(t, err)
	ok(t, other.Close())
	_, err = fsys.Lock("LOCK")
	is(t, "lock after another was freed", err, vfs.ErrLocked)
	ok(t, first.Close())
	is(t, "close twice", first.Close(), fs.ErrClosed)
	again, err := fsys.Lock("LOCK")
	ok(t, err)
	is(t, "close the old one again", first.Close(), fs.ErrClosed)
	_, err = fsys.Lock("LOCK")
	is(t, "lock after that", err, vfs.ErrLocked)
	ok(t, again.Close())
	entries, err := fsys.ReadDir(".")
	ok(t, err)
	if len(entries) != 2 || entries[0].Mode != 0o600 {
		t.Errorf("readdir: got %v, want LOCK and OTHER, mode 0600", entries)
	}
}

func suiteSpace(t *testing.T, fsys vfs.FS) {
	free, total, err := fsys.Space()
	ok(t, err)
	if free <= 0 || total < free {
		t.Errorf("space: got %d of %d", free, total)
	}
}

func suiteGoroutines(t *testing.T, fsys vfs.FS) {
	const workers, each = 4, 20
	shared := put(t, fsys, "shared", "")
	var made sync.Map
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range each {
				f, err := fsys.Create(fmt.Sprint("race", i))
				if err == nil {
					made.Store(i, true)
					err = f.Close()
				} else if errors.Is(err, fs.ErrExist) {
					err = nil
				}
				_, werr := shared.WriteAt([]byte{byte('a' + w)}, int64(w*each+i))
				if err := errors.Join(err, werr, shared.SyncData(), fsys.SyncDir(".")); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for i := range each {
		if _, found := made.Load(i); !found {
			t.Errorf("nobody made race%d", i)
		}
	}
	holds(t, shared, "aaaaaaaaaaaaaaaaaaaabbbbbbbbbbbbbbbbbbbbccccccccccccccccccccdddddddddddddddddddd")
}
