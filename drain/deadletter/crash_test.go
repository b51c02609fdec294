package deadletter

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/weir-agent/weir/wab/record"
	"github.com/weir-agent/weir/wab/vfs"
	"github.com/weir-agent/weir/wab/vfs/vfstest"
)

var errInjected = errors.New("injected")

// ledger is what a store owes: letters whose Add returned nil, and those whose removal did.
type ledger struct {
	t       *testing.T
	s       *Store
	added   map[record.ID]Letter
	removed map[record.ID]bool // true: for certain; false: perhaps
}

// work changes the store in every way there is, until something fails.
func (l *ledger) work() error {
	ctx := l.t.Context()
	add := func(letters ...Letter) error {
		err := l.s.Add(ctx, letters...)
		if err == nil {
			for _, x := range letters {
				l.added[x.ID] = x
			}
		}
		return err
	}
	gone := func(f func(ids ...record.ID) error, letters ...Letter) error {
		ids := idsOf(letters)
		for _, id := range ids {
			l.removed[id] = false
		}
		err := f(ids...)
		for _, id := range ids {
			l.removed[id] = err == nil
		}
		return err
	}
	drop := func(ids ...record.ID) error { _, err := l.s.Drop(ctx, ids...); return err }
	done := func(ids ...record.ID) error { return l.s.Delivered(ctx, ids...) }
	requeue := func(letters ...Letter) error { _, err := l.s.Requeue(ctx, idsOf(letters)...); return err }
	const big = testFileBytes / 4
	for _, step := range []func() error{
		func() error { return add(letter(0, 100)) },
		func() error { return add(lettersOf(1, 3, big)...) },
		func() error { return requeue(letter(0, 100), letter(1, big)) },
		func() error { return gone(drop, letter(2, big)) },
		func() error { return add(lettersOf(10, 8, big)...) },
		func() error { return gone(done, letter(0, 100), letter(1, big)) },
		func() error { return l.s.Refused(ctx, letter(3, big)) },
		func() error { return gone(drop, lettersOf(10, 7, big)...) },
		func() error { return add(lettersOf(20, 6, big)...) },
		func() error { return gone(drop, lettersOf(20, 5, big)...) },
		func() error { return add(letter(30, 10)) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// testFileBytes makes many files of few bytes.
const testFileBytes = 16 << 10

func newLedger(t *testing.T, s *Store) *ledger {
	s.fileBytes = testFileBytes
	return &ledger{t: t, s: s, added: map[record.ID]Letter{}, removed: map[record.ID]bool{}}
}

// check compares the store on an image with what is owed.
func (l *ledger) check(what string, fsys vfs.FS) {
	l.t.Helper()
	s, err := Open(fsys, Options{})
	if err != nil {
		l.t.Fatalf("%s: Open: %v", what, err)
	}
	defer s.Close()
	s.fileBytes = testFileBytes
	got, _ := list(s)
	there := map[record.ID]bool{}
	for _, x := range got {
		if there[x.ID] {
			l.t.Errorf("%s: letter %d is there twice", what, x.Index)
		}
		there[x.ID] = true
		if l.removed[x.ID] {
			l.t.Errorf("%s: letter %d came back", what, x.Index)
		}
		if want, ok := l.added[x.ID]; ok && string(want.Payload) != string(x.Payload) {
			l.t.Errorf("%s: letter %d has changed", what, x.Index)
		}
	}
	for id, x := range l.added {
		if _, gone := l.removed[id]; !gone && !there[id] {
			l.t.Errorf("%s: letter %d is lost", what, x.Index)
		}
	}
	if err := s.Add(l.t.Context(), letter(77, 10)); err != nil {
		l.t.Errorf("%s: Add afterwards: %v", what, err)
	}
}

// TestF27CrashAtEveryOperation: whatever was added is there, whatever was removed is gone, after a power cut at any operation.
func TestF27CrashAtEveryOperation(t *testing.T) {
	for k := 0; ; k++ {
		disk := vfstest.NewDisk()
		in := vfstest.NewInjector(disk)
		in.Add(vfstest.Fault{Kinds: vfstest.Mutating, At: k, Crash: true})
		s, err := Open(in, Options{})
		if err != nil {
			continue // before there was anything to lose
		}
		l := newLedger(t, s)
		err = l.work()
		_ = s.Close()
		if len(in.Fired()) == 0 {
			if err != nil || k < 20 {
				t.Fatalf("after %d operations: %v", k, err)
			}
			return
		}
		choices := []vfstest.Choice{{Keep: vfstest.KeepNone}, {Keep: vfstest.KeepAll}}
		for seed := range uint64(4) {
			choices = append(choices, vfstest.Choice{Seed: uint64(k)*10 + seed, Garbage: seed%2 == 1})
		}
		for _, c := range choices {
			l.check(fmt.Sprintf("crash at operation %d, %+v", k, c), disk.Image(c))
		}
	}
}

// TestEveryErrorSurfaces: when operation k fails the call says so or the change was made all the same, and the store goes on.
func TestEveryErrorSurfaces(t *testing.T) {
	for k := 0; ; k++ {
		disk := vfstest.NewDisk()
		in := vfstest.NewInjector(disk)
		s, err := Open(in, Options{})
		if err != nil {
			t.Fatal(err)
		}
		kinds := vfstest.Create | vfstest.Rename | vfstest.Remove | vfstest.SyncDir | vfstest.WriteAt | vfstest.SyncData
		in.Add(vfstest.Fault{Kinds: kinds, At: k, Err: errInjected, Short: k % 7, Drop: k%2 == 0})
		l := newLedger(t, s)
		err = l.work()
		fired := in.Fired()
		if len(fired) == 0 {
			return
		}
		if err == nil && s.Stats().CleanError == nil {
			t.Errorf("the failure of %v was not told", fired[0].Op)
		}
		if err != nil && !errors.Is(err, errInjected) {
			t.Errorf("the failure of %v is told as %v", fired[0].Op, err)
		}
		again := letter(50, 20)
		if err := s.Add(t.Context(), again); err != nil {
			t.Errorf("Add after the failure of %v: %v", fired[0].Op, err)
		}
		l.added[again.ID] = again
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		in.Clear()
		l.check(fmt.Sprintf("failure of %v", fired[0].Op), disk.Clone())
		l.check(fmt.Sprintf("failure of %v, power cut", fired[0].Op), disk.Image(vfstest.Choice{Keep: vfstest.KeepNone}))
	}
}

// TestOperations: what is durable when, as the sequence of operations.
func TestOperations(t *testing.T) {
	in := vfstest.NewInjector(vfstest.NewDisk())
	s := openStore(t, in, Options{})
	s.fileBytes = 2048
	in.Record(vfstest.Mutating)
	all := lettersOf(0, 3, 700)
	for i := range all {
		add(t, s, all[i])
	}
	if _, err := s.Requeue(t.Context(), all[0].ID); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Drop(t.Context(), idsOf(all)...); err != nil {
		t.Fatal(err)
	}
	const want = `
create letters_00000001.log
write letters_00000001.log 0
sync letters_00000001.log
syncdir .
write letters_00000001.log 1024
sync letters_00000001.log
write letters_00000001.log 2048
sync letters_00000001.log
create letters_00000002.log
write letters_00000002.log 0
sync letters_00000002.log
syncdir .
write letters_00000002.log 1024
sync letters_00000002.log
write letters_00000002.log 2048
sync letters_00000002.log
create letters_00000003.log
write letters_00000003.log 0
sync letters_00000003.log
syncdir .
write letters_00000003.log 1024
sync letters_00000003.log
remove letters_00000001.log
syncdir .
remove letters_00000002.log
syncdir .
`
	var got strings.Builder
	got.WriteByte('\n')
	for _, op := range in.Log() {
		switch op.Kind {
		case vfstest.WriteAt:
			fmt.Fprintln(&got, "write", op.Name, op.Off)
		case vfstest.SyncData:
			fmt.Fprintln(&got, "sync", op.Name)
		default:
			fmt.Fprintln(&got, strings.ToLower(op.Kind.String()), op.Name)
		}
	}
	if got.String() != want {
		t.Errorf("got %s\nwant %s", got.String(), want)
	}
}

// TestNoSpace: a store on a full disk says so and goes on when there is space.
func TestNoSpace(t *testing.T) {
	disk := vfstest.NewDisk()
	s := openStore(t, disk, Options{})
	add(t, s, letter(0, 1000))
	disk.SetFree(100)
	if err := s.Add(t.Context(), letter(1, 1000)); err == nil || errors.Is(err, ErrFull) {
		t.Errorf("Add without space: %v", err)
	}
	disk.SetFree(vfstest.DiskBytes)
	add(t, s, letter(1, 1000))
	wantLetters(t, s, []Letter{letter(0, 1000), letter(1, 1000)})
	_ = s.Close()
	s = openStore(t, disk, Options{})
	got, _ := list(s)
	if len(got) != 2 {
		t.Errorf("%d letters after the restart, want 2", len(got))
	}
}
