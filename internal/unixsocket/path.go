// Package unixsocket makes listening Unix sockets that nobody but their owner can reach at any instant, and asks the kernel who is at the other end of one.
package unixsocket

import (
	"errors"
	"fmt"
)

// MaxPathBytes is the room in sockaddr_un.sun_path without its NUL.
const MaxPathBytes = 107

// CheckPath refuses what no socket can be named.
func CheckPath(path string) error {
	switch {
	case path == "":
		return errors.New("unix socket: it has no path")
	case len(path) > MaxPathBytes:
		return fmt.Errorf("unix socket: the path has %d bytes, the operating system takes %d: %s", len(path), MaxPathBytes, path)
	}
	return nil
}
