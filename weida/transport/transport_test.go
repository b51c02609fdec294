package transport

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
)

func TestReceiptSettlesOnce(t *testing.T) {
	r := NewReceipt(nil)
	if settled, _ := r.Settled(); settled {
		t.Fatal("a new receipt is settled")
	}
	done := r.Done()
	r.Settle(nil)
	r.Settle(ErrIndeterminate)
	<-done
	if settled, err := r.Settled(); !settled || err != nil {
		t.Errorf("got settled %v, %v, want the first outcome, nil", settled, err)
	}
	if err := r.Wait(t.Context()); err != nil {
		t.Errorf("Wait after the outcome: %v", err)
	}
}

func TestReceiptWaitEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := NewReceipt(nil).Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}

func TestReceiptForget(t *testing.T) {
	forgotten := 0
	r := NewReceipt(func() { forgotten++ })
	r.Forget()
	r.Forget()
	if _, err := r.Settled(); !errors.Is(err, ErrReceiptEvicted) || forgotten != 1 {
		t.Errorf("got outcome %v, forgotten %d times", err, forgotten)
	}
}

func TestParking(t *testing.T) {
	receipts := func(n int) []*Receipt {
		rs := make([]*Receipt, n)
		for i := range rs {
			rs[i] = NewReceipt(nil)
		}
		return rs
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	tests := []struct {
		name            string
		run             func(p *Parking)
		parked          int
		delivered, lost uint64
	}{
		{"settled before it was parked", func(p *Parking) {
			r := receipts(1)[0]
			r.Settle(nil)
			p.Park(r)
		}, 0, 1, 0},
		{"settled out of order", func(p *Parking) {
			rs := receipts(3)
			for _, r := range rs {
				p.Park(r)
			}
			rs[1].Settle(nil)
			rs[2].Settle(ErrIndeterminate)
			rs[0].Settle(nil)
		}, 0, 2, 1},
		{"the oldest makes room", func(p *Parking) {
			rs := receipts(4)
			for _, r := range rs {
				p.Park(r)
			}
			rs[0].Settle(nil) // too late: evicted
		}, 3, 0, 4},
		{"the settled make room first", func(p *Parking) {
			rs := receipts(4)
			for _, r := range rs[:3] {
				p.Park(r)
			}
			rs[1].Settle(nil)
			p.Park(rs[3])
			rs[0].Settle(nil)
		}, 2, 2, 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := NewParking(3)
			tt.run(p)
			if got := p.Len(); got != tt.parked {
				t.Errorf("got %d parked, want %d", got, tt.parked)
			}
			delivered, lost := p.Drain(ended)
			if delivered != tt.delivered || lost != tt.lost {
				t.Errorf("got %d delivered and %d outstanding, want %d and %d", delivered, lost, tt.delivered, tt.lost)
			}
			if got := p.Len(); got != 0 {
				t.Errorf("%d are parked after the drain", got)
			}
		})
	}
}

func TestParkingDrainWaits(t *testing.T) {
	p := NewParking(8)
	var wg sync.WaitGroup
	for i := range 8 {
		r := NewReceipt(nil)
		p.Park(r)
		wg.Go(func() {
			if i%2 == 0 {
				r.Settle(nil)
			} else {
				r.Settle(&StopError{Code: 7})
			}
		})
	}
	if delivered, outstanding := p.Drain(t.Context()); delivered != 4 || outstanding != 4 {
		t.Errorf("got %d delivered and %d outstanding, want 4 and 4", delivered, outstanding)
	}
	wg.Wait()
}

func TestParseFingerprint(t *testing.T) {
	digits := strings.Repeat("0a", 32)
	tests := []struct {
		name, text string
		ok         bool
	}{
		{"whole", "sha256:" + digits, true},
		{"no prefix", digits, false},
		{"another digest", "sha512:" + digits, false},
		{"capitals", "sha256:" + strings.ToUpper(digits), false},
		{"capital prefix", "SHA256:" + digits, false},
		{"one digit short", "sha256:" + digits[1:], false},
		{"one byte too many", "sha256:" + digits + "00", false},
		{"not hexadecimal", "sha256:" + digits[:62] + "zz", false},
		{"space", "sha256: " + digits[1:], false},
		{"empty", "", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f, err := ParseFingerprint(tt.text)
			if tt.ok != (err == nil) || err != nil && !errors.Is(err, ErrFingerprint) {
				t.Fatalf("got error %v, want ok %v", err, tt.ok)
			}
			if tt.ok && f.String() != tt.text {
				t.Errorf("got %s back, want %s", f, tt.text)
			}
			if !tt.ok && f != (Fingerprint{}) {
				t.Errorf("a refused text left %s", f)
			}
		})
	}
}

func TestCloseText(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"plain", "going away", "going away"},
		{"control characters", "a\nb\x1b[31m\x7f\u0085c", "a b [31m  c"},
		{"not UTF-8", "a\xffb", "ab"},
		{"long", strings.Repeat("x", 300), strings.Repeat("x", MaxCloseText)},
		{"cut inside a character", strings.Repeat("x", 255) + "é", strings.Repeat("x", 255)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := CloseText(tt.in); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
