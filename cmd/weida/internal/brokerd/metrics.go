package brokerd

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/weir-agent/weir/weida/broker"
)

// collector makes metrics of the state of the queues, as it is when somebody asks.
type collector struct {
	broker  *broker.Broker
	metrics []metric
}

// metric is one metric of a queue.
type metric struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(*broker.QueueStats) float64
}

func queueMetrics() []metric {
	gauge := func(name, help string, value func(*broker.QueueStats) float64) metric {
		return metric{prometheus.NewDesc("weida_queue_"+name, help, []string{"queue"}, nil), prometheus.GaugeValue, value}
	}
	counter := func(name, help string, value func(*broker.QueueStats) float64) metric {
		return metric{prometheus.NewDesc("weida_queue_"+name+"_total", help, []string{"queue"}, nil), prometheus.CounterValue, value}
	}
	return []metric{
		gauge("messages", "Messages that are not settled.", func(s *broker.QueueStats) float64 { return float64(s.Messages) }),
		gauge("unsettled_messages", "Messages that are handed out and not settled.", func(s *broker.QueueStats) float64 { return float64(s.Unsettled) }),
		gauge("dead_messages", "Dead letters that the queue for them has not taken yet.", func(s *broker.QueueStats) float64 { return float64(s.Dead) }),
		gauge("bytes", "Bytes that count against max_bytes.", func(s *broker.QueueStats) float64 { return float64(s.Bytes) }),
		gauge("consumers", "Subscriptions.", func(s *broker.QueueStats) float64 { return float64(s.Consumers) }),
		gauge("store_failing", "1 while the store does not take changes.", func(s *broker.QueueStats) float64 {
			if s.StoreError != nil {
				return 1
			}
			return 0
		}),
		counter("admitted_messages", "Messages that were confirmed and stored.", func(s *broker.QueueStats) float64 { return float64(s.Admitted) }),
		counter("admitted_bytes", "Payload bytes of these.", func(s *broker.QueueStats) float64 { return float64(s.AdmittedBytes) }),
		counter("repeated_messages", "Messages that were confirmed since they were there before.", func(s *broker.QueueStats) float64 { return float64(s.Repeats) }),
		counter("refused_messages", "Messages that were rejected.", func(s *broker.QueueStats) float64 { return float64(s.Refused) }),
		counter("deliveries", "Deliveries that were written to consumers.", func(s *broker.QueueStats) float64 { return float64(s.Delivered) }),
		counter("settled_messages", "Messages that a consumer has processed.", func(s *broker.QueueStats) float64 { return float64(s.Settled) }),
		counter("requeued_messages", "Deliveries that came back.", func(s *broker.QueueStats) float64 { return float64(s.Requeued) }),
		counter("dead_lettered_messages", "Messages that went to the queue for dead letters.", func(s *broker.QueueStats) float64 { return float64(s.DeadLettered) }),
	}
}

// Describe sends nothing: the metrics are those of the queues that there are.
func (c collector) Describe(chan<- *prometheus.Desc) {}

// Collect sends the metrics of every queue.
func (c collector) Collect(out chan<- prometheus.Metric) {
	for _, path := range c.broker.Paths() {
		st, _ := c.broker.Stats(path)
		for _, m := range c.metrics {
			out <- prometheus.MustNewConstMetric(m.desc, m.kind, m.value(&st), path)
		}
	}
}

func metricsHandler(b *broker.Broker) http.Handler {
	r := prometheus.NewRegistry()
	r.MustRegister(collector{b, queueMetrics()}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{})
}
