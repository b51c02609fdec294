//go:build !nonats

package natssink

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-agent/weir/sinks/natssink/natstest"
	"github.com/weir-agent/weir/sinks/sinktest"
)

// BenchmarkDeliver delivers batches to a real server.
func BenchmarkDeliver(b *testing.B) {
	server := natstest.Start(b, "")
	natstest.AddStream(b, natstest.Connect(b, server.URL()), jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}})
	s := sinktest.Open(b, New, Options{URL: server.URL(), Subject: "s.x"})
	sinktest.Bench(b, s)
}
