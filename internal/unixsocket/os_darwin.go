package unixsocket

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

func peer(fd int) (Credentials, error) {
	cred, err := unix.GetsockoptXucred(fd, unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
	if err != nil {
		return Credentials{}, err
	}
	c := Credentials{UID: cred.Uid}
	if cred.Ngroups > 0 {
		c.GID = cred.Groups[0]
	}
	return c, nil
}

// newSocket makes a Unix socket that a child process does not inherit.
func newSocket() (int, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return -1, err
	}
	unix.CloseOnExec(fd)
	if err := unix.SetNonblock(fd, true); err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

// bindPrivate gives the socket its name and then socketMode. In between nobody can connect: connect(2) is refused
// before listen(2).
func bindPrivate(fd int, path string) error {
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		return fmt.Errorf("unix socket: bind %s: %w", path, err)
	}
	if err := unix.Chmod(path, socketMode); err != nil {
		return fmt.Errorf("unix socket: set the mode of %s: %w", path, err)
	}
	return nil
}
