package localtransport

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"
)

// A ring gives back what was put into it, in order, and never holds more than its bound.
func TestRing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bound := rapid.IntRange(1, 2000).Draw(t, "bound")
		var r ring
		var want []byte
		next := byte(0)
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "put") {
				p := make([]byte, rapid.IntRange(0, 1500).Draw(t, "bytes"))
				for i := range p {
					p[i] = next
					next++
				}
				n := r.put(p, bound)
				if n != min(len(p), bound-len(want)) {
					t.Fatalf("took %d of %d, holding %d of %d", n, len(p), len(want), bound)
				}
				want = append(want, p[:n]...)
				next -= byte(len(p) - n)
				continue
			}
			p := make([]byte, rapid.IntRange(0, 1500).Draw(t, "room"))
			n := r.take(p)
			if n != min(len(p), len(want)) || !bytes.Equal(p[:n], want[:n]) {
				t.Fatalf("got %d other bytes, want %d", n, min(len(p), len(want)))
			}
			want = want[n:]
		}
		if r.held != len(want) || len(r.buf) > max(bound, 0) {
			t.Fatalf("%d are held in %d, want %d in at most %d", r.held, len(r.buf), len(want), bound)
		}
	})
}
