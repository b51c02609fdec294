package localtransport

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/weir-agent/weir/weida/transport"
)

// liveLinks are the links of a listener that have not ended.
type liveLinks struct {
	mu    sync.Mutex
	links map[transport.Link]struct{}
	idle  chan struct{} // closed when the last of them ends; nil while nobody waits
}

func (l *liveLinks) add(link transport.Link) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.links == nil {
		l.links = map[transport.Link]struct{}{}
	}
	l.links[link] = struct{}{}
}

func (l *liveLinks) remove(link transport.Link) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.links, link)
	if len(l.links) == 0 && l.idle != nil {
		close(l.idle)
		l.idle = nil
	}
}

// wait waits until there is none; when ctx ends first, the rest is ended.
func (l *liveLinks) wait(ctx context.Context) error {
	l.mu.Lock()
	var idle chan struct{}
	if len(l.links) > 0 {
		if l.idle == nil {
			l.idle = make(chan struct{})
		}
		idle = l.idle
	}
	l.mu.Unlock()
	if idle == nil {
		return nil
	}
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	rest := slices.Collect(maps.Keys(l.links))
	l.mu.Unlock()
	for _, link := range rest {
		link.Close(transport.CodeShutdown, "")
	}
	return ctx.Err()
}
