package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	weir "github.com/weir-agent/weir/clients/go"
)

// ProduceOptions is one life of a producer.
type ProduceOptions struct {
	Socket string
	Acked  string // file that gets the number of each record that was acked
	First  uint64 // number of the first record
	Rate   int    // records a second
	Bytes  int    // of a payload
}

// poisonEvery: every so many-th record is one that no consumer can process.
const poisonEvery = 500

const (
	produceTick  = 10 * time.Millisecond
	produceLast  = 5 * time.Second // for the acks that are under way at the end
	producerWait = 5 * time.Second // for one ack
)

// numberBytes is where the number of a record ends, at most.
const numberBytes = 20

// payload is the number of a record, and padding.
func payload(n uint64, size int) []byte {
	b := fmt.Appendf(make([]byte, 0, size), "%d ", n)
	for len(b) < size {
		b = append(b, byte('a'+(n+uint64(len(b)))%26))
	}
	return b
}

func isPoison(n uint64) bool { return n%poisonEvery == poisonEvery-1 }

// Produce pushes until ctx ends. The number of a record is on its way to the disk before the next record is pushed, so that whoever kills the process loses none that
// was noted. What has no ack is not pushed again.
func Produce(ctx context.Context, o ProduceOptions) (err error) {
	file, err := os.OpenFile(o.Acked, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("chaos: %w", err)
	}
	var mu sync.Mutex
	var noted error // guarded by mu
	p := weir.NewProducer(weir.ProducerOptions{Path: o.Socket, BatchRecords: 32, MaxBackoff: 200 * time.Millisecond, Timeout: producerWait})
	tick := time.NewTicker(produceTick)
	defer tick.Stop()
	for n := o.First; ctx.Err() == nil; {
		<-tick.C
		for range max(1, o.Rate*int(produceTick)/int(time.Second)) {
			number := n
			n++
			err := p.Send(ctx, payload(number, o.Bytes), func(out weir.Outcome) {
				if out.State != weir.Acked {
					return
				}
				_, err := file.Write(append(strconv.AppendUint(nil, number, 10), '\n')) // one write, so that there are no parts of lines
				mu.Lock()
				noted = errors.Join(noted, err)
				mu.Unlock()
			})
			if err != nil {
				break // the producer's bounds: it goes on at the next tick
			}
		}
	}
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), produceLast)
	defer cancel()
	_ = p.Close(limit) // what has no answer is unknown
	mu.Lock()
	defer mu.Unlock()
	return errors.Join(noted, file.Close())
}
