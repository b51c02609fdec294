package weida

import (
	"context"
	"sync"
	"time"
)

// PeerEvent is what happens to a peer that an endpoint was connected to: Connected, Lost, Retrying, GaveUp, or Missed. In one outage they come in the order Lost,
// Retrying…, Connected.
type PeerEvent interface{ isPeerEvent() }

// Connected says that a link is up, the first or a later one.
type Connected struct {
	URL  string
	Peer PeerIdentity
	// Guarantees is what the link agreed on.
	Guarantees Guarantees
}

// Lost says that a link has ended.
type Lost struct {
	URL string
	Err *ConnectionLostError
}

// Retrying says that a link will be dialled after a delay.
type Retrying struct {
	URL string
	// Attempt counts from 1 for each outage.
	Attempt int
	Delay   time.Duration
}

// GaveUp says that an address will not be dialled again, unless Connect is called.
type GaveUp struct {
	URL    string
	Reason GiveUpReason
	// Attempts is how often it was tried, for GaveUpPolicy.
	Attempts int
	// Presented is who answered in place of the peer, for GaveUpPeerChanged; nil where nobody proved anything.
	Presented *Fingerprint
	// Err is the last failure.
	Err error
}

// Missed says that so many events were lost to a reader who was too slow.
type Missed struct{ Count uint64 }

func (Connected) isPeerEvent() {}
func (Lost) isPeerEvent()      {}
func (Retrying) isPeerEvent()  {}
func (GaveUp) isPeerEvent()    {}
func (Missed) isPeerEvent()    {}

// GiveUpReason is why an address was given up.
type GiveUpReason uint8

// The reasons of a GaveUp.
const (
	// GaveUpPolicy: the policy does not dial again, or not any more.
	GaveUpPolicy GiveUpReason = iota + 1
	// GaveUpPeerChanged: another key answered, or none. The first link's key is the only one that later ones may prove.
	GaveUpPeerChanged
	// GaveUpFailed: a failure that another attempt would meet again.
	GaveUpFailed
)

// eventDepth is how many events an endpoint keeps for slow readers.
const eventDepth = 64

// eventLog keeps the last events of an endpoint.
type eventLog struct {
	mu     sync.Mutex
	ring   [eventDepth]PeerEvent
	next   uint64        // the number of the next event
	wake   chan struct{} // closed at the next event, or at the end; nil while nobody waits
	closed bool
}

func (l *eventLog) add(e PeerEvent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ring[l.next%eventDepth] = e
	l.next++
	l.wakeAll()
}

func (l *eventLog) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.wakeAll()
}

func (l *eventLog) wakeAll() {
	if l.wake != nil {
		close(l.wake)
		l.wake = nil
	}
}

// Events reads the events of an endpoint from the moment on at which it was made. One goroutine reads.
type Events struct {
	log *eventLog
	at  uint64
}

func (l *eventLog) reader() *Events {
	l.mu.Lock()
	defer l.mu.Unlock()
	return &Events{log: l, at: l.next}
}

// Next returns the next event. It fails with ErrClosed when the endpoint is closed and everything was read, or with ctx's error.
func (e *Events) Next(ctx context.Context) (PeerEvent, error) {
	for {
		event, wake := e.poll()
		if event != nil {
			return event, nil
		}
		if wake == nil {
			return nil, ErrClosed
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// poll returns an event if there is one, otherwise what to wait for, otherwise nothing.
func (e *Events) poll() (PeerEvent, <-chan struct{}) {
	l := e.log
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.next-e.at > eventDepth:
		missed := l.next - e.at - eventDepth
		e.at += missed
		return Missed{missed}, nil
	case e.at < l.next:
		event := l.ring[e.at%eventDepth]
		e.at++
		return event, nil
	case l.closed:
		return nil, nil
	}
	if l.wake == nil {
		l.wake = make(chan struct{})
	}
	return nil, l.wake
}
