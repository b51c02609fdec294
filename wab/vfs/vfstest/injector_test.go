package vfstest_test

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/weir-agent/weir/wab/vfs"
	"github.com/weir-agent/weir/wab/vfs/vfstest"
)

func TestFailedSyncDropsItsBytes(t *testing.T) {
	d := vfstest.NewDisk()
	in := vfstest.NewInjector(d)
	f := synced(t, in, "a", sectors("A"))
	in.Add(vfstest.Fault{Kinds: vfstest.SyncData, Err: syscall.EIO, Drop: true})
	write(t, f, sectors("B"), vfstest.SectorBytes)
	if err := f.SyncData(); !errors.Is(err, syscall.EIO) {
		t.Fatalf("first sync: got %v, want %v", err, syscall.EIO)
	}
	must(t, f.SyncData()) // the lie of F3
	if got := describe(t, d); got != "a=AB" {
		t.Errorf("reads: got %s, want a=AB", got)
	}
	if got, want := images(t, d, true), []string{"a=A"}; !slices.Equal(got, want) {
		t.Errorf("images: got %q, want %q", got, want)
	}
	if got := describe(t, d.Kill()); got != "a=AB" {
		t.Errorf("after the death of the process: got %s, want a=AB", got)
	}
}

func TestFailedSyncWithoutDrop(t *testing.T) {
	d := vfstest.NewDisk()
	in := vfstest.NewInjector(d)
	f := synced(t, in, "a", sectors("A"))
	in.Add(vfstest.Fault{Kinds: vfstest.SyncData, Err: syscall.EIO})
	write(t, f, "x", 0)
	if err := f.SyncData(); !errors.Is(err, syscall.EIO) {
		t.Fatalf("got %v, want %v", err, syscall.EIO)
	}
	if got, want := images(t, d, false), []string{"a=A", "a=x"}; !slices.Equal(got, want) {
		t.Errorf("images: got %q, want %q", got, want)
	}
}

func TestFaultsByPlace(t *testing.T) {
	for _, test := range []struct {
		name  string
		fault vfstest.Fault
		want  []int // the writes, of a, b, a, b, a, that fail
	}{
		{"the first", vfstest.Fault{Err: syscall.EIO}, []int{0}},
		{"the third", vfstest.Fault{Err: syscall.EIO, At: 3}, []int{2}},
		{"from the third on", vfstest.Fault{Err: syscall.EIO, At: 3, Sticky: true}, []int{2, 3, 4}},
		{"by kind", vfstest.Fault{Err: syscall.EIO, Kinds: vfstest.WriteAt, At: 2}, []int{1}},
		{"by another kind", vfstest.Fault{Err: syscall.EIO, Kinds: vfstest.SyncData | vfstest.ReadAt}, nil},
		{"by name", vfstest.Fault{Err: syscall.EIO, Name: "b*", At: 2}, []int{3}},
	} {
		t.Run(test.name, func(t *testing.T) {
			in := vfstest.NewInjector(vfstest.NewDisk())
			a, b := create(t, in, "a1", ""), create(t, in, "b1", "")
			in.Add(test.fault)
			var got []int
			for i, f := range []vfs.File{a, b, a, b, a} {
				n, err := f.WriteAt([]byte("x"), 0)
				switch {
				case errors.Is(err, test.fault.Err) && n == 0:
					got = append(got, i)
				case err != nil || n != 1:
					t.Fatalf("write %d: got %d, %v", i, n, err)
				}
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("failed: got %v, want %v", got, test.want)
			}
			if fired := in.Fired(); len(fired) != len(test.want) {
				t.Errorf("fired: got %v, want %d", fired, len(test.want))
			}
		})
	}
}

func TestShortWrite(t *testing.T) {
	d := vfstest.NewDisk()
	in := vfstest.NewInjector(d)
	f := create(t, in, "a", "")
	in.Add(vfstest.Fault{Kinds: vfstest.WriteAt, Err: syscall.ENOSPC, Short: 3})
	if n, err := f.WriteAt([]byte("abcdef"), 0); n != 3 || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("got %d, %v, want 3, %v", n, err, syscall.ENOSPC)
	}
	if got := content(t, d, "a"); got != "abc" {
		t.Errorf("content: got %q, want abc", got)
	}
}

func TestLateError(t *testing.T) {
	d := vfstest.NewDisk()
	in := vfstest.NewInjector(d)
	synced(t, in, "a", "A")
	in.Add(vfstest.Fault{Kinds: vfstest.Rename | vfstest.Create, Sticky: true, Err: syscall.EIO, Late: true})
	if err := in.Rename("a", "b"); !errors.Is(err, syscall.EIO) {
		t.Errorf("rename: got %v, want %v", err, syscall.EIO)
	}
	if f, err := in.Create("c"); f != nil || !errors.Is(err, syscall.EIO) {
		t.Errorf("create: got %v, %v, want %v", f, err, syscall.EIO)
	}
	if got, want := d.Names(), []string{"b", "c"}; !slices.Equal(got, want) {
		t.Errorf("names: got %q, want %q", got, want)
	}
}

func TestCloseReleasesWhateverHappens(t *testing.T) {
	for _, fault := range []vfstest.Fault{{Kinds: vfstest.Close, Err: syscall.EIO}, {Kinds: vfstest.Close, Crash: true}} {
		want := fault.Err
		if fault.Crash {
			want = vfstest.ErrCrashed
		}
		in := vfstest.NewInjector(vfstest.NewDisk())
		f := create(t, in, "a", "A")
		in.Add(fault)
		if err := f.Close(); !errors.Is(err, want) {
			t.Errorf("close: got %v, want %v", err, want)
		}
		in.Clear()
		if err := f.Close(); !errors.Is(err, fs.ErrClosed) && !errors.Is(err, vfstest.ErrCrashed) {
			t.Errorf("close again: got %v, want %v", err, fs.ErrClosed)
		}
	}
}

func TestImpossibleFaultsPanic(t *testing.T) {
	for name, fault := range map[string]vfstest.Fault{
		"drop without error": {Drop: true}, "short without error": {Short: 1}, "late without error": {Late: true},
		"pattern": {Name: "["},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			vfstest.NewInjector(vfstest.NewDisk()).Add(fault)
		})
	}
}

// sequence is a small protocol: a file is complete once its final name is durable.
func sequence(fsys vfs.FS) error {
	f, err := fsys.Create("new")
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte(sectors("AB")), 0); err != nil {
		return err
	}
	if err := f.SyncData(); err != nil {
		return err
	}
	if err := fsys.Rename("new", "done"); err != nil {
		return err
	}
	return fsys.SyncDir(".")
}

// TestEveryFault fails, and crashes at, operation k for every k.
func TestEveryFault(t *testing.T) {
	for _, fault := range []vfstest.Fault{{Err: syscall.EIO}, {Crash: true}} {
		want := fault.Err
		if fault.Crash {
			want = vfstest.ErrCrashed
		}
		k := 1
		for ; ; k++ {
			d := vfstest.NewDisk()
			in := vfstest.NewInjector(d)
			fault.Kinds, fault.At = vfstest.Mutating, k
			in.Add(fault)
			err := sequence(in)
			if len(in.Fired()) == 0 {
				must(t, err)
				break
			}
			if !errors.Is(err, want) {
				t.Errorf("operation %d: got %v, want %v", k, err, want)
			}
			for _, image := range images(t, d, false) {
				if strings.Contains(image, "done") && image != "done=AB" {
					t.Errorf("operation %d: got %q", k, image)
				}
			}
		}
		if k != 6 {
			t.Errorf("got %d operations, want 5", k-1)
		}
	}
}

func TestCrashInTheMiddle(t *testing.T) {
	for _, test := range []struct {
		kind vfstest.Kind
		do   func(fsys vfs.FS, f vfs.File) error
		want []string
	}{
		{vfstest.WriteAt, func(_ vfs.FS, f vfs.File) error {
			_, err := f.WriteAt([]byte(sectors("xy")), 0)
			return err
		}, []string{"a=AB", "a=Ay", "a=xB", "a=xy"}},
		{vfstest.Rename, func(fsys vfs.FS, _ vfs.File) error { return fsys.Rename("a", "b") }, []string{"a=AB", "b=AB"}},
		{vfstest.Create, func(fsys vfs.FS, _ vfs.File) error {
			f, err := fsys.Create("b")
			if f != nil {
				return errors.New("a crash made a handle")
			}
			return err
		}, []string{"a=AB", "a=AB b="}},
		{vfstest.SyncData, func(_ vfs.FS, f vfs.File) error {
			_, err := f.WriteAt([]byte("x"), 0)
			return errors.Join(err, f.SyncData())
		}, []string{"a=AB", "a=xB"}},
		{vfstest.SyncDir, func(fsys vfs.FS, _ vfs.File) error {
			return errors.Join(fsys.Remove("a"), fsys.SyncDir("."))
		}, []string{"", "a=AB"}},
	} {
		t.Run(test.kind.String(), func(t *testing.T) {
			d := vfstest.NewDisk()
			in := vfstest.NewInjector(d)
			f := synced(t, in, "a", sectors("AB"))
			in.Add(vfstest.Fault{Kinds: test.kind, Crash: true})
			if err := test.do(in, f); !errors.Is(err, vfstest.ErrCrashed) {
				t.Errorf("got %v, want %v", err, vfstest.ErrCrashed)
			}
			if err := in.Mkdir("later"); !errors.Is(err, vfstest.ErrCrashed) {
				t.Errorf("after the crash: got %v, want %v", err, vfstest.ErrCrashed)
			}
			if err := d.Mkdir("beside"); !errors.Is(err, vfstest.ErrCrashed) {
				t.Errorf("on the disk itself: got %v, want %v", err, vfstest.ErrCrashed)
			}
			if got := images(t, d, false); !slices.Equal(got, test.want) {
				t.Errorf("images: got %q, want %q", got, test.want)
			}
		})
	}
}

// What is written while a sync is held is not covered by it.
func TestGateHoldsASync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := vfstest.NewDisk()
		in := vfstest.NewInjector(d)
		f := synced(t, in, "a", sectors("AB"))
		gate := vfstest.NewGate()
		in.Add(vfstest.Fault{Kinds: vfstest.SyncData, Gate: gate})
		write(t, f, "x", 0)
		done := make(chan error, 1)
		go func() { done <- f.SyncData() }()
		<-gate.Reached()
		synctest.Wait()
		write(t, f, "y", vfstest.SectorBytes)
		if got := describe(t, d.Image(vfstest.Choice{Keep: vfstest.KeepNone})); got != "a=AB" {
			t.Errorf("while held: got %s, want a=AB", got)
		}
		gate.Release()
		must(t, <-done)
		if got, want := images(t, d, false), []string{"a=xB", "a=xy"}; !slices.Equal(got, want) {
			t.Errorf("after it: got %q, want %q", got, want)
		}
	})
}

func TestGateHoldsASyncDir(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := vfstest.NewDisk()
		in := vfstest.NewInjector(d)
		gate := vfstest.NewGate()
		in.Add(vfstest.Fault{Kinds: vfstest.SyncDir, Gate: gate})
		create(t, in, "a", "")
		done := make(chan error, 1)
		go func() { done <- in.SyncDir(".") }()
		<-gate.Reached()
		create(t, in, "b", "")
		gate.Release()
		must(t, <-done)
		if got, want := images(t, d, false), []string{"a=", "a= b="}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

func TestCrashReachesWhatIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := vfstest.NewDisk()
		in := vfstest.NewInjector(d)
		f := synced(t, in, "a", sectors("A"))
		gate := vfstest.NewGate()
		in.Add(vfstest.Fault{Kinds: vfstest.WriteAt, Gate: gate}, vfstest.Fault{Kinds: vfstest.Mkdir, Crash: true})
		done := make(chan error, 1)
		go func() {
			_, err := f.WriteAt([]byte("x"), 0)
			done <- err
		}()
		<-gate.Reached()
		if err := in.Mkdir("d"); !errors.Is(err, vfstest.ErrCrashed) {
			t.Errorf("mkdir: got %v, want %v", err, vfstest.ErrCrashed)
		}
		gate.Release()
		if err := <-done; !errors.Is(err, vfstest.ErrCrashed) {
			t.Errorf("write: got %v, want %v", err, vfstest.ErrCrashed)
		}
		if got := describe(t, d); got != "a=A d/" {
			t.Errorf("got %s, want a=A d/", got)
		}
	})
}

func TestTrace(t *testing.T) {
	in := vfstest.NewInjector(vfstest.NewDisk())
	in.Record(vfstest.Mutating)
	in.Add(vfstest.Fault{Kinds: vfstest.Truncate, Err: syscall.EIO})
	must(t, in.Mkdir("d"))
	f := create(t, in, "d/seg_0123", "abc")
	must(t, f.Preallocate(0, 4096))
	must(t, f.SyncData())
	if _, err := f.Size(); err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(7); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	must(t, in.Rename("d/seg_0123", "d/seg_0123.sealed"))
	must(t, f.SyncData())
	must(t, in.SyncDir("d"))
	must(t, in.Remove("d/seg_0123.sealed"))
	in.Record(0)
	must(t, in.Mkdir("e"))
	got := vfstest.Trace(in.Log(), func(name string) string { return strings.ReplaceAll(name, "0123", "N") })
	want := `mkdir d
create d/seg_N
write d/seg_N 0 3
preallocate d/seg_N 0 4096
syncdata d/seg_N
truncate d/seg_N 7: truncate d/seg_0123: input/output error
rename d/seg_N d/seg_N.sealed
syncdata d/seg_N
syncdir d
remove d/seg_N.sealed
`
	if got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	if in.Ops() != 12 {
		t.Errorf("operations: got %d, want 12", in.Ops())
	}
}

func TestKindString(t *testing.T) {
	if got, want := (vfstest.Create | vfstest.Size).String(), "create|size"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func BenchmarkCrashPoint(b *testing.B) {
	for b.Loop() {
		d := vfstest.NewDisk()
		if err := sequence(d); err != nil {
			b.Fatal(err)
		}
		d.Image(vfstest.Choice{Seed: 1, Garbage: true})
	}
}

func BenchmarkImage(b *testing.B) {
	for _, files := range []int{10, 1000} {
		b.Run(fmt.Sprint(files, "files"), func(b *testing.B) {
			d := vfstest.NewDisk()
			for i := range files {
				must(b, create(b, d, fmt.Sprint(i), strings.Repeat("x", 1<<16)).SyncData())
			}
			must(b, d.SyncDir("."))
			f := create(b, d, "active", "")
			for i := range 100 {
				write(b, f, strings.Repeat("y", 300), int64(i)*300)
			}
			for seed := uint64(0); b.Loop(); seed++ {
				d.Image(vfstest.Choice{Seed: seed, Garbage: true})
			}
		})
	}
}
