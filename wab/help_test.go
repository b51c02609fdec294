package wab_test

import (
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/weir-agent/weir/wab"
	"github.com/weir-agent/weir/wab/record"
	"github.com/weir-agent/weir/wab/vfs"
	"github.com/weir-agent/weir/wab/vfs/vfstest"
	"github.com/weir-agent/weir/wab/wabtest"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(openDirEnv); dir != "" {
		if err := openChild(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	// An everyday run draws the same programs each time; make crash goes further.
	if err := flag.Set("rapid.seed", "1"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// open opens a log with the small segments of these tests. The caller closes it, or its disk ends before.
func open(t *testing.T, fsys vfs.FS) *wab.Log {
	t.Helper()
	opts := crashOptions()
	opts.FS = fsys
	log, err := wab.Open("", opts)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() { log.Close() }) // where the test ends early
	return log
}

// rig is a new log on a new disk, whose operations can be made to fail, with its ledger and its one shard. It is for a synctest bubble, and
// returns when the log has come to rest.
func rig(t *testing.T) (*vfstest.Disk, *vfstest.Injector, *wab.Log, *wabtest.Ledger, *wab.Shard) {
	t.Helper()
	disk := vfstest.NewDisk()
	inj := vfstest.NewInjector(disk)
	log := open(t, inj)
	synctest.Wait()
	return disk, inj, log, wabtest.NewLedger(), log.Shards()[0]
}

func closeLog(t *testing.T, log *wab.Log) {
	t.Helper()
	if err := log.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
}

func mustPush(t *testing.T, l *wabtest.Ledger, s *wab.Shard, d record.Durability, sizes ...int) {
	t.Helper()
	var batch [][]byte
	for _, n := range sizes {
		batch = append(batch, l.Payload(n))
	}
	if err := l.Push(s, d, batch...); err != nil {
		t.Fatalf("push: %v", err)
	}
}

// pass lets the clock of the bubble go on by d, and all background work that is due come to rest.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// drain reads and confirms all that is committed.
func drain(t *testing.T, l *wabtest.Ledger, s *wab.Shard) []record.Record {
	t.Helper()
	from, _ := s.Cursor()
	r := s.NewReader(from)
	read, err := r.Next(nil, 1<<20, 1<<30, wab.Position{})
	if err != nil {
		t.Fatalf("Next: %v", err)
	}
	l.Confirm(read)
	s.Confirm(r.Position(), nil)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	return read
}

// files returns the names of a folder that end in suffix.
func files(t *testing.T, disk *vfstest.Disk, folder, suffix string) (names []string) {
	t.Helper()
	for _, name := range disk.Names() {
		if path.Dir(name) == folder && strings.HasSuffix(name, suffix) {
			names = append(names, name)
		}
	}
	return names
}

func segments(t *testing.T, disk *vfstest.Disk) []string {
	t.Helper()
	return append(files(t, disk, "shard_00", ".wab.sealed"), files(t, disk, "shard_00", ".wab")...)
}

// sealedLog returns a disk with n sealed segments, of each 10 records, and what they hold.
func sealedLog(t *testing.T, n int) (*vfstest.Disk, *wabtest.Ledger) {
	t.Helper()
	disk, l := vfstest.NewDisk(), wabtest.NewLedger()
	for range n {
		log := open(t, disk)
		for range 5 {
			mustPush(t, l, log.Shards()[0], record.Durable, 100, 1500)
		}
		closeLog(t, log)
	}
	return disk, l
}

// activeLog adds a segment that was not sealed, for its process died, and syncs nothing behind its acks.
func activeLog(t *testing.T, disk *vfstest.Disk, l *wabtest.Ledger, groups int) *vfstest.Disk {
	t.Helper()
	log := open(t, disk)
	for range groups {
		mustPush(t, l, log.Shards()[0], record.Durable, 100, 1500, 30)
	}
	image := disk.Image(vfstest.Choice{Keep: vfstest.KeepNone})
	closeLog(t, log)
	return image
}

// reopened is what was found in a damaged folder.
type reopened struct {
	read    []record.Record
	stats   []wab.Stats
	missing int
	lost    int64  // as counted
	damaged uint64 // pieces
}

// reopen opens a damaged folder, holds the ledger, and checks that a second opening finds nothing new.
func reopen(t *testing.T, disk *vfstest.Disk, l *wabtest.Ledger) reopened {
	t.Helper()
	var out reopened
	for again := range 2 {
		read, stats, err := wabtest.Reopen(disk, crashOptions())
		if err != nil {
			t.Fatalf("opening %d: %v", again, err)
		}
		loss, err := l.Check(read, false)
		if err != nil {
			t.Fatalf("opening %d: %v", again, err)
		}
		if again == 1 {
			if len(read) != len(out.read) {
				t.Fatalf("%d records at the second opening, %d at the first", len(read), len(out.read))
			}
			return out
		}
		out = reopened{read: read, stats: stats, missing: loss.Missing}
		for _, st := range stats {
			out.lost += st.Lost
			out.damaged += st.Damaged
		}
	}
	return out
}

// reports returns how many reports the quarantine has.
func reports(t *testing.T, disk *vfstest.Disk) int {
	t.Helper()
	return len(files(t, disk, "quarantine", ".json"))
}

// reportTexts returns the reports of the quarantine.
func reportTexts(t *testing.T, disk *vfstest.Disk) (text string) {
	t.Helper()
	for _, name := range files(t, disk, "quarantine", ".json") {
		b, err := disk.Bytes(name)
		if err != nil {
			t.Fatal(err)
		}
		text += "\n" + name + ": " + string(b)
	}
	return text
}

func exists(fsys vfs.FS, name string) bool {
	f, err := fsys.OpenRead(name)
	if err == nil {
		err = f.Close()
	}
	return !errors.Is(err, fs.ErrNotExist)
}

func checksum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }
