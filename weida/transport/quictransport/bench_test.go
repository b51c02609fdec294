package quictransport

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"

	"github.com/weir-agent/weir/weida/transport"
)

// benchRig makes a link over loopback for a benchmark.
func benchRig(b *testing.B, config Config) (dialled, accepted transport.Link) {
	b.Helper()
	l, err := Listen(loopback(b), serverTLS(b), ListenConfig{})
	if err != nil {
		b.Fatal(err)
	}
	d, err := NewDialler(loopback(b), config)
	if err != nil {
		b.Fatal(err)
	}
	dialled, err = d.Dial(b.Context(), l.Addr(), clientTLS())
	if err != nil {
		b.Fatal(err)
	}
	accepted, err = l.Accept(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		dialled.Close(transport.CodeNoError, "")
		<-accepted.Done()
		// The context of the benchmark has ended.
		ctx := context.Background()
		if err := errors.Join(d.Close(), l.Close(), d.Wait(ctx), l.Wait(ctx)); err != nil {
			b.Error(err)
		}
	})
	return dialled, accepted
}

// BenchmarkPush sends streams of 64 bytes, one after the other. Awaited receipts are awaited at the end, all together.
func BenchmarkPush(b *testing.B) {
	tests := []struct {
		name   string
		config Config
		held   bool
	}{
		{"receipts off", Config{NoReceipts: true}, false},
		{"receipts on, none held", Config{}, false},
		{"receipts held", Config{}, true},
	}
	for _, tt := range tests {
		b.Run(tt.name, func(b *testing.B) {
			dialled, accepted := benchRig(b, tt.config)
			var wg sync.WaitGroup
			wg.Go(func() {
				for {
					s, err := accepted.AcceptUni(b.Context())
					if err != nil {
						return
					}
					if _, err := io.Copy(io.Discard, s); err != nil {
						return
					}
				}
			})
			parking := transport.NewParking(DefaultMaxUniStreams + DefaultMaxBidiStreams)
			body := make([]byte, 64)
			b.ReportAllocs()
			for b.Loop() {
				w, err := dialled.OpenUni(b.Context())
				if err != nil {
					b.Fatal(err)
				}
				if tt.held {
					r, err := w.Receipt()
					if err != nil {
						b.Fatal(err)
					}
					parking.Park(r)
				}
				if _, err := w.Write(body); err != nil {
					b.Fatal(err)
				}
				if err := w.CloseWrite(); err != nil {
					b.Fatal(err)
				}
			}
			delivered, outstanding := parking.Drain(b.Context())
			b.ReportMetric(float64(delivered), "receipts")
			b.ReportMetric(float64(outstanding), "evicted")
			dialled.Close(transport.CodeNoError, "")
			wg.Wait()
		})
	}
}
