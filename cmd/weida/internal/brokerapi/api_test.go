package brokerapi

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"testing"
	"time"
)

// A broker that takes the question and never answers does not keep anybody beyond the time for it.
func TestWaitReadyEnds(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	asked, cancel := context.WithCancel(t.Context())
	answered := make(chan error, 1)
	go func() { answered <- NewClient(socket).WaitReady(asked) }()
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	cancel()
	limit, end := context.WithTimeout(t.Context(), 10*time.Second)
	defer end()
	select {
	case err := <-answered:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	case <-limit.Done():
		t.Error("it still waits")
	}
}
