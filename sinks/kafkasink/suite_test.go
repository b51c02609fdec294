//go:build !nokafka

package kafkasink

import (
	"fmt"
	"testing"

	"github.com/weir-agent/weir/sinks/kafkasink/kafkatest"
	"github.com/weir-agent/weir/sinks/sinktest"
)

func TestSuite(t *testing.T) {
	var proxy *sinktest.Proxy
	server := kafkatest.Start(t, kafkatest.Config{Proxy: func(address string) string {
		proxy = sinktest.NewProxy(t, "tcp", address)
		return proxy.Address
	}})
	n := 0
	sinktest.Run(t, func(t *testing.T) sinktest.Fixture {
		n++
		topic := fmt.Sprint("suite-", n)
		server.AddTopic(topic, 1)
		return sinktest.Fixture{
			Sink: sinktest.Open(t, New, Options{Brokers: server.Proxied, Topic: topic}), Stall: proxy.Stall,
			Got: func() (all [][]byte) {
				for _, r := range server.Records(topic) {
					all = append(all, r.Value)
				}
				return all
			},
		}
	})
}
