package quictransport

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"os/exec"
	"regexp"
	"runtime/debug"
	"strconv"
	"sync"
	"testing"
)

const (
	largeEnv = "QUICTRANSPORT_LARGE_BYTES"
	// largeRSS is what a process with both ends of a stream of 1 GiB may take at most, in KiB.
	largeRSS = 64 << 10
)

// TestLargeStream echoes a stream that is far larger than the memory that both ends together may take. It does so in a process of its own,
// whose peak is then its own, too. Under the race detector memory is not comparable, and a smaller stream has to do.
func TestLargeStream(t *testing.T) {
	size := 1 << 30
	race := raceEnabled()
	if race {
		size = 64 << 20
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestLargeStreamAlone$", "-test.count=1")
	cmd.Env = append(os.Environ(), largeEnv+"="+strconv.Itoa(size))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	m := regexp.MustCompile(`echoed (\d+) bytes, peak RSS (\d+) KiB`).FindSubmatch(out)
	if m == nil {
		t.Fatalf("it said nothing of its peak:\n%s", out)
	}
	echoed, _ := strconv.Atoi(string(m[1])) // the expression wants digits
	peak, _ := strconv.Atoi(string(m[2]))
	if echoed != size {
		t.Errorf("%d bytes of %d came back", echoed, size)
	}
	if !race && peak > largeRSS {
		t.Errorf("the process took %d KiB, want at most %d", peak, largeRSS)
	}
}

// raceEnabled reports whether this binary was built with the race detector.
func raceEnabled() bool {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return false
	}
	for _, s := range info.Settings {
		if s.Key == "-race" {
			return s.Value == "true"
		}
	}
	return false
}

// TestLargeStreamAlone is what TestLargeStream runs in a process of its own.
func TestLargeStreamAlone(t *testing.T) {
	size, err := strconv.Atoi(os.Getenv(largeEnv))
	if err != nil {
		t.Skip("TestLargeStream runs it")
	}
	r := newRig(t, loopback(t), loopback(t), ListenConfig{}, Config{})
	dialled, accepted := r.pair(t)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		w, r, err := accepted.AcceptBi(t.Context())
		if err != nil {
			t.Error(err)
			return
		}
		if _, err := io.Copy(w, r); err != nil {
			t.Error(err)
		}
		if err := w.CloseWrite(); err != nil {
			t.Error(err)
		}
	})
	w, reader, err := dialled.OpenBi(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	receipt, err := w.Receipt()
	if err != nil {
		t.Fatal(err)
	}
	sent, got := crc32.NewIEEE(), crc32.NewIEEE()
	wg.Go(func() {
		chunk := make([]byte, 256<<10)
		for at := 0; at < size; at += len(chunk) {
			for i := 0; i < len(chunk); i += 509 {
				chunk[i]++
			}
			n := min(len(chunk), size-at)
			_, _ = sent.Write(chunk[:n]) // it never fails
			if _, err := w.Write(chunk[:n]); err != nil {
				t.Error(err)
				return
			}
		}
		if err := errors.Join(w.CloseWrite(), receipt.Wait(t.Context())); err != nil {
			t.Error(err)
		}
	})
	echoed, err := io.Copy(got, reader)
	if err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if sent.Sum32() != got.Sum32() {
		t.Error("what came back is not what was sent")
	}
	fmt.Printf("echoed %d bytes, peak RSS %d KiB\n", echoed, peakRSS(t))
}

// peakRSS returns the most memory that this process has had, in KiB.
func peakRSS(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if errors.Is(err, os.ErrNotExist) {
		return 0 // known on Linux alone
	} else if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(status)
	if m == nil {
		t.Fatal("no VmHWM")
	}
	peak, _ := strconv.Atoi(string(m[1])) // the expression wants digits
	return peak
}
