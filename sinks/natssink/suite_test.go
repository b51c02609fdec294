//go:build !nonats

package natssink

import (
	"fmt"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-agent/weir/sinks/natssink/natstest"
	"github.com/weir-agent/weir/sinks/sinktest"
)

func TestSuite(t *testing.T) {
	server := natstest.Start(t, "")
	n := 0
	sinktest.Run(t, func(t *testing.T) sinktest.Fixture {
		n++
		name := fmt.Sprint("S", n)
		js := natstest.Connect(t, server.URL())
		natstest.AddStream(t, js, jetstream.StreamConfig{Name: name, Subjects: []string{name + ".>"}})
		proxy := sinktest.NewProxy(t, "tcp", server.Address)
		s := sinktest.Open(t, New, Options{URL: "nats://" + proxy.Address, Subject: name + ".x"})
		return sinktest.Fixture{
			Sink: s, Once: true, Stall: proxy.Stall,
			Got: func() (all [][]byte) {
				for _, m := range natstest.Messages(t, js, name) {
					all = append(all, m.Data())
				}
				return all
			},
		}
	})
}
