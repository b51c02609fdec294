//go:build linux || darwin

package unixsocket

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// ErrInUse says that another process listens on the socket, or is about to.
var ErrInUse = errors.New("unix socket: it is in use")

const (
	lockSuffix = ".lock"
	socketMode = 0o600
	// backlog is how many connections may wait to be accepted.
	backlog = 4096
)

// Socket is a listening Unix socket that this process owns.
//
// Who may own the path is decided by an flock on PATH.lock, held for life, so of
// many starters exactly one goes on; the lock file stays, since removing it would
// let two processes lock two files of that name. The socket is made in
// steps such that nobody else can connect at any instant:
//
//  1. socket(2), then fchmod to 0600: Linux gives a bound name the mode of the
//     socket's own inode, so the name is born with it;
//  2. bind(2): the name exists, but connect(2) is refused before listen(2);
//  3. the name is looked at without following links: it is a socket, ours, 0600;
//  4. listen(2).
type Socket struct {
	*net.UnixListener
	path string
	lock *os.File
	id   fileID
	once sync.Once
	err  error // of Close
}

// fileID tells files apart.
type fileID struct{ dev, ino uint64 }

// Listen takes the path, whose folder must exist, for this process: it locks, clears away a stale socket and
// listens. ErrInUse: another process has it. What is there and is not a socket stays, and is an error.
func Listen(path string) (*Socket, error) {
	if err := CheckPath(path); err != nil {
		return nil, err
	}
	lock, err := lockBeside(path)
	if err != nil {
		return nil, err
	}
	s := &Socket{path: path, lock: lock}
	if err := removeStale(path); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	if err := s.listen(); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return s, nil
}

// lockBeside takes the lock of a socket path without waiting: ErrInUse if
// another process has it. A link, or what is no plain file of ours, is refused.
func lockBeside(path string) (*os.File, error) {
	name := path + lockSuffix
	fd, err := unix.Open(name, unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, socketMode)
	if err != nil {
		return nil, fmt.Errorf("unix socket: open the lock %s: %w", name, err)
	}
	file := os.NewFile(uintptr(fd), name)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, errors.Join(fmt.Errorf("unix socket: look at the lock %s: %w", name, err), file.Close())
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || int(st.Uid) != os.Geteuid() {
		return nil, errors.Join(fmt.Errorf("unix socket: the lock %s is not a plain file of this user", name), file.Close())
	}
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = fmt.Errorf("%w: another process holds %s", ErrInUse, name)
		} else {
			err = fmt.Errorf("unix socket: lock %s: %w", name, err)
		}
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// removeStale removes a socket of ours that nobody listens on. Whatever else is
// at path stays, and is an error.
func removeStale(path string) error {
	var st unix.Stat_t
	err := unix.Lstat(path, &st)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("unix socket: look at %s: %w", path, err)
	case st.Mode&unix.S_IFMT != unix.S_IFSOCK:
		return fmt.Errorf("unix socket: %s exists and is not a socket: it is left alone", path)
	case int(st.Uid) != os.Geteuid():
		return fmt.Errorf("unix socket: the socket %s belongs to user id %d: it is left alone", path, st.Uid)
	}
	conn, err := net.Dial("unix", path)
	if err == nil {
		return errors.Join(fmt.Errorf("%w: something answers at %s", ErrInUse, path), conn.Close())
	}
	if !errors.Is(err, unix.ECONNREFUSED) {
		return fmt.Errorf("unix socket: cannot tell whether %s is in use: %w", path, err)
	}
	if err := unix.Unlink(path); err != nil {
		return fmt.Errorf("unix socket: remove the stale socket %s: %w", path, err)
	}
	return nil
}

func (s *Socket) listen() error {
	fd, err := newSocket()
	if err != nil {
		return fmt.Errorf("unix socket: make a socket: %w", err)
	}
	file := os.NewFile(uintptr(fd), s.path)
	defer file.Close()
	if err := s.bind(fd); err != nil {
		return err
	}
	if err := unix.Listen(fd, backlog); err != nil {
		return errors.Join(fmt.Errorf("unix socket: listen on %s: %w", s.path, err), s.unlink())
	}
	l, err := net.FileListener(file)
	if err != nil {
		return errors.Join(fmt.Errorf("unix socket: listen on %s: %w", s.path, err), s.unlink())
	}
	unixListener, ok := l.(*net.UnixListener)
	if !ok {
		return errors.Join(fmt.Errorf("unix socket: %s is no Unix socket", s.path), l.Close(), s.unlink())
	}
	s.UnixListener = unixListener
	return nil
}

// bind gives the socket its name, which nobody can connect to yet, and makes
// sure of its mode.
func (s *Socket) bind(fd int) error {
	if err := bindPrivate(fd, s.path); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Lstat(s.path, &st); err != nil {
		return fmt.Errorf("unix socket: look at %s: %w", s.path, err)
	}
	s.id = idOf(&st)
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK || int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("unix socket: %s was replaced while it was made", s.path)
	}
	if mode := st.Mode &^ unix.S_IFMT; mode != socketMode {
		return errors.Join(fmt.Errorf("unix socket: %s was made with mode %#o instead of %#o (check the umask)", s.path, mode, socketMode), s.unlink())
	}
	return nil
}

// idOf tells a file apart from others. The type of the device number differs between systems.
func idOf(st *unix.Stat_t) fileID { return fileID{dev: uint64(st.Dev), ino: st.Ino} }

// unlink removes the name if it still is this socket's.
func (s *Socket) unlink() error {
	var st unix.Stat_t
	if err := unix.Lstat(s.path, &st); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return fmt.Errorf("unix socket: look at %s: %w", s.path, err)
	}
	if idOf(&st) != s.id {
		return nil
	}
	if err := unix.Unlink(s.path); err != nil {
		return fmt.Errorf("unix socket: remove %s: %w", s.path, err)
	}
	return nil
}

// Close stops listening, removes the name and gives the lock back, in this
// order, so that the next owner finds nothing of this one. A second call does nothing.
func (s *Socket) Close() error {
	s.once.Do(func() { s.err = errors.Join(s.UnixListener.Close(), s.unlink(), s.lock.Close()) })
	return s.err
}

// Credentials is who is at the other end of a socket.
type Credentials struct {
	UID, GID uint32
	// PID is 0 where the kernel does not tell it. It is an observation: nothing may be allowed because of it.
	PID int32
}

// Peer asks the kernel who made the connection, or who listened where this side made it.
func Peer(nc *net.UnixConn) (Credentials, error) {
	raw, err := nc.SyscallConn()
	if err != nil {
		return Credentials{}, fmt.Errorf("unix socket: peer credentials: %w", err)
	}
	var cred Credentials
	var credErr error
	if err := raw.Control(func(fd uintptr) { cred, credErr = peer(int(fd)) }); err != nil {
		return Credentials{}, fmt.Errorf("unix socket: peer credentials: %w", err)
	}
	if credErr != nil {
		return Credentials{}, fmt.Errorf("unix socket: peer credentials: %w", credErr)
	}
	return cred, nil
}
