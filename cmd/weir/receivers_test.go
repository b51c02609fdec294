package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// freeAddress returns an address that nobody listens on now.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// forgetful passes requests on and loses the first answer to each, so that weir sends every record at least twice.
func forgetful(t *testing.T, to string) *httptest.Server {
	var mu sync.Mutex
	seen := map[string]bool{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		req, err := http.NewRequestWithContext(r.Context(), http.MethodPost, "http://"+to+"/", bytes.NewReader(body))
		if err != nil {
			t.Error(err)
			return
		}
		req.Header = r.Header.Clone()
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		resp.Body.Close()
		key := r.Header.Get("Idempotency-Key")
		mu.Lock()
		first := !seen[key]
		seen[key] = true
		mu.Unlock()
		if first {
			http.Error(w, "the answer was lost", http.StatusGatewayTimeout)
			return
		}
		w.WriteHeader(resp.StatusCode)
	}))
	t.Cleanup(s.Close)
	return s
}

// TestReceiversDropRepeats: each receiver of the documentation keeps every record once, though every record comes at least
// twice, and does so over a restart of its own.
func TestReceiversDropRepeats(t *testing.T) {
	for _, tc := range []struct {
		name, tool, pkg string
		args            []string
	}{
		{"go", "go", "golang", nil},
		{"python", "python3", "python3", []string{"../../docs/receivers/python/receiver.py"}},
		{"node", "node", "nodejs", []string{"../../docs/receivers/node/receiver.mjs"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			program, args := tool(t, tc.tool, tc.pkg), tc.args
			if tc.name == "go" {
				program = filepath.Join(t.TempDir(), "receiver")
				if out, err := exec.Command("go", "build", "-o", program, "../../docs/receivers/go").CombinedOutput(); err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
			}
			address, file := freeAddress(t), filepath.Join(t.TempDir(), "received.jsonl")
			dir := filepath.Join(t.TempDir(), "data")
			end := forgetful(t, address)
			startWeir(t, dir, "--sink", "http", "--sink-url", end.URL)
			want := map[string]int{}
			for round := range 2 {
				stop := startReceiver(t, program, append(args, address, file)...)
				for i := range 20 {
					text := fmt.Sprintf("round %d, record %d\x00\xff", round, i)
					want[text] = 1
					pushText(t, dir, text)
				}
				await(t, dir, func(s shownStatus) bool { return s.Backlog == 0 })
				stop()
				if round == 0 { // as a crash in the middle of a write leaves it
					f, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND, 0o600)
					if err != nil {
						t.Fatal(err)
					}
					_, err = f.WriteString(`{"key":"sha256:torn`)
					if err != nil || f.Close() != nil {
						t.Fatal(err)
					}
				}
			}
			got := readReceived(t, file)
			if len(got) != len(want) {
				t.Errorf("%d records, want %d", len(got), len(want))
			}
			for text, n := range got {
				if n != want[text] {
					t.Errorf("%q is kept %d times", text, n)
				}
			}
		})
	}
}

// startReceiver runs a receiver and returns when it says that it receives.
func startReceiver(t *testing.T, program string, args ...string) (stop func()) {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed
	})
	t.Cleanup(stop)
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("the receiver did not start: %q, %v", line, err)
	}
	return stop
}

func readReceived(t *testing.T, file string) map[string]int {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for text := range bytes.Lines(content) {
		var line struct{ Body []byte }
		if json.Unmarshal(text, &line) == nil {
			got[string(line.Body)]++
		}
	}
	return got
}
