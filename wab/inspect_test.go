package wab_test

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/weir-agent/weir/wab"
	"github.com/weir-agent/weir/wab/record"
	"github.com/weir-agent/weir/wab/vfs/vfstest"
	"github.com/weir-agent/weir/wab/wabtest"
)

// walkAll walks all segments and returns the payloads and the damage.
func walkAll(t *testing.T, disk *vfstest.Disk) (payloads []string, damage []wab.Damage) {
	t.Helper()
	segments, err := wab.Segments(disk)
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range segments {
		_, err := wab.Walk(disk, info, func(r *record.Record, d *wab.Damage) error {
			if d != nil {
				damage = append(damage, *d)
				return nil
			}
			if r.ID != record.ComputeID(info.Address, r.Index, r.Payload) {
				t.Errorf("record %d of %s has a wrong id", r.Index, info.Name)
			}
			payloads = append(payloads, string(r.Payload))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return payloads, damage
}

func TestInspectLiveAndDamaged(t *testing.T) { synctest.Test(t, testInspect) }

func testInspect(t *testing.T) {
	disk := vfstest.NewDisk()
	opts := crashOptions()
	opts.FS = disk
	log, err := wab.Open("", opts)
	if err != nil {
		t.Fatal(err)
	}
	ledger := wabtest.NewLedger()
	var want []string
	for range 30 {
		p := ledger.Payload(5000)
		want = append(want, string(p))
		if err := ledger.Push(log.Shards()[0], record.Durable, p); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Wait() // the background has sealed what is full
	before := fmt.Sprint(disk.Names())
	got, damage := walkAll(t, disk)
	if fmt.Sprint(got) != fmt.Sprint(want) || len(damage) != 0 {
		t.Errorf("live: %d records and damage %v, want %d records", len(got), damage, len(want))
	}
	if now := fmt.Sprint(disk.Names()); now != before {
		t.Errorf("looking changed the folder from %s to %s", before, now)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}

	segments, err := wab.Segments(disk)
	if err != nil || len(segments) < 2 || !segments[0].Sealed || segments[0].Problem != "" {
		t.Fatalf("closed: %+v, %v", segments, err)
	}
	if err := disk.FlipBit(segments[0].Name, 1024+56+8+100, 3); err != nil { // in the payload of the first record
		t.Fatal(err)
	}
	got, damage = walkAll(t, disk)
	if len(got) != len(want)-1 || len(damage) != 1 || damage[0].Lost != 1 || damage[0].FirstIndex != 1 {
		t.Fatalf("damaged: %d records of %d, damage %+v", len(got), len(want), damage)
	}

	// The log quarantines it, and what is kept has the form of the record.
	if _, _, err := wabtest.Reopen(disk, crashOptions()); err != nil {
		t.Fatal(err)
	}
	reports, err := wab.Quarantine(disk)
	if err != nil || len(reports) != 1 || reports[0].Lost != 1 || reports[0].Kept == 0 {
		t.Fatalf("quarantine: %+v, %v", reports, err)
	}
	n, err := wab.Salvage(disk, reports[0], func(payload []byte) error {
		if len(payload) != len(want[0]) || string(payload[200:]) != want[0][200:] {
			t.Errorf("salvaged %d bytes, want the damaged %d", len(payload), len(want[0]))
		}
		return nil
	})
	if n != 1 || err != nil {
		t.Errorf("salvaged %d stretches, %v", n, err)
	}
}
