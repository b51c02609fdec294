package weidasink

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weir-agent/weir/sinks/sinktest"
	"github.com/weir-agent/weir/weida"
)

func TestSuite(t *testing.T) {
	sinktest.Run(t, func(t *testing.T) sinktest.Fixture {
		var hold atomic.Pointer[func()]
		b := newBroker(t, brokerOptions{answer: func(n int, r *weida.IncomingRequest, body []byte) {
			if f := hold.Load(); f != nil {
				(*f)()
			}
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
			Stall: func() (<-chan struct{}, func()) {
				reached, released := make(chan struct{}), make(chan struct{})
				var first, last sync.Once
				f := func() {
					first.Do(func() { close(reached) })
					<-released
				}
				hold.Store(&f)
				return reached, func() { last.Do(func() { close(released) }) }
			},
		}
	})
}
