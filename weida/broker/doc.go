// Package broker is the broker of weida (L2): a queue as a state machine, what it asks of a store, and the serving of queues on a listener.
//
// A Broker takes messages in at the path of each queue, from one-way transfers and from exchanges, and hands them to subscribers that have granted credit
// (weida-supplement §11). What waits in it is bounded in bytes for each queue, bodies that are still being read included, and everything else by that or by
// the limits of the links. Work on one queue delays no other, and a consumer that does not read delays no other consumer.
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
