package streams

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"testing"
	"time"
)

// TestEveryContender takes each measurement of each contender for a moment.
func TestEveryContender(t *testing.T) {
	s, err := Serve(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	const moment = 20 * time.Millisecond
	contenders := []struct {
		name string
		push bool
		make func() (Dialler, error)
	}{
		{"tls", false, func() (Dialler, error) { return TLS(s.Addresses.TLS), nil }},
		{"bare", true, func() (Dialler, error) { return NewBare(s.Addresses.Bare, false) }},
		{"bare with receipts", true, func() (Dialler, error) { return NewBare(s.Addresses.Bare, true) }},
		{"weida", true, func() (Dialler, error) { return NewWeida(s.Addresses.Weida, true) }},
		{"weida without receipts", true, func() (Dialler, error) { return NewWeida(s.Addresses.Weida, false) }},
	}
	for _, x := range contenders {
		t.Run(x.name, func(t *testing.T) {
			d, err := x.make()
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := d.Close(); err != nil {
					t.Error(err)
				}
			}()
			if r, err := Echo(t.Context(), d, 1000, moment); err != nil || r.Records == 0 || r.Latency.TotalCount() != r.Records {
				t.Errorf("echo: %d records, %v", r.Records, err)
			}
			if r, err := Large(t.Context(), d, 5<<20); err != nil || r.Records != 5 {
				t.Errorf("large stream: %d MiB, %v", r.Records, err)
			}
			if r, err := Handshakes(t.Context(), d, moment); err != nil || r.Records == 0 {
				t.Errorf("handshakes: %d, %v", r.Records, err)
			}
			measured := 0
			if err := Hold(t.Context(), d, 3, func() error { measured++; return nil }); err != nil || measured != 1 {
				t.Errorf("held connections: measured %d times, %v", measured, err)
			}
			// Push comes last: a runtime that has drained its receipts is of no more use.
			r, err := Push(t.Context(), d, 64, moment)
			if x.push && (err != nil || r.Records == 0) {
				t.Errorf("push: %d records, %v", r.Records, err)
			}
			if !x.push && !errors.Is(err, ErrNoPush) {
				t.Errorf("push: got %v, want ErrNoPush", err)
			}
		})
	}
}

// TestEveryCarrier takes each measurement of the patterns over each carrier for a moment.
func TestEveryCarrier(t *testing.T) {
	s, err := Serve(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	const moment = 20 * time.Millisecond
	for name, address := range map[string]string{"in-process": s.Addresses.Inproc, "unix": s.Addresses.Unix, "quic": s.Addresses.Weida} {
		t.Run(name, func(t *testing.T) {
			d, err := NewCarried(s.Addresses, address)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := d.Close(); err != nil {
					t.Error(err)
				}
			}()
			for _, bytes := range []int{1000, 1 << 20} {
				if r, err := Request(t.Context(), d, bytes, moment); err != nil || r.Records == 0 || r.Latency.TotalCount() != r.Records {
					t.Errorf("requests of %d bytes: %d, %v", bytes, r.Records, err)
				}
				if r, err := s.PushRead(t.Context(), d, bytes, moment); err != nil || r.Records == 0 {
					t.Errorf("pushes of %d bytes: %d, %v", bytes, r.Records, err)
				}
			}
			for range 2 { // the second begins alone
				if r, err := s.Publish(t.Context(), address, 3, 64, moment); err != nil || r.Records == 0 || (r.Records+r.Failed)%3 != 0 {
					t.Errorf("publish: %d copies, %d dropped, %v", r.Records, r.Failed, err)
				}
			}
		})
	}
	if r := Match("a.*", "a.b", moment); r.Records == 0 || r.Records%matches != 0 || r.Latency.TotalCount() == 0 {
		t.Errorf("matches: %d", r.Records)
	}
}

func TestServeProcess(t *testing.T) {
	in, toServer := io.Pipe()
	fromServer, out := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- ServeProcess(t.Context(), in, out) }()
	lines := bufio.NewReader(fromServer)
	line, err := lines.ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	var a Addresses
	if err := json.Unmarshal(line, &a); err != nil {
		t.Fatal(err)
	}
	if _, err := Echo(t.Context(), TLS(a.TLS), 10, time.Millisecond); err != nil {
		t.Error(err)
	}
	if _, err := io.WriteString(toServer, "\n"); err != nil {
		t.Fatal(err)
	}
	if line, err := lines.ReadString('\n'); line != "null\n" || err != nil {
		t.Errorf("after a line: got %q, %v", line, err)
	}
	if err := toServer.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}
