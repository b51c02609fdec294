package wire

import "strings"

const (
	segmentSeparator = "."
	wildcardOne      = "*" // exactly one segment
	wildcardRest     = "#" // any number of segments, none among them; the last segment alone
)

// CheckFilter fails with ErrFilter if a filter violates the grammar of §6.4: segments split at '.'; "*" and "#" only as whole segments, and "#" only as
// the last. Everything else is literal, and the empty filter matches every topic.
func CheckFilter(filter string) error {
	for {
		segment, rest, more := strings.Cut(filter, segmentSeparator)
		switch {
		case segment == wildcardOne:
		case segment == wildcardRest:
			if more {
				return ErrFilter
			}
		case strings.ContainsAny(segment, wildcardOne+wildcardRest):
			return ErrFilter
		}
		if !more {
			return nil
		}
		filter = rest
	}
}

// Match reports whether a filter that passed CheckFilter selects a topic. It is one walk over both, bounded by the shorter, and
// allocates nothing. A topic is never a pattern.
func Match(filter, topic string) bool {
	if filter == "" {
		return true
	}
	for {
		want, filterRest, filterMore := strings.Cut(filter, segmentSeparator)
		if want == wildcardRest && !filterMore {
			return true
		}
		got, topicRest, topicMore := strings.Cut(topic, segmentSeparator)
		if want != wildcardOne && want != got {
			return false
		}
		if !topicMore {
			return !filterMore || filterRest == wildcardRest
		}
		if !filterMore {
			return false
		}
		filter, topic = filterRest, topicRest
	}
}
