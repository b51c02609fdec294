package sinktest

import (
	"context"
	"testing"

	"github.com/weir-agent/weir/sinks"
)

// recorder counts the faults that a check finds.
type recorder struct {
	testing.TB
	faults int
}

func (r *recorder) Helper()               {}
func (r *recorder) Errorf(string, ...any) { r.faults++ }

// TestWantOnce: what the tests of every engine rely on finds what is missing, changed, strange or there twice.
func TestWantOnce(t *testing.T) {
	b := BatchOf("a", "b")
	a := Stored{b.Records[0].ID.String(), "a"}
	second := Stored{b.Records[1].ID.String(), "b"}
	for name, tc := range map[string]struct {
		got    []Stored
		faults int
	}{
		"all":       {[]Stored{second, a}, 0},
		"missing":   {[]Stored{a}, 1},
		"changed":   {[]Stored{a, {second.ID, "c"}}, 2}, // missing, and strange
		"strange":   {[]Stored{a, second, {"x", "x"}}, 1},
		"twice":     {[]Stored{a, second, a}, 1},
		"none":      {nil, 2},
		"id of two": {[]Stored{{second.ID, "a"}, {a.ID, "b"}}, 3},
	} {
		r := &recorder{TB: t}
		WantOnce(r, tc.got, b)
		if r.faults != tc.faults {
			t.Errorf("%s: %d faults, want %d", name, r.faults, tc.faults)
		}
	}
}

// half delivers every other record at each attempt, and keeps what it was given.
type half struct{ got []Stored }

func (h *half) Deliver(_ context.Context, b sinks.Batch) []sinks.Outcome {
	out := make([]sinks.Outcome, len(b.Records))
	for i, r := range b.Records {
		out[i].Verdict = sinks.Retry
		if i%2 == 0 {
			out[i].Verdict = sinks.Delivered
			h.got = append(h.got, Stored{r.ID.String(), string(r.Payload)})
		}
	}
	return out
}

func (h *half) Close() error { return nil }

// TestDeliverAll: what is to be sent again is, alone, until all is delivered.
func TestDeliverAll(t *testing.T) {
	s, b := &half{}, Batch("b", 8)
	if n := DeliverAll(t, s, b); n != 4 {
		t.Errorf("%d attempts, want 4", n)
	}
	WantOnce(t, s.got, b)
	if len(b.Records) != 8 {
		t.Error("the batch of the caller has changed")
	}
}
