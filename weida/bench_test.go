package weida

import (
	"context"
	"fmt"
	"io"
	"testing"
)

// benchPair is two runtimes on loopback UDP, a client that is connected and a server.
func benchPair(b *testing.B, path string, o Options) (s *server, client *Runtime, url string) {
	b.Helper()
	id := generate(b)
	rts := [2]*Runtime{}
	for i := range rts {
		rts[i] = must1(NewRuntime(o))(b)
	}
	l := rts[0].Listener()
	binding := must1(l.BindQUIC("127.0.0.1:0", ServerTLS{Identity: id}))(b)
	b.Cleanup(func() {
		for _, rt := range rts {
			check(b, rt.Shutdown())
		}
	})
	return &server{l, rts[0], binding, id}, rts[1], fmt.Sprintf("weida://%v@%v%s", id.Fingerprint(), binding.Addr(), path)
}

func BenchmarkEcho1KiB(b *testing.B) {
	s, c, url := benchPair(b, "/e", Options{})
	rep := must1(s.Replier("/e"))(b)
	go func() {
		for {
			req, err := rep.Accept(context.Background())
			if err != nil {
				return
			}
			body, err := req.Body().Collect(4096)
			if err != nil {
				_ = req.Close()
				continue
			}
			_ = req.Respond(context.Background(), Meta{}, body)
		}
	}()
	r := c.Requester(ClientTLS{})
	check(b, r.Connect(b.Context(), url))
	body := make([]byte, 1024)
	b.ReportAllocs()
	for b.Loop() {
		in, err := r.Request(context.Background(), Meta{}, body)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := in.Collect(4096); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPush64B(b *testing.B) {
	for _, receipts := range []bool{true, false} {
		b.Run(fmt.Sprintf("receipts=%v", receipts), func(b *testing.B) {
			s, c, url := benchPair(b, "/p", Options{Limits: Limits{NoReceipts: !receipts}})
			pull := must1(s.Puller("/p"))(b)
			p := c.Pusher(ClientTLS{})
			check(b, p.Connect(b.Context(), url))
			body := make([]byte, 64)
			done := make(chan int)
			go func() {
				buf := make([]byte, 128)
				for n := 0; ; n++ {
					in, err := pull.Recv(context.Background())
					if err != nil {
						done <- n
						return
					}
					for err == nil {
						_, err = in.Read(buf)
					}
				}
			}()
			sent := 0
			b.ReportAllocs()
			for b.Loop() {
				if err := p.Send(context.Background(), Meta{}, body); err != nil {
					b.Fatal(err)
				}
				sent++
			}
			b.StopTimer()
			check(b, pull.Close())
			<-done
			b.ReportMetric(float64(sent)/b.Elapsed().Seconds(), "msg/s")
		})
	}
}

func BenchmarkStream(b *testing.B) {
	s, c, url := benchPair(b, "/p", Options{})
	pull := must1(s.Puller("/p"))(b)
	p := c.Pusher(ClientTLS{})
	check(b, p.Connect(b.Context(), url))
	done := make(chan int64)
	go func() {
		in, err := pull.Recv(context.Background())
		if err != nil {
			b.Error(err)
		}
		n, err := io.Copy(io.Discard, in)
		if err != nil {
			b.Error(err)
		}
		done <- n
	}()
	out := must1(p.Open(context.Background(), Meta{}))(b)
	chunk := make([]byte, 64<<10)
	b.SetBytes(int64(len(chunk)))
	for b.Loop() {
		if _, err := out.Write(chunk); err != nil {
			b.Fatal(err)
		}
	}
	must1(out.Finish())(b).Discard()
	<-done
}

func BenchmarkConnect(b *testing.B) {
	_, c, url := benchPair(b, "/p", Options{})
	for b.Loop() {
		p := c.Peer(ClientTLS{})
		if err := p.Connect(b.Context(), url); err != nil {
			b.Fatal(err)
		}
		check(b, p.Close())
	}
}

// BenchmarkPublish measures copies that were received, of 64-byte messages to many subscribers on links of their own, with at most so many
// messages under way that none is dropped.
func BenchmarkPublish(b *testing.B) {
	for _, n := range []int{8, 256} {
		b.Run(fmt.Sprintf("subscribers=%d", n), func(b *testing.B) {
			s, c, url := benchPair(b, "/p", Options{MaxConnectionsPerPeer: n})
			p := must1(s.Publisher("/p"))(b)
			const underWay = 64
			// A token is given back for each message that a subscriber has received; a message needs one of each.
			tokens := make([]chan struct{}, n)
			for i := range tokens {
				tokens[i] = make(chan struct{}, underWay)
				sub := c.Subscriber(ClientTLS{})
				check(b, sub.Subscribe("a.#"))
				check(b, sub.Connect(b.Context(), url))
				go func() {
					buf := make([]byte, 128)
					for {
						in, err := sub.Recv(context.Background())
						if err != nil {
							return
						}
						for err == nil {
							_, err = in.Read(buf)
						}
						<-tokens[i]
					}
				}()
			}
			s.subscribers(b, "/p", n, n)
			body := make([]byte, 64)
			b.ReportAllocs()
			sent := 0
			for b.Loop() {
				for _, t := range tokens {
					t <- struct{}{}
				}
				if got, err := p.Publish(Meta{Topic: "a.b"}, body); got != n || err != nil {
					b.Fatalf("queued for %d, %v; dropped %+v", got, err, p.Dropped())
				}
				sent++
			}
			for _, t := range tokens { // wait for the rest
				for range underWay {
					t <- struct{}{}
				}
			}
			b.ReportMetric(float64(sent*n)/b.Elapsed().Seconds(), "copies/s")
		})
	}
}
