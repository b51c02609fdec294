package admin

import (
	"os"
	"syscall"
)

// socketMode lets only the daemon's own user connect.
const socketMode = 0o600

// chmodBeforeListen returns a net.ListenConfig.Control that binds nothing itself: Control runs before bind, so it
// sets the mode that the socket's inode will get by fchmod of the socket.
func chmodBeforeListen(string) func(network, address string, c syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) error {
		var err error
		if e := c.Control(func(fd uintptr) { err = syscall.Fchmod(int(fd), socketMode) }); e != nil {
			return e
		}
		return os.NewSyscallError("fchmod", err)
	}
}
