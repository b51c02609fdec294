package chaos

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// TestJudge: what each state of the records comes to.
func TestJudge(t *testing.T) {
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	full := func(when time.Time) bool { return when.Equal(at(50)) }
	poison := uint64(poisonEvery - 1)
	for _, tc := range []struct {
		name string
		l    ledger
		want verdict
	}{
		{"nothing", ledger{}, verdict{}},
		{
			"each where it may be",
			ledger{
				acked: []uint64{1, 2, 3}, processed: map[string][]processed{"a": {{1, 1, at(1)}}},
				queued: map[uint64]bool{2: true}, dead: map[uint64]bool{3: true},
			},
			verdict{acked: 3, processed: 1, queued: 1, dead: 1},
		},
		{"lost", ledger{acked: []uint64{1, 2}, processed: map[string][]processed{"a": {{1, 1, at(1)}}}}, verdict{acked: 2, processed: 1, lost: []uint64{2}}},
		{"processed without an ack", ledger{processed: map[string][]processed{"a": {{1, 1, at(1)}}}}, verdict{processed: 1}},
		{"a marked repeat", ledger{processed: map[string][]processed{"a": {{1, 2, at(2)}, {1, 1, at(1)}}}}, verdict{processed: 1, marked: 1}},
		{"a repeat without a mark", ledger{processed: map[string][]processed{"a": {{1, 1, at(1)}, {1, 1, at(2)}}}}, verdict{processed: 1, unmarked: []uint64{1}}},
		{"the first attempt comes last", ledger{processed: map[string][]processed{"a": {{1, 2, at(1)}, {1, 1, at(2)}}}}, verdict{processed: 1, marked: 1}},
		{"two later attempts", ledger{processed: map[string][]processed{"a": {{1, 2, at(1)}, {1, 3, at(2)}}}}, verdict{processed: 1, marked: 1}},
		{
			"a first attempt again after a later one",
			ledger{processed: map[string][]processed{"a": {{1, 1, at(1)}, {1, 2, at(2)}, {1, 1, at(3)}}}},
			verdict{processed: 1, marked: 1, unmarked: []uint64{1}},
		},
		{"the disk was full then", ledger{processed: map[string][]processed{"a": {{1, 1, at(50)}, {1, 1, at(60)}}}}, verdict{processed: 1, excused: 1}},
		{"the disk was full later", ledger{processed: map[string][]processed{"a": {{1, 1, at(1)}, {1, 1, at(50)}}}}, verdict{processed: 1, unmarked: []uint64{1}}},
		{"two ids of one number", ledger{processed: map[string][]processed{"a": {{1, 1, at(1)}}, "b": {{1, 1, at(1)}}}}, verdict{processed: 1, twice: 1}},
		{"poison", ledger{processed: map[string][]processed{"a": {{poison, 1, at(1)}}}}, verdict{processed: 1, poisoned: []uint64{poison}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := tc.l.judge(full)
			if fmt.Sprint(got) != fmt.Sprint(tc.want) {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
			bad := len(tc.want.lost)+len(tc.want.unmarked)+len(tc.want.poisoned) > 0 || tc.want.acked == 0
			if err := got.fault(map[string]int{"x": 1}, time.Minute); (err != nil) != bad {
				t.Errorf("fault %v", err)
			}
		})
	}
}

// TestRead: the files of all lives are read, and parts of lines left out.
func TestRead(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"acked-1": "1\n2\n", "acked-2": "1000\n10", "acked-3": "",
		"processed-4": "1 1 1000 aa\n2 2 2000 bb\n", "processed-5": "1 2 3000 aa\n2 3 30",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var l ledger
	if err := l.read(dir); err != nil {
		t.Fatal(err)
	}
	slices.Sort(l.acked)
	if !slices.Equal(l.acked, []uint64{1, 2, 1000}) || len(l.processed["aa"]) != 2 || len(l.processed["bb"]) != 1 {
		t.Errorf("got %+v", l)
	}
	if got := l.processed["bb"][0]; got.n != 2 || got.attempt != 2 || !got.at.Equal(time.Unix(0, 2000)) {
		t.Errorf("got %+v", got)
	}
	if err := os.WriteFile(filepath.Join(dir, "acked-6"), []byte("word\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := new(ledger).read(dir); err == nil {
		t.Error("what is no number is read")
	}
}

// TestWasFull: a disk counts as full until a while after.
func TestWasFull(t *testing.T) {
	begun := time.Unix(100, 0)
	d := &disk{full: []window{{begun, begun.Add(time.Second)}}}
	for after, want := range map[time.Duration]bool{-1: false, 0: true, time.Second: true, time.Second + afterFull - 1: true, time.Second + afterFull: false} {
		if got := d.wasFull(begun.Add(after)); got != want {
			t.Errorf("%v after: %v, want %v", after, got, want)
		}
	}
}
