package filesink

import (
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/weir-agent/weir/sinks"
	"github.com/weir-agent/weir/sinks/sinktest"
	"github.com/weir-agent/weir/wab/vfs/vfstest"
)

// lineOf is the i-th line of the crash tests: long enough for several sectors.
func lineOf(i int) string {
	return "begin-" + strconv.Itoa(i) + "-" + strings.Repeat(strconv.Itoa(i%10), 700) + "-end"
}

// deliverAll delivers lines [from, to) one batch each, and adds those that are delivered to ledger.
func deliverAll(t *testing.T, s *Sink, from, to int, ledger map[string]bool) {
	t.Helper()
	for i := from; i < to; i++ {
		if s.Deliver(t.Context(), sinktest.BatchOf(lineOf(i)))[0].Verdict == sinks.Delivered {
			ledger[lineOf(i)] = true
		}
	}
}

// verify fails the test unless every line of the ledger is whole in some file of
// the disk, and no line of a file that is in use is joined to another.
func verify(t *testing.T, d *vfstest.Disk, ledger map[string]bool) {
	t.Helper()
	found := map[string]bool{}
	for _, name := range d.Names() {
		if !strings.HasPrefix(name, "out") {
			continue
		}
		data, err := d.Bytes(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.SplitSeq(string(data), "\n") {
			found[line] = true
			if strings.Count(line, "-end") > 1 {
				t.Errorf("%s: two lines are joined", name)
			}
		}
	}
	for line := range ledger {
		if !found[line] {
			t.Errorf("%.12s was delivered and is in no file", line)
		}
	}
}

// A power cut at each operation, with several of the images that it may leave: what was
// delivered is there, and the sink goes on.
func TestPowerCutAtEachOperation(t *testing.T) {
	opts := Options{Path: "out", Format: FormatLines, RotateBytes: 1800}
	for k := 1; ; k++ {
		disk := vfstest.NewDisk()
		in := vfstest.NewInjector(disk)
		in.Add(vfstest.Fault{At: k, Crash: true})
		ledger := map[string]bool{}
		o := opts
		o.FS = in
		if s, err := New(o); err == nil {
			deliverAll(t, s, 0, 6, ledger)
			_ = s.Close() // the world may have ended
		}
		for seed := range uint64(6) {
			image := disk.Image(vfstest.Choice{Keep: vfstest.Keep(seed % 3), Seed: uint64(k)<<8 | seed, BothNames: true})
			after := map[string]bool{}
			for line := range ledger {
				after[line] = true
			}
			verify(t, image, after)
			o.FS = image
			s, err := New(o)
			if err != nil {
				t.Fatalf("operation %d, image %d: New after the power cut: %v", k, seed, err)
			}
			deliverAll(t, s, 6, 9, after)
			if !after[lineOf(8)] {
				t.Errorf("operation %d, image %d: the sink did not go on", k, seed)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			verify(t, image, after)
		}
		if t.Failed() || len(in.Fired()) == 0 {
			return
		}
	}
}

// A sync that fails and drops its bytes, on which the next sync returns nil, then a power cut.
func TestDroppedBytesAreNotDelivered(t *testing.T) {
	for at := 1; at <= 8; at++ {
		disk := vfstest.NewDisk()
		in := vfstest.NewInjector(disk)
		s, err := New(Options{FS: in, Path: "out", Format: FormatLines})
		if err != nil {
			t.Fatal(err)
		}
		in.Add(vfstest.Fault{Kinds: vfstest.SyncData, Name: "out", At: at, Err: syscall.EIO, Drop: true})
		ledger := map[string]bool{}
		deliverAll(t, s, 0, 6, ledger)
		deliverAll(t, s, 0, 6, ledger)
		if len(ledger) != 6 {
			t.Errorf("sync %d failed: %d lines delivered in two rounds, want 6", at, len(ledger))
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		verify(t, disk.Crash(vfstest.Choice{Keep: vfstest.KeepNone}), ledger)
	}
}
