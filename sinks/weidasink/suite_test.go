package weidasink

import (
	"testing"

	"github.com/weir-agent/weir/sinks/sinktest"
	"github.com/weir-agent/weir/weida"
)

func TestSuite(t *testing.T) {
	sinktest.Run(t, func(t *testing.T) sinktest.Fixture {
		var gate sinktest.Gate
		b := newBroker(t, brokerOptions{answer: func(n int, r *weida.IncomingRequest, body []byte) {
			gate.Pass()
			confirm(weida.LevelStored)(n, r, body)
		}})
		s, err := New(Options{URL: b.url(), MaxInFlight: 4, IdentityDir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		return sinktest.Fixture{
			Sink: s, Unordered: true,
			Got: func() [][]byte {
				var all [][]byte
				for _, a := range b.all() {
					all = append(all, a.body)
				}
				return all
			},
			Stall: gate.Stall,
		}
	})
}
