package wab_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weir-agent/weir/wab"
	"github.com/weir-agent/weir/wab/segment"
)

// openDirEnv makes the test binary open the folder it names, say how long that took and what memory it needed, and end.
const openDirEnv = "WAB_TEST_OPEN"

// openChild is the process whose time and memory BenchmarkRecover measures.
func openChild(dir string) error {
	began := time.Now()
	log, err := wab.Open(dir, wab.Options{MaxBytes: 1 << 40, MinFreeBytes: -1})
	if err != nil {
		return err
	}
	ready := time.Since(began)
	peak, err := peakMiB()
	if err != nil {
		return err
	}
	fmt.Println(ready.Seconds(), peak, log.Shards()[0].Stats().BacklogRecords)
	return log.Close()
}

// peakMiB is the highest resident size of this process so far.
func peakMiB() (float64, error) {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	var kib float64
	_, after, _ := strings.Cut(string(b), "VmHWM:")
	_, err = fmt.Sscan(after, &kib)
	return kib / 1024, err
}

// BenchmarkRecover opens folders with a large backlog, each in a process of its own: `make recover-bench`. It needs some 12 GiB
// of space in the temporary folder.
func BenchmarkRecover(b *testing.B) {
	for _, test := range []struct {
		name     string
		segments int
		groups   int // of 1,000 records of 256 bytes each
	}{
		{"10GiB", 160, 242},
		{"100000_small_segments", 100_000, 0},
	} {
		b.Run(test.name, func(b *testing.B) {
			dir := b.TempDir()
			records, err := cloneSegments(dir, test.segments, test.groups)
			if err != nil {
				b.Fatal(err)
			}
			var ready, peak float64
			for b.Loop() {
				child := exec.Command(os.Args[0])
				child.Env = append(os.Environ(), openDirEnv+"="+dir)
				child.Stderr = os.Stderr
				out, err := child.Output()
				if err != nil {
					b.Fatal(err)
				}
				var found int
				if _, err := fmt.Sscan(string(out), &ready, &peak, &found); err != nil || found != records {
					b.Fatalf("%q, want %d records (%v)", out, records, err)
				}
			}
			b.ReportMetric(ready, "s-to-ready")
			b.ReportMetric(peak, "peak-MiB")
		})
	}
}

// cloneSegments fills a data folder with copies of one sealed segment, each under its own number, and returns how many records there are. The
// last one has no footer, as after a kill. With no groups a segment has one record.
func cloneSegments(dir string, n, groups int) (records int, err error) {
	const instance, nonce = 0xabcdef, 0x1234567
	var body bytes.Buffer
	var g segment.Group
	index := uint64(0)
	payload := bytes.Repeat([]byte{'p'}, 256)
	add := func(count int) {
		g.Reset(nonce, index+1)
		for range count {
			g.Add(payload)
		}
		off := segment.HeaderBytes + int64(body.Len())
		body.Write(g.Seal(off, off, 1))
		index += uint64(count)
	}
	if groups == 0 {
		add(1)
	}
	for range groups {
		add(1000)
	}
	end := segment.HeaderBytes + int64(body.Len())
	at := segment.SectorUp(end)
	body.Write(make([]byte, at-end))
	foot := segment.Footer{Records: index, End: end, First: 1, Last: 1, Back: 1, BackRecords: uint32(index)}
	whole := segment.AppendFooter(body.Bytes(), foot, nonce, at)
	folder := filepath.Join(dir, "shard_00")
	if err := os.Mkdir(folder, 0o700); err != nil {
		return 0, err
	}
	if err := os.WriteFile(filepath.Join(dir, "instance"), fmt.Appendf(nil, "%016x\n", instance), 0o600); err != nil {
		return 0, err
	}
	for number := 2; number <= n+1; number++ {
		head := segment.AppendHeader(nil, segment.Header{Instance: instance, Number: uint64(number), Nonce: nonce, Created: 1})
		name, rest := fmt.Sprintf("seg_%08d-%016x.wab.sealed", number, instance), whole
		if number == n+1 {
			name, rest = strings.TrimSuffix(name, ".sealed"), whole[:len(whole)-segment.FooterBytes]
		}
		f, err := os.Create(filepath.Join(folder, name))
		if err != nil {
			return 0, err
		}
		if _, err := f.Write(head); err != nil {
			return 0, err
		}
		if _, err := f.Write(rest); err != nil {
			return 0, err
		}
		if err := f.Close(); err != nil {
			return 0, err
		}
	}
	return n * int(index), nil
}
