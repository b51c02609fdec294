package weida_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"strings"
	"time"

	"github.com/weir-agent/weir/weida"
)

// Example is a replier and a requester that knows it by its fingerprint.
func Example() {
	ctx := context.Background()
	rt, err := weida.NewRuntime(weida.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer rt.Shutdown()

	id, err := weida.GenerateIdentity()
	if err != nil {
		log.Fatal(err)
	}
	listener := rt.Listener()
	replier, err := listener.Replier("/greet")
	if err != nil {
		log.Fatal(err)
	}
	binding, err := listener.BindQUIC("127.0.0.1:0", weida.ServerTLS{Identity: id})
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		for {
			req, err := replier.Accept(ctx)
			if err != nil {
				return // the runtime was shut down
			}
			name, err := req.Body().Collect(100)
			if err != nil {
				_ = req.Refuse(weida.CodeRejected, "a name of at most 100 bytes")
				continue
			}
			_ = req.Respond(ctx, weida.Meta{ContentType: "text/plain"}, append([]byte("hello, "), name...))
		}
	}()

	requester := rt.Requester(weida.ClientTLS{})
	if err := requester.Connect(ctx, fmt.Sprintf("weida://%v@%v/greet", id.Fingerprint(), binding.Addr())); err != nil {
		log.Fatal(err)
	}
	reply, err := requester.Request(ctx, weida.Meta{}, []byte("Ada"))
	if err != nil {
		log.Fatal(err)
	}
	greeting, err := reply.Collect(1000)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s (%s)\n", greeting, reply.Meta().ContentType)
	_, err = requester.Request(ctx, weida.Meta{}, []byte(strings.Repeat("x", 101)))
	fmt.Println(errors.Is(err, weida.ErrRejected), weida.IsDefinite(err))
	// Output:
	// hello, Ada (text/plain)
	// true true
}

// serve binds a new listener, and returns it with the part of an address that comes before a path.
func serve(rt *weida.Runtime) (*weida.Listener, string) {
	id, err := weida.GenerateIdentity()
	if err != nil {
		log.Fatal(err)
	}
	listener := rt.Listener()
	binding, err := listener.BindQUIC("127.0.0.1:0", weida.ServerTLS{Identity: id})
	if err != nil {
		log.Fatal(err)
	}
	return listener, fmt.Sprintf("weida://%v@%v", id.Fingerprint(), binding.Addr())
}

// A Pusher hands messages to Pullers, in turn where there are several.
func ExamplePusher() {
	ctx := context.Background()
	rt, err := weida.NewRuntime(weida.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer rt.Shutdown()
	listener, at := serve(rt)
	puller, err := listener.Puller("/jobs")
	if err != nil {
		log.Fatal(err)
	}
	pusher := rt.Pusher(weida.ClientTLS{})
	if err := pusher.Connect(ctx, at+"/jobs"); err != nil {
		log.Fatal(err)
	}
	if err := pusher.Send(ctx, weida.Meta{Topic: "paint.red"}, []byte("the fence")); err != nil {
		log.Fatal(err)
	}
	job, err := puller.Recv(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer job.Close()
	what, err := job.Collect(1 << 20)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s: %s\n", job.Meta().Topic.Value, what)
	// Output: paint.red: the fence
}

// A payload is streamed, and the receipt says when the peer's transport has all of it.
func ExamplePeer_Open() {
	ctx := context.Background()
	rt, err := weida.NewRuntime(weida.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer rt.Shutdown()
	listener, at := serve(rt)
	acceptor, err := listener.Acceptor("/upload")
	if err != nil {
		log.Fatal(err)
	}
	received := make(chan int64)
	go func() {
		in, err := acceptor.Accept(ctx)
		if err != nil || in.Transfer == nil {
			return
		}
		defer in.Transfer.Close()
		n, err := io.Copy(io.Discard, in.Transfer)
		if err != nil {
			return // it was canceled: what came is worth nothing
		}
		received <- n
	}()

	peer := rt.Peer(weida.ClientTLS{})
	if err := peer.Connect(ctx, at+"/upload"); err != nil {
		log.Fatal(err)
	}
	out, err := peer.Open(ctx, weida.Meta{ContentType: "application/octet-stream"})
	if err != nil {
		log.Fatal(err)
	}
	defer out.Cancel() // unless it is finished
	for range 100 {
		if _, err := out.Write(make([]byte, 10_000)); err != nil {
			log.Fatal(err)
		}
	}
	delivery, err := out.Finish()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(<-received, delivery.Wait(ctx))
	// Output: 1000000 <nil>
}

// A requester writes and reads at the same time.
func ExampleRequester_Open() {
	ctx := context.Background()
	rt, err := weida.NewRuntime(weida.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer rt.Shutdown()
	listener, at := serve(rt)
	replier, err := listener.Replier("/echo")
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		req, err := replier.Accept(ctx)
		if err != nil {
			return
		}
		body := req.TakeBody() // to be read beside the reply
		defer body.Close()
		reply, err := req.Reply(ctx, weida.Meta{})
		if err != nil {
			return
		}
		defer reply.Cancel()
		if _, err := io.Copy(reply, body); err != nil {
			return
		}
		if delivery, err := reply.Finish(); err == nil {
			delivery.Discard() // a drain waits for it
		}
	}()

	requester := rt.Requester(weida.ClientTLS{})
	if err := requester.Connect(ctx, at+"/echo"); err != nil {
		log.Fatal(err)
	}
	request, replies, err := requester.Open(ctx, weida.Meta{})
	if err != nil {
		log.Fatal(err)
	}
	defer request.Cancel()
	defer replies.Close()
	fmt.Fprint(request, "one ")
	reply, err := replies.Recv() // long before the end of the request
	if err != nil {
		log.Fatal(err)
	}
	fmt.Fprint(request, "two")
	if _, err := request.Finish(); err != nil {
		log.Fatal(err)
	}
	all, err := reply.Collect(100)
	fmt.Printf("%s %v\n", all, err)
	// Output: one two <nil>
}

// A sender orders a report and learns how far the receiver has come with its message.
func ExampleCursors() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	rt, err := weida.NewRuntime(weida.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer rt.Shutdown()
	listener, at := serve(rt)
	puller, err := listener.Puller("/jobs")
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		job, err := puller.Recv(ctx)
		if err != nil {
			return
		}
		defer job.Close()
		body, err := job.Collect(1 << 20)
		if err != nil {
			return
		}
		if reporter := job.Reporter(); reporter != nil { // nil if nothing was ordered
			reporter.Report(weida.LevelProcessed, uint64(len(body)))
			reporter.Finish()
		}
	}()

	pusher := rt.Pusher(weida.ClientTLS{})
	if err := pusher.Connect(ctx, at+"/jobs"); err != nil {
		log.Fatal(err)
	}
	message := []byte("the fence")
	out, err := pusher.Open(ctx, weida.Meta{Report: weida.ReportOrder{Levels: []weida.Level{weida.LevelProcessed}}})
	if err != nil {
		log.Fatal(err)
	}
	defer out.Cancel()
	if _, err := out.Write(message); err != nil {
		log.Fatal(err)
	}
	if _, err := out.Finish(); err != nil {
		log.Fatal(err)
	}
	fmt.Println(out.Cursors().Wait(ctx, weida.LevelProcessed, uint64(len(message))))
	// Output: <nil>
}
