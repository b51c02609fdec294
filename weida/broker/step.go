package broker

// Delivery is a message on its way to a consumer, or a dead letter.
type Delivery struct {
	Key     Key // zero for a dead letter
	Seq     Seq
	Attempt uint64
	Message *Message
}

// Refusal is an admission that the store did not take.
type Refusal struct {
	Seq Seq
	Err error
}

// Effects is what may be done once a step is stored.
type Effects struct {
	// Confirmed are the admissions that are as safe as the store's level.
	Confirmed []Seq
	// Refused are those that are not; the messages are not in the queue.
	Refused []Refusal
	// Deliver is to be written to the consumers. Each one ends with Settle, Requeue or Failed, or with its subscription.
	Deliver []Delivery
	// Dead are new dead letters. Each one ends with Settle once somebody has taken it.
	Dead []Delivery
}

// Work reports whether there is something to store or to do: whether Step and Done should be called.
func (q *Queue) Work() bool {
	e := &q.effects
	return len(q.flight) == 0 && (len(q.ops) > 0 || len(e.Confirmed)+len(e.Refused)+len(e.Deliver)+len(e.Dead) > 0)
}

// Step returns what the store must take now; the slice is the queue's, valid until Done. Without anything to store it
// returns nothing. While a step is being stored it returns nothing as well; events may go on.
func (q *Queue) Step() []Op {
	if len(q.flight) > 0 || len(q.ops) == 0 {
		return nil
	}
	q.flight = append(q.again, q.ops...)
	q.again, q.ops = nil, nil
	return q.flight
}

// Done takes the errors of the last step from Store.Append and returns what may be done now; without a step in flight, what may be done anyway.
//
// An admission that failed is refused, and its id forgotten, so that it can be sent again. A settlement that failed goes with the next step. An
// attempt that failed goes out all the same: a full disk must not keep the queue from getting empty; if the broker dies
// before the next attempt is stored, that one is not marked as a repeat.
func (q *Queue) Done(errs []error) Effects {
	flight := q.flight
	q.flight = nil
	admitted := false
	for i, op := range flight {
		var err error
		if errs != nil {
			err = errs[i]
		}
		switch op.Kind {
		case OpAdmit:
			q.admitted(op.Seq, err)
			admitted = true
		case OpAttempt:
			q.attempted(op)
		case OpSettle:
			if err != nil {
				q.again = append(q.again, op)
			}
		}
	}
	if admitted {
		q.scan()
	}
	effects := q.effects
	q.effects = Effects{}
	return effects
}

func (q *Queue) admitted(seq Seq, err error) {
	e := q.bySeq[seq]
	if err != nil {
		q.effects.Refused = append(q.effects.Refused, Refusal{seq, err})
		q.ids.remove(e.message.ID)
		q.remove(e)
		return
	}
	q.effects.Confirmed = append(q.effects.Confirmed, seq)
	q.turn(e, ready)
}

// attempted lets a delivery go. Where its subscription went meanwhile, or the retirement ended, the message was never written.
func (q *Queue) attempted(op Op) {
	e := q.bySeq[op.Seq]
	if e == nil || e.state != leaving || e.attempts != op.Attempt {
		return
	}
	if e.sub == nil {
		e.attempts--
		q.back(e)
		q.scan()
		return
	}
	q.turn(e, out)
	q.effects.Deliver = append(q.effects.Deliver, Delivery{Key: e.sub.key, Seq: e.seq, Attempt: e.attempts, Message: e.message})
}
