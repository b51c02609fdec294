package wab_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-agent/weir/wab"
	"github.com/weir-agent/weir/wab/record"
	"github.com/weir-agent/weir/wab/vfs"
	"github.com/weir-agent/weir/wab/vfs/vfstest"
	"github.com/weir-agent/weir/wab/wabtest"
)

var update = flag.Bool("update", false, "write the golden files anew")

// randomBytes gives the same instance and nonces in each run.
type randomBytes struct{ src *rand.ChaCha8 }

func newRandom() *randomBytes { return &randomBytes{rand.NewChaCha8([32]byte{1})} }

func (r *randomBytes) Read(b []byte) (int, error) { return r.src.Read(b) }

var instanceInName = regexp.MustCompile(`(seg_[0-9]+)-[0-9a-f]{16}`)

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", "traces", name+".txt")
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: the order of operations has changed; got\n%swant\n%s", name, got, want)
	}
}

var segmentStem = regexp.MustCompile(`^shard_00/(seg_[0-9]+|cursor)`)

// byFile is the trace of operations, file by file: the keeper, the preparer and the producers each have their order, but none
// among them. A sync of a folder belongs to the first change of a name in it that was not synced before.
func byFile(ops []vfstest.Op) string {
	traces := map[string][]vfstest.Op{}
	var changed []string // files whose name waits for a sync
	for _, op := range ops {
		key := segmentStem.FindString(op.Name)
		switch {
		case op.Kind == vfstest.SyncDir && op.Name == "shard_00" && len(changed) > 0:
			key, changed = changed[0], changed[1:]
		case key != "" && (op.Kind == vfstest.Rename || op.Kind == vfstest.Create && strings.HasSuffix(key, "cursor")):
			changed = append(changed, key)
		}
		traces[key] = append(traces[key], op)
	}
	var out strings.Builder
	for _, key := range slices.Sorted(maps.Keys(traces)) {
		out.WriteString(vfstest.Trace(traces[key], func(n string) string { return instanceInName.ReplaceAllString(n, "$1") }) + "\n")
	}
	return out.String()
}

// TestGoldenTraces holds the file operations of each row of the crash table, in their order.
func TestGoldenTraces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := vfstest.NewDisk()
		inj := vfstest.NewInjector(disk)
		const kinds = vfstest.Mutating
		inj.Record(kinds)
		done := 0
		step := func(name string) {
			t.Helper()
			synctest.Wait()
			ops := inj.Log()
			golden(t, name, byFile(ops[done:]))
			done = len(ops)
		}
		opts := crashOptions()
		opts.FS, opts.Rand = inj, newRandom()
		log, err := wab.Open("", opts)
		if err != nil {
			t.Fatal(err)
		}
		l := wabtest.NewLedger()
		s := log.Shards()[0]
		step("first_start")
		mustPush(t, l, s, record.Durable, 100)
		step("append_durable")
		mustPush(t, l, s, record.Buffered, 100)
		step("append_buffered")
		pass(opts.SyncInterval + time.Second)
		step("sync_buffered")
		for range 7 {
			mustPush(t, l, s, record.Durable, 8000)
			synctest.Wait()
		}
		step("append_more")
		mustPush(t, l, s, record.Durable, 8000)
		pass(2 * time.Second)
		step("rotate_seal_prepare")
		drain(t, l, s)
		pass(2 * time.Second)
		step("confirm_recycle")
		for range 8 {
			mustPush(t, l, s, record.Durable, 8000)
			synctest.Wait()
		}
		pass(2 * time.Second)
		step("prepare_recycled")
		killed := disk.Clone()
		closeLog(t, log)
		step("close")

		inj = vfstest.NewInjector(killed)
		inj.Record(kinds)
		done = 0
		opts.FS = inj
		if log, err = wab.Open("", opts); err != nil {
			t.Fatal(err)
		}
		step("recover_after_kill")
		drain(t, l, log.Shards()[0])
		pass(2 * time.Second)
		step("confirm_after_kill")
		closeLog(t, log)
		step("close_empty")
	})
}

// TestKillThenPowerCut kills a process at each operation and lets a second one go on from there; what it acks survives a power cut.
func TestKillThenPowerCut(t *testing.T) {
	for k := 1; ; k += stride {
		fired := false
		synctest.Test(t, func(t *testing.T) {
			disk := vfstest.NewDisk()
			inj := vfstest.NewInjector(disk)
			inj.Add(vfstest.Fault{Kinds: vfstest.Mutating, At: k, Crash: true})
			l := wabtest.NewLedger()
			_ = scenario(inj, l)
			fired = len(inj.Fired()) > 0
			disk = disk.Kill()
			log := open(t, disk)
			s := log.Shards()[0]
			mustPush(t, l, s, record.Durable, 50, 60)
			r := s.NewReader(wab.Position{})
			read, err := r.Next(nil, 3, 1<<20, wab.Position{})
			if err != nil {
				t.Fatal(err)
			}
			l.Confirm(read)
			s.Confirm(r.Position(), nil)
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				mustPush(t, l, s, record.Durable, 70)
				for name, choice := range images(k) {
					verify(t, disk.Image(choice), l, true, fmt.Sprintf("kill at operation %d, then image %s", k, name))
				}
				pass(2 * time.Second)
			}
			closeLog(t, log)
		})
		if !fired {
			break
		}
	}
}

// dirty are the disks that recovery has the most to do with.
func dirty() map[string]func(*testing.T) (*vfstest.Disk, *wabtest.Ledger) {
	crashed := func(k int, choice vfstest.Choice) func(*testing.T) (*vfstest.Disk, *wabtest.Ledger) {
		return func(*testing.T) (*vfstest.Disk, *wabtest.Ledger) {
			disk, l := vfstest.NewDisk(), wabtest.NewLedger()
			inj := vfstest.NewInjector(disk)
			inj.Add(vfstest.Fault{Kinds: vfstest.Mutating, At: k, Crash: true})
			_ = scenario(inj, l)
			return disk.Image(choice), l
		}
	}
	return map[string]func(*testing.T) (*vfstest.Disk, *wabtest.Ledger){
		"torn append":         crashed(60, vfstest.Choice{Keep: vfstest.KeepSome, Seed: 3, Garbage: true}),
		"seal under way":      crashed(75, vfstest.Choice{Keep: vfstest.KeepSome, Seed: 5, BothNames: true}),
		"recycle under way":   crashed(90, vfstest.Choice{Keep: vfstest.KeepSome, Seed: 7, BothNames: true}),
		"everything is there": crashed(100, vfstest.Choice{Keep: vfstest.KeepAll}),
		"damaged": func(t *testing.T) (*vfstest.Disk, *wabtest.Ledger) {
			disk, l := sealedLog(t, 2)
			disk = activeLog(t, disk, l, 4)
			active := files(t, disk, "shard_00", ".wab")[0]
			if err := errors.Join(disk.FlipBit(segments(t, disk)[0], 1100, 3), disk.ZeroSector(active, 4096), disk.FlipBit(active, 1030, 1)); err != nil {
				t.Fatal(err)
			}
			return disk, l
		},
	}
}

// TestCrashDuringRecovery crashes, and fails, each operation of a recovery and of the work behind it in turn.
func TestCrashDuringRecovery(t *testing.T) {
	var points atomic.Int64
	for name, build := range dirty() {
		t.Run(name, func(t *testing.T) {
			for j := 1; ; j += stride {
				fired := false
				synctest.Test(t, func(t *testing.T) {
					image, l := build(t)
					before, _, err := wabtest.Reopen(image.Clone(), crashOptions())
					if err != nil {
						t.Fatal(err)
					}
					for _, crash := range []bool{true, false} {
						disk := image.Clone()
						inj := vfstest.NewInjector(disk)
						inj.Add(vfstest.Fault{Kinds: vfstest.Mutating | vfstest.Open | vfstest.OpenRead | vfstest.ReadDir, At: j, Crash: crash, Err: map[bool]error{false: syscall.EIO}[crash]})
						_, _, err := wabtest.Reopen(inj, crashOptions())
						fired = fired || len(inj.Fired()) > 0
						what := fmt.Sprintf("operation %d of the recovery (%v)", j, err)
						for choice, c := range images(j) {
							again := disk.Image(c)
							recoversAs(t, again, l, before, what+", image "+choice)
							points.Add(1)
						}
						recoversAs(t, disk.Kill(), l, before, what+", kill")
						points.Add(1)
					}
				})
				if !fired {
					break
				}
			}
		})
	}
	t.Logf("%d crash points", points.Load())
}

// recoversAs checks that a disk is recovered to the same records as an undisturbed recovery gave.
func recoversAs(t *testing.T, disk *vfstest.Disk, l *wabtest.Ledger, before []record.Record, what string) {
	t.Helper()
	read, _, err := wabtest.Reopen(disk, crashOptions())
	if err == nil {
		_, err = l.Check(read, true)
	}
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if len(read) != len(before) {
		t.Fatalf("%s: %d records, the undisturbed recovery had %d", what, len(read), len(before))
	}
	for i := range read {
		if read[i].Coordinate != before[i].Coordinate {
			t.Fatalf("%s: record %d is %v, was %v", what, i, read[i].Coordinate, before[i].Coordinate)
		}
	}
}

// TestTornTailIsNotAppendedTo: the segment with a torn tail is sealed before it, the torn bytes are kept, and new records go into a new segment (F7, F9).
func TestTornTailIsNotAppendedTo(t *testing.T) {
	for _, garbage := range []string{"zeros", "ones", "half a group"} {
		disk, l := sealedLog(t, 0)
		disk = activeLog(t, disk, l, 3)
		active := files(t, disk, "shard_00", ".wab")[0]
		b, err := disk.Bytes(active)
		if err != nil {
			t.Fatal(err)
		}
		// The last group becomes a torn one that was never acked, behind the groups that were.
		end := int64(len(bytes.TrimRight(b, "\x00"))+7) / 8 * 8
		torn := make([]byte, 700)
		switch garbage {
		case "ones":
			torn = bytes.Repeat([]byte{0xff}, 700)
		case "half a group":
			copy(torn, b[1024:1024+60]) // a header of this segment at a wrong place
		}
		if err := disk.Overwrite(active, (end+511)/512*512, torn); err != nil {
			t.Fatal(err)
		}
		log := open(t, disk)
		mustPush(t, l, log.Shards()[0], record.Durable, 100)
		closeLog(t, log)
		out := reopen(t, disk, l)
		if out.missing > 0 || out.lost > 0 {
			t.Errorf("%s: %d records are missing, %d counted", garbage, out.missing, out.lost)
		}
		if kept := reports(t, disk); garbage == "half a group" && kept != 1 {
			t.Errorf("%s: %d reports in quarantine, want that of the torn group", garbage, kept)
		}
	}
}

// TestTornTailStaysWhereItCannotBeKept: no copy, no cut (F6).
func TestTornTailStaysWhereItCannotBeKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, l := sealedLog(t, 1)
		disk = activeLog(t, disk, l, 3)
		active := files(t, disk, "shard_00", ".wab")[0]
		before, err := disk.Bytes(active)
		if err != nil {
			t.Fatal(err)
		}
		end := int64(len(bytes.TrimRight(before, "\x00")))
		if err := errors.Join(disk.Overwrite(active, (end+511)/512*512, before[1024:1100]), disk.Overwrite(active, 0, before[:0])); err != nil {
			t.Fatal(err)
		}
		before, _ = disk.Bytes(active)
		inj := vfstest.NewInjector(disk)
		inj.Add(vfstest.Fault{Kinds: vfstest.Create, Name: "quarantine/*", Err: syscall.ENOSPC, Sticky: true})
		log := open(t, inj)
		s := log.Shards()[0]
		mustPush(t, l, s, record.Durable, 100)
		if st := s.Stats(); len(st.Faults) == 0 {
			t.Error("nothing is said to be wrong")
		}
		drain(t, l, s)
		pass(5 * time.Second)
		after, err := disk.Bytes(active)
		if err != nil || !bytes.Equal(after, before) {
			t.Errorf("the segment was changed or removed (%v) before its tail was kept", err)
		}
		_ = log.Close() // says that not all is in order
		inj.Clear()
		log = open(t, disk)
		pass(5 * time.Second)
		closeLog(t, log)
		if reports(t, disk) != 1 || exists(disk, active) {
			t.Errorf("the next start: %d reports, %v", reports(t, disk), disk.Names())
		}
	})
}

func TestSealedUnderBothNames(t *testing.T) {
	disk, l := sealedLog(t, 2)
	sealed := files(t, disk, "shard_00", ".wab.sealed")[1]
	b, err := disk.Bytes(sealed)
	if err != nil {
		t.Fatal(err)
	}
	old := strings.TrimSuffix(sealed, ".sealed")
	put(t, disk, old, b)
	if out := reopen(t, disk, l); out.missing > 0 || out.damaged > 0 {
		t.Errorf("%d records are missing, %d pieces of damage", out.missing, out.damaged)
	}
	if exists(disk, old) || !exists(disk, sealed) {
		t.Errorf("the older name is to go, and only it: %v", disk.Names())
	}
}

// put makes a durable file.
func put(t *testing.T, disk *vfstest.Disk, name string, b []byte) {
	t.Helper()
	f, err := disk.Create(name)
	if err == nil {
		_, err = f.WriteAt(b, 0)
		err = errors.Join(err, f.SyncData(), f.Close(), disk.SyncDir(filepath.Dir(name)))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestTornCursor: of a cursor whose newer slot is torn the older one counts, and with none all comes again (F13).
func TestTornCursor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, l := vfstest.NewDisk(), wabtest.NewLedger()
		log := open(t, disk)
		s := log.Shards()[0]
		r := s.NewReader(wab.Position{})
		var at []wab.Position
		for range 3 {
			mustPush(t, l, s, record.Durable, 10, 20)
			if _, err := r.Next(nil, 2, 1<<20, wab.Position{}); err != nil {
				t.Fatal(err)
			}
			at = append(at, r.Position())
			s.Confirm(r.Position(), []wab.Position{{Segment: 9, Index: 4}})
			pass(2 * time.Second)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		image := disk.Image(vfstest.Choice{Keep: vfstest.KeepNone})
		closeLog(t, log)
		newer := newerSlot(t, image)
		for bit := range 8 * 100 {
			d := image.Clone()
			if err := d.FlipBit("shard_00/cursor", newer*4096+int64(bit/8), uint(bit%8)); err != nil {
				t.Fatal(err)
			}
			log := open(t, d)
			pos, _ := log.Shards()[0].Cursor()
			if pos != at[1] && pos != at[2] {
				t.Fatalf("bit %d: the cursor is %v, was %v and then %v", bit, pos, at[1], at[2])
			}
			closeLog(t, log)
		}
		if err := errors.Join(image.ZeroSector("shard_00/cursor", 0), image.ZeroSector("shard_00/cursor", 4096)); err != nil {
			t.Fatal(err)
		}
		if out := reopen(t, image, l); len(out.read) != 6 {
			t.Errorf("%d records without a cursor, want all 6", len(out.read))
		}
	})
}

// newerSlot returns which slot of the cursor was written last.
func newerSlot(t *testing.T, disk *vfstest.Disk) int64 {
	t.Helper()
	b, err := disk.Bytes("shard_00/cursor")
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Compare(b[8:16], b[4096+8:4096+16]) < 0 { // generations below 256
		return 1
	}
	return 0
}

// TestQuarantineSurvivesCrashes: the copy of damaged bytes is made at some start, whole, before they are gone.
func TestQuarantineSurvivesCrashes(t *testing.T) {
	for j := 1; ; j += stride {
		fired := false
		synctest.Test(t, func(t *testing.T) {
			disk, l := sealedLog(t, 2)
			first := segments(t, disk)[0]
			if err := disk.FlipBit(first, 1200, 3); err != nil {
				t.Fatal(err)
			}
			inj := vfstest.NewInjector(disk)
			inj.Add(vfstest.Fault{Kinds: vfstest.Mutating, At: j, Crash: true})
			drainAll(inj)
			fired = len(inj.Fired()) > 0
			for name, choice := range images(j) {
				d := disk.Image(choice)
				drainAll(d)
				if exists(d, first) {
					t.Fatalf("operation %d, image %s: the segment was not removed: %v", j, name, d.Names())
				}
				b, err := d.Bytes(strings.TrimSuffix(files(t, d, "quarantine", ".bytes")[0], "/"))
				if err != nil || len(b) == 0 || reports(t, d) != 1 {
					t.Fatalf("operation %d, image %s: %d bytes kept (%v), reports:%s", j, name, len(b), err, reportTexts(t, d))
				}
			}
			_ = l
		})
		if !fired {
			break
		}
	}
}

// drainAll opens, confirms everything, and closes, as far as the disk lets it.
func drainAll(fsys vfs.FS) {
	opts := crashOptions()
	opts.FS = fsys
	log, err := wab.Open("", opts)
	if err != nil {
		return
	}
	s := log.Shards()[0]
	from, _ := s.Cursor()
	r := s.NewReader(from)
	_, _ = r.Next(nil, 1<<20, 1<<30, wab.Position{}) // an error is one of the injected
	s.Confirm(r.Position(), nil)
	pass(2 * time.Second)
	r.Close()
	log.Close()
}

// TestNumberNeverReused: the number of a segment whose only record a power cut took, after it was delivered, names no other segment (F1, F20).
func TestNumberNeverReused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := vfstest.NewDisk()
		log := open(t, disk)
		used := map[string]string{}
		for seed := range uint64(40) {
			deliverNew(t, log.Shards()[0], used)
			image := disk.Image(vfstest.Choice{Keep: vfstest.KeepNone})
			closeLog(t, log)
			switch seed % 3 {
			case 0: // a start that does nothing
				closeLog(t, open(t, image))
			case 1: // a start that dies in recovery
				inj := vfstest.NewInjector(image)
				inj.Add(vfstest.Fault{Kinds: vfstest.Mutating, At: 5 + int(seed)/3, Crash: true})
				drainAll(inj)
				image = image.Image(vfstest.Choice{Seed: seed})
			}
			disk = image
			log = open(t, disk)
		}
		closeLog(t, log)
	})
}

// deliverNew appends a record that is like no other, and wants each address to be that of one record for ever: two equal
// records at one address would have one id.
func deliverNew(t *testing.T, s *wab.Shard, used map[string]string) {
	t.Helper()
	ticket, err := s.Append(record.Buffered, []byte(strconv.Itoa(len(used))))
	if err == nil {
		err = ticket.Wait()
	}
	if err != nil {
		t.Fatal(err)
	}
	read, err := wabtest.ReadAll(s)
	if err != nil || len(read) == 0 {
		t.Fatalf("%d records, %v", len(read), err)
	}
	for _, r := range read {
		at := fmt.Sprintf("%s/%d", r.Segment, r.Index)
		if was, ok := used[at]; ok && was != string(r.Payload) {
			t.Fatalf("record %s is %q, and was %q", at, r.Payload, was)
		}
		used[at] = string(r.Payload)
	}
}

// TestNumberNeverReusedWhateverTheCursorLoses damages the cursor file in each way again and again, in every order of two ways,
// while nothing else remembers the numbers that were used.
func TestNumberNeverReusedWhateverTheCursorLoses(t *testing.T) {
	const cursor = "shard_00/cursor"
	ways := []struct {
		name   string
		damage func(*vfstest.Disk) error
	}{
		{"first slot", func(d *vfstest.Disk) error { return d.FlipBit(cursor, 20, 3) }},
		{"second slot", func(d *vfstest.Disk) error { return d.FlipBit(cursor, 4096+20, 3) }},
		{"cut", func(d *vfstest.Disk) error { return d.Cut(cursor, 100) }},
		{"removed", func(d *vfstest.Disk) error { return d.Remove(cursor) }},
		{"nothing", func(*vfstest.Disk) error { return nil }},
	}
	for _, one := range ways {
		for _, other := range ways {
			t.Run(one.name+", "+other.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					disk := vfstest.NewDisk()
					used := map[string]string{}
					for round := range 8 {
						log := open(t, disk)
						s := log.Shards()[0]
						deliverNew(t, s, used)
						s.Confirm(s.Stats().Appended, nil)
						disk = ending(t, disk, log, round)
						way := one
						if round%2 == 1 {
							way = other
						}
						_ = way.damage(disk)   // the bytes may not have come back from the last damage
						pass(time.Millisecond) // a lost cursor lets numbers go on from the time
					}
				})
			})
		}
	}
}

// ending closes the log, which removes its confirmed segments, or pulls the plug, be it at once or after the cursor was stored.
func ending(t *testing.T, disk *vfstest.Disk, log *wab.Log, round int) *vfstest.Disk {
	switch round % 4 {
	case 0, 1:
		closeLog(t, log)
		return disk
	case 2:
		pass(2 * time.Second)
	}
	return disk.Crash(vfstest.Choice{Keep: vfstest.KeepNone})
}
