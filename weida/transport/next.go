package transport

import "context"

// Next takes what comes next out of ready, until ended is closed: from then on it returns the error of why. When ctx ends first it returns that of ctx. Links and
// listeners accept with it.
func Next[T any](ctx context.Context, ready <-chan T, ended <-chan struct{}, why func() error) (next T, err error) {
	select {
	case <-ended: // also where there is something to take
		return next, why()
	default:
	}
	select {
	case next = <-ready:
		return next, nil
	case <-ended:
		return next, why()
	case <-ctx.Done():
		return next, ctx.Err()
	}
}
