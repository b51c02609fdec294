package ingest

import (
	"bufio"
	"context"
	"io"
	"net"
	"path/filepath"
	"sync"
	"testing"

	"github.com/weir-agent/weir/ingest/frame"
	"github.com/weir-agent/weir/wab"
	"github.com/weir-agent/weir/wab/record"
)

// benchServer is a server over a log on the real disk.
func benchServer(b *testing.B) string {
	b.Helper()
	dir := b.TempDir()
	l, err := wab.Open(dir, wab.Options{})
	if err != nil {
		b.Fatal(err)
	}
	path := filepath.Join(dir, "s")
	srv, err := New(Config{Path: path}, []Appender{l.Writable()[0]})
	if err != nil {
		b.Fatal(err)
	}
	go srv.Serve(context.Background())
	b.Cleanup(func() {
		if err := srv.Shutdown(context.Background()); err != nil {
			b.Error(err)
		}
		if err := l.Close(); err != nil {
			b.Error(err)
		}
	})
	return path
}

// keepInFlight sends n frames and reads n replies of replyLen bytes, with at most
// window frames unanswered. Frames are written as many at a time as the window
// has room for.
func keepInFlight(b *testing.B, path string, f []byte, n, window, replyLen int) {
	nc, err := net.Dial("unix", path)
	if err != nil {
		b.Error(err)
		return
	}
	defer nc.Close()
	var many []byte
	for range window {
		many = append(many, f...)
	}
	in := bufio.NewReaderSize(nc, 64<<10)
	sent, answered := 0, 0
	for answered < n {
		if room := min(window-(sent-answered), n-sent); room > 0 {
			if _, err := nc.Write(many[:room*len(f)]); err != nil {
				b.Error(err)
				return
			}
			sent += room
		}
		got := max(1, in.Buffered()/replyLen)
		if _, err := io.CopyN(io.Discard, in, int64(got*replyLen)); err != nil {
			b.Error(err)
			return
		}
		answered += got
	}
}

func BenchmarkServe(b *testing.B) {
	payload := make([]byte, 256)
	one := frame.Append(nil, frame.Push, record.Durable, payload)
	soft := frame.Append(nil, frame.Push, record.Buffered, payload)
	many := make([][]byte, 1000)
	for i := range many {
		many[i] = payload
	}
	batch := frame.AppendPushBatch(nil, record.Durable, many...)
	batchReply := len(frame.AppendAckBatch(nil, 1000, func(int) bool { return true }))
	tests := []struct {
		name          string
		frame         []byte
		records       int // a frame
		reply         int
		conns, window int
	}{
		{"durable/1 conn/1 in flight", one, 1, 20, 1, 1},
		{"buffered/1 conn/1 in flight", soft, 1, 20, 1, 1},
		{"durable/64 conns/1 in flight", one, 1, 20, 64, 1},
		{"durable/1 conn/256 in flight", one, 1, 20, 1, 256},
		{"durable/4 conns/256 in flight", one, 1, 20, 4, 256},
		{"durable/4 conns/batch of 1000", batch, 1000, batchReply, 4, 2},
	}
	for _, tt := range tests {
		b.Run(tt.name, func(b *testing.B) {
			path := benchServer(b)
			n := max(1, b.N/tt.records/tt.conns)
			b.ResetTimer()
			var wg sync.WaitGroup
			for range tt.conns {
				wg.Go(func() { keepInFlight(b, path, tt.frame, n, tt.window, tt.reply) })
			}
			wg.Wait()
			b.ReportMetric(float64(n*tt.conns*tt.records)/b.Elapsed().Seconds(), "records/s")
		})
	}
}
