package drain

import (
	"testing"
	"time"
)

func testGate(t *testing.T, inFlight int) (*gate, time.Time) {
	t.Helper()
	o, err := Options{MaxInFlight: inFlight, BatchRecords: 100}.fill()
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	g := newGate(&o, now)
	return &g, now
}

// The window is halved by a failure, once for all attempts that were under way together, and grows by one for each
// window of successes.
func TestGateWindow(t *testing.T) {
	g, now := testGate(t, 16)
	if got := g.limit(); got != 16 {
		t.Fatalf("the window begins with %d, want 16", got)
	}
	for i, want := range []int{8, 4, 2, 1, 1} {
		begun := now.Add(time.Duration(2*i+1) * time.Second)
		for range 3 {
			g.failure(begun.Add(time.Second), begun)
		}
		if got := g.limit(); got != want {
			t.Errorf("after %d failures the window is %d, want %d", i+1, got, want)
		}
	}
	now = now.Add(time.Minute)
	steps := 0
	for ; g.limit() < 16 && steps < 1000; steps++ {
		g.success(now, 100)
	}
	if steps < 60 || steps > 130 { // about 1 + 2 + ... + 15
		t.Errorf("it took %d successes to open the window again", steps)
	}
}

// A hold lets nothing start before its time, and one attempt at once then.
func TestGateHold(t *testing.T) {
	g, now := testGate(t, 4)
	g.hold(now, 30*time.Second)
	if at := g.opens(); !at.Equal(now.Add(30*time.Second)) || g.limit() != 1 || !g.held {
		t.Errorf("held: opens after %v, limit %d", at.Sub(now), g.limit())
	}
	g.wait(now, 10*time.Second)
	if at := g.opens(); !at.Equal(now.Add(30 * time.Second)) {
		t.Errorf("a shorter wait changed the longer one to %v", at.Sub(now))
	}
	if !g.success(now.Add(time.Second), 100) || g.held || g.opens().After(now) {
		t.Errorf("after a success: held %v, opens after %v", g.held, g.opens().Sub(now))
	}
}

// What was too much is cut, and comes back within steadySteps successes; from then on it grows until it is open.
func TestGateCutAndGrowth(t *testing.T) {
	g, now := testGate(t, 4)
	for range 100 { // 1,000 records a second
		now = now.Add(100 * time.Millisecond)
		g.begin(now, 100)
		g.success(now, 100)
	}
	if g.rate != 0 {
		t.Fatalf("the rate is %v before any overload, want open", g.rate)
	}
	g.overload(now.Add(time.Millisecond), now.Add(time.Microsecond), 100, 0)
	if g.rate < 400 || g.rate > 600 {
		t.Errorf("after an overload at 1,000 a second the rate is %v, want about half", g.rate)
	}
	now = now.Add(2 * time.Millisecond)
	last := g.rate
	for i := range openSteps {
		now = now.Add(time.Millisecond)
		g.success(now, 100)
		if g.rate != 0 && g.rate < last {
			t.Fatalf("success %d lowered the rate from %v to %v", i, last, g.rate)
		}
		last = g.rate
		if i == searchSteps && (g.rate < 900 || g.rate > 1300) {
			t.Errorf("after %d successes the rate is %v, want about 1,000", i, g.rate)
		}
	}
	if g.rate != 0 {
		t.Errorf("after %d successes the rate is %v, want open", openSteps, g.rate)
	}
}

// The rate opens when it delays nothing.
func TestGateOpensWhereItDelaysNothing(t *testing.T) {
	g, now := testGate(t, 4)
	g.ramp(now)
	for range unpacedSteps + 2 {
		now = now.Add(time.Minute)
		g.begin(now, 1)
	}
	if g.rate != 0 {
		t.Errorf("the rate is %v, want open", g.rate)
	}
}
