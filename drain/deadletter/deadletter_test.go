package deadletter

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-agent/weir/wab/record"
	"github.com/weir-agent/weir/wab/vfs"
	"github.com/weir-agent/weir/wab/vfs/vfstest"
)

func openStore(t *testing.T, fsys vfs.FS, opts Options) *Store {
	t.Helper()
	s, err := Open(fsys, opts)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// letter returns the letter number n, with a payload of size bytes.
func letter(n, size int) Letter {
	l := Letter{Shard: n % 3, Reason: fmt.Sprint("reason ", n), Status: 400 + n%20, Attempts: n + 1}
	l.Segment, l.Index = "shard_00/seg_00000001-00112233445566aa.wab.sealed", uint64(n+1)
	l.Payload = bytes.Repeat(fmt.Appendf(nil, "payload %d.", n), size/10+1)[:size]
	l.ID = record.ComputeID(l.Segment, l.Index, l.Payload)
	l.Appended = time.Unix(1_700_000_000+int64(n), 123)
	l.Died = l.Appended.Add(time.Minute)
	return l
}

func lettersOf(from, n, size int) []Letter {
	all := make([]Letter, n)
	for i := range all {
		all[i] = letter(from+i, size)
	}
	return all
}

func idsOf(letters []Letter) []record.ID {
	ids := make([]record.ID, len(letters))
	for i := range letters {
		ids[i] = letters[i].ID
	}
	return ids
}

func add(t *testing.T, s *Store, letters ...Letter) {
	t.Helper()
	if err := s.Add(t.Context(), letters...); err != nil {
		t.Fatalf("Add: %v", err)
	}
}

// list returns what the store lists, and how many errors came between.
func list(s *Store) (letters []Letter, bad []error) {
	for l, err := range s.List() {
		if err != nil {
			bad = append(bad, err)
			continue
		}
		letters = append(letters, l)
	}
	return letters, bad
}

func same(a, b Letter) bool {
	return a.Coordinate == b.Coordinate && bytes.Equal(a.Payload, b.Payload) && a.Appended.Equal(b.Appended) && a.Died.Equal(b.Died) &&
		a.Shard == b.Shard && a.Reason == b.Reason && a.Status == b.Status && a.Attempts == b.Attempts && a.Requeued == b.Requeued
}

func wantLetters(t *testing.T, s *Store, want []Letter) {
	t.Helper()
	got, bad := list(s)
	if len(bad) > 0 {
		t.Errorf("List: %v", bad[0])
	}
	if !slices.EqualFunc(got, want, same) {
		t.Errorf("%d letters %.300v, want %d", len(got), got, len(want))
	}
	if st := s.Stats(); st.Letters != int64(len(want)) {
		t.Errorf("Stats counts %d letters, want %d", st.Letters, len(want))
	}
	for _, w := range want {
		if l, err := s.Get(w.ID); err != nil || !same(l, w) {
			t.Errorf("Get %v: %.200v, %v", w.Index, l, err)
		}
	}
}

func TestLettersAreKept(t *testing.T) {
	disk := vfstest.NewDisk()
	s := openStore(t, disk, Options{})
	want := []Letter{letter(0, 1), letter(1, 300), letter(2, inlineBytes), letter(3, inlineBytes+1), letter(4, record.MaxBytes), letter(5, 7)}
	want[5].Shard, want[5].Status, want[5].Reason = -1, 0, ""
	add(t, s, want[0])
	add(t, s, want[1:]...)
	wantLetters(t, s, want)
	if err := s.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("Close again: %v", err)
	}
	if err := s.Add(t.Context(), letter(9, 9)); !errors.Is(err, ErrClosed) {
		t.Errorf("Add after Close: %v, want ErrClosed", err)
	}
	s = openStore(t, disk, Options{})
	wantLetters(t, s, want)
	add(t, s, letter(6, 60))
	wantLetters(t, s, append(want, letter(6, 60)))
}

func TestAnIdIsKeptOnce(t *testing.T) {
	s := openStore(t, vfstest.NewDisk(), Options{})
	first, second := letter(0, 100), letter(0, 100)
	second.Reason = "another"
	add(t, s, first)
	add(t, s, second, letter(1, 10))
	wantLetters(t, s, []Letter{first, letter(1, 10)})
}

func TestLongReasonIsCut(t *testing.T) {
	s := openStore(t, vfstest.NewDisk(), Options{})
	l := letter(0, 10)
	l.Reason = strings.Repeat("r", 5000)
	add(t, s, l)
	l.Reason = l.Reason[:maxReasonBytes]
	wantLetters(t, s, []Letter{l})
}

func TestFullStoreRefuses(t *testing.T) {
	s := openStore(t, vfstest.NewDisk(), Options{MaxBytes: 10 * minLetterBytes})
	add(t, s, lettersOf(0, 8, 10)...)
	if err := s.Add(t.Context(), lettersOf(8, 3, 10)...); !errors.Is(err, ErrFull) {
		t.Fatalf("Add over the limit: %v, want ErrFull", err)
	}
	wantLetters(t, s, lettersOf(0, 10, 10)) // as many as there was room for, and nothing was replaced
	if n, err := s.Drop(t.Context(), letter(4, 10).ID); n != 1 || err != nil {
		t.Fatalf("Drop: %d, %v", n, err)
	}
	add(t, s, lettersOf(8, 3, 10)...)
	if st := s.Stats(); st.Bytes != 10*minLetterBytes || st.MaxBytes != 10*minLetterBytes {
		t.Errorf("stats: %+v", st)
	}
}

func TestRequeue(t *testing.T) {
	disk := vfstest.NewDisk()
	s := openStore(t, disk, Options{})
	all := lettersOf(0, 6, 50)
	add(t, s, all...)
	n, err := s.Requeue(t.Context(), all[1].ID, letter(99, 1).ID, all[3].ID)
	if n != 2 || !errors.Is(err, ErrNotFound) {
		t.Errorf("Requeue: %d, %v; want 2 and ErrNotFound", n, err)
	}
	requeued := func() (got []int) {
		for l, err := range s.Requeued() {
			if err != nil || !l.Requeued {
				t.Fatalf("Requeued: %v, %v", l.Index, err)
			}
			got = append(got, int(l.Index)-1)
		}
		return got
	}
	if got := requeued(); !slices.Equal(got, []int{1, 3}) {
		t.Fatalf("requeued: %v", got)
	}
	_ = s.Close()
	s = openStore(t, disk, Options{})
	if v, err := s.WaitRequeued(t.Context(), 0); v != 1 || err != nil {
		t.Errorf("WaitRequeued after the start: %d, %v", v, err)
	}
	if got := requeued(); !slices.Equal(got, []int{1, 3}) {
		t.Fatalf("requeued after the restart: %v", got)
	}
	if err := s.Delivered(t.Context(), all[1].ID, letter(99, 1).ID); err != nil {
		t.Errorf("Delivered: %v", err)
	}
	again := all[3]
	again.Reason, again.Attempts = "still bad", 7
	if err := s.Refused(t.Context(), again, letter(99, 1)); err != nil {
		t.Errorf("Refused: %v", err)
	}
	want := []Letter{all[0], all[2], all[4], all[5], again}
	wantLetters(t, s, want)
	_ = s.Close()
	s = openStore(t, disk, Options{})
	wantLetters(t, s, want)
	if v, err := s.WaitRequeued(ended(t), 0); !errors.Is(err, context.Canceled) {
		t.Errorf("WaitRequeued with none: %d, %v", v, err)
	}
}

func ended(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

func TestWaitRequeuedWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t, vfstest.NewDisk(), Options{})
		add(t, s, letter(0, 10))
		got := make(chan error, 2)
		wait := func(seen uint64) {
			_, err := s.WaitRequeued(t.Context(), seen)
			got <- err
		}
		go wait(0)
		synctest.Wait()
		if _, err := s.Requeue(t.Context(), letter(0, 10).ID); err != nil {
			t.Fatal(err)
		}
		if err := <-got; err != nil {
			t.Errorf("WaitRequeued: %v", err)
		}
		go wait(1)
		synctest.Wait()
		_ = s.Close()
		if err := <-got; !errors.Is(err, ErrClosed) {
			t.Errorf("WaitRequeued at Close: %v, want ErrClosed", err)
		}
	})
}

func TestReadOnlyBesideTheOwner(t *testing.T) {
	disk := vfstest.NewDisk()
	s := openStore(t, disk, Options{})
	all := lettersOf(0, 3, 100)
	add(t, s, all...)
	if _, err := Open(disk, Options{}); !errors.Is(err, vfs.ErrLocked) {
		t.Errorf("a second owner: %v, want ErrLocked", err)
	}
	r := openStore(t, disk, Options{ReadOnly: true})
	wantLetters(t, r, all)
	for name, err := range map[string]error{
		"Add":       r.Add(t.Context(), letter(9, 1)),
		"Delivered": r.Delivered(t.Context(), all[0].ID),
		"Refused":   r.Refused(t.Context(), all[0]),
	} {
		if !errors.Is(err, ErrReadOnly) {
			t.Errorf("%s: %v, want ErrReadOnly", name, err)
		}
	}
	if _, err := r.Drop(t.Context(), all[0].ID); !errors.Is(err, ErrReadOnly) {
		t.Errorf("Drop: %v, want ErrReadOnly", err)
	}
	// What the owner removes meanwhile stays readable for who has opened it.
	if _, err := s.Drop(t.Context(), idsOf(all)...); err != nil {
		t.Fatal(err)
	}
	_ = s.Close()
	s = openStore(t, disk, Options{})
	add(t, s, letter(5, 5))
	if st := s.Stats(); st.Letters != 1 || st.Files != 1 {
		t.Errorf("the owner has %+v", st)
	}
	wantLetters(t, r, all)
}

// TestReadOnlyWhileFilesGo: whoever opens the store while its owner moves letters and removes files sees each that stays once.
func TestReadOnlyWhileFilesGo(t *testing.T) {
	disk := vfstest.NewDisk()
	s := openStore(t, disk, Options{})
	s.fileBytes = testFileBytes
	kept := lettersOf(1000, 10, 300)
	add(t, s, kept...)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 200 {
			batch := lettersOf(i*5, 5, testFileBytes/8)
			if err := s.Add(t.Context(), batch...); err != nil {
				t.Errorf("Add: %v", err)
			}
			if _, err := s.Drop(t.Context(), idsOf(batch)...); err != nil {
				t.Errorf("Drop: %v", err)
			}
		}
	}()
	for n := 0; ; n++ {
		select {
		case <-done:
			if n == 0 || s.Stats().Files > 8 {
				t.Errorf("opened %d times, %d files are left", n, s.Stats().Files)
			}
			return
		default:
		}
		r, err := Open(disk, Options{ReadOnly: true})
		if err != nil {
			t.Fatalf("Open: %v", err)
		}
		got, bad := list(r)
		got = slices.DeleteFunc(got, func(l Letter) bool { return l.Index <= 1000 }) // the index is one more than the number
		slices.SortFunc(got, func(a, b Letter) int { return int(a.Index) - int(b.Index) })
		if len(bad) > 0 || !slices.EqualFunc(got, kept, same) {
			t.Fatalf("%d letters of 10, %v", len(got), bad)
		}
		_ = r.Close()
	}
}

func TestExport(t *testing.T) {
	s := openStore(t, vfstest.NewDisk(), Options{})
	all := lettersOf(0, 3, 20)
	all[1].Payload = []byte("<\x00\xff\n>")
	add(t, s, all...)
	var out bytes.Buffer
	if n, err := s.Export(&out); n != 3 || err != nil {
		t.Fatalf("Export: %d, %v", n, err)
	}
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(lines) != 3 {
		t.Fatalf("%d lines", len(lines))
	}
	for i, line := range lines {
		var got exported
		if err := json.Unmarshal([]byte(line), &got); err != nil {
			t.Fatal(err)
		}
		w := all[i]
		if got.ID != w.ID || !bytes.Equal(got.Payload, w.Payload) || got.Reason != w.Reason || got.Segment != w.Segment || got.Index != w.Index ||
			got.Status != w.Status || got.Attempts != w.Attempts || !got.Appended.Equal(w.Appended) || !got.Died.Equal(w.Died) || got.Shard != w.Shard {
			t.Errorf("line %d: %s", i, line)
		}
	}
}

// TestSpaceIsGotBack: files go as letters go, and what stays is moved, not lost.
func TestSpaceIsGotBack(t *testing.T) {
	disk := vfstest.NewDisk()
	s := openStore(t, disk, Options{})
	s.fileBytes = testFileBytes
	var kept []Letter
	for i := range 60 {
		batch := lettersOf(i*10, 10, testFileBytes/20)
		add(t, s, batch...)
		kept = append(kept, batch[0])
		if i == 20 {
			if _, err := s.Requeue(t.Context(), batch[0].ID); err != nil {
				t.Fatal(err)
			}
			kept[i].Requeued = true
		}
		if n, err := s.Drop(t.Context(), idsOf(batch[1:])...); n != 9 || err != nil {
			t.Fatalf("Drop: %d, %v", n, err)
		}
	}
	st := s.Stats()
	if limit := st.Bytes + st.Bytes/slackShare + (slackFiles+2)*testFileBytes; st.FileBytes > limit || st.CleanError != nil {
		t.Errorf("%d bytes of letters take %d bytes of files, want %d at most; %v", st.Bytes, st.FileBytes, limit, st.CleanError)
	}
	check := func(s *Store) {
		t.Helper()
		got, bad := list(s)
		slices.SortFunc(got, func(a, b Letter) int { return int(a.Index) - int(b.Index) })
		if len(bad) > 0 || !slices.EqualFunc(got, kept, same) {
			t.Errorf("%d letters of %d, %v", len(got), len(kept), bad)
		}
	}
	check(s)
	_ = s.Close()
	s = openStore(t, disk, Options{})
	s.fileBytes = testFileBytes
	check(s)
	if _, err := s.Drop(t.Context(), idsOf(kept)...); err != nil {
		t.Fatal(err)
	}
	if st := s.Stats(); st.Files > 1 || st.Letters != 0 || st.Bytes != 0 || st.Requeued != 0 {
		t.Errorf("all are gone, and there are %+v", st)
	}
}

// TestListWhileLettersGo: what stays is listed once, although files are to be cleaned meanwhile.
func TestListWhileLettersGo(t *testing.T) {
	s := openStore(t, vfstest.NewDisk(), Options{})
	s.fileBytes = testFileBytes
	all := lettersOf(0, 100, testFileBytes/4)
	for i := range all {
		add(t, s, all[i])
	}
	var gone []record.ID
	for i := range all {
		if i%10 != 0 {
			gone = append(gone, all[i].ID)
		}
	}
	seen := map[uint64]int{}
	for l, err := range s.List() {
		if err != nil {
			t.Fatal(err)
		}
		if seen[l.Index]++; len(seen) == 1 {
			if n, err := s.Drop(t.Context(), gone...); n != 90 || err != nil {
				t.Fatalf("Drop: %d, %v", n, err)
			}
		}
	}
	if len(seen) != 10 {
		t.Errorf("%d letters were listed, want 10: %v", len(seen), seen)
	}
	for index, n := range seen {
		if n != 1 {
			t.Errorf("letter %d was listed %d times", index, n)
		}
	}
	for i := range 10 {
		add(t, s, letter(500+i, 10)) // and now they are cleaned
	}
	if st := s.Stats(); st.Files > 8 {
		t.Errorf("%d files are left", st.Files)
	}
}

// TestDamagedPart: of a large letter of which a part does not verify nothing is listed.
func TestDamagedPart(t *testing.T) {
	disk := vfstest.NewDisk()
	s := openStore(t, disk, Options{})
	all := []Letter{letter(0, 100), letter(1, inlineBytes+5000), letter(2, 100)}
	add(t, s, all...)
	_ = s.Close()
	data := must(t)(disk.Bytes(fileName(1)))
	if err := disk.FlipBit(fileName(1), int64(bytes.LastIndex(data, []byte("payload 1."))), 0); err != nil {
		t.Fatal(err)
	}
	s = openStore(t, disk, Options{})
	got, bad := list(s)
	if len(got) != 2 || !same(got[0], all[0]) || !same(got[1], all[2]) || len(bad) == 0 {
		t.Errorf("%d letters, %v", len(got), bad)
	}
}

// TestOneFlippedBit: wherever one bit flips, at most one letter is lost, and where one is lost that is said.
func TestOneFlippedBit(t *testing.T) {
	disk := vfstest.NewDisk()
	s := openStore(t, disk, Options{})
	all := lettersOf(0, 4, 40)
	add(t, s, all[0])
	add(t, s, all[1:3]...)
	add(t, s, all[3])
	_ = s.Close()
	name := fileName(1)
	size := len(must(t)(disk.Bytes(name)))
	for off := range size {
		image := disk.Clone()
		if err := image.FlipBit(name, int64(off), uint(off%8)); err != nil {
			t.Fatal(err)
		}
		s := openStore(t, image, Options{})
		got, bad := list(s)
		if len(got) < len(all)-1 {
			t.Fatalf("offset %d: %d letters are left of %d", off, len(got), len(all))
		}
		if len(got) < len(all) && (len(bad) == 0 || s.Stats().Damages == 0) {
			t.Errorf("offset %d: a letter is lost and nothing was said", off)
		}
		for _, l := range got {
			if !slices.ContainsFunc(all, func(w Letter) bool { return same(l, w) }) {
				t.Errorf("offset %d: a letter that is none: %+v", off, l)
			}
		}
		_ = s.Close()
	}
}

func must(t *testing.T) func([]byte, error) []byte {
	return func(b []byte, err error) []byte {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
}

// TestF28NothingUnreadIsDeleted: requeue and drop of what cannot be read whole fail, and its bytes stay.
func TestF28NothingUnreadIsDeleted(t *testing.T) {
	disk := vfstest.NewDisk()
	s := openStore(t, disk, Options{})
	all := lettersOf(0, 3, 5000)
	add(t, s, all...)
	_ = s.Close()
	before := must(t)(disk.Bytes(fileName(1)))
	at := bytes.Index(before, all[1].Payload)
	if err := disk.FlipBit(fileName(1), int64(at)+100, 3); err != nil {
		t.Fatal(err)
	}
	damaged := must(t)(disk.Bytes(fileName(1)))

	s = openStore(t, disk, Options{})
	got, bad := list(s)
	if len(got) != 2 || len(bad) != 1 {
		t.Fatalf("%d letters and %v", len(got), bad)
	}
	if _, ok := errors.AsType[*CorruptError](bad[0]); !ok {
		t.Errorf("the damage is told as %T", bad[0])
	}
	var out bytes.Buffer
	if n, err := s.Export(&out); n != 2 || err == nil {
		t.Errorf("Export: %d, %v; want 2 and an error", n, err)
	}
	if n, err := s.Requeue(t.Context(), idsOf(all)...); n != 2 || !errors.Is(err, ErrNotFound) {
		t.Errorf("Requeue: %d, %v; want 2 and ErrNotFound", n, err)
	}
	if err := s.Delivered(t.Context(), all[0].ID, all[2].ID); err != nil {
		t.Fatal(err)
	}
	if got := must(t)(disk.Bytes(fileName(1) + damagedSuffix)); !bytes.Equal(got, damaged) {
		t.Error("the file with what could not be read was changed")
	}
	// It can be delivered and die again: nothing of the damage is in the way.
	add(t, s, all[1])
	wantLetters(t, s, []Letter{all[1]})
	_ = s.Close()
	s = openStore(t, disk, Options{})
	wantLetters(t, s, []Letter{all[1]})
}

// TestDamageStopsCleaning: letters that were damaged after the start are not cleaned away.
func TestDamageStopsCleaning(t *testing.T) {
	disk := vfstest.NewDisk()
	s := openStore(t, disk, Options{})
	s.fileBytes = testFileBytes
	var all []Letter
	for i := range 20 {
		all = append(all, letter(i, testFileBytes/2))
		add(t, s, all[i])
	}
	at := bytes.Index(must(t)(disk.Bytes(fileName(1))), all[0].Payload)
	if err := disk.FlipBit(fileName(1), int64(at), 0); err != nil {
		t.Fatal(err)
	}
	damaged := must(t)(disk.Bytes(fileName(1)))
	if n, err := s.Drop(t.Context(), idsOf(all[2:])...); n != 18 || err != nil {
		t.Fatalf("Drop: %d, %v", n, err)
	}
	if s.Stats().CleanError == nil {
		t.Error("nothing is said of the letter that cannot be moved")
	}
	if got := must(t)(disk.Bytes(fileName(1))); !bytes.Equal(got, damaged) {
		t.Error("the file was changed")
	}
	if l, err := s.Get(all[0].ID); err == nil {
		t.Errorf("Get of the damaged letter: %v", l.Index)
	}
	if l, err := s.Get(all[1].ID); err != nil || !same(l, all[1]) {
		t.Errorf("Get of its neighbour: %v, %v", l.Index, err)
	}
}

func TestStrangeFilesAreLeftAlone(t *testing.T) {
	disk := vfstest.NewDisk()
	for _, name := range []string{"README", "letters_00000007.log.old", "letters_x.log", "letters_00000009.log.damaged"} {
		f, err := disk.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt(bytes.Repeat([]byte{7}, 3000), 0); err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
	}
	if err := disk.Mkdir("letters_00000008.log"); err != nil {
		t.Fatal(err)
	}
	f, err := disk.Create(fileName(3)) // a run died before it held a letter
	if err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
	before := len(disk.Names())
	s := openStore(t, disk, Options{})
	add(t, s, letter(0, 10))
	names := disk.Names()
	if len(names) != before+1 || !slices.Contains(names, fileName(10)) || slices.Contains(names, fileName(3)) {
		t.Errorf("files: %v", names) // LOCK and the new one came, the empty one went
	}
	wantLetters(t, s, []Letter{letter(0, 10)})
}
