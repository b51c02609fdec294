package drain

import (
	"sync"
	"time"
)

// gate decides how many attempts of one lane run at once and when the next may start. It belongs
// to the lane's loop.
//
// The window is additive increase, multiplicative decrease: halved by a failure, one more for each window of
// successes. The rate is open (not limited) until the endpoint asks for less (429, 503) or was away. What
// follows an overload is a cubic curve in successes: it comes back to the rate that was too much within steadySteps
// of them, stays near it, and then probes beyond, faster and faster; so the share of attempts that fail does not
// depend on how fast the endpoint is. After an outage the rate grows by a fifth with each success.
type gate struct {
	max   int // attempts at once
	batch float64

	window    float64
	rate      float64   // records a second; 0: open
	paced     time.Time // when the rate lets the next attempt start
	notBefore time.Time // the endpoint, or a hold, asked for this
	held      bool
	failures  int // in a row, without a success between

	cutAt     time.Time // attempts begun before it say nothing new
	peak      float64   // the rate that was too much; 0: ramping after an outage
	share     float64   // what the last cut left of it
	curve     float64   // in how many successes the rate comes back to it
	steps     int       // successes since cutAt
	delivered float64   // records since since
	counted   int       // successes since since
	since     time.Time
	before    float64 // goodput until since, records a second; 0: not known
	waited    int     // consecutive attempts that the rate did not delay
}

const (
	// steadySteps is how many successes it takes to come back to the rate that was too much.
	steadySteps = 64
	// searchSteps is the same where that rate is not well known.
	searchSteps = 16
	// openSteps is after how many successes without an overload the rate opens.
	openSteps = 4 * steadySteps
	// firstCut and laterCut are what a cut leaves of the rate.
	firstCut = 0.5
	laterCut = 0.9
	// usedShare is which part of the rate has to be used for it to be what was too much.
	usedShare = 0.8
	// rampStep is the growth of the rate with each success after an outage.
	rampStep = 1.2
	// rampBatches is how many batches a second the ramp starts with.
	rampBatches = 2
	// slowestSeconds is how long a full batch takes at the lowest rate.
	slowestSeconds = 10
	// unpacedSteps is how many attempts in a row the rate must not have delayed for it to open.
	unpacedSteps = 16
	// outageFailures is how many failures in a row make an outage, after which delivery ramps up.
	outageFailures = 3
	// goodputWindow is how long goodput is measured at least, and goodputSteps over how many successes.
	goodputWindow = time.Second
	goodputSteps  = 8
)

func newGate(o *Options, now time.Time) gate {
	return gate{max: o.MaxInFlight, batch: float64(o.BatchRecords), window: float64(o.MaxInFlight), since: now}
}

// limit is how many attempts may run at once.
func (g *gate) limit() int { return max(1, int(g.window)) }

// opens is when the next attempt may start.
func (g *gate) opens() time.Time {
	if g.rate > 0 && g.paced.After(g.notBefore) {
		return g.paced
	}
	return g.notBefore
}

// begin books an attempt of n records.
func (g *gate) begin(now time.Time, n int) {
	if g.rate == 0 {
		return
	}
	from := now
	if g.paced.After(now.Add(-time.Millisecond)) {
		g.waited = 0
		from = g.paced
	} else {
		g.waited++
	}
	g.pace(from, float64(n))
	if g.waited > unpacedSteps {
		g.open()
	}
}

func (g *gate) open() { g.rate, g.peak, g.waited = 0, 0, 0 }

// success books an attempt that the endpoint answered, of which n records were delivered. It reports
// whether the endpoint had failed before.
func (g *gate) success(now time.Time, n int) (recovered bool) {
	recovered = g.failures > 0
	if g.failures >= outageFailures {
		g.ramp(now)
	}
	if g.held { // others got through meanwhile
		g.held, g.notBefore = false, time.Time{}
	}
	g.failures = 0
	g.window = min(float64(g.max), g.window+1/g.window)
	if span := now.Sub(g.since); span >= goodputWindow && (g.rate == 0 || g.counted >= goodputSteps) {
		g.before = g.delivered / span.Seconds()
		g.since, g.delivered, g.counted = now, 0, 0
	}
	g.delivered += float64(n)
	g.counted++
	g.steps++
	switch {
	case g.rate == 0:
	case g.peak == 0:
		g.rate *= rampStep
	case g.steps >= openSteps:
		g.open()
	default:
		x := float64(g.steps)/g.curve - 1
		g.rate = max(g.rate, g.peak*(1+x*x*x*(1-g.share)))
	}
	return recovered
}

// ramp begins the growth after an outage, or where nothing is known of the endpoint.
func (g *gate) ramp(now time.Time) {
	if start := rampBatches * g.batch; g.rate == 0 || g.rate > start {
		g.rate = start
	}
	g.peak, g.waited = 0, 0
	g.since, g.delivered, g.counted, g.before, g.steps = now, 0, 0, 0, 0
	g.pace(now, g.batch)
}

// goodput is what was delivered of late, in records a second.
func (g *gate) goodput(now time.Time) float64 {
	span := now.Sub(g.since)
	if g.before > 0 && g.counted < goodputSteps {
		return g.before
	}
	return g.delivered / max(span, time.Millisecond).Seconds()
}

// pace lets the next attempt start once n records more have had their time, counted from the time of from.
func (g *gate) pace(from time.Time, n float64) {
	g.paced = from.Add(time.Duration(n / g.rate * float64(time.Second)))
}

// failure books an attempt, begun at that time, of which nothing was delivered. It reports whether that is
// news: of the attempts that were under way at once, only the first to fail is.
func (g *gate) failure(now, begun time.Time) bool {
	if !begun.After(g.cutAt) {
		return false
	}
	g.cutAt, g.held = now, false
	g.failures++
	g.window = max(1, g.window/2)
	return true
}

// overload books an attempt of n records of which the endpoint took some and refused the rest because there are too many.
func (g *gate) overload(now, begun time.Time, n, some int) {
	if some > 0 {
		g.failures = 0
		g.delivered += float64(some)
		g.steps++
	}
	if !g.failure(now, begun) || g.failures >= outageFailures {
		return // an endpoint that takes nothing is away: it is not to be measured
	}
	if g.rate == 0 && g.before == 0 && now.Sub(g.since) < goodputWindow {
		g.ramp(now)
		return
	}
	measured := g.goodput(now)
	g.share, g.curve = laterCut, steadySteps
	switch {
	case g.rate == 0:
		g.peak = max(measured, float64(n))
		g.share, g.curve = firstCut, searchSteps
	case g.steps == 0: // too much although nothing grew
		g.peak = g.rate
		g.share, g.curve = firstCut, searchSteps
	default:
		g.peak = g.rate
		known := g.before > 0 || g.counted >= goodputSteps
		if known && measured < g.rate*usedShare { // there was not as much to send, or it went slower
			g.peak = max(measured, g.rate*firstCut)
		}
	}
	g.rate = max(g.peak*g.share, g.batch/slowestSeconds)
	g.since, g.delivered, g.counted, g.before, g.steps, g.waited = now, 0, 0, 0, 0, 0
	g.pace(now, float64(n))
}

// hold lets nothing start for the time of wait.
func (g *gate) hold(now time.Time, wait time.Duration) {
	g.failures++
	g.cutAt, g.held, g.window = now, true, 1
	g.wait(now, wait)
}

// wait lets nothing start for the time of d.
func (g *gate) wait(now time.Time, d time.Duration) {
	if at := now.Add(d); at.After(g.notBefore) {
		g.notBefore = at
	}
}

// pacer spreads the records of all lanes over time, for Options.RateLimit. It is safe for use by several goroutines.
type pacer struct {
	rate float64 // records a second; 0: no limit
	mu   sync.Mutex
	next time.Time // guarded by mu
}

// take books n records if they may go now, or says when to ask again.
func (p *pacer) take(now time.Time, n int) (at time.Time, ok bool) {
	if p.rate == 0 {
		return now, true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next.After(now) {
		return p.next, false
	}
	p.next = now.Add(time.Duration(float64(n) / p.rate * float64(time.Second)))
	return now, true
}
