package sinktest

import "sync"

// Gate holds who passes it while a test wants that. The zero value lets all pass.
type Gate struct {
	mu      sync.Mutex
	reached chan struct{} // closed when somebody is held; guarded by mu
	release chan struct{} // nil: nobody is to be held; guarded by mu
}

// Stall is what Fixture.Stall wants: it holds whoever comes from now on.
func (g *Gate) Stall() (reached <-chan struct{}, release func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	held, open := make(chan struct{}), make(chan struct{})
	g.reached, g.release = held, open
	return held, sync.OnceFunc(func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		close(open)
		g.release = nil
	})
}

// Pass returns at once, or on release while the gate holds.
func (g *Gate) Pass() {
	g.mu.Lock()
	release := g.release
	if release != nil && g.reached != nil {
		close(g.reached)
		g.reached = nil
	}
	g.mu.Unlock()
	if release != nil {
		<-release
	}
}
