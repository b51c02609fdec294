package weida_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"runtime"
	"time"

	"github.com/weir-agent/weir/weida"
)

// must ends an example that cannot go on.
func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

// said reads a short message.
func said(in *weida.IncomingTransfer, err error) string {
	if err != nil {
		log.Fatal(err)
	}
	return string(must(in.Collect(1 << 20)))
}

// A Publisher sends to whoever has subscribed, by topic. A subscription is not confirmed, so what is published too early is missed.
func ExamplePublisher() {
	ctx := context.Background()
	rt := must(weida.NewRuntime(weida.Options{}))
	defer rt.Shutdown()
	listener, at := serve(rt)
	publisher := must(listener.Publisher("/prices"))

	subscriber := rt.Subscriber(weida.ClientTLS{})
	if err := subscriber.Subscribe("eur.*"); err != nil {
		log.Fatal(err)
	}
	if err := subscriber.Connect(ctx, at+"/prices"); err != nil {
		log.Fatal(err)
	}
	for publisher.Subscribers() == 0 {
		runtime.Gosched()
	}
	for _, topic := range []string{"usd.spot", "eur.spot"} {
		n := must(publisher.Publish(weida.Meta{Topic: topic}, []byte("1.07")))
		fmt.Println(topic, "to", n)
	}
	price := must(subscriber.Recv(ctx))
	fmt.Println(price.Meta().Topic.Value, said(price, nil), publisher.Dropped().Total())
	// Output:
	// usd.spot to 0
	// eur.spot to 1
	// eur.spot 1.07 0
}

// A long message is streamed to all subscribers; one that does not keep up is dropped alone.
func ExamplePublisher_Open() {
	ctx := context.Background()
	rt := must(weida.NewRuntime(weida.Options{}))
	defer rt.Shutdown()
	listener, at := serve(rt)
	publisher := must(listener.Publisher("/films"))
	subscriber := rt.Subscriber(weida.ClientTLS{})
	if err := subscriber.Subscribe(""); err != nil {
		log.Fatal(err)
	}
	if err := subscriber.Connect(ctx, at+"/films"); err != nil {
		log.Fatal(err)
	}
	for publisher.Subscribers() == 0 {
		runtime.Gosched()
	}
	film := must(publisher.Open(ctx, weida.Meta{Topic: "nosferatu"}))
	defer film.Cancel() // unless it is finished
	for _, reel := range []string{"one ", "two ", "three"} {
		must(film.WriteWithin([]byte(reel), time.Second))
	}
	fmt.Println("to", must(film.Finish()))
	fmt.Println(said(subscriber.Recv(ctx)))
	// Output:
	// to 1
	// one two three
}

// The two halves of a pair send to each other.
func ExampleListener_Pair() {
	ctx := context.Background()
	rt := must(weida.NewRuntime(weida.Options{}))
	defer rt.Shutdown()
	listener, at := serve(rt)
	white := must(listener.Pair("/chess"))
	black := rt.Pair(weida.ClientTLS{})
	if err := black.Connect(ctx, at+"/chess"); err != nil {
		log.Fatal(err)
	}
	if err := white.Send(ctx, weida.Meta{}, []byte("e4")); err != nil {
		log.Fatal(err)
	}
	fmt.Println(said(black.Recv(ctx)))
	if err := black.Send(ctx, weida.Meta{}, []byte("e5")); err != nil {
		log.Fatal(err)
	}
	fmt.Println(said(white.Recv(ctx)))
	// Output:
	// e4
	// e5
}

// A Surveyor asks everybody and takes what comes in time.
func ExampleSurveyor() {
	ctx := context.Background()
	rt := must(weida.NewRuntime(weida.Options{}))
	defer rt.Shutdown()
	surveyor := rt.Surveyor(weida.ClientTLS{})
	for range 3 {
		listener, at := serve(rt)
		replier := must(listener.Replier("/load"))
		go func() {
			req, err := replier.Accept(ctx)
			if err != nil {
				return
			}
			_ = req.Respond(ctx, weida.Meta{}, []byte("idle"))
		}()
		if err := surveyor.Connect(ctx, at+"/load"); err != nil {
			log.Fatal(err)
		}
	}
	survey := must(surveyor.Survey(ctx, weida.Meta{}, []byte("how are you?"), time.Minute))
	defer survey.Close()
	for {
		answer, err := survey.Next(ctx)
		if errors.Is(err, io.EOF) {
			break // everybody has answered, or the minute is over
		}
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(said(answer.Reply, answer.Err))
	}
	// Output:
	// idle
	// idle
	// idle
}

// Every member of a bus hears the others.
func ExampleListener_Bus() {
	ctx := context.Background()
	rt := must(weida.NewRuntime(weida.Options{}))
	defer rt.Shutdown()
	here, atHere := serve(rt)
	there, atThere := serve(rt)
	ann := must(here.Bus("/ann", weida.ClientTLS{}))
	bob := must(there.Bus("/bob", weida.ClientTLS{}))
	if err := ann.Connect(ctx, atThere+"/bob"); err != nil {
		log.Fatal(err)
	}
	if err := bob.Connect(ctx, atHere+"/ann"); err != nil {
		log.Fatal(err)
	}
	fmt.Println(must(ann.Send(weida.Meta{}, []byte("hello, all"))))
	fmt.Println(said(bob.Recv(ctx)))
	// Output:
	// 1
	// hello, all
}
