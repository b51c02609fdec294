package simnet

import (
	"errors"
	"net"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// received sends count packets of one byte through a network and returns the bytes that arrive, in order of arrival.
func received(t *testing.T, seed uint64, c Conditions, count int) ([]byte, Stats) {
	t.Helper()
	var got []byte
	var stats Stats
	synctest.Test(t, func(t *testing.T) {
		n := New(seed, c)
		a, b := n.Listen(), n.Listen()
		for i := range count {
			if _, err := a.WriteTo([]byte{byte(i)}, b.LocalAddr()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond) // of the bubble's clock
		}
		if err := b.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		for {
			buf := make([]byte, 8)
			size, from, err := b.ReadFrom(buf)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			if size != 1 || from.String() != a.LocalAddr().String() {
				t.Fatalf("got %d bytes from %v", size, from)
			}
			got = append(got, buf[0])
		}
		stats = n.Stats()
	})
	return got, stats
}

func TestConditions(t *testing.T) {
	sorted := func(b []byte) bool { return slices.IsSorted(b) }
	tests := []struct {
		name  string
		c     Conditions
		check func(got []byte, s Stats) bool
	}{
		{"clean", Conditions{}, func(got []byte, _ Stats) bool { return len(got) == 100 && sorted(got) }},
		{"delay", Conditions{Delay: 5 * time.Second}, func(got []byte, _ Stats) bool { return len(got) == 100 && sorted(got) }},
		{"loss", Conditions{Loss: 0.5}, func(got []byte, s Stats) bool {
			return len(got) > 20 && len(got) < 80 && sorted(got) && s.Lost == uint64(100-len(got))
		}},
		{"duplicates", Conditions{Duplicate: 0.5}, func(got []byte, s Stats) bool {
			return len(got) > 120 && sorted(got) && s.Duplicated == uint64(len(got)-100)
		}},
		{"reordering", Conditions{Reorder: 0.5, HoldBack: 50 * time.Millisecond}, func(got []byte, s Stats) bool {
			return len(got) == 100 && !sorted(got) && s.Reordered > 20
		}},
		{"cut", Conditions{Cut: true}, func(got []byte, s Stats) bool { return len(got) == 0 && s.Lost == 100 }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, stats := received(t, 1, tt.c, 100)
			if !tt.check(got, stats) {
				t.Errorf("got %d packets %v, %+v", len(got), got, stats)
			}
			again, _ := received(t, 1, tt.c, 100)
			if !slices.Equal(got, again) {
				t.Errorf("the same seed gave %v and %v", got, again)
			}
		})
	}
}

func TestDeadlineCanBeMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(1, Conditions{}).Listen()
		for _, at := range []time.Duration{-time.Second, time.Second, time.Hour} {
			start := time.Now()
			if err := errors.Join(c.SetReadDeadline(start.Add(time.Minute)), c.SetReadDeadline(start.Add(at))); err != nil {
				t.Fatal(err)
			}
			_, _, err := c.ReadFrom(make([]byte, 1))
			if got := time.Since(start); !errors.Is(err, os.ErrDeadlineExceeded) || got != max(0, at) {
				t.Errorf("deadline in %v: got %v after %v", at, err, got)
			}
		}
	})
}

func TestClosedEnd(t *testing.T) {
	n := New(1, Conditions{})
	a, b := n.Listen(), n.Listen()
	if _, err := n.ListenAt(b.LocalAddr()); err == nil {
		t.Error("an address was bound twice")
	}
	if err := errors.Join(b.Close(), b.Close()); err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.ReadFrom(nil); !errors.Is(err, net.ErrClosed) {
		t.Errorf("read of a closed end: %v", err)
	}
	if _, err := b.WriteTo(nil, a.LocalAddr()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("write to a closed end: %v", err)
	}
	again, err := n.ListenAt(b.LocalAddr())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.WriteTo([]byte("x"), again.LocalAddr()); err != nil {
		t.Fatal(err)
	}
	if size, _, err := again.ReadFrom(make([]byte, 8)); size != 1 || err != nil {
		t.Errorf("got %d bytes, %v", size, err)
	}
}
