// Package broker is the queue of weida (L2) as a state machine, and what it asks of a store.
//
// A Queue does no I/O, has no clock and starts no goroutine. Events go in (Admit, Subscribe, Grant, Settle, Requeue, …); what has to be
// stored comes out of Step, and what may be done once it is stored (confirms, refusals, deliveries, dead letters) comes out of Done:
//
//	for q.Work() {
//		effects := q.Done(store.Append(q.Step()))
//		…
//	}
//
// A confirm is never a false confirm: a message is confirmed only after Append returned no error for it. A message that was confirmed
// leaves the queue by settlement alone, or as a dead letter that somebody took. A delivery goes out after its attempt is stored,
// so that a consumer is told of a possible repeat also when the broker died in between.
package broker
