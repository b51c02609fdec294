package wire

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// matchSlow says what the grammar of §6.4 says, in the plainest way.
func matchSlow(filter, topic string) bool {
	if filter == "" {
		return true
	}
	want, got := strings.Split(filter, "."), strings.Split(topic, ".")
	for i, w := range want {
		if w == "#" {
			return true
		}
		if i >= len(got) || w != "*" && w != got[i] {
			return false
		}
	}
	return len(want) == len(got)
}

func TestMatchFollowsTheGrammar(t *testing.T) {
	segment := rapid.SampledFrom([]string{"", "a", "b", "ab", "*", "#"})
	rapid.Check(t, func(t *rapid.T) {
		filter := strings.Join(rapid.SliceOfN(segment, 0, 5).Draw(t, "filter"), ".")
		topic := strings.Join(rapid.SliceOfN(segment, 0, 5).Draw(t, "topic"), ".")
		valid := CheckFilter(filter) == nil
		if i := slices.Index(strings.Split(filter, "."), "#"); valid != (i < 0 || i == strings.Count(filter, ".")) {
			t.Fatalf("%q is valid: %v", filter, valid)
		}
		if valid && Match(filter, topic) != matchSlow(filter, topic) {
			t.Fatalf("%q selects %q: %v", filter, topic, Match(filter, topic))
		}
	})
}

// longest are filters and topics that take the most walking.
func longest() map[string][2]string {
	deep := strings.Repeat("a.", MaxTopicBytes/2-1) + "a"
	return map[string][2]string{
		"every topic":  {"", "px.eur.spot"},
		"three":        {"px.eur.spot", "px.eur.spot"},
		"a wildcard":   {"px.*.spot", "px.eur.spot"},
		"the rest":     {"px.#", "px.eur.spot"},
		"another":      {"px.usd.spot", "px.eur.spot"},
		"256 bytes":    {deep, deep},
		"256 of stars": {strings.ReplaceAll(deep, "a", "*"), deep},
	}
}

func TestMatchAllocatesNothing(t *testing.T) {
	for name, m := range longest() {
		if n := testing.AllocsPerRun(100, func() { _ = Match(m[0], m[1]) }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
		if n := testing.AllocsPerRun(100, func() { _ = CheckFilter(m[0]) }); n != 0 {
			t.Errorf("%s: %v allocations to check", name, n)
		}
	}
}

func BenchmarkMatch(b *testing.B) {
	for name, m := range longest() {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_ = Match(m[0], m[1])
			}
		})
	}
}
