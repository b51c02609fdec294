//go:build !nokafka

package kafkasink

import (
	"testing"

	"github.com/weir-agent/weir/sinks/kafkasink/kafkatest"
	"github.com/weir-agent/weir/sinks/sinktest"
)

// BenchmarkDeliver delivers batches to a real server.
func BenchmarkDeliver(b *testing.B) {
	server := kafkatest.Start(b, kafkatest.Config{})
	server.AddTopic("bench", 4)
	s := sinktest.Open(b, New, Options{Brokers: server.Address, Topic: "bench"})
	sinktest.Bench(b, s)
}
