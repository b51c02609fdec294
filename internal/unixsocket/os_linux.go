package unixsocket

import (
	"fmt"

	"golang.org/x/sys/unix"
)

func peer(fd int) (Credentials, error) {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return Credentials{}, err
	}
	return Credentials{UID: cred.Uid, GID: cred.Gid, PID: cred.Pid}, nil
}

// newSocket makes a Unix socket that a child process does not inherit.
func newSocket() (int, error) {
	return unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
}

// bindPrivate gives the socket its name with socketMode: Linux gives the name the mode of the socket's own inode, so that
// the name is born with it.
func bindPrivate(fd int, path string) error {
	if err := unix.Fchmod(fd, socketMode); err != nil {
		return fmt.Errorf("unix socket: set the mode of the socket: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		return fmt.Errorf("unix socket: bind %s: %w", path, err)
	}
	return nil
}
