package localtransport

import (
	"errors"
	"fmt"

	"github.com/weir-agent/weir/internal/unixsocket"
)

// ErrSocketPath is returned for what no socket can be named.
var ErrSocketPath = errors.New("localtransport: not a path of a socket")

// CheckSocket refuses what no socket can be named, and names outside of the file system.
func CheckSocket(path string) error {
	if err := unixsocket.CheckPath(path); err != nil {
		return fmt.Errorf("%w: %w", ErrSocketPath, err)
	}
	if path[0] == '@' {
		return fmt.Errorf("%w: it begins with an at sign", ErrSocketPath)
	}
	for i := range len(path) {
		if path[i] == 0 {
			return fmt.Errorf("%w: it holds a zero byte", ErrSocketPath)
		}
	}
	return nil
}

// ErrNoSockets is returned where Unix sockets are not built in.
var ErrNoSockets = errors.New("localtransport: no Unix sockets on this system")
