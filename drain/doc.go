// Package drain takes records from the shards of a log to a sink. It owns all policy of
// delivery: batching, order, the window of batches in flight, retry, hold, split, dead letters,
// and the confirm. A sink makes one attempt and says what became of each record (package sinks).
//
// # What is promised
//
// At least once: the cursor passes a record only after its sink said Delivered, or after its dead letter is
// on stable storage, or after it expired under Options.MaxAge and was counted. The cursor moves over whole batches, in order.
//
// Order: batches of a shard are first sent in order, and up to Options.MaxInFlight of them are under way. With
// MaxInFlight 1 no record is sent before every record of the batches before it is done with. Within one batch the
// order is the sink's; records of it that must be sent again are sent after the others.
//
// Stable batches: a batch that is sent again whole has the same records and the same key. What is left of a batch after a
// partial success, a split or a bisection is a batch of its own: its key is that of the records that are in it, so that one
// key never stands for two different bodies.
//
// Restarts: a batch that was sent and not confirmed is sent again after the restart with the same records and the same
// key, because the ends of all batches in flight are marks of the cursor.
//   - After an orderly stop all of them are on disk.
//   - A batch that was cut by Linger is sent only after its end is on disk (one sync for each such batch). What is in a
//     full batch (BatchRecords or BatchBytes) depends on nothing but where it begins, so it is not waited for: its end reaches
//     the disk within wab.Options.CursorInterval, and after a death before that the same batch is cut again.
//   - Not so: full batches first sent within CursorInterval of a death, where the options are others in the next run; batches that are
//     cut while the log cannot store its cursor; and what damage takes records out of. The ids of the records never change.
//
// # Failure
//
// Each shard is drained by a loop of its own (lane), with its own window, pace and back-off: nothing that
// one shard's records meet slows another shard. A panic of a sink is an attempt that failed. A panic anywhere else ends the
// loop, which is started again from the cursor. A sink that does not return by its deadline is
// given up after Options.HangGrace: its batch is sent again, and the lost call is counted until it returns; while
// MaxInFlight lost calls of one shard are out, that shard makes no new one, so that a sink that hangs for good
// costs a bounded amount of memory.
package drain
