package weir_test

import (
	"context"
	"fmt"
	"log"

	weir "github.com/weir-agent/weir/clients/go"
)

func ExampleClient_Push() {
	c := weir.New(weir.Options{Path: "/run/weir/weir.sock"})
	defer c.Close()
	err := c.Push(context.Background(), weir.Durable, []byte(`{"event":"paid"}`))
	switch weir.StateOf(err) {
	case weir.Acked:
		// On stable storage.
	case weir.Refused:
		log.Printf("this record will never be taken: %v", err)
	case weir.Unknown:
		log.Printf("send it again: %v", err)
	}
}

func ExampleClient_PushTracked() {
	c := weir.New(weir.Options{Path: "/run/weir/weir.sock"})
	defer c.Close()
	at, err := c.PushTracked(context.Background(), weir.Durable, []byte("record"))
	if err != nil {
		log.Print(err)
		return
	}
	fmt.Println("the sink will see the key", at.ID)
}

func ExampleClient_PushBatch() {
	c := weir.New(weir.Options{Path: "/run/weir/weir.sock"})
	defer c.Close()
	records := [][]byte{[]byte("one"), []byte("two")}
	acked, err := c.PushBatch(context.Background(), weir.Durable, records)
	if err != nil {
		log.Print(err)
		return
	}
	for i, ok := range acked {
		if !ok {
			log.Printf("send record %d again", i)
		}
	}
}

func ExampleProducer() {
	p := weir.NewProducer(weir.ProducerOptions{Path: "/run/weir/weir.sock"})
	ctx := context.Background()
	for i := range 10_000 {
		err := p.Send(ctx, fmt.Appendf(nil, "record %d", i), func(o weir.Outcome) {
			if o.State != weir.Acked {
				log.Printf("record %d is %v: %v", i, o.State, o.Err)
			}
		})
		if err != nil {
			log.Print(err)
		}
	}
	if err := p.Close(ctx); err != nil {
		log.Print(err)
	}
}
