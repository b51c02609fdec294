package discard

import (
	"testing"

	"github.com/weir-agent/weir/sinks/sinktest"
)

func TestSuite(t *testing.T) {
	sinktest.Run(t, func(*testing.T) sinktest.Fixture { return sinktest.Fixture{Sink: &Sink{}} })
}
