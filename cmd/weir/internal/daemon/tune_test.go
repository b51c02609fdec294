package daemon

import (
	"math"
	"runtime"
	"testing"

	"github.com/weir-agent/weir/cmd/weir/internal/config"
)

// TestOneProcessorMore: Go gets one processor more than it would take by itself, however often the configuration is read again, unless the
// environment says how many.
func TestOneProcessorMore(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(before)
	runtime.SetDefaultGOMAXPROCS()
	own := runtime.GOMAXPROCS(0)
	d := &Daemon{gogc: 100, memoryLimit: math.MaxInt64}
	for _, c := range []struct {
		name, env string
		want      int
	}{{"default", "", own + 1}, {"set", "7", own}} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("GOMAXPROCS", c.env)
			runtime.SetDefaultGOMAXPROCS()
			for range 3 {
				d.tune(config.Config{})
				if got := runtime.GOMAXPROCS(0); got != c.want {
					t.Errorf("%d processors, want %d", got, c.want)
				}
			}
		})
	}
}
