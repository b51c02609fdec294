package cli

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weir-agent/weir/weida"
)

// sentMessage is a one-way message that was finished.
type sentMessage struct {
	receipt *weida.Delivery
	cursors *weida.Cursors
	bytes   uint64
}

// taken reports whether the other side has said that it has taken the message.
func (m sentMessage) taken() bool {
	offset, ok := m.cursors.Offset(weida.LevelProcessed)
	return ok && offset >= m.bytes
}

// tally counts what became of messages.
type tally struct {
	patience time.Duration // with the next report

	mu             sync.Mutex
	begun, arrived int
	unknown        int   // of which it is not known whether they have arrived
	first          error // why the first that has not arrived has not

	// What follows is of the one goroutine that waits for receipts, and of whoever has waited for that.
	watched    []sentMessage // at most maxUnreported, oldest first
	reported   int
	unreported int  // and not watched any more
	silent     bool // no report came within patience
}

// take counts a message that was read.
func (t *tally) take() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.begun++
}

// settle counts what became of a message.
func (t *tally) settle(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case err == nil:
		t.arrived++
	case errors.Is(err, weida.ErrIndeterminate):
		t.unknown++
	case t.first == nil:
		t.first = err
	}
}

// receipt waits for a message's receipt, which ends with the link at the latest, and watches for the report of it from then on.
func (t *tally) receipt(m sentMessage) {
	err := m.receipt.Wait(context.Background())
	t.settle(err)
	if err != nil {
		_ = m.cursors.Close() // it always returns nil
		return
	}
	t.watched = append(t.watched, m)
	for len(t.watched) > 0 && (t.watched[0].taken() || len(t.watched) > maxUnreported) {
		t.report()
	}
}

// report waits for the report of the oldest message that is watched, and counts it.
func (t *tally) report() {
	m := t.watched[0]
	if !t.silent {
		ctx, cancel := context.WithTimeout(context.Background(), t.patience)
		err := m.cursors.Wait(ctx, weida.LevelProcessed, m.bytes)
		cancel()
		t.silent = err != nil && !errors.Is(err, weida.ErrReportEnded)
	}
	t.watched = t.watched[1:]
	if m.taken() {
		t.reported++
	} else {
		t.unreported++
	}
	_ = m.cursors.Close() // it always returns nil
}

// reports waits for the reports that have not come, as long as one comes within patience. It fails where it is not known of some messages whether they have arrived, and
// where the other side has reported some and not others.
func (t *tally) reports() error {
	for len(t.watched) > 0 {
		t.report()
	}
	var unknown, unreported error
	if t.unknown > 0 {
		unknown = fmt.Errorf("%d messages may have arrived or not: the link was lost before it was known", t.unknown)
	}
	if t.reported > 0 && t.unreported > 0 {
		unreported = fmt.Errorf("the other side has not said of %d messages that it has taken them", t.unreported)
	}
	return errors.Join(unknown, unreported)
}

func (t *tally) failed() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.first
}

// String is for the end of the command.
func (t *tally) String() string {
	s := fmt.Sprintf("%d of %d messages arrived", t.arrived, t.begun)
	if t.reported > 0 {
		s += fmt.Sprintf(", %d were taken", t.reported)
	} else if t.unreported > 0 {
		s += "; whether they were taken the other side does not say"
	}
	return s
}
