package transport

import (
	"context"
	"sync"
)

// Receipt says what became of a stream, as far as the peer's transport goes: it settles with nil once
// that holds every byte and the end (weida-protocol §9.2). It says nothing about the peer's application.
//
// It settles with *StopError if the peer stopped the stream instead, with *CloseError if the link ended
// before the stream was finished, with ErrIndeterminate if it ended after that, with ErrAbandoned if this side reset the
// stream. Its methods may be called by several goroutines at once.
type Receipt struct {
	mu      sync.Mutex
	settled bool
	err     error
	done    chan struct{} // nil until somebody asks
	forget  func()
	parking *Parking // where it is parked, if it is

	prev, next *Receipt // its neighbours in the parking, guarded by the parking's lock
}

// NewReceipt returns a receipt that a transport will settle. forget is called, without a lock of the receipt
// held, when the holder wants it no more; it may be nil.
func NewReceipt(forget func()) *Receipt { return &Receipt{forget: forget} }

// Settle gives the receipt its outcome, nil for received. Only the first call counts. It is for transports.
func (r *Receipt) Settle(err error) {
	r.mu.Lock()
	if r.settled {
		r.mu.Unlock()
		return
	}
	r.settled, r.err, r.forget = true, err, nil
	if r.done != nil {
		close(r.done)
	}
	parking := r.parking
	r.mu.Unlock()
	if parking != nil {
		parking.settled(r, err)
	}
}

// Settled reports whether the outcome is known, and the outcome.
func (r *Receipt) Settled() (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.settled, r.err
}

// Done is closed when the outcome is known.
func (r *Receipt) Done() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done == nil {
		r.done = make(chan struct{})
		if r.settled {
			close(r.done)
		}
	}
	return r.done
}

// Wait waits for the outcome and returns it, or ctx's error if that ends first.
func (r *Receipt) Wait(ctx context.Context) error {
	select {
	case <-r.Done():
		_, err := r.Settled()
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Forget says that nobody waits any more, which frees what the transport keeps for this receipt. A
// receipt that was not settled settles with ErrReceiptEvicted.
func (r *Receipt) Forget() {
	r.mu.Lock()
	forget := r.forget
	r.mu.Unlock()
	if forget != nil {
		forget()
	}
	r.Settle(ErrReceiptEvicted)
}

// park binds r to p, or reports its outcome if it is settled already.
func (r *Receipt) park(p *Parking) (settled bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.settled {
		r.parking = p
	}
	return r.settled, r.err
}
