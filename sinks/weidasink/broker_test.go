package weidasink

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weir-agent/weir/wab/record"
	"github.com/weir-agent/weir/weida"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// long is a time that no test waits for.
const long = 10 * time.Minute

// arrived is a request as the far end got it.
type arrived struct {
	meta weida.IncomingMeta
	body []byte
}

// answer says what becomes of the n-th request, counted from 0. The request is closed when it returns.
type answer func(n int, r *weida.IncomingRequest, body []byte)

// confirm answers with a level.
func confirm(level weida.Level) answer {
	return func(_ int, r *weida.IncomingRequest, _ []byte) {
		_ = r.Respond(context.Background(), weida.Meta{Achieved: weida.Some(level)}, nil) // the sink may have gone
	}
}

// refuse answers with an error.
func refuse(code weida.ErrorCode, message string) answer {
	return func(_ int, r *weida.IncomingRequest, _ []byte) { _ = r.Refuse(code, message) } // the sink may have gone
}

// broker is a listener with one path, over QUIC, that keeps what it gets and answers by script.
type broker struct {
	rt   *weida.Runtime
	id   *weida.Identity
	addr string

	quiet bool

	mu  sync.Mutex
	got []arrived
}

const path = "/queue"

// brokerOptions are what tests change; the zero value is a broker that confirms Stored.
type brokerOptions struct {
	runtime weida.Options
	core    bool // it promises nothing
	quiet   bool // it keeps nothing of what it gets
	id      *weida.Identity
	addr    string
	clients *weida.Trust
	path    string // in place of path
	answer  answer
}

// newBroker starts a broker; it is shut down with the test, or by close.
func newBroker(t testing.TB, o brokerOptions) *broker {
	t.Helper()
	b := &broker{id: o.id, quiet: o.quiet}
	var err error
	if b.id == nil {
		if b.id, err = weida.GenerateIdentity(); err != nil {
			t.Fatal(err)
		}
	}
	if o.runtime.Offered == (weida.Guarantees{}) && !o.core {
		o.runtime.Offered = weida.Guarantees{Acknowledgement: weida.AckStored, Durability: weida.Flushed}
	}
	if b.rt, err = weida.NewRuntime(o.runtime); err != nil {
		t.Fatal(err)
	}
	l := b.rt.Listener()
	if o.path == "" {
		o.path = path
	}
	if o.answer == nil {
		o.answer = confirm(weida.LevelStored)
	}
	replier, err := l.Replier(o.path)
	if err != nil {
		t.Fatal(err)
	}
	if o.addr == "" {
		o.addr = "127.0.0.1:0"
	}
	binding, err := l.BindQUIC(o.addr, weida.ServerTLS{Identity: b.id, ClientTrust: o.clients})
	if err != nil {
		t.Fatal(err)
	}
	b.addr = binding.Addr().String()
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.serve(replier, o.answer)
	}()
	t.Cleanup(func() {
		b.close(t)
		<-done
	})
	return b
}

func (b *broker) close(t testing.TB) {
	t.Helper()
	if err := b.rt.Shutdown(); err != nil {
		t.Error(err)
	}
}

func (b *broker) serve(replier *weida.Replier, f answer) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for n := 0; ; n++ {
		r, err := replier.Accept(context.Background())
		if err != nil {
			return
		}
		wg.Go(func() {
			defer r.Close()
			body, err := r.Body().Collect(record.MaxBytes)
			if err != nil {
				return
			}
			if !b.quiet {
				b.mu.Lock()
				b.got = append(b.got, arrived{*r.Meta(), body})
				b.mu.Unlock()
			}
			f(n, r, body)
		})
	}
}

// all returns the requests so far.
func (b *broker) all() []arrived {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.got)
}

func (b *broker) url() string {
	return fmt.Sprintf("weida://%v@%s%s", b.id.Fingerprint(), b.addr, path)
}

// silent is an address of this host at which nobody answers: what is sent there is received and not read.
func silent(t *testing.T) string {
	t.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() }) // nothing depends on it
	return c.LocalAddr().String()
}
