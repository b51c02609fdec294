package daemon

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"
)

// notifier tells the service manager how the daemon is, where one asks for it (NOTIFY_SOCKET of systemd).
type notifier struct {
	path  string
	every time.Duration // of the watchdog; 0: none
}

// watchdogShare: the watchdog is fed this many times in its period.
const watchdogShare = 3

func newNotifier() notifier {
	n := notifier{path: os.Getenv("NOTIFY_SOCKET")}
	if us, err := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 64); err == nil && us > 0 {
		if pid := os.Getenv("WATCHDOG_PID"); pid == "" || pid == strconv.Itoa(os.Getpid()) {
			n.every = time.Duration(us) * time.Microsecond / watchdogShare
		}
	}
	return n
}

// send tells one state, like "READY=1".
func (n notifier) send(state string) error {
	if n.path == "" {
		return nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: n.path, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("notify the service manager: %w", err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte(state)); err != nil {
		return fmt.Errorf("notify the service manager: %w", err)
	}
	return nil
}

// feed feeds the watchdog until ctx ends, each time after alive has returned: it asks every part of the daemon, so that one
// that is stuck is noticed.
func (n notifier) feed(ctx context.Context, alive func(), failed func(error)) {
	if n.path == "" || n.every == 0 {
		return
	}
	tick := time.NewTicker(n.every)
	defer tick.Stop()
	for {
		alive()
		if err := n.send("WATCHDOG=1"); err != nil {
			failed(err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
