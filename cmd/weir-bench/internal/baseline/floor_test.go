package baseline

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/weir-agent/weir/cmd/weir-bench/internal/load"
	"github.com/weir-agent/weir/wab/record"
)

// TestFloorAnswersEveryFrame: each shape of load gets an ack for each record, and the payloads are in the file.
func TestFloorAnswersEveryFrame(t *testing.T) {
	for _, keys := range []bool{false, true} {
		t.Run(fmt.Sprintf("keys=%v", keys), func(t *testing.T) { testFloor(t, keys) })
	}
}

func testFloor(t *testing.T, keys bool) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	ready := make(chan struct{})
	ended := make(chan error, 1)
	go func() { ended <- Floor(ctx, dir, keys, func() { close(ready) }) }()
	select {
	case <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	for _, c := range []struct {
		connections, inFlight, batch int
		tier                         record.Durability
	}{{1, 1, 1, record.Durable}, {8, 1, 1, record.Durable}, {2, 64, 1, record.Durable}, {2, 4, 1000, record.Durable}, {1, 1, 1, record.Buffered}, {2, 4, 100, record.Buffered}} {
		got, err := load.Run(t.Context(), load.Options{
			Socket: filepath.Join(dir, "floor.sock"), Connections: c.connections, InFlight: c.inFlight, Batch: c.batch, Tier: c.tier, Bytes: 100, Frames: 50, Duration: time.Minute,
		})
		if want := int64(c.connections * c.batch * 50); err != nil || got.Records != want || got.Failed != 0 {
			t.Errorf("%+v: %d acked, %d failed, %v; want %d", c, got.Records, got.Failed, err, want)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
