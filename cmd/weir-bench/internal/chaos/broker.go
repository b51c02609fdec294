package chaos

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/weir-agent/weir/wab"
	"github.com/weir-agent/weir/weida/broker/wabstore"
)

// The paths of the broker's queues.
const (
	orders = "/orders"
	dead   = "/dead"
)

// brokerConfig is what the broker runs with: a queue small enough to be full at times, whose log is tidied often, and short times.
const brokerConfig = `[broker]
data_dir = %[1]q
listen = [%[2]q]
socket = "none"
idle_timeout = "2s"
min_free_bytes = 0
shutdown_timeout = "2s"
[trust]
anybody = true
[[queue]]
path = "/orders"
max_bytes = "4MiB"
max_disk_bytes = "%[3]dB"
max_attempts = 8
dead_letter = "/dead"
[[queue]]
path = "/dead"
max_bytes = "4MiB"
max_disk_bytes = "%[3]dB"
[admin]
listen = ""
[log]
level = "error"
`

// queueDisk bounds the log of a queue, well under what its file system has.
const queueDisk = 24 << 20

// brokerd is a weida broker in a process of its own. One goroutine uses it.
type brokerd struct {
	*child
	pin   string // sha256:…
	admin *http.Client
}

// startBroker runs the weida binary as a broker, by way of another program whose command line is prefix, and returns when it serves.
func startBroker(ctx context.Context, prefix []string, weida, config, dataDir string, errOut io.Writer) (*brokerd, error) {
	b := &brokerd{child: newChild(ctx, prefix, errOut, weida, "broker", "run", "--config", config)}
	socket := filepath.Join(dataDir, "admin.sock")
	b.admin = &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}, DisableKeepAlives: true}}
	out, err := b.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("chaos: %w", err)
	}
	if err := b.cmd.Start(); err != nil {
		return nil, fmt.Errorf("chaos: %w", err)
	}
	r := bufio.NewReader(out)
	for range 2 { // an address for each queue
		address, err := r.ReadString('\n')
		if err != nil {
			_ = b.cmd.Process.Kill() // it may have ended
			return nil, fmt.Errorf("chaos: the broker does not come up: %w", errors.Join(err, b.cmd.Wait()))
		}
		rest := strings.TrimPrefix(address, "weida://")
		b.pin, _, _ = strings.Cut(rest, "@")
	}
	return b, nil
}

// urlAt is the address of the queue of orders where the broker is reached at host:port.
func (b *brokerd) urlAt(addr string) string { return "weida://" + b.pin + "@" + addr + orders }

// queueStats is what a broker says of a queue.
type queueStats struct {
	Path     string `json:"path"`
	Messages int    `json:"messages"`
	Repeats  uint64 `json:"repeats"`
}

// stats asks for the state of the queue of orders.
func (b *brokerd) stats(ctx context.Context) (st queueStats, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://broker/api/v1/queues", nil)
	if err != nil {
		return st, err
	}
	resp, err := b.admin.Do(req)
	if err != nil {
		return st, fmt.Errorf("chaos: ask the broker: %w", err)
	}
	defer resp.Body.Close()
	var all struct {
		Queues []queueStats `json:"queues"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&all); err != nil {
		return st, fmt.Errorf("chaos: ask the broker: %w", err)
	}
	for _, q := range all.Queues {
		if q.Path == orders {
			return q, nil
		}
	}
	return st, errors.New("chaos: the broker knows nothing of its queue")
}

// openStore opens the store of a queue in the folder of a broker that has ended.
func openStore(dataDir, path string) (*wabstore.Store, error) {
	dir := filepath.Join(dataDir, "queues", url.PathEscape(path))
	return wabstore.Open(dir, wabstore.Options{Log: wab.Options{MaxBytes: queueDisk, MinFreeBytes: -1}})
}
