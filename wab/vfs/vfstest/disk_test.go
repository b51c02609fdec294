package vfstest_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"github.com/weir-agent/weir/wab/vfs"
	"github.com/weir-agent/weir/wab/vfs/vfstest"
)

const seeds = 300 // images that a test looks at; the rarest outcome has a chance of 1 in 20

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func create(t testing.TB, fsys vfs.FS, name, data string) vfs.File {
	t.Helper()
	f, err := fsys.Create(name)
	must(t, err)
	write(t, f, data, 0)
	return f
}

func write(t testing.TB, f vfs.File, data string, off int64) {
	t.Helper()
	if _, err := f.WriteAt([]byte(data), off); err != nil {
		t.Fatal(err)
	}
}

// synced makes a file whose bytes and name are durable.
func synced(t testing.TB, fsys vfs.FS, name, data string) vfs.File {
	t.Helper()
	f := create(t, fsys, name, data)
	must(t, f.SyncData())
	must(t, fsys.SyncDir("."))
	return f
}

func content(t testing.TB, d *vfstest.Disk, name string) string {
	t.Helper()
	b, err := d.Bytes(name)
	must(t, err)
	return string(b)
}

// describe names what an image holds, sector by sector: the first letter of each, . for a zero.
func describe(t testing.TB, d *vfstest.Disk) string {
	t.Helper()
	var parts []string
	for _, name := range d.Names() {
		b, err := d.Bytes(name)
		if errors.Is(err, vfs.ErrNotRegular) {
			parts = append(parts, name+"/")
			continue
		}
		must(t, err)
		var letters []byte
		for sector := range slices.Chunk(b, vfstest.SectorBytes) {
			letters = append(letters, bytes.ReplaceAll(sector[:1], []byte{0}, []byte("."))...)
		}
		parts = append(parts, name+"="+string(letters))
	}
	return strings.Join(parts, " ")
}

// images returns the distinct images of a disk, with both extremes.
func images(t testing.TB, d *vfstest.Disk, garbage bool) []string {
	t.Helper()
	seen := map[string]bool{}
	for _, keep := range []vfstest.Keep{vfstest.KeepNone, vfstest.KeepAll} {
		seen[describe(t, d.Image(vfstest.Choice{Keep: keep}))] = true
	}
	for seed := range uint64(seeds) {
		seen[describe(t, d.Image(vfstest.Choice{Seed: seed, Garbage: garbage}))] = true
	}
	var list []string
	for image := range seen {
		list = append(list, image)
	}
	slices.Sort(list)
	return list
}

func sectors(letters string) string {
	var b strings.Builder
	for _, letter := range letters {
		b.WriteString(strings.Repeat(string(letter), vfstest.SectorBytes))
	}
	return b.String()
}

// TestImages says for each state which images there are: all of them, and no other.
func TestImages(t *testing.T) {
	for _, test := range []struct {
		name string
		do   func(t *testing.T, d *vfstest.Disk)
		want []string
	}{
		{"synced bytes and name survive", func(t *testing.T, d *vfstest.Disk) {
			synced(t, d, "a", sectors("AB"))
		}, []string{"a=AB"}},
		{"a name without SyncDir", func(t *testing.T, d *vfstest.Disk) {
			must(t, create(t, d, "a", sectors("A")).SyncData())
		}, []string{"", "a=A"}},
		{"a name without SyncData", func(t *testing.T, d *vfstest.Disk) {
			create(t, d, "a", sectors("AB"))
			must(t, d.SyncDir("."))
		}, []string{"a=", "a=.", "a=..", "a=.B", "a=A", "a=A.", "a=AB"}},
		{"an overwrite tears at the sector", func(t *testing.T, d *vfstest.Disk) {
			f := synced(t, d, "a", sectors("ABC"))
			write(t, f, sectors("xyz")[:1200], 200)
		}, []string{"a=ABC", "a=ABy", "a=AxC", "a=Axy"}},
		{"two writes of one sector", func(t *testing.T, d *vfstest.Disk) {
			f := synced(t, d, "a", sectors("A"))
			write(t, f, "x", 0)
			write(t, f, "y", 0)
		}, []string{"a=A", "a=x", "a=y"}},
		{"what was written after the sync", func(t *testing.T, d *vfstest.Disk) {
			f := synced(t, d, "a", sectors("AB"))
			write(t, f, "x", 0)
			must(t, f.SyncData())
			write(t, f, "y", vfstest.SectorBytes)
		}, []string{"a=xB", "a=xy"}},
		{"a truncation", func(t *testing.T, d *vfstest.Disk) {
			must(t, synced(t, d, "a", sectors("AB")).Truncate(vfstest.SectorBytes))
		}, []string{"a=A", "a=AB"}},
		{"a preallocation", func(t *testing.T, d *vfstest.Disk) {
			must(t, synced(t, d, "a", sectors("A")).Preallocate(0, 3*vfstest.SectorBytes))
		}, []string{"a=A", "a=A.."}},
		{"a synced preallocation", func(t *testing.T, d *vfstest.Disk) {
			f := synced(t, d, "a", sectors("A"))
			must(t, f.Preallocate(0, 2*vfstest.SectorBytes))
			must(t, f.SyncData())
			write(t, f, sectors("B"), vfstest.SectorBytes)
		}, []string{"a=A.", "a=AB"}},
		{"cut and written again", func(t *testing.T, d *vfstest.Disk) {
			f := synced(t, d, "a", sectors("A"))
			must(t, f.Truncate(0))
			must(t, f.SyncData())
			must(t, f.Truncate(vfstest.SectorBytes))
			must(t, f.SyncData())
		}, []string{"a=."}},
		{"cut and grown without a sync", func(t *testing.T, d *vfstest.Disk) {
			f := synced(t, d, "a", sectors("A"))
			must(t, f.Truncate(0))
			must(t, f.Truncate(vfstest.SectorBytes))
		}, []string{"a=", "a=.", "a=A"}},
		{"a rename", func(t *testing.T, d *vfstest.Disk) {
			synced(t, d, "a", sectors("A"))
			must(t, d.Rename("a", "b"))
		}, []string{"a=A", "b=A"}},
		{"a synced rename", func(t *testing.T, d *vfstest.Disk) {
			synced(t, d, "a", sectors("A"))
			must(t, d.Rename("a", "b"))
			must(t, d.SyncDir("."))
		}, []string{"b=A"}},
		{"a removal", func(t *testing.T, d *vfstest.Disk) {
			synced(t, d, "a", sectors("A"))
			must(t, d.Remove("a"))
		}, []string{"", "a=A"}},
		{"two names", func(t *testing.T, d *vfstest.Disk) {
			create(t, d, "a", "")
			create(t, d, "b", "")
		}, []string{"", "a=", "a= b=", "b="}},
		{"removed and made again", func(t *testing.T, d *vfstest.Disk) {
			synced(t, d, "a", sectors("A"))
			must(t, d.Remove("a"))
			must(t, create(t, d, "a", sectors("B")).SyncData())
		}, []string{"", "a=A", "a=B"}},
		{"a rename to another folder", func(t *testing.T, d *vfstest.Disk) {
			synced(t, d, "a", sectors("A"))
			must(t, d.Mkdir("d"))
			must(t, d.SyncDir("."))
			must(t, d.Rename("a", "d/a"))
		}, []string{"a=A d/", "a=A d/ d/a=A", "d/", "d/ d/a=A"}},
		{"a rename to another folder, that one synced", func(t *testing.T, d *vfstest.Disk) {
			synced(t, d, "a", sectors("A"))
			must(t, d.Mkdir("d"))
			must(t, d.SyncDir("."))
			must(t, d.Rename("a", "d/a"))
			must(t, d.SyncDir("d"))
		}, []string{"a=A d/ d/a=A", "d/ d/a=A"}},
		{"SyncDir does not reach up", func(t *testing.T, d *vfstest.Disk) {
			must(t, d.Mkdir("d"))
			must(t, create(t, d, "d/a", sectors("A")).SyncData())
			must(t, d.SyncDir("d"))
		}, []string{"", "d/ d/a=A"}},
		{"SyncDir does not reach down", func(t *testing.T, d *vfstest.Disk) {
			must(t, d.Mkdir("d"))
			must(t, create(t, d, "d/a", sectors("A")).SyncData())
			must(t, d.SyncDir("."))
		}, []string{"d/", "d/ d/a=A"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := vfstest.NewDisk()
			test.do(t, d)
			if got := images(t, d, false); !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestSectorsAreWhole(t *testing.T) {
	d := vfstest.NewDisk()
	f := synced(t, d, "a", sectors("AAAA"))
	const off, n = 200, 1500
	write(t, f, strings.Repeat("x", n), off)
	for seed := range uint64(seeds) {
		got := content(t, d.Image(vfstest.Choice{Seed: seed}), "a")
		for at := 0; at < len(got); at += vfstest.SectorBytes {
			written := got[max(at, off):min(at+vfstest.SectorBytes, off+n)]
			if strings.Trim(written, "A") != "" && strings.Trim(written, "x") != "" {
				t.Fatalf("seed %d: the sector at %d is torn within", seed, at)
			}
		}
	}
}

func TestGarbageStaysWithinTheWrite(t *testing.T) {
	d := vfstest.NewDisk()
	f := synced(t, d, "a", sectors("AAA"))
	const off, n = 100, 1000
	write(t, f, strings.Repeat("x", n), off)
	garbage := 0
	for seed := range uint64(seeds) {
		got := content(t, d.Image(vfstest.Choice{Seed: seed, Garbage: true}), "a")
		if len(got) != 3*vfstest.SectorBytes || strings.Trim(got[:off]+got[off+n:], "A") != "" {
			t.Fatalf("seed %d: bytes beside the write have changed", seed)
		}
		if strings.Trim(got[off:off+n], "Ax") != "" {
			garbage++
		}
		if clean := content(t, d.Image(vfstest.Choice{Seed: seed}), "a"); strings.Trim(clean, "Ax") != "" {
			t.Fatalf("seed %d: garbage that was not asked for", seed)
		}
	}
	if garbage == 0 {
		t.Error("no image has garbage")
	}
}

func TestBothNames(t *testing.T) {
	d := vfstest.NewDisk()
	synced(t, d, "a", sectors("A"))
	must(t, d.Rename("a", "b"))
	var got []string
	for seed := range uint64(seeds) {
		image := describe(t, d.Image(vfstest.Choice{Seed: seed, BothNames: true}))
		if !slices.Contains(got, image) {
			got = append(got, image)
		}
	}
	slices.Sort(got)
	if want := []string{"a=A", "a=A b=A", "b=A"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestImagesWhileWriting takes images beside writers: what a sync has covered is in each of them.
func TestImagesWhileWriting(t *testing.T) {
	d := vfstest.NewDisk()
	var wg sync.WaitGroup
	var count [3]atomic.Int64 // sectors that are durable
	for w := range count {
		f := synced(t, d, fmt.Sprint(w), "")
		wg.Go(func() {
			for i := range int64(50) {
				_, err := f.WriteAt([]byte(sectors("x")), i*vfstest.SectorBytes)
				if err := errors.Join(err, f.SyncData()); err != nil {
					t.Error(err)
				}
				count[w].Store(i + 1)
			}
		})
	}
	for seed := range uint64(50) {
		for w := range count {
			atLeast := int(count[w].Load()) * vfstest.SectorBytes
			got := content(t, d.Image(vfstest.Choice{Seed: seed}), fmt.Sprint(w))
			if len(got) < atLeast || strings.Trim(got[:atLeast], "x") != "" {
				t.Fatalf("seed %d, file %d: synced bytes are missing", seed, w)
			}
		}
	}
	wg.Wait()
}

func TestImageIsReproducible(t *testing.T) {
	build := func() *vfstest.Disk {
		d := vfstest.NewDisk()
		for i := range 20 {
			create(t, d, fmt.Sprint(i), sectors("ABCDEFGH"))
		}
		return d
	}
	for seed := range uint64(20) {
		choice := vfstest.Choice{Seed: seed, Garbage: true}
		one, two := build().Image(choice), build().Image(choice)
		if !slices.Equal(one.Names(), two.Names()) {
			t.Fatalf("seed %d: got %q and %q", seed, one.Names(), two.Names())
		}
		for _, name := range one.Names() {
			if content(t, one, name) != content(t, two, name) {
				t.Fatalf("seed %d: %s differs", seed, name)
			}
		}
	}
}

func TestImageIsDurable(t *testing.T) {
	d := vfstest.NewDisk()
	create(t, d, "a", sectors("AB"))
	image := d.Image(vfstest.Choice{Keep: vfstest.KeepAll})
	if got, want := images(t, image, true), []string{"a=AB"}; !slices.Equal(got, want) {
		t.Errorf("images of an image: got %q, want %q", got, want)
	}
}

func TestCopiesAreIndependent(t *testing.T) {
	d := vfstest.NewDisk()
	f := synced(t, d, "a", sectors("AB"))
	write(t, f, "x", 0)
	copies := map[string]*vfstest.Disk{
		"clone": d.Clone(), "image": d.Image(vfstest.Choice{Keep: vfstest.KeepAll}),
	}
	write(t, f, "original", vfstest.SectorBytes)
	must(t, f.Truncate(5*vfstest.SectorBytes))
	create(t, d, "b", "")
	for name, c := range copies {
		if got := describe(t, c); got != "a=xB" {
			t.Errorf("%s after a change of the original: got %s, want a=xB", name, got)
		}
		g, err := c.Open("a")
		must(t, err)
		write(t, g, sectors("cccccc"), 0)
		must(t, g.SyncData())
		must(t, c.Rename("a", "c"))
		if got := describe(t, c); got != "c=cccccc" {
			t.Errorf("%s: got %s, want c=cccccc", name, got)
		}
	}
	must(t, f.SyncData())
	if got := describe(t, d); got != "a=xo... b=" {
		t.Errorf("the original: got %s, want a=xo... b=", got)
	}
	if got, want := images(t, d, false), []string{"a=xo...", "a=xo... b="}; !slices.Equal(got, want) {
		t.Errorf("images of the original: got %q, want %q", got, want)
	}
}

func TestClonesKeepTheirOwnPendingWrites(t *testing.T) {
	d := vfstest.NewDisk()
	f := synced(t, d, "a", sectors("ABCD"))
	for i := range int64(3) { // leaves room for one more in the list of pending writes
		write(t, f, "x", i*vfstest.SectorBytes)
	}
	c := d.Clone()
	g, err := c.Open("a")
	must(t, err)
	write(t, f, "o", 3*vfstest.SectorBytes)
	write(t, g, "c", 3*vfstest.SectorBytes)
	must(t, f.SyncData())
	must(t, g.SyncData())
	none := vfstest.Choice{Keep: vfstest.KeepNone}
	if got := describe(t, d.Image(none)); got != "a=xxxo" {
		t.Errorf("the original: got %s, want a=xxxo", got)
	}
	if got := describe(t, c.Image(none)); got != "a=xxxc" {
		t.Errorf("the clone: got %s, want a=xxxc", got)
	}
}

func TestKill(t *testing.T) {
	d := vfstest.NewDisk()
	lock, err := d.Lock("LOCK")
	must(t, err)
	f := create(t, d, "a", sectors("A"))
	after := d.Kill()
	if got := describe(t, after); got != "LOCK= a=A" {
		t.Errorf("got %s, want all that was written", got)
	}
	if !slices.Contains(images(t, after, false), "") {
		t.Error("what was not synced has become durable")
	}
	relock, err := after.Lock("LOCK")
	must(t, err)
	must(t, lock.Close()) // of the dead process: frees nothing here
	if _, err := after.Lock("LOCK"); !errors.Is(err, vfs.ErrLocked) {
		t.Errorf("lock: got %v, want %v", err, vfs.ErrLocked)
	}
	must(t, relock.Close())
	if _, err := f.WriteAt([]byte("x"), 0); !errors.Is(err, vfstest.ErrCrashed) {
		t.Errorf("an old handle: got %v, want %v", err, vfstest.ErrCrashed)
	}
}

func TestNothingWorksAfterACrash(t *testing.T) {
	d := vfstest.NewDisk()
	f := synced(t, d, "a", "A")
	d.Crash(vfstest.Choice{})
	_, createErr := d.Create("b")
	_, openErr := d.Open("a")
	_, listErr := d.ReadDir(".")
	_, lockErr := d.Lock("LOCK")
	_, _, spaceErr := d.Space()
	_, readErr := f.ReadAt(make([]byte, 1), 0)
	_, writeErr := f.WriteAt([]byte("x"), 0)
	_, sizeErr := f.Size()
	for op, err := range map[string]error{
		"create": createErr, "open": openErr, "readdir": listErr, "lock": lockErr, "space": spaceErr,
		"read": readErr, "write": writeErr, "size": sizeErr, "mkdir": d.Mkdir("d"), "rename": d.Rename("a", "b"),
		"remove": d.Remove("a"), "syncdir": d.SyncDir("."), "syncdata": f.SyncData(),
		"preallocate": f.Preallocate(0, 1), "truncate": f.Truncate(0),
	} {
		if !errors.Is(err, vfstest.ErrCrashed) {
			t.Errorf("%s: got %v, want %v", op, err, vfstest.ErrCrashed)
		}
	}
	if got := content(t, d, "a"); got != "A" {
		t.Errorf("content: got %q, want A", got)
	}
}

func TestFreeSpace(t *testing.T) {
	d := vfstest.NewDisk()
	f := create(t, d, "a", "12345678")
	must(t, f.Preallocate(0, 16))
	g := create(t, d, "b", "12")
	d.SetFree(4)
	if free, _, err := d.Space(); free != 4 || err != nil {
		t.Errorf("space: got %d, %v, want 4", free, err)
	}
	if n, err := f.WriteAt([]byte("inplace!"), 8); n != 8 || err != nil {
		t.Errorf("write into reserved space: got %d, %v, want 8", n, err)
	}
	if err := f.Preallocate(0, 21); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("preallocate: got %v, want %v", err, syscall.ENOSPC)
	}
	if n, err := g.WriteAt([]byte("abcdefgh"), 2); n != 4 || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("write: got %d, %v, want 4, %v", n, err, syscall.ENOSPC)
	}
	if got := content(t, d, "b"); got != "12abcd" {
		t.Errorf("content: got %q, want 12abcd", got)
	}
	if n, err := g.WriteAt([]byte("x"), 6); n != 0 || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("write on a full disk: got %d, %v, want 0, %v", n, err, syscall.ENOSPC)
	}
	must(t, f.Truncate(10))
	must(t, g.Preallocate(6, 6))
	must(t, d.Remove("a"))
	if free, _, err := d.Space(); free != 10 || err != nil {
		t.Errorf("space after a removal: got %d, %v, want 10", free, err)
	}
	if free, _, err := d.Clone().Space(); free != 10 || err != nil {
		t.Errorf("space of a clone: got %d, %v, want 10", free, err)
	}
	must(t, errors.Join(g.SyncData(), d.SyncDir(".")))
	image := d.Image(vfstest.Choice{Keep: vfstest.KeepNone})
	if free, _, err := image.Space(); free != 10 || err != nil {
		t.Errorf("space of an image: got %d, %v, want 10", free, err)
	}
	d.SetFree(vfstest.DiskBytes)
	write(t, g, strings.Repeat("x", 1000), 0)
}

func TestFilesAreBounded(t *testing.T) {
	f := create(t, vfstest.NewDisk(), "a", "")
	if _, err := f.WriteAt([]byte("x"), vfstest.MaxFileBytes); !errors.Is(err, syscall.EFBIG) {
		t.Errorf("got %v, want %v", err, syscall.EFBIG)
	}
}

func TestDamage(t *testing.T) {
	for _, test := range []struct {
		name string
		do   func(d *vfstest.Disk) error
		want string
	}{
		{"flip a bit", func(d *vfstest.Disk) error { return d.FlipBit("a", 512, 1) }, sectors("A") + "@" + sectors("B")[1:] + "C"},
		{"zero a sector", func(d *vfstest.Disk) error { return d.ZeroSector("a", 1000) }, sectors("A\x00") + "C"},
		{"zero the last sector", func(d *vfstest.Disk) error { return d.ZeroSector("a", 1024) }, sectors("AB") + "\x00"},
		{"overwrite", func(d *vfstest.Disk) error { return d.Overwrite("a", 1023, []byte("xy")) }, sectors("AB")[:1023] + "xy"},
		{"cut", func(d *vfstest.Disk) error { return d.Cut("a", 512) }, sectors("A")},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := vfstest.NewDisk()
			synced(t, d, "a", sectors("AB")+"C")
			before := d.Clone()
			d.Halt()
			must(t, test.do(d))
			for which, got := range map[string]string{
				"reads": content(t, d, "a"), "an image": content(t, d.Image(vfstest.Choice{Keep: vfstest.KeepNone}), "a"),
			} {
				if got != test.want {
					t.Errorf("%s: got %q, want %q", which, got, test.want)
				}
			}
			if got := content(t, before, "a"); got != sectors("AB")+"C" {
				t.Error("the damage reached a clone")
			}
		})
	}
	d := vfstest.NewDisk()
	synced(t, d, "a", "abc")
	for name, err := range map[string]error{
		"flip behind the end": d.FlipBit("a", 3, 0), "overwrite over the end": d.Overwrite("a", 2, []byte("xy")),
		"zero behind the end": d.ZeroSector("a", 3), "longer": d.Cut("a", 4), "negative": d.Cut("a", -1),
	} {
		if !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("%s: got %v, want %v", name, err, fs.ErrInvalid)
		}
	}
	if err := d.Cut("b", 0); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: got %v, want %v", err, fs.ErrNotExist)
	}
}

func TestCopyTree(t *testing.T) {
	d := vfstest.NewDisk()
	synced(t, d, "a", strings.Repeat("0123456789", 300_000))
	must(t, d.Mkdir("d"))
	create(t, d, "d/b", "B")
	to := vfstest.NewDisk()
	must(t, vfstest.CopyTree(to, d))
	to = to.Crash(vfstest.Choice{Keep: vfstest.KeepNone})
	if !slices.Equal(to.Names(), []string{"a", "d", "d/b"}) {
		t.Errorf("names: got %q", to.Names())
	}
	for _, name := range []string{"a", "d/b"} {
		if content(t, to, name) != content(t, d, name) {
			t.Errorf("%s differs", name)
		}
	}
	if err := vfstest.CopyTree(d, d); !errors.Is(err, fs.ErrExist) {
		t.Errorf("copy onto itself: got %v, want %v", err, fs.ErrExist)
	}
}

// TestOverlappingWrites holds the disk to a plain slice of bytes, over clones and images.
func TestOverlappingWrites(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := vfstest.NewDisk()
		if _, err := d.Create("a"); err != nil {
			t.Fatal(err)
		}
		var want, durable []byte
		extend := func(n int) { want = append(want, make([]byte, max(n-len(want), 0))...) }
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			f, err := d.Open("a")
			if err != nil {
				t.Fatal(err)
			}
			at := rapid.IntRange(0, 2000).Draw(t, "at")
			switch rapid.IntRange(0, 6).Draw(t, "what") {
			case 0, 1:
				p := rapid.SliceOfN(rapid.Byte(), 1, 1500).Draw(t, "bytes")
				_, err = f.WriteAt(p, int64(at))
				extend(at + len(p))
				copy(want[at:], p)
			case 2:
				err = f.Truncate(int64(at))
				extend(at)
				want = want[:at:at]
			case 3:
				err = f.Preallocate(0, int64(at)+1)
				extend(at + 1)
			case 4:
				err = errors.Join(f.SyncData(), d.SyncDir("."))
				durable = bytes.Clone(want)
			case 5:
				d = d.Clone()
			case 6:
				if err = d.SyncDir("."); err == nil {
					d = d.Crash(vfstest.Choice{Keep: vfstest.KeepNone})
					want = bytes.Clone(durable)
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			for what, bytesOf := range map[string]func(string) ([]byte, error){"reads": d.Bytes, "durable": d.DurableBytes} {
				expect := map[string][]byte{"reads": want, "durable": durable}[what]
				if got, err := bytesOf("a"); err != nil || !bytes.Equal(got, expect) {
					t.Fatalf("%s: got %v, %v, want %v", what, got, err, expect)
				}
			}
		}
	})
}
