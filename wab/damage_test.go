package wab_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-agent/weir/wab"
	"github.com/weir-agent/weir/wab/record"
	"github.com/weir-agent/weir/wab/segment"
	"github.com/weir-agent/weir/wab/vfs/vfstest"
	"github.com/weir-agent/weir/wab/wabtest"
)

// groupPlaces returns where the groups of a segment file are, by their headers.
func groupPlaces(t *testing.T, disk *vfstest.Disk, name string) (at []int64) {
	t.Helper()
	b, err := disk.Bytes(name)
	if err != nil {
		t.Fatal(err)
	}
	h, _, err := segment.ParseHeader(b)
	if err != nil {
		t.Fatal(err)
	}
	for off := int64(segment.HeaderBytes); off+segment.GroupHeaderBytes < int64(len(b)); off += 8 {
		if string(b[off:off+4]) == "Wgrp" && binary.LittleEndian.Uint64(b[off+8:]) == h.Nonce && binary.LittleEndian.Uint64(b[off+16:]) == uint64(off) {
			at = append(at, off)
		}
	}
	return at
}

// damage is what may be done to the second of three segments of 5 groups of 2 records (100 and 1,500 bytes).
type damage struct {
	name    string
	do      func(d *vfstest.Disk, seg string, groups []int64) error
	missing int // records at most
	counted bool
	reports int // at least
}

func damages() []damage {
	return []damage{
		{"header, first copy", func(d *vfstest.Disk, seg string, _ []int64) error { return d.FlipBit(seg, 20, 1) }, 0, true, 0},
		{"header, first sector", func(d *vfstest.Disk, seg string, _ []int64) error { return d.ZeroSector(seg, 0) }, 0, true, 0},
		{"header, both copies", func(d *vfstest.Disk, seg string, _ []int64) error {
			return errors.Join(d.ZeroSector(seg, 0), d.ZeroSector(seg, 512))
		}, 0, true, 0},
		{"header and first group", func(d *vfstest.Disk, seg string, _ []int64) error {
			return d.Overwrite(seg, 0, make([]byte, 1536))
		}, 2, true, 1},
		{"group header, a bit", func(d *vfstest.Disk, seg string, g []int64) error { return d.FlipBit(seg, g[1]+30, 5) }, 0, true, 1},
		{"group header, all", func(d *vfstest.Disk, seg string, g []int64) error {
			return d.Overwrite(seg, g[1], make([]byte, segment.GroupHeaderBytes))
		}, 0, true, 1},
		{"a length", func(d *vfstest.Disk, seg string, g []int64) error {
			return d.FlipBit(seg, g[2]+segment.GroupHeaderBytes+1, 6)
		}, 1, true, 1},
		{"a length becomes zero (F4)", func(d *vfstest.Disk, seg string, g []int64) error {
			return d.Overwrite(seg, g[2]+segment.GroupHeaderBytes, make([]byte, 4))
		}, 1, true, 1},
		{"a payload (F5)", func(d *vfstest.Disk, seg string, g []int64) error {
			return d.FlipBit(seg, g[3]+segment.GroupHeaderBytes+50, 0)
		}, 1, true, 1},
		{"the sector where a group begins", func(d *vfstest.Disk, seg string, g []int64) error { return d.ZeroSector(seg, g[2]) }, 2, true, 1},
		{"a sector within a record", func(d *vfstest.Disk, seg string, g []int64) error { return d.ZeroSector(seg, g[2]+1024) }, 1, true, 1},
		{"the footer", func(d *vfstest.Disk, seg string, _ []int64) error {
			b, err := d.Bytes(seg)
			return errors.Join(err, d.FlipBit(seg, int64(len(b))-20, 2))
		}, 0, true, 1},
		{"cut behind a group (F8)", func(d *vfstest.Disk, seg string, g []int64) error { return d.Cut(seg, g[4]) }, 2, false, 1},
		{"cut within a group (F8)", func(d *vfstest.Disk, seg string, g []int64) error { return d.Cut(seg, g[4]+200) }, 1, false, 1},
		{"cut to the header", func(d *vfstest.Disk, seg string, _ []int64) error { return d.Cut(seg, 1024) }, 10, false, 1},
		{"cut within the header", func(d *vfstest.Disk, seg string, _ []int64) error { return d.Cut(seg, 237) }, 10, false, 1},
		{"empty (F16)", func(d *vfstest.Disk, seg string, _ []int64) error { return d.Cut(seg, 0) }, 10, false, 1},
		{"gone", func(d *vfstest.Disk, seg string, _ []int64) error {
			return errors.Join(d.Remove(seg), d.SyncDir("shard_00"))
		}, 10, true, 1},
	}
}

// TestDamageIsBounded does each damage to the first, the second and the last of three sealed segments, and to one that was not sealed.
func TestDamageIsBounded(t *testing.T) {
	for _, dmg := range damages() {
		for _, which := range []string{"first", "middle", "newest", "active"} {
			t.Run(dmg.name+"/"+which, func(t *testing.T) {
				disk, l := sealedLog(t, 3)
				name := files(t, disk, "shard_00", ".wab.sealed")[map[string]int{"first": 0, "middle": 1, "newest": 2, "active": 2}[which]]
				if which == "active" {
					disk, l = sealedLog(t, 2)
					log := open(t, disk)
					for range 5 {
						mustPush(t, l, log.Shards()[0], record.Durable, 100, 1500)
					}
					disk = disk.Image(vfstest.Choice{Keep: vfstest.KeepNone})
					closeLog(t, log)
					name = groupfile(t, disk)
				}
				places := groupPlaces(t, disk, name)
				if len(places) != 5 {
					t.Fatalf("%d groups", len(places))
				}
				if err := dmg.do(disk, name, places); err != nil {
					t.Fatal(err)
				}
				out := reopen(t, disk, l)
				if out.missing > dmg.missing {
					t.Errorf("%d records are missing, at most %d may be", out.missing, dmg.missing)
				}
				silent := which == "active" && (strings.HasPrefix(dmg.name, "cut") || strings.HasPrefix(dmg.name, "the footer") || strings.HasPrefix(dmg.name, "empty") || dmg.name == "gone")
				if silent {
					return // nobody can tell it from a torn write or a segment that was never used; see TestSyncedEndIsProved
				}
				if dmg.counted && out.lost != int64(out.missing) {
					t.Errorf("%d records are missing, %d are counted:%s", out.missing, out.lost, reportTexts(t, disk))
				}
				if reports(t, disk) < dmg.reports || out.missing > 0 && reports(t, disk) == 0 {
					t.Errorf("%d reports in quarantine, want %d", reports(t, disk), dmg.reports)
				}
			})
		}
	}
}

// groupfile returns the unsealed segment that has groups.
func groupfile(t *testing.T, disk *vfstest.Disk) string {
	t.Helper()
	for _, name := range files(t, disk, "shard_00", ".wab") {
		if len(groupPlaces(t, disk, name)) > 0 {
			return name
		}
	}
	t.Fatal("no segment has groups")
	return ""
}

// TestSyncedEndIsProved: what the cursor file says was synced is missed, in words and numbers, wherever the end of the log has gone.
func TestSyncedEndIsProved(t *testing.T) {
	for _, dmg := range damages() {
		t.Run(dmg.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk, l := sealedLog(t, 2)
				log := open(t, disk)
				for range 5 {
					mustPush(t, l, log.Shards()[0], record.Durable, 100, 1500)
				}
				pass(2 * time.Second) // the cursor is stored
				disk = disk.Image(vfstest.Choice{Keep: vfstest.KeepNone})
				closeLog(t, log)
				name := groupfile(t, disk)
				if dmg.name == "the footer" {
					return
				}
				if err := dmg.do(disk, name, groupPlaces(t, disk, name)); err != nil {
					t.Fatal(err)
				}
				out := reopen(t, disk, l)
				if out.missing > dmg.missing || out.lost != int64(out.missing) {
					t.Errorf("%d records are missing (at most %d may be), %d are counted:%s", out.missing, dmg.missing, out.lost, reportTexts(t, disk))
				}
			})
		})
	}
}

// TestDamagedSegmentGoesOnceItIsKept: a segment of which nothing can be read is copied whole before it is removed, and it does not keep
// those behind it from going.
func TestDamagedSegmentGoesOnceItIsKept(t *testing.T) {
	for _, sealed := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			disk, l := sealedLog(t, 1)
			if !sealed {
				disk = activeLog(t, disk, l, 4)
			}
			log := open(t, disk)
			mustPush(t, l, log.Shards()[0], record.Durable, 3<<20)
			if !sealed {
				disk = disk.Image(vfstest.Choice{Keep: vfstest.KeepNone})
			}
			closeLog(t, log)
			var name string
			for _, n := range segments(t, disk) {
				if b, err := disk.Bytes(n); err == nil && len(b) > 3<<20 {
					name = n
				}
			}
			size := int64(0)
			if b, err := disk.Bytes(name); err != nil {
				t.Fatal(err)
			} else {
				size = int64(len(b))
			}
			if err := errors.Join(disk.Overwrite(name, 0, make([]byte, 4096)), disk.Overwrite(name, size-512, make([]byte, 512))); err != nil {
				t.Fatal(err)
			}
			before, err := disk.Bytes(name)
			if err != nil {
				t.Fatal(err)
			}
			log = open(t, disk)
			mustPush(t, l, log.Shards()[0], record.Durable, 100)
			drain(t, l, log.Shards()[0])
			pass(5 * time.Second)
			if st := log.Shards()[0].Stats(); st.Segments > 1 || exists(disk, name) {
				t.Errorf("sealed %v: %d segments are left: %v", sealed, st.Segments, disk.Names())
			}
			closeLog(t, log)
			kept := files(t, disk, "quarantine", ".bytes")
			if len(kept) != 1 {
				t.Fatalf("sealed %v: kept are %v", sealed, kept)
			}
			if b, err := disk.Bytes(kept[0]); err != nil || !bytes.Equal(b, before) {
				t.Errorf("sealed %v: %d bytes were kept (%v), the segment had %d", sealed, len(b), err, size)
			}
		})
	}
}

// TestRecycledSegmentThatLostItsHeader: what the file held before must not be read as records of the segment.
func TestRecycledSegmentThatLostItsHeader(t *testing.T) {
	for _, used := range []int{0, 1, 3} {
		synctest.Test(t, func(t *testing.T) {
			disk, l := vfstest.NewDisk(), wabtest.NewLedger()
			log := open(t, disk)
			s := log.Shards()[0]
			for range 3 {
				for range 7 {
					mustPush(t, l, s, record.Durable, 8800) // a segment that is full up to its end
				}
				drain(t, l, s)
				pass(2 * time.Second)
			}
			if used > 0 {
				for range 7 {
					mustPush(t, l, s, record.Durable, 8800) // into the next segment, which is a recycled one
				}
			}
			image := disk.Image(vfstest.Choice{Keep: vfstest.KeepNone})
			closeLog(t, log)
			for _, name := range segments(t, image) {
				d := image.Clone()
				if err := errors.Join(d.ZeroSector(name, 0), d.ZeroSector(name, 512)); err != nil {
					t.Fatal(err)
				}
				log := open(t, d)
				read, err := wabtest.ReadAll(log.Shards()[0])
				if err != nil {
					t.Fatal(err)
				}
				if loss, err := l.Check(read, false); err != nil || loss.Missing > 0 {
					t.Errorf("%d groups, header of %s lost: %v, %d records are missing", used, name, err, loss.Missing)
				}
				closeLog(t, log)
			}
		})
	}
}

// TestCutAtEveryByte cuts a sealed segment everywhere, within the padding of its groups too: what is before the cut is read at once.
func TestCutAtEveryByte(t *testing.T) {
	disk, l := vfstest.NewDisk(), wabtest.NewLedger()
	log := open(t, disk)
	for i := range 4 {
		mustPush(t, l, log.Shards()[0], record.Durable, 11+i, 30)
	}
	closeLog(t, log)
	name := segments(t, disk)[0]
	places := groupPlaces(t, disk, name)
	b, err := disk.Bytes(name)
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; n < len(b); n++ {
		d := disk.Clone()
		if err := d.Cut(name, int64(n)); err != nil {
			t.Fatal(err)
		}
		inj := vfstest.NewInjector(d)
		inj.Add(vfstest.Fault{Kinds: vfstest.Open, Name: "shard_00/seg_*", Err: syscall.EMFILE, Sticky: true}) // it cannot be sealed, which would make it longer
		log := open(t, inj)
		read, err := wabtest.ReadAll(log.Shards()[0])
		if err != nil {
			t.Fatalf("cut at %d: %v", n, err)
		}
		_ = log.Close() // says that it could not be sealed
		whole := 0      // records of groups that end before the next one begins, before the cut
		for _, at := range places[1:] {
			if at <= int64(n) {
				whole += 2
			}
		}
		if _, err := l.Check(read, false); err != nil || len(read) < whole {
			t.Fatalf("cut at %d: %v, %d records, want %d at least", n, err, len(read), whole)
		}
	}
}

// TestCursorIsAHint: old, torn, foreign, empty, cut and future cursors cost no record (F13).
func TestCursorIsAHint(t *testing.T) {
	slot := func(generation, instance, shard, seg, index uint64) []byte {
		return appendSlot(generation, instance, shard, seg, index, 3)
	}
	for _, test := range []struct {
		name   string
		cursor func(instance uint64) []byte
	}{
		{"empty", func(uint64) []byte { return nil }},
		{"zeros", func(uint64) []byte { return make([]byte, 8192) }},
		{"garbage", func(uint64) []byte { return bytes.Repeat([]byte{0xa5}, 8192) }},
		{"cut", func(i uint64) []byte { return slot(1, i, 0, 2, 3)[:50] }},
		{"of another folder", func(i uint64) []byte { return slot(1, i+1, 0, 9, 9) }},
		{"of another shard", func(i uint64) []byte { return slot(1, i, 1, 9, 9) }},
		{"from the future", func(i uint64) []byte { return slot(1, i, 0, 1<<40, 1) }},
		{"of zero", func(i uint64) []byte { return slot(1, i, 0, 0, 0) }},
		{"before all segments", func(i uint64) []byte { return slot(1, i, 0, 1, 0) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk, l := sealedLog(t, 2)
				log := open(t, disk)
				instance := log.Instance()
				closeLog(t, log)
				if exists(disk, "shard_00/cursor") {
					if err := disk.Remove("shard_00/cursor"); err != nil {
						t.Fatal(err)
					}
				}
				put(t, disk, "shard_00/cursor", test.cursor(instance))
				log = open(t, disk)
				s := log.Shards()[0]
				mustPush(t, l, s, record.Durable, 100)
				pass(2 * time.Second)
				closeLog(t, log)
				out := reopen(t, disk, l)
				if out.missing > 0 || out.lost > 0 || len(out.read) != 21 {
					t.Errorf("%d records, %d missing, %d counted as lost", len(out.read), out.missing, out.lost)
				}
			})
		})
	}
}

// TestFewerAndMoreShards: what is on disk is read, whatever is configured (F17, F18).
func TestFewerAndMoreShards(t *testing.T) {
	disk, l := vfstest.NewDisk(), wabtest.NewLedger()
	for _, shards := range []int{3, 1, 4, 2} {
		opts := crashOptions()
		opts.FS, opts.Shards, opts.MaxBytes = disk, shards, int64(shards)<<20
		opts.SegmentBytes = int64(shards) * 64 << 10
		log, err := wab.Open("", opts)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range log.Writable() {
			mustPush(t, l, s, record.Durable, 200, 300)
		}
		for _, s := range log.Shards()[shards:] {
			if _, err := s.Append(record.Durable, []byte("x")); !errors.Is(err, wab.ErrClosed) {
				t.Errorf("a shard that is only read: %v", err)
			}
		}
		closeLog(t, log)
	}
	if out := reopen(t, disk, l); out.missing > 0 || len(out.read) != 20 {
		t.Errorf("%d records, %d missing", len(out.read), out.missing)
	}
}

// TestInstanceFile: damaged or gone, it is made anew; what there is stays readable under its own ids.
func TestInstanceFile(t *testing.T) {
	for name, do := range map[string]func(d *vfstest.Disk) error{
		"gone":    func(d *vfstest.Disk) error { return d.Remove("instance") },
		"empty":   func(d *vfstest.Disk) error { return d.Cut("instance", 0) },
		"flipped": func(d *vfstest.Disk) error { return d.FlipBit("instance", 3, 7) },
		"zero":    func(d *vfstest.Disk) error { return d.Overwrite("instance", 0, []byte("0000000000000000")) },
	} {
		t.Run(name, func(t *testing.T) {
			disk, l := sealedLog(t, 2)
			if err := do(disk); err != nil {
				t.Fatal(err)
			}
			log := open(t, disk)
			mustPush(t, l, log.Shards()[0], record.Durable, 10)
			closeLog(t, log)
			if out := reopen(t, disk, l); out.missing > 0 || out.damaged > 0 {
				t.Errorf("%d records are missing, %d pieces of damage", out.missing, out.damaged)
			}
		})
	}
}

// TestForeignFilesStay: nothing that is not understood is deleted, changed or read, and its number is not used.
func TestForeignFilesStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, l := sealedLog(t, 2)
		sealed := files(t, disk, "shard_00", ".wab.sealed")
		stem := strings.TrimSuffix(sealed[1], ".wab.sealed")
		other := stem[:len(stem)-16] + "0000000000000001.wab.sealed" // the same number, another instance
		content := bytes.Repeat([]byte("not ours"), 1000)
		foreign := []string{
			"shard_00/README", "shard_00/seg_", "shard_00/seg_00000900" + stem[len("shard_00/seg_00000000"):] + ".bak", "shard_00/.hidden",
			"shard_00/seg_7-1.wab", "shard_00/cursor.old", "quarantine/note", "other", "shard_99x", other,
		}
		for _, name := range foreign {
			put(t, disk, name, content)
		}
		log := open(t, disk)
		s := log.Shards()[0]
		mustPush(t, l, s, record.Durable, 10)
		if out := log.Shards()[0].Stats(); out.Ignored == 0 || len(out.Faults) == 0 {
			t.Errorf("nothing is said of the foreign files: %+v", out)
		}
		read := drain(t, l, s)
		if seg := read[len(read)-1].Segment; !strings.Contains(seg, "seg_00000901") && !strings.Contains(seg, "seg_00000902") {
			t.Errorf("the next segment is %s, the highest number was 900", seg)
		}
		pass(3 * time.Second)
		closeLog(t, log)
		for _, name := range foreign {
			if b, err := disk.Bytes(name); err != nil || !bytes.Equal(b, content) {
				t.Errorf("%s was changed or removed: %v", name, err)
			}
		}
		if out := reopen(t, disk, l); out.missing > 0 {
			t.Errorf("%d records are missing", out.missing)
		}
	})
}

// TestRenamedSegmentIsRefused: under a wrong name its records would get other ids, and passed it would later count as confirmed. Nothing is touched.
func TestRenamedSegmentIsRefused(t *testing.T) {
	disk, l := sealedLog(t, 3)
	name := files(t, disk, "shard_00", ".wab.sealed")[1]
	wrong := strings.Replace(name, "seg_0000000", "seg_0000010", 1)
	if err := errors.Join(disk.Rename(name, wrong), disk.SyncDir("shard_00")); err != nil {
		t.Fatal(err)
	}
	before := disk.Names()
	opts := crashOptions()
	opts.FS = disk
	_, err := wab.Open("", opts)
	if corrupt := (*wab.CorruptError)(nil); !errors.As(err, &corrupt) || corrupt.Segment != wrong {
		t.Fatalf("Open: %v", err)
	}
	if after := disk.Names(); strings.Join(after, " ") != strings.Join(before, " ") {
		t.Errorf("the folder was changed: %v", after)
	}
	if err := errors.Join(disk.Rename(wrong, name), disk.SyncDir("shard_00")); err != nil {
		t.Fatal(err)
	}
	if out := reopen(t, disk, l); out.missing > 0 {
		t.Errorf("%d records are missing", out.missing)
	}
}

// TestSymlinksAreNotFollowed on a real folder (F49).
func TestSymlinksAreNotFollowed(t *testing.T) {
	target := filepath.Join(t.TempDir(), "target")
	if err := os.WriteFile(target, []byte("not ours"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"LOCK", "instance", "shard_00/cursor", "shard_00/seg_00000009-0123456789abcdef.wab", "shard_00/seg_00000009-0123456789abcdef.wab.sealed", "shard_00", "quarantine"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o700); err != nil {
				t.Fatal(err)
			}
			to := target
			if !strings.Contains(name, "/") && (name == "shard_00" || name == "quarantine") {
				to = filepath.Dir(target)
			}
			if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
			opts := crashOptions()
			log, err := wab.Open(dir, opts)
			if err == nil {
				closeLog(t, log)
			}
			if b, err := os.ReadFile(target); err != nil || string(b) != "not ours" {
				t.Errorf("the target of the link was changed: %q, %v", b, err)
			}
			if entries, err := os.ReadDir(filepath.Dir(target)); err != nil || len(entries) != 1 {
				t.Errorf("the folder of the target: %v, %v", entries, err)
			}
			if fi, err := os.Lstat(filepath.Join(dir, name)); err != nil || fi.Mode()&os.ModeSymlink == 0 {
				t.Errorf("the link is gone: %v", err)
			}
		})
	}
}

// TestDamageStatistics flips single bits all over a log of small and large groups, sealed and not.
func TestDamageStatistics(t *testing.T) {
	disk, l := vfstest.NewDisk(), wabtest.NewLedger()
	rng := rand.New(rand.NewPCG(1, 2))
	batch := func(s *wab.Shard) {
		var payloads [][]byte
		for range 1 + rng.IntN(2)*rng.IntN(40) {
			payloads = append(payloads, l.Payload(1+rng.IntN(1+rng.IntN(1500))))
		}
		if err := l.Push(s, record.Durable, payloads...); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		log := open(t, disk)
		for range 12 {
			batch(log.Shards()[0])
		}
		closeLog(t, log)
	}
	log := open(t, disk)
	for range 12 {
		batch(log.Shards()[0])
	}
	image := disk.Image(vfstest.Choice{Keep: vfstest.KeepNone})
	closeLog(t, log)
	flips := 1000 / stride
	cost := map[int]int{}
	uncounted := 0
	segs := segments(t, image)
	for i := range flips {
		d := image.Clone()
		name := segs[rng.IntN(len(segs))]
		b, err := d.Bytes(name)
		if err != nil {
			t.Fatal(err)
		}
		used := len(bytes.TrimRight(b, "\x00"))
		bit := rng.IntN(8 * used)
		if err := d.FlipBit(name, int64(bit/8), uint(bit%8)); err != nil {
			t.Fatal(err)
		}
		read, stats, err := wabtest.Reopen(d, crashOptions())
		if err != nil {
			t.Fatalf("flip %d, bit %d of %s: %v", i, bit, name, err)
		}
		loss, err := l.Check(read, false)
		if err != nil {
			t.Fatalf("flip %d, bit %d of %s: %v", i, bit, name, err)
		}
		cost[loss.Missing]++
		if stats[0].Lost != int64(loss.Missing) {
			uncounted++
		}
		if loss.Missing > 1 {
			t.Errorf("flip %d, bit %d of %s: %d records are missing", i, bit, name, loss.Missing)
		}
	}
	t.Logf("%d flips over %d records; records lost by flip: %v; not counted exactly: %d", flips, l.Acked(), cost, uncounted)
	if cost[0]+cost[1] != flips || cost[1] < flips/4 {
		t.Errorf("want at most one record a flip, and many flips that hit one: %v", cost)
	}
}

// appendSlot makes a cursor slot with a checksum that holds.
func appendSlot(generation, instance, shard, seg, index, highest uint64) []byte {
	b := []byte("weir-cur")
	for _, v := range []uint64{generation, instance, shard, seg, index, highest, 0, 0, 0} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return binary.LittleEndian.AppendUint32(b, checksum(b))
}
