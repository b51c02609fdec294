// Package forward measures the way of records from weir to a weida broker and on to consumers, and runs the broker that it is measured with, in a process
// of its own: queues on disk, whose confirm is Stored(Flushed).
package forward

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/weir-agent/weir/cmd/weir-bench/internal/proc"
	"github.com/weir-agent/weir/wab"
	"github.com/weir-agent/weir/weida"
	"github.com/weir-agent/weir/weida/broker"
	"github.com/weir-agent/weir/weida/broker/wabstore"
)

// The paths of the queues.
const (
	Orders = "/orders"
	Dead   = "/dead"
)

// retireTime is how long an orderly end waits for what is out.
const retireTime = 2 * time.Second

// BrokerOptions is a broker of two queues, Orders and Dead.
type BrokerOptions struct {
	Dir        string // of identity and queues; it must exist
	QueueBytes int    // bound of each queue
}

// hello is what the process of a broker says first.
type hello struct{ Fingerprint, Addr string }

// url is the address of a queue.
func (h hello) url(path string) string { return "weida://" + h.Fingerprint + "@" + h.Addr + path }

// Stats is what the process of a broker says of its queues when it is asked.
type Stats struct{ Orders, Dead broker.QueueStats }

func openStore(o BrokerOptions, path string) (*wabstore.Store, error) {
	dir := filepath.Join(o.Dir, filepath.Base(path))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("forward: %w", err)
	}
	return wabstore.Open(dir, wabstore.Options{Log: wab.Options{MinFreeBytes: -1}})
}

// served is a broker that runs in this process.
type served struct {
	rt     *weida.Runtime
	broker *broker.Broker
	stores []*wabstore.Store
	hello  hello
}

func newServed(o BrokerOptions) (*served, error) {
	id, err := weida.OpenIdentityDir(filepath.Join(o.Dir, "identity"))
	if err != nil {
		return nil, err
	}
	s := &served{}
	s.rt, err = weida.NewRuntime(weida.Options{
		Offered: weida.Guarantees{Acknowledgement: weida.AckStored, Durability: weida.Flushed},
	})
	if err != nil {
		return nil, err
	}
	var queues []broker.QueueOptions
	for _, path := range []string{Orders, Dead} {
		store, err := openStore(o, path)
		if err != nil {
			return nil, errors.Join(err, s.close())
		}
		s.stores = append(s.stores, store)
		queues = append(queues, broker.QueueOptions{Path: path, Store: store, Config: broker.Config{Bytes: o.QueueBytes}})
	}
	l := s.rt.Listener()
	if s.broker, err = broker.New(l, broker.Options{Queues: queues}); err != nil {
		return nil, errors.Join(err, s.close())
	}
	// The address is opened when the queues are there, so that nobody is told that they are not.
	binding, err := l.BindQUIC("127.0.0.1:0", weida.ServerTLS{Identity: id})
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	own, err := id.Current()
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	s.hello = hello{own.Fingerprint().String(), binding.Addr().String()}
	return s, nil
}

func (s *served) close() error {
	errs := []error{s.rt.Shutdown()}
	for _, store := range s.stores {
		errs = append(errs, store.Close())
	}
	return errors.Join(errs...)
}

func (s *served) stats() Stats {
	orders, _ := s.broker.Stats(Orders) // both are there
	dead, _ := s.broker.Stats(Dead)
	orders.StoreError, dead.StoreError = nil, nil // an error has no JSON
	return Stats{orders, dead}
}

// ServeProcess is what the process of a broker does: it says where it is, and its Stats for each line that it reads, having given back what memory it can where
// that is asked for, and retires when its input or ctx ends.
func ServeProcess(ctx context.Context, o BrokerOptions, in io.Reader, out io.Writer) error {
	s, err := newServed(o)
	if err != nil {
		return err
	}
	serving, stop := context.WithCancel(context.Background())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- s.broker.Serve(serving) }()
	asked := make(chan error, 1)
	go func() { asked <- proc.Answer(in, out, s.hello, s.answer) }()
	select {
	case err = <-asked:
	case <-ctx.Done(): // the goroutine that reads ends with the process
	case err = <-ended:
		ended <- nil
	}
	s.broker.Retire(retireTime)
	stop()
	return errors.Join(err, <-ended, s.close())
}

func (s *served) answer(line string) any {
	if line == freeMemory {
		debug.FreeOSMemory()
	}
	return s.stats()
}
