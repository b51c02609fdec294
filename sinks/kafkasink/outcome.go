//go:build !nokafka

package kafkasink

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/weir-agent/weir/sinks"
	"github.com/weir-agent/weir/sinks/setup"
)

// outcomeOf returns what the end of an attempt at a record means. keyed tells that records have keys.
func outcomeOf(err error, keyed bool) sinks.Outcome {
	if err == nil {
		return sinks.Outcome{Verdict: sinks.Delivered}
	}
	o := sinks.Outcome{Verdict: sinks.Retry, Reason: sinks.CleanReason(err.Error())}
	if _, ok := errors.AsType[*setup.Unfit](err); ok {
		o.Verdict = sinks.Hold
		return o
	}
	if answer, ok := errors.AsType[*kerr.Error](err); ok {
		o.Status = int(answer.Code)
		o.Verdict = verdictOf(answer, keyed)
		if answer == kerr.InvalidRecord && !keyed {
			o.Reason = sinks.CleanReason("a compacted topic may want keys (sink.kafka.key): " + err.Error())
		}
	}
	return o
}

// verdictOf returns what an error of a broker means.
func verdictOf(e *kerr.Error, keyed bool) sinks.Verdict {
	switch e {
	case kerr.MessageTooLarge, kerr.RecordListTooLarge:
		return sinks.Split
	case kerr.InvalidRecord:
		if keyed {
			return sinks.Reject
		}
		return sinks.Hold
	case kerr.UnknownTopicOrPartition, kerr.UnknownTopicID, kerr.InconsistentTopicID:
		return sinks.Hold // Kafka calls it retriable, as a topic may be on its way
	case kerr.UnknownServerError, kerr.OutOfOrderSequenceNumber, kerr.DuplicateSequenceNumber, kerr.UnknownProducerID, kerr.InvalidProducerEpoch,
		kerr.InvalidProducerIDMapping, kerr.ProducerFenced:
		return sinks.Retry
	}
	if e.Retriable {
		return sinks.Retry
	}
	return sinks.Hold
}

// ofTopic tells that an error concerns one topic, which the client should ask about anew.
func ofTopic(err error) bool {
	return isAny(err, kerr.UnknownTopicOrPartition, kerr.UnknownTopicID, kerr.InconsistentTopicID, kerr.InvalidTopicException, kerr.TopicAuthorizationFailed)
}

// ofProducer tells that an error is one that the client keeps for good, so that a new one is needed once it is mended.
func ofProducer(err error) bool {
	_, badFiles := errors.AsType[*setup.Unfit](err)
	return badFiles || isAny(err, kerr.ClusterAuthorizationFailed, kerr.TransactionalIDAuthorizationFailed, kerr.SaslAuthenticationFailed,
		kerr.UnsupportedSaslMechanism, kerr.IllegalSaslState, kerr.UnsupportedVersion, kerr.ProducerFenced, kerr.InvalidProducerEpoch)
}

func isAny(err error, these ...error) bool {
	for _, one := range these {
		if errors.Is(err, one) {
			return true
		}
	}
	return false
}
