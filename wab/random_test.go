package wab_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/weir-agent/weir/wab"
	"github.com/weir-agent/weir/wab/record"
	"github.com/weir-agent/weir/wab/vfs/vfstest"
	"github.com/weir-agent/weir/wab/wabtest"
)

// tally is what many random programs came to.
type tally struct {
	points, kills, programs   atomic.Int64
	acked, confirmed          atomic.Int64
	lost, duplicated, damaged atomic.Int64
	flips, longest            atomic.Int64 // bits flipped; records that one of them cost at most
	mu                        sync.Mutex
	faults                    map[string]int // fired, by kind
}

func (ta *tally) fired(list []vfstest.Firing) {
	ta.mu.Lock()
	defer ta.mu.Unlock()
	if ta.faults == nil {
		ta.faults = map[string]int{}
	}
	for _, f := range list {
		kind := "crash"
		switch {
		case f.Fault.Drop:
			kind = "dropped pages"
		case f.Fault.Short > 0:
			kind = "short write"
		case f.Fault.Late:
			kind = "late error"
		case f.Fault.Err != nil:
			kind = f.Fault.Err.Error()
		}
		ta.faults[kind]++
	}
}

// world is a random program's log, disk and ledger. pick returns a number below n; it is all the chance there is.
type world struct {
	pick  func(n int, what string) int
	fatal func(format string, args ...any)
	tally *tally
	trace []string
	hurt  map[string]bool // files that were damaged, by stemOf

	disk *vfstest.Disk
	inj  *vfstest.Injector
	log  *wab.Log
	l    *wabtest.Ledger
	opts wab.Options
	many int // images that a crash takes
}

func newWorld(pick func(int, string) int, fatal func(string, ...any), ta *tally, many int) *world {
	w := &world{pick: pick, fatal: fatal, tally: ta, hurt: map[string]bool{}, disk: vfstest.NewDisk(), l: wabtest.NewLedger(), opts: crashOptions(), many: many}
	w.opts.GroupRecords, w.opts.GroupBytes = 1+pick(40, "group records"), int64(1+pick(20_000, "group bytes"))
	w.open()
	return w
}

func (w *world) say(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf(format, args...))
}

func (w *world) fail(format string, args ...any) {
	w.fatal("%s\n%s\n%v", fmt.Sprintf(format, args...), strings.Join(w.trace, "\n"), w.disk.Names())
}

func (w *world) open() {
	w.inj = vfstest.NewInjector(w.disk)
	w.opts.FS = w.inj
	log, err := wab.Open("", w.opts)
	if err != nil {
		w.fail("open: %v", err)
	}
	w.log = log
}

// stop ends the log. Errors are those of the disk, and the ledger says whether they matter.
func (w *world) stop() {
	w.tally.fired(w.inj.Fired())
	_ = w.log.Close()
}

// step does one random thing.
func (w *world) step() {
	switch k := w.pick(20, "step"); {
	case k < 7:
		w.append()
	case k < 9:
		w.crowd()
	case k < 11:
		d := []time.Duration{time.Millisecond, 250 * time.Millisecond, 2 * time.Second}[w.pick(3, "pause")]
		w.say("pause %v", d)
		pass(d)
	case k < 13:
		w.confirm()
	case k < 15:
		w.fault()
	case k < 16:
		w.say("faults end")
		w.tally.fired(w.inj.Fired())
		w.inj.Clear()
		w.disk.SetFree(vfstest.DiskBytes)
	case k < 17:
		w.crash()
	case k < 18:
		w.say("kill")
		w.tally.kills.Add(1)
		w.restart(w.disk.Kill(), false, damageDone{})
	case k < 19:
		w.reopen()
	default:
		w.damage()
	}
}

func (w *world) tier() record.Durability {
	return []record.Durability{record.Durable, record.Durable, record.Buffered}[w.pick(3, "tier")]
}

func (w *world) size() int {
	if w.pick(150, "large") == 0 {
		return 1 + w.pick(90_000, "size")
	}
	return 1 + w.pick(1+w.pick(3000, "bound"), "size")
}

func (w *world) payloads() (batch [][]byte) {
	for range 1 + w.pick(1+w.pick(6, "batch bound"), "batch") {
		batch = append(batch, w.l.Payload(w.size()))
	}
	return batch
}

func (w *world) shard() *wab.Shard {
	return w.log.Writable()[w.pick(len(w.log.Writable()), "shard")]
}

func (w *world) append() {
	tier, s, batch := w.tier(), w.shard(), w.payloads()
	err := w.l.Push(s, tier, batch...)
	w.say("append %d records, %v: %v", len(batch), tier, err)
}

// crowd pushes from several producers at once.
func (w *world) crowd() {
	var wg sync.WaitGroup
	n := 2 + w.pick(3, "producers")
	for range n {
		s := w.shard()
		var batches [3][][]byte
		var tiers [3]record.Durability
		for i := range batches {
			batches[i], tiers[i] = w.payloads(), w.tier()
		}
		wg.Go(func() {
			for i := range batches {
				_ = w.l.Push(s, tiers[i], batches[i]...) // booked in the ledger
			}
		})
	}
	wg.Wait()
	w.say("crowd of %d", n)
}

func (w *world) confirm() {
	shards := w.log.Shards()
	s := shards[w.pick(len(shards), "shard")]
	from, _ := s.Cursor()
	r := s.NewReader(from)
	read, err := r.Next(nil, 1+w.pick(30, "records"), 1<<20, wab.Position{})
	if err == nil {
		w.l.Confirm(read)
		s.Confirm(r.Position(), nil)
		w.tally.confirmed.Add(int64(len(read)))
	}
	_ = r.Close()
	w.say("confirm %d records of shard %d up to %v: %v", len(read), s.Stats().Shard, r.Position(), err)
}

func (w *world) fault() {
	f := vfstest.Fault{Kinds: vfstest.Mutating, At: 1 + w.pick(12, "at"), Err: syscall.EIO}
	switch w.pick(8, "fault") {
	case 0:
		f.Kinds, f.Drop = vfstest.SyncData, true
	case 1:
		f.Kinds, f.Short, f.Err = vfstest.WriteAt, 1+w.pick(600, "short"), syscall.ENOSPC
	case 2:
		f.Late = true
	case 3:
		f.Err, f.Sticky = syscall.EROFS, true
	case 4:
		f.Kinds, f.Err = vfstest.Create|vfstest.Open|vfstest.OpenRead, syscall.EMFILE
	case 5:
		f.Kinds = vfstest.SyncData | vfstest.SyncDir
	case 6:
		free := int64(w.pick(200_000, "free"))
		w.say("%d bytes are free", free)
		w.disk.SetFree(free)
		return
	}
	w.say("fault %+v", f)
	w.inj.Add(f)
}

// choice picks one of the images of a power cut.
func (w *world) choice(seed uint64) vfstest.Choice {
	c := vfstest.Choice{Seed: seed, Garbage: seed%3 == 0, BothNames: seed%5 == 0}
	switch seed % 16 {
	case 0:
		c.Keep = vfstest.KeepNone
	case 1:
		c.Keep = vfstest.KeepAll
	}
	return c
}

// crash verifies many images of a power cut at this moment, or at some operation soon, and goes on in one of them.
func (w *world) crash() {
	if n := w.pick(20, "operations"); n > 0 {
		w.inj.Clear()
		w.inj.Add(vfstest.Fault{Kinds: vfstest.Mutating, At: n, Crash: true})
		for range 4 {
			w.append()
			w.confirm()
		}
	}
	w.disk.Halt()
	seed := uint64(w.pick(1<<30, "image"))
	w.say("crash, image %d", seed)
	for i := range w.many {
		c := w.choice(seed + 1 + uint64(i))
		image := w.disk.Image(c)
		image.SetFree(vfstest.DiskBytes)
		read, _, err := wabtest.Recover(image, w.opts)
		w.tally.points.Add(1)
		w.check(read, nil, err, true, damageDone{}, fmt.Sprintf("image %+v", c))
	}
	w.tally.points.Add(1)
	w.restart(w.disk.Image(w.choice(seed)), true, damageDone{})
}

// restart goes on with another state of the disk, and checks it.
func (w *world) restart(disk *vfstest.Disk, powerCut bool, done damageDone) {
	w.stop()
	disk.SetFree(vfstest.DiskBytes)
	w.disk = disk
	w.open()
	var read []record.Record
	var stats []wab.Stats
	for _, s := range w.log.Shards() {
		rs, err := wabtest.ReadAll(s)
		if err != nil {
			w.fail("read: %v", err)
		}
		read = append(read, rs...)
		stats = append(stats, s.Stats())
	}
	w.check(read, stats, nil, powerCut, done, "restart")
	w.l.Settle(read)
	if w.pick(2, "go on from the end") == 0 { // else the backlog grows, and with it the cost of each image
		w.l.Confirm(read)
		for _, s := range w.log.Shards() {
			s.Confirm(s.Stats().Appended, nil)
		}
		pass(time.Second)
	}
}

// damageDone says what was done to the disk, and what that may cost.
type damageDone struct {
	kind string // empty: nothing
	cost int    // records at most
}

func (w *world) check(read []record.Record, stats []wab.Stats, err error, powerCut bool, done damageDone, what string) {
	if err != nil {
		w.fail("%s: %v", what, err)
	}
	loss, err := w.l.Check(read, powerCut)
	if err != nil {
		w.fail("%s: %v", what, err)
	}
	w.tally.duplicated.Add(int64(loss.Again))
	if done.kind == "" && loss.Missing > 0 {
		w.tally.lost.Add(int64(loss.Missing))
		w.fail("%s: %d records are lost: %s", what, loss.Missing, loss.First)
	}
	if done.kind == "" {
		return
	}
	w.tally.damaged.Add(int64(loss.Missing))
	counted := int64(0)
	for i := range stats {
		counted += stats[i].Lost
	}
	if loss.Missing > done.cost {
		w.fail("%s: %s costs %d records, at most %d may be: %s", what, done.kind, loss.Missing, done.cost, loss.First)
	}
	if done.kind == "flip" {
		w.tally.flips.Add(1)
		for longest := w.tally.longest.Load(); int64(loss.Missing) > longest && !w.tally.longest.CompareAndSwap(longest, int64(loss.Missing)); {
			longest = w.tally.longest.Load()
		}
		if counted < int64(loss.Missing) {
			w.fail("%s: a flipped bit costs %d records, counted are %d", what, loss.Missing, counted)
		}
	}
}

// reopen closes and opens with other options.
func (w *world) reopen() {
	w.inj.Clear()
	w.disk.SetFree(vfstest.DiskBytes)
	w.opts.Shards = 1 + w.pick(3, "shards")
	w.opts.SegmentBytes = int64(1+w.pick(3, "segment size")) * 64 << 10
	w.opts.MaxBytes = int64(2+w.pick(60, "cap")) << 20
	w.say("close, open with %d shards, segments of %d, cap %d", w.opts.Shards, w.opts.SegmentBytes, w.opts.MaxBytes)
	w.restart(w.disk, false, damageDone{})
}

// damage ends the process one way or another and damages a segment or the cursor.
func (w *world) damage() {
	var disk *vfstest.Disk
	pass(time.Millisecond) // a lost cursor lets numbers go on from the time
	powerCut := w.pick(2, "power cut") == 0
	if powerCut {
		disk = w.disk.Crash(vfstest.Choice{Keep: vfstest.KeepNone})
		disk.SetFree(vfstest.DiskBytes)
		// What the power cut takes is no cost of the damage.
		read, _, err := wabtest.Recover(disk.Clone(), w.opts)
		w.tally.points.Add(1)
		w.check(read, nil, err, true, damageDone{}, "power cut before damage")
	} else {
		w.stop()
		disk = w.disk.Clone()
	}
	var names []string
	for _, name := range disk.Names() {
		if b, err := disk.Bytes(name); err == nil && len(b) > 0 && strings.HasPrefix(name, "shard_") {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		w.restart(disk, powerCut, damageDone{})
		return
	}
	name := names[w.pick(len(names), "file")]
	b, _ := disk.Bytes(name) // it was read a moment ago
	used := max(1, len(bytes.TrimRight(b, "\x00")))
	at := w.pick(used, "offset")
	var done damageDone
	var err error
	switch w.pick(4, "damage") {
	case 0, 1:
		done = damageDone{"flip", 1}
		if w.hurt[stemOf(name)] || reported(disk, name) { // with an earlier damage it may be the second one of a group, which can cost the whole of it
			done = damageDone{"another flip", 1 << 20}
		}
		err = disk.FlipBit(name, int64(at), uint(w.pick(8, "bit")))
	case 2:
		done = damageDone{"zero sector", 1 << 20}
		err = disk.ZeroSector(name, int64(at))
	case 3:
		done = damageDone{"cut", 1 << 20}
		err = disk.Cut(name, int64(at))
	}
	w.hurt[stemOf(name)] = true
	w.say("damage: %s of %s at %d (%v), power cut: %v", done.kind, name, at, err, powerCut)
	w.restart(disk, powerCut, done)
}

// reported reports whether the quarantine has something of a file, such as a group that a power cut tore.
func reported(disk *vfstest.Disk, name string) bool {
	report := "quarantine/" + strings.ReplaceAll(stemOf(name), "/", "-") + "-"
	return slices.ContainsFunc(disk.Names(), func(n string) bool { return strings.HasPrefix(n, report) })
}

// stemOf is a file's path without what changes of a segment's name when it is sealed.
func stemOf(name string) string {
	stem, _, _ := strings.Cut(name, ".")
	return stem
}

// end checks the log as it is, closed, and opened again.
func (w *world) end() {
	w.inj.Clear()
	w.say("end")
	w.restart(w.disk, false, damageDone{})
	w.stop()
	acked := int64(w.l.Acked())
	w.tally.acked.Add(acked)
	w.tally.programs.Add(1)
}

// TestRandomPrograms lets rapid find and shrink programs that break the ledger.
func TestRandomPrograms(t *testing.T) {
	var ta tally
	rapid.Check(t, func(rt *rapid.T) {
		// The bubble has a goroutine of its own, so what rapid throws is carried over to the one that waits for it.
		var thrown any
		synctest.Test(t, func(*testing.T) {
			var w *world
			defer func() {
				thrown = recover()
				if w != nil && w.log != nil {
					_ = w.log.Close()
				}
			}()
			pick := func(n int, what string) int { return rapid.IntRange(0, n-1).Draw(rt, what) }
			w = newWorld(pick, func(format string, args ...any) { panic(broken(fmt.Sprintf(format, args...))) }, &ta, 3)
			for range rapid.IntRange(1, 60/stride+10).Draw(rt, "steps") {
				w.step()
			}
			w.end()
		})
		if what, ok := thrown.(broken); ok {
			rt.Fatal(string(what))
		} else if thrown != nil {
			panic(thrown)
		}
	})
}

// broken says how a program broke the ledger.
type broken string

// runSeed runs the program of one seed.
func runSeed(t *testing.T, seed uint64, ta *tally, many int) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(seed, 0))
		fatal := func(format string, args ...any) { t.Fatalf("seed %d: "+format, append([]any{seed}, args...)...) }
		w := newWorld(func(n int, _ string) int { return rng.IntN(n) }, fatal, ta, many)
		defer func() { _ = w.log.Close() }()
		for range 60 {
			w.step()
		}
		w.end()
	})
}

// TestSeeds runs the programs that have found a fault, by name.
func TestSeeds(t *testing.T) {
	names, err := filepath.Glob("testdata/seeds/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		t.Run(filepath.Base(name), func(t *testing.T) {
			b, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			for field := range strings.FieldsSeq(string(b)) {
				seed, err := strconv.ParseUint(field, 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				runSeed(t, seed, new(tally), 20)
			}
		})
	}
}

// TestRandomCrashes runs random programs until so many crash points were verified as CRASH_POINTS says: a point is an image of the disk
// that was recovered and held against the ledger. CRASH_SEED is where the seeds start.
func TestRandomCrashes(t *testing.T) {
	want, seed := int64(2000/stride), uint64(1)
	if v := os.Getenv("CRASH_POINTS"); v != "" {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		want = n
	}
	if v := os.Getenv("CRASH_SEED"); v != "" {
		n, err := strconv.ParseUint(v, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seed = n
	}
	var ta tally
	var next atomic.Uint64
	next.Store(seed)
	began := time.Now()
	t.Run("programs", func(t *testing.T) {
		for worker := range 2 {
			t.Run(fmt.Sprint(worker), func(t *testing.T) {
				t.Parallel()
				for ta.points.Load() < want && !t.Failed() {
					runSeed(t, next.Add(1)-1, &ta, 40)
				}
			})
		}
	})
	faults := 0
	for _, n := range ta.faults {
		faults += n
	}
	t.Logf("seeds %d to %d: %d programs, %.0f points/s", seed, next.Load()-1, ta.programs.Load(), float64(ta.points.Load())/time.Since(began).Seconds())
	t.Logf("crash points %d, kills %d, faults %v", ta.points.Load(), ta.kills.Load(), ta.faults)
	t.Logf("acked %d, confirmed %d, lost %d, duplicated (in all images) %d, taken by damage %d, bits flipped %d, most records one of them cost %d",
		ta.acked.Load(), ta.confirmed.Load(), ta.lost.Load(), ta.duplicated.Load(), ta.damaged.Load(), ta.flips.Load(), ta.longest.Load())
	if !t.Failed() && (ta.acked.Load() < want/4 || int64(faults) < want/100 || ta.kills.Load() < want/400 || ta.flips.Load() < want/400) {
		t.Error("too little happened")
	}
	if ta.longest.Load() > 1 || ta.lost.Load() > 0 {
		t.Error("records were lost")
	}
}
